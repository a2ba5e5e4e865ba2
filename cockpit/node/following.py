"""One way to follow a file that grows: it may be shortened, replaced, moved away or out of reach meanwhile.

A file that was read goes on only where what was read is: by its inode, and by its first bytes and those
before the offset. If another file has its name by then, what was moved or copied away is read to its end
first; then the new one is read from its start. A file that is emptied under a program that does not append
goes on with a hole as long as it was: its start is where the hole ends, for offsets too.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import Callable, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple, TypeVar

from cockpit.base.trail import SPAN, Trail
from cockpit.node import safefiles

AGAIN_S, REST = 1.0, 50
"""Seconds between two searches for a file that is gone; and so many times as long as one takes."""

KIN = 16
"""Files whose names begin with that of a followed one that are compared with it, the newest ones."""

OFTEN, OFTEN_S = 8, 10.0
"""A file that has begun anew so many times does so once in that many seconds: it is not made to be read."""

_GONE = "is gone"
_SHORTENED = "was truncated on its node before all of it was read: %d bytes missing"

Key = TypeVar("Key", int, str)

Identity = Tuple[int, int]
"""Device and inode."""


class Begun(NamedTuple):
    """A file goes on from its start.

    :param end: how long it was before, at least, as far as anybody saw; None: nobody did
    """

    end: Optional[int]


class Place:
    """Where a file is: a path.

    :param link: it is a descriptor of a process in /proc
    """

    def __init__(self, path: str, *, link: bool = False) -> None:
        self.path = path
        self._link = link

    def stat(self) -> Optional[os.stat_result]:
        """The regular file that is there; None: there is none.

        :raises OSError: that cannot be told now
        """
        try:
            found = os.stat(self.path) if self._link else os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    def open(self) -> int:
        """A descriptor for reading it.

        :raises OSError: it is not there, is no regular file, or may not be read
        """
        return safefiles.opened(self.path, link=self._link)

    def release(self, number: int) -> None:
        """Give back what :meth:`open` gave."""
        os.close(number)


class Held(Place):
    """A file that is kept open: its process may end, and its name may go to another."""

    def __init__(self, path: str, number: int) -> None:
        super().__init__(path)
        self._number = number

    def stat(self) -> Optional[os.stat_result]:
        """See :meth:`Place.stat`."""
        return os.fstat(self._number)

    def open(self) -> int:
        """See :meth:`Place.open`."""
        return self._number

    def release(self, number: int) -> None:
        """It stays open."""

    def close(self) -> None:
        """It is not read any more."""
        os.close(self._number)


class Followed:
    """A file that is read from an offset on, again and again.

    :param here: where it is
    :param offset: bytes that the other side has
    :param mark: see :attr:`cockpit.base.trail.Trail.mark`; None: not known
    :param marked: of so many of its bytes; None: of those that the other side has
    :param written: gives the files that whoever writes it has open
    :param was: tells how long it was before it began anew, as far as others have seen that
    """

    def __init__(
        self,
        here: Place,
        offset: int = 0,
        mark: Optional[int] = None,
        marked: Optional[int] = None,
        written: Callable[[], Iterable[str]] = tuple,
        was: Callable[[], Optional[int]] = lambda: None,
    ) -> None:
        self.offset = offset
        self.size = self._size = 0
        self.trouble = ""
        """Why it cannot be read now; empty: it can."""
        self._here = self._at = here
        self._written, self._was = written, was
        self._identity: Optional[Identity] = None
        self._trail = None if offset else Trail()
        self._mark, self._marked = mark, offset if marked is None else max(offset, marked)
        self._hole = 0
        """Bytes before its start that nobody has written."""
        self._missing = 0
        """Bytes that were there, and were cut off before they were read."""
        self._seen: Optional[int] = None
        """How long it was when it was last known to be this file."""
        self._info: Optional[os.stat_result] = None
        """What it was like when it was last known to be this file, and open."""
        self._search_at = self._begun_at = 0.0
        self._begun = 0

    @property
    def behind(self) -> int:
        """Bytes that the other side does not have, as of the last look."""
        return max(0, self.sent - self.offset)

    @property
    def sent(self) -> int:
        """How long it is as far as it is sent, as of the last look."""
        return self.size

    @property
    def mark(self) -> Optional[int]:
        """What tells the bytes before the offset from others; see :class:`Trail`."""
        return None if self._trail is None else self._trail.mark

    @property
    def lacks(self) -> bool:
        """Whether something that was in it is gone: it began anew, or is not there."""
        return self._begun > 0 or self.trouble == _GONE

    def look(self) -> Optional[Begun]:
        """See how long it is; return if it begins anew: what is read next is from its start."""
        try:
            info, cut = self._at.stat(), 0
            if info is not None and self._identity == _identity(info) and info.st_size < self._size:
                if not self.offset:
                    return self._anew(info, self._size - self._hole)
                self._identity = None  # it was shortened, and may have grown again
                cut = self._size - info.st_size
            if info is not None and self._goes_on(info):
                self._missing += cut
                self._saw(info)
                return self._back() if self._at is not self._here and not self.behind else None
            return self._search()
        except OSError as error:
            self._fail(error)
            return None

    def read(self, room: int) -> bytes:
        """The next bytes, at most ``room``; none if it is not the file any more that was looked at."""
        try:
            number = self._at.open()
            try:
                return self._read(number, min(room, self.behind))
            finally:
                self._at.release(number)
        except OSError as error:
            self._fail(error)
            return b""

    def _read(self, number: int, room: int) -> bytes:
        trail = self._trail
        info = os.fstat(number)
        if trail is None or _identity(info) != self._identity:
            return self._doubt()
        if not self.offset:
            self._hole = safefiles.hole(number, info.st_size)
            self._saw(info)
        known = len(trail.tail)
        data = os.pread(number, known + room, self._hole + self.offset - known)
        if data[:known] != trail.tail or not _begins(number, self._hole, trail):
            return self._doubt()
        data = data[known:]
        trail.add(data)
        self.offset += len(data)
        self._seen, self._info = max(self.offset, info.st_size - self._hole), info
        return data

    def _doubt(self) -> bytes:
        """It seems to be another file: the next look compares it."""
        self._identity = None
        self.size = self.offset
        return b""

    def _fail(self, error: OSError) -> None:
        """It cannot be read now, and is tried again."""
        self.size = self.offset
        if not isinstance(error, FileNotFoundError):
            self.trouble = "cannot be read: %s" % (error.strerror or error)

    def _saw(self, info: os.stat_result) -> None:
        self._size = info.st_size
        self.size = max(0, info.st_size - self._hole)
        self.trouble = _SHORTENED % self._missing if self._missing else ""

    def _goes_on(self, info: os.stat_result) -> bool:
        """Whether what is there is what was read so far, and perhaps more.

        :raises OSError: it cannot be read
        """
        if info.st_size < self._hole + self.offset:
            return False
        if self._identity is not None:
            return self._identity == _identity(info)
        return self._fits(self._at)

    def _fits(self, place: Place) -> bool:
        """Whether a file begins with what was read; if so, it is the one to read.

        :raises OSError: it cannot be read
        """
        number = place.open()
        try:
            info = os.fstat(number)
            hole = safefiles.hole(number, info.st_size)
            size = info.st_size - hole
            if size < self.offset:
                return False
            if self._trail is None:
                marked = self._mark is not None
                if marked and (size < self._marked or _trail(number, hole, self._marked).mark != self._mark):
                    return False
                self._trail = _trail(number, hole, self.offset)
            else:
                known = self._trail.tail
                same = os.pread(number, len(known), hole + self.offset - len(known)) == known
                if not same or not _begins(number, hole, self._trail):
                    return False
        finally:
            place.release(number)
        self._identity, self._at, self._seen, self._hole = _identity(info), place, size, hole
        self._info = info
        self._saw(info)
        return True

    def _search(self) -> Optional[Begun]:
        """Look for it elsewhere; if it is not there, what is here now begins."""
        self.size = self.offset
        info, now = self._here.stat(), time.monotonic()
        if info is None and (not self.offset or now < self._search_at):
            return None  # there was nothing yet, or it was looked for just now
        if info is not None and self._is_often():
            return None
        for place in self._others() if self.offset else ():
            with suppress(OSError):
                if self._fits(place):
                    return None
        self._search_at = now + AGAIN_S * max(1.0, REST * (time.monotonic() - now))
        if info is None:
            self.trouble = _GONE
            return None
        return self._anew(info, self._was() if self._seen is None else self._seen)

    def _back(self) -> Optional[Begun]:
        """What was moved away is read to its end: is more to come, and where?"""
        info = self._here.stat()
        if info is None:
            return None
        if _identity(info) == self._identity:
            self._at = self._here
            return None
        if not info.st_size or self._identity in self._writes():
            return None  # there is nothing, or whoever writes it still has it open
        return self._anew(info, self.offset)

    def _anew(self, info: os.stat_result, end: Optional[int]) -> Optional[Begun]:
        """What is here is read from its start."""
        if self._is_often():
            self.size = self.offset
            return None
        before, hole = self._info, self._hole_of(info)
        if before is not None and _identity(before) == _identity(info) and hole > self._hole:
            end = max(end or 0, hole - self._hole)  # it was as long as that when it was emptied
        nothing = not self.offset and not end
        self._at, self._identity = self._here, _identity(info)
        self._trail, self.offset, self._seen, self._info = Trail(), 0, 0, info
        self._hole, self._missing = hole, 0
        self._saw(info)
        if nothing:
            return None  # of an empty file, nothing is missing
        self._begun, self._begun_at = self._begun + 1, time.monotonic()
        return Begun(end)

    def _hole_of(self, info: os.stat_result) -> int:
        """Bytes before the start of what is here that nobody has written.

        :raises OSError: it cannot be read
        """
        number = self._here.open()
        try:
            return safefiles.hole(number, info.st_size)
        finally:
            self._here.release(number)

    def _is_often(self) -> bool:
        return self._begun >= OFTEN and time.monotonic() < self._begun_at + OFTEN_S

    def _writes(self) -> Set[Identity]:
        """The files that whoever writes it has open."""
        return {identity for _, identity in self._opened()}

    def _opened(self) -> Iterator[Tuple[str, Identity]]:
        for path in self._written():
            with suppress(OSError):
                yield path, _identity(os.stat(path))

    def _others(self) -> Iterator[Place]:
        """Where it may be if it is not where it was: moved or copied away, or open still."""
        yield self._here
        folder, name = os.path.split(self._here.path)
        with suppress(OSError):
            names = (one.path for one in os.scandir(folder) if one.name.startswith(name) and one.name != name)
            kin = [(info.st_mtime, path) for path in names if (info := self._kin(path)) is not None]
            yield from (Place(path) for _, path in sorted(kin, reverse=True)[:KIN])
        last = self._info
        for path, identity in self._opened():
            # Of two open files with the same lines, such as what a program logs itself, one is this one.
            if last is None or identity == _identity(last):
                yield Place(path, link=True)

    def _kin(self, path: str) -> Optional[os.stat_result]:
        """What it may have been moved or copied to; None: it is another's, or as it was before that."""
        try:
            info = os.lstat(path)
        except OSError:
            return None
        last = self._info
        if last is None or _identity(info) == _identity(last):
            return info
        new = info.st_ctime_ns >= last.st_ctime_ns and info.st_uid in (last.st_uid, os.geteuid(), 0)
        return info if new else None


def batch(files: Mapping[Key, Followed], room: int, turn: int) -> Tuple[List[Tuple[Key, int, int]], bytes]:
    """Up to ``room`` new bytes, fairly divided among the files that have any: [(name, offset, length), …].

    :param turn: which of them comes first
    """
    behind = [name for name, file in files.items() if file.behind]
    parts: List[Tuple[Key, int, int]] = []
    chunks: List[bytes] = []
    for place in range(len(behind)):
        if room <= 0:
            break
        name = behind[(place + turn) % len(behind)]
        # What earlier files did not need goes to the others.
        share = max(room // (len(behind) - place), 4096)
        offset = files[name].offset
        chunk = files[name].read(min(share, room))
        if chunk:
            parts.append((name, offset, len(chunk)))
            chunks.append(chunk)
            room -= len(chunk)
    return parts, b"".join(chunks)


def _identity(info: os.stat_result) -> Identity:
    return info.st_dev, info.st_ino


def _trail(number: int, start: int, size: int) -> Trail:
    """The first bytes of an open file from its start on, in short."""
    span = min(SPAN, size)
    return Trail(size, os.pread(number, span, start), os.pread(number, span, start + size - span))


def _begins(number: int, start: int, trail: Trail) -> bool:
    """Whether a file has the first bytes that were read."""
    return trail.size <= SPAN or os.pread(number, len(trail.head), start) == trail.head
