"""Our copy of a node's files: byte-exact, grown at the end only: its size is the next offset to ask for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from cockpit.base import times
from cockpit.base.record import EVENTS, INDEX, LAUNCHER_LOG, SIZES, SIZES_READ, TIMES
from cockpit.config import Quotas
from cockpit.engine.files import OpenFiles, append, open_regular
from cockpit.engine.quotas import QuotaReached, Space, exceeded
from cockpit.errors import CockpitError, NoRoom, os_error
from cockpit.private import private_dir

OPEN_FILES = 64
"""Files kept open for writing, of all nodes together: a run may have more than a process may open."""

RECORD = (EVENTS, *INDEX)
"""What the supervisor writes: each has its own quota, so that states still arrive when the others pause."""

_INDEX_BYTES = {TIMES: 2 * times.LIMIT, SIZES: SIZES_READ}
"""Of a time index: more than a supervisor's has."""

_ONE_FILE = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENXIO)
"""Errors about one file or folder, which say nothing about the others."""


class SpoolUnusable(CockpitError):
    """The files of one node cannot be used here; those of others may be usable."""


class Shelf:
    """What the spools of one run share: descriptors and room.

    :param folder: the run's folder
    :param quotas: how much may be written
    """

    def __init__(self, folder: Path, quotas: Quotas) -> None:
        self.files = OpenFiles(OPEN_FILES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.quotas = quotas
        self.room = Space(folder, quotas)

    def close(self) -> None:
        """Close the files."""
        self.files.close()


class Spool:
    """The files of one node in one local folder.

    :param folder: created (0700) when the first byte arrives
    :param shelf: the run's shelf
    """

    def __init__(self, folder: Path, shelf: Shelf | None = None) -> None:
        self.folder = folder
        self._shelf = shelf or Shelf(folder.parents[1], Quotas())
        self._known: dict[str, int] | None = None

    @property
    def _sizes(self) -> dict[str, int]:
        if self._known is None:
            self._known = _look(self.folder)
        return self._known

    def offsets(self) -> dict[str, int]:
        """How many bytes of each file are here.

        :raises SpoolUnusable: the folder cannot be read
        """
        return dict(self._sizes)

    def look_again(self) -> None:
        """Another cockpit has written here: what is known of its files is out of date."""
        self._known = None

    def append(self, name: str, offset: int, data: bytes) -> bytes:
        """Add ``data``, found at ``offset`` in the node's file; return the part of it that was new.

        :raises QuotaReached: there is no room for it: nothing of it was written
        :raises SpoolUnusable: this node's folder or file cannot be used, or bytes in between are missing
        :raises CockpitError: the disk here is read-only or broken
        """
        size = self._sizes.get(name, 0)
        if offset > size:
            raise SpoolUnusable(f"spool has {size} bytes, the node sends from {offset}", where=name)
        fresh = data[size - offset :]
        if not fresh:
            return fresh
        self._check(name, len(fresh))
        path = str(self.folder / name)
        try:
            append(self._open(path, size), fresh, size)
        except OSError as error:
            # Opened again, its size is compared with what we know.
            self._shelf.files.drop(path)
            told = os_error("cannot write the spool", path, error)
            if isinstance(told, NoRoom):
                raise self._shelf.room.refused(told) from None
            kind = SpoolUnusable if error.errno in _ONE_FILE else CockpitError
            raise _refused(kind, told) from None
        self._sizes[name] = size + len(fresh)
        return fresh

    def offset(self, name: str) -> int:
        """How much there is of a file that somebody else writes; 0 if it cannot be read."""
        try:
            return (self.folder / name).stat(follow_symlinks=False).st_size
        except OSError:
            return 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        """What somebody else, who writes it, has added to a file; empty if it cannot be read."""
        try:
            number = open_regular(self.folder / name, os.O_RDONLY)
        except OSError:
            return b""
        try:
            return os.pread(number, length, offset)
        finally:
            os.close(number)

    def cut(self, name: str, size: int) -> None:
        """Take back what a file has beyond this many bytes: nobody has noted where that came from.

        :raises SpoolUnusable: it cannot be cut
        """
        if self._sizes.get(name, 0) <= size:
            return
        path = str(self.folder / name)
        try:
            self._shelf.files.drop(path)
            os.ftruncate(self._shelf.files.open(path), size)
        except OSError as error:
            raise _refused(SpoolUnusable, os_error("cannot cut the spool", path, error)) from None
        self._sizes[name] = size

    def wait_for(self, size: int) -> QuotaReached | None:
        """Why ``size`` more bytes of logs would still find no room; None: they would."""
        try:
            self._check(LAUNCHER_LOG, size)
        except QuotaReached as error:
            return error
        return None

    def _check(self, name: str, size: int) -> None:
        quotas, sizes = self._shelf.quotas, self._sizes
        if name == EVENTS:
            if sizes.get(name, 0) + size > quotas.record_bytes:
                raise exceeded("record_bytes", quotas.record_bytes, self.folder)
            return
        if name in INDEX:
            if sizes.get(name, 0) + size > _INDEX_BYTES[name]:
                raise QuotaReached(f"its time index has over {_INDEX_BYTES[name] >> 20} MiB")
            self._shelf.room.check(size)
            return
        recorded = sum([sizes.get(each, 0) for each in RECORD])
        if name not in sizes and len(sizes) >= quotas.spool_files:
            raise exceeded("spool_files", quotas.spool_files, self.folder)
        if sum(sizes.values()) - recorded + size > quotas.spool_bytes:
            raise exceeded("spool_bytes", quotas.spool_bytes, self.folder)
        self._shelf.room.check(size)

    def _open(self, path: str, size: int) -> int:
        number = self._shelf.files.find(path)
        if number is not None:
            return number
        private_dir(self.folder)
        number = self._shelf.files.open(path)
        found = os.fstat(number).st_size
        if found != size:
            what = f"was changed by another program: it has {found} bytes, not {size}"
            raise SpoolUnusable(what, where=path, hint="leave this cockpit, and attach again")
        return number

    def close(self) -> None:
        """Close the files."""
        self._shelf.close()


def _look(folder: Path) -> dict[str, int]:
    """The sizes of the files in a folder."""
    try:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_size
            for entry in os.scandir(folder)
            if entry.is_file(follow_symlinks=False)
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _refused(SpoolUnusable, os_error("cannot read the spool", folder, error)) from None


def _refused(kind: type[CockpitError], told: CockpitError) -> CockpitError:
    hint = f"{told.hint}: nothing is lost, the node keeps its files" if told.hint else ""
    return kind(told.what, where=told.where, hint=hint)
