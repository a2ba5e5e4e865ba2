"""What NCCL in the ranks of a run says: from the files of ``--nccl-debug``, and from the logs."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Collection, Iterable, Iterator, Mapping

from cockpit import config
from cockpit.base import verbs
from cockpit.base.record import LAUNCHER_LOG, rank_log, rank_nccl
from cockpit.core.finding import Finding
from cockpit.core.nccl.findings import notable
from cockpit.core.nccl.lines import LONGEST
from cockpit.core.nccl.reading import Reader, read
from cockpit.core.nccl.table import Table
from cockpit.core.nccl_tests.reading import Reader as TestReader
from cockpit.core.nccl_tests.table import Table as TestTable
from cockpit.core.nccl_tests.table import program_name
from cockpit.engine.files import open_regular
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.engine.links.reading import read_part
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.errors import CockpitError

READ = 8 << 20
"""Bytes of a file of NCCL's own that are read, from its beginning."""
LOG_READ, LOG_LEAST, LOGS_READ = 1 << 20, 64 << 10, 256 << 20
"""The same of a log, in which a user may let NCCL print: communicators are made early. Of many logs less, so
that all of them are not more than the last; but not less than the second."""
ASKED = 256 << 10
"""Bytes of each file of a run that are asked for where it is not copied here: a communicator says some KB."""
PIECE = 256 << 10


def nodes_of(folder: RunFolder) -> dict[int, str]:
    """The node of each rank."""
    return {rank: node.name for node in folder.manifest.nodes for rank in node.ranks}


class NcclReader:
    """Reads what ranks say of their NCCL as our copies grow; each byte once.

    Errors are those of reading a file: what cannot be read says nothing.
    """

    def __init__(self, folder: RunFolder) -> None:
        manifest = folder.manifest
        self._nodes = nodes_of(folder)
        self._reader = Reader()
        log_read = max(LOG_LEAST, min(LOG_READ, LOGS_READ // max(1, len(self._nodes))))
        test = program_name(manifest.program)
        log_read = READ if test else log_read
        self._parts = [
            Part(str(folder.spool_dir(node) / name), node.name, rank, most, test)
            for node in manifest.nodes
            for rank in node.ranks
            for name, most in (
                (rank_log(rank), log_read),
                *([(rank_nccl(rank), READ)] if manifest.nccl_debug else []),
            )
        ]
        if manifest.foreign is not None:
            self._parts += [
                Part(str(folder.spool_dir(node) / LAUNCHER_LOG), node.name, None, READ, test)
                for node in manifest.nodes
            ]

    def read(self) -> bool:
        """Read what is new; return whether anything is."""
        grown = False
        for part in self._parts:
            grown |= part.read(self._reader)
        return grown

    def more(self, rank: int, data: bytes) -> None:
        """Take the beginning of a file that is not here, or less of it."""
        read([data], self._reader, rank)

    def table(self) -> Table:
        """What was said so far."""
        return self._reader.table(self._nodes)

    def tests(self, whole: Collection[str] = ()) -> Iterator[tuple[Part, TestTable]]:
        """What programs of nccl-tests have measured so far, and where it is.

        :param whole: nodes of which all that was printed is here: a table without an end is damaged
        """
        for part in self._parts:
            for table in part.tests(over=part.node in whole):
                yield part, table


class Part:
    """A file, and how far it was read.

    :param node: where it is written
    :param rank: whose it is; None: a console
    :param most: bytes that are read
    :param test: the program of nccl-tests that is started; empty: none, as far as is known
    """

    def __init__(self, path: str, node: str, rank: int | None, most: int, test: str) -> None:
        self.path, self.node, self.rank, self._most = path, node, rank, most
        self._tests = TestReader(test)
        self._at = 0
        self._rest = b""

    def read(self, reader: Reader) -> bool:
        if self._at >= self._most:
            return False
        before = self._at
        try:
            # Not kept open: a run may have more ranks than a process may have files.
            with os.fdopen(open_regular(self.path), "rb", buffering=0) as file:
                file.seek(self._at)
                while self._at < self._most and (data := file.read(PIECE)):
                    self._at += len(data)
                    self._take(reader, data)
        except OSError:
            return self._at > before
        return self._at > before

    def _take(self, reader: Reader, data: bytes) -> None:
        data = self._rest + data
        whole = data.rfind(b"\n") + 1
        reader.take(data[:whole], self.rank)
        self._tests.take(data[:whole])
        self._rest = data[whole:]
        if len(self._rest) > 2 * LONGEST:
            reader.take(self._rest, self.rank)
            self._rest = b""

    def tests(self, *, over: bool) -> Iterator[TestTable]:
        """The tables of nccl-tests in it.

        :param over: whether all that was printed is here
        """
        return self._tests.tables(over=over and self._at < self._most)


def table_here(folder: RunFolder) -> Table:
    """What is known here."""
    heard = NcclReader(folder)
    heard.read()
    return heard.table()


def notable_of(heard: NcclReader) -> tuple[Finding, ...]:
    """What is worth saying of that, in the language to explain in; none if the settings want none."""
    settings = config.load()
    return notable(heard.table(), settings.language) if settings.notices.nccl else ()


async def table_now(
    folder: RunFolder, pool: LinkPool | None, nodes: Iterable[str]
) -> tuple[Table, dict[str, str]]:
    """What is known here, and of these nodes what they have.

    :param pool: None: no node is asked
    :return: and of nodes that could not be asked, why
    """
    wanted = set(nodes) if pool is not None else set()
    entries = [node for node in folder.manifest.nodes if node.name in wanted]
    answers: Mapping[str, dict[int, bytes]] = {}
    errors: Mapping[str, CockpitError] = {}
    if pool is not None and entries:
        answers, errors = await settle({node.name: _asked(pool, folder, node) for node in entries})

    def merged() -> Table:
        heard = NcclReader(folder)
        heard.read()
        for found in answers.values():
            for rank, data in found.items():
                heard.more(rank, data)
        return heard.table()

    return await asyncio.to_thread(merged), {name: error.what for name, error in errors.items()}


async def _asked(pool: LinkPool, folder: RunFolder, node: NodeEntry) -> dict[int, bytes]:
    """The beginning of what NCCL in each rank of a node has written."""
    link: Link = await pool.lend(node.name)
    own = folder.manifest.nccl_debug
    names = {rank_nccl(rank) if own else rank_log(rank): rank for rank in node.ranks}
    word = f"{glob.escape(node.dir)}/rank-*.{'nccl' if own else 'log'}"
    found = {os.path.basename(one.file): one.size for one in (await link.call(verbs.Find((word,)))).files}
    return {
        rank: await read_part(link, node.dir, name, 0, min(ASKED, found[name]))
        for name, rank in names.items()
        if found.get(name)
    }
