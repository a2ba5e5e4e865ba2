"""nsys on the ranks of a SLURM job: two nodes of two ranks each, reached by srun alone."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from cockpit.base.progress import ring
from tests.lab.cockpits import Cockpits
from tests.lab.slurm import Slurm, without_sshd
from tests.needs import require
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
FIRST, LAST = 30, 32
"""Late steps: nsys misses half a second of what it has just launched."""
PROFILED = {
    "whole": ("nsys", "--profile-ranks", "1,2"),
    "steps": ("nsys", "--profile-ranks", "0,1", "--profile-steps", f"{FIRST}-{LAST}"),
    "ready": ("nsys-ready",),
}
"""Runs, and how each is profiled."""
PROCESSES = "SELECT DISTINCT (globalTid / 0x1000000) % 0x1000000 FROM OSRT_API"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Two nodes on which no sshd listens, and nothing outlives its step where this machine can do that."""
    require("nsys")
    with without_sshd(Slurm.strictest()) as cluster:
        yield cluster


def test_whole_ranks_chosen_steps_and_what_goes_on_are_recorded(slurm: Slurm) -> None:
    """Three runs side by side in one job, each of four ranks that step until all are told to end."""
    job = slurm.allocate("-N2", "--exclusive")
    runs = {name: Cockpits(slurm.lab, name, slurm.env) for name in PROFILED}
    processes = {name: begun(run, job, *PROFILED[name]) for name, run in runs.items()}
    for name, run in runs.items():
        until(lambda run=run: min(step(run)) > 2, f"all ranks of {name} step")  # type: ignore[misc]
    recorded_while_it_goes_on(runs["ready"])
    until(lambda: min(step(runs["steps"])) > LAST + 2, "all ranks are past the steps")
    ended = {rank: one for node in RANKS for rank, one in rings(runs["steps"], node).items()}
    slurm.lab.write(None, slurm.lab.home() / "end", "")
    for name, run in runs.items():
        over(run, processes[name])
    until(lambda: "cockpit" not in slurm.run("squeue", "-h", "-s", "-o", "%j", "-j", job), "no step is left")
    assert slurm.state(job) == "RUNNING", "the job is not ours to end"
    of_each_rank(runs["whole"], [1, 2])
    for rank, report in of_each_rank(runs["steps"], [0, 1]).items():
        holds_the_steps(runs["steps"], rank, report, ended[rank])
    assert reports(runs["ready"], "node1") == []
    [report] = reports(runs["ready"], "node2")
    assert set(pids(runs["ready"], "node2").values()) <= inside(report)


def begun(cockpits: Cockpits, job: str, *profiled: str) -> subprocess.Popen[str]:
    """A run of four ranks below nsys."""
    words = ["--slurm", job, "--launcher", "command", "--probe", "on", "--headless", "--trace", "osrt"]
    program = [cockpits.lab.python, str(SCRIPT), "stub", "0.2"]
    return cockpits.begin(*words, "--profile", *profiled, program=program)


def recorded_while_it_goes_on(cockpits: Cockpits) -> None:
    """Those of one node; all step on."""
    words = ["--kind", "nsys", "--ranks", "2,3", "--steps", "3", "--json"]
    done = cockpits.cockpit("profile", cockpits.name, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (sorted(told["taken"]), told["missing"]) == (["2", "3"], {})
    assert all("are in it, with" in one["why"] for one in told["taken"].values())
    before = step(cockpits)
    until(lambda: min(step(cockpits)) > max(before) + 2, "the ranks step on")


def over(cockpits: Cockpits, process: subprocess.Popen[str]) -> None:
    """Its ranks have been told to end: so does it, and its reports are fetched."""
    assert process.wait(PATIENCE_S) == 0, cockpits.name
    assert cockpits.ended(), cockpits.name
    found = cockpits.cockpit("collect", cockpits.name)
    assert found.returncode == 0, found.stdout + found.stderr
    assert not cockpits.left_over()


def of_each_rank(cockpits: Cockpits, profiled: Collection[int]) -> dict[int, Path]:
    """The report of each profiled rank, which holds that rank and none of its neighbours."""
    found: dict[int, Path] = {}
    for node, ranks in RANKS.items():
        processes = pids(cockpits, node)
        expected = [rank for rank in ranks if rank in profiled]
        for rank, report in zip(expected, reports(cockpits, node), strict=True):
            assert f".rank-{rank}." in report.name
            assert inside(report) & set(processes.values()) == {processes[rank]}
            found[rank] = report
    return found


def holds_the_steps(cockpits: Cockpits, rank: int, report: Path, steps: tuple[ring.Step, ...]) -> None:
    """It does, and its node says so."""
    wall = {one.step: one.wall_ns for one in steps}
    first, last = span(report)
    assert first <= wall[FIRST]
    # The one call of a step ends just before the step does.
    assert last > wall[LAST - 1]
    [said] = [
        one["text"]
        for node in RANKS
        for one in cockpits.events(node)
        if one["e"] == "note" and f"rank {rank}: its report holds steps" in one["text"]
    ]
    holds = said.split(" whole")[0].split("steps ")[1].split(" to ")
    assert int(holds[0]) <= FIRST
    assert int(holds[1]) >= LAST


def rings(cockpits: Cockpits, node: str) -> dict[int, tuple[ring.Step, ...]]:
    """The steps of a node's ranks; nothing: not all have begun."""
    with contextlib.suppress(OSError, ValueError, KeyError, StopIteration):
        found = json.loads((cockpits.node_folder(node) / "record.json").read_text())
        folder = cockpits.lab.node_path(node, found["rings"])
        files = {rank: next(folder.glob(f"{rank}.*.ring")) for rank in RANKS[node]}
        return {rank: ring.read(file.read_bytes()).steps for rank, file in files.items()}
    return {}


def step(cockpits: Cockpits) -> list[int]:
    """The last step of each rank; 0: it has made none yet."""
    found = [steps[-1].step if steps else 0 for node in RANKS for steps in rings(cockpits, node).values()]
    return found if len(found) == 4 else [0]


def reports(cockpits: Cockpits, node: str) -> list[Path]:
    """Reports of a node, here; each opens."""
    found = sorted((cockpits.folder / "reports").glob(f"*-{node}/*.nsys-rep"))
    for report in found:
        words = ["nsys", "export", "--type", "sqlite", "-o", str(report.with_suffix(".sqlite")), str(report)]
        subprocess.run(words, check=True, capture_output=True)
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
