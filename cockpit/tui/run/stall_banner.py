"""Who holds up a run that stands still: who, where, since when, on what evidence, what next; and how sure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.cells import cell_len
from textual.strip import Strip

from cockpit.core.masks import count, ranks_of
from cockpit.core.ranks import nodes_text
from cockpit.core.run.model import RunModel
from cockpit.core.run.watch_messages import stuck
from cockpit.core.stacks.words import being_words
from cockpit.core.text import one_line
from cockpit.core.time_text import rounded_span, span_text
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.banner import Banner
from cockpit.tui.panes.line import Part, fit
from cockpit.tui.panes.text_pane import fold
from cockpit.tui.run.stall import stands_still

MOST = 8
"""Lines of evidence: what a node said may be endless."""
LABEL = 10
"""Columns of what a line is about."""
WIDE = 100
"""Columns from which on there is room to say what a certainty is of."""


class StallBanner(Banner):
    """Five lines and what the evidence takes, three where there is little room; none while steps go on.

    :param keys: the key of a command, by its id
    """

    DEFAULT_CSS = "StallBanner { background: $stall; }"

    class Pressed(Banner.Pressed):
        """It was clicked: a person wants to see the stacks."""

    def __init__(
        self, *, keys: Callable[[str], str] = str, ascii_only: bool = False, id: str | None = None
    ) -> None:
        super().__init__(keys=keys, id=id)
        self._edge = "| " if ascii_only else "▌ "
        self._certainties: dict[str, str] = {}

    def show(self, model: RunModel, now: float, *, low: bool) -> None:
        """Draw what is known.

        :param now: unix seconds
        :param low: there is room for three lines only
        """
        certainties = _certainties(model)
        if certainties != self._certainties:
            self._certainties = certainties
            self.refresh()
        self.set_lines(list(self._lines(model, now, low=low)) if stands_still(model) else [])

    def drawn_line(self, y: int) -> Strip:
        """One of the lines."""
        width = self.size.width
        right = ""
        if y == 0:
            # One word where there is room for no more: beside whom the others wait for, it is of that.
            one = width < WIDE or len({*self._certainties.values()}) == 1
            words = [f"{question}: {word}" for question, word in self._certainties.items()]
            right = (
                next(iter(self._certainties.values()), "") if one else one_line(" · ".join(words), limit=40)
            )
        pieces = fit(self.lines[y], width - 3 - (cell_len(right) + 2 if right else 0))
        gap = width - 3 - cell_len(right) - sum(cell_len(text) for text, _ in pieces)
        end = [(" " * max(0, gap), ""), (right, "who")] if right else []
        return self.strip_of([(self._edge, "edge"), *pieces, *end])

    def _lines(self, model: RunModel, now: float, *, low: bool) -> Iterator[list[Part]]:
        found = model.watch.finding
        if found is None:
            yield [Part((("no rank has moved", "who"),), 0)]
            return
        yield [Part(((found.what, "who"),), 0), *_whose(model)]
        if found.where or found.detail:
            place, _, name = found.where.partition(" ")
            where = Part(((f"{name} ({place})" if name else place, "strong"),), 0)
            words = being_words(found.detail) if found.where else ""
            if words:
                told = [Part((*where.pieces, (f", {words}", "")), 0, less=where)]
            else:
                told = [*([where] if found.where else []), Part(((found.detail, ""),), 2)]
            yield [*_label("it is in", low), *told]
        if not low:
            yield [*_label("since", low), *_since(model, now)]
            # All of it: half of a fact is none.
            text = one_line(" · ".join(found.evidence), limit=2000)
            lines = fold(text, max(20, self.app.size.width - 3 - LABEL))
            for at, text in enumerate(lines[:MOST] if found.evidence else ()):
                label = ("" if at else "evidence").ljust(LABEL)
                yield [Part(((label, "dim"), (text.rstrip(), "dim" if at else "")), 0)]
        yield [*_label("next", low), *self._next(model)]

    def _next(self, model: RunModel) -> Iterator[Part]:
        found, watch = model.watch.finding, model.watch
        if watch.snapshot:
            yield Part(((self._keys("stall_stacks"), "strong"), (" shows the saved stacks", "")), 0)
        for at, step in enumerate(found.steps[:2] if found is not None else ()):
            words = step.in_app(self._keys) if step.action in ("failed_log",) else step.text
            yield Part(((words, "" if at else "strong"),), at + 1)
        if self.acts:
            yield Part(((f"{self._keys('stacks')} inspects again", "dim"),), 4)


def _certainties(model: RunModel) -> dict[str, str]:
    """How sure it is whom the others wait for, and that it is stuck."""
    found = model.watch.finding
    told = {"who": "" if found is None else found.certainty, "stuck": model.watch.stuck}
    return {question: word for question, word in told.items() if word}


def _label(text: str, low: bool) -> list[Part]:
    return [] if low else [Part(((text.ljust(LABEL - 2), "dim"),), 0)]


def _whose(model: RunModel) -> Iterator[Part]:
    """Where the ranks are, and how many wait for them."""
    ranks = [model.ranks[rank] for rank in ranks_of(model.watch.culprits) if rank in model.ranks]
    if not ranks:
        return
    nodes = one_line(nodes_text(dict.fromkeys(rank.node for rank in ranks)), limit=80)
    place = ""
    if len(ranks) == 1:
        place = f", local rank {model.nodes[ranks[0].node].ranks.index(ranks[0].rank)}"
    yield Part(((f"{nodes}{place}", ""),), 1)
    waiting = count(model.watch.waiting)
    if waiting:
        words = "the other is waiting" if waiting == 1 else f"{waiting:,} others are waiting"
        yield Part(((f"{words} for it" if len(ranks) == 1 else f"{words} for them", "dim"),), 2)


def _since(model: RunModel, now: float) -> Iterator[Part]:
    watch = model.watch
    lasted = ", ".join(filter(None, (span_text(watch.for_s(now)), stuck(watch))))
    yield Part(((f"{clock_text(watch.since, 8)}, {lasted}", "strong"),), 0)
    if watch.step is not None:
        yield Part(((f"right after step {watch.step:,}", ""),), 1)
    if watch.looks:
        times = {1: "once", 2: "twice"}.get(watch.looks, f"{watch.looks} times")
        ago = f", last {rounded_span(max(0.0, now - watch.looked))} ago" if watch.looked is not None else ""
        yield Part(((f"inspected all ranks {times}{ago}", "dim"),), 2)
