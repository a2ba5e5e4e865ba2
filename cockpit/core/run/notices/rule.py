"""What a rule is: it takes in what it needs, and says once a second what it sees wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.base.events import NoticeStep, Sample
from cockpit.core.pace.pace import Pace
from cockpit.core.run.states import Run


@dataclass(frozen=True)
class About:
    """What rules know of the run that they watch.

    :param name: the run's
    :param dirs: the folder on each node whose disk is measured
    :param job: the SLURM job that it is in; empty: in none
    :param ranks: how many its launcher has started; 0: not known
    :param profile: what is around it, as its manifest has it (:func:`cockpit.plans.script.profile`)
    """

    name: str
    dirs: Mapping[str, str] = field(default_factory=dict)
    job: str = ""
    ranks: int = 0
    profile: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Condition:
    """Something that is wrong now.

    :param of: tells it from others that the rule sees: a node, a GPU
    :param what: in one sentence; with ``due``, what will happen then
    :param since: unix seconds
    :param due: when it comes to pass, unix seconds; None: it is so now
    :param ranks: whom it is about
    :param step: from which on it has been so; None: it is about no steps
    """

    of: str
    what: str
    since: float
    due: float | None = None
    evidence: tuple[str, ...] = ()
    certainty: str = "likely"
    severity: str = "warning"
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    steps: tuple[NoticeStep, ...] = ()
    step: int | None = None


class Rule:
    """Sees one kind of thing; what it keeps is bounded. Times are unix seconds on our clock."""

    id = ""
    """Its name, and that of its switch in the settings."""
    lasting = False
    """Whether what it says stays as it was at first: a cockpit that comes later goes on with that."""
    source = ""
    """Where what it goes by is known from; empty: from this project."""

    def __init__(self, about: About) -> None:
        self.about = about

    def sampled(self, at: float, node: str, sample: Sample, run: Run) -> None:
        """A node was measured."""

    def read(self, at: float, said: Mapping[str, float]) -> None:
        """The run's log said new numbers (fields of :class:`cockpit.core.logs.progress.reading.Reading`)."""

    def printed(self, at: float, node: str, rank: int | None, data: bytes) -> None:
        """A rank printed these bytes; None: its launcher."""

    def restarted(self) -> None:
        """Ranks were started again: they may begin anew."""

    def interrupted(self) -> None:
        """Nobody was looking for a while, or our clock was set: what is known of times does not join up."""

    def look(self, at: float, run: Run, pace: Pace) -> Iterable[Condition]:
        """All that is wrong now; what is not among it any more is over."""
        return ()

    def ended(self, of: str) -> str:
        """What is said of something that is over; empty: nothing."""
        return ""
