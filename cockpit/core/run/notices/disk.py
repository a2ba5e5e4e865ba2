"""The disk of the run folder on a node: nearly full, or heading for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cockpit.base.events import NoticeStep, Sample
from cockpit.base.shell import quote
from cockpit.core.pace.pace import Pace
from cockpit.core.run.memory import Gauge, Trend
from cockpit.core.run.memory import Pace as Believed
from cockpit.core.run.notices.rule import About, Rule, Seen, span
from cockpit.core.run.states import LIVE, Run
from cockpit.core.text import size

NEARLY, SHARE = 1 << 30, 0.05
"""Nearly full: less than so many bytes free, and less than this share of a small one."""
HELD_S, SCARCE = 60.0, 0.1
"""Told once it is so for so long, as an older checkpoint is often removed when a new one is written; at once
if less than this share of that is left."""
FREED = 1.5
"""No longer: so many times as much is free."""
GIVEN_BACK, HIGHER = 0.7, 1.3
"""From its peak down to this share; what then comes up to so many times that peak again is no news."""
_BELIEVED = Believed()


@dataclass
class _Disk:
    """What is known of one disk.

    :param room: bytes that were free when its trend began
    :param peak, fallen: most that was used of it since; from where it was given back, as by a rotation of
        checkpoints
    """

    free: int
    total: int
    room: int
    gauge: Gauge = field(default_factory=lambda: Gauge(_BELIEVED))
    low_since: float | None = None
    scarce: bool = False
    trend: Trend | None = None
    trend_since: float = 0.0
    full_at: float = 0.0
    missing: int = 0
    peak: int = 0
    fallen: int = 0

    def took(self, used: int) -> bool:
        """Take in how much of the room is used; return whether it was more before, and was given back."""
        self.peak = max(self.peak, used)
        if used < GIVEN_BACK * self.peak:
            self.fallen, self.peak = max(self.fallen, self.peak), used
        return used <= HIGHER * self.fallen


def _larger(disk: _Disk | None, free: int, total: int) -> _Disk:
    """A disk on which more is free than when its trend began: something was removed, such as checkpoints."""
    if disk is None:
        return _Disk(free, total, free)
    # What was used of it before may be used again: that is no news.
    before = max(disk.fallen, disk.peak)
    fallen = before + free - disk.room if before else 0
    return _Disk(free, total, free, low_since=disk.low_since, fallen=fallen)


class Disk(Rule):
    """Judges trends as those of memory are: a step, such as a checkpoint, is none, nor what is removed."""

    id = "disk"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._disks: dict[str, _Disk] = {}

    def interrupted(self) -> None:
        """See :class:`Rule`."""
        for disk in self._disks.values():
            disk.gauge = Gauge(_BELIEVED)

    def sampled(self, at: float, node: str, sample: Sample, run: Run) -> None:
        """See :class:`Rule`."""
        free, total = sample.sample.disk_free_bytes, sample.sample.disk_total_bytes
        if free is None:
            return
        disk = self._disks.get(node)
        if disk is None or free > disk.room:
            disk = self._disks[node] = _larger(disk, free, total or 0)
        disk.free, disk.total = free, total or 0
        low = min(NEARLY, SHARE * total) if total else NEARLY
        disk.scarce = free < SCARCE * low
        if free < low and disk.low_since is None:
            disk.low_since = at
        elif free >= FREED * low:
            disk.low_since = None
        if disk.gauge.add(at, disk.room - free, {}):
            self._judge(at, node, disk, run)

    def _judge(self, at: float, node: str, disk: _Disk, run: Run) -> None:
        started = [rank.started_at or 0.0 for rank in run.on(node) if rank.state in LIVE]
        since = max(started, default=0.0) - run.nodes[node].offset_s
        found = disk.gauge.trend(disk.room, since) if disk.room else None
        if disk.took(disk.room - disk.free) or found is None:
            disk.missing += 1
            disk.trend = disk.trend if disk.missing <= _BELIEVED.hold else None
            return
        disk.trend_since = at - found.over_s if disk.trend is None else disk.trend_since
        disk.trend, disk.full_at, disk.missing = found, at + found.left_s, 0

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Seen]:
        """See :class:`Rule`."""
        for node, disk in self._disks.items():
            if run.nodes[node].over or run.nodes[node].link != "ok":
                continue
            folder = self.about.dirs.get(node, "")
            has = f"{size(disk.free)}{f' of {size(disk.total)}' if disk.total else ''} free"
            steps = (NoticeStep(f"df -h {quote(folder)}" if folder else "df -h", "what it is", node),)
            if disk.trend is not None:
                more = f"{size(60 * disk.trend.bytes_s)} less each minute, for {span(disk.trend.over_s)}"
                what = f"the disk of the run folder on {node} is full"
                due = disk.full_at
                yield Seen(node, what, disk.trend_since, due, (has, more), nodes=(node,), steps=steps)
            elif disk.low_since is not None and (disk.scarce or at - disk.low_since >= HELD_S):
                what = f"the disk of the run folder on {node} is nearly full: {has}"
                then = ("once it is full, what ranks print is lost, and they may fail",)
                yield Seen(node, what, disk.low_since, None, then, "sure", nodes=(node,), steps=steps)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        return f"the disk of the run folder on {of} has room: {size(self._disks[of].free)} free"
