"""Records one window of a run in nsys's session, from its start to a report; a process of its own.

It outlives the agent that has started it, however that ends: what it has begun in the session it also ends.
The agent writes its order as a line to stdin, and ``cancel`` if nobody wants the window any more; as stdin
ends without that, the agent was killed: then the window ends at once, and its report is kept. What it says
are items of :class:`cockpit.base.answers.ProfileItem`, a line each.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import time
from typing import Any, Dict, List, Optional, Tuple

from cockpit.base import record
from cockpit.base.progress import ring
from cockpit.base.progress.whole import WholeSteps
from cockpit.base.shared_fields import Target
from cockpit.node import procfs, safefiles, space, usermask
from cockpit.node.profile import rings
from cockpit.node.run import nsys_session, reports
from cockpit.node.run.nsys_session import NoSession

POLL_S = 0.2
START_S = 60.0
"""For nsys to start recording: 0.5 s on an idle node."""
CANCEL_S = 60.0
WRITE_S, IMPORT_S = 600.0, 600.0
LEAVE = 64 << 20
"""Bytes: with fewer left on the disk, a window ends early."""
ROOM_S = 2.0
"""Seconds between two looks for that."""
GROWING_S = 0.5
"""Seconds between two items about a growing report."""
ENDS_S = 10.0
"""For a launcher to end whose ranks have: it may as well start others."""

RECORDING = ("--sample=none", "--cpuctxsw=none")
"""What `nsys start` gets: with either, 2022.4 often never finishes its report on a new kernel."""


class _Rank:
    """A rank of the window, and the steps that it ends in it."""

    def __init__(self, finder: rings.Finder, target: Target) -> None:
        self.target = target
        self._ring: Optional[rings.Opened] = None
        with contextlib.suppress(rings.Unable):
            self._ring = finder.open(target.rank)
        self.steps: Tuple[ring.Step, ...] = ()
        self._held: Optional[WholeSteps] = None
        self.told: Dict[str, Any] = {}

    @property
    def last(self) -> Optional[int]:
        """The last step that it has ended; None: nobody counts."""
        return self.steps[-1].step if self.steps else None

    def look(self, began_ns: int = 0) -> bool:
        """Take in its steps; whether it lives.

        :param began_ns: when the window began, by the monotonic clock; 0: it has not
        """
        alive = procfs.alive(self.target.pid, self.target.ticks)  # first: it may end a step, and end
        if self._ring is not None:
            with contextlib.suppress(rings.Unable):
                self.steps = self._ring.read().steps
        if began_ns:
            self._held = self._held or WholeSteps(began_ns)
            self._held.look(self.steps)
        return alive

    def has(self, first: int, steps: int) -> bool:
        """Whether the window holds as many whole steps as were asked for, later ones where nsys was late."""
        if self.last is None:
            return True  # nobody counts
        began = self._held.first if self._held else None
        return began is not None and self.last >= max(first, began[0]) + steps - 1

    def holds(self, began_ns: int, ended_ns: int, first: int, steps: int) -> str:
        """What a window holds beside the steps that were asked for, or lacks of them, in a sentence.

        :param first: of these; 0: none were
        """
        held = self._held
        until = held.last(self.steps, ended_ns) if held else None
        if held is None or held.first is None or until is None:
            return "no whole step is in it" if self.steps else ""
        since, begin_ns = held.first
        late = ""
        if first:
            late = "nsys was late: " if first < since else ""
            first = max(first, since)
            if until < first + steps - 1:
                return "%sonly %s in it" % (late, _steps(since, until))
            spans = dict(zip((one.step for one in self.steps), ring.spans(self.steps)))
            begin_ns, until = (spans.get(first) or (began_ns,))[0], first + steps - 1
            since = first
        end_ns = next(one.mono_ns for one in self.steps if one.step == until)
        before_s, after_s = (begin_ns - began_ns) / 1e9, (ended_ns - end_ns) / 1e9
        whole = _steps(since, until)
        return "%s%s in it, with %.1f s before and %.1f s after" % (late, whole, before_s, after_s)


def _steps(first: int, last: int) -> str:
    return "steps %d to %d are" % (first, last) if last > first else "step %d is" % first


class Keeper:
    """One window.

    :param asked: fields of :class:`cockpit.base.verbs.Profile` of these names; ``stem``: of its report's name
    """

    def __init__(self, asked: Dict[str, Any]) -> None:
        self._asked = asked
        self._folder: str = asked["dir"]
        pid: int = asked["pid"]
        self._session = nsys_session.find(self._folder, asked["file"], pid)
        self._launcher = pid, procfs.ticks(pid)
        finder = rings.Finder(self._folder)
        self._ranks = [_Rank(finder, Target(*target)) for target in asked["targets"]]
        self._deadline = time.monotonic() + asked["deadline_s"]
        self._wanted = self._cancelled = False
        self._began = 0.0
        self._began_ns = self._ended_ns = 0
        self._started_s = 0.0
        self._room_at = self._growing_at = 0.0
        self._size = 0
        self._place = ""

    def run(self) -> None:
        """All of it; whatever goes wrong is said."""
        number = nsys_session.lock(self._folder, self._asked["file"])
        if number is None:
            raise NoSession("another nsys profile of it is running")
        try:
            self._wanted = True
            name = "%s.%d" % (self._asked["collection"], self._ranks[0].target.rank)
            self._place = nsys_session.parts(self._folder, name)
            self._start()
            try:
                why = self._watch()
            except Exception:
                self._cancel()  # nothing that goes wrong here leaves it recording
                raise
            if self._cancelled:
                self._cancel()
                self._say("cancelled")
            else:
                self._stop(why)
        finally:
            if self._place:
                shutil.rmtree(self._place, ignore_errors=True)
            os.close(number)

    def _start(self) -> None:
        self._say("starting")
        began = time.monotonic()
        words = ["start", "--session=" + self._session.name, "-f", "true", *RECORDING]
        # nsys reads a % as the beginning of a pattern.
        words += ["-o", os.path.join(self._place, self._asked["stem"]).replace("%", "%%")]
        done, said = self._session.run(*words, timeout_s=START_S)
        if not done and self._session.state() == "Collection":
            # Whoever has started that is gone, or nsys was late.
            self._cancel()
            done, said = self._session.run(*words, timeout_s=START_S)
        if not done:
            if self._session.state() == "Collection":
                self._cancel()
            raise NoSession(said)
        self._began, self._began_ns = time.time(), time.monotonic_ns()
        self._started_s = time.monotonic() - began

    def _cancel(self) -> None:
        """End what nsys records, and drop it."""
        words = "--session=" + self._session.name
        done, _ = self._session.run("cancel", words, timeout_s=CANCEL_S)
        if not done and self._session.state() == "Collection":
            done, said = self._session.run("stop", words, timeout_s=WRITE_S)
            if not done:
                raise NoSession(said)

    def _watch(self) -> str:
        """Until the window is over; why it is before its time, in words, or nothing."""
        first, last = self._asked["first"], self._asked["first"] + self._asked["steps"] - 1
        end = time.monotonic() + self._asked["seconds"]
        while True:
            alive = [one.look(self._began_ns) for one in self._ranks]
            self._say("profiling")
            living = [one for one, lives in zip(self._ranks, alive) if lives]
            if not living:
                return "the ranks of this node have ended"
            counted = any(one.last is not None for one in living)
            if first and counted and all(one.has(first, self._asked["steps"]) for one in living):
                return ""
            now = time.monotonic()
            if not first and now >= end:
                return ""
            if now >= self._deadline:
                return "not all ranks had ended step %d by the deadline" % last
            if now >= self._room_at:
                self._room_at = now + ROOM_S
                if self._short():
                    return "the disk is nearly full"
            if not self._go_on(POLL_S if first else min(POLL_S, end - now)):
                return "cockpit's agent was ended"

    def _go_on(self, seconds: float) -> bool:
        """Wait; whether somebody wants it to go on."""
        readable, _, _ = select.select([0], [], [], seconds)
        if readable:
            self._cancelled = b"cancel" in os.read(0, 4096)
        return not readable

    def _short(self) -> bool:
        for folder in (self._place, self._session.temporary):
            with contextlib.suppress(OSError):
                if space.free(folder) < LEAVE:
                    return True
        return False

    def _stop(self, why: str) -> None:
        began = time.monotonic()
        self._ended_ns = time.monotonic_ns()
        for one in self._ranks:
            one.look(self._began_ns)
        done, said = self._by_itself(), "nsys has left no report"
        if not done:
            words = "--session=" + self._session.name
            done, said = self._session.run("stop", words, timeout_s=WRITE_S, meanwhile=self._growing)
        if not done and not self._by_itself() and self._session.state() == "Collection":
            self._cancel()
        found = nsys_session.written(self._place)
        if not found:
            raise NoSession(said)
        path = found[0]
        if path.endswith(".qdstrm"):
            self._say("importing")
            path, trouble = reports.imported(path, self._session.tool, IMPORT_S, bool)
            why = "; ".join(filter(None, (why, trouble)))
        final = os.path.join(self._folder, record.REPORTS, os.path.basename(path))
        os.chmod(path, 0o600)  # nsys ignores the umask
        os.rename(path, final)
        self._size = safefiles.size(final) or 0
        took = "nsys took %.1f s to start, %.1f s to write" % (self._started_s, time.monotonic() - began)
        for one in self._ranks:
            holds = one.holds(self._began_ns, self._ended_ns, self._asked["first"], self._asked["steps"])
            self._item(one, "done", "; ".join(filter(None, (why, holds, took))), os.path.basename(final))

    def _by_itself(self) -> bool:
        """Whether nsys writes since its launcher has ended: a stop at that moment loses the report."""
        soon = time.monotonic() + ENDS_S
        while not any(one.look() for one in self._ranks) and procfs.alive(*self._launcher):
            if time.monotonic() > soon:
                return False
            time.sleep(POLL_S)
        if any(one.look() for one in self._ranks):
            return False
        deadline = time.monotonic() + WRITE_S
        while self._session.state() and time.monotonic() < deadline:
            self._growing()
            time.sleep(POLL_S)
        return True

    def _growing(self) -> None:
        now = time.monotonic()
        if now >= self._growing_at:
            self._growing_at = now + GROWING_S
            self._size = reports.size_so_far(self._place, self._began, self._session.temporary)
            self._say("writing")

    def _say(self, state: str, what: str = "") -> None:
        for one in self._ranks:
            self._item(one, state, what)

    def fail(self, what: str) -> None:
        """Say why there is nothing."""
        self._say("failed" if self._wanted else "refused", what)

    def _item(self, one: _Rank, state: str, what: str, file: str = "") -> None:
        told = {"rank": one.target.rank, "state": state, "step": one.last, "t": self._began, "file": file}
        told.update(size=self._size, what=what)
        if told != one.told:
            one.told = told
            _say(told)


def _say(told: Dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # whoever has asked is gone
        os.write(1, json.dumps(told).encode() + b"\n")


def main(argv: List[str]) -> int:
    """Read the order from stdin, and carry it out; returns an exit code."""
    usermask.be_private()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # what ends the agent must not leave nsys recording
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            return 2
        data += part
    asked = json.loads(data.decode())
    try:
        keeper = Keeper(asked)
    except NoSession as error:
        for rank, _, _ in asked["targets"]:
            _say({"rank": rank, "state": "refused", "what": str(error)})
        return 1
    try:
        keeper.run()
    except (NoSession, OSError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        keeper.fail(what)
        return 1
    return 0
