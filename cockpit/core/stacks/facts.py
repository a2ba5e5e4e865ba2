"""The facts of a snapshot that a verdict is based on, sorted by what they mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise

from cockpit.base.stacks.dump import Dump, Frame
from cockpit.base.stacks.kinds import WAITING, python_frames
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.class_facts import (
    DEAD,
    STOPPED,
    ClassPart,
    kind_of,
    peer_of,
    root_of,
    serves,
    state_of,
    union,
)
from cockpit.core.stacks.classes import LATE_SWITCHES, SWITCHES_S, RankClass, classes, places
from cockpit.core.stacks.collectives import Collectives
from cockpit.core.stacks.earlier import CPU_S
from cockpit.core.stacks.fate import RECORDED, End, Fate
from cockpit.core.stacks.progress import Progress
from cockpit.core.stacks.snapshot import Sample, Snapshot

STUCK = frozenset({"frozen", "polls"})
"""Movements of those that do not get on."""

APART_S = 5.0
"""Seconds between two samples from which on they do not show that nothing happened in between."""

LASTS_S = 10.0
"""What has been so for less than this may be a slow step, where nothing is known of steps."""

BACKWARD_SHARE = 0.1
"""A process that uses more than this share of a core makes progress with its backward pass."""


class Facts:
    """The facts of a snapshot, sorted by what they mean."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.taken = [sample for sample in snapshot.samples if sample.dumps]
        self.sample = snapshot.samples[-1] if snapshot.samples else Sample(0.0)
        self.classes: Sequence[RankClass] = classes(snapshot) if self.taken else ()
        self.ended: dict[int, End] = {}
        """Ranks whose process is over, and how."""
        self.absent: dict[int, End] = {}
        """Ranks whose process was never seen, and why."""
        self.unheard: dict[int, str] = {}
        """Ranks that seem to be there, but have no stack, and why."""
        self.pending = 0
        """Ranks whose answer may still come."""
        self.stopped = 0
        """Ranks that a signal or a debugger has stopped."""
        for rank in sorted(snapshot.ranks):
            self._sort(rank)
        gone = mask_of(self.ended) | mask_of(self.absent) | self.stopped | mask_of(self.unheard)
        self.live = snapshot.world & ~gone & ~self.pending
        """Ranks that run and whose stack is here."""
        self.holders = self._gil_holders()
        """Ranks with a thread that keeps the GIL and does nothing."""

    def _sort(self, rank: int) -> None:
        place, dump = self.snapshot.ranks[rank], self.sample.dumps.get(rank)
        state, end = state_of(dump), place.end
        fate = None if end is None else end.fate
        if end is not None and fate in RECORDED:
            self.ended[rank] = end
        elif state in STOPPED and not _ran(self.dumps(rank)):
            self.stopped |= 1 << rank
        elif state in DEAD or (dump is not None and dump.error == "zombie"):
            self.ended[rank] = End(Fate.DEAD)
        elif dump is not None and dump.threads:
            return
        elif end is not None and fate is Fate.LOST:
            self.ended[rank] = end
        elif (dump is not None and dump.error == "gone") or fate is Fate.GONE:
            self.ended[rank] = End(Fate.GONE)
        elif dump is not None:
            self.unheard[rank] = dump.what or dump.error or "no stack"
        elif fate is Fate.UNSEEN and not place.node and self.sample.silent:
            # It may well be on one of the nodes that did not answer.
            self.unheard[rank] = place.why
        elif end is not None:
            self.absent[rank] = end
        elif place.node in self.sample.silent:
            self.unheard[rank] = f"{place.node}: {self.sample.silent[place.node]}"
        elif self.sample.took_s is None:
            self.pending |= 1 << rank
        else:
            self.unheard[rank] = "no answer"

    def _gil_holders(self) -> int:
        """Ranks in which one thread held the GIL in every sample, and slept."""
        if self.looks < 2:
            return 0
        return mask_of(rank for rank in ranks_of(self.live) if _gil_sleeper(self.dumps(rank)))

    def dumps(self, rank: int) -> list[Dump]:
        """A rank's dumps, one per sample; fewer if it did not always answer."""
        return self.snapshot.dumps(rank)

    @property
    def looks(self) -> int:
        """The number of samples."""
        return len(self.taken)

    @property
    def span_s(self) -> float:
        """Seconds between the first sample and the last."""
        return max(0.0, self.taken[-1].at - self.taken[0].at) if self.taken else 0.0

    @cached_property
    def waits(self) -> list[ClassPart]:
        """Classes that wait for other ranks, the largest first.

        Where most ranks do not move in one wait of a library that no rule knows, that is taken to be one too.
        """
        known = self._parts(lambda kind: kind in WAITING)
        if known or self.presumed is None:
            return known
        # Who is at the same place and was seen to wake up there waits as well.
        same = python_frames(self.presumed.found.frames)
        return self._parts(lambda kind: kind not in WAITING, lambda one: python_frames(one.frames) == same)

    @cached_property
    def presumed(self) -> ClassPart | None:
        """Most ranks, at the same place in one wait that no rule knows: of a library, or of the user's own.

        In one of the user's own only if somebody differs: else all of them may wait for something outside.
        """
        unnamed = self._parts(lambda kind: kind not in WAITING)
        # Somebody else's look may have woken some of them: these are at the same place.
        there: dict[tuple[Frame, ...], int] = defaultdict(int)
        for one in unnamed:
            if one.frozen:
                there[python_frames(one.found.frames)] |= one.ranks
        for place in sorted(there, key=lambda frames: (-count(there[frames]), there[frames])):
            parts = [one for one in unnamed if one.frozen and python_frames(one.found.frames) == place]
            if 2 * count(there[place]) > count(self.live):
                alone = there[place] == self.live
                return parts[0] if _joins(parts) and not (alone and parts[0].kind != "library") else None
            rest = [one for one in unnamed if one not in parts]
            # Of two halves that one which waits for somebody, if the other one waits for something else.
            if (
                2 * count(there[place]) == count(self.live)
                and _joins(parts)
                and not any(_joins([one]) for one in rest)
            ):
                return parts[0]
        return None

    @cached_property
    def others(self) -> list[ClassPart]:
        """Classes that do something else, the likeliest suspects first."""
        suspects = self._parts(lambda kind: kind not in WAITING)
        suspects = [one for one in suspects if one not in self.waits]
        return sorted(suspects, key=lambda one: (not one.frozen, count(one.ranks), one.ranks & -one.ranks))

    def _parts(
        self, wanted: Callable[[str], bool], alike: Callable[[RankClass], bool] = lambda _: True
    ) -> list[ClassPart]:
        among = self.live & ~self.holders
        parts = [
            ClassPart(one, one.ranks & among, kind, self._stuck(one, kind))
            for one, kind in ((one, kind_of(one)) for one in self.classes)
            if one.frames and wanted(kind) and alike(one) and one.ranks & among
        ]
        return sorted(parts, key=lambda one: (-count(one.ranks), one.ranks & -one.ranks))

    def _stuck(self, found: RankClass, kind: str) -> bool:
        """Whether a class made no progress over two samples."""
        if kind not in ("backward", "sync") or not found.movement:
            return found.movement in STUCK
        dumps = self.dumps(found.sample_rank)
        first, last = dumps[0], dumps[-1]
        if first.process is None or last.process is None or len({places(dump) for dump in dumps}) > 1:
            return found.movement in STUCK
        span = max(last.at - first.at, 0.001)
        if kind == "sync":
            # A wait for a GPU may be a busy one: CPU time says nothing about it.
            return found.movement in STUCK or (
                last.process.switches - first.process.switches <= SWITCHES_S * span
            )
        # Other threads do the work of backward.
        return (
            found.movement in STUCK
            and last.process.cpu_s - first.process.cpu_s <= BACKWARD_SHARE * span + 0.02
        )

    @cached_property
    def busy(self) -> int:
        """Ranks that used CPU time and were at the same place each time: this is how an endless loop looks.

        So does a wait for a GPU, in backward as well.
        """
        frozen = union(one for one in [*self.waits, *self.others] if one.frozen)
        return mask_of(rank for rank in ranks_of(self.live & ~frozen) if _at_one_place(self.dumps(rank)))

    @property
    def progress(self) -> Progress | None:
        """How far the ranks are."""
        return self.snapshot.progress

    @property
    def recorded(self) -> Collectives | None:
        """What the recorders said."""
        return self.snapshot.collectives

    @property
    def goes_on(self) -> bool:
        """Whether steps are known to go on: nobody hangs, however long somebody waits in each."""
        return self.progress is not None and self.progress.goes_on is True

    @property
    def steps_known(self) -> bool:
        """Whether this job is known to make steps; else it may be one that serves."""
        return self.progress is not None and self.progress.front is not None

    @cached_property
    def unnamed(self) -> ClassPart | None:
        """Most ranks, at one place: in a library that no rule knows, or in C from the user's own code."""
        if self.presumed is not None and self.presumed.kind == "library":
            return self.presumed
        still = [one for one in self._parts(lambda kind: kind in ("io", "lock")) if one.frozen]
        for one in still:
            inner = python_frames(one.found.frames)[-1]
            most = 2 * count(one.ranks) > count(self.live) and not serves(one)
            if most and inner == one.found.doing.frame:
                return one
        return None

    @property
    def now(self) -> float:
        """When it was looked at last, unix seconds on our clock."""
        later = self.progress.at if self.progress is not None else 0.0
        return max(self.taken[-1].at if self.taken else 0.0, later)

    @cached_property
    def since(self) -> float | None:
        """Since when nothing has gone on, by the best source there is; None: nobody knows."""
        if self.progress is not None and self.progress.last_at is not None:
            return self.progress.last_at
        told = [self.now - self.slept_s] if self.slept_s is not None else []
        if self.recorded is not None and self.recorded.since_s:
            told.append(self.recorded.at - self.recorded.since_s)
        return min(told, default=None)

    @property
    def for_s(self) -> float | None:
        """For how long."""
        return None if self.since is None else max(0.0, self.now - self.since)

    @cached_property
    def slept_s(self) -> float | None:
        """For how long all ranks that wait have slept, by the kernel; None: it does not say."""
        found = [self._slept_s(rank) for rank in ranks_of(union(self.waits) or union(self.others))]
        known = [slept for slept in found if slept is not None]
        return min(known, default=None) if len(known) == len(found) else None

    def _slept_s(self, rank: int) -> float | None:
        """For how long one rank has.

        A look wakes it for a moment: what the first one found counts, and the time since then; or what an
        earlier look found, if it has not run since.
        """
        looks = self.dumps(rank)
        idle = [(dump.main.idle_s, dump.at) for dump in looks if dump.main is not None]
        if len(idle) < len(looks) or not idle:
            return None
        slept, at = max(idle, key=lambda one: one[0] - one[1])
        stays = bool(self.stopped >> rank & 1) or self._stays(rank)
        stood = self.snapshot.stood.get(rank)
        told = [slept + (looks[-1].at - at if stays else 0.0)] if slept >= 0 else []
        if stays and stood is not None:
            told.append(self.taken[-1].at - stood)
        return max(told, default=None)

    def asleep(self, seconds: float, ranks: int | None = None) -> int:
        """Ranks, of these or of those that run, that have slept for longer, by the kernel."""
        among = self.live if ranks is None else ranks
        return mask_of(rank for rank in ranks_of(among) if (self._slept_s(rank) or 0.0) > seconds)

    def _stays(self, rank: int) -> bool:
        return any(one.frozen and one.ranks >> rank & 1 for one in [*self.waits, *self.others])

    @cached_property
    def lasts(self) -> bool:
        """Whether it has been so for longer than a slow step: only then somebody is surely to blame."""
        if self.goes_on:
            return False
        if self.progress is not None and self.progress.goes_on is False:
            return self.progress.lasts
        recorder_s = self.recorded.since_s if self.recorded is not None else 0.0
        return max(self.slept_s or 0.0, recorder_s, self.span_s) >= LASTS_S

    def loops(self, rank: int) -> bool:
        """Whether a rank was in the same function each time, on whichever of its lines."""
        dumps = self.dumps(rank)
        stacks = {tuple(frame[:2] for frame in python_frames(dump.frames)) for dump in dumps}
        return len(dumps) > 1 and len(stacks) == 1

    @property
    def going(self) -> int:
        """Ranks that were seen to get on."""
        return self.live & ~self.holders & ~union(one for one in [*self.waits, *self.others] if one.frozen)

    @property
    def waiting(self) -> int:
        """Ranks that wait for others."""
        return union(self.waits)

    @property
    def suspects(self) -> int:
        """Ranks that do something else."""
        return union(self.others)

    @property
    def frozen(self) -> bool:
        """Whether most of those that wait have not moved over two samples."""
        still = union(one for one in self.waits if one.frozen)
        return 2 * count(still) > count(self.waiting)

    @property
    def all_frozen(self) -> bool:
        """Whether there are waiting ranks, and none of them has moved."""
        return bool(self.waits) and all(one.frozen for one in self.waits)

    @property
    def passing(self) -> bool:
        """Whether the waiting ranks were seen to move on, so the wait does not last."""
        return self.looks > 1 and not self.frozen

    @property
    def heard(self) -> bool:
        """Whether every rank that is there has answered."""
        return not self.pending and not self.unheard

    @property
    def blocked(self) -> str:
        """What the waiting ranks wait for: ``all_reduce``; empty if that differs."""
        names = {one.what for one in self.waits}
        return names.pop() if len(names) == 1 else ""

    @property
    def stands(self) -> bool:
        """Whether no rank that is here was seen to get on."""
        parts = [*self.waits, *self.others]
        return self.looks > 1 and bool(parts) and all(one.frozen for one in parts)

    @property
    def unmoved(self) -> bool:
        """Whether all ranks were seen, again and again, and none that lives gets on."""
        ats = [sample.at for sample in self.taken]
        near = all(after - before < APART_S for before, after in pairwise(ats))
        return self.looks > 1 and near and self.heard and not self.goes_on and not self.going

    @property
    def gpu_only(self) -> bool:
        """Whether the waiting ranks wait for their GPUs: nothing here says for whom the GPUs wait."""
        return bool(self.waits) and all(one.kind == "sync" for one in self.waits)

    def moved_on(self, ranks: int, others: int) -> bool:
        """Whether all of these were seen to wait in what others wait in: what was recorded is over."""
        same = {one.what for one in self.waits if one.ranks & others}
        waits = (one for one in self.waits if one.kind in ("collective", "backward") and one.what in same)
        return not ranks & ~union(waits)

    @cached_property
    def partners(self) -> dict[int, tuple[int, bool]]:
        """With whom ranks exchange something one to one, and whether they send; others cannot be told."""
        found: dict[int, tuple[int, bool]] = {}
        if self.recorded is not None:
            for one in self.recorded.transfers:
                if one.peer is not None and self.live >> one.rank & 1:
                    found.setdefault(one.rank, (one.peer, one.send))
        waits = union(self.waits)
        for rank, dump in self.snapshot.closer.items():
            told = peer_of(dump)
            if told is not None and waits >> rank & 1 and self._where_it_was(rank, dump):
                found.setdefault(rank, told)
        return found

    @cached_property
    def roots(self) -> dict[int, int]:
        """The rank that each of those that wait names as the root, where that was looked at."""
        waits = union(self.waits)
        told = {
            rank: root_of(dump)
            for rank, dump in self.snapshot.closer.items()
            if waits >> rank & 1 and self._where_it_was(rank, dump)
        }
        return {rank: root for rank, root in told.items() if root is not None}

    def lock_holders(self, ranks: int) -> int:
        """Ranks whose process, or one below it, has the lock open that these poll."""
        holders = {
            dump.lock.holder for rank in ranks_of(ranks) for dump in self.dumps(rank)[-1:] if dump.lock
        }
        found = 0
        for rank, dump in self.sample.dumps.items():
            process = dump.process
            if process is not None and holders & {process.pid, *(child.pid for child in process.children)}:
                found |= 1 << rank
        return found & self.live & ~ranks

    def _where_it_was(self, rank: int, closer: Dump) -> bool:
        """Whether a closer look found a rank where the samples did."""
        return python_frames(closer.frames) == python_frames(self.snapshot.stack(rank))

    def process_of(self, rank: int) -> tuple[str, int | None]:
        """The node of a rank, and its process there."""
        place, dump = self.snapshot.ranks[rank], self.sample.dumps.get(rank)
        return place.node, dump.process.pid if dump is not None and dump.process is not None else place.pid


def _joins(parts: Sequence[ClassPart]) -> bool:
    """Whether ranks at one place may wait for other ranks there, although no rule knows that wait."""
    first = parts[0]
    if first.kind == "library":
        return True
    if first.kind not in ("lock", "build", "loader") and any(one.found.movement == "polls" for one in parts):
        return True
    return first.kind == "io" and first.found.doing.what in ("socket", "pipe", "") and not serves(first)


def _ran(dumps: Sequence[Dump]) -> bool:
    """Whether a rank's main thread has run between the first and the last of these."""
    seen = [dump.process for dump in dumps if dump.process is not None]
    if len(seen) < 2:
        return False
    first, last = seen[0], seen[-1]
    return (
        (first.pid, first.ticks) != (last.pid, last.ticks)
        or last.switches - first.switches > LATE_SWITCHES
        or last.main_cpu_s - first.main_cpu_s > CPU_S
    )


def _gil_sleeper(dumps: Sequence[Dump]) -> bool:
    """Whether the same thread held the GIL in all of these, at the same place, and slept."""
    seen: set[tuple[int, tuple[Frame, ...]]] = set()
    for dump in dumps:
        holder = next((thread for thread in dump.threads if thread.gil and not thread.active), None)
        if holder is None:
            return False
        seen.add((holder.tid, holder.frames))
    return len(dumps) > 1 and len(seen) == 1


def _at_one_place(dumps: Sequence[Dump]) -> bool:
    """Whether a rank had the same stack in all samples, and nothing woke it up in between."""
    if len(dumps) < 2 or len({places(dump) for dump in dumps}) > 1:
        return False
    first, last = dumps[0].main, dumps[-1].main
    if first is None or last is None or (first.pid, first.ticks) != (last.pid, last.ticks):
        return False
    return last.switches - first.switches <= max(3.0, SWITCHES_S * (dumps[-1].at - dumps[0].at))
