"""The ranks of one run on this node, from the files of their wrappers and /proc."""

from __future__ import annotations

import errno
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple, Type, TypeVar, Union

from cockpit.base import gate
from cockpit.base.gate import Definition, Malformed, Maybe, Whole, bound, maybe, plain, read
from cockpit.node import procfs, safefiles

Emit = Callable[..., None]
"""``emit(kind, **facts)``: write one event of the run record."""

Identity = Tuple[int, int]
"""Pid and start time in ticks."""

_RECORD = re.compile(r"rank-(0|[1-9][0-9]{0,6})\.(start|exit)(?:\.([0-9]{1,6}))?\.json")

_NOTES = 20
"""Damaged records reported one by one: a program that writes endless ones must not fill the run record."""

_ORPHANS = 1024
"""The newest ends of orphans that are remembered: a rank's record is read within a second."""

_STARTS = Whole(0, 1 << 30)


class Start(Definition):
    """What a wrapper wrote when its rank started."""

    t: float = bound(gate.TIME)
    rank: int = bound(gate.RANK)
    attempt: int = bound(_STARTS)
    local_rank: Optional[int] = bound(Maybe(gate.RANK))
    world_size: Optional[int] = bound(Maybe(Whole(0, gate.RANK_LIMIT)))
    pid: int = bound(Whole(1, 1 << 30))
    ticks: int = bound(gate.TICKS)
    wrapper: int = bound(Whole(1, 1 << 30))
    wrapper_ticks: int = bound(gate.TICKS)
    parent: int = bound(gate.PID)
    parent_ticks: int = bound(gate.TICKS)
    max_restarts: int = bound(_STARTS)

    def told(self) -> Dict[str, Any]:
        """As a ``rank_started`` of the run record."""
        return {name: value for name, value in plain(self).items() if not name.endswith("_ticks")}


class End(Definition):
    """What a wrapper wrote when its rank ended; either ``code`` or ``signal`` is None."""

    t: float = bound(gate.TIME)
    rank: int = bound(gate.RANK)
    attempt: int = bound(_STARTS)
    pid: int = bound(Whole(1, 1 << 30))
    code: Optional[int] = bound(Maybe(Whole(0, 255)))
    signal: Optional[int] = bound(Maybe(Whole(1, 255)))
    maxrss_kb: int = bound(gate.COUNT)
    utime_s: float = bound(gate.SECONDS)
    stime_s: float = bound(gate.SECONDS)
    oom_kills: Optional[int] = maybe(gate.COUNT)

    def __post_init__(self) -> None:
        """Refuse an end with neither, or both."""
        if (self.code is None) == (self.signal is None):
            raise Malformed("expected either a code or a signal")

    def told(self) -> Dict[str, Any]:
        """As a ``rank_exited`` of the run record."""
        return dict(plain(self), by="wrapper")


T = TypeVar("T", Start, End)


def recorded(definition: Type[T], path: str, rank: int) -> T:
    """What a wrapper wrote about its rank.

    :raises OSError: there is no such record, or it cannot be read
    :raises ValueError: it is damaged, or about another rank
    """
    found = read(definition, safefiles.load(path))
    if found.rank != rank:
        raise ValueError("it is about rank %d" % found.rank)
    return found


def _mark(path: str) -> Tuple[int, int]:
    """What tells a file from another one of its name."""
    status = os.lstat(path)
    return status.st_ino, status.st_mtime_ns


def _still(definition: Type[T], path: str, rank: int, mark: Tuple[int, int]) -> T:
    """What :func:`recorded` gives, of the file that was looked at.

    :raises FileNotFoundError: its name is another one's by now
    """
    found = recorded(definition, path, rank)
    if _mark(path) != mark:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return found


class Attempt:
    """One attempt at one rank."""

    def __init__(self, start: Start) -> None:
        self.rank = start.rank
        self.attempt = start.attempt
        self.training: Identity = (start.pid, start.ticks)
        self.wrapper: Identity = (start.wrapper, start.wrapper_ticks)
        self.parent: Identity = (start.parent, start.parent_ticks)
        self.ended = False
        self.told = False
        """Whether how it ended is in the run record."""
        self.reaped: Optional[Tuple[int, Any]] = None
        """Status and usage, if the supervisor inherited it and waited for it."""
        self.looks_gone = 0


def how(status: int) -> Dict[str, Any]:
    """The exit code or the signal of a wait status, the other one None."""
    return {
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
    }


class Ranks:
    """Turns wrappers' records into events, and finds out about ranks whose wrapper cannot say.

    :param own: the ranks of this node; records of others are ignored
    :param trouble: asked why a record may not have been written; empty: no reason known
    """

    def __init__(self, folder: str, own: Iterable[int], emit: Emit, trouble: Callable[[], str]) -> None:
        self._folder = folder
        self._own = frozenset(own)
        self._emit = emit
        self._trouble = trouble
        self._notes = self._attempts = 0
        self._newest: Dict[int, int] = {}
        """Of each rank, the newest attempt seen: records of those long before it stay as they were."""
        self._all: Dict[Tuple[int, int, int], Attempt] = {}
        self._seen: Set[Tuple[int, int]] = set()
        self._bad: Dict[str, Tuple[int, int]] = {}
        self._reaped: Dict[Identity, Tuple[int, Any]] = {}
        """Of orphans that no record has named; any of them may be a rank whose record is still to be read."""
        self._failed: List[Attempt] = []

    @property
    def started(self) -> bool:
        """Whether any rank ever started."""
        return bool(self._all)

    @property
    def attempts(self) -> int:
        """How often a rank has started."""
        return self._attempts

    def live(self) -> List[Attempt]:
        """Ranks that started and whose end is not known yet."""
        return [rank for rank in self._all.values() if not rank.ended]

    def written(self, rank: Optional[int]) -> int:
        """How long the file is that a rank has for its output, whatever its name is by now; 0: not known."""
        for one in self._all.values():
            if one.rank == rank and not one.ended and procfs.alive(*one.training):
                size = safefiles.extent("/proc/%d/fd/1" % one.training[0], link=True)
                if size is not None:
                    return size
        return 0

    def wrapped(self) -> bool:
        """Whether a wrapper still lives."""
        return any(procfs.alive(*rank.wrapper) for rank in self._all.values())

    def take_failed(self) -> List[Attempt]:
        """Ranks whose wrappers have recorded since the last call that they failed; they may wait for us."""
        failed, self._failed = self._failed, []
        return failed

    def reaped(self, identity: Identity, status: int, usage: Any) -> None:
        """Note the end of an orphan that we inherited and waited for."""
        for rank in self.live():
            if rank.training == identity:
                rank.reaped = (status, usage)
                return
        self._reaped[identity] = (status, usage)
        if len(self._reaped) > _ORPHANS:
            del self._reaped[next(iter(self._reaped))]

    def look(self, names: List[str]) -> None:
        """Read the records that are new among ``names``, starts first."""
        starts: List[Start] = []
        ends: List[End] = []
        for name in names:
            match = _RECORD.fullmatch(name)
            if not match or int(match.group(1)) not in self._own:
                continue
            if match.group(3) and int(match.group(3)) < self._newest.get(int(match.group(1)), 0) - 1:
                continue
            path = os.path.join(self._folder, name)
            try:
                # A wrapper renames the records of an earlier attempt: the name says nothing.
                mark = _mark(path)
                if mark in self._seen or self._bad.get(name) == mark:
                    continue
                self._bad[name] = mark
                if match.group(2) == "exit":
                    ends.append(_still(End, path, int(match.group(1)), mark))
                else:
                    starts.append(_still(Start, path, int(match.group(1)), mark))
            except FileNotFoundError:
                self._bad.pop(name, None)
                continue  # renamed between two looks: found under its new name
            except (OSError, ValueError) as error:
                self.remark("cannot read %s: %s" % (name, error))
                continue
            del self._bad[name]
            self._seen.add(mark)
        for start in sorted(starts, key=lambda one: (one.attempt, one.rank)):
            self._started(start)
        for end in sorted(ends, key=lambda one: (one.attempt, one.rank)):
            self._exited(end)

    def told(self, name: str, text: str) -> None:
        """Take a record that a wrapper has no room for, as if it were the file of this name.

        :raises ValueError: it is none
        """
        match = _RECORD.fullmatch(name)
        if match is None or len(text) > safefiles.RECORD_LIMIT:
            raise ValueError("not a record")
        told = safefiles.parse(text.encode())
        found: Union[Start, End] = read(End, told) if match.group(2) == "exit" else read(Start, told)
        if found.rank != int(match.group(1)) or found.rank not in self._own:
            raise ValueError("not about rank %s" % match.group(1))
        if isinstance(found, Start):
            self._started(found)
        else:
            self._exited(found)

    def remark(self, text: str) -> None:
        """Put a remark about a rank, or its files, into the run record: so many at most."""
        self._notes += 1
        if self._notes <= _NOTES:
            self._emit("note", text=text)
        if self._notes == _NOTES:
            self._emit("note", text="further notes about logs and records of ranks are left out")

    def _started(self, start: Start) -> None:
        self._attempts += 1
        self._newest[start.rank] = max(start.attempt, self._newest.get(start.rank, 0))
        for key, older in list(self._all.items()):
            if older.rank == start.rank and older.ended and not procfs.alive(*older.wrapper):
                del self._all[key]
        rank = self._all[start.rank, start.attempt, start.pid] = Attempt(start)
        rank.reaped = self._reaped.pop(rank.training, None)
        self._emit("rank_started", **start.told())

    def _exited(self, end: End) -> None:
        rank = self._all.get((end.rank, end.attempt, end.pid))
        if rank is not None:
            rank.ended = True
            if end.code != 0:
                self._failed.append(rank)
            if rank.told:
                return  # we have waited for it, and were faster than its wrapper
            rank.told = True
        self._emit("rank_exited", **end.told())

    def settle(self) -> None:
        """Decide about ranks without an exit record. Call it after :meth:`look`."""
        for rank in self.live():
            if rank.reaped is not None:
                status, usage = rank.reaped
                self._emit(
                    "rank_exited",
                    rank=rank.rank,
                    attempt=rank.attempt,
                    pid=rank.training[0],
                    by="supervisor",
                    maxrss_kb=usage.ru_maxrss,
                    utime_s=usage.ru_utime,
                    stime_s=usage.ru_stime,
                    **how(status),
                )
                rank.ended = rank.told = True
            elif procfs.exists(*rank.training) or procfs.alive(*rank.wrapper):
                rank.looks_gone = 0
            else:
                # Its exit record may have appeared just after we looked, so a second look decides.
                rank.looks_gone += 1
                if rank.looks_gone > 1:
                    why = "it ended and neither its wrapper nor the supervisor saw its status"
                    trouble = self._trouble()
                    self._lost(rank, "%s: %s" % (why, trouble) if trouble else why)

    def give_up(self) -> None:
        """Report every rank still not known to have ended as lost."""
        for rank in self.live():
            there = procfs.exists(*rank.training)
            self._lost(rank, "it does not end, even when killed" if there else "its status is unknown")

    def _lost(self, rank: Attempt, why: str) -> None:
        self._emit("rank_lost", rank=rank.rank, attempt=rank.attempt, pid=rank.training[0], why=why)
        rank.ended = True
