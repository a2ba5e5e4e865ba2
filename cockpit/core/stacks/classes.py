"""Classes: the ranks that are at the same place, the odd ones first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from cockpit.base.stacks.dump import Dump, Frame
from cockpit.base.stacks.kinds import WAITING, Doing, doing, python_frames
from cockpit.core.masks import count, ranks_of
from cockpit.core.stacks.snapshot import Snapshot

CPU_SHARE = 0.01
"""A main thread that uses more than this share of a core between two samples is doing something."""

SWITCHES_S = 5.0
"""A main thread that goes to sleep more often per second than this is woken by something."""


_PID = re.compile(r"(?<=\bprocess) \d+")


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
        return " · ".join(each for each in (self.doing.text, state, self.movement) if each)


def movement(dumps: Iterable[Dump]) -> str:
    """``frozen``, ``moving``, or empty where a rank's dumps, oldest first, cannot tell."""
    known = [dump for dump in dumps if dump.threads]
    if len(known) < 2:
        return ""
    for before, after in pairwise(known):
        if python_frames(before.frames) != python_frames(after.frames) or _worked(before, after):
            return "moving"
    return "frozen"


def _worked(before: Dump, after: Dump) -> bool:
    """Whether the main thread did something between two dumps at the same place."""
    if before.process is None or after.process is None:
        return False
    if (before.process.pid, before.process.ticks) != (after.process.pid, after.process.ticks):
        return True  # started again
    span = max(after.at - before.at, 0.001)
    cpu = after.process.main_cpu_s - before.process.main_cpu_s
    # CPU time is counted in hundredths of a second: a single one is not work.
    if cpu > max(0.015, CPU_SHARE * span):
        return True
    return after.process.switches - before.process.switches > max(3.0, SWITCHES_S * span)


def classes(snapshot: Snapshot) -> list[RankClass]:
    """The classes of the newest sample, the odd ones first: few ranks before many, waiting for others last.

    Movement is that since the first sample.
    """
    if not snapshot.samples:
        return []
    newest = snapshot.samples[-1].dumps
    groups: dict[tuple[tuple[Frame, ...], str, str, str, str], int] = {}
    for rank, dump in newest.items():
        state = dump.process.state if dump.process is not None else ""
        state = state if state in "DTtZ" else ""
        moves = movement(snapshot.dumps(rank)) if dump.threads else ""
        does = _doing(dump)
        # The file that is read differs from rank to rank.
        what = does.what if does.kind == "collective" else "" if dump.threads else does.text
        key = (python_frames(dump.frames), state, moves, does.kind, what)
        groups[key] = groups.get(key, 0) | 1 << rank
    made = []
    for (_, state, moves, _, _), ranks in groups.items():
        lowest = next(ranks_of(ranks))
        dump = newest[lowest]
        made.append(RankClass(ranks, dump.frames, _doing(dump), state, moves, dump.source, lowest))
    return sorted(
        made, key=lambda one: (one.doing.kind in WAITING and not one.state, count(one.ranks), one.ranks)
    )


def _doing(dump: Dump) -> Doing:
    if dump.threads:
        return doing(dump.frames, dump.process, dump.source)
    return Doing("", "", None, _PID.sub("", dump.what) or dump.error)
