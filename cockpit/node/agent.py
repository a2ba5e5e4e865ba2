"""The agent: serves one cockpit over stdin and stdout, keeps no state and may die at any time.

Requests are frames ``{"id": n, "do": verb, …}``. Answers carry the same id: any number of ``item`` frames,
then one ``ok`` or ``error``. ``{"do": "credit" | "cancel", "to": n}`` have no answer. The first frame,
id 0, is the agent's hello.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from importlib import import_module
from typing import Any, Callable, Dict

from cockpit import __version__
from cockpit.base import openfiles
from cockpit.base.frames import NUMBER, Decoder, FrameError, Header, encode_head
from cockpit.base.gate import SIZE, Malformed
from cockpit.base.record import FORMAT
from cockpit.node import calls, private_folder, procfs, usermask
from cockpit.node.calls import Call, NodeError

SILENCE_S = 90.0
"""After this long without a byte from the cockpit, the link is dead, although nobody told us."""

_IMPORTING = threading.Lock()


def ping(call: Call) -> Dict[str, Any]:
    """The node's clock: ``t``, unix seconds."""
    return {"t": time.time()}


def _function(verb: object) -> Callable[[Call], Dict[str, Any]]:
    """What does this verb; imported on demand: an agent's start is paid for on every node at once.

    :raises NodeError: there is no such verb
    """
    if verb == "ping":
        return ping  # an import may take seconds on a busy node, which must not seem dead meanwhile
    # One at a time: of two threads that import one module, Python 3.8 now and then gives one a part of it.
    with _IMPORTING:
        from cockpit.base.verbs import VERBS

        asks = VERBS.get(str(verb))
        if asks is None:
            raise NodeError("protocol", "unknown request %r" % (verb,))
        loaded = import_module("cockpit.node." + asks.at)
    found: Callable[[Call], Dict[str, Any]] = getattr(loaded, str(verb))
    return found


def hello() -> Dict[str, Any]:
    """What a cockpit wants to know about a node before anything else."""
    system = os.uname()
    return {
        "version": __version__,
        "format": FORMAT,
        "pid": os.getpid(),
        "uid": os.geteuid(),
        "host": system.nodename,
        "machine": system.machine,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "boot_id": procfs.boot_id(),
        "t": time.time(),
        "base": private_folder.base(),
        "booted": procfs.booted(),
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
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        while True:
            data = os.read(self._source, 1 << 16) if poll.poll(SILENCE_S * 1000) else b""
            if not data:
                return
            for header, payload in decoder.feed(data):
                self._take(header, payload)

    def _take(self, header: Header, payload: bytes) -> None:
        verb = header.get("do")
        try:
            if verb in ("credit", "cancel"):
                call = self._calls.get(NUMBER.read(header.get("to")))
                if call and verb == "credit":
                    call.add_credit(SIZE.read(header.get("bytes")))
                elif call:
                    call.cancel()
                return
            number = NUMBER.read(header.get("id"))
            credit = SIZE.read(header.get("credit", 0))
        except Malformed as error:
            raise FrameError("not a request: %s" % error) from None
        call = self._calls[number] = Call(header, payload, self._send)
        call.add_credit(credit)
        threading.Thread(target=self._serve, args=(call,), daemon=True).start()

    def _serve(self, call: Call) -> None:
        number = call.header["id"]
        try:
            answer: Header = {"id": number, "ok": _function(call.header.get("do"))(call)}
        except NodeError as error:
            answer = {"id": number, "error": {"kind": error.kind, "what": error.what, "hint": error.hint}}
        except OSError as error:
            answer = {"id": number, "error": {"kind": "os", "what": str(error)}}
        except Exception:
            # A bug of ours must reach the person who can report it, and must not end every other request.
            import traceback

            answer = {"id": number, "error": {"kind": "bug", "what": traceback.format_exc()}}
        self._calls.pop(number, None)
        try:
            self._send(answer, b"")
        except FrameError as error:  # too large: to be left without an answer would be worse
            self._send({"id": number, "error": {"kind": "bug", "what": str(error)}}, b"")

    def _send(self, header: Header, payload: bytes) -> None:
        head = encode_head(header, len(payload))
        with self._lock:
            try:
                rest = [memoryview(head), memoryview(payload)]
                while rest:
                    sent = os.writev(self._sink, rest)
                    while rest and sent >= len(rest[0]):
                        sent -= len(rest.pop(0))
                    if rest:
                        rest[0] = rest[0][sent:]
            except OSError:
                _end()  # nobody is listening any more


def main() -> None:
    """Serve on this process's stdin and stdout; stray prints go to stderr."""
    sink = os.dup(1)
    os.dup2(2, 1)
    usermask.be_private()
    openfiles.raise_limit()
    if "SLURM_STEP_ID" in os.environ:
        # A job ends us together with its run, and how that ended is to be known: we go when our stdin ends,
        # or by SLURM's SIGKILL. What `--signal` sends to all of a job is meant for the ranks.
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda *_: None)
    try:
        Agent(0, sink).run()
    except FrameError as error:
        sys.stderr.write("cockpit agent: %s\n" % error)
        sys.stderr.flush()
    _end()


def _end() -> None:
    """Requests still being served no longer help anybody, and their threads cannot be joined."""
    for undo in tuple(calls.at_end):
        with contextlib.suppress(Exception):
            undo()
    os._exit(0)
