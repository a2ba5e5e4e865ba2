"""The one door for errors in the app: people get a message, details go into a file."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from textual.worker import WorkerFailed

from cockpit.core.text import one_line
from cockpit.engine import traces
from cockpit.errors import CockpitError, ManyErrors

_CATCHERS = ("cockpit.tui.walls", "cockpit.tui.base_app")
"""These are in every stack, and never where the error happened."""

SHOWN = 4
"""How many of several errors are shown in one notice."""

QUIET_S = 5.0
"""A problem that recurs sooner than this is the one already on the screen."""

STORM, STORM_S = 1000, 5.0
"""This many errors within this many seconds: the app does nothing else any more."""


class Door:
    """Decides what to say about an error, and whether it was just said.

    :param clock: seconds, only ever forwards
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}
        self._recent: deque[float] = deque(maxlen=STORM)

    @property
    def storm(self) -> bool:
        """Whether errors come so fast that nothing else can be going on."""
        recent = self._recent
        return len(recent) == STORM and recent[-1] - recent[0] < STORM_S

    def take(self, error: BaseException, *, once: bool = False) -> CockpitError | None:
        """What to say about an error; None if it is already on the screen.

        :param once: it is not said again, however much later it recurs
        """
        now = self._clock()
        self._recent.append(now)
        error = _bare(error)
        key = _key(error)
        last = self._last.get(key)
        self._last[key] = now
        if last is not None and (once or now - last < QUIET_S):
            return None
        return explained(error)


def explained(error: BaseException) -> CockpitError:
    """The error in a form a person can act on; the details of an unforeseen one go into a file."""
    error = _bare(error)
    if isinstance(error, CockpitError):
        return error
    place = _place(error)
    try:
        details = f"details: {traces.save(error)}"
    except (OSError, ValueError) as trouble:
        details = f"its details could not be saved: {trouble}"
    return CockpitError(f"internal error in {place[0]}: {kind_and_text(error)}", hint=details)


def kind_and_text(error: BaseException) -> str:
    """An unforeseen error in one harmless line: ``KeyError: 'rank'``."""
    text = one_line(str(error), limit=200)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def notice(error: CockpitError) -> str:
    """An error as a notice shows it: what happened, and below it what to do."""
    errors = error.errors if isinstance(error, ManyErrors) else (error,)
    lines = []
    for each in errors[:SHOWN]:
        head = f"{each.where}: {each.what}" if each.where else each.what
        lines.append(one_line(head, limit=400))
        if each.hint:
            lines.append(f"→ {one_line(each.hint, limit=300)}")
    if len(errors) > SHOWN:
        lines.append(f"and {len(errors) - SHOWN} more")
    return "\n".join(lines)


def _bare(error: BaseException) -> BaseException:
    """The error itself: Textual wraps that of a worker."""
    return error.error if isinstance(error, WorkerFailed) else error


def _key(error: BaseException) -> str:
    """What identifies a problem: equal for the same one."""
    return str(error) if isinstance(error, CockpitError) else f"{type(error).__name__} {_place(error)}"


def _place(error: BaseException) -> tuple[str, int]:
    """The function where it happened (``log_view.render_line``), ours if possible, and the line."""
    found = ("the app", 0)
    at: TracebackType | None = error.__traceback__
    ours = False
    while at is not None:
        code = at.tb_frame.f_code
        module = str(at.tb_frame.f_globals.get("__name__", ""))
        own = module.startswith("cockpit.") and module not in _CATCHERS
        if own or not ours:
            found = (f"{Path(code.co_filename).stem}.{code.co_name}", at.tb_lineno)
            ours = own
        at = at.tb_next
    return found
