"""Reports of a profiler: with nsys where it is installed, and what is done where it did half of the work."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.base.answers import ReportsAnswer
from cockpit.base.gate import read
from cockpit.node.calls import Call
from cockpit.node.run import collect, reports
from tests.needs import require
from tests.node.conftest import Launch
from tests.node.runs import Run, command, program
from tests.waiting import until

WAIT = """trap 'echo got TERM; exit 0' TERM
echo ready
while :; do sleep 0.05; done
"""


def profiled(launch: Launch, script: str, nsys: str, **facts: Any) -> Run:
    return launch(script, profile={"nsys": nsys, "report": "reports/out"}, **facts)


@pytest.fixture
def nsys(tmp_path: Path) -> Path:
    """Where a vendor's nsys would be, with an importer that copies, or says why not."""
    importer = tmp_path / "vendor/host-linux-x64/QdstrmImporter"
    importer.parent.mkdir(parents=True)
    program(importer, 'echo progress\ngrep -q whole "$2" && cp "$2" "$4" || { echo cut off >&2; exit 3; }\n')
    (tmp_path / "vendor/target-linux-x64").mkdir()
    return program(tmp_path / "vendor/target-linux-x64/nsys", "exit 0\n")


def test_finished_report(launch: Launch, nsys: Path) -> None:
    run = profiled(launch, 'echo 12345 > "$COCKPIT_DIR"/reports/out.nsys-rep', str(nsys))
    run.ended()
    report = run.event("report")
    assert (report["name"], report["state"], report["size"]) == ("out.nsys-rep", "ready", 6)


def test_left_over_is_imported(launch: Launch, nsys: Path) -> None:
    run = profiled(launch, 'echo whole > "$COCKPIT_DIR"/reports/out.qdstrm', str(nsys))
    run.ended()
    report = run.event("report", state="imported")
    assert (report["name"], report["size"]) == ("out.nsys-rep", 6)
    assert [path.name for path in (run.folder / record.REPORTS).iterdir()] == ["out.nsys-rep"]


def test_left_over_that_cannot_be_imported_is_kept(launch: Launch, nsys: Path) -> None:
    run = profiled(launch, 'echo half > "$COCKPIT_DIR"/reports/out.qdstrm', str(nsys))
    run.ended()
    report = run.event("report", state="qdstrm")
    assert "status 3: cut off" in report["text"]
    assert f"QdstrmImporter -i {run.folder}/reports/out.qdstrm -o " in report["text"]
    assert [path.name for path in (run.folder / record.REPORTS).iterdir()] == ["out.qdstrm"]


def test_no_report_says_why(launch: Launch, nsys: Path) -> None:
    run = profiled(launch, "exit 4", str(nsys))
    run.ended()
    report = run.event("report")
    assert report["state"] == "missing"
    assert "ended with status 4" in report["text"]


def test_importer_of_the_profiler_in_use_comes_first(nsys: Path) -> None:
    assert reports.importers(str(nsys))[0] == str(nsys.parents[1] / "host-linux-x64/QdstrmImporter")


def test_profiler_gets_time_for_its_report(launch: Launch, tmp_path: Path, nsys: Path) -> None:
    # Ranks that must be killed do not cost the report either.
    path = program(tmp_path / "stubborn", WAIT.replace("exit 0", ":"))
    write = '\necho ending > "$COCKPIT_DIR"/ending\nwhile [ ! -e "$COCKPIT_DIR"/go ]; do sleep 0.05; done\n'
    script = (
        command(1, path).replace("exit $status", write) + 'echo 1 > "$COCKPIT_DIR"/reports/out.nsys-rep\n'
    )
    run = profiled(launch, script, str(nsys), grace_s=0.2)
    run.says(0, "ready")
    run.stop()
    run.event("stage", stage="finalising")
    until((run.folder / "ending").exists, "the profiler is at its report")
    assert not run.events("launcher_exited")
    (run.folder / "go").touch()
    run.ended()
    assert [event["stage"] for event in run.events("stage")][:3] == ["term", "kill", "finalising"]
    assert run.event("rank_exited")["signal"] == signal.SIGKILL
    assert run.event("report", state="ready")


def test_profiler_that_takes_too_long_is_ended(launch: Launch, tmp_path: Path, nsys: Path) -> None:
    script = command(1, program(tmp_path / "wait", WAIT)).replace(
        "exit $status", "while :; do sleep 0.05; done"
    )
    run = profiled(launch, script, str(nsys), finalise_s=0.2)
    run.says(0, "ready")
    run.stop()
    run.ended()
    assert run.event("launcher_exited")["signal"] == signal.SIGKILL
    assert "signal 9" in run.event("report", state="missing")["text"]


@pytest.mark.nsys
def test_of_more_than_an_answer_has_room_for_the_newest_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.node.run.collect.REPORT_FILES", 3)
    folder = tmp_path / "reports"
    folder.mkdir()
    for number, name in enumerate("dacb"):
        (folder / f"{name}.trace.json.gz").write_bytes(b"x" * number)
        os.utime(folder / f"{name}.trace.json.gz", (number, number))
    (folder / "l.trace.json.gz").symlink_to("/etc/hostname")
    os.mkfifo(folder / "f.trace.json.gz")
    (folder / "g.trace.json.gz").mkdir()
    call = Call({"id": 1, "dir": str(tmp_path)}, b"", lambda head, data: None)
    told = read(ReportsAnswer, collect.reports(call))
    assert [(one.name[0], one.size) for one in told.files] == [("a", 1), ("b", 3), ("c", 2)]
    assert told.older == 1


def test_nsys_and_a_polite_stop(launch: Launch, tmp_path: Path) -> None:
    nsys = require("nsys")
    if not reports.importers(nsys):
        require("QdstrmImporter")
    rank = tmp_path / "rank.py"
    rank.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('got TERM'), sys.exit(0)))\n"
        "print('ready', flush=True)\nwhile True:\n    time.sleep(0.05)\n"
    )
    inner = tmp_path / "inner.sh"
    inner.write_text(f'RANK=0 "$COCKPIT_DIR"/rankwrap 3 {sys.executable} -u {rank}\n')
    options = "--trace=osrt --sample=none --cpuctxsw=none"
    script = f'exec {nsys} profile -o "$COCKPIT_DIR"/reports/out {options} sh {inner}'
    run = profiled(launch, script, nsys)
    run.says(0, "ready")
    run.stop()
    run.ended()
    assert run.log(0) == "ready\ngot TERM\n"
    assert run.event("rank_exited")["code"] == 0
    states = {event["state"]: event for event in run.events("report")}
    done = states.get("ready") or states["imported"]
    assert done["name"] == "out.nsys-rep"
    assert done["size"] == (run.folder / "reports/out.nsys-rep").stat().st_size > 1000
    assert (run.folder / "reports/out.nsys-rep").stat().st_mode & 0o777 == 0o600
