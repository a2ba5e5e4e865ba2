"""Torch's own server in a rank (``_WorkerServer``), on a unix socket: HTTP, one request a connection.

The rank answers from a thread that needs no GIL, so also while it hangs. It is a training program all the
same: no answer is waited for beyond a deadline, none is taken beyond a size.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import time
from typing import Dict, List, NamedTuple, Set, Tuple

from cockpit.base.gate import WORD, ListOf, Malformed
from cockpit.base.recorder.reading import DUMP, parsed
from cockpit.node import procfs

_HEAD = 16 << 10
"""Bytes of the head of an answer."""
_LENGTH = re.compile(rb"(?im)^content-length: *(\d{1,12})\r?$")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ?([^\r\n]{0,200})")
_CREDENTIALS = struct.Struct("3i")
_ACCEPTS = b"00010000"
"""Flags of a socket in ``/proc/PID/net/unix``: it listens."""


class ServerError(Exception):
    """A rank's server gave no answer; the text is one sentence for a person.

    :param kind: ``silent``: not in time; ``odd``: it made no sense; ``gone``: nobody is there; ``denied``;
        ``unknown``: it does not have this handler
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class Server(NamedTuple):
    """The socket of a rank's server, and the process that made it.

    :param path: good while its :class:`Sockets` are open, and never too long for a socket
    """

    pid: int
    path: str


class Sockets:
    """The servers of a run's ranks on this node: ``RANK.PID.sock`` in one folder of the user alone.

    :raises FileNotFoundError: there is no such folder
    :raises OSError: it is not a folder of this user alone
    """

    _NAME = re.compile(r"(0|[1-9]\d{0,8})\.([1-9]\d{0,9})\.sock")

    def __init__(self, folder: str) -> None:
        self.number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        seen = os.fstat(self.number)
        if seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
            self.close()
            raise PermissionError("%s is not for its owner alone" % folder)

    def close(self) -> None:
        """Forget the folder."""
        os.close(self.number)

    def by_rank(self) -> Dict[int, List[Server]]:
        """The servers of each rank, the newest first: an earlier attempt leaves its socket behind."""
        found: Dict[int, List[Tuple[int, Server]]] = {}
        for name in os.listdir(self.number):
            fits = self._NAME.fullmatch(name)
            made = self._made(name) if fits else 0
            if fits and made:
                server = Server(int(fits.group(2)), "/proc/self/fd/%d/%s" % (self.number, name))
                found.setdefault(int(fits.group(1)), []).append((made, server))
        return {rank: [server for _, server in sorted(each, reverse=True)] for rank, each in found.items()}

    def _made(self, name: str) -> int:
        """When a socket of ours was made; 0: it is none."""
        try:
            seen = os.stat(name, dir_fd=self.number, follow_symlinks=False)
        except OSError:
            return 0
        return seen.st_mtime_ns if stat.S_ISSOCK(seen.st_mode) and seen.st_uid == os.geteuid() else 0


def check_owner(server: Server) -> None:
    """See that the rank still has its server's socket open; to be called before anything connects to it.

    A program may close all files that it did not open itself. The server's thread then still waits on the
    socket: one connection later it takes whatever has that number now, or ends the rank.

    :raises ServerError: ``gone``, or ``denied``: it cannot be seen
    """
    listening = _listening(server)
    if not listening:
        raise ServerError("gone", "its server is gone")
    files = "/proc/%d/fd" % server.pid
    try:
        numbers = os.listdir(files)
    except (FileNotFoundError, ProcessLookupError):
        raise ServerError("gone", "its server is gone") from None
    except OSError as error:
        raise ServerError("denied", "its open files cannot be seen: %s" % error.strerror) from None
    if not any(procfs.link("%s/%s" % (files, number)) in listening for number in numbers):
        raise ServerError("gone", "the program closed the socket of its probe")


def _listening(server: Server) -> Set[str]:
    """What links to the socket look like. Its path is as the rank wrote it: we know how that ends."""
    name = os.fsencode(os.path.basename(server.path))
    found = set()
    for line in procfs.contents("/proc/%d/net/unix" % server.pid).splitlines():
        words = line.split(None, 7)
        if len(words) == 8 and words[3] == _ACCEPTS and words[7].rpartition(b"/")[2] == name:
            found.add("socket:[%s]" % words[6].decode("ascii", "replace"))
    return found


def handlers(path: str, timeout_s: float) -> Tuple[str, ...]:
    """What a rank's server can be asked for.

    :raises ServerError: see there
    """
    try:
        found = ListOf(WORD, 1000).read(parsed(_exchange(path, "GET /handler/", timeout_s), _HEAD))
    except Malformed as error:
        raise ServerError("odd", "its list of handlers is invalid: %s" % error) from None
    return tuple(found)


def ask(path: str, handler: str, timeout_s: float = 10.0) -> bytes:
    """What one handler answers.

    :raises ServerError: see there
    """
    return _exchange(path, "POST /handler/" + handler, timeout_s)


def _exchange(path: str, request: str, timeout_s: float) -> bytes:
    end = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.settimeout(timeout_s)
            connection.connect(path)
            _check(connection)
            text = request + " HTTP/1.1\r\nHost: rank\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            connection.sendall(text.encode("ascii"))
            return _body(connection, end)
        except socket.timeout:
            raise ServerError("silent", "its server gave no answer within %.3g s" % timeout_s) from None
        except (FileNotFoundError, ConnectionError):
            raise ServerError("gone", "its server is gone") from None
        except OSError as error:
            raise ServerError("denied", "its server cannot be asked: %s" % error) from None


def _check(connection: socket.socket) -> None:
    """A socket may have been put there by somebody else."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    if uid != os.geteuid():
        raise ServerError("denied", "its server belongs to somebody else (uid %d)" % uid)


def _body(connection: socket.socket, end: float) -> bytes:
    """The body of the answer; the server may keep the connection open after it."""
    data = bytearray()
    body, length = -1, DUMP
    while body < 0 or len(data) - body < length:
        connection.settimeout(max(0.001, end - time.monotonic()))
        more = connection.recv(1 << 18)
        if time.monotonic() > end:
            raise socket.timeout
        if not more:
            raise ServerError("odd", "its answer is cut off")
        data += more
        if body < 0:
            at = data.find(b"\r\n\r\n", 0, _HEAD)
            if at >= 0:
                body, length = at + 4, _length(bytes(data[:at]))
            elif len(data) >= _HEAD:
                raise ServerError("odd", "its answer is not HTTP")
    return bytes(data[body : body + length])


def _length(head: bytes) -> int:
    status, length = _STATUS.match(head), _LENGTH.search(head)
    if status is None or length is None:
        raise ServerError("odd", "its answer is not HTTP with a length")
    if status.group(1) == b"404":
        raise ServerError("unknown", "its torch does not have this handler")
    if status.group(1) != b"200":
        raise ServerError("odd", "its server answers %s" % status.group(0).decode("ascii", "replace"))
    if int(length.group(1)) > DUMP:
        raise ServerError("odd", "its answer has %d bytes, more than %d" % (int(length.group(1)), DUMP))
    return int(length.group(1))
