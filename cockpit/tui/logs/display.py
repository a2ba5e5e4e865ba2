"""What is shown of a log: which lines, drawn how, what is new, and what is said about it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from textwrap import wrap
from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.geometry import Size
from textual.message import Message
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from cockpit.core.logs.patterns import Pattern
from cockpit.core.logs.query import Query
from cockpit.core.text import one_line
from cockpit.engine.logs.book import Logbook, Row
from cockpit.engine.logs.reader import Reader
from cockpit.errors import CockpitError
from cockpit.tui.error_reporting import kind_and_text
from cockpit.tui.logs.lines import LogLook, LogPainter, LogStyles, label
from cockpit.tui.logs.place import BUDGET_S, LogPlace, Task
from cockpit.tui.logs.unseen import counted
from cockpit.tui.logs.window import position_of
from cockpit.tui.panes.loader import Loader

SHORT_S = 0.01
"""Seconds that reading the newest lines may take before it pauses."""

REST = 5
"""The pause before the newest lines are read again, as a multiple of the time it took: for keys."""

BEHIND_S = 1.0
"""Seconds of lag that are worth mentioning."""

FEW_ROWS, MANY_ROWS = 5, 100
"""Rows that a log has at least; more than a screen has."""


class LogDisplay(Widget):
    """Lines of a :class:`~cockpit.engine.logs.book.Logbook`, newest at the bottom.

    It follows until it is told to stay (:meth:`_stay`). What then moves is in
    :class:`~cockpit.tui.logs.view.LogView`: it has tasks of the place carried out by :meth:`_load`.
    """

    DEFAULT_CSS = """
    LogDisplay {
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
    DEFAULT_CLASSES = "pane"
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

    @dataclass
    class StatusChanged(Message, namespace="log_view"):
        """``status`` or ``title`` has changed."""

        log: LogDisplay

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.empty_text = ""
        """What an empty log waits for."""
        self.behind_s: float | None = None
        """Seconds between a line being printed and its arrival here, where that is known."""
        self.back_key = "esc"
        """The key that clears a filter."""
        self.frozen = False
        """Whether new lines are kept off the screen; see :meth:`freeze`."""
        self._filled = Size(0, 0)
        self.follows = True
        """Whether a person wants it to follow, which one that stays while somebody reads does not tell."""
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
        self._fold = True
        self._left = 0
        self._painter: LogPainter | None = None
        self._pending: list[Row] = []
        self._busy = ""  # what is being loaded, and how far it is
        self._trouble = ""  # why nothing could be read the last time
        self._note = ""  # the result of the last key, until the next one
        self._said = ""
        self._rests_until = 0.0
        self._resting: Timer | None = None
        self._begun: Task | None = None  # the last one that is or was carried out
        self._late = False  # there is more to show since then, once it is done

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

    def exchange(self, book: Logbook) -> None:
        """Show another book of the same logs: its end, or the time at which the old one is read."""
        if book is not self._book:
            self._book = book
            self._anchor = None
            self._restart()

    def rewind(self) -> None:
        """The book has become shorter: what was read beyond its end is no more."""
        self._anchor = self._place = None
        self._restart()

    def show(self, chosen: Query, title: str) -> None:
        """Narrow the log to some nodes or ranks, or widen it, at the same time of the log.

        What is chosen last counts: sets of the filter are dropped.

        :param title: what is then shown
        """
        self._title = title
        if chosen != self._chosen:
            self._chosen = chosen
            self._requery(Query(pattern=self._filter.pattern, nccl=self._filter.nccl))
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
        self._left = 0
        self._filter = typed
        narrowed = typed if typed.narrows else self._chosen
        self._query = replace(narrowed, pattern=typed.pattern, fold=self._fold, nccl=typed.nccl)
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
        if self._unseen:
            words.append(self._unseen)
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
            if self._place.unseen.look(BUDGET_S):
                self._draw()
        elif self._loader.busy:
            # The newest are read to the end, whenever they came.
            self._late |= self._begun != self._place.newest
        elif not self._rests():
            began = time.perf_counter()
            self._load(self._place.newest)
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

    def toggle_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self._wrap = not self._wrap
        self._left = 0
        if self._place is not None:
            self._place.unwrapped()
        self._relook()

    @property
    def timestamps(self) -> bool:
        """Whether lines begin with their times."""
        return self._timestamps

    @property
    def wrapped(self) -> bool:
        """Whether long lines are wrapped."""
        return self._wrap

    @property
    def folds(self) -> bool:
        """Whether identical lines of several ranks are shown as one."""
        return self._fold

    def toggle_fold(self) -> None:
        """Show each rank's lines one by one, or identical ones as one."""
        self._fold = not self._fold
        self._requery(self._filter)

    def toggle_timestamps(self) -> None:
        """Show or hide the times."""
        self._timestamps = not self._timestamps
        self._relook()

    # Reading

    @property
    def _shows_newest(self) -> bool:
        return self.following and not self.frozen

    def _restart(self) -> None:
        """Read under the current query: the newest lines, or from where the cursor was."""
        if self._book is None:
            return
        old = self._place
        reader = Reader(self._book, self._query)
        place = LogPlace(reader, lambda row: self._paint().height(row))
        self._place = place
        self._painter = None
        self._pending = []
        task: Task = place.newest
        if old is not None and old.window.reader.book is not self._book:
            if not old.following and old.row is not None:
                place.following = False
                task = place.at(reader.position_at(old.row.at), old.line)
        elif old is not None:
            place.unseen = old.unseen
            place.unseen.turn(reader)
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

    def _load(self, task: Task, what: str = "reading") -> None:
        """Do a task of the place, then show it.

        :param what: what that is, for the status if it takes a while
        """
        self._busy = ""
        if not self.size.height:
            self._waiting = task, what
            return
        if self._place is not None:
            self._place.height = self.size.height
        self._begun = task

        def done() -> None:
            self._busy = self._trouble = ""
            self._lay_out(with_cursor=True)
            self._catch_up()

        def still() -> None:
            if self._place is not None:
                self._busy = f"{what}… {100 * self._place.progress:.0f} %"
                self._lay_out()

        self._loader.start(task, done, still)

    def _catch_up(self) -> None:
        """Show what came, or what a larger screen has room for, while something else was read."""
        if self._late and self._place is not None:
            self._late = False
            self._load(self._place.newest if self._shows_newest else self._place.filled)

    def _cannot_read(self, error: Exception) -> None:
        """Say so here: the next line and the next key try again."""
        foreseen = isinstance(error, CockpitError)
        why = f"{error.what}: {error.where}" if isinstance(error, CockpitError) else kind_and_text(error)
        self._busy = ""
        self._trouble = one_line(why, limit=200)
        self._say_status()
        if not foreseen:
            self.app._handle_exception(error)

    # Drawing

    def _lay_out(self, *, with_cursor: bool = False) -> None:
        place, height = self._place, self.size.height
        if place is None or not height:
            return
        newest, reader = self._shows_newest, place.window.reader
        # Progress bars and prompts, as they are now.
        self._pending = reader.book.pending(reader.query)[-max(1, height // 3) :] if newest else []
        place.height = height - len(self._pending)
        place.lay_out(with_cursor=with_cursor)
        if newest:
            place.unseen.clear(place.window.tail)
        self._draw()

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
        texts = self._empty_texts() if self.empty else []
        if y < len(texts):
            return Strip([Segment(texts[y], painter.look.styles.dim)])
        return Strip.blank(painter.look.width, painter.look.styles.base)

    @property
    def empty(self) -> bool:
        """Whether it has no line to show."""
        return self._place is None or not (self._place.lines or self._pending)

    def _empty_texts(self) -> list[str]:
        if self._busy:
            return []
        if self._place is not None and self._place.gave_up:
            return ["stopped, no line found so far"]
        if self.filter:
            return [f"no line matches /{self.filter}/ · {self.back_key} clears"]
        if self._book is not None and self._book.loading:
            return []  # how far that is stands below
        width = max(1, self.size.width)
        why = (wrap(line, width, break_on_hyphens=False) for line in self.empty_text.splitlines())
        return ["no output", *chain.from_iterable(why)]

    # What is new, and the status

    @property
    def filled(self) -> int | None:
        """The rows that all there is fills, none wrapped; None: not known, or more than a screen."""
        window = None if self._place is None else self._place.window
        if window is None or not window.at_start:
            return None
        rows = len(window.rows) + len(self._pending)
        return rows if rows < MANY_ROWS else None

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many rows as it would fill, and a few in which more can appear."""
        return max(FEW_ROWS, MANY_ROWS if self.filled is None else self.filled)

    def _count(self) -> int | None:
        """How many lines there are under the query, if known."""
        if self._place is None:
            return None
        window = self._place.window
        if window.reader.whole:
            return window.reader.book.lines
        return sum(row.lines for row in window.rows) if window.at_start and window.at_end else None

    @property
    def _unseen(self) -> str:
        """How many new lines are not on the screen; empty if all are."""
        return self._place.unseen.text if self._place is not None else ""

    def _pill(self) -> str:
        return f" {self._unseen} " if self._unseen else ""

    def _tell(self, note: str) -> None:
        self._note = note
        self._say_status()

    def _say_status(self) -> None:
        said = f"{self.title}\n{self.filter}\n{self.status}"
        if said != self._said and self.is_attached:
            self._said = said
            self.post_message(self.StatusChanged(self))

    # Scrollbar, size

    def _place_scrollbar(self) -> None:
        place, height = self._place, self.size.height
        if place is None:
            return
        window = place.window
        total, at = height, 0.0  # all of it is on the screen
        if place.lines and len(window.rows) >= height:
            total = max(height, window.reader.book.lines)
            first = place.lines[0].row
            if place.following:
                at = total - height
            elif not window.at_start or first is not window.rows[0]:
                at = min(window.reader.fraction(position_of(first)) * total, total - height)
        # It is gone before what is read here has ended, when the log is removed.
        for bar in self.query(ScrollBar):
            bar.window_virtual_size, bar.window_size, bar.position = total, height, at

    def on_resize(self) -> None:
        """Fill the new size."""
        self._fill()

    def watch_virtual_size(self) -> None:
        """Fill the new size: Textual sends no event where somebody asked for a region before the layout."""
        self._fill()

    def _fill(self) -> None:
        if self.size == self._filled and self._waiting is None:
            return
        self._filled = self.size
        self._painter = None
        if self._waiting is not None:
            (task, what), self._waiting = self._waiting, None
            self._load(task, what)
        elif self._loader.busy:
            self._late = True
        elif self._place is not None:
            self._load(self._place.newest if self._shows_newest else self._place.filled)

    def on_hide(self) -> None:
        """Stop reading: the log is hidden."""
        self._hidden = True

    def on_show(self) -> None:
        """Catch up."""
        self._hidden = False
        self.refresh_log()
