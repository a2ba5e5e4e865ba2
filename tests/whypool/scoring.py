"""The reason that was said, against where a rank was slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.slowpool.cases import SITES, SIZES
from tests.slowpool.scoring import Outcome, near
from tests.whypool.cases import RUNS

SAID = {"data": "input", "io": ""}
"""The phase that a rank is slow by at a site, where it has another name; empty: none of them is it."""

APART = ("", "other")
"""What is said where no marked phase is the reason: where a rank is then is for its stacks to say."""


class Reasoned(Outcome):
    """A phase of a launch, judged by the reason that was said."""

    @property
    def verdict(self) -> str:
        """``right``, ``wrong``, ``none``; ``unnamed``: nobody was, or another rank; of healthy ones
        ``right`` and ``NAMED``."""
        if self.fault is None:
            return "NAMED" if self.named else "right"
        if not self.right:
            return "unnamed"
        truth, said = SAID.get(self.fault.site, self.fault.site), self.why[0]
        if said in APART:
            return "none" if truth else "right"
        return "right" if said == truth else "wrong"

    @property
    def fine(self) -> bool:
        """Whether all is as it should be."""
        return self.verdict == "right"

    def _said(self, named: tuple[int, float], why: str) -> str:
        return f"{super()._said(named, why)} {why or 'no reason'}"


def table(outcomes: Sequence[Reasoned]) -> str:
    """Rows of Markdown: whether the reason was right, of how many."""
    rows = [
        "| | reason right | wrong | none | not called slow | healthy, nobody named |",
        "|---|---|---|---|---|---|",
    ]
    groups: list[tuple[str, Callable[[Reasoned], bool]]] = [
        *((_run(*run), lambda one, run=run: _run_of(one) == run) for run in RUNS),
        *((site, lambda one, site=site: one.fault and one.fault.site == site) for site in SITES),
        *((f"+{size:.0%}", lambda one, size=size: one.fault and near(one.fault, size)) for size in SIZES),
        ("all", lambda one: True),
    ]
    for name, chosen in groups:
        some = [one for one in outcomes if chosen(one)]
        slow = [one.verdict for one in some if one.fault]
        healthy = [one.verdict for one in some if not one.fault]
        spared = f"{healthy.count('right')} of {len(healthy)}" if healthy else ""
        said = " | ".join(str(slow.count(verdict)) for verdict in ("wrong", "none", "unnamed"))
        rows.append(f"| {name} | {slow.count('right')} of {len(slow)} | {said} | {spared} |")
    return "\n".join(rows)


def _run_of(one: Outcome) -> tuple[str, int, int]:
    return one.launch.setup, one.launch.micro, one.launch.ranks


def _run(setup: str, micro: int, ranks: int) -> str:
    return f"{setup}, {ranks} ranks" + (f", accumulation of {micro}" if micro > 1 else "")


def met(outcomes: Sequence[Reasoned]) -> bool:
    """Whether nine in ten reasons are right, and nobody is named where all are healthy."""
    slow = [one.verdict for one in outcomes if one.fault]
    spared = all(one.verdict == "right" for one in outcomes if not one.fault)
    return spared and bool(slow) and slow.count("right") >= 0.9 * len(slow)


HEAD = """# Why a rank is slow

Two to four ranks of real training (torch on CPU over gloo), watched by cockpit, one of them slow in one
phase of its steps or none; *io* is between the update and the next input, so that no phase is the reason.
Written by `make whypool ARGS=--write`."""
