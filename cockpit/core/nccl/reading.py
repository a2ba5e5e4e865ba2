"""Reading what NCCL prints, of any length: only the table is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cockpit.core.nccl.lines import LISTED, LONGEST, MARKS, Member, NcclFact, Speaker, parsed, said, speaker
from cockpit.core.nccl.table import Row, Table

PROCESSES = 1 << 14
"""Ranks or processes that are told apart."""
KEPT = 1 << 19
"""Values of all of them together that are kept: a hostile file costs no more."""
EACH = 16
"""Ranks, ways, algorithms and remarks of one that are kept; settings, twice as many."""
_COUNT = 1 << 31


@dataclass
class _Process:
    """What one rank or process has said so far."""

    host: str = ""
    rank: int | None = None
    members: dict[int, int | None] = field(default_factory=dict)
    world: int = 0
    single: dict[str, str] = field(default_factory=dict)
    many: dict[str, dict[str, None]] = field(default_factory=dict)
    channels_of: int = 0
    communicators: int = 0


_SINGLE = {"version", "toolkit", "driver", "bootstrap", "network", "plugin", "plugin_name", "provider", "oob"}
_SINGLE |= {"no_ib", "acs", "gdr_far", "gdr_near", "gdr_rings", "gloo"}
_MANY = {"socket": LISTED, "device": LISTED, "gdr_nic_off": LISTED, "gdr_nic_on": LISTED}
_MANY |= {"across": EACH, "inside": EACH, "algorithm": EACH, "p2p_off": EACH}
_SETTINGS = 2 * EACH


class Reader:
    """Takes lines of NCCL as they come; see :meth:`feed`.

    A process is known by the rank that the caller names, else by its host and pid, which NCCL prints; its
    rank is then the one that it has in its largest communicator.
    """

    def __init__(self) -> None:
        self._known: dict[int | Speaker, _Process] = {}
        self._nobody = _Process()
        self._left_out: set[int] = set()
        self._kept = 0

    def feed(self, line: bytes, rank: int | None = None) -> bool:
        """Take one line, of any length.

        :param rank: whose it is; None: not known, the line may say so
        :return: whether NCCL, RCCL or gloo printed it
        """
        found = parsed(line)
        if found is None:
            return False
        things = said(found.text)
        if things:
            process = self._process(rank, found.before)
            if process is not None:
                for one in things:
                    self._take(process, one)
        return True

    def take(self, data: bytes, rank: int | None = None) -> None:
        """Take whole lines of a log at once; most of a log is not looked at line by line."""
        for line in marked(data):
            self.feed(line, rank)

    def table(self, nodes: Mapping[int, str] | None = None) -> Table:
        """What was said so far.

        :param nodes: the nodes of ranks, where a run is known
        """
        rows = [_row(process, nodes or {}) for process in self._known.values()]
        if not rows and (self._nobody.single or self._nobody.many):
            rows = [_row(self._nobody, {})]
        elif self._nobody.single.get("version") and not any(row.version for row in rows):
            # In a console rank 0 alone says it, without its name.
            first = min(range(len(rows)), key=lambda at: (0 not in rows[at].numbers, at))
            rows[first] = _with_version(rows[first], self._nobody)
        rows.sort(key=lambda row: (not row.numbers, row.numbers, row.node))
        return Table(tuple(rows), len(self._left_out))

    def _process(self, rank: int | None, before: bytes) -> _Process | None:
        who = speaker(before)
        key = who if rank is None else rank
        if key is None:
            return self._nobody
        process = self._known.get(key)
        if process is None:
            if len(self._known) >= PROCESSES or self._kept >= KEPT:
                if len(self._left_out) < PROCESSES:
                    self._left_out.add(hash(key))
                return None
            process = self._known[key] = _Process(rank=rank)
            self._kept += 1
        if who is not None and not process.host:
            process.host = who.host
        return process

    def _take(self, process: _Process, one: NcclFact | Member) -> None:
        if isinstance(one, Member):
            if one.world > process.world:
                process.world, process.members = one.world, {}
            if one.world == process.world and len(process.members) < EACH:
                process.members[one.rank] = one.gpu if one.gpu is not None else process.members.get(one.rank)
        elif one.about == "communicator":
            process.communicators = min(_COUNT, process.communicators + 1)
        elif one.about in ("channels", "p2p_channels"):
            # Those of the largest communicator: it was the last to be named, or the only one.
            if process.world >= process.channels_of or one.about == "p2p_channels":
                process.channels_of = process.world
                process.single.setdefault(one.about, one.value)
        elif one.about in _SINGLE:
            self._set(process, one)
        elif one.about == "setting":
            self._add(process, "setting", one.value, _SETTINGS)
        elif one.about in _MANY:
            self._add(process, one.about, one.value, _MANY[one.about])

    def _set(self, process: _Process, one: NcclFact) -> None:
        # What a restart or another communicator says later counts, but for the version: one process has one.
        if one.about not in process.single:
            self._kept += 1
        process.single[one.about] = one.value

    def _add(self, process: _Process, about: str, value: str, most: int) -> None:
        values = process.many.setdefault(about, {})
        if value not in values and len(values) < most and self._kept < KEPT:
            values[value] = None
            self._kept += 1


def marked(data: bytes) -> Iterator[bytes]:
    """The lines of a log that NCCL may have printed; of longer ones a part."""
    at = 0
    marks = dict.fromkeys(MARKS, -1)
    while (hit := _next_mark(data, at, marks)) >= 0:
        start = data.rfind(b"\n", at, hit) + 1 or at
        end = data.find(b"\n", hit)
        end = len(data) if end < 0 else end
        yield data[max(start, hit - LONGEST) : min(end, hit + LONGEST)]
        at = end


def _next_mark(data: bytes, at: int, marks: dict[bytes, int]) -> int:
    """Where the next mark is; -1: nowhere.

    :param marks: where each was found last; what it does not have is searched once
    """
    for mark, place in marks.items():
        if place < at:
            found = data.find(mark, at)
            marks[mark] = found if found >= 0 else len(data)
    hit = min(marks.values())
    return hit if hit < len(data) else -1


def read(chunks: Iterable[bytes], reader: Reader, rank: int | None = None) -> None:
    """Read a file in pieces; of a line longer than NCCL prints only parts are looked at."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        whole = data.rfind(b"\n") + 1
        reader.take(data[:whole], rank)
        rest = data[whole:]
        if len(rest) > 2 * LONGEST:
            reader.take(rest, rank)
            rest = b""
    reader.take(rest, rank)


def _with_version(row: Row, said_by: _Process) -> Row:
    return replace(
        row,
        version=said_by.single.get("version", ""),
        toolkit=row.toolkit or said_by.single.get("toolkit", ""),
    )


def _row(process: _Process, nodes: Mapping[int, str]) -> Row:
    single = process.single
    many = {about: tuple(values) for about, values in process.many.items()}
    numbers = tuple(sorted(process.members)) if process.rank is None else (process.rank,)
    gpus = sorted({gpu for gpu in process.members.values() if gpu is not None})
    node = nodes.get(numbers[0], process.host) if numbers else process.host
    gloo = single.get("gloo")
    return Row(
        numbers=numbers,
        node=node,
        gpus=tuple(gpus),
        version=single.get("version", ""),
        toolkit=single.get("toolkit", ""),
        driver=single.get("driver", ""),
        bootstrap=single.get("bootstrap", ""),
        network=single.get("network", ""),
        interfaces=many.get("socket", ()),
        devices=many.get("device", ()),
        no_ib="no_ib" in single and not many.get("device"),
        plugin=single.get("plugin") or single.get("plugin_name", ""),
        provider=single.get("provider", ""),
        gdr=_gdr(single, many),
        gdr_off=many.get("gdr_nic_off", ()),
        across=tuple(sorted(many.get("across", ()))),
        inside=tuple(sorted(many.get("inside", ()))),
        algorithms=tuple(sorted(many.get("algorithm", ()))),
        channels=int(single.get("channels", 0)),
        p2p_channels=int(single.get("p2p_channels", 0)),
        world=process.world,
        communicators=process.communicators,
        settings=dict(_pairs(many.get("setting", ()))),
        remarks=many.get("p2p_off", ()),
        acs="acs" in single,
        gloo=None if gloo is None else _three(gloo),
    )


def _three(text: str) -> tuple[int, int, int]:
    one, two, three = text.split()
    return int(one), int(two), int(three)


def _gdr(single: Mapping[str, str], many: Mapping[str, tuple[str, ...]]) -> str:
    """Whether network cards read the memory of GPUs: what was connected tells most."""
    ways = [way for way in many.get("across", ()) if not way.startswith("NET/Socket")]
    if ways:
        read = [way.endswith("/GDRDMA") for way in ways]
        return "on" if all(read) else "mixed" if any(read) else "off"
    if single.get("network") == "Socket":
        return ""
    if "gdr_rings" in single:
        return "on" if single["gdr_rings"] != "0" else "off"
    off, on = many.get("gdr_nic_off", ()), many.get("gdr_nic_on", ())
    if off or on:
        return "off" if not on else "mixed" if off else "on"
    if "gdr_near" in single:
        return "on"
    return "off" if "gdr_far" in single else ""


def _pairs(settings: Iterable[str]) -> Iterator[tuple[str, str]]:
    for one in settings:
        name, _, value = one.partition("=")
        yield name, value


def networks(text: str) -> list[str]:
    """What NCCL took, as its own lines say, without addresses: ``bootstrap eth0``, ``IB mlx5_0:1/IB``."""
    reader = Reader()
    reader.take(text.encode("utf-8", "replace"))
    found: dict[str, None] = {}
    for row in reader.table().rows:
        found |= {f"bootstrap {row.bootstrap}": None} if row.bootstrap else {}
        found |= {f"Socket {name}": None for name in row.interfaces}
        found |= {f"IB {name}": None for name in row.devices}
        found |= {f"OFI {row.provider}": None} if row.provider else {}
    return list(found)
