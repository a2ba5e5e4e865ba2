"""Who writes in a run's folder: one cockpit at a time, also where the file system cannot lock.

``flock`` decides where it works: it ends with its process, however that ends. The file ``lock`` then says
who holds it, for people and for machines that cannot lock. Where ``flock`` does not work (some shared homes:
ENOLCK, ENOSYS, ESTALE, EOPNOTSUPP), the file ``lock.N`` that somebody could make (``O_EXCL``) decides:
``lock.1``, or the number after one whose cockpit is known to be dead. A dead one's file is never removed: two
who find it at the same time race for the next number alone. Whether a cockpit on another machine lives cannot
be known: its file holds until somebody removes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path

from cockpit.base import users
from cockpit.base.gate import PID, TICKS, WORD, Definition, Text, bound, read
from cockpit.engine.files import append, open_regular
from cockpit.errors import CockpitError, os_error

ATTENDING = "lock.attending"
"""The file that cockpits which would take over share a lock of."""


class Holder(Definition):
    """A cockpit that writes.

    :param boot: of its machine; with ``pids`` and ``ticks`` it tells this process from every other one
    :param pids: the namespace that ``pid`` is of
    :param ticks: when it was started, in clock ticks since boot
    """

    host: str = bound(Text(256, cut=True), "")
    pid: int = bound(PID, 0)
    boot: str = bound(WORD, "")
    pids: str = bound(WORD, "")
    ticks: int = bound(TICKS, 0)

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Holder:
        """A process of this machine."""
        return cls(socket.gethostname(), pid, _boot(), _pids(), _ticks(pid) or 0)

    def dead(self) -> bool:
        """Whether it is certain that it is gone: the machine is this one, and the process is not there."""
        if not self.boot or not self.ticks or (self.boot, self.pids) != (_boot(), _pids()):
            return False
        return _ticks(self.pid) != self.ticks and not _hidden(self.pid)

    def suspended(self) -> bool:
        """Whether it is on this machine and stopped: Ctrl-Z, SIGSTOP, a debugger."""
        here = bool(self.boot and self.ticks) and (self.boot, self.pids) == (_boot(), _pids())
        return here and _ticks(self.pid) == self.ticks and _state(self.pid) in ("T", "t")

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}" if self.host and self.pid > 0 else ""


class Writer:
    """The right to write in a folder.

    :param folder: the run's
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = folder / "lock"
        self._number: int | None = None
        self._own: Path | None = None
        self._other = Holder()
        self.owner = ""
        """The user who alone can write there, once :meth:`take` has found that it is not this one."""
        self.barred = ""
        """Why this process can never write there, in a sentence, once :meth:`take` has found so."""
        self._other_file: Path | None = None  # None: flock says so, and it is right
        self._attending: int | None = None

    @property
    def taken(self) -> bool:
        """Whether it is ours."""
        return self._number is not None or self._own is not None

    def take(self) -> bool:
        """Become the one writer; False where another cockpit is, or nobody here can: see :meth:`held`.

        :raises CockpitError: the folder cannot be written
        """
        if self.taken:
            return True
        self.owner = other_owner(self.folder)
        self.barred = self._barred()
        if self.barred:
            return False
        number = self._open(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._other, self._other_file = _holder(number), None
            os.close(number)
            return error.errno != errno.EWOULDBLOCK and self._take_file()
        self._number = number
        with suppress(OSError):  # who we are is good to know: a full disk must not keep anybody from a run
            os.ftruncate(number, 0)
            append(number, _record(), 0)
        try:
            held = self._next_file() is None
        except CockpitError:
            self.give_up()
            raise
        if held:
            self.give_up()
        else:
            self._leave_attending()
        return not held

    def _barred(self) -> str:
        if self.owner:
            return f"its folder is {self.owner}'s, and only {self.owner} can change it"
        with suppress(OSError):
            if os.statvfs(self.folder).f_flag & os.ST_RDONLY:
                return "its folder is on a read-only file system"
        return ""

    def _take_file(self) -> bool:
        while not self._holds(self._lock) and (path := self._next_file()) is not None:
            try:
                number = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue
            self._own = path
            try:
                append(number, _record(), 0)
            except OSError as error:
                self.give_up()
                raise os_error("cannot be locked", path, error) from None
            finally:
                os.close(number)
            # One whose flock works looks for our file after it wrote `lock`: one of us sees the other.
            if self._holds(self._lock):
                self.give_up()
                return False
            self._leave_attending()
            return True
        return False

    def _next_file(self) -> Path | None:
        """The first ``lock.N`` that nobody made; None where a cockpit that may live has one."""
        for number in count(1):
            path = self.folder / f"lock.{number}"
            if not os.path.lexists(path):
                return path
            if self._holds(path):
                return None
        raise AssertionError  # numbers do not end

    def _holds(self, path: Path) -> bool:
        """Whether a file is that of a cockpit that may live; an empty ``lock`` is nobody's."""
        try:
            number = self._open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False  # given up this moment
        try:
            holder, empty = _holder(number), os.fstat(number).st_size == 0
        finally:
            os.close(number)
        if holder.dead() or (empty and path == self._lock):
            return False
        self._other, self._other_file = holder, path
        return True

    def _open(self, path: Path, flags: int) -> int:
        try:
            return open_regular(path, flags)
        except OSError as error:
            raced = FileExistsError if flags & os.O_CREAT else FileNotFoundError
            if isinstance(error, raced):
                raise
            raise os_error("cannot be locked", path, error) from None

    def held(self) -> str:
        """Who writes in place of us, and what to type where nobody does any more."""
        if self.barred:
            return self.barred
        who = f" ({self._other})" if str(self._other) else ""
        end = "" if self._other_file is None else f"; if it is gone: rm {self._other_file}"
        return f"another cockpit{who} controls this run{end}"

    @property
    def holder(self) -> str:
        """Who was last seen to write in place of us: ``pid 4711 on login2``; empty: nobody, or not known."""
        return str(self._other)

    def vacant(self) -> bool:
        """Whether nobody writes, as far as whoever does not try to can see.

        :raises CockpitError: it cannot be seen
        """
        self._other = Holder()
        return not self.taken and not self._holds(self._lock) and self._next_file() is not None

    def suspended(self) -> str:
        """That the one that writes is stopped, and what to type; empty: it is not, or that cannot be seen."""
        if not self._other.suspended():
            return ""
        return f"the cockpit that controls it ({self._other}) is suspended: kill -CONT {self._other.pid}"

    def attend(self) -> None:
        """Be there to take over, which :meth:`succeeded` tells the one that writes; call it again and again.

        It fails while another cockpit looks whether somebody is.
        """
        if self.taken or self._attending is not None or self.barred:
            return
        with suppress(OSError):
            self._attending = open_regular(self.folder / ATTENDING, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(self._attending, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                self._leave_attending()

    def succeeded(self) -> bool:
        """Whether another cockpit acts once this one has left; False also where that cannot be known."""
        with suppress(CockpitError):
            return self.attended() or (not self.taken and not self.vacant())
        return False

    def attended(self) -> bool:
        """Whether another cockpit is there to take over; False also where that cannot be known."""
        try:
            number = open_regular(self.folder / ATTENDING, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno == errno.EWOULDBLOCK
        finally:
            os.close(number)
        return False

    def close(self) -> None:
        """Let others write, and be there no longer."""
        self._leave_attending()
        self.give_up()

    def _leave_attending(self) -> None:
        if self._attending is not None:
            os.close(self._attending)
        self._attending = None

    def moved(self, folder: Path) -> None:
        """The folder got another name."""
        self.folder = folder
        self._lock = folder / "lock"
        self._own = None if self._own is None else folder / self._own.name

    def give_up(self) -> None:
        """Let others write."""
        # What cannot be taken back says no more than that this process, soon dead, had it.
        if self._number is not None:
            with suppress(OSError):
                os.ftruncate(self._number, 0)
            os.close(self._number)
        if self._own is not None:
            with suppress(OSError):
                self._own.unlink()
        self._number = self._own = None


def other_owner(folder: Path) -> str:
    """The user whose folder it is; empty: it is ours, or not there.

    Root is no exception: in a folder of another user, links could lead its writes anywhere.
    """
    try:
        uid = folder.stat().st_uid
    except OSError:
        return ""
    return "" if uid == os.geteuid() else users.name(uid)


def _record() -> bytes:
    return (json.dumps(asdict(Holder.here())) + "\n").encode()


def _holder(number: int) -> Holder:
    """Who says so in a file; what cannot be made out is somebody unknown."""
    try:
        return read(Holder, json.loads(os.pread(number, 4096, 0)))
    except (OSError, ValueError, RecursionError):
        return Holder()


def _boot() -> str:
    return _text("/proc/sys/kernel/random/boot_id").strip()


def _pids() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _state(pid: int) -> str:
    """``R``, ``S``, ``T``: what a process does; empty: there is none."""
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


def _ticks(pid: int) -> int | None:
    """When a process was started; None where there is none, or only what is left of one."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None


def _hidden(pid: int) -> bool:
    """Whether a process exists of which another user is told nothing (``hidepid``)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.path.exists(f"/proc/{pid}")
    except OSError:
        return False
    return False


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""
