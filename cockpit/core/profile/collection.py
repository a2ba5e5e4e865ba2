"""A collection: one profile over the ranks of a job, in one window, as it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cockpit.base.profile.summary import RankProfile

DONE = "done"


@dataclass(frozen=True)
class RankResult:
    """What came of one rank.

    :param state: the last of :attr:`cockpit.base.answers.ProfileItem.state`; :data:`DONE`: it is here
    :param why: why it is not, in a sentence; of one that is, what makes it less than it seems
    :param began: when its profile began, unix seconds on our clock; None: it did not
    :param file: its name in the reports folder of its node, of ``nsys`` the same for all ranks there; empty:
        there is none
    :param summary: of ``torch`` and ``nsys``; None: there is none
    :param folded: of ``cpu``: folded stacks, ``outer;inner N`` a line
    """

    rank: int
    node: str
    state: str = ""
    why: str = ""
    began: float | None = None
    file: str = ""
    size: int = 0
    sha256: str = ""
    rate: int = 0
    samples: int = 0
    errors: int = 0
    summary: RankProfile | None = None
    folded: str = ""


@dataclass(frozen=True)
class Collection:
    """One window over some ranks.

    :param number: of the run, from 1; ``id``: the one that nodes know
    :param kind: ``torch``, ``cpu`` or ``nsys``
    :param at: when it was ordered, unix seconds on our clock
    :param first: the first of ``steps`` whole steps; None: it is ``seconds`` long
    :param options: ``shapes``, ``stack``, ``memory``
    :param results: of every rank that was asked for
    :param offsets: how far each node's clock is ahead of ours, seconds
    :param before: seconds of a step before the profile, the median over the ranks; ``during``, ``after``:
        the same; None: not known
    :param cancelled: who ended it early, and why; empty: nobody did
    :param since: ranks that were slow when it was ordered, and from which step on
    """

    number: int
    id: str
    run: str
    kind: str
    at: float
    first: int | None = None
    steps: int = 0
    seconds: float | None = None
    options: tuple[str, ...] = ()
    results: Mapping[int, RankResult] = field(default_factory=dict)
    offsets: Mapping[str, float] = field(default_factory=dict)
    before: float | None = None
    during: float | None = None
    after: float | None = None
    cancelled: str = ""
    since: Mapping[int, int] = field(default_factory=dict)

    @property
    def missing(self) -> dict[int, str]:
        """Ranks of which nothing is here, and why."""
        return {
            rank: one.why or one.state or "no answer"
            for rank, one in self.results.items()
            if one.state != DONE
        }

    @property
    def apart_s(self) -> float | None:
        """How far apart the ranks began, on our clock; None: fewer than two did."""
        begins = [one.began for one in self.results.values() if one.began is not None]
        return max(begins) - min(begins) if len(begins) > 1 else None
