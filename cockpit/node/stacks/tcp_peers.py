"""TCP sockets on this node: which process holds which, and who is connected to whom."""

from __future__ import annotations

import contextlib
import re
from itertools import islice
from types import MappingProxyType
from typing import Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Tuple

from cockpit.node import procfs

FILES = 4096
"""Open files of one process that are looked at."""

SOCKETS = 100_000
"""Sockets of one network namespace that are looked at."""

INODE = 9
"""The field of a table that has a socket's inode."""

_SOCKET = re.compile(r"socket:\[([0-9]{1,18})\]\Z")
_DEVICE = re.compile(r"/dev/nvidia([0-9]{1,4})\Z")
_MAPPED = "0" * 16 + "FFFF0000"
"""How an IPv4 address begins that an IPv6 socket has; the words of the kernel's tables are reversed."""
_ESTABLISHED, _LISTENS = "01", "0A"

End = Tuple[str, int]
"""One end of a connection: an address in hexadecimal digits, as the kernel's tables have it, and a port."""


class Wire(NamedTuple):
    """A TCP socket.

    :param net: the network namespace it is in
    :param far: the other end; None: it listens
    """

    net: str
    near: End
    far: Tuple[str, int]
    listens: bool


class Held(NamedTuple):
    """What a process has open.

    :param sockets: inodes of its sockets, those among them that it has inherited too
    :param gpus: numbers of NVIDIA's devices
    :param numbers: its descriptor of each socket
    """

    sockets: FrozenSet[int] = frozenset()
    gpus: FrozenSet[int] = frozenset()
    numbers: Mapping[int, int] = MappingProxyType({})


def held(pid: int) -> Held:
    """The sockets and GPUs that a process has open; nothing if that may not be seen."""
    sockets, gpus = {}, set()
    for number in procfs.numbers(pid, "fd")[:FILES]:
        target = procfs.link("/proc/%d/fd/%d" % (pid, number))
        socket, device = _SOCKET.match(target), _DEVICE.match(target)
        if socket:
            sockets[int(socket.group(1))] = number
        elif device:
            gpus.add(int(device.group(1)))
    return Held(frozenset(sockets), frozenset(gpus), sockets)


def wires(pids: List[int]) -> Dict[int, Wire]:
    """All TCP sockets of the network namespaces of these processes, by inode."""
    found: Dict[int, Wire] = {}
    seen = set()
    for pid in pids:
        net = procfs.link("/proc/%d/ns/net" % pid)
        if net and net not in seen:
            seen.add(net)
            found.update(read(net, lines(pid)))
    return found


def lines(pid: int) -> Iterator[str]:
    """The kernel's tables of TCP sockets in a process's network namespace, as far as they can be read."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open("/proc/%d/net/%s" % (pid, name)) as table:
            yield from islice(table, SOCKETS)


def rows(table: Iterator[str]) -> Iterator[List[str]]:
    """The fields of each socket; a line that has fewer is none of these."""
    for line in table:
        words = line.split(None, 10)
        if len(words) > INODE:
            yield words


def read(net: str, table: Iterator[str]) -> Iterator[Tuple[int, Wire]]:
    """What a table of the kernel's says, by inode; lines that are not of it are skipped."""
    for words in rows(table):
        with contextlib.suppress(ValueError):
            if words[3] in (_ESTABLISHED, _LISTENS):
                yield int(words[INODE]), Wire(net, end_of(words[1]), end_of(words[2]), words[3] == _LISTENS)


def end_of(text: str) -> End:
    """An end as the kernel's tables write it."""
    address, _, port = text.partition(":")
    return (address[24:] if address.startswith(_MAPPED) else address), int(port, 16)


def address_text(end: End) -> str:
    """The address of an end as people write it: ``10.0.0.1``."""
    import socket

    try:
        data = bytes.fromhex(end[0])
        packed = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
        return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, packed)
    except (ValueError, OSError):
        return ""
