"""Disks other than that of the run folder, and disks on which no new file can be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import pytest

from cockpit.base.events import DiskSample, NodeSample, Sample
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.notices.disk import Disk
from cockpit.core.run.notices.recording import Recording
from cockpit.core.run.notices.rule import About
from cockpit.core.run.notices.watch import Watch
from tests.core.simulated import BEGAN, GIB, World

Disks = Callable[[int], tuple[DiskSample, ...]]


def watched(disks: Disks, minutes: float = 5, profile: dict[str, str] | None = None) -> World:
    """A node that is measured each second, its disks each five.

    :param profile: what is around the run
    """
    world = World()
    world.watch = Watch(About("my run", {"gpu0": "/tmp/c/r/gpu0"}, profile=profile or {}))
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


@pytest.mark.slow
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


NSYS = {"nsys": "/opt/nsys", "report": "reports/r"}


def nsys(rate: float, free: float, *, until: float = 1e9, folder: str = "/scratch", path: str = "") -> Disks:
    """nsys writes so many bytes a second until then, after its start in the tenth second."""

    def measured(second: int) -> tuple[DiskSample, ...]:
        written = int(rate * max(0.0, min(second, until) - 10))
        one = replace(disk(path, free - written), nsys_folder=folder, nsys_bytes=written)
        return (one,) if not path else (disk("", 800 * GIB), one)

    return measured


def test_what_nsys_records_will_fill_the_disk() -> None:
    """Half of the room is for the report: 48 GB at 10 MB/s are 80 min, so 40 are left."""
    world = watched(nsys(10e6, 48e9, path="/scratch"), 1, NSYS)
    at, first = world.facts[0]
    assert at <= 40, "it is told from the first seconds on"
    (found,) = world.found
    writes = "nsys writes 10 MB/s to /scratch on gpu0: with its report that disk is full"
    assert found.what == f"{writes} in about 39 min"
    assert (found.certainty, found.severity, found.rule) == ("likely", "warning", "disk-low")
    assert found.evidence[:2] == ("200 MB so far; its report may take as much again", "47.8 GB free")
    assert [step.text for step in found.steps][:6] == [
        "gpu0: df -h /scratch: what it is",
        "cockpit stop 'my run': ends the run now; its report is written, and fetched",
        "--duration S: next time: for so many seconds; the job continues",
        "--profile-steps A-B: next time: only these steps",
        "--profile nsys-ready: next time: record when you ask for it",
        "--env TMPDIR=DIR: next time: nsys writes there, on a larger disk",
    ]
    assert first.due is not None
    assert BEGAN + 2300 < first.due < BEGAN + 2450


def test_the_disk_of_the_run_folder_gets_the_report() -> None:
    def small(second: int) -> tuple[DiskSample, ...]:
        _, there = nsys(10e6, 900e9, path="/scratch")(second)
        return disk("", 6e9), there

    world = World()
    world.watch = Watch(About("my run", {"gpu0": "/tmp/c/r/gpu0"}, profile=NSYS))
    for second in range(60):
        sample = Sample(
            NodeSample(disk_free_bytes=int(6e9), disk_total_bytes=1000 * GIB), disks=small(second)
        )
        world.watch.sampled(BEGAN + second, "gpu0", sample, world.model)
        world.facts += [
            (second, fact)
            for fact in world.watch.look(BEGAN + second, second, world.model, world.pace)
            if fact.of.startswith("nsys")
        ]
    (_, fact) = world.facts[-1]
    assert fact.what == "nsys writes 10 MB/s to /scratch on gpu0: the run folder has no room for its report"
    assert fact.steps[0].command == "df -h /tmp/c/r/gpu0"
    assert fact.steps[-1].command == "--node-dir DIR"


@pytest.mark.parametrize(
    ("profile", "disks"),
    [
        pytest.param({"seconds": "600"}, nsys(10e6, 48e9), id="a window that is over before"),
        pytest.param({"seconds": "20"}, nsys(10e6, 48e9), id="a window that is over"),
        pytest.param({"ready": "yes"}, nsys(10e6, 48e9), id="a short window"),
        pytest.param({}, nsys(10e6, 48e12), id="a large disk"),
        pytest.param({}, nsys(10e6, 48e9, until=18), id="a start"),
        pytest.param({}, nsys(0, 48e9), id="nothing is recorded"),
    ],
)
def test_no_notice_where_there_is_room(profile: dict[str, str], disks: Disks) -> None:
    assert watched(disks, 2, {**NSYS, **profile}).facts == []


@pytest.mark.parametrize(
    ("profile", "command"),
    [
        ({"seconds": "9000"}, "cockpit stop 'my run'"),
        ({"range": "cudaProfilerApi", "seconds": "20"}, "cockpit stop 'my run'"),
        ({"ready": "yes"}, "cockpit profile 'my run' --kind nsys --seconds S"),
    ],
)
def test_a_window_that_ends_too_late(profile: dict[str, str], command: str) -> None:
    world = watched(nsys(100e6, 60e9), 1, {**NSYS, **profile})
    (_, first), *_ = world.facts
    assert first.what == "nsys writes 100 MB/s to /scratch on gpu0: with its report that disk is full"
    assert first.steps[1].command == command


def test_steps_tell_when_a_window_ends() -> None:
    def told(last: int) -> bool:
        world = World()
        for step in range(1, 30):
            for rank in range(4):
                world.pace.stepped(rank, step, BEGAN + step, span=1.0)
        world.watch = Watch(About("my run", {}, profile={**NSYS, "range": f"steps 10-{last}"}))
        for second in range(0, 60, 5):
            sample = Sample(NodeSample(), disks=nsys(10e6, 48e9)(second))
            world.watch.sampled(BEGAN + second, "gpu0", sample, world.model)
        return bool([*world.watch.look(BEGAN + 60, 60, world.model, world.pace)])

    assert not told(1000)
    assert told(10_000)


def test_a_window_whose_report_was_written_is_over() -> None:
    """What is recorded is removed then, and a second window of the same length is no news."""
    world = watched(
        lambda second: nsys(10e6, 8e9)(second if second < 100 else second - 100),
        3,
        {**NSYS, "ready": "yes"},
    )
    told = [(at, fact.over) for at, fact in world.facts]
    assert told[0][0] < 60
    assert told[-1] == (100, True)


def test_how_fast_it_grows_is_what_stays() -> None:
    """Its files are made at once, and threads write in turn."""
    one = Recording()
    sizes = chain([0, 0, 200], (200 + place // 3 * 30 for place in range(24)))
    for place, each in enumerate(sizes):
        one.add(5.0 * place, int(each * 1e6))
        if place < 8:
            assert one.rate == 0.0
    assert one.rate == pytest.approx(2e6, rel=0.2)
    one.add(500.0, None)  # too many files: it goes on as before
    assert one.bytes > 800e6
    one.add(400.0, 10)  # a clock that was set
    assert one.rate == 0.0


def test_nsys_of_a_node_that_lies_is_harmless() -> None:
    def lies(second: int) -> tuple[DiskSample, ...]:
        folder = f"/\x1b[2J';{'x' * 5000}"
        return (DiskSample("", 0, 0, nsys_folder=folder, nsys_bytes=(second * 10**16) % 10**18),)

    world = watched(lies, 1, {"seconds": "nan", "range": "steps 1-", "ready": "", "ranks": "\x1b"})
    assert world.found
    assert all("\x1b" not in f"{found.what}{found.evidence}{found.steps}" for found in world.found)
