"""Stacks of the ranks of this node: what py-spy sees of each, and what the kernel says about it.

Which way py-spy goes follows from the state of the process; after each it is checked that the process was not
left stopped. Ranks are looked at in parallel and reported as they finish.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from dataclasses import replace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.base import verbs
from cockpit.base.shared_fields import Target
from cockpit.base.stacks import deputies
from cockpit.base.stacks.dump import Child, Deputy, Dump, LockFile, Process, Thread, fitted
from cockpit.base.stacks.packing import TooLarge, pack
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.stacks import (
    inside,
    kernel,
    launchers,
    locks,
    permission,
    pyspy,
    pyspy_output,
    pyspy_process,
    rank_variables,
    unanswered,
)
from cockpit.node.stacks.pyspy_process import Result

TELL_S = 0.1
"""What is ready is sent at least this often."""

CHILDREN_SEEN = 16
"""Python children of a rank whose stacks are taken."""

PASSING_S = 2.0
"""How long to wait for another py-spy that is looking at the same process."""

_LOADER = "pt_data_worker"
"""Short name of a worker of torch's data loader."""

_SETTLE_S = 0.06
"""A process that stays stopped for longer was not stopped just briefly."""


def stacks(call: Call) -> Dict[str, Any]:
    """The stacks of some ranks as they arrive: items with :func:`pack`.

    Request: ``targets``, a list of ``{"rank", "pid", "ticks"}``; ``native``, ``locals``, ``children``;
    ``timeout_s`` for one py-spy; ``dir``, the run folder, empty for a job that has none.

    :raises NodeError: there is no py-spy here
    """
    asked = call.asked(verbs.Stacks)
    wish = replace(asked, timeout_s=min(max(asked.timeout_s, 0.1), 600.0))
    if asked.targets:
        Dumps(call, wish, pyspy.ready()).run(asked.targets)
    return {}


class Dumps:
    """One request.

    :param path: of py-spy
    :param gently: nobody has asked for them: one process at a time, and no sudo
    """

    def __init__(self, call: Call, wish: verbs.Stacks, path: str, *, gently: bool = False) -> None:
        self._gently = gently
        self._call = call
        self.wish = wish
        self._path = path
        self._todo: queue.SimpleQueue[Target] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Dump] = queue.SimpleQueue()
        self.sources = pyspy_output.Sources()
        self.connections = unanswered.Connections()

    def run(self, targets: Sequence[Target]) -> None:
        """Look at all targets and send what is found."""
        self._begin(targets)
        left, due = len(targets), 0.0
        ready: List[Dump] = []
        while left and not self._call.cancelled:
            try:
                ready.append(self._done.get(timeout=max(0.0, due - time.monotonic()) if ready else TELL_S))
                left -= 1
                if len(ready) == 1:
                    due = time.monotonic() + TELL_S
            except queue.Empty:
                pass
            if ready and (not left or time.monotonic() >= due):
                self._send(ready)
                ready = []

    def all(self, targets: Sequence[Target]) -> List[Dump]:
        """Look at all targets; what is found until the call is cancelled."""
        self._begin(targets)
        found: List[Dump] = []
        while len(found) < len(targets) and not self._call.cancelled:
            with contextlib.suppress(queue.Empty):
                found.append(self._done.get(timeout=TELL_S))
        return found

    def _begin(self, targets: Sequence[Target]) -> None:
        for target in targets:
            self._todo.put(target)
        at_once = 1 if self._gently else max(2, len(os.sched_getaffinity(0)))
        for _ in range(min(len(targets), at_once)):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while not self._call.cancelled:
            try:
                target = self._todo.get_nowait()
            except queue.Empty:
                return
            began, at = time.monotonic(), time.time()
            try:
                dump = fitted(_Look(self, target.pid, target.ticks).rank(target.rank, at))
            except Exception:
                # A bug of ours with one rank is reported for that rank, and costs no other rank's answer.
                import traceback

                dump = Dump(target.rank, at, error="failed", what=traceback.format_exc()[-1000:])
            self._done.put(replace(dump, took_s=time.monotonic() - began))

    def _send(self, dumps: List[Dump]) -> None:
        try:
            payload = pack(dumps)
        except TooLarge as error:
            if len(dumps) > 1:
                self._send(dumps[: len(dumps) // 2])
                self._send(dumps[len(dumps) // 2 :])
                return
            what = "its stacks are too large to be sent (%s)" % error
            payload = pack([replace(dumps[0], threads=(), process=None, way="", error="failed", what=what)])
        self._call.item({}, payload)

    def cancelled(self) -> bool:
        """Whether nobody wants the answer any more."""
        return self._call.cancelled

    def spy_inside(self, pid: int, arguments: List[str]) -> Optional[Result]:
        """Run py-spy inside the namespaces of a process; None: that cannot be done."""
        enter, timeout_s = inside.starter(pid), self.wish.timeout_s
        try:
            return pyspy_process.run(enter, self._path, arguments, timeout_s, self.cancelled)
        except OSError:
            return None

    def spy(self, arguments: List[str]) -> Result:
        """Run py-spy: ourselves if we may, else through something that may."""
        wish = self.wish
        denied: Optional[Result] = None
        for name, starter in permission.starters(wish.dir, wish.timeout_s, ask_root=not self._gently):
            try:
                result = pyspy_process.run(starter, self._path, arguments, wish.timeout_s, self.cancelled)
            except OSError as error:
                if name == "direct":
                    denied = Result(None, b"", "py-spy cannot be started: %s" % error)
                continue
            if result.code == 0 or result.why or not permission.denied(result.said):
                permission.remember(wish.dir, name)
                return result
            denied = denied or result
        return denied or Result(None, b"", "py-spy cannot be started")


class _SeenThreads(NamedTuple):
    """What could be seen of one process: threads, or why there are none."""

    way: str = "kernel"
    threads: Tuple[Thread, ...] = ()
    place: Optional[pyspy_output.UserLine] = None
    error: str = ""
    what: str = ""
    hint: str = ""
    notes: Tuple[str, ...] = ()
    places: Dict[int, pyspy_output.UserLine] = {}  # noqa: RUF012 (never changed)


def _number(pid: int) -> Tuple[int, Optional[int]]:
    """Which rank a process was started as, of how many."""
    return rank_variables.number(procfs.contents("/proc/%d/environ" % pid))


class _Look:
    """One look at one process."""

    def __init__(self, dumps: Dumps, pid: int, ticks: int) -> None:
        self._dumps = dumps
        self._pid = pid
        self._ticks = ticks
        self._notes: List[str] = []
        self._known = launchers.secrets(pid)
        self._began = time.monotonic()

    def rank(self, rank: int, at: float) -> Dump:
        """Everything about a rank."""
        pid, ticks, wish = self._pid, self._ticks, self._dumps.wish
        self._settle()
        facts = kernel.look(pid, ticks)
        if facts is None:
            what = "its process has ended"
            return Dump(rank, at, error="gone", what=what)
        below = kernel.children(pid)
        below_s, below_bytes = kernel.work(below)
        process = facts.process._replace(children=below, below_s=below_s, below_bytes=below_bytes)
        # Only who waits in a futex may wait for another thread.
        slept = kernel.thread_switches(pid) if process.call == "futex" else {}
        seen = self.see(facts, native=wish.native, variables=wish.locals)
        if seen.error == "gone":
            return Dump(rank, at, error="gone", what=seen.what, hint=seen.hint, notes=seen.notes)
        if seen.threads and wish.children:
            process = process._replace(children=tuple(self._children(below)))
        deputy, seen = self._deputy(process, seen, slept)
        place = self._read_place(seen.place)
        dump = Dump(
            rank,
            at,
            process._replace(switches_after=self._rested(pid)),
            seen.way,
            seen.threads,
            source=self._dumps.sources.line(*place, self._known),
            error=seen.error,
            what=seen.what,
            hint=seen.hint,
            notes=seen.notes,
            loop=self._dumps.sources.loop(*place, self._known),
            deputy=deputy,
            unanswered=self._dumps.connections.unanswered(pid),
        )
        return replace(dump, lock=self._lock(dump, facts)) if self._polls(dump) else dump

    def _deputy(
        self, process: Process, seen: _SeenThreads, slept: Dict[int, int]
    ) -> Tuple[Optional[Deputy], _SeenThreads]:
        """Who works while the main thread waits for it; and what was seen, with the place of that one.

        :param slept: how often each thread had slept before py-spy came
        """
        if not seen.threads:
            return None, seen
        thread = deputies.deputy(seen.threads)
        if thread is not None and thread.tid:
            rested = self._rested(thread.tid)
            own = kernel.thread(self._pid, thread.tid, self._ticks)
            if own is not None:
                # py-spy has just woken it: that it is not idle says nothing.
                before = slept.get(thread.tid, own.switches)
                own = own._replace(switches=before, switches_after=rested, idle_s=-1.0)
                return Deputy("thread", thread, own), seen._replace(place=seen.places.get(thread.tid))
        if not deputies.waits_for_child(seen.threads[0].frames, process):
            return None, seen
        child = self._same_rank(process)
        look = None if child is None else _Look(self._dumps, child.pid, child.ticks)
        facts = None if look is None else kernel.look(look._pid, look._ticks)
        if look is None or facts is None:
            return None, seen
        inner = look.see(facts, native=self._dumps.wish.native, variables=self._dumps.wish.locals)
        if not inner.threads:
            return None, seen
        process = facts.process._replace(switches_after=look._rested(look._pid))
        return Deputy("child", inner.threads[0], process), seen._replace(place=inner.place)

    def _same_rank(self, process: Process) -> Optional[procfs.Stat]:
        """The only child that may do the rank's work: of the same rank, Python, and no helper of a loader."""
        own = _number(self._pid)
        found = []
        for child in process.children:
            stat = procfs.stat(child.pid)
            if stat is None or stat.parent != self._pid or child.state in "ZX" or child.name == _LOADER:
                continue
            if _number(child.pid) == own and kernel.is_python(child.pid):
                found.append(stat)
        return found[0] if len(found) == 1 else None

    def _rested(self, tid: int) -> int:
        """How often a thread has slept once py-spy is through with it and it is back where it was."""
        for _ in range(10):
            before = kernel.switches(self._pid, tid)
            time.sleep(0.001)
            # On a busy machine it may still be on its way back.
            if kernel.switches(self._pid, tid) == before and not kernel.runs(self._pid, tid):
                break
        return kernel.switches(self._pid, tid)

    def _polls(self, dump: Dump) -> bool:
        """Whether it may be polling a lock.

        Between two pauses it runs, on a busy machine for as long as a pause: so it is looked at again, now
        that py-spy is through.
        """
        main, deputy = dump.main, dump.deputy
        if main is None or locks.polls(dump, main.call):
            return main is not None
        tid = deputy.thread.tid if deputy is not None and deputy.kind == "thread" else main.pid
        again = kernel.thread(main.pid, tid, main.ticks) if dump.loop else None
        return again is not None and locks.polls(dump, again.call)

    def _lock(self, dump: Dump, facts: kernel.ProcessFacts) -> Optional[LockFile]:
        """The file of the lock that it polls: which one is in its variables."""
        if self._dumps.wish.locals:
            return locks.file_of(self._pid, dump.frames, dump.threads[0].locals)
        seen = self.see(facts, native=False, variables=True)
        thread = deputies.deputy(seen.threads) or next(iter(seen.threads), None)
        return None if thread is None else locks.file_of(self._pid, thread.frames, thread.locals)

    def see(self, facts: kernel.ProcessFacts, *, native: bool, variables: bool) -> _SeenThreads:
        """The threads of the process, by the first way that works."""
        letter = facts.process.state
        if letter in "ZX":
            what = "its process has ended, and its parent has not reaped it (a zombie)"
            return _SeenThreads(error="zombie", what=what)
        ways = self._ways(letter, native)
        failed = _SeenThreads(error="failed", what="not inspected")
        while ways and not self._dumps.cancelled():
            way = ways.pop(0)
            result = self._spy(way, variables, facts.ns_pid)
            self._release(letter)
            if result.code == 0:
                failed = self._read(way, result, facts)
                if failed.threads:
                    break
            else:
                failed = self._failed(result, facts)
            if failed.error in ("denied", "gone", "zombie", "cancelled") or failed.hint:
                break
            if result.why:
                ways = [other for other in ways if other != way]
            if way == "native" and "native" not in ways:
                self._notes.append("no native frames: %s" % failed.what)
        return failed._replace(notes=tuple(self._notes))

    def _ways(self, letter: str, native: bool) -> List[str]:
        why = ""
        if letter in "tT":
            why = "it is stopped"
        elif self._waits_hard():
            why = "it is in an uninterruptible wait"
        if not why:
            return [*(["native", "native"] if native else []), "plain", "nonblocking", "nonblocking"]
        if native:
            self._notes.append("no native frames: %s" % why)
        return ["nonblocking", "nonblocking"]

    def _spy(self, way: str, variables: bool, ns_pid: int) -> Result:
        """What py-spy says: from outside, or else from inside the container in which the process is."""
        result = self._dumps.spy(self._arguments(way, variables, self._pid))
        if result.code == 0 or result.why or not inside.other(self._pid):
            return result
        within = self._dumps.spy_inside(self._pid, self._arguments(way, variables, ns_pid))
        return within if within is not None and within.code == 0 else result

    def _arguments(self, way: str, variables: bool, pid: int) -> List[str]:
        more = {"native": ["--native"], "nonblocking": ["--nonblocking"]}.get(way, [])
        return ["dump", "--json", *more, *(["--locals"] if variables else []), "--pid", str(pid)]

    def _waits_hard(self) -> bool:
        """Whether a thread stays in an uninterruptible wait, in which nobody can hold it."""
        hard = set(kernel.waits_hard(self._pid))
        if not hard:
            return False
        time.sleep(_SETTLE_S / 2)
        return bool(hard & set(kernel.waits_hard(self._pid)))

    def _read(self, way: str, result: Result, facts: kernel.ProcessFacts) -> _SeenThreads:
        home = os.path.expanduser("~") if facts.uid == os.geteuid() else ""
        pids = (self._pid, facts.ns_pid)
        try:
            told = pyspy_output.read(result.out, pids, kernel.folder(self._pid), home, self._known)
        except ValueError as error:
            return _SeenThreads(error="failed", what=str(error))
        if not any(thread.frames for thread in told.threads):
            return _SeenThreads(error="failed", what="py-spy finds no Python code running in the process")
        threads = told.threads
        if facts.ns_pid != self._pid:
            # py-spy mistakes numbers of that namespace for ours, and reads the wrong threads' states.
            main = threads[0]._replace(tid=self._pid, active=facts.process.state == "R")
            threads = (main, *threads[1:])
        return _SeenThreads(way, threads, told.place, places=told.places)

    def _failed(self, result: Result, facts: kernel.ProcessFacts) -> _SeenThreads:
        """Why there was no answer."""
        letter = kernel.state(self._pid, self._ticks)
        if not letter:
            return _SeenThreads(error="gone", what="its process ended during the inspection")
        if letter in "ZX":
            return _SeenThreads(error="zombie", what="its process ended during the inspection")
        if result.why == "cancelled":
            return _SeenThreads(error="cancelled", what="cancelled")
        if result.why == "timeout":
            what = "py-spy gave no answer within %g s" % self._dumps.wish.timeout_s
            return _SeenThreads(error="timeout", what=what)
        if result.why:
            return _SeenThreads(error="failed", what="py-spy's answer is too large")
        if permission.denied(result.said):
            return _SeenThreads("kernel", (), None, "denied", *permission.refusal(self._pid, facts.uid))
        return _SeenThreads("kernel", (), None, "failed", *pyspy_process.complaint(result.said, self._pid))

    def _children(self, children: Tuple[Child, ...]) -> List[Child]:
        told, room = [], CHILDREN_SEEN
        for child in children:
            found = procfs.stat(child.pid)
            late = time.monotonic() - self._began > self._dumps.wish.timeout_s
            wanted = room and not late and found is not None and child.state not in "ZX"
            if wanted and found is not None and kernel.is_python(child.pid):
                room -= 1
                look = _Look(self._dumps, child.pid, found.ticks)
                facts = kernel.look(child.pid, found.ticks)
                if facts is not None:
                    seen = look.see(facts, native=False, variables=self._dumps.wish.locals)
                    child = child._replace(threads=seen.threads)
            told.append(child)
        return told

    def _read_place(self, place: Optional[pyspy_output.UserLine]) -> Tuple[str, int]:
        """Where we find a line of source code; line 0: nowhere."""
        if place is None or not place.path.startswith("/"):
            return "", 0
        root = "/proc/%d/root" % self._pid if kernel.has_other_files(self._pid) else ""
        return root + place.path, place.line

    # -- stopped, or left stopped ------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait while somebody else's py-spy holds the process: it is not stopped, just being looked at."""
        began = time.monotonic()
        while kernel.state(self._pid, self._ticks) in ("t", "T"):
            tracer = kernel.tracer(self._pid)
            passing = tracer and "py-spy" in kernel.program(tracer)
            if time.monotonic() - began > (PASSING_S if passing else _SETTLE_S):
                return
            time.sleep(_SETTLE_S / 6)

    def _release(self, before: str) -> None:
        """Continue the process if py-spy left it stopped, especially if that py-spy had to be killed."""
        if before in "tT" or kernel.state(self._pid, self._ticks) not in ("t", "T"):
            return
        self._settle()
        if kernel.state(self._pid, self._ticks) not in ("t", "T") or kernel.tracer(self._pid):
            return
        if procfs.send(self._pid, self._ticks, signal.SIGCONT):
            self._notes.append("py-spy left it stopped; it was continued")
        else:
            self._notes.append("py-spy left it stopped, and it could not be continued")
