"""Where run folders go on a node: whether they can be made there, and be nobody else's."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Sequence

from cockpit.base import owners, users
from cockpit.node import space

_ROOM_BYTES = 2_000_000
"""What a run folder begins with: the code, scripts."""


_ELSEWHERE = "give another place: --node-dir DIR"


class RunFolderError(OSError):
    """The run folder cannot be made where it should be.

    :param what: one sentence for a person; :attr:`hint`: what to type
    """

    def __init__(self, what: str, hint: str = _ELSEWHERE) -> None:
        super().__init__(what)
        self.hint = hint


def trouble(base: str, groups: Sequence[str] = ()) -> str:
    """Why a launch cannot make run folders in ``base``, which it makes if need be; empty: it can.

    Nothing is made or written.

    :param groups: see :func:`make`
    """
    if not os.path.isabs(base):
        return "not an absolute path of a folder: %r" % base
    place = base
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    try:
        if place == base:
            make(base, groups)
        disk = os.statvfs(place)
        if not os.access(place, os.W_OK | os.X_OK):
            why = errno.EROFS if disk.f_flag & os.ST_RDONLY else errno.EACCES
            return "%s cannot be written: %s" % (place, os.strerror(why))
        if space.free(place) < _ROOM_BYTES or (disk.f_files and not disk.f_favail):
            return "no room for run folders in %s: its disk is full" % place
        runs_programs(place, base)
        owners.check(place, groups)
    except RunFolderError as error:
        return str(error)
    except owners.NotOurs as error:
        return str(error.strerror)
    except OSError as error:
        return "%s: %s" % (place, error.strerror)
    return ""


def runs_programs(place: str, base: str) -> None:
    """Check a folder, or the one in which it would be made, ``place``.

    :raises RunFolderError: its file system runs no programs
    """
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise RunFolderError("programs cannot be run from %s (mounted noexec)" % base)


def make(folder: str, groups: Sequence[str] = ()) -> None:
    """Make ``folder`` 0700 if it is missing; whoever else owns or may write it could swap our files.

    :param groups: whose members may own, and write to, the folders on the way to it
    :raises RunFolderError: it is not a folder that only we can write
    """
    try:
        owners.make(os.path.dirname(folder), groups)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
    except owners.NotOurs as error:
        raise RunFolderError(str(error.strerror)) from None
    except OSError as error:
        raise RunFolderError("cannot make %s: %s" % (folder, error.strerror)) from None
    if stat.S_ISLNK(found.st_mode):
        raise RunFolderError("%s is a symbolic link" % folder)
    if found.st_uid != os.geteuid():
        owner = "%s belongs to %s" % (folder, users.name(found.st_uid))
        raise RunFolderError("%s, not to %s" % (owner, users.name(os.geteuid())))
    if found.st_mode & 0o022:
        mode = stat.S_IMODE(found.st_mode)
        raise RunFolderError(
            "others may write to %s (mode %04o)" % (folder, mode), "chmod 700 it, or %s" % _ELSEWHERE
        )
