"""Nodes whose processors are busy: what comes late, or changes between two looks, is not taken for a fact."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base import record
from cockpit.node import agent, joining, procfs
from cockpit.node.calls import Call
from cockpit.node.measure import samples
from cockpit.node.measure.progress import Rings
from cockpit.node.run import environ, folder, ranks, status
from cockpit.node.run.helpers import Running
from cockpit.node.stacks import permission, pyspy, pyspy_process
from tests.node import folders, spies

ME = os.getpid()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that has learnt nothing yet."""
    spies.forget(monkeypatch)


@pytest.mark.timeout(60)
def test_a_node_that_imports_says_that_it_lives() -> None:
    with agent._IMPORTING:
        assert agent._function("ping")(Call({"id": 1}, b"", lambda header, data: None))["t"] > 0


@pytest.mark.parametrize("wrapper", [True, False])
def test_a_rank_is_not_lost_while_its_wrapper_may_record_how_it_ended(tmp_path: Path, wrapper: bool) -> None:
    folders.make(tmp_path, [0])
    ticks = folders.ticks(ME) if wrapper else 0
    start = folders.start(0, 7, ticks=8, wrapper=ME, wrapper_ticks=ticks)
    (tmp_path / record.rank_start(0)).write_text(start)
    told = [event["e"] for event in status.unrecorded(str(tmp_path))]
    assert told == ["rank_started", *([] if wrapper else ["rank_lost"])]


def test_an_attempt_whose_record_is_moved_as_it_is_read_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / record.rank_start(0)
    path.write_text(folders.start(0, ME))
    told: list[int] = []
    found = ranks.Ranks(str(tmp_path), [0], lambda kind, **facts: told.append(facts["attempt"]), str)
    read = ranks.recorded

    def restarted(definition: Any, name: str, rank: int) -> Any:
        """What a wrapper does that begins the next attempt."""
        monkeypatch.setattr(ranks, "recorded", read)
        path.rename(tmp_path / "rank-0.start.0.json")
        path.write_text(folders.start(0, ME, attempt=1))
        return read(definition, name, rank)

    monkeypatch.setattr(ranks, "recorded", restarted)
    for _ in range(2):
        found.look(sorted(os.listdir(tmp_path)))
    assert told == [0, 1]


def test_an_end_that_supervisor_and_wrapper_have_seen_is_one(tmp_path: Path) -> None:
    """As of a rank whose parent below nsys was killed: the supervisor inherits it, and the wrapper knows."""
    told: list[str] = []
    found = ranks.Ranks(str(tmp_path), [0], lambda kind, **facts: told.append(facts.get("by", kind)), str)
    (tmp_path / record.rank_start(0)).write_text(folders.start(0, 7, ticks=8, wrapper=ME))
    found.look(os.listdir(tmp_path))
    found.reaped((7, 8), signal.SIGKILL, resource.getrusage(resource.RUSAGE_SELF))
    found.settle()
    end = {"t": 2.0, "rank": 0, "attempt": 0, "pid": 7, "code": None, "signal": int(signal.SIGKILL)}
    usage = {"maxrss_kb": 1, "utime_s": 0.0, "stime_s": 0.0}
    (tmp_path / record.rank_exit(0)).write_text(json.dumps({**end, **usage}))
    found.look(os.listdir(tmp_path))
    assert told == ["rank_started", "supervisor"]
    assert [one.rank for one in found.take_failed()] == [0]


def test_a_run_that_is_over_before_its_start_was_seen_has_started(tmp_path: Path) -> None:
    event = {"e": "supervisor_started", "pid": 1, "ticks": 2, "boot_id": "b"}

    def ended() -> bool:
        (tmp_path / record.EVENTS).write_text(json.dumps(event) + "\n")
        return True

    started = folder._first_event(str(tmp_path), 60, ended)
    assert started == {"pid": 1, "ticks": 2, "boot_id": "b", "dir": str(tmp_path)}


class Waited(threading.Thread):
    """A thread that ends in the second turn of who waits for it; or never."""

    def __init__(self, ends: bool) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._ends = ends

    def join(self, timeout: float | None = None) -> None:
        self.waits.append(timeout or 0.0)

    def is_alive(self) -> bool:
        return not self._ends or len(self.waits) < 2


def test_who_was_stopped_does_not_give_up_a_thread_that_was_too() -> None:
    quick, never = Waited(True), Waited(False)
    assert joining.ended(quick, 5.0)
    assert len(quick.waits) == 2
    assert not joining.ended(never, 5.0)
    assert sum(never.waits) == pytest.approx(5.0)


def spied(ends: Iterator[int | None], timeout_s: float = 60.0) -> tuple[pyspy_process.Result, list[str]]:
    """What a py-spy says that has closed its output, and takes long to end."""
    killed: list[str] = []

    def start(path: str, arguments: list[str], out: int, said: int) -> Running:
        os.write(out, b"[]")
        return Running(lambda seconds: next(ends, None), lambda: killed.append(path))

    return pyspy_process.run(start, "spy", [], timeout_s, lambda: False), killed


def test_a_py_spy_that_has_said_all_is_waited_for() -> None:
    result, killed = spied(iter([None, None, None, 0]))
    assert (result.code, result.out, result.why, killed) == (0, b"[]", "", [])
    result, killed = spied(iter([]), timeout_s=0.0)
    assert (result.code, result.why, killed) == (None, "timeout", ["spy"])


def test_a_sudo_that_did_not_answer_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def call(words: list[str], **how: Any) -> int:
        asked.append(words)
        if len(asked) == 1:
            raise subprocess.TimeoutExpired(words, how["timeout"])
        return 0

    monkeypatch.setattr(subprocess, "call", call)
    assert [permission._sudo_would("sudo", "spy") for _ in range(2)] == [False, False]
    assert len(asked) == 1
    monkeypatch.setattr(permission._Remembered, "sudo_from", time.monotonic())
    assert [permission._sudo_would("sudo", "spy") for _ in range(2)] == [True, True]
    assert len(asked) == 2


def test_a_py_spy_that_did_not_answer_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([None, spies.REAL])
    monkeypatch.setattr(pyspy, "_own", lambda: next(found))
    ask = Call({"id": 1, "do": "spy", "sha256": ""}, b"", lambda head, data: None)
    assert [pyspy.spy(ask) for _ in range(3)] == [{"ready": False}, {"ready": True}, {"ready": True}]


def test_a_rank_that_becomes_its_program_shows_no_environment_yet(tmp_path: Path) -> None:
    folders.make(tmp_path, [0])
    with subprocess.Popen(["/bin/sh", "-c", "read x"], env={}, stdin=subprocess.PIPE) as rank:
        start = folders.start(0, rank.pid, t=time.time())
        (tmp_path / record.rank_start(0)).write_text(start)

        class Waits(Call):
            def pause(self, seconds: float) -> bool:
                """Meanwhile it is recorded."""
                found = {"pid": rank.pid, "ticks": folders.ticks(rank.pid), "environ": {"A": "1"}}
                (tmp_path / record.rank_environ(0)).write_text(json.dumps({**found, "left_out": 0}))
                return True

        ask = Waits({"id": 1, "dir": str(tmp_path), "rank": 0}, b"", lambda head, data: None)
        assert environ.environ(ask)["environ"] == {"A": "1"}
        rank.communicate(b"\n")


def test_what_delays_a_measurement_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, used, delays = [100.0], [0], [0.9, 0.0]
    real = procfs.stat(ME)
    assert real is not None
    monkeypatch.setattr(samples, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    look = Rings.look

    def late(rings: Rings) -> None:
        clock[0] += delays.pop(0)
        look(rings)

    monkeypatch.setattr(Rings, "look", late)

    def stat(pid: int) -> procfs.Stat:
        real.cpu_ticks = used[0]
        return real

    monkeypatch.setattr(procfs, "stat", stat)
    sampler = samples._Sampler(str(tmp_path), {0: (ME, real.ticks)})
    assert sampler.sample()["ranks"]["0"]["cpu_percent"] is None
    clock[0], used[0] = 101.0, os.sysconf("SC_CLK_TCK")
    assert sampler.sample()["ranks"]["0"]["cpu_percent"] == pytest.approx(100)
