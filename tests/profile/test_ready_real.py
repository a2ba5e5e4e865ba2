"""Recording with the real nsys in a run that was launched ready for it: two nodes with a rank each."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.profile.ready import keepers
from tests.profile.training import Training, training
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.launch,
    pytest.mark.nsys,
    pytest.mark.timeout(900),
]

PID = "SELECT DISTINCT (globalTid / 0x1000000) % 0x1000000 FROM OSRT_API"
"""Processes of which a report has system calls, as nsys numbers threads."""


@pytest.mark.parametrize(
    ("launcher", "around"),
    [("torchrun", []), ("deepspeed", []), ("torchrun", ["--per-rank"])],
    ids=["torchrun", "deepspeed", "rank"],
)
def test_steps_and_seconds_of_ranks_that_step_on(launcher: str, around: list[str], tmp_path: Path) -> None:
    needs.require("nsys")
    needs.require_module("torch")
    needs.require_module(launcher if launcher == "deepspeed" else "torch")
    more = ["--profile", "nsys-ready", "--trace", "osrt", *around]
    with training(tmp_path, kind="gloo", step_s=0.2, launcher=launcher, more=more) as ranks:
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
            for number, report in enumerate(reports):
                assert _traced(report, tmp_path / f"{rank}.{number}.sqlite") >= {ranks.pid(rank)}
                assert ranks.pid(1 - rank) not in _traced(report, tmp_path / f"{rank}.{number}.again")
        assert _ends(ranks) == 0


def _traced(report: Path, target: Path) -> set[int]:
    """Processes that a report has traced."""
    command = ["nsys", "export", "--type", "sqlite", "-f", "true", "-o", str(target), str(report)]
    subprocess.run(command, check=True, capture_output=True, cwd=target.parent)
    with sqlite3.connect(target) as opened:
        return {int(row[0]) for row in opened.execute(PID)}


def _ends(ranks: Training) -> int:
    """Let it end; the exit code of who has watched it."""
    (ranks.verbs.work / "end").touch()
    return ranks.verbs.end(ranks.watching, timeout=120).code
