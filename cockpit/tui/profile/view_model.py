"""What the screen shows of a profile: worked out in a thread, from the ranks that are here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from statistics import median

from cockpit.core.finding import Finding
from cockpit.core.masks import ranks_of
from cockpit.core.profile import folded
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.reader import read
from cockpit.core.profile.reading import Reading, Row
from cockpit.core.text import one_line
from cockpit.engine.profile.taking import Taking


@dataclass(frozen=True)
class Sampled:
    """Ranks of one node that are in the same place most of the time; of ``cpu``.

    :param frame: that they are in, calls left out; ``share``: of their time there, 0 to 1
    :param slow: they are somewhere for longer than the others
    """

    ranks: tuple[int, ...]
    node: str
    frame: str
    share: float
    samples: int
    slow: bool = False


@dataclass(frozen=True)
class Sight:
    """A collection, and what it says.

    :param rows: of the list of ranks
    :param compared: of ``cpu``: the stacks of all ranks, to compare each with the others
    """

    collection: Collection
    reading: Reading
    rows: tuple[Row | Sampled, ...] = ()
    compared: folded.Compared | None = None

    @property
    def sampled(self) -> tuple[int, ...]:
        """Ranks of which there are stacks."""
        return tuple(rank for row in self.rows if isinstance(row, Sampled) for rank in row.ranks)

    @property
    def finding(self) -> Finding:
        """The sentence that comes first."""
        return self.reading.finding


def see(collection: Collection) -> Sight:
    """What a collection says; takes a moment."""
    reading = read(collection)
    if collection.kind != "cpu":
        return Sight(collection, reading, reading.rows)
    samples = {
        rank: folded.parsed(one.folded) for rank, one in collection.results.items() if one.state == DONE
    }
    slow = set(ranks_of(reading.finding.ranks))
    left: list[Row | Sampled] = [row for row in reading.rows if row.state != DONE]
    return Sight(collection, reading, (*_sampled(collection, samples, slow), *left), folded.Compared(samples))


def _sampled(collection: Collection, samples: Mapping[int, folded.Samples], slow: Set[int]) -> list[Sampled]:
    alike: dict[tuple[str, str, bool], list[tuple[int, float]]] = {}
    for rank, stacks in sorted(samples.items()):
        frame, share = folded.top(stacks) or ("no sample", 0.0)
        node = one_line(collection.results[rank].node)
        alike.setdefault((node, frame, rank in slow), []).append((rank, share))
    rows = [
        Sampled(
            tuple(rank for rank, _ in some),
            node,
            frame,
            sum(share for _, share in some) / len(some),
            sum(collection.results[rank].samples for rank, _ in some),
            odd,
        )
        for (node, frame, odd), some in alike.items()
    ]
    return sorted(rows, key=lambda row: (not row.slow, row.ranks))


class Progress:
    """How far a profile is that is being taken, and how long what is left may take."""

    def __init__(self, taking: Taking, clock: Callable[[], float] = time.monotonic) -> None:
        self.taking = taking
        self._clock = clock
        self._last: dict[int, RankResult] = {}
        self._since: dict[int, tuple[str, float]] = {}
        self._took: dict[str, list[float]] = {}

    def look(self) -> bool:
        """Take in how far ranks are; whether anything has changed."""
        now, changed = self._clock(), False
        for rank, one in list(self.taking.results.items()):
            if self._last.get(rank) is one:
                continue
            changed, self._last[rank] = True, one
            state, since = self._since.get(rank, ("", now))
            if one.state != state:
                self._took.setdefault(state, []).append(now - since)
                self._since[rank] = one.state, now
        return changed

    def left_s(self, row: Row) -> float | None:
        """How long ranks go on with what they do, by those that are through with it; None: not known."""
        # A node sums up one trace after the other.
        queued = row.state in ("written", "reading")
        known = self._took.get("reading" if queued else row.state)
        if not known or not row.state:
            return None
        since = min(
            (self._since[rank][1] for rank in row.ranks if rank in self._since), default=self._clock()
        )
        whole = median(known) * (len(row.ranks) if queued else 1)
        return max(1.0, whole - (self._clock() - since))
