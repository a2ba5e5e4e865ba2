"""Parts of the hooks that a torch of today does not take."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import types
from pathlib import Path

import pytest

from cockpit.node.probe import hooks, server, sitecustomize
from tests.open_files import open_files


def answer(path: Path, said: bytes | None) -> threading.Thread:
    """A server that takes one request and answers; None: it never does."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(1)

    def serve() -> None:
        with listening, listening.accept()[0] as peer:
            assert peer.recv(1000).startswith(b"GET /handler/ HTTP/1.0\r\n")
            if said is None:
                peer.recv(1)  # until it gives up
            else:
                peer.sendall(said)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_server_says_itself_what_it_offers(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    thread = answer(tmp_path / "s", head + b'["ping","fr_trace_json"]')
    assert server.offered(str(tmp_path / "s")) == ["fr_trace_json", "ping"]
    thread.join()


@pytest.mark.parametrize("said", [None, b"", b"HTTP/1.1 404 Not Found\r\n\r\n", b"\r\n\r\n{"])
def test_a_server_that_does_not_is_an_error_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes | None
) -> None:
    monkeypatch.setattr(server, "ASK_S", 0.05 if said is None else 60.0)
    thread = answer(tmp_path / "s", said)
    with pytest.raises((OSError, ValueError)):
        server.offered(str(tmp_path / "s"))
    thread.join()


@pytest.mark.parametrize(
    ("mode", "handlers", "lacks"),
    [
        ("auto", ["ping"], True),
        ("on", ["ping"], False),
        ("auto", ["ping", "fr_trace_json"], False),
        ("auto", ["dump_nccl_trace_json"], False),
    ],
)
def test_what_it_can_do_is_read_from_its_handlers(
    tmp_path: Path, mode: str, handlers: list[str], lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Server:
        def __init__(self, address: str) -> None:
            raise OSError("it is to serve")

    c10d = types.ModuleType("torch._C._distributed_c10d")
    c10d._get_handler_names = lambda: handlers  # type: ignore[attr-defined]
    c10d._WorkerServer = Server  # type: ignore[attr-defined]
    torch = types.ModuleType("torch")
    torch.__version__ = "2.4.0"  # type: ignore[attr-defined]
    torch._C = types.ModuleType("torch._C")  # type: ignore[attr-defined]
    torch._C._distributed_c10d = c10d
    for module in (torch, torch._C, c10d):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    made = hooks.Hooks(str(tmp_path), mode, 0, "", sitecustomize.interrupted)
    made.after(torch)
    told = json.loads((tmp_path / f"0.{os.getpid()}.json").read_text())
    said = "torch 2.4.0 has no handler for its flight recorder"
    assert told["server"] == (said if lacks else "OSError: it is to serve")
    assert told["handlers"] == sorted(handlers)
    assert told["steps"] == "OSError: there is no memory file system at /dev/shm"


def test_only_the_line_of_the_server_is_swallowed(capfd: pytest.CaptureFixture[str]) -> None:
    def start() -> None:
        os.write(2, b"before\n[W1122 WorkerServer.cpp:113] [c10d] Server listening to UNIX /x\nafter")

    server.unheard(start)
    assert capfd.readouterr().err == "before\nafter"


def test_stderr_is_back_when_the_server_does_not_start(capfd: pytest.CaptureFixture[str]) -> None:
    def start() -> None:
        os.write(2, b"why")
        raise OSError("no")

    files = open_files()
    with pytest.raises(OSError, match="no"):
        server.unheard(start)
    os.write(2, b" not")
    assert capfd.readouterr().err == "why not"
    assert not open_files() - files, "those of earlier tests may be closed meanwhile"


@pytest.mark.parametrize("there", [True, False])
def test_that_torch_is_being_imported_is_said_once_and_only_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent / "stub")] if there else [str(tmp_path)])
    armed = hooks.Hooks(str(tmp_path), "auto", 3, "", lambda error: False)
    armed.before_torch()
    told = [json.loads(path.read_text()) for path in tmp_path.glob("3.*.json")]
    assert [one["torch"] for one in told] == [""] * there
    for path in tmp_path.glob("3.*.json"):
        path.unlink()
    armed.before_torch()
    assert not list(tmp_path.glob("3.*.json"))
