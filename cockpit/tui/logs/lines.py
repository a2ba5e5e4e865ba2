"""How a row of the log is drawn: time, who printed it, and its text, in strips of one width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.strip import Strip
from textual.widget import Widget

from cockpit.core.logs.levels import Level
from cockpit.core.logs.patterns import Pattern
from cockpit.core.logs.sources import Nccl
from cockpit.core.ranks import ranks_text
from cockpit.core.text import sanitise
from cockpit.engine.logs.book import Row, Source
from cockpit.tui.look.ansi import Span, read_colours
from cockpit.tui.look.units import clock_text

LAUNCHER = "launch"
NCCL = "nccl"
MIN_TEXT = 16
"""Columns of text below which neither times nor labels are drawn."""


@dataclass(frozen=True)
class LogStyles:
    """The styles of a log, each complete except those that are laid over another.

    :param cursor: over the line the cursor is on
    :param hit: over what a filter found
    :param selection: over selected text
    """

    base: Style
    time: Style
    label: Style
    warning: Style
    error: Style
    dim: Style
    cursor: Style
    hit: Style
    selection: Style

    @classmethod
    def of(cls, widget: Widget) -> LogStyles:
        """The styles of a widget with the component classes ``log-view--…``."""
        base = widget.rich_style

        def part(name: str) -> Style:
            return widget.get_component_rich_style(f"log-view--{name}", partial=True)

        # Only the complete style has the cursor's background blended with what is behind it.
        cursor = widget.get_component_rich_style("log-view--cursor")
        return cls(
            base=base,
            **{name: base + part(name) for name in ("time", "label", "warning", "error", "dim")},
            cursor=Style(bgcolor=cursor.bgcolor, reverse=part("cursor").reverse),
            hit=part("hit"),
            selection=widget.screen.get_component_rich_style("screen--selection"),
        )

    def text(self, level: Level) -> Style:
        """The style of a line's text."""
        return {Level.WARNING: self.warning, Level.ERROR: self.error}.get(level, self.base)


@dataclass(frozen=True)
class LogLook:
    """Everything that the look of a row depends on, except the row.

    :param width: columns of a strip
    :param labels: columns for who printed it; 0: not drawn
    :param times: whether to draw times
    :param wrap: long lines continue in the next strip, else they are cut
    :param left: columns of text scrolled out on the left, when not wrapping
    :param hits: what to highlight in the text
    """

    styles: LogStyles
    width: int
    labels: int = 0
    times: bool = True
    wrap: bool = False
    left: int = 0
    hits: Pattern | None = None

    @property
    def time_columns(self) -> int:
        """Columns of the time: with milliseconds if there is room."""
        if not self.times or self.width < MIN_TEXT + 16:
            return 0
        return 12 if self.width >= 70 else 8

    @property
    def label_columns(self) -> int:
        """Columns of the label: few in a narrow pane."""
        if self.width < MIN_TEXT + 8:
            return 0
        return min(self.labels, 16 if self.width >= 100 else 12 if self.width >= 70 else 8)

    @property
    def prefix_columns(self) -> int:
        """Columns before the text."""
        return sum(columns + 1 for columns in (self.time_columns, self.label_columns) if columns)

    @property
    def text_columns(self) -> int:
        """Columns of the text."""
        return max(1, self.width - self.prefix_columns)


class _Line:
    """A row's text, ready to be cut into strips."""

    __slots__ = ("breaks", "hits", "spans", "text")

    def __init__(self, row: Row, look: LogLook) -> None:
        self.text, self.spans = shown(row, look.styles.dim)
        self.breaks = _breaks(self.text, look.text_columns) if look.wrap else [0]
        found = look.hits.spans(self.text) if look.hits else ()
        self.hits = [Span(start, end, look.styles.hit) for start, end in found]


def shown(row: Row, dim: Style | None = None) -> tuple[str, list[Span]]:
    """The text of a row for a screen, harmless, and its program's colours.

    :param dim: the style of the note on how much of an overlong line is left out
    """
    text, spans = read_colours(sanitise(row.text, colour=True))
    if row.size > len(row.text):
        note = f" … (+{row.size - len(row.text):,} bytes)"
        if dim is not None:
            spans.append(Span(len(text), len(text) + len(note), dim))
        text += note
    return text, spans


class LogPainter:
    """Draws rows in one look; a new look needs a new painter."""

    def __init__(self, look: LogLook) -> None:
        self.look = look
        self._lines: LRUCache[tuple[object, ...], _Line] = LRUCache(512)
        self._strips: LRUCache[tuple[object, ...], Strip] = LRUCache(1024)

    def height(self, row: Row) -> int:
        """How many strips a row takes."""
        return len(self._line(row).breaks) if self.look.wrap else 1

    def strip(
        self,
        row: Row,
        part: int,
        number: int,
        *,
        cursor: bool = False,
        headed: bool = True,
        selected: tuple[int, int] | None = None,
    ) -> Strip:
        """Draw one line of the screen.

        :param part: which of the row's strips
        :param number: of the row, for the selection of text: ``(character, number)`` is a place in the log
        :param cursor: whether the cursor is on it
        :param headed: draw time and label, also of a row that continues the one before
        :param selected: the selected characters of the row; an end of -1: to its end
        """
        # The text too: it changes when the bytes of the line arrive.
        key = (row.batch, row.index, row.text, part, number, cursor, headed, selected)
        strip = self._strips.get(key)
        if strip is None:
            strip = self._strips[key] = self._draw(
                row, self._line(row), part, number, cursor, headed, selected
            )
        return strip

    def pending(self, row: Row) -> Strip:
        """Draw an unfinished line; it changes, so nothing of it is kept."""
        return self._draw(row, _Line(row, self.look), 0, None, False, True, None)

    def _line(self, row: Row) -> _Line:
        key = (row.batch, row.index, row.text)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(row, self.look)
        return line

    def _draw(
        self,
        row: Row,
        line: _Line,
        part: int,
        number: int | None,
        cursor: bool,
        headed: bool,
        selected: tuple[int, int] | None,
    ) -> Strip:
        look = self.look
        base = look.styles.base + look.styles.cursor if cursor else look.styles.base
        prefix = self._prefix(row, headed and not part)
        start, end, cut = self._range(line, part)
        dim = look.styles.dim + look.styles.cursor if cursor else look.styles.dim
        style = look.styles.text(row.level)
        overlays = [line.spans, line.hits]
        if cursor:
            overlays.insert(0, [Span(0, len(line.text), look.styles.cursor)])
        if selected is not None:
            first, last = selected
            overlays.append([Span(first, len(line.text) if last < 0 else last, look.styles.selection)])
        segments = [Segment(text, kind + look.styles.cursor if cursor else kind) for text, kind in prefix]
        if number is not None:
            # Places before the text have negative numbers, to recognise a drag that begins there.
            at = start - sum(len(segment.text) for segment in segments)
            segments = [_placed(segment, at, number) for segment in segments]
        if look.left and line.text:
            segments.append(Segment("…", dim))
            start = min(end, start + 1)
        for first, last, kind in _pieces(start, end, style, overlays):
            segment = Segment(line.text[first:last], kind)
            segments.append(segment if number is None else _placed(segment, first, number))
        if cut:
            segments.append(Segment("…", dim))
        return Strip(segments).adjust_cell_length(look.width, base)

    def _prefix(self, row: Row, headed: bool) -> list[tuple[str, Style]]:
        look, styles = self.look, self.look.styles
        if not headed:
            return [(" " * look.prefix_columns, styles.base)] if look.prefix_columns else []
        parts = []
        if look.time_columns:
            parts.append((clock_text(row.at, look.time_columns) + " ", styles.time))
        if look.label_columns:
            text = label(row.sources, look.label_columns)
            text += " " * (look.label_columns + 1 - cell_len(text))
            style = styles.error + Style(bold=True) if row.level is Level.ERROR else styles.label
            parts.append((text, style))
        return parts

    def _range(self, line: _Line, part: int) -> tuple[int, int, bool]:
        """The characters of a strip, and whether it says that the line continues."""
        columns, text = self.look.text_columns, line.text
        if self.look.wrap:
            breaks = line.breaks
            return breaks[part], breaks[part + 1] if part + 1 < len(breaks) else len(text), False
        start = _fit(text, 0, self.look.left) if self.look.left else 0
        end = _fit(text, start, columns)
        if end < len(text):
            return start, _fit(text, start, columns - 1), True
        return start, end, False


@lru_cache(maxsize=4096)
def label(sources: Sequence[Source], width: int) -> str:
    """Who printed a line: ``13``, ``[0-63]``, ``13:nccl``, ``gpu01:launch``; at most ``width`` columns."""
    ranks = [writer for _, writer in sources if isinstance(writer, int)]
    nccl = [writer.rank for _, writer in sources if isinstance(writer, Nccl)]
    if len(sources) == 1:
        node = sources[0][0]
        forms = [str(ranks[0])] if ranks else [f"{node}:{LAUNCHER}", LAUNCHER]
        forms = [f"{nccl[0]}:{NCCL}", NCCL] if nccl else forms
    elif len(ranks) == len(sources):
        forms = [f"[{ranks_text(ranks)}]", f"[{len(ranks)} ranks]"]
    elif len(nccl) == len(sources):
        forms = [f"[{ranks_text(nccl)}]:{NCCL}", f"[{len(nccl)} {NCCL}]"]
    elif not ranks and not nccl:
        forms = [f"[{len(sources)} {LAUNCHER}]"]
    else:
        forms = [f"[{len(sources)} logs]"]
    forms.append(f"×{len(sources)}")
    return next((form for form in forms if cell_len(form) <= width), forms[-1][:width])


def _placed(segment: Segment, at: int, number: int) -> Segment:
    style = Style.from_meta({"offset": (at, number)})
    return Segment(segment.text, segment.style + style if segment.style else style)


def _pieces(start: int, end: int, style: Style, overlays: list[list[Span]]) -> list[tuple[int, int, Style]]:
    """Cut a range of characters where its style changes; later overlays lie over earlier ones."""
    if start >= end:
        return []
    spans = [[span for span in layer if span.start < end and span.end > start] for layer in overlays]
    cuts = {start, end}
    for layer in spans:
        for span in layer:
            cuts.update((max(start, span.start), min(end, span.end)))
    places = sorted(cuts)
    pieces = []
    at = [0] * len(spans)
    for first, last in pairwise(places):
        kind = style
        for index, layer in enumerate(spans):
            while at[index] < len(layer) and layer[at[index]].end <= first:
                at[index] += 1
            if at[index] < len(layer) and layer[at[index]].start <= first:
                kind = kind + layer[at[index]].style
        pieces.append((first, last, kind))
    return pieces


def _fit(text: str, start: int, columns: int) -> int:
    """The index up to which the text from ``start`` on fits into this many columns."""
    if text.isascii():
        return min(len(text), start + columns)
    at = start
    for char in text[start : start + 8 * columns + 8]:
        columns -= get_character_cell_size(char)
        if columns < 0:
            break
        at += 1
    return at


def _breaks(text: str, columns: int) -> list[int]:
    """Where the strips of a wrapped text begin."""
    breaks = [0]
    while (at := _fit(text, breaks[-1], columns)) < len(text):
        # A character wider than the pane is cut by the strip.
        breaks.append(max(at, breaks[-1] + 1))
    return breaks
