"""A profile of this node's ranks: ordered from their hooks, watched until it is over, and summed up here.

Nothing of it outlives the request: the order is cancelled, and what sums a trace up is a child that the
kernel ends with this agent. A hook whose agent was killed does the steps that were ordered, and no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from typing import Any, Dict, Optional

from cockpit.base import record, verbs
from cockpit.base.gate import FILE_NAME, Malformed
from cockpit.base.profile import order
from cockpit.base.profile.order import Answer, Order
from cockpit.base.progress.ring import Ring
from cockpit.base.shared_fields import Target
from cockpit.node import archive, procfs, safefiles
from cockpit.node.calls import Call, at_end
from cockpit.node.profile import phases, rings
from cockpit.node.profile.child import Child, Turn

POLL_S = 0.2
BESIDE = 5
"""Steps directly before a profile that tell what a step took without it."""
GOES_S = 6.0
"""After a cancel, for ranks to end a step, and so what they do."""
LATE_S = 5.0
"""After the deadline, for a hook to say so itself."""
SUM_S = 600.0
"""For one trace."""
SUMMARY = 4 << 20
"""Bytes of a summary that are taken."""


def profile(call: Call) -> Dict[str, Any]:
    """Profile ranks, an item whenever one of them has got further; the last one has its summary."""
    asked = call.asked(verbs.Profile)
    if asked.kind == "cpu":
        from cockpit.node.profile import spying

        return spying.run(call, asked)
    if asked.kind == "nsys":
        from cockpit.node.profile import nsys

        return nsys.run(call, asked)
    return _Profiles(call, asked).run()


class _Rank:
    """One rank, from the order to its summary."""

    def __init__(self, call: Call, asked: verbs.Profile, target: Target) -> None:
        self._call = call
        self._asked = asked
        self.target = target
        self.ring: Optional[rings.Opened] = None
        """None: nothing more is to be learned from it."""
        self.state = ""
        self.over = False
        self.answer: Optional[Answer] = None
        self.file = ""
        self.size = 0
        self._said: Optional[Ring] = None
        """The ring, soon after the last step: it goes on."""
        self._told: Dict[str, Any] = {}

    def order(self, finder: rings.Finder, number: int, deadline_ns: int) -> None:
        """Write the order, if this rank can be profiled."""
        asked = self._asked
        options = order.SHAPES * asked.shapes + order.STACK * asked.stack + order.MEMORY * asked.memory
        try:
            found = self.ring = finder.open(self.target.rank)
            rings.ready(found.read())
            found.answer()
            found.lock()
            found.order(Order(number, asked.first, asked.steps, options, deadline_ns, asked.collection))
        except rings.Unable as error:
            self.end("refused", str(error))
        except OSError as error:
            self.end("failed", "cannot send the order to it: %s" % error.strerror)

    def look(self, number: int, deadline_ns: int) -> None:
        """What its hook says by now."""
        if self.over or self.ring is None or self.state in ("written", "reading"):
            return
        try:
            alive = procfs.alive(*self.ring.process)  # first: it may say it, and end
            answer, said = self.ring.answer(), self.ring.read()
        except rings.Unable as error:
            self.end("failed", str(error))
            return
        if answer.number == number:
            self.answer = answer
            if answer.ended_ns and self._said is None:
                self._said = said
        state = answer.state if answer.number == number else ""
        if state == "written":
            self._written(answer, said)
        elif state in order.OVER:
            self.end(state, answer.why)
        elif not alive:
            self.end("failed", "its process has ended")
        elif state not in ("stopping", "writing") and time.monotonic_ns() > deadline_ns + LATE_S * 1e9:
            self.end("cancelled", "it ended no step before the deadline")
        elif state:
            self.say(state, said.steps[-1].step if said.steps else None)

    def _written(self, answer: Answer, said: Ring) -> None:
        tail = ".rank-%d.torch.step-%d.%s.trace.json.gz" % (
            self.target.rank,
            self._asked.first,
            self._asked.collection,
        )
        folder = os.path.join(self._asked.dir, record.REPORTS)
        try:
            names = [FILE_NAME.read(name) for name in os.listdir(folder) if name.endswith(tail)]
        except (OSError, Malformed):
            names = []
        size = safefiles.size(os.path.join(folder, names[0])) if len(names) == 1 else None
        if not size:
            self.end("failed", "the file that it wrote is not there")
            return
        self.file, self.size = names[0], size
        self.say("written", said.steps[-1].step if said.steps else None)

    def say(self, state: str, step: Optional[int] = None, what: str = "", payload: bytes = b"") -> None:
        """Send how far it is, if that is news."""
        answer = self.answer
        told = {
            "rank": self.target.rank,
            "state": state,
            "step": step,
            "t": answer.began_wall_ns / 1e9 if answer is not None else 0.0,
            "size": self.size,
            "file": self.file,
            "what": what,
        }
        self.state = state
        if told != self._told:
            self._told = told
            self._call.item(told, payload)

    def end(self, state: str, what: str = "", payload: bytes = b"") -> None:
        """Send its last item."""
        self.over = True
        self.say(state, None, what, payload)

    def close(self, number: int) -> None:
        """Have an order that is not over ended, and let others order."""
        if self.ring is None:
            return
        with contextlib.suppress(rings.Unable, OSError):
            if self.ring.answer().number != number or self.ring.answer().state not in order.OVER:
                self.ring.cancel(number)
        self.ring.close()
        self.ring = None

    def profile(self, found: Dict[str, Any]) -> Dict[str, Any]:
        """A :class:`cockpit.base.profile.summary.RankProfile`, of what the trace tells."""
        answer, said = self.answer, self._said
        assert answer is not None
        assert said is not None
        return {
            **found,
            **phases.phased(found["steps"], found["collectives"], said),
            "rank": self.target.rank,
            "file": self.file,
            "size": self.size,
            "began": answer.began_wall_ns,
            "before": rings.usual_s(said, self._asked.first, BESIDE),
            "stop_s": answer.stop_ns / 1e9,
            "warm_s": answer.warm_ns / 1e9,
        }


class _Profiles:
    """A request."""

    def __init__(self, call: Call, asked: verbs.Profile) -> None:
        self._call = call
        self._asked = asked
        self._number = time.monotonic_ns()
        self._deadline_ns = self._number + int(asked.deadline_s * 1e9)
        self._ranks = [_Rank(call, asked, target) for target in asked.targets]
        self._sum: Optional[_Sum] = None
        self._turn = Turn(os.path.join(asked.dir, record.REPORTS))

    def run(self) -> Dict[str, Any]:
        """Until all ranks are through, or nobody wants it."""
        at_end.append(self._close)
        try:
            finder = rings.Finder(self._asked.dir)
            for one in self._ranks:
                one.order(finder, self._number, self._deadline_ns)
            while self._look() and self._call.pause(POLL_S):
                pass
            if self._call.cancelled:
                self._cancel()
        finally:
            at_end.remove(self._close)
            self._close()
            self._turn.close()
            self._tidy()
        return {}

    def _close(self) -> None:
        """Whatever is not over ends."""
        if self._sum is not None:
            self._sum.kill()
        for one in self._ranks:
            one.close(self._number)

    def _look(self) -> bool:
        """Take in what is new; whether anything is still to come."""
        for one in self._ranks:
            one.look(self._number, self._deadline_ns)
        self._sum_up()
        return not all(one.over for one in self._ranks)

    def _cancel(self) -> None:
        """Have the ranks end it, and wait until they have, which is when they end their step."""
        for one in self._ranks:
            if one.ring is not None and not one.over:
                with contextlib.suppress(OSError):
                    one.ring.cancel(self._number)
        end = time.monotonic() + GOES_S
        while True:
            for one in self._ranks:
                one.look(self._number, self._deadline_ns)
                if not one.over and (one.state in ("written", "reading") or time.monotonic() > end):
                    one.end("cancelled", "it was not summed up" if one.file else "it ends as its step does")
            if all(one.over for one in self._ranks):
                return
            time.sleep(POLL_S / 4)

    def _sum_up(self) -> None:
        """Go on with the one trace that is summed up, or begin with the next."""
        if self._sum is not None:
            if not self._sum.done():
                return
            one, self._sum = self._sum, None
            one.tell()
            self._turn.give()
        waiting = next((one for one in self._ranks if one.state == "written" and not one.over), None)
        if waiting is None or not self._turn.take():
            return
        waiting.say("reading")
        path = os.path.join(self._asked.dir, record.REPORTS, waiting.file)
        try:
            self._sum = _Sum(waiting, path)
        except OSError as error:
            waiting.end("failed", "its trace cannot be summed up: %s" % (error.strerror or error))
            self._turn.give()

    def _tidy(self) -> None:
        """Remove what a rank left unfinished that has ended."""
        mark = ".torch.step-%d.%s.trace.json" % (self._asked.first, self._asked.collection)
        folder = os.path.join(self._asked.dir, record.REPORTS)
        for one in self._ranks:
            if procfs.alive(one.target.pid, one.target.ticks):
                continue
            whose = ".rank-%d%s" % (one.target.rank, mark)
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):
                    if whose in name and not name.endswith(".gz"):
                        os.unlink(os.path.join(folder, name))


class _Sum:
    """The process that sums up the trace of one rank.

    :raises OSError: it cannot be started
    """

    def __init__(self, rank: _Rank, path: str) -> None:
        self._rank = rank
        self._child = Child(*archive.command("sum", path), limit_s=SUM_S)
        self.done, self.kill = self._child.done, self._child.kill

    def tell(self) -> None:
        """Send what it has found out, or why it has not."""
        try:
            found = self._rank.profile(safefiles.parse(self._child.written(SUMMARY)))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._rank.end("failed", "its trace is there, but not its summary: %s" % why)
            return
        finally:
            self._child.close()
        self._rank.end("done", "", zlib.compress(json.dumps(found).encode()))
