"""A pane of text lines that scrolls: what Detail, Events and Commands have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple, overload

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip

from cockpit.tui.panes.moving_pane import MovingPane


class Piece(NamedTuple):
    """Some harmless text with one meaning; ``pace-3/1`` is in the colour of the one on that of the other."""

    text: str
    role: str = ""


class Line(NamedTuple):
    """A line of the screen.

    :param pieces: from left to right
    :param indent: characters at its start that only place it; they are not copied
    :param joins: it continues the previous line where that was cut: no newline between them when copied
    :param heading: it is above an item without being part of it
    """

    pieces: tuple[Piece, ...] = ()
    indent: int = 0
    joins: bool = False
    heading: bool = False

    @classmethod
    def of(cls, text: str, role: str = "") -> Line:
        """A line of one piece."""
        return cls((Piece(text, role),))

    @property
    def text(self) -> str:
        """All of it, without meaning."""
        return "".join(piece.text for piece in self.pieces)


class LinesLater(Sequence[Line]):
    """Lines, some of which are made when they are first looked at: of many, few are on the screen.

    :param lines: each, or what makes it
    """

    def __init__(self, lines: Iterable[Line | Callable[[], Line]]) -> None:
        self._lines = list(lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, at: int) -> Line: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Line]: ...

    def __getitem__(self, at: int | slice) -> Line | Sequence[Line]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        line = self._lines[at]
        if not isinstance(line, Line):
            line = self._lines[at] = line()
        return line


def fold(text: str, columns: int) -> list[str]:
    """Cut a text into pieces of at most this many columns, after spaces or else punctuation if there is any.

    The pieces together are the text; there is at least one, and none but the only one is empty.
    """
    pieces = []
    while (end := _fitting(text, columns)) < len(text):
        for signs in (" ", ":;,&：；，、", "/"):
            last = max(text.rfind(sign, end // 2, end) for sign in signs)
            if last > 0:
                end = last + 1
                break
        pieces.append(text[:end])
        text = text[end:]
    return [*pieces, text] if text or not pieces else pieces


def _fitting(text: str, columns: int) -> int:
    """How many characters fit, one at least."""
    if len(text) <= columns and text.isascii():
        return len(text)
    used = 0
    for index, char in enumerate(text):
        used += get_character_cell_size(char)
        if used > columns:
            return max(1, index)
    return len(text)


def hanging(head: Sequence[Piece], text: str, width: int, role: str = "") -> Iterator[Line]:
    """A text after ``head``, with its further lines below the first one.

    :param width: columns of the pane; in a very narrow one the text is below the head
    """
    indent = cell_len("".join([piece.text for piece in head]))
    if len(text) <= width - indent and text.isascii():
        yield Line((*head, Piece(text, role)))
        return
    if width - indent < min(16, cell_len(text)):
        yield Line(tuple(head))
        head, indent = (Piece("  "),), 2
    pieces = fold(text, max(1, width - indent))
    yield Line((*head, Piece(pieces[0], role)))
    for piece in pieces[1:]:
        yield Line((Piece(" " * indent), Piece(piece, role)), indent, joins=True)


class TextPane(MovingPane):
    """Shows lines that :meth:`build` makes for the current width; text in it can be selected.

    :param ascii_only: draw only ASCII, except for what others wrote
    """

    DEFAULT_CSS = """
    TextPane {
        width: 1fr;
        height: 1fr;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        & > .text-pane--cursor { background: $foreground 8%; }
        &:focus > .text-pane--cursor { background: $foreground 16%; }
        &:ansi > .text-pane--cursor { text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"text-pane--cursor"}

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.ascii_only = ascii_only
        self.lines: Sequence[Line] = ()
        """Everything it shows, on the screen or not."""

    @abstractmethod
    def build(self, width: int) -> Sequence[Line]:
        """The lines for a pane of this many columns."""

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as there are at that width: the current ones were made for the previous width."""
        width -= self.scrollbar_size_vertical
        return len(self.lines if width in (0, self.scrollable_size.width) else self.build(width))

    def rows_cut(self, width: int) -> int:
        """How many lines more it would fill if there were rows for what it cuts."""
        return 0

    def rebuild(self) -> None:
        """Build the lines again; nothing is drawn if those on the screen are the same."""
        width = self.scrollable_size.width
        if width <= 0:
            return
        lines, before = self.build(width), self.lines
        self.lines = lines
        seen = slice(self.scroll_offset.y, self.scroll_offset.y + self.size.height)
        if len(lines) != len(before):
            self.virtual_size = Size(width, len(lines))
        elif list(lines[seen]) == list(before[seen]):
            return
        self.refresh()

    def copy_text(self) -> str:
        """What copying gives without a selection: all of it, harmless."""
        return copied((line, 0, -1) for line in self.lines)

    # Moving

    def move(self, rows: int) -> None:
        """Scroll by this many lines."""
        self.scroll_to(y=self.scroll_offset.y + rows, animate=False)

    def page(self, step: int) -> None:
        """Scroll by a screen: ``step`` 1 down, -1 up."""
        self.move(step * max(1, self.scrollable_size.height - 1))

    def home(self) -> None:
        """Go to the first line."""
        self.scroll_to(y=0, animate=False)

    def end(self) -> None:
        """Go to the last line."""
        self.scroll_to(y=self.max_scroll_y, animate=False)

    # Drawing

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        """Let the scrollbar begin where the text is: Textual reports moves to it only while it is shown."""
        if shown:
            self.vertical_scrollbar.position = self.scroll_y

    def on_resize(self, event: events.Resize) -> None:
        """Lines depend on the width."""
        self.rebuild()

    def is_marked(self, y: int) -> bool:
        """Whether the cursor is on this line."""
        return False

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        width = self.scrollable_size.width
        y += self.scroll_offset.y
        if y >= len(self.lines):
            return Strip.blank(width, self._style(""))
        marked = self.is_marked(y)
        segments = [Segment(piece.text, self._style(piece.role, marked)) for piece in self.lines[y].pieces]
        selection = self.text_selection
        span = selection.get_span(y) if selection is not None else None
        if span is not None:
            style = self.screen.get_component_rich_style("screen--selection")
            segments = list(_overlaid(segments, *span, style))
        strip = Strip(segments).adjust_cell_length(width, self._style("", marked))
        return strip.apply_offsets(0, y)

    def _style(self, role: str, marked: bool = False) -> Style:
        style = self.style_of(role)
        if marked:
            full = self.get_component_rich_style("text-pane--cursor")
            reverse = self.get_component_rich_style("text-pane--cursor", partial=True).reverse
            style += Style(bgcolor=full.bgcolor, reverse=reverse)
        return style

    # Selecting

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without what only places it on the screen."""
        spans = ((line, selection.get_span(y)) for y, line in enumerate(self.lines))
        return copied((line, *span) for line, span in spans if span is not None), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw the selection."""
        self.refresh()


def copied(parts: Iterable[tuple[Line, int, int]]) -> str:
    """The text of lines from one character to another (-1: to the end), those that were cut made whole."""
    text = ""
    for index, (line, start, end) in enumerate(parts):
        whole = line.text
        piece = whole[max(start, line.indent) : len(whole) if end < 0 else end]
        text += piece if line.joins or not index else f"\n{piece}"
    return text


def _overlaid(segments: Sequence[Segment], start: int, end: int, over: Style) -> Iterator[Segment]:
    """Segments with a style laid over the characters from ``start`` to ``end`` (-1: to the end)."""
    at = 0
    for text, style, _ in segments:
        first = min(max(start - at, 0), len(text))
        last = len(text) if end < 0 else min(max(end - at, first), len(text))
        for piece, marked in ((text[:first], False), (text[first:last], True), (text[last:], False)):
            if piece:
                yield Segment(piece, style + over if style and marked else style)
        at += len(text)
