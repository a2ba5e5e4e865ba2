"""nsys on the ranks of a SLURM job: two nodes of two ranks each, reached by srun alone."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.base.progress import ring
from tests.lab.cockpits import Cockpits
from tests.lab.slurm import Slurm, without_sshd
from tests.needs import require, require_module
from tests.profile.training import SCRIPT
from tests.waiting import PATIENCE_S, until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.launch,
    pytest.mark.nsys,
    pytest.mark.timeout(600),
]

RANKS = {"node1": (0, 1), "node2": (2, 3)}
PROCESSES = "SELECT DISTINCT (globalTid / 0x1000000) % 0x1000000 FROM OSRT_API"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Two nodes on which no sshd listens, and nothing outlives its step where this machine can do that."""
    require("nsys")
    require_module("torch")
    with without_sshd("linuxproc" if Slurm.lacks("cgroup") else "cgroup") as cluster:
        yield cluster


@pytest.fixture
def cockpits(slurm: Slurm, request: pytest.FixtureRequest) -> Cockpits:
    """Cockpits on the login node, which know where SLURM is."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:50]
    return Cockpits(slurm.lab, name, slurm.env)


@pytest.fixture
def train(slurm: Slurm, cockpits: Cockpits) -> Iterator[Callable[..., None]]:
    """Starts four ranks that train below nsys; they step when it returns, and end with the test."""
    job = slurm.allocate("-N2", "--exclusive")
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> None:
        (cockpits.lab.home() / "end").unlink(missing_ok=True)
        words = ["--slurm", job, "--launcher", "command", "--probe", "on", "--headless", "--trace", "osrt"]
        program = [cockpits.lab.python, str(SCRIPT), "gloo", "0.2"]
        started.append(cockpits.start(*words, *options, program=program))
        until(lambda: min(step(cockpits)) > 2, "all ranks step")

    yield start
    for process in started:
        end(cockpits)
        process.wait(PATIENCE_S)
    slurm.cancel(job)


def end(cockpits: Cockpits) -> None:
    cockpits.lab.write(None, cockpits.lab.home() / "end", "")


def rings(cockpits: Cockpits, node: str) -> list[ring.Ring]:
    """The rings of a node's ranks."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        found = json.loads((cockpits.node_folder(node) / "record.json").read_text())
        folder = cockpits.lab.node_path(node, found["rings"])
        return [ring.read(next(folder.glob(f"{rank}.*.ring")).read_bytes()) for rank in RANKS[node]]
    return []


def step(cockpits: Cockpits) -> list[int]:
    """The last step of each rank; 0: it has made none yet."""
    found = []
    for node in RANKS:
        with contextlib.suppress(StopIteration):
            found += [one.steps[-1].step if one.steps else 0 for one in rings(cockpits, node)]
    return found if len(found) == 4 else [0]


def reports(cockpits: Cockpits, node: str) -> list[Path]:
    """Reports of a node, here; each opens."""
    found = sorted((cockpits.folder / "reports").glob(f"*-{node}/*.nsys-rep"))
    for report in found:
        empty = report.with_suffix(".empty")  # it runs Python files of the folder it is started in
        empty.mkdir()
        subprocess.run(["nsys", "stats", str(report)], check=True, capture_output=True, cwd=empty)
        assert report.with_suffix(".sqlite").exists()
    return found


def inside(report: Path) -> set[int]:
    """Processes of a report, as their node counts."""
    with contextlib.closing(sqlite3.connect(report.with_suffix(".sqlite"))) as opened:
        return {int(row[0]) for row in opened.execute(PROCESSES)}


def span(report: Path) -> tuple[int, int]:
    """The first and the last moment of a report, by the wall clock, in nanoseconds."""
    with contextlib.closing(sqlite3.connect(report.with_suffix(".sqlite"))) as opened:
        [[zero]] = opened.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchall()
        [[first, last]] = opened.execute("SELECT min(start), max(end) FROM OSRT_API").fetchall()
    return zero + first, zero + last


def pids(cockpits: Cockpits, node: str) -> dict[int, int]:
    """The training processes of a node, as it counts."""
    folder = cockpits.node_folder(node)
    starts = [json.loads((folder / f"rank-{rank}.start.json").read_text()) for rank in RANKS[node]]
    return {one["rank"]: one["pid"] for one in starts}


def over(cockpits: Cockpits) -> None:
    """Let it end, and fetch its reports."""
    end(cockpits)
    until(cockpits.ended, "the run has ended")
    found = cockpits.cockpit("collect", cockpits.name)
    assert found.returncode == 0, found.stdout + found.stderr
    assert not cockpits.left_over()


def of_each_rank(cockpits: Cockpits) -> dict[int, Path]:
    """The report of each rank, which holds that rank and none of its neighbours."""
    found: dict[int, Path] = {}
    for node, ranks in RANKS.items():
        processes = pids(cockpits, node)
        for rank, report in zip(ranks, reports(cockpits, node), strict=True):
            assert f".rank-{rank}." in report.name
            assert inside(report) & set(processes.values()) == {processes[rank]}
            found[rank] = report
    return found


@pytest.mark.long
def test_whole_ranks(cockpits: Cockpits, train: Callable[..., None]) -> None:
    train("--profile", "nsys", "--per-rank")
    over(cockpits)
    assert sorted(of_each_rank(cockpits)) == [0, 1, 2, 3]


@pytest.mark.long
def test_steps(cockpits: Cockpits, train: Callable[..., None]) -> None:
    train("--profile", "nsys", "--profile-steps", "3-5")
    until(lambda: min(step(cockpits)) > 7, "all ranks are past them")
    ends = {
        rank: one.steps
        for node in RANKS
        for rank, one in zip(RANKS[node], rings(cockpits, node), strict=True)
    }
    over(cockpits)
    for rank, report in of_each_rank(cockpits).items():
        wall = {one.step: one.wall_ns for one in ends[rank]}
        first, last = span(report)
        assert first <= wall[3]
        assert last >= wall[5]
        [said] = [
            one["text"]
            for node in RANKS
            for one in cockpits.events(node)
            if one["e"] == "note" and f"rank {rank}: its report holds steps" in one["text"]
        ]
        holds = said.split(" whole")[0].split("steps ")[1].split(" to ")
        assert int(holds[0]) <= 3
        assert int(holds[1]) >= 5


@pytest.mark.long
def test_while_it_goes_on(cockpits: Cockpits, train: Callable[..., None]) -> None:
    train("--profile", "nsys-ready")
    done = cockpits.cockpit("profile", cockpits.name, "--kind", "nsys", "--steps", "3", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["missing"] == {}
    assert all("are in it, with" in one["why"] for one in told["taken"].values())
    before = step(cockpits)
    until(lambda: min(step(cockpits)) > max(before) + 2, "the ranks step on")
    over(cockpits)
    for node in RANKS:
        [report] = reports(cockpits, node)
        assert set(pids(cockpits, node).values()) <= inside(report)
