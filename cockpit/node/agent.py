"""The agent: serves one cockpit over stdin and stdout, keeps no state and may die at any time.

Requests are frames ``{"id": n, "do": verb, …}``. Answers carry the same id: any number of ``item`` frames,
then one ``ok`` or ``error``. ``{"do": "credit" | "cancel", "to": n}`` have no answer. The first frame,
id 0, is the agent's hello.
"""

from __future__ import annotations

import os
import platform
import select
import socket
import sys
import tempfile
import threading
import time
import traceback
from typing import Any, Callable, Dict

from cockpit import __version__
from cockpit.base.frames import Decoder, FrameError, Header, encode
from cockpit.base.record import FORMAT
from cockpit.node import facts, files, follow, launch, recorded, samples
from cockpit.node.calls import Call, NodeError
from cockpit.node.procfs import boot_id

SILENCE_S = 90.0
"""Without a byte from the cockpit for so long the link is dead, although nobody told us."""


def _ping(call: Call) -> Dict[str, Any]:
    return {"t": time.time()}


VERBS: Dict[str, Callable[[Call], Dict[str, Any]]] = {
    "ping": _ping,
    "facts": facts.facts,
    "port": facts.port,
    "resolve": facts.resolve,
    "launch": launch.launch,
    "stop": launch.stop,
    "discard": launch.discard,
    "status": recorded.status,
    "runs": recorded.runs,
    "follow": follow.follow,
    "samples": samples.samples,
    "reports": files.reports,
    "digest": files.digest,
    "read": files.read,
}
"""Everything an agent can be asked to do."""


def hello() -> Dict[str, Any]:
    """What a cockpit wants to know of a node before anything else."""
    return {
        "version": __version__,
        "format": FORMAT,
        "pid": os.getpid(),
        "uid": os.geteuid(),
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "boot_id": boot_id(),
        "t": time.time(),
        "base": os.path.join(tempfile.gettempdir(), "cockpit-%d" % os.geteuid()),
        "home": os.path.expanduser("~"),
        "address": os.environ.get("SSH_CONNECTION", "").split(" ")[2:3],
        "cores": len(os.sched_getaffinity(0)),
    }


class Agent:
    """Reads requests from ``source`` and answers on ``sink``, both file descriptors."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._calls: Dict[int, Call] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Serve until stdin ends, the cockpit falls silent or what it says is not a frame."""
        self._send({"id": 0, "hello": hello()}, b"")
        decoder = Decoder()
        while True:
            ready, _, _ = select.select([self._source], [], [], SILENCE_S)
            data = os.read(self._source, 1 << 16) if ready else b""
            if not data:
                return
            for header, payload in decoder.feed(data):
                self._take(header, payload)

    def _take(self, header: Header, payload: bytes) -> None:
        verb = header.get("do")
        if verb in ("credit", "cancel"):
            call = self._calls.get(header.get("to", 0))
            if call and verb == "credit":
                call.add_credit(int(header["bytes"]))
            elif call:
                call.cancel()
            return
        if not isinstance(header.get("id"), int):
            raise FrameError("request without an id")
        call = self._calls[header["id"]] = Call(header, payload, self._send)
        threading.Thread(target=self._serve, args=(call,), daemon=True).start()

    def _serve(self, call: Call) -> None:
        number = call.header["id"]
        try:
            verb = VERBS.get(str(call.header.get("do")))
            if verb is None:
                raise NodeError("protocol", "unknown request %r" % call.header.get("do"))
            answer: Header = {"id": number, "ok": verb(call)}
        except NodeError as error:
            answer = {"id": number, "error": {"kind": error.kind, "what": error.what, "hint": error.hint}}
        except OSError as error:
            answer = {"id": number, "error": {"kind": "os", "what": str(error), "hint": ""}}
        except Exception:
            # A fault of ours must reach the person who can report it, not end every other request.
            answer = {"id": number, "error": {"kind": "bug", "what": traceback.format_exc(), "hint": ""}}
        self._calls.pop(number, None)
        self._send(answer, b"")

    def _send(self, header: Header, payload: bytes) -> None:
        data = memoryview(encode(header, payload))
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._sink, data) :]
            except OSError:
                os._exit(0)  # nobody is listening any more, and threads cannot be joined


def main() -> None:
    """Serve on this process's stdin and stdout; stray prints go to stderr."""
    sink = os.dup(1)
    os.dup2(2, 1)
    try:
        Agent(0, sink).run()
    except FrameError as error:
        sys.stderr.write("cockpit agent: %s\n" % error)
        sys.stderr.flush()
    os._exit(0)  # requests still being served are of no use to anybody now
