"""Why a rank has no process to look at: what is known of it, as a fact, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from cockpit.core.run.states import Rank, RankState, signal_name


class Fate(Enum):
    """What became of a rank."""

    UNSTARTED = "unstarted"
    """Its launcher runs, or will; its own process does not yet."""
    UNSEEN = "unseen"
    """No node that was asked has it."""
    EXITED = "exited"
    """It ended by itself, with a code."""
    KILLED = "killed"
    """A signal ended it."""
    DEAD = "dead"
    """It is a zombie."""
    LOST = "lost"
    """It ended, and nobody recorded how."""
    GONE = "gone"
    """It is not there any more."""


RECORDED = frozenset({Fate.EXITED, Fate.KILLED})
"""What was recorded of an end: no dump knows better."""

_OF_STATE: Mapping[RankState, Fate] = MappingProxyType(
    {
        RankState.WAITING: Fate.UNSTARTED,
        RankState.STARTING: Fate.UNSTARTED,
        RankState.EXITED: Fate.EXITED,
        RankState.KILLED: Fate.KILLED,
        RankState.LOST: Fate.LOST,
        RankState.GONE: Fate.GONE,
    }
)


class End(NamedTuple):
    """What became of a rank.

    :param code: with which it exited
    :param signal: that ended it
    :param why: why it is lost, in words
    """

    fate: Fate
    code: int | None = None
    signal: int | None = None
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether it ended with status 0."""
        return self.fate is Fate.EXITED and self.code == 0

    @property
    def recorded(self) -> bool:
        """Whether it is certain that it has ended, and how."""
        return self.fate in RECORDED or self.fate is Fate.DEAD

    def words(self, *, many: bool = False) -> str:
        """That as the rest of a sentence about one rank or about several: ``was killed by SIGKILL``."""
        if self.fate is Fate.EXITED:
            return f"exited {self.code}"
        if self.fate is Fate.KILLED:
            return f"{'were' if many else 'was'} killed by {signal_name(self.signal or 0)}"
        if self.fate is Fate.LOST:
            return f"{'were' if many else 'was'} lost{': ' * bool(self.why)}{self.why}"
        if self.fate is Fate.DEAD:
            return "are dead (zombies)" if many else "is dead (a zombie)"
        if self.fate is Fate.GONE:
            return "are gone" if many else "is gone"
        return f"{'have' if many else 'has'} {'not started' if self.fate is Fate.UNSTARTED else 'no process'}"


def of_rank(rank: Rank) -> End | None:
    """What a run record has of a rank; None: it runs."""
    fate = _OF_STATE.get(rank.state)
    return None if fate is None else End(fate, rank.code, rank.signal, rank.why)
