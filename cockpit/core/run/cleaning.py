"""Which runs are old enough to go, and why one stays: by recorded facts alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cockpit.core.ranks import nodes_text
from cockpit.core.run.failure import failure
from cockpit.core.run.model import RunModel
from cockpit.core.text import counted

STATES = ("ended", "failed", "stopped", "unended", "damaged")
"""What a run may be that does not run."""


def state_of(model: RunModel) -> str:
    """``running``, or one of :data:`STATES`: ``unended`` where its end is not on record."""
    if not model.over:
        live = any(node.link == "ok" and not node.over for node in model.nodes.values())
        return "running" if live or model.alive() else "unended"
    first = model.judged or failure(model, "")
    if first is None and (model.hung or model.asked_to_stop):
        return "stopped"
    return "failed" if first is not None or model.exit_code() else "ended"


@dataclass(frozen=True)
class Part:
    """A run's folder on one of its nodes.

    :param there: whether there is one
    :param whole: whether all of it was counted
    :param reports: how many files a profiler, or NCCL's watchdog, wrote there that were not collected
    :param alive: whether its supervisor, or a process of the run, lives there
    :param ended: whether its end is on record there
    :param why: why nothing is known of it, or it cannot be removed; empty: nothing is in the way
    """

    there: bool = False
    bytes: int = 0
    whole: bool = True
    reports: int = 0
    alive: bool = False
    ended: bool = False
    why: str = ""


@dataclass(frozen=True)
class Old:
    """A run as far as cleaning is concerned.

    :param state: see :func:`state_of`
    :param text: the same in a few words
    :param age_s: seconds since it ended, or else since something of it was written here
    :param here: bytes that its folder on this machine takes
    :param parts: its folders on its nodes, by node; nothing: they were not asked
    :param fixed: why it stays, whatever is wanted; empty: nothing forbids it
    """

    run: str
    state: str
    text: str
    age_s: float
    here: int
    parts: Mapping[str, Part] = field(default_factory=dict)
    fixed: str = ""

    @property
    def away(self) -> int:
        """Bytes on its nodes."""
        return sum(part.bytes for part in self.parts.values())

    @property
    def whole(self) -> bool:
        """Whether all of it was counted."""
        return all(part.whole and not part.why for part in self.parts.values())


@dataclass(frozen=True)
class Wanted:
    """Which runs are to go, and what is allowed for that.

    :param names: these alone; empty: all
    :param keep: so many of the newest stay
    :param here: only what is on this machine goes
    :param unended: also those whose end is not on record, if nothing of them lives
    :param uncollected: also those with reports on nodes that are nowhere else
    """

    names: frozenset[str] = frozenset()
    older_s: float = 0.0
    larger: int = 0
    states: frozenset[str] = frozenset()
    keep: int | None = None
    here: bool = False
    unended: bool = False
    uncollected: bool = False

    @property
    def chosen(self) -> bool:
        """Whether anything says which runs are meant."""
        return bool(self.names or self.older_s or self.larger or self.states or self.keep is not None)

    def first(self, runs: Iterable[Old]) -> list[Old]:
        """Those that are meant as far as nodes need not be asked, in the same order.

        :param runs: all of them, oldest first
        """
        listed = list(runs)
        if self.keep is not None:
            listed = listed[: max(0, len(listed) - self.keep)]
        return [run for run in listed if self._meant(run)]

    def _meant(self, run: Old) -> bool:
        by_name = not self.names or run.run in self.names
        by_state = not self.states or run.state in self.states
        return by_name and by_state and run.age_s >= self.older_s

    def large(self, run: Old) -> bool:
        """Whether it takes as much as is asked for."""
        return run.here + run.away >= self.larger

    def why_kept(self, run: Old) -> str:
        """Why a run stays that is meant, and what to type if that is possible; empty: it goes."""
        alive = [name for name, part in run.parts.items() if part.alive]
        if run.fixed:
            return run.fixed
        if run.state == "running" or alive:
            return f"it is running{f' on {nodes_text(alive)}' if alive else ''}"
        if self.here:
            return ""
        return self._on_nodes(run)

    def _on_nodes(self, run: Old) -> str:
        silent = {name: part.why for name, part in run.parts.items() if part.why}
        unended = [name for name, part in run.parts.items() if part.there and not part.ended and not part.why]
        reports = {name: part.reports for name, part in run.parts.items() if part.reports}
        if run.state == "damaged":
            return f"{run.text}; to remove it here alone: --here"
        if silent:
            first = next(iter(silent.values()))
            return f"{nodes_text(silent)}: {first}; to remove it here alone: --here"
        if (run.state == "unended" or unended) and not self.unended:
            where = f" on {nodes_text(unended)}" if unended else ""
            return f"no recorded end{where}; to remove it anyway: --unended"
        if reports and not self.uncollected:
            files = counted(sum(reports.values()), "report")
            where = f"{files} on {nodes_text(reports)} not collected"
            return f"{where}; cockpit collect {run.run}, or --uncollected"
        return ""
