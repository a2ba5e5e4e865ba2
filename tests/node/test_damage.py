"""A training program may write into its run folder: whatever it leaves there, the run is told and stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.base.answers import RunsAnswer
from cockpit.base.frames import MAX_HEADER, encode_head
from cockpit.base.gate import read
from cockpit.node.calls import Call, NodeError
from cockpit.node.measure import samples
from cockpit.node.run import collect, environ, status
from cockpit.node.run import launch as launching
from tests.node import folders
from tests.node.conftest import Launch
from tests.node.runs import COMMAND, Run, program
from tests.waiting import until

DAMAGE = {
    "a list": 'put("rank-1.exit.json", "[1, 2]")',
    "fields are missing": 'put("rank-1.exit.json", \'{"rank": 1}\')',
    "fields of other types": 'put("rank-1.start.7.json", START.replace("7", \'"7"\'))',
    "numbers beyond all bounds": 'put("rank-1.start.7.json", START.replace("7", "9" * 300))',
    "nested without end": 'put("rank-1.exit.json", "[" * 15000)',
    "a huge record": 'put("rank-1.exit.json", " " * (1 << 20) + "{}")',
    "names of ours in it": 'put("rank-1.exit.json", \'{"event": 1, "by": 2, "e": "ended", "t": "x"}\')',
    "of another rank": 'put("rank-0.start.7.json", START)',
    "no number of a rank": 'put("rank-abc.start.json", START)',
    "an endless number": 'put("rank-" + "1" * 200 + ".start.json", START)',
    "a rank of another node": 'put("rank-7.start.json", START.replace(\'"rank": 1\', \'"rank": 7\'))',
    "a FIFO": 'os.mkfifo("rank-1.exit.json")',
    "a symbolic link": 'os.symlink("/proc/self/environ", "rank-1.exit.json")',
    "a folder": 'os.mkdir("rank-1.exit.json")',
    "garbage in the run record": 'put("events.jsonl", "\\x00[[[{\\n[1]\\n" + "[" * 100000 + "\\n", "a")',
    "thousands of files": '[put("rank-%d.log" % n, "") for n in range(2, 3000)]',
}

WRITE = """
import os, sys, time
START = '{"rank": 1, "attempt": 7, "t": 7, "pid": 7, "ticks": 7}'
def put(name, text, mode="w"):
    with open(name + ("" if mode == "a" else ".new"), mode) as file:
        file.write(text)
    if mode != "a":
        os.rename(name + ".new", name)
os.chdir(os.environ["COCKPIT_DIR"])
%s
print("written", flush=True)
time.sleep(1000)
"""


@pytest.mark.few(4)
@pytest.mark.parametrize("what", DAMAGE)
def test_the_supervisor_goes_on(launch: Launch, tmp_path: Path, what: str) -> None:
    (tmp_path / "write.py").write_text(WRITE % DAMAGE[what])
    run = launch("set -- 1\n" + COMMAND % f"{sys.executable} {tmp_path / 'write.py'}")
    run.says(0, "written")
    started = until(lambda: events(run, "rank_started"), "the start")[0]
    # It has looked at all that is there once its time index has the size of what was printed last.
    times = run.folder / record.TIMES
    until(lambda: times.exists() and '"rank-0.log": 8' in times.read_text(), "a look")
    run.stop()
    until(lambda: events(run, "ended"), "the end")
    [end] = events(run, "rank_exited")
    assert (end["rank"], end["pid"], end["signal"]) == (0, started["pid"], signal.SIGTERM)
    assert len(events(run, "note")) <= 1
    assert (run.folder / record.SUPERVISOR_LOG).read_text() == ""
    assert "rank-2.log" not in times.read_text()


def events(run: Run, kind: str) -> list[dict[str, Any]]:
    """The events of a kind; lines that a supervisor would not write are passed over."""
    found = []
    for line in (run.folder / record.EVENTS).read_text().split("\n"):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event["e"] == kind:
            found.append(event)
    return found


def test_a_flood_of_damaged_records_fills_no_run_record(launch: Launch, tmp_path: Path) -> None:
    flood = '[put("rank-1.exit.%d.json" % n, "no record") for n in range(500)]'
    (tmp_path / "write.py").write_text(WRITE % flood)
    run = launch("set -- 1\n" + COMMAND % f"{sys.executable} {tmp_path / 'write.py'}")
    run.says(0, "written")
    run.event("note", text="further notes about logs and records of ranks are left out")
    run.stop()
    run.ended()
    assert len(run.events("note")) < 30


@pytest.mark.parametrize("kind", ["FIFO", "list", "endless grace"])
def test_a_wish_to_stop_that_is_odd_stops(launch: Launch, tmp_path: Path, kind: str) -> None:
    run = launch("set -- 1\n" + COMMAND % program(tmp_path / "rank", "echo ready; exec sleep 1000"))
    run.says(0, "ready")
    path = run.folder / record.STOP
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        text = "[1]" if kind == "list" else '{"reason": "x", "by": "y", "grace_s": 1e400}'
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)
    run.ended()
    assert run.event("rank_exited")["signal"] == signal.SIGTERM
    assert run.event("stop_requested")["grace_s"] == 30


@pytest.mark.parametrize("name", ["stop.json", "stop.json.new", "stop.json.tmp"])
def test_the_agents_wish_to_stop_waits_for_nobody(launch: Launch, tmp_path: Path, name: str) -> None:
    path = program(tmp_path / "rank", f'mkfifo "$COCKPIT_DIR"/{name}; echo ready; exec sleep 1000')
    run = launch("set -- 1\n" + COMMAND % path)
    run.says(0, "ready")
    assert launching.stop(call(dir=str(run.folder), reason="test", by="me")[0])["alive"] is True
    run.ended()
    assert run.event("rank_exited")["signal"] == signal.SIGTERM


@pytest.mark.parametrize("kind", ["FIFO", "folder"])
def test_a_log_that_cannot_be_written_is_an_error(launch: Launch, tmp_path: Path, kind: str) -> None:
    make = "mkfifo" if kind == "FIFO" else "mkdir"
    script = f'{make} "$COCKPIT_DIR"/rank-0.log\nset -- 1\n' + COMMAND % "/bin/true"
    run = launch(script)
    run.ended()
    assert run.event("launcher_exited")["code"] == 126
    said = (run.folder / record.LAUNCHER_LOG).read_text()
    assert "cockpit: rankwrap: cannot write the log of rank 0" in said


@pytest.mark.parametrize("kind", ["FIFO", "other text", "path"])
def test_what_stands_in_the_place_of_an_older_record_holds_no_wrapper_up(
    launch: Launch, tmp_path: Path, kind: str
) -> None:
    place = '"$COCKPIT_DIR"/rank-0.start.json'
    make = {
        "FIFO": f"mkfifo {place}",
        "other text": f"echo nothing >{place}",
        "path": f"echo '\"attempt\": ../../../stolen,' >{place}",
    }
    run = launch(f"{make[kind]}\nset -- 1\n" + COMMAND % "/bin/true")
    run.ended()
    assert run.event("rank_exited")["code"] == 0
    assert not list(tmp_path.rglob("stolen*"))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["rank-0.environ.json", "rank-0.environ.json.tmp"])
@pytest.mark.parametrize("make", ["mkfifo", "mkdir", "ln -s /proc/self/mem"])
def test_what_stands_in_the_place_of_an_environment_holds_no_wrapper_up(
    launch: Launch, name: str, make: str
) -> None:
    run = launch(f'{make} "$COCKPIT_DIR"/{name}\nset -- 1\n' + COMMAND % "/bin/true")
    run.ended()
    assert run.event("rank_exited")["code"] == 0


# What the agent reads.


def call(**fields: Any) -> tuple[Call, list[dict[str, Any]]]:
    """A request, and the items that it is answered with."""
    items: list[dict[str, Any]] = []

    def send(header: dict[str, Any], payload: bytes) -> None:
        items.append(header["item"])
        made.cancel()

    made = Call({"id": 1, **fields}, b"", send)
    made.add_credit(1 << 20)
    return made, items


@pytest.mark.parametrize("name", ["rank-abc.start.json", "rank-.start.json", "rank-1.start.json"])
@pytest.mark.parametrize("kind", ["text", "FIFO"])
def test_measurements_go_on(tmp_path: Path, name: str, kind: str) -> None:
    folders.make(tmp_path, [0, 1])
    (tmp_path / "rank-0.start.json").write_text(folders.start(0, os.getpid()))
    if kind == "FIFO":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).write_text('{"pid": "me"}')
    made, items = call(dir=str(tmp_path))
    samples.samples(made)
    assert list(items[0]["ranks"]) == ["0"]


@pytest.mark.parametrize("text", ["[]", "{}", "[" * 100_000, '{"format": 1, "ranks": [[]]}', None])
def test_a_damaged_record_hides_no_other_run(tmp_path: Path, text: str | None) -> None:
    for name in ("good", "bad"):
        folder = tmp_path / name / "node1"
        folder.mkdir(parents=True)
        folders.make(folder, [0])
    bad = tmp_path / "bad/node1" / record.RECORD
    bad.unlink()
    if text is None:
        os.mkfifo(bad)
    else:
        bad.write_text(text)
    found = status.runs(call(base=str(tmp_path))[0])["runs"]
    assert [run["dir"] for run in found] == [str(tmp_path / "good/node1")]
    with pytest.raises(NodeError, match="no run record in"):
        status.status(call(dir=str(tmp_path / "bad/node1"))[0])


def test_as_many_runs_are_listed_as_fit_into_an_answer(tmp_path: Path) -> None:
    """The newest ones, without their events; and how many others there are."""
    for number in range(400):
        folder = tmp_path / ("run-%03d" % number) / "node1"
        folder.mkdir(parents=True)
        folders.make(folder, [0])
        facts = json.loads((folder / record.RECORD).read_text())
        facts.update(profile={str(line): "x" * 200 for line in range(50)}, rings="y" * 10_000)
        (folder / record.RECORD).write_text(json.dumps(facts))
        os.utime(folder / record.RECORD, (number, number))
        (folder / record.EVENTS).write_text('{"t": 1.0, "e": "note", "text": "z"}\n' * 3000)
    answer = status.runs(call(base=str(tmp_path))[0])
    assert len(encode_head({"id": 1, "ok": answer}, 0)) < MAX_HEADER
    found = read(RunsAnswer, json.loads(json.dumps(answer)))
    assert found.runs[0].dir == str(tmp_path / "run-399/node1")
    assert found.more == 400 - len(found.runs) > 0


def test_a_run_folder_without_its_run_record_hides_no_other(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        folder = tmp_path / name / "node1"
        folder.mkdir(parents=True)
        folders.make(folder, [0])
    (tmp_path / "bad/node1" / record.EVENTS).unlink()
    found = status.runs(call(base=str(tmp_path))[0])["runs"]
    assert [run["dir"] for run in found] == [str(tmp_path / "good/node1")]


def test_a_report_that_is_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / record.REPORTS).mkdir()
    os.mkfifo(tmp_path / record.REPORTS / "a.nsys-rep")
    with pytest.raises(OSError, match="not a regular file"):
        collect.digest(call(dir=str(tmp_path), file="a.nsys-rep")[0])


def test_ranks_without_a_start_on_record_are_not_waited_for_for_ever(tmp_path: Path) -> None:
    folders.make(tmp_path, [0, 1])
    for name in tmp_path.glob("rank-*.start*.json"):
        name.unlink()
    end = {"t": 2.0, "rank": 0, "attempt": 0, "pid": 7, "code": 3, "signal": None}
    times = {"maxrss_kb": 1, "utime_s": 0.0, "stime_s": 0.0}
    (tmp_path / record.rank_exit(0)).write_text(json.dumps({**end, **times}))
    (tmp_path / record.EVENTS).write_text("")
    told = {event["rank"]: event for event in status.unrecorded(str(tmp_path))}
    assert (told[0]["e"], told[0]["code"]) == ("rank_exited", 3)
    assert told[1]["e"] == "rank_lost"
    assert "nothing of the run is left here" in told[1]["why"]


def test_an_event_of_a_rank_that_nobody_can_be_hides_no_end(tmp_path: Path) -> None:
    folders.make(tmp_path, [0])
    odd: list[Any] = [["rank_exited"], {}, None, 1.5, True]
    lines = [
        {"t": 2.0, "e": kind, "rank": each, "attempt": each} for kind in (*odd, "rank_exited") for each in odd
    ]
    (tmp_path / record.EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = [event["e"] for event in status.unrecorded(str(tmp_path)) if event["rank"] == 0]
    assert told == ["rank_lost"]


ENVIRONMENTS: dict[str, Any] = {
    "no object": "[]",
    "nothing": "",
    "no JSON": "\x00{",
    "of nobody": {"pid": None},
    "without names": {"environ": ["A=1"]},
    "values that are none": {"environ": {"A": [1]}},
    "a long name": {"environ": {"A" * 5000: ""}},
    "a long value": {"environ": {"A": "x" * 9000}},
    "many variables": {"environ": dict.fromkeys(map(str, range(20_000)), "")},
    "more than a frame": {"environ": dict.fromkeys(map(str, range(300)), "\x7f" * 4096)},
    "what no environment can hold": {"environ": {"A": "\ud800"}},
    "less than none is left out": {"left_out": -1},
    "nested without end": "[" * 100_000,
    "endless": " " * (3 << 20),
}


@pytest.mark.parametrize("what", ENVIRONMENTS)
def test_a_damaged_environment_is_said_to_be_so(ended: Path, what: str) -> None:
    text = ENVIRONMENTS[what]
    if isinstance(text, dict):
        text = json.dumps({"pid": 7, "ticks": 8, "environ": {}, "left_out": 0, **text})
    (ended / record.rank_environ(0)).write_text(text)
    refused(ended)


@pytest.mark.parametrize("kind", ["FIFO", "folder", "symbolic link"])
def test_what_is_no_file_is_no_environment(ended: Path, kind: str) -> None:
    path = ended / record.rank_environ(0)
    if kind == "symbolic link":
        path.symlink_to("/dev/zero")
    else:
        (os.mkfifo if kind == "FIFO" else os.mkdir)(path)
    refused(ended)


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The folder of a run whose rank 0 had pid 7 and is gone."""
    folders.make(tmp_path, [0])
    (tmp_path / record.rank_start(0)).write_text(folders.start(0, 7, ticks=8))
    return tmp_path


def refused(folder: Path) -> None:
    with pytest.raises(NodeError, match="the recorded environment of rank 0 cannot be read: ") as caught:
        environ.environ(call(dir=str(folder), rank=0)[0])
    assert len(caught.value.what) < 400
