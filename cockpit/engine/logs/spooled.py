"""Reading the logs in a run's spool at any place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from cockpit.base.events import Gap
from cockpit.base.record import INDEX, SIZES, TIMES, is_log
from cockpit.base.times import Tick, ticks
from cockpit.core.logs.query import Query
from cockpit.core.logs.sources import Nccl, Output, Source, file_of
from cockpit.engine.files import OpenFiles, lines, open_regular
from cockpit.engine.logs.recent import Recent
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, os_error

LAST_TIMES = 64 << 10
"""Bytes at the end of a time index: minutes of a node that prints all the time."""

INDEX_READ = 16 << 20
"""Bytes of a time index that are read: more than one has that is thinned."""

OPEN_FILES = 32
"""Files kept open: a run may have more logs than a process may have files."""

_OF_ALL = (errno.EMFILE, errno.ENFILE)
"""Errors that say nothing about a file."""


class LogFile(NamedTuple):
    """One log of a run.

    :param id: its number among the run's logs
    :param source: who writes it
    :param path: of our copy, which may not exist yet
    """

    id: int
    source: Source
    path: str


class SpooledLogs:
    """The logs of a run, by number: consoles in the order of the nodes, ranks in their order, NCCL in them.

    A log that cannot be read is empty, and has a line in :attr:`unreadable`; the others go on.

    :param folder: the run's folder
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folders = {node.name: str(folder.spool_dir(node)) for node in folder.manifest.nodes}
        self.files: list[LogFile] = []
        """Every log, by its number."""
        self._ids: dict[Source, int] = {}
        self.nccl = False
        """Whether files of NCCL are among them."""
        self.unreadable: dict[Source, CockpitError] = {}
        """Logs that could not be read, with path, cause and what to do."""
        self._files = OpenFiles(OPEN_FILES, os.O_RDONLY)
        self.recent = Recent()
        """What the spool lacks, if somebody else writes it."""
        for source in sources_of(folder.manifest):
            self.number(source)

    @property
    def outputs(self) -> list[tuple[int, Output]]:
        """The logs that ranks and launchers print, by their numbers, and who does."""
        return [
            (file.id, (node, writer))
            for file in self.files
            for node, writer in [file.source]
            if not isinstance(writer, Nccl)
        ]

    def keep(self, number: int, offset: int, data: bytes) -> None:
        """Keep bytes of a log as long as the spool lacks them."""
        size = self._spooled(number)
        self.recent.forget(number, size)
        if offset + len(data) > size:
            self.recent.keep(number, offset, data)

    def lacks(self) -> bool:
        """Whether the spool lacks bytes that have arrived."""
        for number in self.recent.numbers():
            self.recent.forget(number, self._spooled(number))
            if self.recent.end(number):
                return True
        return False

    def number(self, source: Source) -> int:
        """The number of a log; one that the manifest does not name comes last."""
        number = self._ids.get(source)
        if number is None:
            number = self._ids[source] = len(self.files)
            node, writer = source
            self.nccl |= isinstance(writer, Nccl)
            self.files.append(LogFile(number, source, f"{self._folders[node]}/{file_of(writer)}"))
        return number

    def wanted(self, query: Query) -> frozenset[int] | None:
        """The numbers of the logs that a query is about; None: of all."""
        if not query.narrows and not query.nccl:
            return None
        return frozenset(file.id for file in self.files if query.takes(*file.source))

    def size(self, number: int) -> int:
        """Bytes of a log that are here.

        :raises CockpitError: this process has no descriptor left
        """
        return max(self._spooled(number), self.recent.end(number))

    def _spooled(self, number: int) -> int:
        try:
            file = self._file(number)
            return 0 if file is None else os.fstat(file).st_size
        except OSError as error:
            self._failed(number, error)
            return 0

    def read(self, number: int, start: int, length: int) -> bytes:
        """Bytes of a log; fewer if the others are not here.

        :raises CockpitError: this process has no descriptor left
        """
        data = b""
        try:
            file = self._file(number)
            while file is not None and len(data) < length:
                more = os.pread(file, length - len(data), start + len(data))
                if not more:
                    break
                data = data + more if data else more
        except OSError as error:
            self._failed(number, error)
            return b""
        if len(data) < length and self.recent.size:
            data += self.recent.read(number, start + len(data), length - len(data))
        return data

    def tail(self, source: Source, length: int) -> bytes:
        """The last bytes of a log, at most this many; errors as for :meth:`read`."""
        number = self.number(source)
        return self.read(number, max(0, self.size(number) - length), length)

    def _file(self, number: int) -> int | None:
        path = self.files[number].path
        file = self._files.find(path)
        if file is not None:
            return file
        try:
            return self._files.open(path)
        except FileNotFoundError:
            return None

    def _failed(self, number: int, error: OSError) -> None:
        _, source, path = self.files[number]
        told = os_error("cannot read the spool", path, error)
        if error.errno in _OF_ALL:
            raise told
        self._files.drop(path)
        self.unreadable[source] = told

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def sources_of(manifest: Manifest) -> list[Source]:
    """Who writes the logs of a run."""
    ranks = sorted((rank, node.name) for node in manifest.nodes for rank in node.ranks)
    found: list[Source] = [(node.name, None) for node in manifest.nodes]
    found += [(name, rank) for rank, name in ranks]
    found += [(name, Nccl(rank)) for rank, name in ranks if manifest.nccl_debug]
    return found


Gaps = dict[str, list[tuple[float, int]]]
"""Of files of a node: when each began anew (unix seconds on our clock), and how long our copy was then."""

_SEEN_S = 2.0
"""Our clock and the node's, and who looks first: after this long both have seen that a file began anew."""


def gaps(folder: RunFolder, node: str) -> Gaps:
    """What is known of a node's files that began anew.

    :raises CockpitError: the journal cannot be read
    """
    found: Gaps = {}
    for event in folder.journal():
        if isinstance(event.fact, Gap) and event.node == node and not event.fact.of:
            found.setdefault(event.fact.file, []).append((event.at, event.fact.at))
    return found


class Placed:
    """Finds in our copies what a time index says of the node's files, asked in the order of the index.

    :param known: see :func:`gaps`
    """

    def __init__(self, known: Gaps) -> None:
        self._known = known
        self._passed: dict[str, tuple[int, int]] = {}  # gaps that are over, and the last size

    def end(self, at: float, file: str, size: int) -> int:
        """How long our copy of a file was when the node's had this size.

        :param at: when it had; unix seconds on our clock
        """
        known = self._known.get(file)
        if known is None:
            return size
        passed, before = self._passed.get(file, (0, 0))
        while passed < len(known) and at > known[passed][0] + _SEEN_S:
            passed += 1
        # Of several that nobody here saw one by one, what comes last is what was sent.
        if size < before and passed < len(known) and (not passed or at > known[passed - 1][0]):
            passed += 1
        self._passed[file] = passed, size
        end = size + (known[passed - 1][1] if passed else 0)
        return min(end, known[passed][1]) if passed < len(known) else end


def time_index(folder: RunFolder, node: NodeEntry) -> Iterator[Tick]:
    """The moments of a node's time index, on its clock.

    A damaged line is ignored: it costs order, but no bytes.

    :raises CockpitError: it cannot be read
    """
    root = folder.spool_dir(node)
    return ticks(chain(*(lines(root / name, INDEX_READ) for name in (SIZES, TIMES))))


def last_times(folder: RunFolder, node: NodeEntry) -> Iterator[Tick]:
    """The last moments of a node's time index; none if it cannot be read."""
    root = folder.spool_dir(node)
    for name in INDEX:
        with suppress(OSError), os.fdopen(open_regular(root / name), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_TIMES))
            return ticks(file.read(LAST_TIMES).split(b"\n")[:-1])
    return iter(())


def logs_of(folder: RunFolder, node: NodeEntry) -> dict[str, int]:
    """The logs of a node that are spooled, with their bytes, by file name.

    :raises CockpitError: the folder cannot be read
    """
    root = folder.spool_dir(node)
    try:
        return {
            # Whoever reads it finds out if it is not a file.
            entry.name: entry.stat(follow_symlinks=False).st_size
            if entry.is_file(follow_symlinks=False)
            else 1
            for entry in sorted(os.scandir(root), key=lambda entry: entry.name)
            if is_log(entry.name)
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise os_error("cannot read the spool", root, error) from None
