"""What ``ps`` prints of runs."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from cockpit.base.events import (
    NodeLost,
    NodeSample,
    Planned,
    Progress,
    RankProbe,
    RankSample,
    RankStarted,
    Sample,
    SupervisorStarted,
)
from cockpit.cli import run_details
from cockpit.cli.verbs import ps
from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.text import columns
from cockpit.engine.logs.spool import Spool
from cockpit.engine.records.folder import Manifest, NodeEntry, RunFolder
from cockpit.engine.run.paces import FILE, PaceBook, front_here
from tests.engine.test_session import ENDED, FAILED, lines

PROGRAM = [
    *("train.py", "--data", "/scratch/ada/tokens/2026-11/part-00/train.bin"),
    *("--lr", "3e-4", "--deepspeed", "conf/zero3.json", "--resume", "/scratch/ada/run-7/epoch-12/optim.pt"),
]


def listed(**more: Any) -> None:
    ps._table(
        [
            {
                **{"run": "otter", "state": "ended", "unreachable": [], "ranks": 2, "running": 0},
                **{"standing": "", "step": None, "step_t": None, "step_s": None},
                **{"step_estimated": False},
                **{"started": 1_795_233_881.0, "nodes": ["zeus", "apollo"], "program": PROGRAM},
                **more,
            }
        ]
    )


def test_whole_where_no_person_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    listed()
    assert capsys.readouterr().out.splitlines()[1].endswith("  " + " ".join(PROGRAM))


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_what_is_cut_is_said_to_be(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    listed()
    _, row = capsys.readouterr().out.splitlines()
    assert columns(row) <= width
    assert "…" in row
    assert row.endswith("/optim.pt"), "what the run went on from"
    listed(program=["train.py"])
    assert capsys.readouterr().out.splitlines()[1].endswith("  train.py")


@pytest.mark.parametrize(
    ("age", "step_s", "running", "shown"),
    [
        (20.0, 1.0, 2, "7"),
        (100.0, 1.0, 2, "7 (1 min 40 s ago)"),
        (100.0, 30.0, 2, "7"),
        (100.0, None, 2, "7 (1 min 40 s ago)"),
        (100.0, 1.0, 0, "7"),
    ],
)
def test_a_step_of_a_live_run_says_how_old_it_is(
    age: float,
    step_s: float | None,
    running: int,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    listed(step=7, step_t=1000.0 - age, step_s=step_s, running=running)
    assert f"  {shown}  " in capsys.readouterr().out


def test_a_run_without_a_probe_is_at_the_last_step_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    details(capsys, ENDED, b"step 6214/9000 loss 2.3\nstep 6216/9000 loss 2.2\n")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0,)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    folder = RunFolder.find("otter")
    book = PaceBook(folder, writer=True)
    for number in (6200, 6210):
        book.pace.stepped(0, number, time.time() + number, exact=False)
    book.close()
    assert front_here(folder, run)["step"] == 6216


def test_a_resumed_run_is_where_its_log_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The hook of an optimizer counts from the start of the program; that is said beside its numbers."""
    details(capsys, ENDED, b"step 6214/9000 loss 2.3\nstep 6216/9000 loss 2.2\n")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0,)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    folder, pace = RunFolder.find("otter"), Pace((0,))
    pace.stepped(0, 1216, time.time(), span=1.5)
    for relative, step in ((True, 6216), (False, 1216)):
        pace.relative = relative
        run_details.show(folder, run, "running", pace, [], as_json=True)
        told = json.loads(capsys.readouterr().out)
        assert (told["step"], told["steps_since_start"], told["ranks"][0]["step"]) == (step, relative, 1216)
        run_details.show(folder, run, "running", pace, [], as_json=False)
        text = capsys.readouterr().out
        assert ("the run is at step 6,216" in text) == relative
        book = PaceBook(folder, writer=True)
        book.pace.relative = relative
        for number in range(1200, 1217):
            book.pace.stepped(0, number, time.time() + number)
        (folder.path / FILE).unlink(missing_ok=True)
        book.close()
        assert front_here(folder, run)["step"] == step


def test_nodes_stand_as_in_the_hostfile(capsys: pytest.CaptureFixture[str]) -> None:
    listed()
    assert "  zeus,apollo  " in capsys.readouterr().out


def details(capsys: pytest.CaptureFixture[str], record: bytes, log: bytes) -> dict[str, Any]:
    """``ps RUN --json`` of a run that is over, by what was copied from its only node."""
    node = NodeEntry("gpu1", "/none/gpu1", [0], "local")
    folder = RunFolder.create(Manifest("otter", 1000.0, [node], "command", ["train.py"], "/"))
    spool = Spool(folder.spool_dir(node))
    spool.append("events.jsonl", 0, record)
    spool.append("rank-0.log", 0, log)
    spool.append(
        "sizes.jsonl", 0, lines(*({"t": 1500 + n, "s": {"rank-0.log": n * len(log)}} for n in (0, 1)))
    )
    spool.close()
    folder.write(Event(2000.0, "gpu1", NodeLost("rebooted")))
    folder.close()
    assert ps.main(["otter", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_run_that_failed_has_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    told = details(capsys, FAILED, b"step 3\nRuntimeError: CUDA out of memory\n")
    (found,) = told["findings"]
    assert told["state"] == "failed: rank 0 exited 1"
    assert (found["what"], found["detail"]) == ("rank 0 exited 1", "RuntimeError: CUDA out of memory")
    assert (found["ranks"], found["nodes"]) == ("0", ["gpu1"])
    assert found["steps"][0]["command"] == "cockpit logs otter --rank 0"


def test_without_its_log_the_cause_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = details(capsys, FAILED, b"")["findings"]
    assert (found["what"], found["detail"], found["certainty"]) == ("rank 0 exited 1", "", "unsure")


def test_a_run_that_ended_well_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert details(capsys, ENDED, b"RuntimeError: survived\n")["findings"] == []


def test_what_the_probe_of_a_rank_tells(capsys: pytest.CaptureFixture[str]) -> None:
    details(capsys, ENDED, b"")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0,)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    run.apply(Event(2.0, "gpu1", SupervisorStarted(probe="auto")))
    run.apply(Event(2.0, "gpu1", RankProbe(0, 7, "2.13.0", handlers=("ping",), steps="OSError: no")))
    sample = RankSample(progress=Progress("deepspeed", 1200, 0.25, 1.5))
    run.apply(Event(3.0, "gpu1", Sample(NodeSample(), {0: sample})))
    pace = Pace((0,))
    pace.stepped(0, 1200, time.time(), span=1.5)
    folder = RunFolder.find("otter")
    run_details.show(folder, run, "running", pace, [], as_json=True)
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert [rank[name] for name in ("step", "step_s", "step_source")] == [1200, 1.5, "deepspeed"]
    why = "no steps: OSError: no"
    assert rank["probe"] == {"state": "on", "why": why, "handlers": ["ping"], "torch": "2.13.0"}
    run_details.show(folder, run, "running", pace, [], as_json=False)
    header, row = capsys.readouterr().out.splitlines()[-2:]
    assert header.index("STEP ") == row.index("1,200")
    assert header.index("STEP TIME") == row.index("1.5 s")
