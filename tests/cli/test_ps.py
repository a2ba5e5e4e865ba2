"""What ``ps`` prints of runs."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from cockpit.cli.verbs import ps
from cockpit.core.text import columns

PROGRAM = [
    *("train.py", "--data", "/scratch/ada/tokens/2026-11/part-00/train.bin"),
    *("--lr", "3e-4", "--deepspeed", "conf/zero3.json", "--resume", "/scratch/ada/run-7/epoch-12/optim.pt"),
]


def listed(**more: Any) -> None:
    ps._table(
        [
            {
                **{"run": "otter", "state": "ended", "unreachable": [], "ranks": 2, "running": 0},
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


def test_nodes_stand_as_in_the_hostfile(capsys: pytest.CaptureFixture[str]) -> None:
    listed()
    assert "  zeus,apollo  " in capsys.readouterr().out
