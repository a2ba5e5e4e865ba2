"""The pace of a run as its session learns it, and a file of it, so that a run that is over has a past."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from cockpit.base.events import (
    Complete,
    EvidenceKept,
    Notice,
    Progress,
    RankExited,
    RankGone,
    RankLost,
    RankStarted,
    RankSteps,
    Sample,
    StopAsked,
    Watched,
)
from cockpit.base.gate import Malformed
from cockpit.base.growing_file import Lasting
from cockpit.base.progress.past import Stretch, pieces
from cockpit.base.progress.ring import SOURCES
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.past import PastStep, buckets, ended, past, past_of, recall_all, worse
from cockpit.core.pace.step import Key, Step
from cockpit.core.pace.thinning import APART_S, thinned
from cockpit.core.run.event_table import our_time
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.files import lines, open_regular
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.run import measures
from cockpit.engine.run.measures import Measures
from cockpit.engine.run.past_file import PastFile
from cockpit.engine.time_slices import by_turns
from cockpit.errors import CockpitError, os_error

FILE = "pace.jsonl"

SETTLED_S = 100.0
"""A step is kept once it is so old: how much of it was work is learned up to a minute later."""

_LAST = 64 << 10
"""Bytes at the end of the file in which its last line is."""

EVERY_S = 10.0
"""Seconds between two times that steps are kept."""

AWAITED_S = 60.0
"""So long nothing is written because a node has not yet said what it kept."""

_AT_ONCE = 256
"""Steps that are taken in at once: others have their turn in between."""

CLOCK_SET_S = 60.0
"""So far a step's end by its node's clock may be from what its age says; more, and the clock has been set."""

_STARTS = 64
"""Of each rank that are remembered."""

_HAPPENINGS = (RankExited, RankLost, EvidenceKept, StopAsked, Notice, Watched)
"""Events around which steps are kept longer."""

LIMIT, MEASURED = 16 << 20, 4
"""Bytes of all that is kept: a day of quick steps, or weeks of slow ones; for more of them, older ones are
fewer. One in so many is for measurements."""


def kept(folder: RunFolder) -> Iterator[PastStep]:
    """The steps that the file of a run has, rising; damaged lines are ignored.

    :raises CockpitError: it cannot be read
    """
    for line in lines(folder.path / FILE):
        with suppress(Malformed):
            yield past_of(line)


def last_kept(folder: RunFolder) -> PastStep | None:
    """The last step that the file of a run has; None: there is none, or it cannot be read."""
    try:
        with os.fdopen(open_regular(folder.path / FILE), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST))
            found = file.read(_LAST).split(b"\n")
    except OSError:
        return None
    for line in reversed(found[:-1]):
        with suppress(Malformed):
            return past_of(line)
    return None


class PaceBook:
    """Feeds the pace with what nodes report, and keeps it in the run's folder.

    :param writer: whether this session is the one that writes there
    """

    def __init__(self, folder: RunFolder, *, writer: bool) -> None:
        self._folder = folder
        self._writer = writer
        self._path = folder.path / FILE
        self._file = Lasting(str(self._path), LIMIT - LIMIT // MEASURED, thinned, open_regular)
        self._measures = Measures(folder.path / measures.FILE, LIMIT // MEASURED)
        self._refused: OSError | None = None
        """Why the file could not be written last."""
        self._kept: Key = (-1, -1)
        self._pending: list[PastStep] = []
        """What is to be written next."""
        self._untimed = 0
        """Steps before the next one of which is known how long it took."""
        self._tail: Step | None = None
        """The last of these."""
        self._begin: Key | None = None
        """The step after which those begin that are written next; None: none was taken yet."""
        self._span: float | None = None
        """Seconds of the last one of which that is known."""
        self._opening: PastStep | None = None
        """The first since the last restart of which it is known how long it took."""
        self._looked = 0.0
        self._recalled = 0  # bytes of the file that were taken in
        self.pace = Pace(rank for entry in folder.manifest.nodes for rank in entry.ranks)
        self.pace.dropped = self._dropped
        self._counting: dict[bool, set[int]] = {True: set(), False: set()}
        self._starts: dict[int, deque[tuple[float, int]]] = {}
        """When each rank was started, on its node's clock, and which attempt that was."""
        self._awaited: set[str] = set()
        """Nodes that are asked for what they kept while nobody watched."""
        self._awaited_until = 0.0

    def take_over(self) -> None:
        """Write from now on, after what another cockpit has written."""
        self._writer = True
        if (last := last_kept(self._folder)) is not None:
            self._kept = max(self._kept, (last.restarts, last.step))

    def give_way(self) -> None:
        """Write what is settled, and then no more: another cockpit does."""
        with suppress(CockpitError):  # that one writes it from what it has seen itself
            self.close(over=False)
        self._writer = False

    def known_until(self, entry: NodeEntry) -> float:
        """When the newest known step of a node's ranks ended: unix seconds, our clock; 0 if unknown."""
        noted = self.pace.noted_until(entry.ranks)
        if noted is None and (last := last_kept(self._folder)) is not None:
            noted = last.at
        return noted or 0.0

    def await_missed(self, nodes: Iterable[str]) -> None:
        """Nodes will be asked for what they kept: nothing is written until each has answered, or for long."""
        self._awaited |= set(nodes)
        self._awaited_until = time.monotonic() + AWAITED_S

    async def missed(self, model: RunModel, entry: NodeEntry, rows: Iterable[Stretch]) -> None:
        """Take in what a node kept of its own ranks' steps while nobody watched."""
        offset_s, ranks = model.nodes[entry.name].offset_s, frozenset(entry.ranks)
        async for row in by_turns(row for row in rows if row.rank in ranks):
            self._counts(row.rank, SOURCES[row.source])
            for piece in pieces(row):
                attempt = self._attempt(model, row.rank, piece.end)
                at = piece.end - offset_s
                self.pace.remember(
                    row.rank,
                    piece.step,
                    at,
                    piece.span,
                    attempt=attempt,
                    count=piece.many,
                    phases=piece.seconds,
                )
        self._awaited.discard(entry.name)

    def _attempt(self, model: RunModel, rank: int, at: float) -> int:
        """Which attempt of a rank ran at a moment, on its node's clock."""
        starts = self._starts.get(rank, ())
        for since, attempt in reversed(starts):
            if since <= at:
                return attempt
        return max(0, starts[0][1] - 1) if starts else model.ranks[rank].attempt

    async def recall(self, *, history: bool = True, until: float | None = None) -> None:
        """Take in the steps that the file has; damaged lines are ignored.

        :param history: also those that are too old to be kept rank by rank
        :param until: none that ended later, unix seconds; again with a later moment: those since then
        :raises CockpitError: the file cannot be read
        """
        room = self.pace.steps.limit - len(self.pace.steps)
        with PastFile(self._path) as file:
            end = file.size if until is None else file.until(until, ended)
            begin = self._recalled or file.last(max(1, room), end)
            if history and not self._recalled:
                async for old in by_turns(file.parts(0, begin)):
                    for bucket in buckets(old, self.pace):
                        self.pace.history.put(bucket)
            found: list[PastStep] = []
            newest = (line for part in file.parts(begin, end) for line in part)
            async for line in by_turns(newest):
                with suppress(Malformed):
                    found.append(past_of(line))
            self._recalled = max(begin, end)
        for at in range(len(found), 0, -_AT_ONCE):
            recall_all(self.pace, found[max(0, at - _AT_ONCE) : at])
            await asyncio.sleep(0)
        self._kept = max((self._kept, *((step.restarts, step.step) for step in found)))

    def event(self, model: RunModel, event: Event) -> None:
        """Take in what a node reported about its own ranks.

        :raises CockpitError: the file cannot be written
        """
        node, fact = model.nodes.get(event.node), event.fact
        if node is None:
            return
        if isinstance(fact, _HAPPENINGS) or (isinstance(fact, RankStarted) and fact.attempt):
            self.pace.steps.happened(our_time(model, event))
        if isinstance(fact, RankStarted) and fact.rank in node.ranks:
            starts = self._starts.setdefault(fact.rank, deque(maxlen=_STARTS))
            starts.append((event.at, fact.attempt))
            self.pace.restarted(fact.rank, fact.attempt)
        elif isinstance(fact, RankExited | RankLost | RankGone) and fact.rank in node.ranks:
            self.pace.signs.forget(fact.rank)
        elif isinstance(fact, RankSteps) and fact.rank in node.ranks:
            # What no sample has told of: the rank had ended before the next one.
            self._counts(fact.rank, fact.source)
            for step in fact.steps:
                self.pace.stepped(fact.rank, step.step, step.t - node.offset_s, span=step.seconds)
        elif isinstance(fact, Complete) and model.done:
            # Whoever watches may stay for days, and others ask for the run meanwhile.
            self._write(float("inf"), over=True)
        elif isinstance(fact, Sample):
            at = our_time(model, event)
            self.pace.gpus = self.pace.gpus or bool(fact.gpus)
            for rank, sample in fact.ranks.items():
                if sample.progress is not None and rank in node.ranks:
                    self._stepped(rank, sample.progress, node.offset_s, at)
                elif rank in node.ranks:
                    self.pace.signs.ran(rank, sample.main_cpu_s, sample.main_switches, at)
            if self._writer:
                self._measures.take(at, event.node, fact)
            self.keep(at)

    def _stepped(self, rank: int, progress: Progress, offset_s: float, at: float) -> None:
        """A rank was measured.

        :param at: when that came here, unix seconds
        """
        self._counts(rank, progress.source)
        ends = [step.t - offset_s for step in progress.steps]
        last = at - progress.age_s
        if ends and abs(ends[-1] - last) > CLOCK_SET_S:
            ends = progress.ends(last)
        for place, (step, end) in enumerate(zip(progress.steps, ends, strict=True)):
            phases = progress.phases[place].seconds if progress.phases else ()
            self.pace.stepped(rank, step.step, end, span=step.seconds, phases=phases)
        self.pace.heard(rank, ends[-1] + progress.age_s if ends else at)

    def _counts(self, rank: int, source: str) -> None:
        """Who counts a rank's steps: an optimizer's hook does so from the start of the program."""
        relative = source == "optimizer"
        self._counting[relative].add(rank)
        self._counting[not relative].discard(rank)
        # One node alone does not say it for all.
        self.pace.relative = len(self._counting[True]) > len(self._counting[False])

    def keep(self, now: float) -> None:
        """Write the steps that are old enough, now and then."""
        if not self._looked:
            self._looked = now  # what the first node tells is not yet what all of them know
        awaits = self._awaited and time.monotonic() < self._awaited_until
        if abs(now - self._looked) >= EVERY_S and not awaits:
            self._looked = now
            self._write(now - SETTLED_S)

    def close(self, *, over: bool = True) -> None:
        """Write all steps; of a run that goes on, those that all ranks have finished, or that are old enough.

        :raises CockpitError: the file cannot be written
        """
        ends = [self.pace.of(rank).at for rank in self.pace.steps.ranks]
        settled = self._looked - SETTLED_S
        known = [end for end in ends if end is not None]
        finished = min(known) if known and len(known) == len(ends) else settled
        self._write(float("inf") if over else max(settled, finished), over=over, last=True)

    def after(self, key: Key) -> Iterator[PastStep]:
        """The steps after this one, as far as they are known."""
        begin = key
        for step in self.pace.steps:
            if step.key > key and (found := self._past(step)) is not None:
                # Each rank's log may tell of another one.
                if found.restarts == begin[0] and found.step - begin[1] < found.count:
                    found = replace(found, count=found.step - begin[1])
                begin = step.key
                yield found

    def _past(self, step: Step) -> PastStep | None:
        return past(step, self.pace.steps.ranks, lag=self.pace.lag, relative=self.pace.relative)

    def _write(self, until: float, *, over: bool = False, last: bool = False) -> None:
        """Write what is settled.

        :param until: steps that ended by then are, unix seconds
        :param over: no rank makes a step any more
        :param last: this is not called again
        :raises CockpitError: the file cannot be written, for the first time; it is tried again
        """
        if not self._writer:
            return
        for step in self.pace.steps:
            if step.key > self._kept:
                if step.typical_end > until:
                    break
                self._take(step)
        # Of quick ones none of the last may be timed.
        usual = (self.pace.usual() or self._span) if over else None
        if self._untimed and self._tail is not None and usual is not None:
            # Nothing comes after it from which its time could be told.
            many, self._untimed = self._untimed, 0
            self._take(replace(self._tail, estimate=usual, count=many))
        found, self._pending = self._pending, []
        self._file.add(b"".join(step.line() for step in found))
        if last:
            self._file.wait()
            self._file.close()
            self._measures.close()
        error, self._refused = self._refused, self._file.error
        if self._refused is not None and error is None:
            raise os_error("the run's pace could not be saved", self._path, self._refused)

    def _dropped(self, step: Step) -> None:
        """A step is no longer known: of quick ones, or of many ranks, that may be before it is settled."""
        if not self._writer or step.key <= self._kept:
            return
        for older in self.pace.steps:  # those around events stay longer
            if older.key > step.key:
                break
            if older.key > self._kept:
                self._take(older)
        self._take(step)

    def _take(self, step: Step) -> None:
        """Have a step written next, or of those that end within a short time the worst."""
        self._kept = step.key
        if self._begin is None or self._begin[0] != step.key[0]:
            self._begin, self._opening = (step.key[0], step.step - step.count), None
        found = self._past(step)
        if found is None:
            self._untimed, self._tail = self._untimed + step.count, step
            return
        # Steps that a log tells of quickly are timed over several, and each rank's log may tell of others of
        # them; its step 0 is no other than the first one that ranks note.
        many, self._untimed = found.count + self._untimed, 0
        begin = max(0, self._begin[1]) if found.exact else self._begin[1]
        found, self._begin = replace(found, count=max(1, min(many, found.step - begin))), step.key
        self._span = found.span
        before = self._pending[-1] if self._pending and self._opening is not None else None
        self._opening = self._opening or found
        # The first one stays by itself: how long later ones took is known from its end on.
        if before and before is not self._opening and before.at // APART_S == found.at // APART_S:
            self._pending[-1] = worse(before, found)
        else:
            self._pending.append(found)
