"""NCCL's dumps of a run's ranks: in the run's folder, or where a person has them go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cockpit.base import record
from cockpit.base.answers import ReportsAnswer
from cockpit.base.gate import read
from cockpit.node.calls import Call
from cockpit.node.run import collect
from cockpit.node.run.dumps import dumps


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose ranks 0, 1 and 12 have started."""
    run = tmp_path / "run"
    (run / record.PROBE).mkdir(parents=True)
    for rank in (0, 1, 12):
        (run / record.rank_start(rank)).write_text("{}")
        os.utime(run / record.rank_start(rank), (1000.0, 1000.0))
    return run


def told(folder: Path) -> list[tuple[int, str]]:
    """Rank and path of each."""
    return [(one["rank"], os.path.join(one["dir"], one["file"])) for one in dumps(str(folder))]


def test_dumps_in_the_folder_of_the_probe(folder: Path) -> None:
    assert dumps(str(folder)) == []
    assert dumps(str(folder / "none")) == []
    for name in ("nccl_trace_rank_12", "nccl_trace_rank_1", "nccl_trace_rank_7", "nccl_trace_rank_x"):
        (folder / record.PROBE / name).write_bytes(b"dump")
    (folder / record.PROBE / record.nccl_dump(0)).symlink_to("/etc/passwd")
    assert told(folder) == [(rank, str(folder / "probe" / record.nccl_dump(rank))) for rank in (1, 12)]
    # Reports and dumps are listed together.
    call = Call({"id": 1, "do": "reports", "dir": str(folder)}, b"", lambda head, data: None)
    answer = read(ReportsAnswer, collect.reports(call))
    assert [(one.rank, one.file, one.size) for one in answer.dumps] == [
        (1, "nccl_trace_rank_1", 4),
        (12, "nccl_trace_rank_12", 4),
    ]


@pytest.mark.parametrize("name", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_dumps_where_a_person_has_them_go(folder: Path, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine.0"
    mine.write_bytes(b"dump")
    environ = folder / record.rank_environ(0)
    environ.write_text(json.dumps({"environ": {name: f"{tmp_path}/mine."}}))
    assert told(folder) == [(0, str(mine))]
    # One that was there before the rank is another run's.
    os.utime(mine, (999.0, 999.0))
    assert told(folder) == []
    (folder / record.PROBE / record.nccl_dump(0)).write_bytes(b"dump")
    assert told(folder) == [(0, str(folder / "probe/nccl_trace_rank_0"))]


@pytest.mark.parametrize("value", ["mine.", "", 7, "/", "\0", "/a\0b", "/etc/../../../x", None, ["/x"]])
def test_places_that_are_none(folder: Path, value: object) -> None:
    environ = folder / record.rank_environ(0)
    environ.write_text(json.dumps({"environ": {"TORCH_FR_DUMP_TEMP_FILE": value}}))
    assert dumps(str(folder)) == []
    environ.write_text("[")
    assert dumps(str(folder)) == []
