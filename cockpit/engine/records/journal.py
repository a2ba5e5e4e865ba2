"""The journal of a run: events of ours in one file, in the order in which they happened."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cockpit.base.gate import Malformed
from cockpit.core.run.events import Event, journaled
from cockpit.engine.files import append, lines, open_regular
from cockpit.errors import NoRoom, os_error

READ = 16 << 20
"""Bytes of a journal that are read: of a larger one the beginning and the end."""

PENDING = 1 << 20
"""Bytes of events that wait for room on the disk."""


class Journal:
    """One run's journal.

    :param path: its file
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._size = 0
        self._pending = b""
        self.refused: NoRoom | None = None
        """Why events wait for room on the disk; None: none do."""
        self.damaged = 0
        """Lines that made no sense when it was read last."""

    def write(self, event: Event, *, waits: bool) -> None:
        """Append an event: all of it, or nothing.

        :param waits: if the disk is full, it is written with the next one for which there is room
        :raises CockpitError: it cannot be written
        """
        data = self._pending + (json.dumps(event.as_json()) + "\n").encode()
        try:
            self._append(data)
        except OSError as error:
            self._close_file()
            refused = os_error("cannot write the journal", self._path, error)
            if not waits or not isinstance(refused, NoRoom) or len(data) > PENDING:
                raise refused from None
            self._pending, self.refused = data, refused
        else:
            self._pending, self.refused = b"", None

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._file = open_regular(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self._size = os.fstat(self._file).st_size
            if os.pread(self._file, 1, max(0, self._size - 1)) not in (b"", b"\n"):
                data = b"\n" + data  # completes a line that a crash cut off
        append(self._file, data, self._size)
        self._size += len(data)

    def read(self) -> Iterator[Event]:
        """What was written so far; damaged lines are ignored, and counted.

        :raises CockpitError: it cannot be read
        """
        self.damaged = 0
        for line in lines(self._path, READ):
            try:
                event = journaled(line)
            except Malformed:
                self.damaged += 1
                continue
            if event is not None:
                yield event

    def close(self) -> None:
        """Write what waits, if there is room now, and close the file."""
        if self._pending:
            with suppress(OSError):  # that it waits for room has been said
                self._append(self._pending)
            self._pending, self.refused = b"", None
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None
