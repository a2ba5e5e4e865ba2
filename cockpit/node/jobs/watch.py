"""Watch a job that others started: which of its processes live, and what is added to its files."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional, Set

from cockpit.base import verbs
from cockpit.base.shared_fields import Opened
from cockpit.base.users import name as user_name
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call
from cockpit.node.following import Begun, Followed, Held, batch
from cockpit.node.jobs.outputs import is_ours, writes
from cockpit.node.run.follow import BATCH, BEAT_S, BULK, BUSY_S, IDLE_S


def watch(call: Call) -> Dict[str, Any]:
    """Tell what lives and send the bytes of every file from its offset on, until cancelled.

    Request: ``targets``, ``launchers``; ``files``, each of which a process has open for writing, or had;
    ``credit`` (bytes in flight). Item: ``parts`` [[number, offset, length], …] with the bytes as payload,
    ``sizes`` {number: size}, ``ranks`` and ``launchers`` (pids) that live, ``begun`` [[number, length], …]:
    files that were shortened, and are sent from their start; ``marks`` {number: mark}: of all that was sent;
    ``trouble`` {number: why it cannot be read}; ``exchanged`` [number, …]: their processes write to others.
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
            begun = [(file.number, one.end) for file in files if (one := file.look()) is not None]
            behind = sum(file.followed.behind for file in files if file.followed is not None)
            room = min(BULK if behind > 4 * BULK else BATCH, call.take_credit(BEAT_S))
            turn += 1
            named = {file.number: file.followed for file in files if file.followed is not None}
            parts, data = batch(named, room, turn)
            now = time.monotonic()
            if parts or begun or now - last >= BEAT_S:
                item = {
                    "parts": parts,
                    "sizes": {str(file.number): file.size for file in files},
                    "ranks": ranks,
                    "launchers": launchers,
                    "begun": begun,
                    "marks": {str(number): named[number].mark for number, _, _ in parts},
                    "trouble": {str(file.number): file.trouble for file in files if file.trouble},
                    "exchanged": [file.number for file in files if file.exchanged],
                }
                call.item(item, data)
                last = now
            if (behind <= len(data) or not parts) and not call.pause(BUSY_S if parts else IDLE_S):
                break
    finally:
        for file in files:
            file.close()
    return {}


class _File:
    """A file of a job, kept open: its process may end, and its name may go to another.

    :param users: see :func:`_opened`
    """

    def __init__(self, asked: Opened, users: Set[int]) -> None:
        self.number = asked.number
        self.followed: Optional[Followed] = None
        self._asked = asked
        self._closed = ""
        self.exchanged = False
        """Whether its process writes to another file instead."""
        self._looked = 0.0
        try:
            self._place = Held(asked.path, _opened(asked, users))
        except OSError as error:
            self._closed = _why_not(asked, users, error)
        else:
            self.followed = Followed(
                self._place, asked.offset, asked.mark, asked.marked, written=self._written
            )

    @property
    def size(self) -> int:
        """Its length in bytes, as of the last look."""
        return 0 if self.followed is None else self.followed.size

    @property
    def trouble(self) -> str:
        """What to say of it; empty: nothing."""
        why = "" if self.followed is None else self.followed.trouble
        if self.exchanged:
            why = "was replaced"
        return self._closed or (why and "%s %s" % (self._asked.path, why))

    def look(self) -> Optional[Begun]:
        """See how long it is; return if it begins anew."""
        if self.followed is None:
            return None
        if not self.exchanged and time.monotonic() - self._looked >= BEAT_S:
            self._looked = time.monotonic()
            self.exchanged = self._is_exchanged()
        return self.followed.look()

    def _is_exchanged(self) -> bool:
        one = self._asked
        try:
            same = _is(os.stat(self._descriptor), one)
        except OSError:
            return False
        return not same and procfs.alive(one.pid, one.ticks)

    @property
    def _descriptor(self) -> str:
        return "/proc/%d/fd/%d" % (self._asked.pid, self._asked.fd)

    def _written(self) -> List[str]:
        return [self._descriptor] if procfs.alive(self._asked.pid, self._asked.ticks) else []

    def close(self) -> None:
        """Read it no more."""
        if self.followed is not None:
            self._place.close()
        self.followed = None


def _users(asked: verbs.Watch) -> Set[int]:
    """The ids of this user, and of those whose ranks are watched."""
    found = {os.geteuid()}
    owners = (procfs.owner(one.pid) for one in asked.targets if procfs.alive(one.pid, one.ticks))
    found.update(owner for owner in owners if owner is not None)
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
