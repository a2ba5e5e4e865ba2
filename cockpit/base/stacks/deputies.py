"""Whom a rank's main thread waits for, where another thread or process does the work."""

from __future__ import annotations

import re
from typing import Optional, Pattern, Sequence, Tuple

from cockpit.base.stacks.dump import Frame, Process, Thread
from cockpit.base.stacks.kinds import WAITING, doing, python_frames, user_frame

_JOINS = re.compile(r"^python/(threading|concurrent/futures/(_base|thread))\.py$")
_JOIN = re.compile(r"(^|\.)(join|_wait_for_tstate_lock|_shutdown|result|exception|shutdown|as_completed)$")
_IDLES = re.compile(r"^python/(threading|queue|selectors|asyncio/(\w+_events|runners|events))\.py$")
_IDLE = re.compile(r"(^|\.)(wait|get|select|run_forever|run_until_complete|run)$")
_DEEP = 2
"""Calls of the user's own in a thread that trains, at least: helpers have one function."""
_CHILDREN = re.compile(
    r"^(python/(subprocess|multiprocessing/(process|popen_\w+))|torch/multiprocessing/spawn)\.py$"
)
_CHILD = re.compile(r"(^|\.)(wait|_wait|_try_wait|join|poll|communicate|call|run)$")
_CALLS = frozenset(("wait4", "waitid"))


def waits_for_thread(frames: Tuple[Frame, ...]) -> bool:
    """Whether a stack does nothing but wait for a thread to end, or for what one computes."""
    return _waits(frames, _JOINS, _JOIN)


def idles(frames: Tuple[Frame, ...]) -> bool:
    """Whether a stack only waits for whatever comes, in an event loop or for a queue; or has no Python."""
    return not python_frames(frames) or _waits(frames, _IDLES, _IDLE)


def waits_for_child(frames: Tuple[Frame, ...], process: Optional[Process]) -> bool:
    """Whether a stack does nothing but wait for a process that it has started."""
    return _waits(frames, _CHILDREN, _CHILD) or (process is not None and process.call in _CALLS)


def _waits(frames: Tuple[Frame, ...], files: Pattern[str], names: Pattern[str]) -> bool:
    user = user_frame(frames)
    for frame in reversed(python_frames(frames)):
        if frame == user:
            return False
        if files.match(frame.file) and names.search(frame.name):
            return True
    return False


def deputy(threads: Sequence[Thread]) -> Optional[Thread]:
    """The thread that works while the main one, the first of these, waits for it; None: there is none.

    One that waits for other ranks comes before one that is somewhere else in the user's code; helpers of
    libraries are neither. Where the main one may wait for anything, it has to be deep in the user's code: Ray
    trains so.
    """
    if len(threads) < 2:
        return None
    joins = waits_for_thread(threads[0].frames)
    if not joins and not idles(threads[0].frames):
        return None
    others = [(_worth(thread), thread) for thread in threads[1:] if joins or _is_deep(thread)]
    best = max((worth for worth, _ in others), default=0)
    return next((thread for worth, thread in others if worth == best), None) if best else None


def _is_deep(thread: Thread) -> bool:
    user = [frame for frame in python_frames(thread.frames) if user_frame((frame,)) is not None]
    act = doing(thread.frames)
    return act.kind in WAITING or (len(user) >= _DEEP and act.kind != "sleep")


def _worth(thread: Thread) -> int:
    if user_frame(thread.frames) is None:
        return 0
    return 2 if doing(thread.frames).kind in WAITING else 1
