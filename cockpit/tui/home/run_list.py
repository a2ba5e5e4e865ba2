"""The list of runs: a line each, those that need a person first, then the newest."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from operator import is_
from typing import ClassVar

from rich.cells import cell_len

from cockpit.core.cutting import cut_sentence
from cockpit.core.ranks import nodes_text
from cockpit.core.run.brief import DAMAGED, GOES_ON, NOT_STARTED, Brief
from cockpit.core.run.summary import JOB_OVER
from cockpit.core.text import one_line
from cockpit.core.time_text import rounded_span, span_text
from cockpit.tui.look.glyphs import ASCII, UNICODE
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.meanings import MEANINGS
from cockpit.tui.panes.text_pane import Line, Piece

STATE, STEP, AGE, NODES = 15, 14, 13, 14
"""Columns of the state, the step, the age and the nodes."""
RUN = 24
"""Columns of the name, at most."""

SIGNS: Mapping[str, tuple[str, str]] = {
    "starting": ("starting", "starting"),
    "running": ("running", "running"),
    "ending": ("running", "running"),
    "stalled": ("look", "odd"),
    "failed": ("failed", "failed"),
    DAMAGED: ("failed", "failed"),
    "stopped": ("killed", "killed"),
    JOB_OVER: ("killed", "killed"),
    "ended": ("done", "done"),
    NOT_STARTED: ("waiting", "label"),
    "lost": ("lost", "lost"),
    "unknown": ("lost", "lost"),
}
"""The sign of a state, and its meaning."""

WIDE, MIDDLE = 110, 84
"""From this width on there are nodes, and the age."""


class RunList(ListPane[Brief]):
    """Runs; the one that is to be compared has a mark."""

    MEANINGS: ClassVar[Mapping[str, str]] = {**MEANINGS, "strong": "key bold"}
    EMPTY_ROLE = "label"

    marked = ""
    """The run that another one is compared with."""
    _widest = RUN
    _like: tuple[object, ...] = ()
    """What the last drawing depended on, besides the runs."""

    def key_of(self, item: Brief) -> Hashable:
        """Its name."""
        return item.run

    def show_runs(self, runs: Sequence[Brief]) -> None:
        """Show these, in their order; what would look as it does is not drawn again."""
        minute = 0 if any(run.word == "stalled" for run in runs) else int(time.time() / 60)
        like = (minute, self.marked, self.scrollable_size.width, self.empty)
        if minute and like == self._like and len(runs) == len(self.items) and all(map(is_, runs, self.items)):
            return
        self._like = like
        self._widest = min(RUN, max((len(run.run) for run in runs), default=RUN))
        self.show_items(runs)

    def drawn_from(self, item: Brief, before: Brief | None, width: int) -> tuple[object, ...]:
        """Ages grow by the minute."""
        age = int(time.time()) if item.word == "stalled" else int(time.time() / 60)
        return item, before is None, width, age, item.run == self.marked, self._widest

    def item_lines(self, item: Brief, before: Brief | None, width: int) -> Iterator[Line]:
        """State, name, step, age, nodes, and how it is."""
        now = time.time()
        if before is None:
            yield Line(
                tuple(self._cells("  state", "run", "step", "age", "nodes", "how it is", width)),
                0,
                False,
                True,
            )
        sign, role = SIGNS.get(item.word, ("lost", "lost"))
        glyph = getattr(ASCII if self.ascii_only else UNICODE, sign)
        role = "stale" if item.word in GOES_ON and is_old(item) else role
        state = f"{glyph} {state_text(item, now)}"
        name = one_line(item.run, limit=60)
        pieces = [*self._cells(state, name, "", age_text(item, now), _nodes(item), "", width)]
        pieces[0] = pieces[0]._replace(role=role)
        pieces[1] = pieces[1]._replace(
            role="strong" if item.run == self.marked else "title" if item.order[0] < 2 else ""
        )
        pieces[2:3] = _step(item)
        room = width - sum(cell_len(piece.text) for piece in pieces)
        how = how_text(item, now)
        if cell_len(how) > room:
            how = cut_sentence(how, max(1, room))
        pieces[-1] = Piece(how, "" if item.word in ("failed", "stalled", DAMAGED, "lost") else "label")
        yield Line(tuple(pieces))

    def _cells(
        self, state: str, run: str, step: str, age: str, nodes: str, how: str, width: int
    ) -> Iterator[Piece]:
        yield Piece(_cell(state, STATE), "label")
        yield Piece(_cell(run, self._widest + 2), "label")
        yield Piece(f"{step:>{STEP}}", "label")
        if width >= MIDDLE:
            yield Piece(f"{age:>{AGE}}", "label")
        yield Piece("  ")
        if width >= WIDE:
            yield Piece(_cell(nodes, NODES), "label")
        yield Piece(how, "label")


def state_text(item: Brief, now: float) -> str:
    """``running``, ``stalled 48 s``, ``stalled 12 min``."""
    if item.word != "stalled" or not item.since:
        return item.word
    return f"stalled {rounded_span(max(0.0, now - item.since))}"


def is_old(item: Brief) -> bool:
    """Whether none of its nodes has said that it is still so."""
    return item.asked is None or len(item.unreachable) >= len(item.nodes) > 0


def how_text(item: Brief, now: float) -> str:
    """In one line how it is; which nodes do not answer."""
    told = item.how(now)
    if item.unreachable:
        if is_old(item) and item.seen:
            told = f"last seen {age_text(item, now, item.seen)}"
        many = nodes_text(item.unreachable)
        told = "; ".join(
            filter(None, (told, f"{many} {'does' if len(item.unreachable) == 1 else 'do'} not answer"))
        )
    return one_line(told, limit=400)


def age_text(item: Brief, now: float, seen: float | None = None) -> str:
    """How long it runs, or how long ago it ended: ``46 min``, ``5 h ago``, ``14 Nov``.

    :param seen: that long ago something else was, unix seconds
    """
    if seen is None and item.ended is None and item.word in GOES_ON:
        age = max(0.0, now - item.began)
        return rounded_span(age) if age < 3600 else span_text(age)
    at = seen or item.ended or item.seen or item.began
    age = max(0.0, now - at)
    if age < 90:
        return f"{age:.0f} s ago"
    if age < 3600:
        return f"{age / 60:.0f} min ago"
    days = (_midnight(now) - _midnight(at)) / 86400
    if days < 0.5 or age < 6 * 3600:
        return f"{age / 3600:.0f} h ago"
    if days < 1.5:
        return "yesterday"
    if days < 7:
        return f"{days:.0f} days ago"
    shape = "%d %b" if time.localtime(at).tm_year == time.localtime(now).tm_year else "%d %b %Y"
    return time.strftime(shape, time.localtime(at))


def _midnight(at: float) -> float:
    day = time.localtime(at)
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 0, 0, 0, 0, 0, -1))


def _step(item: Brief) -> tuple[Piece, Piece]:
    """``1,216/5,000``."""
    if item.step is None:
        return Piece(f"{'–':>{STEP}}", "label"), Piece("")
    step = f"{'~' if item.step_estimated and item.total is None else ''}{item.step:,}"
    total = "" if item.total is None or item.total < item.step else f"/{item.total:,}"
    return Piece(f"{step:>{max(1, STEP - len(total))}}"), Piece(total, "label")


def _nodes(item: Brief) -> str:
    return one_line(nodes_text(item.nodes), limit=100)


def _cell(text: str, width: int) -> str:
    """Text in so many columns, the last of which is empty."""
    if cell_len(text) >= width:
        text = cut_sentence(text, width - 1)
    return text + " " * (width - cell_len(text))
