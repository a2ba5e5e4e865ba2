"""The disks that a run, or nsys around it, writes to: nearly full, or heading for it; nearly no file left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from cockpit.base.events import DiskSample, NoticeStep, Sample
from cockpit.base.shell import quote
from cockpit.core.pace.pace import Pace
from cockpit.core.rules.rows.disks import USERS
from cockpit.core.run.memory import Gauge, Trend
from cockpit.core.run.memory import Pace as Believed
from cockpit.core.run.notices.recording import Recording, advice, ends_in, horizon
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import LIVE, Run
from cockpit.core.text import size
from cockpit.core.time_text import rounded_span

NEARLY, SHARE = 1 << 30, 0.05
"""Nearly full: less than so many bytes free, and less than this share of a small one."""
FILES, FILES_SHARE = 10_000, 0.02
"""Nearly no file left: less than so many can be made, and less than this share of a small disk's."""
HELD_S, SCARCE = 60.0, 0.1
"""Told once it is so for so long, as an older checkpoint is often removed when a new one is written; at once
if less than this share of that is left."""
FREED = 1.5
"""No longer: so many times as much is free."""
GIVEN_BACK, HIGHER = 0.7, 1.3
"""From its peak down to this share; what then comes up to so many times that peak again is no news."""
INODES, NSYS = "inodes of ", "nsys on "
SHOWN, OF = 120, 300
"""Characters of a path in a sentence, and of what tells notices apart."""
_BELIEVED = Believed()


_Place = tuple[str, str]
"""A node, and where ranks work there; empty: its run folder."""


@dataclass(frozen=True)
class _Files:
    """Of how many files a disk has room, and since when these are few."""

    since: float
    free: int
    total: int


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
        self._disks: dict[_Place, _Disk] = {}
        self._files: dict[_Place, _Files] = {}
        self._nsys: dict[str, tuple[DiskSample, Recording]] = {}
        self._total: int | None = None

    def read(self, at: float, said: Mapping[str, float]) -> None:
        """See :class:`Rule`."""
        self._total = int(said["total"]) if 0 < said.get("total", 0) < inf else self._total

    def interrupted(self) -> None:
        """See :class:`Rule`."""
        for disk in self._disks.values():
            disk.gauge = Gauge(_BELIEVED)
        for _, recording in self._nsys.values():
            recording.interrupted()

    def sampled(self, at: float, node: str, sample: Sample, run: Run) -> None:
        """See :class:`Rule`."""
        free = sample.sample.disk_free_bytes
        if free is not None:
            self._measured(at, (node, ""), free, sample.sample.disk_total_bytes or 0, run)
        if not sample.disks:
            return  # they are measured at times only
        there = {(node, disk.path) for disk in sample.disks}
        for known in (self._disks, self._files):
            for place in [place for place in known if place[0] == node and place[1] and place not in there]:
                del known[place]
        for disk in sample.disks:
            if disk.path:
                self._measured(at, (node, disk.path), disk.free_bytes, disk.total_bytes, run)
            self._count(at, (node, disk.path), disk)
            if disk.nsys_folder:
                _, recording = self._nsys.get(node, (disk, Recording()))
                recording.add(at, disk.nsys_bytes)
                self._nsys[node] = disk, recording

    def _measured(self, at: float, place: _Place, free: int, total: int, run: Run) -> None:
        disk = self._disks.get(place)
        if disk is None or free > disk.room:
            disk = self._disks[place] = _larger(disk, free, total)
        disk.free, disk.total = free, total
        low = min(NEARLY, SHARE * total) if total else NEARLY
        disk.scarce = free < SCARCE * low
        if free < low and disk.low_since is None:
            disk.low_since = at
        elif free >= FREED * low:
            disk.low_since = None
        if disk.gauge.add(at, disk.room - free, {}):
            self._judge(at, place[0], disk, run)

    def _count(self, at: float, place: _Place, disk: DiskSample) -> None:
        free, total = disk.free_files, disk.total_files
        low = min(FILES, FILES_SHARE * total) if total else 0
        if free is None or free >= low:
            self._files.pop(place, None)
        else:
            since = self._files[place].since if place in self._files else at
            self._files[place] = _Files(since, free, total or 0)

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

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        for node in self._nsys:
            if not run.nodes[node].over and run.nodes[node].link == "ok":
                yield from self._recorded(at, node, run, pace)
        for place, disk in self._disks.items():
            node, path = place
            if run.nodes[node].over or run.nodes[node].link != "ok":
                continue
            has = f"{size(disk.free)}{f' of {size(disk.total)}' if disk.total else ''} free"
            called, steps = self._named(place, "df -h")
            of = node if not path else f"{node} {path}"[:OF]
            if disk.trend is not None:
                more = (
                    f"{size(60 * disk.trend.bytes_s)} less per minute, for {rounded_span(disk.trend.over_s)}"
                )
                what = f"{called} is full"
                due = disk.full_at
                yield Condition(of, what, disk.trend_since, due, (has, more), nodes=(node,), steps=steps)
            elif disk.low_since is not None and (disk.scarce or at - disk.low_since >= HELD_S):
                what = f"{called} is nearly full: {has}"
                yield Condition(of, what, disk.low_since, None, (), "sure", nodes=(node,), steps=steps)
        for place, files in self._files.items():
            node = place[0]
            if at - files.since < HELD_S or run.nodes[node].over or run.nodes[node].link != "ok":
                continue
            called, steps = self._named(place, "df -i")
            what = f"{called} has nearly no inodes left: {files.free:,} of {files.total:,}"
            of = f"{INODES}{node} {place[1]}"[:OF]
            yield Condition(of, what, files.since, None, (), "sure", nodes=(node,), steps=steps)

    def _recorded(self, at: float, node: str, run: Run, pace: Pace) -> Iterator[Condition]:
        """What nsys records there, if it will not find room for all of that and its report."""
        disk, recording = self._nsys[node]
        if not recording.rate:
            return
        profile = self.about.profile
        left, there, free = recording.left(disk.free_bytes, there=True), True, disk.free_bytes
        if disk.path and (node, "") in self._disks:
            other = self._disks[node, ""].free
            if recording.left(other, there=False) < left:
                left, there, free = recording.left(other, there=False), False, other
        started = max((rank.started_at or 0.0 for rank in run.on(node) if rank.state in LIVE), default=0.0)
        ends = ends_in(profile, at + run.nodes[node].offset_s - started, pace, self._total)
        if left >= (horizon(profile) if ends is None else ends):
            return
        what = f"nsys writes {size(recording.rate)}/s to {_shown(disk.nsys_folder)} on {node}: "
        if there:
            what += "with its report that disk is full" if left else "no room for its report"
        else:
            what += "the run folder has no room for its report"
        evidence = (
            f"{size(recording.bytes)} so far; its report may take as much again",
            f"{size(free)} free",
        )
        due = at + left if left else None
        seen = self._named((node, disk.nsys_folder if there else ""), "df -h")[1][:1]
        steps = (*seen, *advice(profile, self.about.name, there=there))
        yield Condition(
            f"{NSYS}{node}"[:OF], what, recording.since, due, evidence, nodes=(node,), steps=steps
        )

    def _named(self, place: _Place, command: str) -> tuple[str, tuple[NoticeStep, ...]]:
        """What a disk is called, and what to type to see it."""
        node, path = place
        folder = path or self.about.dirs.get(node, "")
        called = f"the disk of {_shown(path)}" if path else "the disk of the run folder"
        typed = f"{command} {quote(folder)}" if folder else command
        steps = [NoticeStep(typed, "what it is", node)]
        if folder:
            users = USERS.command.replace("FOLDER", quote(folder))
            steps.append(NoticeStep(users, USERS.reason, node))
        return f"{called} on {node}", tuple(steps)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        node, _, path = of.removeprefix(INODES).partition(" ")
        disk, called = self._disks.get((node, path)), self._named((node, path), "")[0]
        if disk is None:
            return ""  # no rank works there any more
        return (
            f"{called} has free inodes again"
            if of.startswith(INODES)
            else f"{called} has space again: {size(disk.free)} free"
        )


def _shown(path: str) -> str:
    return path if len(path) <= SHOWN else f"…{path[1 - SHOWN :]}"
