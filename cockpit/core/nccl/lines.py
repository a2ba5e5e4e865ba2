"""One line of NCCL: who printed it, and what it says.

The wordings are those of NCCL 2.10 to 2.30 (init.cc, bootstrap.cc, transport/, graph/, plugin/net), of RCCL,
which keeps them and names itself in its version alone, and of aws-ofi-nccl 1.1 to 1.21. NCCL cuts a line at
1,024 bytes (debug.cc), its devices included.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

LONGEST = 2048
"""Bytes of a line that are looked at: more than NCCL writes and a launcher puts before it."""
SHORT = 64
"""Characters of a name that are kept."""
LISTED = 64
"""Interfaces or devices of one line that are kept."""
WORLD = 1 << 17
"""Ranks that a communicator may have."""

MARKS = (b"NCCL ", b"RCCL version", b"HIP version", b"[Gloo] Rank ")
"""A line without any of these says nothing here. Each but the first begins a line that names no process."""


class Speaker(NamedTuple):
    """A process that prints: its host as it names it, and its pid there."""

    host: str
    pid: int


class Line(NamedTuple):
    """A line that NCCL printed.

    :param before: what stands before its text: who says it, and what launchers put there
    """

    before: bytes
    text: bytes


class NcclFact(NamedTuple):
    """One thing that a line says.

    :param about: a field of :class:`cockpit.core.nccl.table.Row`, or a word of its own
    """

    about: str
    value: str


class Member(NamedTuple):
    """A line of a communicator.

    :param gpu: the number of its CUDA device in its process; None: it does not say
    """

    rank: int
    world: int
    gpu: int | None


_NUMBER = re.compile(rb"\d{1,10}\Z")
_HOST = re.compile(rb"[\w.-]{1,255}\Z")


def parsed(line: bytes) -> Line | None:
    """A line that NCCL printed, with what launchers put before it; None: another line."""
    line = line[:LONGEST]
    for level in (b"NCCL INFO ", b"NCCL WARN "):
        at = line.find(level)
        if at >= 0:
            return Line(line[:at], line[at + len(level) :].strip())
    for mark in (b"NCCL version", b"RCCL version", b"HIP version", b"[Gloo] Rank "):
        at = line.find(mark)
        if at >= 0 and mark == b"NCCL version" and line[at - 1 : at] == b"R":
            continue
        if at >= 0:
            return Line(b"", line[at:].strip())
    return None


@lru_cache(1024)
def speaker(before: bytes) -> Speaker | None:
    """The process named by ``host:pid:tid [device] file.cc:line``, whatever precedes it; None: none is."""
    for word in reversed(before.split()[-4:]):
        *_, host, pid, tid = (b"", b"", *word.rsplit(b":", 3))[-3:]
        if _NUMBER.match(pid) and _NUMBER.match(tid) and _HOST.match(host):
            return Speaker(host.decode("ascii", "replace"), int(pid))
    return None


def said(text: bytes) -> list[NcclFact | Member]:
    """What the text of a line says; most say nothing that is kept here."""
    word = text[: text.find(b" ")]
    read = _BY_WORD.get(word) or _BY_WORD.get(word.rstrip(b":"))
    if read is None:
        if word.startswith(b"NCCL_"):
            read = _set
        elif word.startswith(b"ncclComm"):
            read = _member  # the call that made the communicator
        elif word.isdigit():
            read = _channels
        else:
            return []
    return read(text)


# Names are letters, digits and a few signs: nothing that a terminal acts on.
_NAME = rb"[\w.@+-]{1,64}"
_SOCKET = re.compile(rb"(?:^|\s)(?:\[\d{1,4}\])?(" + _NAME + rb"):[\[\w]")
_DEVICE = re.compile(rb"\[\d{1,4}\](" + _NAME + rb"(?:\+" + _NAME + rb"){0,8}):(\d{1,4})/(\w{1,16})")
_VERSION = re.compile(
    rb"(NCCL|RCCL) version ?:? ?(\d{1,4}(?:\.\d{1,6}){1,3}[\w.]{0,16})(?:[+](cuda|hip)(\d{1,3}\.\d{1,3}))?"
)
_HIP = re.compile(rb"HIP version {0,3}: ?(\d{1,3}\.\d{1,3})")
_MEMBER = re.compile(
    rb"comm \S{1,32} rank (\d{1,7}) n[rR]anks (\d{1,7})(?: nNodes \d{1,7})?(?: cudaDev (\d{1,5}))?"
)
_NETWORK = re.compile(rb"Using network ([\w][\w ./+-]{0,47}\w)")
_ASSIGNED = re.compile(rb"(?:Initialized|Assigned) NET plugin ([\w][\w ./+-]{0,47}?\w)(?: to comm)?\Z")
_VIA = re.compile(
    rb"(?:Channel|CollNet) \d{1,4}(?:/\d{1,4})? : \d{1,7}(?:\[\w{1,20}\])?(?: -> \d{1,7}\[\w{1,20}\])?"
    rb"(?: \[(?:send|receive)\])? via (.{1,200})"
)
_NET = re.compile(rb"(NET|COLLNET)/([\w][\w .+-]{0,47})/\d{1,7}(?:\(\d{1,7}\))?(/GDRDMA)?")
_COLL = re.compile(
    rb"(\d{1,4}) coll channels, (?:\d{1,4} collnet channels, )?(?:\d{1,4} nvls channels, )?(\d{1,5}) p2p"
)
_GDR_NIC = re.compile(
    rb"NET/[\w .+-]{1,48}? : GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,4}) '?([\w.+-]{0,64})"
)
_GDR_PAIR = re.compile(rb"GPU Direct RDMA (Enabled|Disabled) for GPU")
_GDR_RINGS = re.compile(rb"use ring PXN \d GDR (\d)")
_DRIVER = re.compile(rb"cudaDriverVersion (\d{1,8})")
_PROVIDER = re.compile(rb"elected [Pp]rovider is ([\w;.+-]{1,64})")
_OFI = re.compile(rb"(aws-ofi-nccl|AWS Libfabric) (?:version )?v?(\d[\w.-]{0,30})")
_LOADED = re.compile(
    rb"Loaded net plugin ([\w][\w .+-]{0,47}?) \(v\d+\)|Plugin (?:name )?set by env to ([\w./+-]{1,64})"
)
_SET = re.compile(rb"(NCCL_\w{1,48}) set (?:by environment )?to ([\x21-\x7e]{0,64})")
_GLOO = re.compile(rb"\[Gloo\] Rank (\d{1,7}) is connected to (\d{1,7}) peer ranks.{0,60}: (\d{1,7})")


def _text(found: bytes) -> str:
    return found.decode("ascii", "replace")[:SHORT]


def _bootstrap(text: bytes) -> list[NcclFact | Member]:
    found = _SOCKET.search(text.partition(b"Using")[2])
    return [NcclFact("bootstrap", _text(found[1]))] if found else []


def _socket(text: bytes) -> list[NcclFact | Member]:
    names = _SOCKET.findall(text.partition(b"Using")[2]) if b": Using" in text else []
    return [NcclFact("socket", _text(name)) for name in dict.fromkeys(names[:LISTED])]


def _ib(text: bytes) -> list[NcclFact | Member]:
    if b"No device found" in text:
        return [NcclFact("no_ib", "no device found")]
    if nic := _GDR_NIC.match(text):
        return [
            NcclFact("gdr_nic_off" if nic[1] == b"Disabled" else "gdr_nic_on", _text(nic[3]) or _text(nic[2]))
        ]
    if b": Using" not in text:
        return []
    devices = _DEVICE.findall(text)[:LISTED]
    found: list[NcclFact | Member] = [
        NcclFact("device", f"{_text(name)}:{_text(port)}/{_text(link)}") for name, port, link in devices
    ]
    oob = _SOCKET.search(text.partition(b"; OOB")[2])
    return found + ([NcclFact("oob", _text(oob[1]))] if oob else [])


def _net(text: bytes) -> list[NcclFact | Member]:
    """Of any other network: ``NET/AWS Libfabric : GPU Direct RDMA Disabled for HCA 0 'efa_0-rdm'``."""
    return _ib(text) if _GDR_NIC.match(text) else []


def _ofi(text: bytes) -> list[NcclFact | Member]:
    if found := _PROVIDER.search(text):
        return [NcclFact("provider", _text(found[1]))]
    if found := _OFI.search(text):
        return [NcclFact("plugin", f"aws-ofi-nccl {_text(found[2])}")]
    return []


def _plugin(text: bytes) -> list[NcclFact | Member]:
    if found := _LOADED.search(text):
        return [NcclFact("plugin_name", _text(found[1] or found[2]))]
    inside = b"internal" in text and (b"Using internal" in text or b"using internal" in text)
    return [NcclFact("plugin_name", "internal")] if inside else []


def _using(text: bytes) -> list[NcclFact | Member]:
    found = _NETWORK.match(text)
    return [NcclFact("network", _text(found[1]))] if found else []


def _assigned(text: bytes) -> list[NcclFact | Member]:
    found = _ASSIGNED.match(text)
    return [NcclFact("network", _text(found[1]))] if found else []


def _via(text: bytes) -> list[NcclFact | Member]:
    found = _VIA.match(text)
    return [] if found is None else _way(found[1])


@lru_cache(256)
def _way(via: bytes) -> list[NcclFact | Member]:
    """One line for each channel and peer says the same."""
    if net := _NET.match(via):
        kind = "NET" if net[1] == b"NET" else "COLLNET"
        return [NcclFact("across", f"{kind}/{_text(net[2])}{'/GDRDMA' if net[3] else ''}")]
    if via.startswith((b"direct shared memory", b"SHM")):
        return [NcclFact("inside", "SHM")]
    if via.startswith(b"P2P/"):
        way = re.match(rb"\w{1,16}", via[4:])
        return [NcclFact("inside", f"P2P/{_text(way[0])}")] if way else []
    return []


def _member(text: bytes) -> list[NcclFact | Member]:
    found = _MEMBER.search(text)
    if found is None:
        return []
    member = Member(int(found[1]), int(found[2]), int(found[3]) if found[3] else None)
    if member.rank >= member.world or member.world > WORLD:
        return []
    more: list[NcclFact | Member] = [NcclFact("communicator", "")] if b"Init COMPLETE" in text else []
    return [member, *more]


def _gdr(text: bytes) -> list[NcclFact | Member]:
    found = _GDR_PAIR.match(text)
    return [NcclFact("gdr_far" if found[1] == b"Disabled" else "gdr_near", "")] if found else []


_CONNECTED = {
    b"Connected all rings": "rings",
    b"Connected all trees": "trees",
    b"Connected binomial trees": "PAT",
    b"Connected NVLS tree": "NVLS",
    b"Connected collnet": "CollNet",
    b"Connected CollNet": "CollNet",
}


def _connected(text: bytes) -> list[NcclFact | Member]:
    found: list[NcclFact | Member] = [
        NcclFact("algorithm", name) for words, name in _CONNECTED.items() if text.startswith(words)
    ]
    rings = _GDR_RINGS.search(text)
    return found + ([NcclFact("gdr_rings", _text(rings[1]))] if rings else [])


def _channels(text: bytes) -> list[NcclFact | Member]:
    found = _COLL.match(text)
    return (
        [NcclFact("channels", str(int(found[1]))), NcclFact("p2p_channels", str(int(found[2])))]
        if found
        else []
    )


def _driver(text: bytes) -> list[NcclFact | Member]:
    found = _DRIVER.match(text)
    if found is None:
        return []
    number = int(found[1])
    return [NcclFact("driver", f"{number // 1000}.{number % 1000 // 10}")]


def _version(text: bytes) -> list[NcclFact | Member]:
    found = _VERSION.match(text)
    if found is None:
        return []
    kit = [NcclFact("toolkit", f"{_text(found[3]).upper()} {_text(found[4])}")] if found[3] else []
    return [NcclFact("version", f"{_text(found[1])} {_text(found[2]).rstrip('.')}"), *kit]


def _hip(text: bytes) -> list[NcclFact | Member]:
    found = _HIP.match(text)
    return [NcclFact("toolkit", f"HIP {_text(found[1])}")] if found else []


def _set(text: bytes) -> list[NcclFact | Member]:
    found = _SET.match(text)
    return [NcclFact("setting", f"{_text(found[1])}={_text(found[2]).rstrip('.')}")] if found else []


def _p2p(text: bytes) -> list[NcclFact | Member]:
    if text.startswith(b"P2P is disabled between NVLINK"):
        return [NcclFact("p2p_off", "P2P is disabled between GPUs that NVLink connects")]
    return (
        [NcclFact("p2p_off", "P2P is disabled between connected GPUs")] if b"P2P is disabled" in text else []
    )


def _could(text: bytes) -> list[NcclFact | Member]:
    off = b"Could not enable P2P" in text
    return [NcclFact("p2p_off", "P2P between two GPUs could not be enabled")] if off else []


def _hint(text: bytes) -> list[NcclFact | Member]:
    return [NcclFact("acs", "this error often means that ACS is enabled")] if b" ACS " in text else []


def _gloo(text: bytes) -> list[NcclFact | Member]:
    found = _GLOO.match(text)
    if found is None:
        return []
    return [NcclFact("gloo", f"{int(found[1])} {int(found[2])} {int(found[3])}")]


_BY_WORD: dict[bytes, Callable[[bytes], list[NcclFact | Member]]] = {
    b"Bootstrap": _bootstrap,
    b"NET/Socket": _socket,
    b"NET/IB": _ib,
    b"NET/AWS": _net,
    b"NET/Libfabric": _net,
    b"NET/OFI": _ofi,
    b"NET/Plugin": _plugin,
    b"Using": _using,
    b"Initialized": _assigned,
    b"Assigned": _assigned,
    b"Channel": _via,
    b"CollNet": _via,
    b"comm": _member,
    b"GPU": _gdr,
    b"Connected": _connected,
    b"cudaDriverVersion": _driver,
    b"NCCL": _version,
    b"RCCL": _version,
    b"HIP": _hip,
    b"P2P": _p2p,
    b"Could": _could,
    b"HINT": _hint,
    b"[Gloo]": _gloo,
}
"""How a line is read, by its first word without a colon."""
