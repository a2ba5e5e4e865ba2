"""Asking the recorders of ranks: servers of every kind, of which each costs only its own rank's answer."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.base.answers import RecorderItem
from cockpit.base.gate import read
from cockpit.base.recorder.trace import Trace
from cockpit.base.recorder.unpacking import unpack
from cockpit.node import probe, procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.recorder import recorder as module
from tests.recorder.serving import DUMP, HANDLERS, Answer, Server, http, torch


class Node:
    """A run folder whose ranks have servers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.probe = folder / record.PROBE
        self.probe.mkdir(mode=0o700)
        self.requests: list[str] = []
        self._servers: list[Server] = []
        monkeypatch.setattr(module, "TRIED", 2)

    def serve(self, rank: int, answer: Answer = torch, pid: int | None = None) -> None:
        """Give a rank a server."""
        path = str(self.probe / f"{rank}.{pid or os.getpid()}.sock")
        self._servers.append(Server(path, answer, self.requests))

    def forget(self) -> None:
        """Close all files of the servers, as a program may that did not open them."""
        for each in self._servers:
            each.forget()

    def close(self) -> None:
        """End all servers."""
        for each in self._servers:
            each.close()

    def ask(self, *ranks: int, **more: Any) -> dict[int, tuple[RecorderItem, list[Trace]]]:
        """What the node says of these ranks."""
        header = {"id": 1, "do": "recorder", "dir": str(self.folder), "ranks": list(ranks), **more}
        found: dict[int, tuple[RecorderItem, list[Trace]]] = {}

        def take(told: dict[str, Any], data: bytes) -> None:
            item = read(RecorderItem, told["item"])
            traces = []
            for length in item.lengths:
                traces.append(unpack(data[:length], str))
                data = data[length:]
            assert not data
            found[item.rank] = item, traces

        assert module.recorder(Call(header, b"", take)) == {}
        return found

    def why(self, rank: int, **more: Any) -> tuple[str, str]:
        """Why there is no answer of a rank."""
        item, traces = self.ask(rank, **more)[rank]
        assert not traces
        return item.kind, item.what


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A run folder without servers."""
    made = Node(tmp_path, monkeypatch)
    yield made
    made.close()


def test_ranks_answer_each_for_itself(node: Node) -> None:
    node.serve(0)
    node.serve(3)
    found = node.ask(0, 1, 3)
    assert sorted(found) == [0, 1, 3]
    item, (trace,) = found[3]
    assert (item.source, item.kind, item.handlers) == ("server", "", tuple(HANDLERS))
    assert len(trace.entries) == 78
    assert trace.source == "fr_trace_json"
    assert (found[1][0].kind, found[1][0].what) == ("absent", "no probe runs in this rank")
    # Only what the server has is asked for.
    assert node.requests[:2] == ["GET /handler/", "POST /handler/fr_trace_json"]
    assert abs(item.at - time.time()) < 60


def test_what_is_sent_is_cut_down(node: Node) -> None:
    node.serve(0)
    _, (whole,) = node.ask(0)[0]
    _, (few,) = node.ask(0, rows=10)[0]
    assert len(few.entries) == 10
    assert few.from_us > whole.from_us
    _, (none,) = node.ask(0, since_us=whole.entries[-1].at_us + 1)[0]
    assert len(none.entries) == len(whole.lows)


def test_a_rank_has_recorders_of_two_backends(node: Node) -> None:
    both = ["fr_trace_json", "dump_nccl_trace_json"]
    node.serve(0, lambda connection, asked: torch(connection, asked, has=both))
    assert [trace.source for trace in node.ask(0)[0][1]] == both


def test_a_run_without_a_probe(tmp_path: Path, node: Node) -> None:
    node.probe.rmdir()
    assert node.why(0) == ("absent", "no probe runs in this run")
    node.probe.mkdir(mode=0o755)
    kind, what = node.why(0)
    assert kind == "denied"
    assert what.endswith("is not for its owner alone")
    node.probe.rmdir()
    node.probe.symlink_to(tmp_path)
    assert node.why(0)[0] == "denied"


def test_a_socket_that_an_earlier_attempt_left(node: Node) -> None:
    for pid in (1, 2):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(node.probe / f"0.{pid}.sock"))
    assert node.why(0) == ("gone", "its server is gone")
    node.serve(0)
    assert node.ask(0)[0][0].kind == ""


def test_a_program_that_closed_the_socket_of_its_probe_is_not_asked(node: Node) -> None:
    node.serve(0)
    assert node.ask(0)[0][0].kind == ""
    before = list(node.requests)
    node.forget()
    # Its thread waits on it still, as torch's does.
    assert node.why(0) == ("gone", "the program closed the socket of its probe")
    assert node.requests == before


def test_files_of_a_rank_that_cannot_be_seen(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.serve(0)
    listdir = os.listdir

    def denied(path: Any) -> list[str]:
        if str(path).endswith("/fd"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", denied)
    assert node.why(0) == ("denied", "its open files cannot be seen: Permission denied")
    assert node.requests == []


def test_names_that_are_no_sockets_of_ours(node: Node) -> None:
    (node.probe / "0.7.sock").write_text("x")
    (node.probe / "1.7.sock").symlink_to("/dev/log")
    (node.probe / "x.7.sock").mkdir()
    os.mkfifo(node.probe / "2.7.sock")
    assert {node.why(rank)[0] for rank in (0, 1, 2)} == {"absent"}


def _stream(connection: socket.socket, _: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b"x" * 65536)


def _drip(connection: socket.socket, _: str) -> None:
    with contextlib.suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n":
            connection.sendall(bytes([byte]))
            time.sleep(0.05)


def _half(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[")
    connection.close()


HOSTILE: dict[str, tuple[Answer, str, str]] = {
    "silence": (lambda connection, _: None, "silent", "its server gave no answer within"),
    "drip": (_drip, "silent", "its server gave no answer within"),
    "stream": (_stream, "odd", "its answer is not HTTP"),
    "cut": (_half, "odd", "its answer is cut off"),
    "closed": (lambda connection, _: connection.close(), "odd", "its answer is cut off"),
    "huge": (
        lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
        "odd",
        "its answer has 99999999999 bytes",
    ),
    "no length": (
        lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n[]"),
        "odd",
        "its answer is not HTTP with a length",
    ),
    "error": (lambda connection, _: http(connection, b"", "500 \x1b[31m"), "odd", "its server answers"),
    "no list": (lambda connection, _: http(connection, b"{}"), "odd", "its list of handlers is invalid"),
    "deep": (lambda connection, _: http(connection, b"[" * 9000), "odd", "its list of handlers is invalid"),
    "old": (
        lambda connection, asked: torch(connection, asked, has=["ping"]),
        "unknown",
        "its torch does not expose its flight recorder",
    ),
    "lies": (
        lambda connection, asked: (
            http(connection, b"[]", "404 Not Found") if "fr_" in asked else torch(connection, asked)
        ),
        "unknown",
        "its torch does not have this handler",
    ),
    "nonsense": (
        lambda connection, asked: torch(connection, asked, b'{"version":"2.1","entries":[[]]}'),
        "odd",
        "its recorder's answer is invalid: .entries[0]: expected an object, got a list",
    ),
    "newer": (
        lambda connection, asked: torch(connection, asked, b'{"version":"3.1"}'),
        "odd",
        "its recorder's answer is invalid: a dump of version '3.1': only 2.* is known",
    ),
}


def test_a_hostile_rank_costs_its_own_answer_alone(node: Node) -> None:
    for rank, (answer, _, _) in enumerate(HOSTILE.values()):
        node.serve(rank, answer)
    node.serve(99)
    silent = [rank for rank, (_, kind, _) in enumerate(HOSTILE.values()) if kind == "silent"]
    others = [rank for rank in range(len(HOSTILE)) if rank not in silent]
    found = {**node.ask(*silent, timeout_s=0.5), **node.ask(*others, 99, timeout_s=30)}
    for rank, (name, (_, kind, what)) in enumerate(HOSTILE.items()):
        assert (name, found[rank][0].kind) == (name, kind)
        assert found[rank][0].what.startswith(what), name
    assert found[99][0].kind == ""


def test_only_one_recorder_of_a_node_is_asked_at_a_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.serve(0)
    held = os.open(node.probe, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with monkeypatch.context() as nobody_waits:
        nobody_waits.setattr(Call, "pause", lambda call, seconds: False)
        assert node.why(0)[0] == "busy"
    assert "POST /handler/fr_trace_json" not in node.requests
    os.close(held)
    assert node.ask(0)[0][0].kind == ""


def test_recording_that_is_switched_off_is_no_absence(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = b'{"version":"2.10"}'
    node.serve(0, lambda connection, asked: torch(connection, asked, empty))
    assert [trace.entries for trace in node.ask(0)[0][1]] == [()]
    monkeypatch.setattr(procfs, "environment", lambda pid: [b"TORCH_FR_BUFFER_SIZE=0"])
    assert node.why(0)[0] == "off"


def test_what_nccls_watchdog_left_is_read_when_nobody_answers(node: Node) -> None:
    file = node.probe / record.nccl_dump(0)
    file.write_bytes(pickle.dumps(json.loads(DUMP), 2))
    item, (trace,) = node.ask(0)[0]
    assert (item.source, trace.source, len(trace.entries)) == ("file", "file", 78)
    assert item.at == pytest.approx(file.stat().st_mtime)
    file.write_bytes(pickle.dumps(Path("/"), 2))
    assert node.why(0)[0] == "odd"
    # One that answers knows better.
    node.serve(0)
    assert node.ask(0)[0][0].source == "server"


def test_a_dump_of_an_earlier_attempt_is_not_the_present_one(node: Node) -> None:
    file, start = node.probe / record.nccl_dump(0), node.folder / record.rank_start(0)
    file.write_bytes(pickle.dumps(json.loads(DUMP), 2))
    start.write_text("{}")
    os.utime(file, (1000.0, 1000.0))
    os.utime(start, (1001.0, 1001.0))
    assert node.why(0) == ("absent", "no probe runs in this rank")
    os.utime(start, (999.0, 999.0))
    assert node.ask(0)[0][0].source == "file"


def test_somebody_elses_server_is_not_asked(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.serve(0)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert node.why(0)[0] == "denied"
    monkeypatch.undo()
    assert node.ask(0)[0][0].kind == ""


def test_a_path_of_any_length(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.chdir(node.probe)
    node.serve(0)
    node.probe.rename(deep / record.PROBE)
    node.folder = deep
    assert node.ask(0)[0][0].kind == ""


def test_a_request_that_makes_no_sense(node: Node) -> None:
    with pytest.raises(NodeError):
        node.ask(-1)


def test_a_dump_has_the_name_that_the_probe_gives_it() -> None:
    hooks = Path(probe.__file__).with_name("hooks.py").read_text()
    assert f'"{record.nccl_dump(7)[:-1]}"' in hooks
