"""Walls around a widget: its errors stop nothing else, and nothing that it draws acts on the terminal.

Textual ends the loop of a widget that raises, and draws nothing at all if one widget cannot be drawn.
Every widget gets its walls when it is started, Textual's own ones too, so none can be forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from cockpit.core.text import harmless
from cockpit.tui.door import kind_and_text

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
