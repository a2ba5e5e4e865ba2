"""What is measured of the ranks of a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from cockpit.base.answers import SamplesItem
from cockpit.base.events import Sample
from cockpit.base.gate import read
from cockpit.core.run.notices.rule import About
from cockpit.core.run.notices.watch import Watch
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.measure import disks, nsys_files, samples
from cockpit.node.measure.main_thread import main_thread
from cockpit.node.measure.progress import Rings
from tests.core.simulated import BEGAN, World
from tests.needs import require
from tests.node import folders
from tests.waiting import PATIENCE_S, until


def looks(folder: Path, enough: Callable[[dict[str, Any]], object]) -> list[dict[str, Any]]:
    """Samples until there is one of which enough is known."""
    items: list[dict[str, Any]] = []

    def send(header: dict[str, Any], payload: bytes) -> None:
        items.append(header["item"])
        if enough(items[-1]):
            call.cancel()

    call = Call({"id": 1, "dir": str(folder), "interval": 0.1}, b"", send)
    call.add_credit(1 << 20)
    samples.samples(call)
    return items


def measured(folder: Path) -> dict[str, Any]:
    """The ranks of one sample."""
    ranks: dict[str, Any] = looks(folder, lambda _: True)[0]["ranks"]
    return ranks


BUSY = """
import subprocess, sys, threading
threading.Thread(target=input).start()
subprocess.Popen([sys.executable, "-c", "input()"], stdin=0)
held = bytearray(64 << 20)
print(flush=True)
while threading.active_count() == 2:
    pass
"""


def test_what_a_rank_uses(tmp_path: Path) -> None:
    """The same as psutil says, which nodes do not have."""
    folders.make(tmp_path, [0])
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=pipe, stdout=pipe) as process:
        (tmp_path / "rank-0.start.json").write_text(folders.start(0, process.pid))
        assert process.stdout is not None
        process.stdout.readline()
        seen = psutil.Process(process.pid)
        assert seen.memory_info().rss > 64 << 20
        assert seen.children()
        items = looks(tmp_path, lambda item: (item["ranks"]["0"]["cpu_percent"] or 0) > 1)
        assert items[0]["ranks"]["0"]["cpu_percent"] is None
        rank, node = items[-1]["ranks"]["0"], items[-1]["node"]
        assert (rank["threads"], rank["children"]) == (seen.num_threads(), 1) == (2, 1)
        assert rank["rss_bytes"] == pytest.approx(seen.memory_info().rss, rel=0.05)
        assert 1 < rank["cpu_percent"] < 130
        memory = psutil.virtual_memory()
        assert node["memory_total_bytes"] == memory.total
        assert node["memory_bytes"] == pytest.approx(memory.total - memory.available, rel=0.2)
        process.communicate(b"\n\n")


def test_the_main_thread_alone_is_told_from_the_others(tmp_path: Path) -> None:
    """It sleeps while another thread is at work."""
    program = """
import hashlib, sys, threading
busy = lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)
threading.Thread(target=busy, daemon=True).start()
print(flush=True)
sys.stdin.read()
"""
    folders.make(tmp_path, [0])
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as process:
        (tmp_path / "rank-0.start.json").write_text(folders.start(0, process.pid))
        assert process.stdout is not None
        process.stdout.readline()
        until(lambda: _asleep(process.pid), "its main thread sleeps")
        items = looks(tmp_path, lambda item: (item["ranks"]["0"]["cpu_percent"] or 0) > 1)
        first, *_, last = (item["ranks"]["0"] for item in items)
        counters = [(one["main_cpu_s"], one["main_switches"]) for one in (first, last)]
        assert counters[0] == counters[1]
        assert counters[0][0] > 0
        assert counters[0][1] > 0
        process.kill()


def _asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("schedstat", ["", "0 0 0\n"])
def test_kernels_that_count_no_time_slices(schedstat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = procfs.contents

    def contents(path: str) -> bytes:
        return schedstat.encode() if path.endswith("schedstat") else read(path)

    monkeypatch.setattr(procfs, "contents", contents)
    before = main_thread(os.getpid())

    def used() -> bool:
        return bool(main_thread(os.getpid())["main_cpu_s"] > before["main_cpu_s"])

    assert before["main_switches"] > 0
    until(used, "another tick of the clock")
    monkeypatch.setattr(procfs, "contents", lambda path: b"")
    assert main_thread(os.getpid()) == {"main_cpu_s": None, "main_switches": None}


def test_a_rank_that_notes_steps_needs_no_other_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.make(tmp_path, [0])
    (tmp_path / "rank-0.start.json").write_text(folders.start(0, os.getpid()))
    assert measured(tmp_path)["0"]["main_cpu_s"] > 0
    noted = {"source": "optimizer", "step": 5, "age_s": 0.1, "step_s": None, "steps": []}
    monkeypatch.setattr(Rings, "progress", lambda self, rank: noted)
    rank = measured(tmp_path)["0"]
    assert rank["progress"] == noted
    assert "main_cpu_s" not in rank


def test_ranks_of_jobs_that_others_started_have_main_threads_too(tmp_path: Path) -> None:
    sampler = samples._Sampler(str(tmp_path), {3: (os.getpid(), procfs.ticks(os.getpid()))})
    rank = sampler.sample()["ranks"]["3"]
    assert rank["progress"] is None
    assert rank["main_cpu_s"] > 0
    assert rank["main_switches"] > 0


def test_another_process_with_its_pid_is_not_the_rank(tmp_path: Path) -> None:
    folders.make(tmp_path, [0])
    (tmp_path / "rank-0.start.json").write_text(folders.start(0, os.getpid(), ticks=1))
    assert measured(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 40 kB\n", (60 << 10, 100 << 10)),
        ("MemTotal: 100 kB\nMemFree: 1 kB\nBuffers: 2 kB\nCached: 7 kB\n", (90 << 10, 100 << 10)),
        ("MemTotal: 100 kB\nMemAvailable: 140 kB\nHugePages_Total: 5\n\n", (0, 100 << 10)),
        ("", None),
    ],
)
def test_memory_of_a_node(text: str, known: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Linux says, what it said before 3.14, what a container may say, and nothing."""
    monkeypatch.setattr(procfs, "contents", lambda path: text.encode())
    assert procfs.memory() == known


def test_a_process_that_is_ending_is_not_measured(tmp_path: Path) -> None:
    """The memory of a zombie is 0: that is not what the rank had."""
    folders.make(tmp_path, [0])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        (tmp_path / "rank-0.start.json").write_text(folders.start(0, process.pid))
        # What has just begun has no pages yet, as far as the kernel tells.
        until(lambda: measured(tmp_path).get("0", {}).get("rss_bytes"), "it is measured")
        process.kill()

        def dead() -> bool:
            found = procfs.stat(process.pid)
            return found is not None and found.state == "Z"

        until(dead, "a zombie")
        assert measured(tmp_path) == {}


def test_the_disks_that_ranks_work_on(tmp_path: Path) -> None:
    folders.make(tmp_path, [0])
    elsewhere = [] if tmp_path.stat().st_dev == Path("/dev/shm").stat().st_dev else ["/dev/shm"]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=pipe, cwd="/dev/shm") as process:
        (tmp_path / "rank-0.start.json").write_text(folders.start(0, process.pid))
        # A look's answer comes some samples later, and the first look may come before the process is known.
        found = looks(tmp_path, lambda item: len(item["disks"]) > len(elsewhere))[-1]["disks"]
        process.communicate(b"\n")
    assert [one["path"] for one in found] == ["", *elsewhere]
    seen = os.statvfs(tmp_path)
    assert found[0]["total_bytes"] == seen.f_blocks * seen.f_frsize
    assert found[0]["total_files"] in (seen.f_files, None)
    assert read(SamplesItem, {"node": {}, "disks": found}).disks[0].path == ""


def test_a_file_system_that_does_not_answer_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hangs(place: str) -> os.statvfs_result:
        answers.wait(PATIENCE_S)
        raise OSError

    monkeypatch.setattr(os, "statvfs", hangs)
    some = disks.Disks(str(tmp_path))
    before = threading.active_count()
    for _ in range(5):
        assert some.look([os.getpid()]) == []
    assert threading.active_count() == before + 1
    answers.set()


def nsys_session(temporary: Path, name: str = "quadd_session_7") -> Path:
    """The file in which nsys keeps what it records of a thread."""
    made = temporary / "nvidia" / "nsight_systems" / name / "injection_files"
    made.mkdir(parents=True)
    return made / "injection_1_0_storage.dat"


def around(folder: Path, **profile: str) -> None:
    """A run folder whose ranks are below nsys."""
    folders.make(folder, [0])
    facts = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**facts, "profile": profile}))


@contextmanager
def below(folder: Path, temporary: Path) -> Iterator[int]:
    """The pid of rank 0, which has this folder for temporary files."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    words = [sys.executable, "-c", "print(flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, cwd=folder, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (folder / "rank-0.start.json").write_text(folders.start(0, process.pid))
        yield process.pid
        process.communicate(b"\n")


def test_what_nsys_records_is_measured_where_its_temporary_files_are(tmp_path: Path) -> None:
    around(tmp_path, nsys="/opt/nsys")
    temporary = tmp_path / "temporary"
    recorded = nsys_session(temporary)
    recorded.write_bytes(b"x" * (1 << 20))
    nsys_session(temporary, "other").write_bytes(b"x" * (1 << 22))
    earlier = nsys_session(temporary, "quadd_session_6")
    earlier.write_bytes(b"x" * (1 << 22))
    os.utime(earlier.parent.parent, (0, 0))
    with below(tmp_path, temporary):
        items = looks(tmp_path, lambda item: any(one.get("nsys_folder") for one in item["disks"]))
    (found,) = read(SamplesItem, {"node": {}, "disks": items[-1]["disks"]}).disks
    assert (found.path, found.nsys_folder) == ("", str(temporary))
    assert found.nsys_bytes is not None
    assert 1 << 20 <= found.nsys_bytes < 1 << 21


@pytest.mark.parametrize("profile", [{}, {"other": "tool"}])
def test_without_nsys_nobody_looks_for_what_it_writes(tmp_path: Path, profile: dict[str, str]) -> None:
    around(tmp_path, **profile)
    nsys_session(tmp_path).write_bytes(b"x")
    with below(tmp_path, tmp_path):
        found = looks(tmp_path, lambda item: bool(item["disks"]))[-1]["disks"]
    assert "nsys_bytes" not in found[0]


def test_a_folder_with_too_many_files_of_nsys_is_not_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = nsys_session(tmp_path).parent
    for place in range(8):
        (files / str(place)).write_bytes(b"x")
    assert nsys_files.recorded(str(tmp_path), 1.0)
    monkeypatch.setattr(nsys_files, "MOST", 6)
    assert nsys_files.recorded(str(tmp_path), 1.0) is None
    assert nsys_files.recorded(str(tmp_path / "none"), 1.0) == 0


def test_a_small_disk_that_nsys_fills_is_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the file that grows to the sentence."""
    recorded = nsys_session(tmp_path)

    class Small:
        f_frsize, f_blocks, f_files, f_favail = 1, 200 << 20, 0, 0

        @property
        def f_bavail(self) -> int:
            return self.f_blocks - recorded.stat().st_size

    monkeypatch.setattr(os, "statvfs", lambda place: Small())
    world = World()
    world.watch = Watch(About("my run", {}, profile={"nsys": "/opt/nsys"}))
    with below(tmp_path, tmp_path) as pid:
        some = disks.Disks(str(tmp_path), 1.0)
        for second in range(0, 40, 5):
            with recorded.open("ab") as file:
                file.write(b"x" * (1 << 20))
            some._measure([pid])
            item = read(SamplesItem, {"node": {}, "disks": some._found})
            world.watch.sampled(BEGAN + second, "gpu0", Sample(item.node, disks=item.disks), world.model)
    told = list(world.watch.look(BEGAN + 35, 35, world.model, world.pace))
    (fact,) = (each for each in told if each.of.startswith("nsys"))
    assert fact.what == f"nsys writes 210 kB/s to {tmp_path} on gpu0: with its report that disk is full"[:300]
    assert fact.due == pytest.approx(BEGAN + 35 + (200 - 8 - 8) * 5 / 2, rel=1e-9, abs=15)


REAL = """
import os, threading, time
end = time.time() + 90
read, write = os.pipe()
while time.time() < end:
    os.write(write, b"x" * 64)
    os.read(read, 64)
"""


def launched(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """nsys, once its program runs, or it has failed."""
    environment = {**os.environ, "TMPDIR": str(folder / "temporary")}
    process = subprocess.Popen(words, cwd=folder, env=environment)
    until(lambda: (folder / "pid").exists() or process.poll() is not None, "it runs")
    return process


@pytest.mark.nsys
@pytest.mark.slow
def test_the_real_nsys_records_there(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "program.py").write_text("import os\nprint(os.getpid(), file=open('pid', 'w'))\n" + REAL)
    words = [require("nsys"), "profile", "-t", "osrt", "-s", "none", "--cpuctxsw=none", "-o", "report"]
    since = time.time() - 1
    for _ in range(5):  # on a busy machine it fails at times before it has started anything
        process = launched([*words, sys.executable, "program.py"], tmp_path)
        if process.poll() is None:
            break
    until(lambda: (tmp_path / "pid").read_text().strip(), "its pid is there")
    folder, place = nsys_files.temporary(int((tmp_path / "pid").read_text()))
    assert folder == str(tmp_path / "temporary")
    try:
        until(lambda: (nsys_files.recorded(place, since) or 0) > 0, "it records")
        before = nsys_files.recorded(place, since) or 0
        until(lambda: (nsys_files.recorded(place, since) or 0) > before, "more than before", 60)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        process.wait(PATIENCE_S)
