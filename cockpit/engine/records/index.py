"""The index: each run known here in one line, so that a thousand of them are listed as quickly as ten.

It says nothing that the folders of runs do not say. A line counts as long as the files that it was made of
are the same; what is missing, damaged, outdated or of another version is made again. Several cockpits may
write it: the last one wins, and what it lacks is made again, too.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any

from cockpit import __version__, config, paths
from cockpit.base.gate import Definition, ListOf, Malformed, Of, Text, Whole, bound, parsed, plain, read
from cockpit.core.run.brief import DAMAGED, Brief
from cockpit.engine.files import lines
from cockpit.engine.records.folder import STEP_LOG, RunFolder, run_folders
from cockpit.engine.records.states import FILE as NOW
from cockpit.errors import CockpitError
from cockpit.private import private_dir

FORMAT = 2

EVERY_S = 5.0
"""Seconds of making lines after which those that are made are written."""

LINE_LIMIT = 64 << 10
"""Bytes of a line: a run that says more of itself is read each time."""

_FILES = ("manifest.json", "journal.jsonl", NOW, "pace.jsonl", STEP_LOG)
"""What tells of a run; of one that is not over its copies do, too."""

_NUMBER = Whole(-1, (1 << 63) - 1)


class _Head(Definition):
    """The first line: of which cockpit the others are, and in which language they say what failed."""

    index: int = bound(_NUMBER)
    version: str = bound(Text(100))
    language: str = bound(Text(100))


class _Entry(Definition):
    """A line.

    :param of: what its files were like
    :param copies: what its copies of nodes' files were like; empty: they will not change any more
    """

    of: tuple[int, ...] = bound(ListOf(_NUMBER, 2 * len(_FILES) + 2))
    copies: tuple[int, ...] = bound(ListOf(_NUMBER, 3))
    brief: Brief = bound(Of(Brief))


class Index:
    """The file, and what is missing in it.

    :param make: reads a run; never raises :class:`CockpitError`
    """

    def __init__(self, make: Callable[[RunFolder], Brief]) -> None:
        self._make = make
        self._path = paths.index()
        self._head = _Head(index=FORMAT, version=__version__, language=config.load().language)
        self._lines: dict[str, tuple[float, bytes]] = {}
        """Those that count, by run, and when each run began."""
        self._dirty = False

    def briefs(self, wanted: Callable[[RunFolder], bool] | None = None) -> Iterator[Brief]:
        """All runs known here: those that the index knows, then the others as they are read; newest first.

        :param wanted: whether one that the index does not know is to be read; None: each is
        :raises CockpitError: the folder of runs cannot be read
        """
        rest = {folder.name: folder for folder in run_folders()}
        for entry, line in self._known():
            folder = rest.get(entry.brief.run)
            if folder is None or not self._counts(folder, entry):
                self._dirty = True
                continue
            self._lines[folder.name] = entry.brief.began, line
            del rest[folder.name]
            yield entry.brief
        written = time.monotonic()
        try:
            for folder in sorted(rest.values(), key=_changed, reverse=True):
                if wanted is not None and not wanted(folder):
                    continue
                yield self._made(folder)
                if time.monotonic() >= written + EVERY_S:
                    self._write()
                    written = time.monotonic()
        finally:
            self._write()

    def _known(self) -> Iterator[tuple[_Entry, bytes]]:
        """What the file says; nothing that makes no sense."""
        with suppress(CockpitError):
            content = lines(self._path)
            try:
                if read(_Head, parsed(next(content, b""))) != self._head:
                    return
            except Malformed:
                return
            for line in content:
                with suppress(Malformed):
                    yield read(_Entry, parsed(line)), line

    def _counts(self, folder: RunFolder, entry: _Entry) -> bool:
        """Whether an entry is still true."""
        true = entry.brief.timeless and entry.of == _like(folder)
        return true and (not entry.copies or entry.copies == _copies(folder))

    def _made(self, folder: RunFolder) -> Brief:
        of, copies = _like(folder), _copies(folder)
        brief = self._make(folder)
        if brief.word == DAMAGED or brief.run != folder.name or not brief.timeless:
            return brief
        entry = _Entry(of=of, copies=() if brief.complete else copies, brief=brief)
        line = json.dumps(_short(entry), separators=(",", ":")).encode()
        if len(line) <= LINE_LIMIT:
            self._lines[folder.name] = brief.began, line
            self._dirty = True
        return brief

    def _write(self) -> None:
        """Write the file, if anything is news; without it all of this is true, too."""
        if not self._dirty:
            return
        told = [line for _, line in sorted(self._lines.values(), reverse=True)]
        beside = ""
        try:
            private_dir(self._path.parent)
            # Of its own: another cockpit may be writing it.
            number, beside = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            with os.fdopen(number, "wb") as file:
                file.write(b"\n".join([json.dumps(plain(self._head)).encode(), *told, b""]))
            os.replace(beside, self._path)
        except OSError:
            with suppress(OSError):
                os.unlink(beside)
        self._dirty = False


def _short(entry: _Entry) -> dict[str, Any]:
    """An entry as JSON, without what is as it usually is."""
    usual = {field.name: field.default for field in fields(Brief)}
    told: dict[str, Any] = plain(entry)
    told["brief"] = {
        name: value
        for name, value in told["brief"].items()
        if value != usual[name] and (value or usual[name] != ())
    }
    return told


def _changed(folder: RunFolder) -> float:
    """When its manifest was written: as good as when it began, for the order in which runs are read."""
    with suppress(OSError):
        return os.lstat(f"{folder.path}/manifest.json").st_mtime
    return 0.0


def _like(folder: RunFolder) -> tuple[int, ...]:
    """What the files of a run are like: when the last change was to each, and its bytes; who may write there.

    Not when it was written: whoever may read a file, or write it, is a change as well.
    """
    root = str(folder.path)
    found = []
    for name in _FILES:
        try:
            status = os.lstat(f"{root}/{name}")
        except OSError:
            found += [-1, -1]
        else:
            found += [status.st_ctime_ns, status.st_size]
    with suppress(OSError):
        status = os.stat(root)
        found += [status.st_mode, status.st_uid]
    return tuple(found)


def _copies(folder: RunFolder) -> tuple[int, ...]:
    """What its copies of nodes' files are like: how many, their bytes, and when the last change was."""
    count = size = last = 0
    with suppress(OSError):
        for node in os.scandir(folder.path / "spool"):
            with suppress(OSError):
                for file in os.scandir(node):
                    status = file.stat(follow_symlinks=False)
                    count, size, last = count + 1, size + status.st_size, max(last, status.st_ctime_ns)
    return count, size, last
