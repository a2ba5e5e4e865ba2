"""Rehearsals: a process with torch beside the agent, and trials, for each of which it forks a rank.

It ends with its request, with the agent, or when its time is over, and all its ranks with it; nothing is
written to disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import pkgutil
import queue
import signal
import socket
import subprocess
import threading
import time
from typing import Any, Dict, Iterator, List, Optional

from cockpit.base import verbs
from cockpit.node import facts
from cockpit.node.calls import Call, NodeError
from cockpit.node.checkup import network
from cockpit.node.stacks import tcp_peers

_LOOK_S = 0.2
_TAIL = 4096
_LONGEST_S = 3600.0
_QUIET = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
_PR_SET_PDEATHSIG = 1
_ENDED = "the torch test has ended: %s"

Reply = Dict[str, Any]


class _Known:
    """The rehearsal of this agent, while there is one."""

    rehearsal: Optional[_Rehearsal] = None
    over: str = ""
    """Why it ended by itself."""


def rehearse(call: Call) -> Dict[str, Any]:
    """Start the ranks' python with torch; one item when it is ready; end it with this request.

    :raises NodeError: it does not start, or ends early; its last words
    """
    asked = call.asked(verbs.Rehearse)
    _Known.over = ""
    with _Rehearsal(asked) as rehearsal:
        end = time.monotonic() + min(asked.limit_s, _LONGEST_S)
        while time.monotonic() < end and call.pause(0):
            with contextlib.suppress(queue.Empty):
                reply = rehearsal.own.get(timeout=_LOOK_S)
                if reply is None:
                    _Known.over = rehearsal.last_words()
                    raise NodeError("torch", _Known.over)
                call.item(reply)
                _Known.rehearsal = rehearsal
    return {}


def trial(call: Call) -> Dict[str, Any]:
    """Be a rank of a process group: an item for each step that it begins, then how far it got, and why.

    :raises NodeError: there is no rehearsal here
    """
    asked = call.asked(verbs.Trial)
    rehearsal = _Known.rehearsal
    if rehearsal is None:
        raise NodeError("torch", _ENDED % _Known.over if _Known.over else "no torch test runs here")
    return _Trial(call, asked, rehearsal).run()


class _Rehearsal:
    """The process, from ``with`` to its end."""

    def __init__(self, asked: verbs.Rehearse) -> None:
        self.own: queue.SimpleQueue[Optional[Reply]] = queue.SimpleQueue()
        """What it says of itself; None: it has ended."""
        self._asked = asked
        self._said = b""
        self._numbers = itertools.count(1)
        self._trials: Dict[int, queue.SimpleQueue[Optional[Reply]]] = {}
        self._ordering = threading.Lock()
        self._over = False

    def __enter__(self) -> _Rehearsal:
        source = (pkgutil.get_data(__package__, "rehearser.py") or b"").decode()
        libc = ctypes.CDLL(None)
        orders, self._orders = os.pipe()
        self._replies, replies = os.pipe()
        words = str(orders), str(replies)
        asked = self._asked
        try:
            self._process = subprocess.Popen(
                facts.prepared(asked.cwd, asked.setup, asked.python, source, *words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **asked.env, **_QUIET},
                pass_fds=(orders, replies),
                start_new_session=True,
                # It ends with the thread of this request, however that ends, even in the midst of a setup.
                preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            )
        except BaseException:
            os.close(self._orders)
            os.close(self._replies)
            raise
        finally:
            os.close(orders)
            os.close(replies)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._hear, self._listen)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if _Known.rehearsal is self:
            _Known.rehearsal = None
        with self._ordering:  # a trial must not write to what has that number next
            self._over = True
            os.close(self._orders)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # not reaped: the number is still its own
        self._process.wait()

    def last_words(self) -> str:
        """Why it ended, on one line: a signal, or what it printed last."""
        for thread in self._threads:
            thread.join(1.0)
        status = 0
        with contextlib.suppress(ChildProcessError):  # __exit__ has been here; nobody else may reap it
            ended = self._ended()
            status = ended.si_status if ended else 0
            if ended and ended.si_code != os.CLD_EXITED:
                hint = " (out of memory? see dmesg)" if status == signal.SIGKILL else ""
                return "killed by signal %d%s" % (status, hint)
        lines = [line for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1].strip()[:1000] if lines else "exit %d" % status

    def _ended(self) -> Any:
        """How the process has ended: its pipes close a moment before; None: it has not."""
        for _ in range(20):
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                return ended
            time.sleep(0.05)
        return None

    def start(self, asked: verbs.Trial) -> int:
        """Start a rank; return its number."""
        number = next(self._numbers)
        self._trials[number] = queue.SimpleQueue()
        self._order({"n": number, **vars(asked)})
        return number

    def replies(self, number: int) -> Iterator[Optional[Reply]]:
        """What is said of a rank; None now and then."""
        while True:
            try:
                reply = self._trials[number].get(timeout=_LOOK_S)
            except queue.Empty:
                yield None
                continue
            if reply is None:
                raise NodeError("torch", _ENDED % self.last_words())
            yield reply

    def end(self, number: int) -> None:
        """Kill a rank."""
        self._order({"end": number})

    def forget(self, number: int) -> None:
        """Nobody wants to know about that rank."""
        self._trials.pop(number, None)

    def _order(self, order: Dict[str, Any]) -> None:
        with self._ordering, contextlib.suppress(BrokenPipeError):
            if not self._over:
                os.write(self._orders, json.dumps(order).encode() + b"\n")  # whole: shorter than PIPE_BUF
                return
        raise NodeError("torch", _ENDED % self.last_words())

    def _hear(self) -> None:
        try:
            with open(self._replies) as lines:
                for line in lines:
                    reply = json.loads(line)
                    to = self._trials.get(reply.pop("n")) if "n" in reply else self.own
                    if to is not None:
                        to.put(reply)
        finally:
            for waiting in (self.own, *list(self._trials.values())):
                waiting.put(None)

    def _listen(self) -> None:
        said = self._process.stdout
        assert said is not None
        with said:
            for chunk in iter(lambda: os.read(said.fileno(), 1 << 16), b""):
                self._said = (self._said + chunk)[-_TAIL:]


class _Trial:
    """One rank, as it is asked for."""

    def __init__(self, call: Call, asked: verbs.Trial, rehearsal: _Rehearsal) -> None:
        self._call = call
        self._rehearsal = rehearsal
        self._number = rehearsal.start(asked)
        self._pid = 0
        self._answer: Dict[str, Any] = {"step": "start", "error": "", "took_s": {}}

    def run(self) -> Dict[str, Any]:
        """Tell its steps as they begin; return how it ended."""
        ended = False
        try:
            for reply in self._rehearsal.replies(self._number):
                if self._call.cancelled and not ended:
                    ended = True
                    self._rehearsal.end(self._number)
                if reply is None or "over" in reply or "step" in reply:
                    self._look()
                if reply is None:
                    continue
                if "said" in reply:
                    self._answer["said"] = reply["said"]
                    break
                self._take(reply)
                if "over" in reply and not ended:
                    ended = True
                    self._rehearsal.end(self._number)
        finally:
            self._rehearsal.forget(self._number)
        return self._answer

    def _take(self, reply: Reply) -> None:
        answer = self._answer
        self._pid = reply.get("pid", self._pid)
        answer["error"] = answer["error"] or reply.get("error", "")
        answer["rates"] = reply.get("rates", answer.get("rates", []))
        if "step" in reply:
            answer["took_s"][answer["step"]] = reply["after_s"]
            answer["step"] = reply["step"]
            self._call.item({"step": reply["step"], "port": reply.get("port")})

    def _look(self) -> None:
        """Where it listens for the other ranks: torch and NCCL bind to the address of one interface."""
        if self._pid and not self._answer.get("address"):
            address = _listens_at(self._pid)
            if address:
                self._answer.update(address=address, interface=interface_of(address))


def _listens_at(pid: int) -> str:
    mine = tcp_peers.held(pid).sockets
    there = [wire.near for inode, wire in tcp_peers.wires([pid]).items() if inode in mine and wire.listens]
    return next((tcp_peers.address_text(near) for near in there if near[0].strip("0")), "")


def interface_of(address: str) -> str:
    """The interface that has an address; empty if that is not known."""
    names: List[str] = [name for _, name in socket.if_nameindex()]
    if address.startswith("127.") or address == "::1":
        return "lo"
    return next((name for name in names if address in network.addresses_of(name)), "")
