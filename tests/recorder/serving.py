"""A stand-in for torch's own server in a rank."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable

from tests.recorder import recorded

HANDLERS = ["dump_traceback", "fr_trace_json", "ping"]
DUMP = recorded.dumps("missing")[0]
Answer = Callable[[socket.socket, str], None]


def http(connection: socket.socket, body: bytes, status: str = "200 OK") -> None:
    """Answer as torch's server does, which keeps the connection open."""
    head = f"HTTP/1.1 {status}\r\nKeep-Alive: timeout=1, max=30\r\nContent-Length: {len(body)}\r\n\r\n"
    with contextlib.suppress(OSError):
        connection.sendall(head.encode() + body)


def torch(connection: socket.socket, request: str, dump: bytes = DUMP, has: list[str] = HANDLERS) -> None:
    """What torch's server answers."""
    if request == "GET /handler/":
        http(connection, json.dumps(has).encode())
    elif request.rpartition("/")[2] in has:
        http(connection, dump)
    else:
        http(connection, b"Handler not found", "404 Not Found")


class Server:
    """A rank's server, in a thread: it takes requests until it is closed.

    :param path: its socket
    :param requests: what it is asked is added here
    """

    def __init__(self, path: str, answer: Answer = torch, requests: list[str] | None = None) -> None:
        self._answer = answer
        self._requests = [] if requests is None else requests
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(8)
        self._open = [listening]
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                self._open.append(connection)
                asked = connection.recv(4096).decode().partition(" HTTP/")[0]
                self._requests.append(asked)
                self._answer(connection, asked)

    def forget(self) -> None:
        """Close its files behind its back; the socket that it waits on is there until something connects."""
        for each in self._open:
            if each.fileno() >= 0:
                os.close(each.detach())

    def close(self) -> None:
        """End it."""
        for each in self._open:
            each.close()


def serve_rank() -> Server:
    """The server of this process, a rank of a run: where a probe has it."""
    folder = os.path.join(os.environ["COCKPIT_DIR"], "probe")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    rank = int(os.environ["RANK"])
    before = os.getcwd()
    os.chdir(folder)  # the path of a socket has no room for long ones
    dumps = recorded.dumps("missing")
    answer: Answer = lambda connection, asked: torch(connection, asked, dumps[rank])  # noqa: E731
    server = Server(f"{rank}.{os.getpid()}.sock", answer)
    os.chdir(before)
    return server
