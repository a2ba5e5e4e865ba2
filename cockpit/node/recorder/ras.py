"""Asking NCCL's RAS: a thread in each rank's process that answers for the whole job, at a port of this node.

From NCCL's ``src/ras/client_support.cc`` and its user guide, ``troubleshooting/ras.rst`` (2.24 to 2.30.7): it
takes lines of text. ``CLIENT PROTOCOL n`` is answered by ``SERVER PROTOCOL n``; ``TIMEOUT s`` by ``OK``, as
is ``SET FORMAT json`` since 2.28.7 (before: ``ERROR: Unknown command …``, and the answer is text);
``VERBOSE STATUS`` by the answer, after which RAS closes the connection. It listens at ``localhost:28028``, or
where ``NCCL_RAS_ADDR`` says, in all processes at one address (SO_REUSEPORT): whose thread a connection gets
to is chance.

A port is asked only while a rank itself listens there: no other server is ever connected to, and none of
another user or machine. No command that changes anything is sent.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from cockpit.base import verbs
from cockpit.base.gate import Malformed, plain
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.recorder.ras_reading import ANSWER, Answer, answer
from cockpit.node.recorder.ras_text import text_answer
from cockpit.node.stacks import tcp_peers

PORT = 28028

TRIED = 4
"""Connections that are tried: one may get to a process that is stopped, or to another job's."""

LOOKED_AT = 64
"""Ranks of a node whose open files are looked at."""

GREETING_S = 0.4
"""Seconds until RAS says who it is; it does so at once, unless its process is stopped."""

LEFT_S = 10.0
"""Seconds that a connection stays open whose answer nobody waits for any more.

RAS would turn in a circle if it were closed before that: it looks for a closed connection only as it writes
(``rasClientEventLoop``). It gives up collecting after its time limit and 5 s (``rasCollsHandleTimeouts``).
"""

_LINE = 1000
_ADDRESS = re.compile(rb"NCCL_RAS_ADDR=.*:(\d{1,5})\Z", re.DOTALL)
_GREETING = re.compile(rb"SERVER PROTOCOL \d{1,9}\r?\Z")


class RasError(Exception):
    """RAS gave no answer; the text is one sentence for a person.

    :param kind: ``absent``: no rank has it, or has switched it off; ``silent``: not in time; ``odd``: it made
        no sense; ``other``: it is another job's; ``denied``
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class _Door(NamedTuple):
    """Where RAS listens on this node."""

    address: str
    port: int


def ras(call: Call) -> Dict[str, Any]:
    """What RAS says of the job that these ranks are in, cut down to rows."""
    asked = call.asked(verbs.Ras)
    began = time.monotonic()
    here = [one.pid for one in asked.targets if procfs.alive(one.pid, one.ticks)]
    told: Dict[str, Any] = {}
    try:
        found = _answer(call, here, began + min(max(asked.limit_s, 0.1), 10.0))
        told = {
            "version": found.version,
            "timeouts": found.timeouts,
            "communicators": found.communicators,
            "odd": found.odd,
            "rows": plain(found.rows),
        }
    except RasError as error:
        told = {"kind": error.kind, "what": str(error)}
    except Malformed as error:
        told = {"kind": "odd", "what": "NCCL RAS: its answer is invalid: %s" % error}
    return {"at": time.time(), "took_s": time.monotonic() - began, **told}


def _answer(call: Call, pids: Sequence[int], end: float) -> Answer:
    """The first answer that is about these processes.

    :raises RasError: there is none
    :raises Malformed: it makes no sense
    """
    doors = _doors(pids)
    if not doors.of:
        raise RasError("absent", "no rank listens for NCCL RAS")
    own = [_seen_by_itself(pid) for pid in doors.of]
    which = list(dict.fromkeys(doors.of.values()))
    trouble = RasError("silent", "NCCL RAS gave no answer")
    for number in range(TRIED):
        if call.cancelled or time.monotonic() > end:
            break
        try:
            data, json = _asked(which[number % len(which)], end)
        except RasError as error:
            trouble = error
            if error.kind != "silent":
                raise
            continue
        found = answer(data) if json else text_answer(data)
        # Of another job one pid may be the same by chance; in this one a rank may have no communicator yet.
        # Text names too few to tell.
        known = 2 * sum(not each.isdisjoint(found.pids) for each in own) >= len(own)
        if known or (doors.alone and not json):
            return found
        trouble = RasError("other", "NCCL RAS of another job answers here: NCCL_RAS_ADDR tells them apart")
    raise trouble


class _Doors(NamedTuple):
    """Where processes listen for RAS's clients, as far as this process can connect to them.

    :param of: by pid
    :param alone: whether nobody else listens at these ports
    """

    of: Dict[int, _Door]
    alone: bool


def _doors(pids: Sequence[int]) -> _Doors:
    ports = {pid: _port(pid) for pid in pids[:LOOKED_AT]}
    wanted = set(ports.values())
    known = {
        inode: wire
        for inode, wire in tcp_peers.wires([os.getpid()]).items()
        if wire.listens and wire.near[1] in wanted
    }
    found: Dict[int, _Door] = {}
    theirs: Set[int] = set()
    for pid, port in ports.items():
        for inode in tcp_peers.held(pid).sockets & known.keys() if known else ():
            address = tcp_peers.address_text(known[inode].near)
            if known[inode].near[1] == port and address:
                theirs.add(inode)
                found[pid] = _Door(_reachable(address), port)
    return _Doors(found, theirs == known.keys())


def _reachable(address: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)


def _port(pid: int) -> Optional[int]:
    """The port at which a process has RAS listen; None: it is switched off."""
    variables = procfs.environment(pid)
    if b"NCCL_RAS_ENABLE=0" in variables:
        return None
    found = next(filter(None, map(_ADDRESS.match, variables)), None)
    return int(found.group(1)) if found else PORT


def _seen_by_itself(pid: int) -> Set[int]:
    """The pids of a process in all pid namespaces that it is in: RAS has the innermost one."""
    line = re.search(rb"(?m)^NSpid:([\d\t ]+)$", procfs.contents("/proc/%d/status" % pid))
    return {pid, *(map(int, line.group(1).split()) if line else ())}


def _asked(door: _Door, end: float) -> Tuple[bytes, bool]:
    """Ask for everything: what comes, and whether that is JSON.

    :raises RasError: there is no answer
    """
    family = socket.AF_INET6 if ":" in door.address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    asking = False
    try:
        talk = _Talk(connection, end)
        talk.connect(door)
        # RAS's own limit for each leg of its collecting, in whole seconds; with less it has none.
        talk.say(b"TIMEOUT 1", lambda line: line == b"OK")
        json = talk.say(b"SET FORMAT json", lambda line: line == b"OK" or line.startswith(b"ERROR")) == b"OK"
        connection.sendall(b"VERBOSE STATUS\n")
        asking = True
        data = talk.rest()
        asking = False
        return data, json
    except socket.timeout:
        raise RasError("silent", "NCCL RAS gave no answer in time") from None
    except ConnectionError:
        raise RasError("silent", "NCCL RAS closed the connection") from None
    except OSError as error:
        raise RasError("denied", "NCCL RAS cannot be asked: %s" % error) from None
    finally:
        if asking:
            threading.Thread(target=_leave, args=(connection,), daemon=True).start()
        else:
            connection.close()


def _leave(connection: socket.socket) -> None:
    """Close a connection once RAS has nothing more to say there; see :data:`LEFT_S`."""
    end = time.monotonic() + LEFT_S
    with connection, suppress(OSError):
        while time.monotonic() < end:
            connection.settimeout(max(0.01, end - time.monotonic()))
            if not connection.recv(1 << 16):
                return


class _Talk:
    """One conversation, with a deadline."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection = connection
        self._end = end
        self._data = b""
        self._until = min(end, time.monotonic() + GREETING_S)

    def connect(self, door: _Door) -> None:
        """Connect, and see whether it is RAS.

        :raises OSError: it is not there, or not in time
        :raises RasError: it is something else
        """
        self._connection.settimeout(max(0.001, self._until - time.monotonic()))
        self._connection.connect(tuple(door))
        self.say(b"CLIENT PROTOCOL 2", _GREETING.match)

    def say(self, words: bytes, fits: Any) -> bytes:
        """Send a line, and return the one that answers it.

        :raises OSError: none comes in time
        :raises RasError: it is not what RAS answers
        """
        self._connection.sendall(words + b"\n")
        line = self._line()
        if not fits(line):
            raise RasError("odd", "what listens at the port of NCCL RAS is something else")
        return line

    def _line(self) -> bytes:
        while b"\n" not in self._data:
            if len(self._data) > _LINE:
                raise RasError("odd", "what listens at the port of NCCL RAS is something else")
            if not self._more(self._until):
                raise ConnectionResetError
        line, _, self._data = self._data.partition(b"\n")
        return line.rstrip(b"\r")

    def rest(self) -> bytes:
        """All that comes until RAS closes the connection.

        :raises OSError: that is not in time
        :raises RasError: it is more than anybody reads
        """
        parts: List[bytes] = [self._data]
        size = len(self._data)
        self._data = b""
        while self._more(self._end):
            parts.append(self._data)
            size += len(self._data)
            self._data = b""
            if size > ANSWER:
                raise RasError("odd", "NCCL RAS: its answer has more than %d bytes" % ANSWER)
        return b"".join(parts)

    def _more(self, until: float) -> bool:
        left = until - time.monotonic()
        if left <= 0:
            raise socket.timeout
        self._connection.settimeout(left)
        more = self._connection.recv(1 << 16)
        self._data += more
        return bool(more)
