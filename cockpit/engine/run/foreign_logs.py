"""Files that ranks of a foreign job write, sorted into logs by rank as they arrive.

A run of ours has one log a rank. A job that others started has files of its own making: one for all ranks,
two for each, one on a server that every node sees. Their bytes go into the spool as if they were logs of
ours: a file that one rank writes becomes that rank's log, byte for byte; lines of a shared one go to whom
they name, or else to the console of the node that reads it. A line that one node reads goes to a rank of
another one only if that node has said that the rank's output leaves it, or gets into this file. The *ledger*
says how far each file was taken, and how long each log was then, so that whoever continues neither loses nor
doubles a byte.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from itertools import chain
from pathlib import Path

from cockpit.base import gate
from cockpit.base.answers import OpenFile
from cockpit.base.gate import Definition, ListOf, Malformed, MapOf, Text, Whole, bound, maybe, plain, read
from cockpit.base.record import LAUNCHER_LOG, log_name, logged_rank
from cockpit.base.shared_fields import FILES_A_JOB, MARK, Opened
from cockpit.core.logs.sources import Output
from cockpit.core.logs.speakers import HEAD, Speakers
from cockpit.engine.files import append, lines, open_regular, replace
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Foreign
from cockpit.errors import os_error

LEDGER = "outlets.jsonl"

_LONG = 64 << 10
"""Bytes of an unfinished line that are held until it is known whose it is."""

_LEDGER_BYTES = 4 << 20
"""A ledger that is shorter is not written anew."""


@dataclass
class Outlet:
    """One file.

    :param number: what it is called in requests and in the ledger
    :param id: see :class:`cockpit.base.answers.OpenFile`
    :param node: whose agent reads it
    :param ranks: the ranks that write to it, on any node
    :param shared: lines of others may be in it
    :param offset: how many of its bytes are in the spool
    """

    number: int
    id: str
    node: str
    ranks: set[int] = field(default_factory=set)
    shared: bool = False
    offset: int = 0
    place: Opened = field(default_factory=lambda: Opened(0, "/", 0, 0, 0, 0, 0))
    """How the node finds it."""
    open: Output | None = None
    """Who has the line that has not ended yet, if some of it is in the spool."""
    held: bytes = b""
    """What was read of a line and is not in the spool yet."""
    mark: int | None = None
    """What its node calls the first ``marked`` bytes: by that it knows whether it is the same file still."""
    marked: int = 0

    @property
    def next(self) -> int:
        """The offset of the next byte to read."""
        return self.offset + len(self.held)

    def restart(self) -> None:
        """Forget what is held: the node sends it again."""
        self.held = b""

    def begin_anew(self) -> None:
        """The file was shortened: what comes is from its start."""
        self.offset, self.held, self.open, self.mark, self.marked = 0, b"", None, None, 0

    @property
    def asked(self) -> Opened:
        """What to ask its node for."""
        return replaced(self.place, offset=self.offset, mark=self.mark, marked=self.marked)


class Outlets:
    """The files of one job.

    :param folder: the run's folder
    :param nodes: the ranks of each node
    :param labels: see :class:`cockpit.core.logs.speakers.Speakers`
    :param foreign: which output leaves its node, and where it gets to
    """

    def __init__(
        self,
        folder: Path,
        nodes: Mapping[str, Iterable[int]],
        *,
        labels: bool = False,
        foreign: Foreign | None = None,
    ) -> None:
        self._path = folder / LEDGER
        self._nodes = {name: list(ranks) for name, ranks in nodes.items()}
        self._homes = {rank: name for name, ranks in self._nodes.items() for rank in ranks}
        self._speakers = Speakers(self._nodes, labels)
        foreign = foreign or Foreign(())
        self._passed, self._away = frozenset(foreign.passed), frozenset(foreign.away)
        self._may = {name: set(ranks) for name, ranks in self._nodes.items()}
        """The ranks that a node may say write to one of its files."""
        for name, callers in foreign.callers.items():
            self._may[name] |= self._passed & {rank for one in callers for rank in one.ranks}
        self._all: list[Outlet] = []
        self._ids: dict[str, Outlet] = {}
        self._owned: Counter[int] | None = None
        """See :meth:`_own`; None: files have changed since it was counted."""
        self._sizes: dict[Output, int] = {}
        self._ledger: int | None = None
        self._size = self._least = 0
        """Bytes of the ledger, and those it had when it was written anew."""
        self._registered = 0

    @classmethod
    def of(cls, folder: RunFolder) -> Outlets:
        """Those of a run's folder."""
        manifest = folder.manifest
        nodes = {node.name: node.ranks for node in manifest.nodes}
        labels = manifest.launcher == "slurm"
        return cls(folder.path, nodes, labels=labels, foreign=manifest.foreign)

    # Which files there are

    def known(self, node: str, file: OpenFile) -> Outlet | None:
        """The outlet of a file that a node reports; None if there are too many, or it is read by another."""
        found = self._ids.get(file.id)
        if found is None:
            if len(self._all) >= FILES_A_JOB:
                return None
            found = self._add(Outlet(len(self._all), file.id, node))
        self._owned = None
        mine = set(file.ranks) & self._may[node]
        found.shared = found.shared or file.shared
        found.ranks |= mine
        if found.node != node:
            return None
        found.place = Opened(found.number, file.path, file.device, file.inode, file.pid, file.ticks, file.fd)
        return found

    def read_by(self, node: str) -> list[Outlet]:
        """The files that a node's agent reads."""
        return [one for one in self._all if one.node == node]

    def written_by(self, rank: int) -> list[Outlet]:
        """The files that a rank writes to."""
        return [one for one in self._all if rank in one.ranks]

    def numbered(self, number: int, node: str) -> Outlet:
        """The file of this number.

        :raises Malformed: the node does not read one
        """
        if number >= len(self._all) or self._all[number].node != node:
            raise Malformed(f"watch: not asked about file {number}")
        return self._all[number]

    def _add(self, outlet: Outlet) -> Outlet:
        self._all.append(outlet)
        self._ids[outlet.id] = outlet
        self._owned = None
        return outlet

    # Whose bytes they are

    def log_of(self, outlet: Outlet) -> Output:
        """Where it is said what is missing of a file: in its rank's log, or in the console of its node."""
        return self._owner(outlet) or (outlet.node, None)

    def sort(self, outlet: Outlet, data: bytes) -> list[tuple[Output, bytes]]:
        """Whose these next bytes of a file are, in their order; what is not known yet is held."""
        data, outlet.held = outlet.held + data, b""
        alone = self._owner(outlet)
        if alone is not None:
            return [(alone, data)] if data else []
        found: list[tuple[Output, list[bytes]]] = []
        *whole, rest = data.split(b"\n")
        for line in whole:
            _put(found, self._speaker(outlet, line), line + b"\n")
            outlet.open = None
        if rest and (outlet.open is not None or len(rest) > _LONG or (b"\r" in rest and len(rest) > HEAD)):
            outlet.open = self._speaker(outlet, rest)
            _put(found, outlet.open, rest)
        else:
            outlet.held = rest
        return [(source, b"".join(pieces)) for source, pieces in found]

    def _owner(self, outlet: Outlet) -> Output | None:
        """Who wrote every byte of it, if no other file goes into the same log."""
        if outlet.shared or len(outlet.ranks) != 1:
            return None
        (rank,) = outlet.ranks
        return self._source(rank) if self._own(rank) == 1 else None

    def _own(self, rank: int) -> int:
        """How many files this rank alone writes."""
        if self._owned is None:
            alone = (one.ranks for one in self._all if not one.shared and len(one.ranks) == 1)
            self._owned = Counter(chain.from_iterable(alone))
        return self._owned[rank]

    def _speaker(self, outlet: Outlet, line: bytes) -> Output:
        if outlet.open is not None:
            return outlet.open
        if not outlet.shared and len(outlet.ranks) == 1:
            return self._source(next(iter(outlet.ranks)))
        writers = {self._homes[rank] for rank in outlet.ranks} or {outlet.node}
        only = next(iter(writers)) if len(writers) == 1 else outlet.node
        found = self._speakers.of(line, writers) or (only, None)
        if not self._agreed(outlet, *found):
            return outlet.node, None
        # A launcher repeats what ranks write to their own files (torchrun --tee): that is there already.
        repeats = found[1] is not None and found[1] not in outlet.ranks and self._own(found[1]) > 0
        return (found[0], None) if repeats else found

    def _agreed(self, outlet: Outlet, node: str, rank: int | None) -> bool:
        """Whether a node has said that its own output, or that of its rank, may be in a file."""
        if node == outlet.node or rank in outlet.ranks:
            return True
        if rank is not None:
            return outlet.shared and rank in self._passed
        written = not outlet.ranks.isdisjoint(self._nodes[node])
        return written or (outlet.shared and node in self._away)

    def _source(self, rank: int) -> Output:
        return self._homes[rank], rank

    def rest(self, outlet: Outlet) -> list[tuple[Output, bytes]]:
        """What is held of a last line that will never end."""
        data, outlet.held = outlet.held, b""
        return [(self._speaker(outlet, data), data)] if data else []

    # What is in the spool

    def load(self) -> dict[Output, int]:
        """Read the ledger; return how long each log was when it was written.

        :raises CockpitError: it cannot be read
        """
        for line in lines(self._path):
            try:
                self._take(read(_Line, json.loads(line)))
            except (ValueError, RecursionError):
                continue  # cut off by a crash: what it was about is read again
        return dict(self._sizes)

    def _take(self, line: _Line) -> None:
        if line.id is not None and line.node in self._nodes and line.id not in self._ids:
            ranks = {rank for rank in line.ranks if rank in self._homes}
            # Its process may be gone by now: until it is seen again, it is found by its path.
            place = Opened(len(self._all), line.path, line.device, line.inode, 0, 0, 0)
            self._add(Outlet(place.number, line.id, line.node, ranks, line.shared, place=place))
        if line.file is not None and line.file < len(self._all):
            outlet = self._all[line.file]
            outlet.offset, outlet.open = line.offset, self._named(line.open)
            outlet.mark, outlet.marked = line.mark, line.marked
        for name, size in line.s.items():
            source = self._named(name)
            if source is not None:
                self._sizes[source] = size

    def _named(self, text: str) -> Output | None:
        """The source of a log as the ledger has it: its name and its node."""
        name, _, node = text.partition(" ")
        known = node in self._nodes and (name == LAUNCHER_LOG or logged_rank(name) in self._nodes[node])
        return (node, logged_rank(name)) if known else None

    def note(self, outlet: Outlet, sizes: Mapping[Output, int]) -> None:
        """Write down how far a file was taken, and how long the logs are that its bytes went into.

        :raises CockpitError: it cannot be written
        """
        self._sizes.update(sizes)
        if self._ledger is None:
            self.save()
            return
        try:
            fresh = [_registered(one) for one in self._all[self._registered :]]
            data = _told([*fresh, _progress(outlet, sizes)])
            append(self._ledger, data, self._size)
        except OSError as error:
            raise os_error("cannot write", self._path, error) from None
        self._size += len(data)
        self._registered = len(self._all)
        if self._size > max(_LEDGER_BYTES, 4 * self._least):
            self.save()

    def save(self) -> None:
        """Write the whole ledger.

        :raises CockpitError: it cannot be written
        """
        try:
            replace(self._path, _told([*map(_registered, self._all), *self._progress()]))
            self.close()
            self._ledger = open_regular(self._path, os.O_WRONLY | os.O_APPEND)
            self._size = self._least = os.fstat(self._ledger).st_size
        except OSError as error:
            raise os_error("cannot write", self._path, error) from None
        self._registered = len(self._all)

    def _progress(self) -> Iterator[_Line]:
        yield _Line(s={_key(source): size for source, size in self._sizes.items()})
        yield from (_progress(one, {}) for one in self._all)

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            os.close(self._ledger)
        self._ledger = None


class _Line(Definition):
    """A line of the ledger: a file, by its place among them, or how far one was taken."""

    id: str | None = maybe(Text(500))
    node: str = bound(Text(255), "")
    path: str = bound(gate.PATH, "/")
    device: int = bound(gate.SIZE, 0)
    inode: int = bound(Whole(0, (1 << 64) - 1), 0)
    ranks: Sequence[int] = bound(ListOf(gate.RANK, gate.RANK_LIMIT), ())
    shared: bool = bound(gate.FLAG, False)
    file: int | None = maybe(Whole(0, FILES_A_JOB))
    offset: int = bound(gate.SIZE, 0)
    mark: int | None = maybe(MARK)
    marked: int = bound(gate.SIZE, 0)
    open: str = bound(Text(300), "")
    s: Mapping[str, int] = bound(MapOf(Text(300), gate.SIZE, 1 << 20), {})


def _registered(one: Outlet) -> _Line:
    return _Line(
        id=one.id,
        node=one.node,
        path=one.place.path,
        device=one.place.device,
        inode=one.place.inode,
        ranks=sorted(one.ranks),
        shared=one.shared,
    )


def _progress(one: Outlet, sizes: Mapping[Output, int]) -> _Line:
    logs = {_key(source): size for source, size in sizes.items()}
    begun = "" if one.open is None else _key(one.open)
    return _Line(file=one.number, offset=one.offset, mark=one.mark, marked=one.marked, open=begun, s=logs)


def _told(entries: Iterable[_Line]) -> bytes:
    """The entries as lines, without what is as it is by default."""
    usual = plain(_Line())
    told = ({name: value for name, value in plain(one).items() if value != usual[name]} for one in entries)
    return b"".join(json.dumps(one).encode() + b"\n" for one in told if one)


def _key(source: Output) -> str:
    return f"{log_name(source[1])} {source[0]}"


def _put(found: list[tuple[Output, list[bytes]]], source: Output, data: bytes) -> None:
    """Add bytes to those of the same source, if they come right after them."""
    if found and found[-1][0] == source:
        found[-1][1].append(data)
    else:
        found.append((source, [data]))
