"""Who was named, against who was slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests import tries
from tests.slowpool.cases import SETUPS, SITES, SIZES, Calm, Fault, Launch

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Outcome:
    """A phase of a launch, and what cockpit said at its end.

    :param named: the slow ranks, the slowest first, and by how much
    :param why: of each of them the phase that it is slow by; empty: none was said
    :param load: of this machine, then
    """

    launch: Launch
    phase: int
    fault: Fault | None
    named: tuple[tuple[int, float], ...]
    why: tuple[str, ...]
    seconds: float
    load: float

    @classmethod
    def read(cls, launch: Launch, facts: dict[str, Any]) -> Self:
        """One that was kept as JSON."""
        named = tuple((slow["rank"], slow["excess"]) for slow in facts["slow"])
        phase = facts["phase"]
        planned = launch.phases[phase]
        fault = planned if isinstance(planned, Fault) else None
        return cls(launch, phase, fault, named, tuple(facts["why"]), facts["seconds"], facts["load"])

    @property
    def right(self) -> bool:
        """Whether the slow rank is named first; of healthy ones, whether none is."""
        if self.fault is None:
            return not self.named
        return bool(self.named) and self.named[0][0] == self.fault.rank

    @property
    def alone(self) -> bool:
        """Whether nobody else is named."""
        return self.right and len(self.named) <= 1

    def __str__(self) -> str:
        named = ", ".join(map(self._said, self.named, self.why)) or "nobody"
        where = f"{self.launch.name:8} {self.phase:2} {self._truth:24}"
        return f"{where} named: {named:24} {self.seconds:4.0f} s load {self.load:3.0f} {self.verdict}"

    @property
    def verdict(self) -> str:
        """Empty if all is as it should be."""
        return "" if self.alone else "too many" if self.right else "WRONG"

    @property
    def fine(self) -> bool:
        """Whether all is as it should be."""
        return self.alone

    @property
    def _truth(self) -> str:
        planned = self.launch.phases[self.phase]
        if isinstance(planned, Fault):
            return f"rank {planned.rank} {planned.site} +{planned.size:.0%}"
        return f"healthy, {planned.habit}" if isinstance(planned, Calm) else "healthy"

    def _said(self, named: tuple[int, float], why: str) -> str:
        return f"{named[0]} +{named[1]:.0%}"


def table(outcomes: Sequence[Outcome]) -> str:
    """Rows of Markdown: who was named first, of how many."""
    rows = ["| | slow rank first | named alone | healthy, nobody named |", "|---|---|---|---|"]
    groups: list[tuple[str, Callable[[Outcome], bool]]] = [
        *((setup, lambda one, setup=setup: one.launch.setup == setup) for setup in SETUPS),
        *((f"accumulation of {n}", lambda one, n=n: one.launch.micro == n) for n in (1, 4)),
        *((site, lambda one, site=site: one.fault and one.fault.site == site) for site in SITES),
        *((f"+{size:.0%}", lambda one, size=size: one.fault and near(one.fault, size)) for size in SIZES),
        ("all", lambda one: True),
    ]
    for name, chosen in groups:
        some = [one for one in outcomes if chosen(one)]
        slow = [one for one in some if one.fault]
        healthy = [one for one in some if not one.fault]
        right, alone = sum(one.right for one in slow), sum(one.alone for one in slow)
        spared = f"{sum(one.right for one in healthy)} of {len(healthy)}" if healthy else ""
        rows.append(f"| {name} | {right} of {len(slow)} | {alone} | {spared} |")
    return "\n".join(rows)


def met(outcomes: Sequence[Outcome]) -> bool:
    """Whether nine in ten slow ranks are named first, and nobody where all are healthy."""
    slow = [one for one in outcomes if one.fault]
    spared = all(one.right for one in outcomes if not one.fault)
    return spared and bool(slow) and sum(one.right for one in slow) >= 0.9 * len(slow)


def near(fault: Fault, size: float) -> bool:
    """Whether its size was drawn around this one."""
    return abs(fault.size / size - 1) < 0.1


def page(outcomes: Sequence[Outcome], seed: int, head: str, table: str) -> str:
    """The score, with what else must be known about it."""
    when = tries.when(seed, [one.load for one in outcomes])
    wrong = [f"    {one}" for one in outcomes if not one.fine]
    lines = [head, "", f"{when}.", "", table, ""]
    return "\n".join([*lines, "Not as it should be:", "", *(wrong or ["    nothing"]), ""])


HEAD = """# Who is slow

Four ranks of real training (torch on CPU over gloo), watched by cockpit, one of them slow or none;
written by `make slowpool ARGS=--write`."""
