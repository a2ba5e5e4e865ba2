"""A stop that nobody watches: it ends in time, whatever the links do, and says what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time

from cockpit.cli.output import say
from cockpit.core.run.model import Node
from cockpit.engine.launch.prepare import Times
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError, Exit

REACH_S = 60.0
"""For a stop to reach a node; its link may be lost, and come back."""

REACH_HARD_S = 10.0
"""The same, if somebody has lost patience."""

MARGIN_S = 30.0
"""For a node's work after the grace period: SIGKILL, leftovers of the run, the last output."""

STUCK_S = 30.0
"""For this process to end after that: a disk or a name server may hold up a thread."""


class Ending:
    """A stop in progress.

    :param times: of the stop, as the run was started with
    :param reach_s: for the stop to reach a node
    """

    def __init__(self, session: Session, reason: str, times: Times, reach_s: float, *, hard: bool) -> None:
        self._session = session
        self._reach_s = reach_s
        profiled = session.manifest.profile is not None
        self._end_s = MARGIN_S if hard else times.grace + times.finalise * profiled + MARGIN_S
        self._began = time.monotonic()
        self._asking: asyncio.Task[list[CockpitError]] | None
        self._asking = asyncio.create_task(session.stop(reason, hard=hard))

    def look(self) -> None:
        """Say which nodes could not be asked, once.

        :raises CockpitError: the stop could not be asked for at all
        """
        if self._asking is not None and self._asking.done():
            asked, self._asking = self._asking, None
            for error in asked.result():
                say(str(error))

    def given_up(self) -> list[str]:
        """What is left, once waiting no longer helps; else nothing."""
        waited = time.monotonic() - self._began
        waiting = [node for node in self._session.model.nodes.values() if not node.done]
        late = all(waited > (self._end_s if _told(node) else self._reach_s) for node in waiting)
        return self.left() if late else []

    def left(self) -> list[str]:
        """What is left now, one line per node."""
        run, paused = self._session.folder.name, self._session.paused
        nodes = self._session.model.nodes.values()
        return [_left(node, run, paused.get(node.name)) for node in nodes if not node.done]


def _told(node: Node) -> bool:
    return node.over or node.stop_requested_at is not None


def _left(node: Node, run: str, unkept: CockpitError | None) -> str:
    """What is left of a node, and what to type; ``unkept``: why what it sends cannot be kept here."""
    if node.over:
        return f"{node.name}: ended, but not all of its output was fetched; to fetch it: cockpit logs {run}"
    if _told(node):
        return (
            f"{node.name}: still running after being asked to stop; to kill it now: cockpit stop {run} --now"
        )
    if unkept is not None:
        return f"{node.name}: not followed ({unkept}); to see whether its ranks have ended: cockpit ps {run}"
    return f"{node.name}: not reachable, its ranks may still be running; to stop them: cockpit stop {run}"


def leave_soon(code: Exit) -> None:
    """Make sure that this process ends, even if one of its threads does not."""
    timer = threading.Timer(STUCK_S, os._exit, (int(code),))
    timer.daemon = True
    timer.start()
