"""Classes: the ranks that are at the same place, the odd ones first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, takewhile

from cockpit.base.stacks.dump import Dump, Frame, Process
from cockpit.base.stacks.kinds import WAITING, Doing, of_dump, python_frames, user_frame
from cockpit.core.masks import count, ranks_of
from cockpit.core.stacks.snapshot import Place, Snapshot
from cockpit.core.stacks.words import does_words

CPU_SHARE = 0.01
"""A main thread that uses more than this share of a core between two samples is doing something."""

SWITCHES_S = 5.0
"""A main thread that goes to sleep more often per second than this is woken by something.

That is for nodes that do not say how often it slept once py-spy had let it go.
"""

LATE_SWITCHES = 1
"""Going to sleep again after a look may be counted after we have asked."""

POLL_SHARE = 0.05
"""Who uses no more than this share of a core while it is woken now and then only asks whether to go on."""

POLL_BYTES = 1 << 16
"""Who reads or writes more than this between two samples does more than to ask."""

MOVES_DATA = frozenset(
    (
        *("read", "pread64", "readv", "write", "pwrite64", "writev", "fsync", "fdatasync"),
        *("recvfrom", "recvmsg", "sendto", "sendmsg", "openat", "open"),
    )
)
"""Calls that end because data has come or gone: who is woken in one of them moves."""

COUNTED = frozenset(("read", "pread64", "readv", "write", "pwrite64", "writev"))
"""Those of them whose bytes the kernel counts, whatever they read."""

OTHER_LOOKS = 6
"""Somebody else who looks wakes a thread as well, twice each time: so few wakeups need not bring data."""

BELOW_SHARE = 0.05
"""Processes below a rank that use more than this share of a core, together, are at work."""

_FOR_CHILDREN = re.compile(
    r"^(python/(subprocess|multiprocessing/|concurrent/futures/)"
    r"|(multiprocess|joblib|loky|billiard)/|torch/(utils/data|multiprocessing|_inductor)/)"
)
"""Code that waits for processes below, or for what they send."""

AWAIT_CHILD = frozenset(("wait4", "waitid", "vfork"))
"""System calls that wait for a process below."""


ASKS = re.compile(r"\bis_(completed|success|done|ready)\(|\.(query|done|check)\(")
"""Loops that ask whether something is over that others do; without a pause they use a whole core."""


@dataclass(frozen=True)
class RankClass:
    """Ranks with the same main stack and the same state; native frames may differ where they do the same.

    :param ranks: which ranks, as a mask
    :param frames: their main stack, outermost first; empty where there is none
    :param doing: what they do
    :param state: the letter of proc(5) if it is unusual (D, T, t, Z), else empty
    :param movement: ``frozen``, ``moving``, or empty where one sample cannot tell
    :param source: the line of source code of the innermost frame of user code
    :param sample_rank: one of them, for a look at the details
    """

    ranks: int
    frames: tuple[Frame, ...]
    doing: Doing
    state: str = ""
    movement: str = ""
    source: str = ""
    sample_rank: int = 0

    @property
    def facts(self) -> str:
        """What they do, in which state, and whether they move: ``sleeps · frozen``."""
        state = f"state {self.state}" if self.state else ""
        return " · ".join(each for each in (self.does, state, self.moves) if each)

    @property
    def does(self) -> str:
        """What they do; who is stopped does not sleep, though its last call does."""
        stopped = self.state == "T" and self.doing.kind == "sleep"
        return "stopped" if stopped else does_words(self.doing.text, self.ranks)

    @property
    def moves(self) -> str:
        """Their movement as shown: who sleeps wakes up now and then, and that it sleeps is said."""
        return "" if (self.doing.kind, self.movement) == ("sleep", "polls") else self.movement


def movement(dumps: Iterable[Dump]) -> str:
    """``frozen``, ``polls``, ``moving``, or empty where a rank's dumps, oldest first, cannot tell.

    Who polls is at the same place each time, wakes up now and then, and does nothing then: it waits.
    """
    known = [dump for dump in dumps if dump.threads]
    if len(known) < 2:
        return ""
    found = {_between(before, after) for before, after in pairwise(known)}
    return "moving" if "moving" in found else "polls" if "polls" in found else "frozen"


def _between(before: Dump, after: Dump) -> str:
    """What the thread that works did between two dumps."""
    if places(before) != places(after):
        return "moving"
    first, last = before.main, after.main
    if first is None or last is None:
        return "frozen"
    if (first.pid, first.ticks) != (last.pid, last.ticks):
        return "moving"  # started again
    span = max(after.at - before.at, 0.001)
    cpu = last.main_cpu_s - first.main_cpu_s
    woken = wakeups(before, after)
    # CPU time is counted in hundredths of a second: a single one is not work.
    if cpu > max(0.015, (POLL_SHARE if woken else CPU_SHARE) * span) and not _asks(after):
        return "moving"
    if _at_work_below(before, after):
        return "moving"
    if not woken:
        return "frozen"
    moved = last.io_bytes - first.io_bytes
    return "moving" if moved > POLL_BYTES or _moves_data(first, last, moved) else "polls"


def _moves_data(first: Process, last: Process, moved: int) -> bool:
    """Whether a call that moves data woke up because data arrived or left."""
    if last.call not in MOVES_DATA:
        return False
    if last.call in COUNTED and first.io_bytes:
        return moved > 0
    return first.switches_after < 0 or last.switches - first.switches_after > OTHER_LOOKS


def _at_work_below(before: Dump, after: Dump) -> bool:
    """Whether a rank, or the thread it waits for, waits for processes below it, and these are at work."""
    first, last = before.process, after.process
    if first is None or last is None or not (first.children or last.children):
        return False
    main = after.main
    waits = (main is not None and main.call in AWAIT_CHILD) or _waits_below(after.frames)
    if not waits and of_dump(after).what == "thread":
        waits = any(_waits_below(thread.frames) for thread in after.threads[1:])
    if not waits:
        return False
    used, moved = last.below_s - first.below_s, last.below_bytes - first.below_bytes
    # Less than before: some of them have ended.
    enough = max(0.025, BELOW_SHARE * (after.at - before.at))
    return abs(used) > enough or abs(moved) > POLL_BYTES


def _waits_below(frames: tuple[Frame, ...]) -> bool:
    user = user_frame(frames)
    inner = takewhile(lambda frame: frame != user, reversed(python_frames(frames)))
    return any(_FOR_CHILDREN.match(frame.file) for frame in inner)


def places(dump: Dump) -> tuple[object, ...]:
    """Where a stack is: in a loop that asks again and again, whichever of its lines it is at."""
    frames = python_frames(dump.frames)
    if dump.loop and frames and user_frame(frames) == frames[-1]:
        return (*frames[:-1], frames[-1][:2])
    return frames


def _asks(dump: Dump) -> bool:
    return ASKS.search(dump.loop) is not None


def wakeups(before: Dump, after: Dump) -> bool:
    """Whether something other than our looks has woken the thread that works between two of them."""
    first, last = before.main, after.main
    if first is None or last is None:
        return False
    if first.switches_after >= 0:
        return last.switches - first.switches_after > LATE_SWITCHES
    return last.switches - first.switches > max(3.0, SWITCHES_S * (after.at - before.at))


def classes(snapshot: Snapshot) -> list[RankClass]:
    """The classes of the newest sample, the odd ones first: few ranks before many, waiting for others last.

    Movement is that since the first sample.
    """
    if not snapshot.samples:
        return []
    newest = snapshot.samples[-1].dumps
    groups: dict[tuple[str, str, tuple[object, ...]], int] = {}
    for rank, dump in newest.items():
        state = dump.process.state if dump.process is not None else ""
        state = state if state in "DTtZ" else ""
        moves = movement(snapshot.dumps(rank)) if dump.threads else ""
        does = _doing(dump, snapshot.ranks.get(rank))
        # The file that is read differs from rank to rank.
        what = does.what if does.kind == "collective" else "" if dump.threads else does.text
        alike: tuple[object, ...] = (python_frames(dump.frames), does.kind, what)
        if moves == "polls":
            # Some sleep just now, and some ask.
            alike = (places(dump), does.kind in WAITING and what)
        key = (state, moves, alike)
        groups[key] = groups.get(key, 0) | 1 << rank
    made = []
    for (state, moves, _), ranks in groups.items():
        lowest = next(ranks_of(ranks))
        dump = newest[lowest]
        does = _named(_doing(dump, snapshot.ranks.get(lowest)), ranks, snapshot)
        made.append(RankClass(ranks, dump.frames, does, state, moves, dump.source, lowest))
    return sorted(
        made, key=lambda one: (one.doing.kind in WAITING and not one.state, count(one.ranks), one.ranks)
    )


def _named(does: Doing, ranks: int, snapshot: Snapshot) -> Doing:
    """What ranks do; the native frames of one of them may say for whom they wait in a library."""
    if does.kind in WAITING:
        return does
    for rank, dump in snapshot.closer.items():
        same = python_frames(dump.frames) == python_frames(snapshot.stack(rank))
        if ranks >> rank & 1 and same and (found := of_dump(dump)).kind in WAITING:
            return found
    return does


def _doing(dump: Dump, place: Place | None) -> Doing:
    if dump.threads:
        return of_dump(dump)
    # Each has a pid of its own, and the same trouble.
    what = re.sub(rf" ?\b{place.pid}\b", "", dump.what) if place is not None and place.pid else dump.what
    return Doing("", "", None, what or dump.error)
