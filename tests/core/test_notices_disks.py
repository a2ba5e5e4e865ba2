"""Disks other than that of the run folder, and disks on which no new file can be made."""

from __future__ import annotations

from collections.abc import Callable

from cockpit.base.events import DiskSample, NodeSample, Sample
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.notices.disk import Disk
from cockpit.core.run.notices.rule import About
from tests.core.simulated import BEGAN, GIB, World

Disks = Callable[[int], tuple[DiskSample, ...]]


def watched(disks: Disks, minutes: float = 5) -> World:
    """A node that is measured each second, its disks each five."""
    world = World()
    for second in range(int(60 * minutes)):
        at = BEGAN + second
        found = disks(second) if second % 5 == 0 else ()
        node = NodeSample(disk_free_bytes=800 * GIB, disk_total_bytes=1000 * GIB)
        world.watch.sampled(at, "gpu0", Sample(node, disks=found), world.model)
        for fact in world.watch.look(at, second, world.model, world.pace):
            world.facts.append((second, fact))
            world.model.apply(witnessed(world.model, at, "", fact))
        world.now = at
    return world


def disk(path: str, free: float, files: int | None = 1_000_000) -> DiskSample:
    return DiskSample(path, int(free), 1000 * GIB, files, None if files is None else 65_536_000)


def test_the_disk_on_which_ranks_work_is_nearly_full() -> None:
    world = watched(lambda second: (disk("", 800 * GIB), disk("/lustre/ada", 0.5 * GIB)))
    (found,) = world.found
    assert found.what.startswith("the disk of /lustre/ada on gpu0 is nearly full: 537 MB of ")
    assert [step.text for step in found.steps] == [
        "gpu0: df -h /lustre/ada: what it is",
        "gpu0: du -xh --max-depth=2 /lustre/ada | sort -h | tail: what uses it",
    ]
    assert found.rule == "disk-low"
    assert "no checkpoint is saved" in found.meaning


def test_the_disk_on_which_ranks_work_fills() -> None:
    world = watched(lambda second: (disk("/lustre/ada", (60 - 0.02 * second) * GIB),), 40)
    assert world.found[0].what.startswith("the disk of /lustre/ada on gpu0 is full in about ")


def test_no_file_can_be_made() -> None:
    world = watched(lambda second: (disk("", 800 * GIB, 90), disk("/lustre/ada", 800 * GIB, None)))
    (found,) = world.found
    assert found.what == "the disk of the run folder on gpu0 has nearly no inodes left: 90 of 65,536,000"
    assert found.steps[0].text == "gpu0: df -i /tmp/c/r/gpu0: what it is"
    assert found.rule == "disk-low"
    over = watched(lambda second: (disk("", 800 * GIB, 90 if second < 120 else 50_000),))
    assert over.found == []


def test_what_ranks_no_longer_work_on_is_forgotten() -> None:
    world = watched(
        lambda second: (disk("/a" if second < 150 else "/b", GIB // 2 if second < 150 else GIB * 99),)
    )
    assert world.found == []
    assert world.facts


def test_a_node_that_lies_about_disks_is_bounded_and_harmless() -> None:
    def lies(second: int) -> tuple[DiskSample, ...]:
        return tuple(disk(f"/\x1b[2J{'x' * 400}{second}{place}", 0, 0) for place in range(8))

    world, rule = watched(lies, 10), Disk(About("run", {}, ""))
    for second in range(0, 600, 5):
        rule.sampled(BEGAN + second, "gpu0", Sample(NodeSample(), disks=lies(second)), world.model)
    assert len(rule._disks) <= 9
    assert len(world.model.notices) <= 256
    same = watched(lambda second: lies(0))
    assert same.found
    assert all("\x1b" not in f"{found.what}{found.evidence}{found.steps}" for found in same.found)
    assert all("nearly" in found.what for found in same.found)
