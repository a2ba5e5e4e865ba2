"""Spools and logbooks of runs that were never launched."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cockpit.base.record import SIZES
from cockpit.core.logs import sources
from cockpit.engine.logs.book import Logbook, Row, Source
from cockpit.engine.logs.reader import Reader
from cockpit.engine.logs.spool import Spool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry

CREATED = 1000.0


def run_folder(path: Path, nodes: Mapping[str, Sequence[int]], *, nccl: bool = False) -> RunFolder:
    """A run's folder with nothing but a manifest.

    :param nccl: whether NCCL writes files of its own
    """
    entries = [NodeEntry(name, "/nowhere", list(ranks)) for name, ranks in nodes.items()]
    manifest = Manifest(path.name, CREATED, entries, "command", ["train"], "/", nccl_debug=nccl)
    path.mkdir(exist_ok=True)
    (path / "manifest.json").write_text(json.dumps(asdict(manifest)))
    return RunFolder(path)


class Writer:
    """Writes the spool of a run as a session does, and feeds a book with it if there is one."""

    def __init__(self, folder: RunFolder, book: Logbook | None = None) -> None:
        self.folder = folder
        self.book = book
        self.written: dict[Source, bytes] = defaultdict(bytes)
        self._spools = {node.name: Spool(folder.spool_dir(node)) for node in folder.manifest.nodes}
        self._changed: dict[str, dict[str, int]] = defaultdict(dict)

    def write(self, node: str, writer: sources.Writer, data: bytes) -> None:
        """Append to a log."""
        file = sources.file_of(writer)
        offset = len(self.written[node, writer])
        self._spools[node].append(file, offset, data)
        self.written[node, writer] += data
        self._changed[node][file] = offset + len(data)
        if self.book is not None:
            self.book.feed(node, writer, offset, data)

    def tick(self, at: float) -> None:
        """Write what has changed to the time indexes."""
        for node in self.folder.manifest.nodes:
            if sizes := self._changed.pop(node.name, None):
                with (self.folder.spool_dir(node) / SIZES).open("a") as file:
                    file.write(json.dumps({"t": at, "s": sizes}) + "\n")

    def close(self) -> None:
        """Close the files."""
        for spool in self._spools.values():
            spool.close()


def all_after(reader: Reader, count: int = 7, budget_s: float = 0.0) -> list[Row]:
    """Every row, read forwards in pages."""
    rows: list[Row] = []
    at, more = (0, 0), True
    while more:
        page = reader.after(at, count, budget_s)
        assert len(page.rows) <= count
        rows += page.rows
        assert page.resume > at or not page.more
        at, more = page.resume, page.more
    return rows


def all_before(reader: Reader, count: int = 7, budget_s: float = 0.0) -> list[Row]:
    """Every row, read backwards in pages."""
    rows: list[Row] = []
    at, more = None, True
    while more:
        page = reader.before(at, count, budget_s)
        assert len(page.rows) <= count
        assert at is None or page.resume < at or not page.more
        rows[:0] = page.rows
        at, more = page.resume, page.more
    return rows


def by_source(rows: Sequence[Row]) -> dict[Source, list[bytes]]:
    """What each source said."""
    said: dict[Source, list[bytes]] = defaultdict(list)
    for row in rows:
        for source, text in row.said:
            said[source].append(text)
    return dict(said)
