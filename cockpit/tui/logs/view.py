"""The log of a run: a viewport over a spool of any length that follows until the reader starts reading."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.scrollbar import ScrollBar, ScrollDown, ScrollTo, ScrollUp
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from cockpit.core.logs.levels import Level
from cockpit.core.logs.patterns import Pattern
from cockpit.core.logs.query import Query
from cockpit.core.text import RemoteText
from cockpit.engine.logs.book import Logbook, Row, Source
from cockpit.engine.logs.reader import Position, Reader
from cockpit.errors import CockpitError
from cockpit.tui.door import kind_and_text
from cockpit.tui.logs.lines import LogLook, LogPainter, LogStyles, label, shown
from cockpit.tui.logs.place import BUDGET_S, LogPlace, Task
from cockpit.tui.logs.window import position_of
from cockpit.tui.panes.loader import Loader

WHEEL = 3
"""Lines that a notch of the wheel moves."""

NEW_LIMIT = 1_000
"""New lines counted one by one in a narrowed log; beyond that it says "1,000+"."""

SHORT_S = 0.01
"""Seconds that reading the newest lines may take before it pauses."""

REST = 5
"""The pause before the newest lines are read again, as a multiple of the time it took: for keys."""

BEHIND_S = 1.0
"""Seconds of lag that are worth mentioning."""

LEVEL_WORDS = {Level.ERROR: "error", Level.WARNING: "warning"}


class LogView(Widget, can_focus=True):
    """Lines of a :class:`~cockpit.engine.logs.book.Logbook`, newest at the bottom.

    It has a cursor on one line unless it follows. Moving the cursor, the wheel or a click stops
    following; moving past the last line resumes it. The screen handles the keys, except left and
    right.
    """

    DEFAULT_CSS = """
    LogView {
        height: 1fr;
        width: 1fr;
        & > ScrollBar { dock: right; width: 1; height: 100%; }
        & > .log-view--time { color: $log-time; }
        & > .log-view--label { color: $log-rank; }
        & > .log-view--warning { color: $log-warning; }
        & > .log-view--error { color: $log-error; }
        & > .log-view--dim { color: $dim; }
        & > .log-view--cursor { background: $foreground 8%; }
        &:focus > .log-view--cursor { background: $foreground 12%; }
        &:ansi > .log-view--cursor { text-style: reverse; }
        & > .log-view--hit { text-style: reverse; }
        & > .log-view--pill { color: $key; text-style: bold reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log-view--time",
        "log-view--label",
        "log-view--warning",
        "log-view--error",
        "log-view--dim",
        "log-view--cursor",
        "log-view--hit",
        "log-view--pill",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "shift(-1)", "Scroll left", show=False),
        Binding("right", "shift(1)", "Scroll right", show=False),
    ]

    @dataclass
    class StatusChanged(Message):
        """``status`` or ``title`` has changed."""

        log: LogView

        @property
        def control(self) -> LogView:
            """The log it belongs to."""
            return self.log

    @dataclass
    class RowOpened(Message):
        """A line was opened, by a double click or :meth:`LogView.open_row`."""

        log: LogView
        row: Row

        @property
        def control(self) -> LogView:
            """The log it is in."""
            return self.log

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.empty_text = ""
        """What an empty log waits for."""
        self.behind_s: float | None = None
        """Seconds between a line being printed and its arrival here, where that is known."""
        self.ellipsis = "…"
        """The sign that a line continues; a different one if the terminal lacks it."""
        self.back_key = "esc"
        """The key that clears a filter."""
        self.frozen = False
        """Whether new lines are kept off the screen; see :meth:`freeze`."""
        self._book: Logbook | None = None
        self._place: LogPlace | None = None
        self._chosen, self._title = Query(), "Log"
        self._filter = Query()  # as typed; its sets replace what is chosen
        self._query = Query()  # the two together
        self._loader = Loader(self, "log", self._cannot_read)
        self._waiting: tuple[Task, str] | None = None  # to load once there is a screen
        self._hidden = False
        self._anchor: Row | None = None  # where the cursor was last put, whatever the query since then
        self._hits: Pattern | None = None
        self._hits_text = ""  # what n and N look for, even once the filter is cleared
        self._highlight = False
        self._labels = 0
        self._timestamps = True
        self._wrap = False
        self._left = 0
        self._painter: LogPainter | None = None
        self._pending: list[Row] = []
        self._busy = ""  # what is being loaded, and how far it is
        self._trouble = ""  # why nothing could be read the last time
        self._note = ""  # the result of the last key, until the next one
        self._said = ""
        self._rests_until = 0.0
        self._resting: Timer | None = None
        # What is new since the newest lines were on the screen: for the whole book, the difference to
        # this number; for a narrowed one, what reading on from this place finds.
        self._seen_lines = 0
        self._seen: Position = (0, 0)
        self._new = 0

    # What is shown

    def open(self, book: Logbook, names: Mapping[str, int] | None = None) -> None:
        """Show a logbook, from its end.

        :param names: how many ranks each node has; sets the width of the labels
        """
        self._book = book
        names = names or {}
        ranks = sum(names.values())
        everyone = label(tuple(("", rank) for rank in range(ranks)), 16) if ranks > 1 else ""
        consoles = [len(f"{name}:launch") for name in names] or [12]
        self._labels = max(len(everyone), *consoles)
        self._place = None
        self._restart()

    def show(self, chosen: Query, title: str) -> None:
        """Narrow the log to some nodes or ranks, or widen it, at the same time of the log.

        What is chosen last counts: sets of the filter are dropped.

        :param title: what is then shown
        """
        self._title = title
        if chosen != self._chosen:
            self._chosen = chosen
            self._left = 0
            self._requery(Query(pattern=self._filter.pattern))
        self._say_status()

    def set_filter(self, text: str) -> None:
        """Show only lines that match, of the ranks and nodes it begins with; see :class:`Query`.

        :raises CockpitError: it makes no sense; the old filter stays
        """
        if text == self.filter:
            return
        typed = Query.typed(text)
        if self._book is not None:
            typed.check([file.source for file in self._book.logs.files])
        if typed.matcher is not None:
            self._hits, self._hits_text = typed.matcher, typed.pattern
        self._highlight = bool(typed.pattern)
        self._note = ""
        self._requery(typed)

    def _requery(self, typed: Query) -> None:
        self._filter = typed
        self._query = replace(typed if typed.narrows else self._chosen, pattern=typed.pattern)
        self._restart()

    @property
    def title(self) -> str:
        """What is shown, in a few words."""
        return self._filter.who or self._title

    @property
    def following(self) -> bool:
        """Whether the newest lines are shown as they come."""
        return self._place is None or self._place.following

    @property
    def searching(self) -> bool:
        """Whether it is searching or reading, which :meth:`cancel_search` would stop."""
        return self._loader.busy

    @property
    def searched(self) -> str:
        """The pattern that :meth:`next_match` looks for: the filter, or the last one."""
        return self._hits_text

    @property
    def filter(self) -> str:
        """The filter as it is typed."""
        return self._filter.text

    @property
    def wanted(self) -> Query:
        """Which lines are shown."""
        return replace(self._query, times=self._timestamps)

    @property
    def status(self) -> str:
        """What it is doing, in a few words."""
        if self._busy:
            return self._busy
        words = [each for each in (self._trouble, self._note) if each]
        words.append("frozen" if self.frozen else "following" if self.following else "paused")
        if self._new:
            words.append(self._new_text())
        elif (count := self._count()) is not None:
            words.append(counted(count))
        if self.behind_s is not None and self.behind_s >= BEHIND_S:
            words.append(f"{self.behind_s:.1f} s behind")
        return " · ".join(words)

    def refresh_log(self) -> None:
        """Show what is new; call it at most ten times a second, after the book has changed."""
        if self._place is None or self._hidden or not self.size.height:
            return
        if not self._shows_newest:
            self._count_new()
        elif not self._loader.busy and not self._rests():
            began = time.perf_counter()
            self._load(self._place.newest, "reading")
            took = time.perf_counter() - began
            self._rests_until = began + (1 + REST) * took if took > SHORT_S else 0.0
        self._say_status()

    def _rests(self) -> bool:
        """Whether the newest lines were just read, in a flood that takes long to read; they appear soon."""
        left = self._rests_until - time.perf_counter()
        if left > 0 and self._resting is None:
            self._resting = self.set_timer(left, self._rested)
        return left > 0

    def _rested(self) -> None:
        self._resting = None
        self.refresh_log()

    def freeze(self, frozen: bool) -> None:
        """Keep new lines off the screen, or let them appear again."""
        self.frozen = frozen
        self.refresh_log()
        self._draw()

    def toggle_follow(self) -> None:
        """Follow the newest lines, or stay here."""
        if self.following:
            self._stay()
            self._draw()
        else:
            self.end()

    def toggle_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self._wrap = not self._wrap
        self._left = 0
        if self._place is not None:
            self._place.unwrapped()
        self._relook()

    def toggle_timestamps(self) -> None:
        """Show or hide the times."""
        self._timestamps = not self._timestamps
        self._relook()

    # Moving

    def move(self, rows: int) -> None:
        """Move the cursor; past the last line, follow."""
        if (place := self._stay()) is not None:
            self._load(place.moved(rows), "reading")

    def scroll(self, lines: int) -> None:
        """Move the view, the cursor only as far as it must to stay in it; past the end, follow."""
        if (place := self._stay()) is not None:
            self._load(place.scrolled(lines), "reading")

    def page(self, step: int) -> None:
        """Move by a screen: ``step`` 1 down, -1 up."""
        self.scroll(step * max(1, self.size.height - 1))

    def home(self) -> None:
        """Go to the first line."""
        if (place := self._stay()) is not None:
            self._load(place.beginning(), "reading")

    def end(self) -> None:
        """Go to the newest line, and follow."""
        self._note = ""
        self._anchor = None
        if self._place is not None:
            self._place.follow()
            self._load(self._place.newest, "reading")

    def shift(self, steps: int) -> None:
        """Scroll cut lines sideways, a third of the pane each step."""
        if not self._wrap:
            self._left = max(0, self._left + steps * max(8, self.size.width // 3))
            self._relook()

    def action_shift(self, steps: int) -> None:
        """Scroll cut lines sideways."""
        self.shift(steps)

    def next_match(self, step: int) -> None:
        """Go to the next (1) or previous (-1) line that matches the filter, or else the last one."""
        if self._hits_text:
            self._highlight = True
            self._painter = None
            self._find(self._hits_text, step, f"no line matches /{self._hits_text}/")
        else:
            self._tell("no filter to look for yet")

    def next_level(self, level: Level, step: int) -> None:
        """Go to the next (1) or previous (-1) line of this level."""
        self._find(level, step, f"no {LEVEL_WORDS[level]}")

    def cancel_search(self) -> bool:
        """Stop reading or searching; False if nothing was running."""
        if not self._loader.cancel():
            return False
        self._busy = ""
        self._note = "stopped"
        if self._place is not None:
            self._place.gave_up = True
        self._lay_out()
        return True

    # The line under the cursor

    def current_row(self) -> Row | None:
        """The line under the cursor; the newest while there is none."""
        return self._place.row if self._place is not None else None

    def copy_line(self) -> str:
        """The text of that line, harmless and without colours; empty if there is none."""
        row = self.current_row()
        return shown(row)[0] if row is not None else ""

    def open_row(self) -> None:
        """Unfold the lines behind the one under the cursor; if it is a single line, report it as opened."""
        row = self.current_row()
        if row is None:
            return
        if row.fold is None:
            self.post_message(self.RowOpened(self, row))
        elif (place := self._stay()) is not None:
            self._painter = None  # the batch's rows now have different numbers
            self._load(place.unfolded(row), "reading")

    @property
    def unfolded(self) -> bool:
        """Whether folded lines are shown one by one."""
        return self._place is not None and self._place.window.reader.unfolded

    def fold(self) -> None:
        """Fold again what :meth:`open_row` has unfolded."""
        if (place := self._stay()) is not None:
            self._painter = None
            self._load(place.folded(), "reading")

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text: without times and labels, one line per row."""
        if self._place is None:
            return None
        window = self._place.window
        texts = []
        for number in range(window.first, window.end):
            span = selection.get_span(number)
            if span is not None:
                text = shown(window.row(number))[0]
                texts.append(text[max(0, span[0]) : len(text) if span[1] < 0 else span[1]])
        return ("\n".join(texts), "\n") if texts else None

    def selection_updated(self, selection: Selection | None) -> None:
        """Stay where text is being selected."""
        if selection is not None and self.following:
            self._stay()
        self._draw()

    # Reading

    @property
    def _shows_newest(self) -> bool:
        return self.following and not self.frozen

    def _restart(self) -> None:
        """Read under the current query: the newest lines, or from where the cursor was."""
        if self._book is None:
            return
        old = self._place
        place = LogPlace(Reader(self._book, self._query), lambda row: self._paint().height(row))
        self._place = place
        self._painter = None
        self._pending = []
        task: Task = place.newest
        self._seen = place.window.tail
        if old is None:
            self._seen_lines = self._book.lines
        self._new = self._book.lines - self._seen_lines if self._query == Query() else 0
        if old is not None:
            # Row numbers of the old place mean nothing in the new one.
            place.window.first = old.window.end
            row = self._anchor = self._anchor or old.row
            if not old.following:
                place.following = False
                if row is not None:
                    task = place.on(row, old.line)
        self._load(task, "filtering" if self.filter else "reading")

    def _stay(self) -> LogPlace | None:
        """Stop following; return the place to continue from."""
        self._note = ""
        self._anchor = None
        if self._place is not None:
            self._place.stay()
            self._pending = []
        return self._place

    def _find(self, test: Level | str, step: int, none: str) -> None:
        if self._place is None:
            self._tell(none)
            return

        none += " after this line" if step > 0 else " before this line"
        elsewhere: list[Task] = []
        here = self._place.found(test, step, lambda: elsewhere.append(self._elsewhere(test, none)))

        def search() -> bool:
            if not elsewhere and not here():
                return False
            return all(task() for task in elsewhere)

        self._note = ""
        self._load(search, "searching")

    def _elsewhere(self, test: Level | str, none: str) -> Task:
        """Task: say that there is none and, if not all lines are shown, who else has one."""
        self._tell(none)
        if self._book is None or self._query == Query():
            return lambda: True
        reader = Reader(self._book, Query())
        at: Position | None = reader.end

        def read() -> bool:
            nonlocal at
            if at is None:
                return True
            place, at = reader.find(at, test, -1, BUDGET_S)
            if place is not None:
                (row,) = reader.after(place, 1, BUDGET_S).rows
                self._tell(f"{none}; not shown here: one of {_whose(row.sources)}")
            return at is None

        return read

    def _load(self, task: Task, what: str) -> None:
        """Do a task of the place, then show it.

        :param what: what that is, for the status if it takes a while
        """
        self._busy = ""
        if not self.size.height:
            self._waiting = task, what
            return
        if self._place is not None:
            self._place.height = self.size.height

        def done() -> None:
            self._busy = self._trouble = ""
            self._lay_out(with_cursor=True)

        def still() -> None:
            if self._place is not None:
                self._busy = f"{what}… {100 * self._place.progress:.0f} %"
                self._lay_out()

        self._loader.start(task, done, still)

    def _cannot_read(self, error: Exception) -> None:
        """Say so here: the next line and the next key try again."""
        foreseen = isinstance(error, CockpitError)
        why = f"{error.what}: {error.where}" if isinstance(error, CockpitError) else kind_and_text(error)
        self._busy = ""
        self._trouble = RemoteText.of(why).shown(limit=200)
        self._say_status()
        if not foreseen:
            self.app._handle_exception(error)

    # Drawing

    def _lay_out(self, *, with_cursor: bool = False) -> None:
        height = self.size.height
        if self._place is None or not height:
            return
        self._pending = self._unfinished(max(1, height // 3)) if self._shows_newest else []
        self._place.height = height - len(self._pending)
        self._place.lay_out(with_cursor=with_cursor)
        if self._shows_newest:
            self._mark_seen()
        self._draw()

    def _unfinished(self, count: int) -> list[Row]:
        """Progress bars and prompts, as they are now."""
        assert self._book is not None
        return self._book.pending(self._query)[-count:]

    def _draw(self) -> None:
        self._place_scrollbar()
        self._say_status()
        self.refresh()

    def _relook(self) -> None:
        """Draw in a different way, at the same place."""
        self._painter = None
        self._lay_out(with_cursor=True)

    def _paint(self) -> LogPainter:
        if self._painter is None:
            look = LogLook(
                LogStyles.of(self),
                max(1, self.size.width - 1),
                labels=0 if len(self._query.ranks) == 1 else self._labels,
                times=self._timestamps,
                wrap=self._wrap,
                left=self._left,
                hits=self._hits if self._highlight else None,
                ellipsis=self.ellipsis,
            )
            self._painter = LogPainter(look)
        return self._painter

    def notify_style_update(self) -> None:
        """Draw in the new colours."""
        super().notify_style_update()
        self._painter = None

    def compose(self) -> ComposeResult:
        """The scrollbar; the lines are drawn by this widget itself."""
        yield ScrollBar(vertical=True)

    @property
    def is_container(self) -> bool:
        """No: text in it can be selected."""
        return False

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        width, base = self.size.width, self._paint().look.styles.base
        strip = self._line(self._place, y) if self._place is not None else Strip.blank(width, base)
        pill = self._pill() if y == self.size.height - 1 else ""
        if pill:
            style = base + self.get_component_rich_style("log-view--pill", partial=True)
            strip = strip.adjust_cell_length(max(0, width - 2 - len(pill)), base)
            strip = Strip([*strip, Segment(pill, style)])
        return strip.adjust_cell_length(width, base)

    def _line(self, place: LogPlace, y: int) -> Strip:
        painter = self._paint()
        if y < len(place.lines):
            number, part, row = place.lines[y]
            selection = self.text_selection
            return painter.strip(
                row,
                part,
                number,
                cursor=number == place.cursor and not place.following,
                headed=row.first or y == 0,
                selected=selection.get_span(number) if selection else None,
            )
        at = y - len(place.lines)
        if at < len(self._pending):
            return painter.pending(self._pending[at])
        texts = self._empty_texts() if not place.lines and not self._pending else []
        if y < len(texts):
            return Strip([Segment(texts[y], painter.look.styles.dim)])
        return Strip.blank(painter.look.width, painter.look.styles.base)

    def _empty_texts(self) -> list[str]:
        if self._busy:
            return []
        if self._place is not None and self._place.gave_up:
            return ["stopped, no line found so far"]
        if self.filter:
            return [f"no line matches /{self.filter}/ · {self.back_key} clears"]
        return ["no output yet", *self.empty_text.splitlines()]

    # What is new, and the status

    def _mark_seen(self) -> None:
        """Everything is on the screen."""
        assert self._book is not None
        assert self._place is not None
        self._new = 0
        self._seen_lines = self._book.lines
        self._seen = self._place.window.tail

    def _count_new(self) -> None:
        assert self._book is not None
        assert self._place is not None
        before = self._new
        if self._query == Query():
            self._new = self._book.lines - self._seen_lines
        elif self._new < NEW_LIMIT:
            page = self._place.window.reader.after(self._seen, NEW_LIMIT, BUDGET_S)
            self._seen = page.resume
            self._new += len(page.rows)
        if self._new != before:
            self._draw()

    def _count(self) -> int | None:
        """How many lines there are under the query, if known."""
        if self._book is None or self._place is None:
            return None
        if self._query == Query():
            return self._book.lines
        window = self._place.window
        return len(window.rows) if window.at_start and window.at_end else None

    def _new_text(self) -> str:
        more = "+" if self._new >= NEW_LIMIT and self._query != Query() else ""
        return f"+{counted(self._new, more)}"

    def _pill(self) -> str:
        return f" {self._new_text()} " if self._new else ""

    def _tell(self, note: str) -> None:
        self._note = note
        self._say_status()

    def _say_status(self) -> None:
        said = f"{self.title}\n{self.filter}\n{self.status}"
        if said != self._said and self.is_attached:
            self._said = said
            self.post_message(self.StatusChanged(self))

    # Scrollbar, mouse, size

    def _place_scrollbar(self) -> None:
        place, book, height = self._place, self._book, self.size.height
        if place is None or book is None or not self.is_mounted:
            return
        window = place.window
        total, at = height, 0.0  # all of it is on the screen
        if place.lines and len(window.rows) >= height:
            total = max(height, book.lines)
            first = place.lines[0].row
            if place.following:
                at = total - height
            elif not window.at_start or first is not window.rows[0]:
                at = min(window.reader.fraction(position_of(first)) * total, total - height)
        bar = self.query_one(ScrollBar)
        bar.window_virtual_size, bar.window_size, bar.position = total, height, at

    @on(ScrollTo)
    def _drag_scrollbar(self, event: ScrollTo) -> None:
        event.stop()
        event.prevent_default()
        bar = self.query_one(ScrollBar)
        place = self._stay()
        if place is None or event.y is None:
            return
        if event.y >= bar.window_virtual_size - bar.window_size:
            self.end()
        else:
            position = place.window.reader.position(max(0.0, event.y / bar.window_virtual_size))
            self._load(place.at(position, 0), "reading")

    @on(ScrollUp)
    @on(ScrollDown)
    def _page_by_scrollbar(self, event: ScrollUp | ScrollDown) -> None:
        event.stop()
        event.prevent_default()
        self.page(1 if isinstance(event, ScrollDown) else -1)

    @on(events.MouseScrollUp)
    @on(events.MouseScrollDown)
    @on(events.MouseScrollLeft)
    @on(events.MouseScrollRight)
    def _turn_wheel(self, event: events.MouseEvent) -> None:
        event.stop()
        event.prevent_default()
        step = -1 if isinstance(event, (events.MouseScrollUp, events.MouseScrollLeft)) else 1
        if event.shift or isinstance(event, (events.MouseScrollLeft, events.MouseScrollRight)):
            self.shift(step)
        elif step < 0 or not self.following:
            self.scroll(WHEEL * step)

    @on(events.Click)
    def _put_cursor(self, event: events.Click) -> None:
        """Put the cursor there; twice: open the line; on the pill: follow."""
        event.prevent_default()
        where = event.get_content_offset(self)
        if where is None or self._place is None:
            return
        pill, right = self._pill(), self.size.width - 2
        if pill and where.y == self.size.height - 1 and right - len(pill) <= where.x < right:
            self.frozen = False
            self.end()
        elif where.y < len(self._place.lines):
            self._stay()
            self._place.cursor = self._place.lines[where.y].number
            self._draw()
            if event.chain == 2:
                self.open_row()

    def on_resize(self) -> None:
        """Fill the new size."""
        self._painter = None
        if self._waiting is not None:
            (task, what), self._waiting = self._waiting, None
            self._load(task, what)
        elif self._place is not None and not self._loader.busy:
            self._load(self._place.newest if self._shows_newest else self._place.filled, "reading")

    def on_hide(self) -> None:
        """Stop reading: the log is hidden."""
        self._hidden = True

    def on_show(self) -> None:
        """Catch up."""
        self._hidden = False
        self.refresh_log()


def _whose(sources: Sequence[Source]) -> str:
    """Who printed a line, in a sentence."""
    text = label(sources, 24).strip("[]")
    return f"rank {text}" if len(sources) == 1 and sources[0][1] is not None else text


def counted(lines: int, more: str = "") -> str:
    """A number of lines: ``412 lines``, ``640 k lines``, ``1.2 M lines``."""
    if lines >= 1_000_000:
        number = f"{lines / 1e6:.1f} M"
    elif lines >= 100_000:
        number = f"{lines // 1000} k"
    else:
        number = f"{lines:,}"
    return f"{number}{more} line" if lines == 1 else f"{number}{more} lines"
