"""Recording with the real nsys in a run that was launched ready for it: two nodes with a rank each.

In a SLURM job, with two ranks a node that train: ``tests/lab/test_slurm_nsys.py``.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from pathlib import Path

import psutil
import pytest

from cockpit.base import record
from tests import needs
from tests.profile.ready import keepers
from tests.profile.training import Training, training
from tests.waiting import PATIENCE_S, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.launch,
    pytest.mark.nsys,
    pytest.mark.timeout(900),
]

PID = "SELECT DISTINCT (globalTid / 0x1000000) % 0x1000000 FROM OSRT_API"
"""Processes of which a report has system calls, as nsys numbers threads."""


@pytest.mark.parametrize(
    ("launcher", "kind", "around"),
    [
        pytest.param("torchrun", "gloo", [], marks=pytest.mark.campaign, id="torchrun"),
        pytest.param("deepspeed", "stub", [], id="deepspeed"),
        pytest.param("torchrun", "gloo", ["--per-rank"], marks=pytest.mark.campaign, id="rank"),
    ],
)
def test_steps_and_seconds_of_ranks_that_step_on(
    launcher: str, kind: str, around: list[str], tmp_path: Path
) -> None:
    needs.require("nsys")
    needs.require_module("torch")
    needs.require_module(launcher if launcher == "deepspeed" else "torch")
    more = ["--profile", "nsys-ready", "--trace", "osrt", *around]
    with training(tmp_path, kind=kind, step_s=0.2, launcher=launcher, more=more) as ranks:
        done = ranks.profile("--kind", "nsys", "--steps", "5")
        assert done.code == 0, done.both
        one = ranks.collection(1)
        assert one.missing == {}
        for rank in (0, 1):
            assert "are in it, with" in one.results[rank].why
            assert "only" not in one.results[rank].why
            ranks.steps_on(rank)
        done = ranks.profile("--kind", "nsys", "--seconds", "2", "--ranks", "1")
        assert done.code == 0, done.both
        ranks.steps_on(0)
        ranks.steps_on(1)
        until(lambda: keepers(ranks.verbs.work) == [], "nothing of it is left")
        for rank in (0, 1):
            reports = ranks.reports(rank)
            assert len(reports) == 1 + rank
            for report in reports:
                traced = _traced(report, tmp_path / "report.sqlite")
                assert {ranks.pid(0), ranks.pid(1)} & traced == {ranks.pid(rank)}
        assert _ends(ranks) == 0


def test_an_nsys_that_hangs_and_is_killed_costs_its_own_recording_alone(tmp_path: Path) -> None:
    needs.require("nsys")
    more = ["--profile", "nsys-ready", "--trace", "osrt", "--per-rank"]
    with training(tmp_path, kind="stub", step_s=0.2, more=more) as ranks:
        profile = ranks.verbs.start("profile", "r", "--kind", "nsys", "--steps", "40")
        until(lambda: all(_records(ranks, rank) for rank in (0, 1)), "both are recorded")
        [agent] = _agents(ranks, 1)
        agent.suspend()
        for rank in (0, 1):
            ranks.steps_on(rank)
        agent.kill()
        done = ranks.verbs.end(profile, timeout=300)
        assert done.code == 3, done.both
        one = ranks.collection(1)
        assert "nsys" in one.missing[1]
        assert [path.suffix for path in ranks.reports(0)] == [".nsys-rep"]
        for rank in (0, 1):
            ranks.steps_on(rank)
        until(lambda: keepers(ranks.verbs.work) == [], "nothing of it is left")
        assert _ends(ranks) == 0


def _session(ranks: Training, rank: int) -> str:
    """The name of a rank's session."""
    return (ranks.node(rank) / record.rank_session(rank)).read_text().strip()


def _records(ranks: Training, rank: int) -> bool:
    """Whether nsys records a rank."""
    command = ["nsys", "sessions", "list"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ranks.verbs.work)
    name = _session(ranks, rank)
    return any("Collection" in line and name in line for line in listed.stdout.splitlines())


def _agents(ranks: Training, rank: int) -> list[psutil.Process]:
    """The process of nsys that records a rank."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if {"--start-agent", f"--session-name={_session(ranks, rank)}"} <= set(process.cmdline()):
                found.append(process)
    return found


def _traced(report: Path, target: Path) -> set[int]:
    """Processes that a report has traced."""
    command = ["nsys", "export", "--type", "sqlite", "-f", "true", "-o", str(target), str(report)]
    subprocess.run(command, check=True, capture_output=True, cwd=target.parent)
    with sqlite3.connect(target) as opened:
        return {int(row[0]) for row in opened.execute(PID)}


def _ends(ranks: Training) -> int:
    """Let it end; the exit code of who has watched it."""
    (ranks.verbs.work / "end").touch()
    return ranks.verbs.end(ranks.watching, timeout=PATIENCE_S).code
