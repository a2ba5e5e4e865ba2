"""One cockpit writes in a run's folder, with flock and without."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import signal
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base import users
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.lock import Holder, Writer
from cockpit.engine.records.manifest import Manifest, NodeEntry

FORK = multiprocessing.get_context("fork")

UNKNOWN = [errno.ENOLCK, errno.ENOSYS, errno.ESTALE, errno.EOPNOTSUPP]


def without_flock(number: int = errno.ENOLCK) -> Any:
    """What flock does on a file system that has none."""

    def flock(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


@pytest.mark.parametrize("number", UNKNOWN)
def test_without_flock_one_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(fcntl, "flock", without_flock(number))
    one, two = Writer(tmp_path), Writer(tmp_path)
    assert one.take()
    assert one.take()
    assert not two.take()
    assert f"another cockpit (pid {os.getpid()} on {Holder.here().host}) controls this run" in two.held()
    one.give_up()
    assert two.take()
    two.give_up()
    assert {path.name for path in tmp_path.iterdir()} == {"lock"}


def test_what_is_another_users_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 58_123)
    monkeypatch.setattr(users, "name", lambda uid: "ada")
    one = Writer(tmp_path)
    assert not one.take()
    assert one.held() == "its folder is ada's, and only ada can change it"
    assert not list(tmp_path.iterdir())


def test_what_is_on_a_read_only_file_system_is_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    one = Writer(tmp_path)
    assert not one.take()
    assert one.held() == "its folder is on a read-only file system"
    one.attend()
    assert not list(tmp_path.iterdir())


def test_with_flock_the_other_is_named(tmp_path: Path) -> None:
    one, two = Writer(tmp_path), Writer(tmp_path)
    assert one.take()
    assert not two.take()
    assert two.held() == f"another cockpit (pid {os.getpid()} on {Holder.here().host}) controls this run"
    one.give_up()
    assert (tmp_path / "lock").read_bytes() == b""
    assert two.take()


@pytest.mark.parametrize("first", [True, False])
def test_a_machine_with_flock_and_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    real = fcntl.flock
    one, two = Writer(tmp_path), Writer(tmp_path)
    monkeypatch.setattr(fcntl, "flock", real if first else without_flock())
    assert one.take()
    monkeypatch.setattr(fcntl, "flock", without_flock() if first else real)
    assert not two.take()
    one.give_up()
    assert two.take()


def _take(folder: Path, start: Connection, said: Connection) -> None:
    fcntl.flock = without_flock()
    start.recv()
    said.send(Writer(folder).take())
    signal.pause()


def _takers(folder: Path, count: int) -> tuple[list[bool], list[Any]]:
    """Processes that try at the same time; whether each became the writer."""
    pairs = [(FORK.Pipe(), FORK.Pipe()) for _ in range(count)]
    made = [
        FORK.Process(target=_take, args=(folder, start[0], said[0]), daemon=True) for start, said in pairs
    ]
    for process in made:
        process.start()
    for start, _ in pairs:
        start[1].send(True)
    return [said[1].recv() for _, said in pairs], made


def _kill(processes: list[Any]) -> None:
    for process in processes:
        process.kill()
        process.join()


def test_of_many_that_find_a_dead_one_one_follows(tmp_path: Path) -> None:
    for number in range(1, 4):
        took, processes = _takers(tmp_path, 8)
        assert sum(took) == 1
        _kill(processes)  # the writer leaves its file, as kill -9 does
        assert {path.name for path in tmp_path.glob("lock.*")} == {f"lock.{n + 1}" for n in range(number)}


def test_a_cockpit_elsewhere_holds_until_somebody_removes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", without_flock())
    elsewhere = replace(Holder.here(), host="login2", boot="of another machine", pid=5)
    (tmp_path / "lock.1").write_text(json.dumps(asdict(elsewhere)))
    writer = Writer(tmp_path)
    assert not writer.take()
    where = tmp_path / "lock.1"
    assert writer.held() == f"another cockpit (pid 5 on login2) controls this run; if it is gone: rm {where}"
    where.unlink()
    assert writer.take()


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 200_000, b'{"host": 1}', b'{"pid": 1e400}', b"\xff" * 99])
def test_a_file_that_says_nothing_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(fcntl, "flock", without_flock())
    (tmp_path / "lock.1").write_bytes(data)
    writer = Writer(tmp_path)
    assert not writer.take()
    assert writer.held() == f"another cockpit controls this run; if it is gone: rm {tmp_path / 'lock.1'}"


def test_whoever_attends_is_seen_although_somebody_looked_in_that_moment(tmp_path: Path) -> None:
    attends, looks = Writer(tmp_path), Writer(tmp_path)
    number = os.open(tmp_path / "lock.attending", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(number, fcntl.LOCK_EX)
    attends.attend()
    os.close(number)
    attends.attend()
    assert looks.attended()
    attends.close()
    assert not looks.attended()


def test_a_new_run_has_its_writer_before_anybody_sees_it() -> None:
    made = RunFolder.create(Manifest("run", 0.0, [NodeEntry("a", "/none", [0])], "command", ["true"], "/"))
    assert not RunFolder(made.path).lock()
    made.close()
    assert RunFolder(made.path).lock()
