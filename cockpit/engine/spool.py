"""Our copy of a node's files: byte-exact, grown at the end only: its size is the next offset to ask for."""

from __future__ import annotations

import os
from pathlib import Path

from cockpit import paths
from cockpit.errors import CockpitError


class Spool:
    """The files of one node in one local folder.

    :param folder: made (0700) when the first byte comes
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        if folder.is_dir():
            self._sizes = {
                entry.name: entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()
            }

    def offsets(self) -> dict[str, int]:
        """How many bytes of each file are here."""
        return dict(self._sizes)

    def append(self, name: str, offset: int, data: bytes) -> bytes:
        """Add ``data``, which stands at ``offset`` of the node's file; return what of it was new.

        :raises CockpitError: bytes in between are missing, or the disk here is full
        """
        size = self._sizes.get(name, 0)
        if offset > size:
            raise CockpitError(f"spool has {size} bytes, the node sends from {offset}", where=name)
        fresh = data[size - offset :]
        try:
            number = self._open(name)
            rest = memoryview(fresh)
            while rest:
                rest = rest[os.write(number, rest) :]
        except OSError as error:
            self._truncate(name, size)
            raise CockpitError(
                f"cannot write the spool: {error.strerror}",
                where=str(self.folder / name),
                hint="free some space: nothing is lost, the node keeps its files",
            ) from None
        self._sizes[name] = size + len(fresh)
        return fresh

    def _open(self, name: str) -> int:
        number = self._files.get(name)
        if number is None:
            paths.private_dir(self.folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            number = self._files[name] = os.open(self.folder / name, flags, 0o600)
        return number

    def _truncate(self, name: str, size: int) -> None:
        """Take back a half-written chunk, so that the size stays the truth."""
        number = self._files.get(name)
        if number is not None:
            os.ftruncate(number, size)

    def close(self) -> None:
        """Close the files."""
        for number in self._files.values():
            os.close(number)
        self._files.clear()
