"""The one door for errors in the app: people get a message, details go into a file.

And walls around each widget, so that its errors stop nothing else, and nothing that it draws acts on the
terminal. Textual ends the loop of a widget that raises, and draws nothing if one widget cannot be drawn.
Every widget gets its walls when it is started, Textual's own ones too, so none can be forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import WorkerFailed

from cockpit.core.text import harmless, one_line
from cockpit.engine import traces
from cockpit.errors import CockpitError, ManyErrors

_CATCHERS = ("cockpit.tui.error_reporting", "cockpit.tui.base_app")
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


Tell = Callable[[Exception], None]


def wall(widget: Widget, raised: Tell, undrawn: Tell) -> None:
    """Put walls around a widget that is not started yet.

    :param raised: called with what a message handler raised: the widget goes on with the next message
    :param undrawn: called with why the widget cannot be drawn or measured: one line in its place says so
    """
    if "render_lines" in vars(widget):
        return  # it was already started, and has them
    for name, walled in (
        ("_dispatch_message", _handling(widget, raised)),
        ("render_lines", _drawing(widget, undrawn)),
        ("get_content_width", _measuring(widget.get_content_width, undrawn, lambda size: size.width)),
        ("get_content_height", _measuring(widget.get_content_height, undrawn, lambda _: 1)),
    ):
        # On the one widget, over the method of its class.
        setattr(widget, name, walled)


def _handling(widget: Widget, raised: Tell) -> object:
    inner = widget._dispatch_message

    async def dispatch(message: Message) -> None:
        try:
            await inner(message)
        except Exception as error:
            raised(error)
            await asyncio.sleep(0)  # one that keeps failing must not starve the others

    return dispatch


def _drawing(widget: Widget, undrawn: Tell) -> object:
    inner = widget.render_lines

    def render_lines(crop: Region) -> list[Strip]:
        try:
            return [_harmless(strip) for strip in inner(crop)]
        except Exception as error:
            undrawn(error)
            line = Strip.blank(crop.width)
            return [_instead(error, crop) if y == 0 else line for y in range(crop.y, crop.bottom)]

    return render_lines


def _harmless(strip: Strip) -> Strip:
    """A line without what may act on a terminal, whoever forgot to sanitise it."""
    if strip.text.isprintable():
        return strip  # nearly always so, and quick
    parts = [Segment(harmless(text), style, control) for text, style, control in strip]
    return Strip(parts).adjust_cell_length(strip.cell_length)


def _instead(error: Exception, crop: Region) -> Strip:
    """The line drawn in place of a widget."""
    text = set_cell_size(f"cannot be drawn: {kind_and_text(error)}"[crop.x :], crop.width)
    return Strip([Segment(text)], crop.width)


def _measuring(
    inner: Callable[..., int], undrawn: Tell, instead: Callable[[Size], int]
) -> Callable[..., int]:
    """A measure of a widget; of one that cannot be measured, what is made of its container's size."""

    def measure(container: Size, *more: object) -> int:
        try:
            return inner(container, *more)
        except Exception as error:
            undrawn(error)
            return instead(container)

    return measure
