"""The facts of a snapshot that a verdict is based on, sorted by meaning, and the words for them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cockpit.base.stacks.dump import Child, Dump, Frame
from cockpit.base.stacks.kinds import WAITING, kind, python_frames
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.ranks import mask_text
from cockpit.core.stacks.classes import SWITCHES_S, RankClass, classes, places
from cockpit.core.stacks.collectives import Collectives
from cockpit.core.stacks.progress import Progress
from cockpit.core.stacks.snapshot import Sample, Snapshot

_SYNC = re.compile(r"\.(item|cpu|tolist|synchronize)\(")

STOPPED = frozenset("Tt")
DEAD = frozenset("ZXx")

WORDS = 40
"""Characters a set of ranks may take in a sentence; longer ones are counted."""

RECORDED = ("exited", "killed")
"""How the text of a rank's state begins whose end was recorded: no dump knows better."""

LISTENING = "listening socket"
"""What a node calls a socket at which a rank waits for others to connect."""

STUCK = frozenset({"frozen", "polls"})
"""Movements of those that do not get on."""

LASTS_S = 10.0
"""What has been so for less than this may be a slow step, where nothing is known of steps."""

PEERS = {
    **dict.fromkeys(("recv", "irecv", "recv_object_list"), ("src",)),
    **dict.fromkeys(("send", "isend", "send_object_list"), ("dst",)),
}
"""Calls between two ranks, and the variable that says with whom."""

BACKWARD_SHARE = 0.1
"""A process that uses more than this share of a core makes progress with its backward pass."""

EVIDENCE = 6
"""At most this many facts are given."""


@dataclass(frozen=True)
class ClassPart:
    """The ranks of a class that a rule is about.

    :param kind: what they do, a word of :data:`cockpit.base.stacks.kinds.KINDS`
    :param frozen: whether they made no progress over two samples: they did not move, or polled
    """

    found: RankClass
    ranks: int
    kind: str
    frozen: bool

    @property
    def what(self) -> str:
        """What they wait for: ``all_reduce``, ``backward``, ``init_process_group``."""
        if self.kind not in WAITING:
            frame = self.found.doing.frame
            own = frame is not None and self.kind != "library"
            return frame.name if own and frame is not None else self.found.doing.text.rpartition(" ")[2]
        named = (frame.name for frame in self.found.frames if kind(frame) == self.kind != "backward")
        return self.found.doing.what or next(named, self.kind).rpartition(".")[2]

    @property
    def where(self) -> str:
        """The place in the user's code."""
        return place_text(self.found.doing.frame)

    @property
    def text(self) -> str:
        """What they do, in words."""
        return self.found.doing.text if self.kind == self.found.doing.kind else "waits for its device"


class Case:
    """The facts of a snapshot, sorted by what they mean."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.taken = [sample for sample in snapshot.samples if sample.dumps]
        self.sample = snapshot.samples[-1] if snapshot.samples else Sample(0.0)
        self.classes: Sequence[RankClass] = classes(snapshot) if self.taken else ()
        self.ended: dict[int, str] = {}
        """Ranks whose process is over, and how."""
        self.absent: dict[int, str] = {}
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
        state = state_of(dump)
        if place.why.startswith(RECORDED):
            self.ended[rank] = place.why if place.why[0] == "e" else f"was {place.why}"
        elif state in STOPPED:
            self.stopped |= 1 << rank
        elif state in DEAD or (dump is not None and dump.error == "zombie"):
            self.ended[rank] = "is dead (a zombie)"
        elif dump is not None and dump.threads:
            return
        elif place.why.startswith("lost"):
            self.ended[rank] = place.why if place.why[0] == "e" else f"was {place.why}"
        elif (dump is not None and dump.error == "gone") or place.why.startswith("gone"):
            self.ended[rank] = "is gone"
        elif dump is not None:
            self.unheard[rank] = dump.what or dump.error or "no stack"
        elif place.why in ("waiting", "starting"):
            self.absent[rank] = "has not started"
        elif place.why and not place.node and self.sample.silent:
            # It may well be on one of the nodes that did not answer.
            self.unheard[rank] = place.why
        elif place.why:
            self.absent[rank] = "has no process"
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
        return known or ([self.presumed] if self.presumed is not None else [])

    @cached_property
    def presumed(self) -> ClassPart | None:
        """Most ranks, at the same place in one wait that no rule knows: of a library, or of the user's own.

        In one of the user's own only if somebody differs: else all of them may wait for something outside.
        """
        unnamed = self._parts(lambda kind: kind not in WAITING)
        most = next((one for one in unnamed if 2 * count(one.ranks) > count(self.live)), None)
        if most is None or not most.frozen or (most.kind != "library" and most.ranks == self.live):
            return None
        act = most.found.doing
        polls = most.found.movement == "polls" and most.kind not in ("lock", "build", "loader")
        joins = most.kind == "io" and act.what in ("socket", "pipe", "") and not serves(most)
        return most if most.kind == "library" or polls or joins else None

    @cached_property
    def others(self) -> list[ClassPart]:
        """Classes that do something else, the likeliest suspects first."""
        suspects = self._parts(lambda kind: kind not in WAITING)
        suspects = [one for one in suspects if one not in self.waits]
        return sorted(suspects, key=lambda one: (not one.frozen, count(one.ranks), one.ranks & -one.ranks))

    def _parts(self, wanted: Callable[[str], bool]) -> list[ClassPart]:
        among = self.live & ~self.holders
        parts = [
            ClassPart(one, one.ranks & among, kind, self._stuck(one, kind))
            for one, kind in ((one, kind_of(one)) for one in self.classes)
            if one.frames and wanted(kind) and one.ranks & among
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
        """For how long all ranks that wait have slept, by the kernel; None: it does not say.

        A look wakes them for a moment: what the first one found counts, and the time since then; or what an
        earlier look found, if they have not run since.
        """
        found = []
        for rank in ranks_of(union(self.waits) or union(self.others)):
            looks = self.dumps(rank)
            idle = [(dump.main.idle_s, dump.at) for dump in looks if dump.main is not None]
            if len(idle) < len(looks) or not idle:
                return None
            slept, at = max(idle, key=lambda one: one[0] - one[1])
            stays, stood = self._stays(rank), self.snapshot.stood.get(rank)
            told = [slept + (looks[-1].at - at if stays else 0.0)] if slept >= 0 else []
            if stays and stood is not None:
                told.append(self.taken[-1].at - stood)
            if not told:
                return None
            found.append(max(told))
        return min(found, default=None)

    def _stays(self, rank: int) -> bool:
        return any(one.frozen and one.ranks >> rank & 1 for one in [*self.waits, *self.others])

    @cached_property
    def lasts(self) -> bool:
        """Whether it has been so for longer than a slow step: only then somebody is surely to blame."""
        if self.goes_on:
            return False
        if self.progress is not None and self.progress.goes_on is False:
            return True
        recorder_s = self.recorded.since_s if self.recorded is not None else 0.0
        return max(self.slept_s or 0.0, recorder_s, self.span_s) >= LASTS_S

    def lasting(self) -> str:
        """The words for it: `` for 52 s``; empty where nobody knows."""
        return f" for {duration(self.for_s)}" if self.for_s is not None and self.for_s >= 1 else ""

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
    def gpu_only(self) -> bool:
        """Whether the waiting ranks wait for their GPUs: nothing here says for whom the GPUs wait."""
        return bool(self.waits) and all(one.kind == "sync" for one in self.waits)

    def moved_on(self, ranks: int) -> bool:
        """Whether all of these were seen to wait in collectives, so what was recorded of them is over."""
        waits = union(one for one in self.waits if one.kind in ("collective", "backward"))
        return not ranks & ~waits

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

    def still(self) -> str:
        """The words for "unmoved": in how many samples, over which time."""
        return f"same in {self.looks} of {self.looks} samples, {self.span}"

    @property
    def span(self) -> str:
        """The time over which there are samples, in words."""
        return f"{self.span_s:.1f} s apart" if self.looks == 2 else f"over {self.span_s:.1f} s"

    def wait_fact(self) -> str:
        """What the waiting ranks do, as evidence."""
        if not self.waits:
            return ""
        told = f"{number_text(self.waiting)} in {self.blocked or 'collectives'}{self.lasting()}"
        if self.all_frozen:
            return f"{told}, {self.still()}"
        return f"{told}, {'some of them moving' if self.looks > 1 else 'in one sample'}"

    def wait_words(self) -> str:
        """What the waiting ranks do, for a headline; empty if none waits."""
        if not self.waits:
            return ""
        where = self.blocked or "collectives"
        return f"{number_text(self.waiting, 'waits', 'wait')} in {where}"

    def part_fact(self, part: ClassPart) -> str:
        """What a class does, as evidence."""
        at = f" at {part.where}" if part.where else ""
        return f"{ranks_words(part.ranks)}: {part.text}{at}"

    def suspect_fact(self, part: ClassPart) -> str:
        """Whether a suspect moves, as evidence."""
        if self.looks < 2:
            return ""
        who = ranks_words(part.ranks)
        if part.frozen:
            return f"{who} {self.still()}"
        stacks = {python_frames(dump.frames) for dump in self.dumps(next(ranks_of(part.ranks)))}
        return (
            f"{who} at {len(stacks)} places in {self.looks} samples" if len(stacks) > 1 else f"{who} at work"
        )

    def unheard_fact(self) -> str:
        """Who did not answer, as evidence."""
        if not self.unheard:
            return ""
        why = sorted(set(self.unheard.values()))
        told = why[0] if len(why) == 1 else f"{len(why)} reasons"
        return f"{ranks_words(mask_of(self.unheard))} not heard: {told}"

    def process_of(self, rank: int) -> tuple[str, int | None]:
        """The node of a rank, and its process there."""
        place, dump = self.snapshot.ranks[rank], self.sample.dumps.get(rank)
        return place.node, dump.process.pid if dump is not None and dump.process is not None else place.pid


def kind_of(found: RankClass) -> str:
    """What a class does: a wait for a GPU from C code is seen by the line of source code only."""
    does, frame = found.doing.kind, found.doing.frame
    if (
        does in ("runs", "user", "lock", "io")
        and frame is not None
        and frame == python_frames(found.frames)[-1]
    ):
        return "sync" if _SYNC.search(found.source) else does
    return does


def state_of(dump: Dump | None) -> str:
    """The state of a rank's process; empty if unknown."""
    return dump.process.state if dump is not None and dump.process is not None else ""


def state_fact(dump: Dump) -> str:
    """The state of a rank's process, as evidence."""
    process = dump.process
    if process is None or not process.state:
        return ""
    told = f"rank {dump.rank}: state {process.state}"
    return f"{told}, in {process.call}" if process.call else told


def serves(part: ClassPart) -> bool:
    """Whether ranks wait for requests, as a server does that nobody asks for anything."""
    act = part.found.doing
    return LISTENING in act.what or act.text.startswith(("waits in its event loop", "waits in accept"))


def peer_of(dump: Dump) -> tuple[int, bool] | None:
    """With whom a stack exchanges something, and whether it sends, by the variables of that call."""
    thread = dump.threads[0] if dump.threads else None
    if thread is None:
        return None
    for frame, names in reversed(list(zip(thread.frames, thread.locals, strict=False))):
        call = frame.name.rpartition(".")[2]
        if kind(frame) != "collective" or call not in PEERS:
            continue
        for name in PEERS[call]:
            value = names.get(name, "")
            if value.isdecimal() and len(value) < 7:
                return int(value), name in ("dst", "group_dst")
    return None


def duration(seconds: float | None) -> str:
    """``52 s``, ``4 min``, ``3 h 10 min``."""
    whole = round(seconds or 0.0)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


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


def bad_child(dump: Dump) -> Child | None:
    """A process below a rank that is dead or stopped."""
    return next((child for child in dump.children if child.state in DEAD | STOPPED), None)


def place_text(frame: Frame | None) -> str:
    """``data.py:118 read_shard``; empty for none."""
    return f"{frame.place} {frame.name}" if frame is not None else ""


def union(parts: Iterable[ClassPart]) -> int:
    """The ranks of all of them."""
    ranks = 0
    for one in parts:
        ranks |= one.ranks
    return ranks


def by_reason(reasons: Mapping[int, str], ranks: int) -> list[tuple[str, int]]:
    """Reasons with the ranks that have them, those of the fewest ranks first."""
    found: dict[str, int] = defaultdict(int)
    for rank in ranks_of(ranks):
        found[reasons[rank]] |= 1 << rank
    return sorted(found.items(), key=lambda item: (count(item[1]), item[1] & -item[1]))


def ranks_words(ranks: int, one: str = "", more: str = "") -> str:
    """``rank 13``, ``ranks 3,7``, ``300 ranks``; with a verb for one rank and for more: ``rank 13 is``."""
    text = mask_text(ranks)
    if len(text) > WORDS:
        return number_text(ranks, one, more)
    single = count(ranks) == 1
    return f"rank{'' if single else 's'} {text} {one if single else more}".rstrip()


def number_text(ranks: int, one: str = "", more: str = "") -> str:
    """``1 rank``, ``1,023 ranks``; with a verb for one rank and for more: ``1 rank is``."""
    number = count(ranks)
    return f"{number:,} rank {one}".rstrip() if number == 1 else f"{number:,} ranks {more}".rstrip()


def every_text(ranks: int, one: str, more: str) -> str:
    """``all 64 ranks are``, ``rank 0 is``."""
    return f"all {number_text(ranks, one, more)}" if count(ranks) > 1 else ranks_words(ranks, one, more)


def ended_words(why: str, ranks: int) -> str:
    """``rank 13 was killed by SIGKILL``, ``ranks 1,2 have no process``."""
    if count(ranks) > 1:
        forms = {"was": "were", "is": "are", "has": "have"}
        verb, _, rest = why.partition(" ")
        why = f"{forms.get(verb, verb)} {rest.replace('dead (a zombie)', 'dead (zombies)')}"
    return f"{ranks_words(ranks)} {why}"


def kept(told: Iterable[str]) -> tuple[str, ...]:
    """The first of the facts that exist."""
    return tuple(fact for fact in told if fact)[:EVIDENCE]
