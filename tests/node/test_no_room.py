"""A run folder that takes nothing: the run is stopped all the same; its end is told, and written later."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.run import helpers, jsonlines, status, supervisor
from cockpit.node.run import launch as launching
from cockpit.node.run.follow import _Reader
from cockpit.node.run.jsonlines import JsonLines
from cockpit.node.run.ranks import Ranks
from tests.node import runs
from tests.node.conftest import Launch
from tests.waiting import until

RANK = """trap 'exit 0' TERM
until [ -e {go} ]; do echo .; sleep 0.05; done
exit $((RANK * 7))
"""


class Full:
    """A run whose supervisor and wrappers can write nothing, as on a full disk, to the byte."""

    def __init__(self, run: runs.Run) -> None:
        self.run = run
        starts = [run.event("rank_started", rank=rank) for rank in (0, 1)]
        for rank in (0, 1):
            run.says(rank, ".")  # so it has set its trap
        self.ranks = [int(start["pid"]) for start in starts]
        self._pids = [int(run.started["pid"]), *(int(start["wrapper"]) for start in starts)]
        for name in map(record.rank_environ, (0, 1)):
            until((run.folder / name).exists, name)

    def fill(self) -> None:
        """There is no room from now on, nor can a file be made."""
        for pid in self._pids:
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))

    def free(self) -> None:
        """There is room again."""
        for pid in self._pids:
            if runs.alive(pid):
                hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def told(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind that the node tells."""
        call = Call({"id": 1, "dir": str(self.run.folder)}, b"", lambda *_: None)
        return [event for event in status.status(call)["events"] if event["e"] == kind]

    def stop(self, **asked: Any) -> dict[str, Any]:
        """Ask to stop as a cockpit does."""
        facts = {"dir": str(self.run.folder), "run": self.run.run, "node": self.run.node}
        wish = {"reason": "test", "by": "me", **facts, **asked}
        return launching.stop(Call({"id": 1, **wish}, b"", lambda *_: None))


@pytest.fixture
def full(launch: Launch, tmp_path: Path) -> Iterator[Full]:
    """Two ranks; once the file ``go`` is there they exit with 0 and 7."""
    program = runs.program(tmp_path / "rank", RANK.format(go=tmp_path / "go"))
    full = Full(launch(runs.command(2, program)))
    full.fill()
    yield full
    full.free()


@pytest.mark.parametrize(("hard", "sent", "end"), [(False, "TERM", 0), (True, "KILL", None)])
def test_it_is_stopped(full: Full, hard: bool, sent: str, end: int | None) -> None:
    files = set(os.listdir(full.run.folder))
    assert full.stop(hard=hard) == {"alive": True, "survivors": [], "sent": sent}
    until(lambda: full.told("ended"), "the end")
    assert not any(map(runs.alive, full.ranks))
    assert [event["code"] for event in full.told("rank_exited")] == [end, end]
    assert full.told("stop_requested")[0]["reason"] == "test"
    assert not full.told("rank_lost")
    assert set(os.listdir(full.run.folder)) <= files
    # It has nothing to say to its ranks any more.
    assert full.stop() == {"alive": True, "survivors": [], "sent": ""}


def test_ends_are_told_and_written_once_there_is_room(full: Full, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    until(lambda: full.told("ended"), "the end")
    assert sorted(event["code"] for event in full.told("rank_exited")) == [0, 7]
    assert {event["by"] for event in full.told("rank_exited")} == {"wrapper"}
    assert full.told("launcher_exited")
    assert any("what ranks print may be lost" in event["text"] for event in full.told("note"))
    assert not full.run.events("rank_exited")
    file = full.run.folder / record.EVENTS
    before = file.stat().st_size
    # Whoever follows gets it as a part of the file.
    reader = _Reader(str(full.run.folder), [0, 1], {record.EVENTS: before})
    reader.record.alive = True
    parts, data = reader.batch(1 << 20)
    assert parts[0][:2] == (record.EVENTS, before)
    data = data[: parts[0][2]]
    full.free()
    until(lambda: not runs.alive(full.run.started["pid"]), "the end of the supervisor")
    assert file.read_bytes()[before:] == data
    assert len(full.run.events("ended")) == 1
    assert len(full.run.events("rank_exited")) == 2
    # Of one that was never written, the follower has more than is there.
    after = before + len(data) + 100
    reader = _Reader(str(full.run.folder), [0, 1], {record.EVENTS: after})
    assert record.EVENTS not in [name for name, _, _ in reader.batch(1 << 20)[0]]


def test_a_signal_ends_the_wait_for_room(full: Full, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    until(lambda: full.told("ended"), "the end")
    assert procfs.send(full.run.started["pid"], full.run.started["ticks"], signal.SIGTERM)
    until(lambda: not runs.alive(full.run.started["pid"]), "the end of the supervisor")


@pytest.mark.slow
def test_that_there_is_room_again_is_said(full: Full) -> None:
    until(lambda: full.told("note"), "that there is no room")
    full.free()
    until(
        lambda: any("can be written again" in event["text"] for event in full.run.events("note")),
        "that there is",
    )


def test_a_supervisor_without_a_socket_is_told_by_a_file(full: Full) -> None:
    os.unlink(full.run.folder / helpers.SOCKET)
    assert full.stop()["sent"] == "TERM"
    assert json.loads((full.run.folder / record.STOP).read_text())["reason"] == "test"
    until(lambda: not any(map(runs.alive, full.ranks)), "the end of the ranks")


@pytest.mark.parametrize("hard", [False, True])
def test_one_that_can_be_told_in_no_other_way_gets_a_signal(
    full: Full, monkeypatch: pytest.MonkeyPatch, hard: bool
) -> None:
    os.unlink(full.run.folder / helpers.SOCKET)

    def refuse(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(launching, "write_new", refuse)
    assert full.stop(hard=hard) == {"alive": True, "survivors": [], "sent": "KILL" if hard else "TERM"}
    until(lambda: not any(map(runs.alive, full.ranks)), "the end of the ranks")


def test_odd_requests_harm_nothing(full: Full) -> None:
    folder = str(full.run.folder)
    start = '{"rank": 5, "attempt": 0}'
    asked: list[tuple[Any, ...]] = [
        (helpers.STOP,),
        (helpers.STOP, 7),
        (helpers.STOP, {}, {}),
        (helpers.UNWRITTEN, "x"),
        (helpers.UNWRITTEN, -1, 2),
        (helpers.RECORD, "rank-0.exit.json"),
        (helpers.RECORD, "rank-0.exit.json", "{}"),
        (helpers.RECORD, "rank-0.exit.json", "[" * 5000),
        (helpers.RECORD, "rank-5.start.json", start),
        (helpers.RECORD, "../rank-0.exit.json", "{}"),
        (helpers.RECORD, ["rank-0.exit.json"], 7),
        (helpers.NOTE, {}),
        ("nonsense", 1),
    ]
    for words in asked:
        assert helpers.ask(folder, *words) == b"", words
    for _ in range(100):
        helpers.ask(folder, helpers.NOTE, "long " * 1000)
    notes = full.told("note")
    assert len(notes) < 30
    assert max(len(event["text"]) for event in notes) <= supervisor.SAID
    assert not full.told("rank_exited")
    assert not full.told("stop_requested")
    assert all(map(runs.alive, full.ranks))


def test_memory_is_bounded_and_ends_have_room(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = JsonLines(str(tmp_path / "events.jsonl"))
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        for _ in range(3000):
            file.add({"e": "note", "text": "x" * 1000})
        file.add({"e": "ended"})
        assert file.dropped > 1000
        assert len(file.unwritten(0)[1]) < jsonlines.KEPT + 5000
        assert file.trouble
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert file.flush()
    assert not file.trouble
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert json.loads(lines[-1]) == {"e": "ended"}
    assert {len(line) for line in lines[:-1]} == {len(lines[0])}


def test_a_rank_starts_where_its_log_cannot_be_written(launch: Launch, tmp_path: Path) -> None:
    """One that is started again on a disk that has become read-only."""
    done = tmp_path / "done"
    rank = runs.program(tmp_path / "rank", f"echo lost; echo $RANK >{done}; exit 5\n")
    # Opening a directory for writing is refused as well, but that is no lack of room.
    sick = f"""
    {sys.executable} -c 'import os, sys
sys.path.insert(0, sys.argv[1])
import errno
from cockpit.node.run import wrapper
opened = os.open
def sick(path, flags, *rest):
    if str(path).startswith(os.environ["COCKPIT_DIR"]) and flags & (os.O_WRONLY | os.O_RDWR):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    return opened(path, flags, *rest)
os.open = sick
sys.exit(wrapper.main(["1", sys.argv[2]]))' {Path(__file__).parents[2]} {rank}
    """
    run = launch("export RANK=0 WORLD_SIZE=1\n" + sick, ranks=[0])
    run.ended()
    assert done.read_text() == "0\n"
    assert run.event("rank_started", rank=0)["attempt"] == 0
    assert (run.event("rank_exited", rank=0)["code"], run.event("launcher_exited")["code"]) == (5, 5)
    assert run.event("note")["text"] == "rank 0, attempt 1: its output is lost: Read-only file system"


def test_ends_of_orphans_are_not_kept_for_ever(tmp_path: Path) -> None:
    told: list[str] = []
    ranks = Ranks(str(tmp_path), [0], lambda kind, **_: told.append(kind), lambda: "")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    identity = {"pid": 4_000_000, "ticks": 7, "wrapper": 4_000_001, "wrapper_ticks": 7, "parent": 1}
    more = {"t": time.time(), "rank": 0, "attempt": 0, "local_rank": 0, "world_size": 1, "max_restarts": 0}
    ranks.told("rank-0.start.json", json.dumps({**identity, **more, "parent_ticks": 1}))
    ranks.reaped((4_000_000, 7), 0, usage)
    for pid in range(5000):
        ranks.reaped((pid, pid), 0, usage)
    assert len(ranks._reaped) <= 1024
    ranks.settle()
    assert told == ["rank_started", "rank_exited"]


def test_attempts_that_are_over_are_not_kept_for_ever(tmp_path: Path) -> None:
    ranks = Ranks(str(tmp_path), [0], lambda *_, **__: None, lambda: "")
    end = {"t": 1.0, "rank": 0, "code": 1, "signal": None, "maxrss_kb": 1, "utime_s": 0.0, "stime_s": 0.0}
    for attempt in range(100):
        identity = {"pid": 4_000_000 + attempt, "ticks": 7, "wrapper": 4_100_000, "wrapper_ticks": 7}
        more = {"t": 1.0, "rank": 0, "local_rank": 0, "world_size": 1, "max_restarts": 0, "parent": 1}
        start = {**identity, **more, "attempt": attempt, "parent_ticks": 1}
        ranks.told("rank-0.start.json", json.dumps(start))
        ranks.told("rank-0.exit.json", json.dumps({**end, "attempt": attempt, "pid": 4_000_000 + attempt}))
    assert ranks.attempts == 100
    assert len(ranks._all) == 1


def test_records_of_attempts_long_over_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    ranks = Ranks(str(tmp_path), [0], lambda kind, **_: told.append(kind), lambda: "")
    end = {"t": 1.0, "rank": 0, "code": 1, "signal": None, "maxrss_kb": 1, "utime_s": 0.0, "stime_s": 0.0}
    more = {"t": 1.0, "rank": 0, "local_rank": 0, "world_size": 1, "max_restarts": 0, "parent": 1, "ticks": 7}
    for attempt in range(100):
        one = {"attempt": attempt, "pid": 4_000_000 + attempt}
        start = {**more, **one, "wrapper": 4_100_000, "wrapper_ticks": 7, "parent_ticks": 1}
        (tmp_path / f"rank-0.start.{attempt}.json").write_text(json.dumps(start))
        (tmp_path / f"rank-0.exit.{attempt}.json").write_text(json.dumps({**end, **one}))
    ranks.look(os.listdir(tmp_path))
    assert told.count("rank_started") == told.count("rank_exited") == 100
    looked: list[str] = []

    lstat = os.lstat

    def noted(path: str) -> os.stat_result:
        looked.append(path)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", noted)
    ranks.look(os.listdir(tmp_path))
    assert 0 < len(looked) <= 4
