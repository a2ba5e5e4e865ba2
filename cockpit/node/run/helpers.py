"""The supervisor's socket: what agents and wrappers ask of it without the disk, and helpers that it starts.

Whoever connects to it, in the run folder, sends one message, a list in JSON that begins with a word, and gets
an answer. It works where that folder is full or read-only: a stop is asked for here, what a wrapper cannot
write is told here, and so is what the supervisor itself cannot write.

A helper is a program such as py-spy, where ptrace is forbidden to others: only the supervisor's children may
trace the ranks where Yama says so, and only they last as long as the run. Its message says where that program
is and its arguments, and brings two file descriptors for its output. The answer is ``started`` and, later,
the exit status. If the agent hangs up, the helper is killed. None of this ever makes the supervisor wait.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import struct
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from cockpit.base import record

KINDS = {"py-spy": ("dump", "record")}
"""Every kind of helper, by the name it runs under, with the words that its arguments may begin with."""

SOCKET = record.SOCKET

STOP, UNWRITTEN, RECORD, NOTE = "stop", "unwritten", record.TELL_RECORD, record.TELL_NOTE
"""What else may be asked: to stop; for what there is no room; to take a wrapper's record, or its remark."""

MOST = 64
"""Helpers running at the same time."""

_ANSWER_S = 5.0
_STARTED_S = 10.0
"""Seconds for the supervisor to start a helper: it may be busy with a slow disk."""
_MESSAGE = 1 << 16
_PEER = struct.Struct("3i")


class Running(NamedTuple):
    """A running helper, whoever started it.

    :param wait: waits up to the given seconds for its end; returns its exit status, or None
    :param kill: ends it at once
    """

    wait: Callable[[float], Optional[int]]
    kill: Callable[[], None]


Starter = Callable[[str, List[str], int, int], Running]
"""Starts a helper: its path, its arguments, where its output goes, where its complaints go.

It raises OSError when that cannot be done.
"""


def quiet() -> Dict[str, str]:
    """The environment of a helper: none of our variables, and no backtraces."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "RUST_BACKTRACE": "0"}


class Helpers:
    """The supervisor's side. Every method returns at once and raises nothing.

    :param answers: by what is asked for: what answers it; it gets the rest of the message
    """

    def __init__(self, folder: str, answers: Mapping[str, Callable[..., bytes]]) -> None:
        self._folder = folder
        self._answers = answers
        self._listening: Optional[socket.socket] = None
        self._waiting: List[socket.socket] = []
        self._running: Dict[int, socket.socket] = {}
        self._ending: Set[int] = set()
        self._over = self._deaf = False
        with contextlib.suppress(OSError, AttributeError), reached(folder) as address:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                listening.bind(address)
                listening.listen(MOST)
                listening.setblocking(False)
            except OSError:
                listening.close()
                raise
            self._listening = listening

    def sockets(self) -> List[int]:
        """What to wait on besides everything else."""
        # A peer that is full, or has already hung up, would wake us endlessly; so would one not let in.
        shut = self._deaf or self._full()
        listening = [self._listening] if self._listening is not None and not shut else []
        running = [peer for pid, peer in self._running.items() if pid not in self._ending]
        return [peer.fileno() for peer in (*listening, *self._waiting, *running)]

    def tick(self) -> None:
        """Take requests, start helpers, end those that nobody waits for any more."""
        self._deaf = False
        try:
            while self._listening is not None and not self._full():
                peer, _ = self._listening.accept()
                peer.setblocking(False)
                self._waiting.append(peer)
        except OSError as error:
            self._deaf = not isinstance(error, BlockingIOError)
        waiting, self._waiting = self._waiting, []
        for peer in waiting:
            try:
                pid = self._start(peer)
            except BlockingIOError:
                self._waiting.append(peer)
                continue
            if pid:
                self._running[pid] = peer
            else:
                peer.close()
        for pid, peer in self._running.items():
            if pid not in self._ending and _said_anything(peer):
                self._ending.add(pid)
                os.kill(pid, signal.SIGKILL)

    def reaped(self, pid: int, status: int) -> bool:
        """A child of the supervisor ended and was waited for; return whether it was one of these."""
        peer = self._running.pop(pid, None)
        if peer is None:
            return False
        self._ending.discard(pid)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        with contextlib.suppress(OSError):
            peer.send(json.dumps({"code": code}).encode())
        peer.close()
        return True

    def end_all(self) -> None:
        """End all helpers, and start none any more; they are still to be waited for."""
        self._over = True
        for pid in self._running:
            self._ending.add(pid)
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Answer nobody any more."""
        for peer in self._waiting:
            peer.close()
        self._waiting = []
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, SOCKET))

    def _full(self) -> bool:
        return len(self._waiting) + len(self._running) >= MOST

    def _start(self, peer: socket.socket) -> int:
        """Start what a peer asks for; return its pid, 0 for a request that is refused."""
        try:
            data, numbers = _receive(peer)
        except BlockingIOError:
            raise
        except OSError:
            return 0
        try:
            kind, *words = json.loads(data.decode())
            _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            if uid not in (0, os.geteuid()):
                return 0
            if kind in self._answers:
                peer.send(self._answers[kind](*words))
                return 0
            path, arguments = words
            if len(numbers) != 2 or self._over:
                return 0
            if not os.path.isabs(path) or arguments[0] not in KINDS[kind]:
                return 0
            # Not Popen: that waits until the program is loaded, from a file server that may be silent.
            pid = os.fork()
            if pid == 0:
                _become(path, [kind, *map(str, arguments)], numbers)
            with contextlib.suppress(OSError):
                peer.send(b'"started"')
            return pid
        except Exception:
            # Whatever is wrong with a request, the run must not suffer.
            return 0
        finally:
            for number in numbers:
                os.close(number)


def _said_anything(peer: socket.socket) -> bool:
    """Whether a peer has hung up or sent something; both mean that it no longer wants this."""
    try:
        peer.recv(_MESSAGE)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _become(path: str, argv: List[str], numbers: List[int]) -> None:
    """Become the program. Never returns."""
    try:
        os.setsid()
        os.dup2(numbers[0], 1)
        os.dup2(numbers[1], 2)
        # Python ignores these two, and exec would hand that on.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execve(path, argv, quiet())
    except OSError as error:
        os.write(2, os.fsencode("cannot start %s: %s\n" % (path, error.strerror)))
    finally:
        os._exit(127)


def _receive(peer: socket.socket) -> Tuple[bytes, List[int]]:
    """One message and the descriptors that came with it."""
    numbers = array.array("i")
    data, ancillary, _, _ = peer.recvmsg(
        _MESSAGE, socket.CMSG_SPACE(8 * numbers.itemsize), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    )
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    return data, list(numbers)


@contextlib.contextmanager
def reached(folder: str) -> Iterator[str]:
    """The socket's address; the plain path may exceed the limit of 107 bytes."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield "/proc/self/fd/%d/%s" % (number, SOCKET)
    finally:
        os.close(number)


def ask(folder: str, kind: str, *words: Any) -> bytes:
    """What the supervisor of a run folder answers; nothing: it is an older one, or cannot.

    :raises TimeoutError: it is silent
    :raises OSError: it cannot be reached
    """
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        peer.settimeout(_ANSWER_S)
        with reached(folder) as address:
            peer.connect(address)
        peer.send(json.dumps([kind, *words]).encode())
        return peer.recv(_MESSAGE)
    except socket.timeout as error:
        raise TimeoutError(*error.args) from None  # another class before Python 3.10
    finally:
        peer.close()


def by_supervisor(folder: str, kind: str) -> Starter:
    """Starts a helper of this kind as a child of the supervisor of a run folder."""

    def start(path: str, arguments: List[str], out: int, said: int) -> Running:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            peer.settimeout(_STARTED_S)
            with reached(folder) as address:
                peer.connect(address)
            rights = array.array("i", [out, said])
            message = json.dumps([kind, path, arguments]).encode()
            peer.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            if _told(peer, _STARTED_S) != "started":
                raise OSError("the supervisor does not start it")
        except BaseException:
            peer.close()
            raise
        return _awaited(peer)

    return start


def _awaited(peer: socket.socket) -> Running:
    ended: List[int] = []

    def wait(timeout_s: float) -> Optional[int]:
        if not ended:
            told = _told(peer, timeout_s)
            if told is None:
                return None
            # It hung up without a message: the supervisor has ended, and the helper with it.
            ended.append(int(told["code"]) if isinstance(told, dict) else -signal.SIGKILL)
            peer.close()
        return ended[0]

    def kill() -> None:
        if not ended:
            with contextlib.suppress(OSError):
                peer.send(b'"stop"')

    return Running(wait, kill)


def _told(peer: socket.socket, timeout_s: float) -> Any:
    """What the supervisor says next: None for nothing within that time, empty when it has hung up."""
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    deadline = time.monotonic() + timeout_s
    while not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        if time.monotonic() >= deadline:
            return None
    try:
        data = peer.recv(_MESSAGE)
        return json.loads(data.decode()) if data else ""
    except (OSError, ValueError):
        return ""
