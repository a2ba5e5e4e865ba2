"""Folder trees: what one takes of a disk, and removing one.

Both stay on the file system where they began and follow no link; both are bounded in time and number.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

TRASH = ".removed-"
"""Begins the name that a folder gets before it is deleted: what then remains of it looks like no run."""

FILES = 2_000_000
"""Files and folders that are looked at, or deleted, in one go."""

_DEPTH = 200
"""Folders within each other; each takes an open file."""


class Taken(NamedTuple):
    """What a tree takes.

    :param bytes: of the disk: a sparse file takes what it has, a file of several names counts once
    :param files: files and folders
    :param written: when the newest of its files was written, unix seconds; 0: there is none
    :param whole: whether all of it was looked at
    :param mounted: a folder in it that is on another file system; empty: there is none
    """

    bytes: int
    files: int
    written: float
    whole: bool
    mounted: str


class Cleared(NamedTuple):
    """What was deleted.

    :param bytes: of the disk, as far as no other name of the same files is left
    :param left: why something is left, in words; empty: nothing is
    :param late: whether that is for lack of time alone: doing it again goes on
    """

    bytes: int
    left: str
    late: bool


class _Late(Exception):
    """The time, or the number of files, is used up."""


class _Bounds:
    """How much may still be done."""

    def __init__(self, until: float, files: int) -> None:
        self._until, self._files = until, files

    def count(self) -> None:
        """One more.

        :raises _Late: that is too many
        """
        self._files -= 1
        if self._files < 0 or time.monotonic() > self._until:
            raise _Late


def measured(path: str, until: float, files: int = FILES) -> Taken:
    """What a folder and all in it take; of a folder that cannot be read only what it takes itself.

    :param until: when to give up, by :func:`time.monotonic`
    """
    total = count = 0
    newest, whole, mounted = 0.0, True, ""
    seen: Dict[Tuple[int, int], None] = {}
    bounds = _Bounds(until, files)
    device: Optional[int] = None
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            for name, info in _entries(folder):
                bounds.count()
                device = info.st_dev if device is None else device
                if info.st_dev != device:
                    mounted = mounted or name
                    continue
                if not stat.S_ISDIR(info.st_mode):
                    newest = max(newest, info.st_mtime)
                elif name != folder:
                    waiting.append(name)
                    continue  # counted when its turn comes
                if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
                    if (info.st_dev, info.st_ino) in seen:
                        continue
                    seen[info.st_dev, info.st_ino] = None
                total += info.st_blocks * 512
                count += 1
        except OSError:
            whole = False
        except _Late:
            whole = False
            break
    return Taken(total, count, newest, whole, mounted)


def _entries(folder: str) -> Iterator[Tuple[str, os.stat_result]]:
    """A folder itself, then what is in it.

    :raises OSError: it cannot be read
    """
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    yield folder, info
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                yield entry.path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # removed this moment


def trash_name() -> str:
    """A name for a folder that is to be deleted, which nobody else chooses."""
    return TRASH + secrets.token_hex(8)


def cleared(path: str, until: float, files: int = FILES) -> Cleared:
    """Delete a folder and all in it, as far as that is possible; what another deletes meanwhile is no error.

    :param until: when to give up, by :func:`time.monotonic`
    """
    done = _Clearing(_Bounds(until, files))
    late = False
    try:
        done.remove(path)
    except _Late:
        late = True
        done.trouble.append("that takes longer")
    except FileNotFoundError:
        pass
    except OSError as error:
        done.trouble.append(_words(error, path))
    return Cleared(done.bytes, done.trouble[0] if done.trouble else "", late and len(done.trouble) == 1)


class _Clearing:
    def __init__(self, bounds: _Bounds) -> None:
        self.bytes = 0
        self.trouble: List[str] = []
        self._bounds = bounds
        self._device = -1

    def remove(self, path: str) -> None:
        """Delete the folder where all begins.

        :raises OSError: it is no folder, or cannot be opened or removed
        :raises _Late: not all could be deleted in time
        """
        self._device = os.lstat(path).st_dev
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._empty(number, path, _DEPTH)
        finally:
            os.close(number)
        if not self.trouble:
            os.rmdir(path)

    def _empty(self, folder: int, path: str, depth: int) -> None:
        with contextlib.suppress(OSError):  # then what cannot be deleted says so
            os.fchmod(folder, 0o700)  # a program may have made it read-only
        for name in os.listdir(folder):
            self._bounds.count()
            place = os.path.join(path, name)
            try:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    self._remove_folder(folder, name, place, info.st_dev, depth - 1)
                else:
                    os.unlink(name, dir_fd=folder)
                    self.bytes += info.st_blocks * 512 if info.st_nlink == 1 else 0
            except FileNotFoundError:
                continue
            except OSError as error:
                self.trouble.append(_words(error, place))

    def _remove_folder(self, above: int, name: str, place: str, device: int, depth: int) -> None:
        if device != self._device:
            raise OSError(errno.EXDEV, "another file system is mounted there")
        if not depth:
            raise OSError(errno.ELOOP, "too many folders within each other")
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        number = os.open(name, flags, dir_fd=above)
        try:
            if os.fstat(number).st_dev != self._device:
                raise OSError(errno.EXDEV, "another file system is mounted there")
            before = len(self.trouble)
            self._empty(number, place, depth)
        finally:
            os.close(number)
        if len(self.trouble) == before:
            os.rmdir(name, dir_fd=above)


def _words(error: OSError, place: str) -> str:
    return "%s: %s" % (place, error.strerror or type(error).__name__)
