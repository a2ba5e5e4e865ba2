"""Watch a job that others started: which of its processes live, and what is added to its files."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional, Set, Tuple

from cockpit.base import verbs
from cockpit.base.fields import Opened
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call
from cockpit.node.jobs.outputs import is_ours, writes
from cockpit.node.run.follow import BATCH, BEAT_S, BULK, BUSY_S, IDLE_S
from cockpit.node.users import name as user_name


def watch(call: Call) -> Dict[str, Any]:
    """Tell what lives and send the bytes of every file from its offset on, until cancelled.

    Request: ``targets``, ``launchers``; ``files``, each of which a process has open for writing, or had;
    ``credit`` (bytes in flight). Item: ``parts`` [[number, offset, length], …] with the bytes as payload,
    ``sizes`` {number: size}, ``ranks`` and ``launchers`` (pids) that live, ``cut``: files that were cut, and
    are sent from their start again; ``trouble`` {number: why it cannot be read}.
    """
    asked = call.asked(verbs.Watch)
    users = _users(asked)
    files = [_File(one, users) for one in asked.files]
    last = 0.0
    turn = 0
    try:
        while not call.cancelled:
            # First: what a process writes before it ends is in its files by then.
            ranks = [one.rank for one in asked.targets if procfs.alive(one.pid, one.ticks)]
            launchers = [one.pid for one in asked.launchers if procfs.alive(one.pid, one.ticks)]
            cut = [file.number for file in files if file.look()]
            behind = sum(file.behind for file in files)
            room = min(BULK if behind > 4 * BULK else BATCH, call.take_credit(BEAT_S))
            turn += 1
            parts, data = _batch(files, room, turn)
            now = time.monotonic()
            if parts or cut or now - last >= BEAT_S:
                item = {
                    "parts": parts,
                    "sizes": {str(file.number): file.size for file in files},
                    "ranks": ranks,
                    "launchers": launchers,
                    "cut": cut,
                    "trouble": {str(file.number): file.trouble for file in files if file.trouble},
                }
                call.item(item, data)
                last = now
            if (behind <= len(data) or not parts) and not call.pause(BUSY_S if parts else IDLE_S):
                break
    finally:
        for file in files:
            file.close()
    return {}


def _batch(files: List[_File], room: int, turn: int) -> Tuple[List[Tuple[int, int, int]], bytes]:
    """Up to ``room`` new bytes, fairly divided among the files that have any."""
    behind = [file for file in files if file.behind]
    parts: List[Tuple[int, int, int]] = []
    chunks: List[bytes] = []
    for place in range(len(behind)):
        if room <= 0:
            break
        file = behind[(place + turn) % len(behind)]
        share = max(room // (len(behind) - place), 4096)
        offset = file.offset
        chunk = file.read(min(share, room))
        if chunk:
            parts.append((file.number, offset, len(chunk)))
            chunks.append(chunk)
            room -= len(chunk)
    return parts, b"".join(chunks)


class _File:
    """A file of a job, kept open: its process may end, and its name may go to another."""

    def __init__(self, asked: Opened, users: Set[int]) -> None:
        self.number = asked.number
        self.offset = asked.offset
        self.size = 0
        self.trouble = ""
        self._asked = asked
        self._looked = 0.0
        self._open: Optional[int] = None
        try:
            self._open = _opened(asked, users)
        except OSError as error:
            self.trouble = _why_not(asked, users, error)

    @property
    def behind(self) -> int:
        """Bytes that the other side does not have, as of the last look."""
        return max(0, self.size - self.offset)

    def look(self) -> bool:
        """See how long it is; return whether it was cut, and begins anew."""
        if self._open is None:
            return False
        self.size = os.fstat(self._open).st_size
        if not self.trouble and time.monotonic() - self._looked >= BEAT_S:
            self._looked = time.monotonic()
            self.trouble = self._moved()
        if self.size >= self.offset:
            return False
        self.offset = 0
        return True

    def _moved(self) -> str:
        """What to say if its process writes to another file instead."""
        one = self._asked
        try:
            info = os.stat("/proc/%d/fd/%d" % (one.pid, one.fd))
        except OSError:
            return ""
        same = (info.st_dev, info.st_ino) == (one.device, one.inode)
        return "" if same or not procfs.alive(one.pid, one.ticks) else "%s was exchanged" % one.path

    def read(self, room: int) -> bytes:
        """The next bytes, at most ``room``."""
        assert self._open is not None
        try:
            data = os.pread(self._open, min(room, self.behind), self.offset)
        except OSError as error:
            self.trouble = "%s cannot be read: %s" % (self._asked.path, error.strerror)
            self.close()
            self.size = self.offset
            return b""
        self.offset += len(data)
        return data

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open)
        self._open = None


def _users(asked: verbs.Watch) -> Set[int]:
    """The ids of this user, and of those whose ranks are watched."""
    found = {os.geteuid()}
    for one in asked.targets:
        if procfs.alive(one.pid, one.ticks):
            with suppress(OSError):
                found.add(os.stat("/proc/%d" % one.pid).st_uid)
    return found


def _why_not(one: Opened, users: Set[int], error: OSError) -> str:
    """Why a file cannot be read: to whom it is closed."""
    others = sorted(users - {os.geteuid()})
    if isinstance(error, PermissionError) and others:
        return "only %s can read %s" % (" or ".join(map(user_name, others)), one.path)
    return "%s cannot be read: %s" % (one.path, error.strerror or error)


def _opened(one: Opened, users: Set[int]) -> int:
    """A descriptor of the very file that was asked for.

    While its process lives it is opened through that, whatever its name is by now, and only if the process
    may write to it; later, or if the process is another user's, by its name.

    :param users: whose it may be: an inode whose file is gone may be a stranger's by now
    :raises OSError: it is not there, may not be read, or is something else
    """
    path = "/proc/%d/fd/%d" % (one.pid, one.fd)
    living = None
    if is_ours(one.pid, one.ticks) and writes(one.pid, one.fd):
        with suppress(OSError):  # it ends at this moment
            if _is(os.stat(path), one):
                living = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    number = safefiles.opened(one.path) if living is None else living
    info = os.fstat(number)
    theirs = living is not None or os.geteuid() == 0 or info.st_uid in users
    if theirs and _is(info, one):
        return number
    os.close(number)
    raise OSError("another file has its name" if theirs else "it is another user's")


def _is(info: os.stat_result, one: Opened) -> bool:
    """Whether this is the regular file that was asked for."""
    return stat.S_ISREG(info.st_mode) and (info.st_dev, info.st_ino) == (one.device, one.inode)
