"""Stopping a run in stages, and sweeping up what it left behind.

First a polite SIGTERM to those whose job it is to forward it, then time for a profiler to write its report,
then SIGKILL: training processes first, so that their wrappers can still record how they ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Callable, List, Optional, Set

from cockpit.node import procfs
from cockpit.node.run import leftovers
from cockpit.node.run.ranks import Attempt, Emit, Identity, Ranks

WRAPPERS_S = 2.0
"""Seconds wrappers and launcher have to record and end by themselves after the ranks were killed."""
SWEEP_S = 2.0
"""Seconds between SIGTERM and SIGKILL for what a run left behind."""
SLOW_S = 30.0
"""Seconds that a process may take to die of a SIGKILL: on a busy node it may wait long for a processor."""
GIVE_UP_S = 5.0
"""Seconds after the last SIGKILL; whatever still lives then cannot be killed."""


class StagedStop:
    """The staged stop of one run on this node; :meth:`tick` never blocks.

    :param agent_forwards: the parent of the wrappers passes SIGTERM on to the ranks (torchrun does;
        DeepSpeed's launch.py would kill one rank after the other)
    :param profiled: a profiler is the launcher's parent and writes its report after the ranks ended
    :param launcher: pid of the launcher, which leads its process group
    """

    def __init__(
        self,
        ranks: Ranks,
        emit: Emit,
        *,
        agent_forwards: bool,
        profiled: bool,
        finalise_s: float,
        launcher: int,
    ) -> None:
        self._ranks = ranks
        self._emit = emit
        self._agent_forwards = agent_forwards
        self._profiled = profiled
        self._finalise_s = finalise_s
        self._launcher = launcher
        self._stage = ""
        self._deadline = 0.0
        self._hard = False
        self._group_told = False
        self._told: Set[Identity] = set()

    @property
    def active(self) -> bool:
        """Whether somebody asked to stop."""
        return bool(self._stage)

    @property
    def hard(self) -> bool:
        """Whether somebody asked to stop at once."""
        return self._hard

    @property
    def sends(self) -> str:
        """What the ranks are sent: ``TERM`` or ``KILL``; empty: nobody asked to stop."""
        if not self.active:
            return ""
        return "KILL" if self._hard or self._stage in ("kill", "over") else "TERM"

    def given_up(self) -> bool:
        """Whether everything was tried and enough time has passed since then."""
        return self._stage == "over" and time.monotonic() > self._deadline

    def request(self, reason: str, by: str, grace_s: float, hard: bool) -> None:
        """Begin to stop, or (``hard``) go straight on to SIGKILL. A second polite request changes nothing."""
        if self._hard or (self.active and not hard):
            return
        self._emit("stop_requested", reason=reason, by=by, grace_s=0.0 if hard else grace_s)
        self._hard = hard
        if not self.active:
            self._stage = "term"
            self._deadline = time.monotonic() + grace_s

    def tick(self, launcher_lives: bool) -> None:
        """Do what is due now.

        :param launcher_lives: the launcher was not waited for yet, so its pid and process group are its own
        """
        if not self.active:
            return
        late = time.monotonic() > self._deadline
        if self._stage == "term":
            self._terminate(launcher_lives)
            if self._finalising(launcher_lives):
                return
            if late or self._hard:
                self._kill_ranks(
                    "asked to stop at once" if self._hard else "still running after the grace period"
                )
        elif self._stage == "kill":
            if self._finalising(launcher_lives):
                return
            if late and self._profiled and not self._hard and launcher_lives:
                # A rank may take long to die (freeing GPU memory does): that must not cost the report.
                self._kill_left()
                self._finalise()
            elif late:
                self._kill_rest(launcher_lives)
        elif self._stage == "finalising" and (late or self._hard):
            self._kill_rest(launcher_lives)

    def _terminate(self, launcher_lives: bool) -> None:
        if self._hard or self._group_told:
            return
        if not self._ranks.started:
            if launcher_lives:
                self._group_told = True
                text = "SIGTERM to the launcher's process group: no rank has started yet"
                self._emit("stage", stage="term", pids=[self._launcher], text=text)
                _signal_group(self._launcher, signal.SIGTERM)
            return
        # Ranks may still be starting one after the other: signal each one when it appears, once.
        new = {self._target(rank) for rank in self._ranks.live()} - self._told
        if new:
            self._told |= new
            whom = "the launcher, which passes it on" if self._agent_forwards else "the ranks"
            self._emit("stage", stage="term", pids=sorted(pid for pid, _ in new), text="SIGTERM to " + whom)
            for identity in new:
                procfs.send(*identity, signal.SIGTERM)

    def _target(self, rank: Attempt) -> Identity:
        candidates = [rank.wrapper]
        if self._agent_forwards and rank.parent[0] != os.getpid():
            candidates.insert(0, rank.parent)
        return next((one for one in candidates if procfs.alive(*one)), rank.training)

    def _finalising(self, launcher_lives: bool) -> bool:
        if not self._profiled or self._hard or not launcher_lives or self._ranks.live():
            return False
        self._finalise()
        return True

    def _finalise(self) -> None:
        self._stage = "finalising"
        self._deadline = time.monotonic() + self._finalise_s
        text = "the profiler has %g s to write its report" % self._finalise_s
        self._emit("stage", stage="finalising", pids=[self._launcher], text=text)

    def _kill_ranks(self, why: str) -> None:
        self._stage = "kill"
        self._deadline = time.monotonic() + WRAPPERS_S
        live = self._ranks.live()
        pids = sorted(rank.training[0] for rank in live)
        self._emit("stage", stage="kill", pids=pids, text="SIGKILL to the ranks: " + why)
        for rank in live:
            procfs.send(*rank.training, signal.SIGKILL)

    def _kill_rest(self, launcher_lives: bool) -> None:
        self._stage = "over"
        self._deadline = time.monotonic() + GIVE_UP_S
        live = self._ranks.live()
        pids = sorted(
            {pid for rank in live for pid in (rank.training[0], rank.wrapper[0])} | {self._launcher}
        )
        self._emit(
            "stage", stage="kill", pids=pids, text="SIGKILL to wrappers and to the launcher's process group"
        )
        self._kill_left()
        if launcher_lives:
            _signal_group(self._launcher, signal.SIGKILL)

    def _kill_left(self) -> None:
        for rank in self._ranks.live():
            procfs.send(*rank.training, signal.SIGKILL)
            procfs.send(*rank.wrapper, signal.SIGKILL)


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(OSError):  # everybody in it is gone
        os.killpg(leader, number)


def sweep(
    run: str,
    node: str,
    emit: Optional[Emit] = None,
    reap: Callable[[], None] = lambda: None,
    above: int = 0,
    folder: str = "",
) -> None:
    """End every process that carries the tags of a run's node: SIGTERM, a short wait, SIGKILL.

    :param emit: called with what is swept and who survives
    :param reap: called while waiting, to wait for those that are our children
    :param above: a process all of whose descendants are ended too, whatever their environment; 0: none
    :param folder: see :func:`cockpit.node.procfs.tagged`
    """
    found = left(run, node, above, folder)
    if found and emit:
        text = "left behind by the run: %s" % ", ".join(_names(found))
        emit("stage", stage="sweep", pids=[process.pid for process in found], text=text)
    # The third round is for those that were forked during the second.
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        for process in found:
            procfs.send(process.pid, process.ticks, number)
        began = time.monotonic()
        while any(_awaited(one, number, time.monotonic() - began) for one in found):
            reap()
            time.sleep(0.02)
        found = left(run, node, above, folder)
        if not found:
            break
    reap()
    if found and emit:
        emit("survivors", procs=[leftovers.named(one) for one in found])


def _awaited(process: procfs.Stat, number: int, for_s: float) -> bool:
    """Whether a process lives that has got this signal, and may still end of it."""
    now = procfs.stat(process.pid)
    if now is None or now.ticks != process.ticks or now.state in "ZX":
        return False
    # Nothing but a wait in the kernel keeps SIGKILL from it.
    slow = number == signal.SIGKILL and now.state != "D"
    return for_s < (SLOW_S if slow else SWEEP_S)


def left(run: str, node: str, above: int = 0, folder: str = "") -> List[procfs.Stat]:
    """What still runs of a run on its node: see :func:`sweep`."""
    found = {process.pid: process for process in procfs.tagged(run, node, folder)}
    if above:
        # A run that was started inside this one is a different run.
        found.update((process.pid, process) for process in procfs.descendants(above, leftovers.supervised))
    return list(found.values())


def _names(found: List[procfs.Stat]) -> List[str]:
    return ["%s (%d)" % (process.name, process.pid) for process in found]
