"""The ranks of one run on this node, as told by the files of their wrappers and by /proc."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Callable, Dict, List, Set, Tuple

from cockpit.node import procfs

Emit = Callable[..., None]
"""``emit(kind, **facts)``: write one event of the run record."""

Identity = Tuple[int, int]
"""Pid and start time in ticks."""

_RECORD = re.compile(r"rank-\d+\.(start|exit)(?:\.\d*)?\.json")


class Rank:
    """One attempt at one rank."""

    def __init__(self, facts: Dict[str, Any]) -> None:
        self.rank: int = facts["rank"]
        self.attempt: int = facts["attempt"]
        self.training: Identity = (facts["pid"], facts["ticks"])
        self.wrapper: Identity = (facts["wrapper"], facts["wrapper_ticks"])
        self.parent: Identity = (facts["parent"], facts["parent_ticks"])
        self.ended = False
        self.looks_gone = 0


def how(status: int) -> Dict[str, Any]:
    """The exit code or the signal of a wait status, the other one None."""
    return {
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
    }


class Ranks:
    """Turns wrappers' records into events, and finds out about ranks whose wrapper cannot say."""

    def __init__(self, folder: str, emit: Emit) -> None:
        self._folder = folder
        self._emit = emit
        self._all: Dict[Tuple[int, int, int], Rank] = {}
        self._seen: Set[Tuple[int, int]] = set()
        self._reaped: Dict[Identity, Tuple[int, Any]] = {}

    @property
    def started(self) -> bool:
        """Whether any rank ever started."""
        return bool(self._all)

    def live(self) -> List[Rank]:
        """Ranks that started and whose end is not known yet."""
        return [rank for rank in self._all.values() if not rank.ended]

    def wrapped(self) -> bool:
        """Whether a wrapper still lives."""
        return any(procfs.alive(*rank.wrapper) for rank in self._all.values())

    def reaped(self, identity: Identity, status: int, usage: Any) -> None:
        """Note the end of an orphan that we inherited and waited for."""
        self._reaped[identity] = (status, usage)

    def look(self, names: List[str]) -> None:
        """Read the records that are new among ``names``, starts first."""
        new = []
        for name in names:
            match = _RECORD.fullmatch(name)
            if not match:
                continue
            path = os.path.join(self._folder, name)
            try:
                status = os.stat(path, follow_symlinks=False)
                # A wrapper renames the records of an earlier attempt: the name says nothing.
                mark = (status.st_ino, status.st_mtime_ns)
                if mark in self._seen:
                    continue
                with open(path, encoding="ascii") as file:
                    facts = json.load(file)
            except FileNotFoundError:
                continue  # renamed between two looks: found under its new name
            except (OSError, ValueError) as error:
                self._emit("note", text="cannot read %s: %s" % (name, error))
                continue
            self._seen.add(mark)
            new.append((match.group(1) == "exit", facts))
        for is_exit, facts in sorted(new, key=lambda one: (one[0], one[1]["attempt"], one[1]["rank"])):
            if is_exit:
                self._exited(facts)
            else:
                self._started(facts)

    def _started(self, facts: Dict[str, Any]) -> None:
        self._all[facts["rank"], facts["attempt"], facts["pid"]] = Rank(facts)
        told = (
            "rank",
            "attempt",
            "local_rank",
            "world_size",
            "pid",
            "ticks",
            "wrapper",
            "parent",
            "max_restarts",
        )
        self._emit("rank_started", t=facts["t"], **{name: facts[name] for name in told})

    def _exited(self, facts: Dict[str, Any]) -> None:
        rank = self._all.get((facts["rank"], facts["attempt"], facts["pid"]))
        if rank is not None:
            rank.ended = True
        self._emit("rank_exited", by="wrapper", **facts)

    def settle(self) -> None:
        """Decide about ranks that nobody wrote an exit record for. Call it after :meth:`look`."""
        for rank in self.live():
            if rank.training in self._reaped:
                status, usage = self._reaped[rank.training]
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
                rank.ended = True
            elif procfs.exists(*rank.training) or procfs.alive(*rank.wrapper):
                rank.looks_gone = 0
            else:
                # Its exit record may have come just after we looked for it, so a second look decides.
                rank.looks_gone += 1
                if rank.looks_gone > 1:
                    self._lost(rank, "it ended and neither its wrapper nor the supervisor saw its status")

    def give_up(self) -> None:
        """Say of every rank still not known to have ended that it is lost to us."""
        for rank in self.live():
            there = procfs.exists(*rank.training)
            self._lost(rank, "it does not end, not even when killed" if there else "its status is not known")

    def _lost(self, rank: Rank, why: str) -> None:
        self._emit("rank_lost", rank=rank.rank, attempt=rank.attempt, pid=rank.training[0], why=why)
        rank.ended = True
