"""The answer before the question: which rank, where, what it does, and the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.strip import Strip

from cockpit.core.finding import Finding
from cockpit.core.masks import count
from cockpit.core.ranks import nodes_text
from cockpit.core.stacks.snapshot import Place
from cockpit.tui.panes.line import Part, fit
from cockpit.tui.panes.meanings import Meaningful
from cockpit.tui.panes.text_pane import fold
from cockpit.tui.stacks.labels import cut, home_text
from cockpit.tui.stacks.view_model import Sight

LOW = 4
"""At most this many lines in a terminal with few rows, until all of it is wanted."""

CERTAINTY = {"sure": "sure", "likely": "likely", "unsure": "warn"}
"""The style of each word for certainty."""


@dataclass(frozen=True)
class BarText:
    """What the bar says.

    :param place: where the rank is that it is about: its node and local rank
    :param source: the line of code it is at
    :param tone: ``odd`` if a rank is to blame, ``good``, or empty
    :param waiting: why there is no verdict yet
    """

    verdict: Finding | None = None
    place: str = ""
    source: str = ""
    tone: str = ""
    waiting: str = ""


def told(sight: Sight, verdict: Finding) -> BarText:
    """What the bar says about a verdict on what is shown."""
    place = source = ""
    if count(verdict.ranks) > 1:
        place = nodes_text(verdict.nodes) if len(verdict.nodes) < len(sight.snapshot.ranks) else ""
    elif verdict.ranks:
        rank = verdict.ranks.bit_length() - 1
        place = home_text(sight.snapshot.ranks.get(rank, Place("")))
        dump = sight.dump(rank)
        source = dump.source if dump is not None else ""
    tone = "odd" if verdict.ranks else "good" if verdict.severity == "info" else ""
    return BarText(verdict, place, source, tone)


class VerdictBar(Meaningful):
    """A few lines; draws what :meth:`show` was last given.

    :param keys: the key of a command, by its id
    """

    DEFAULT_CSS = "VerdictBar { height: auto; background: $panel; color: $foreground; }"

    def __init__(self, *, keys: Callable[[str], str], id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys = keys
        self._told = BarText()
        self._low = False
        self._cache: tuple[int, list[list[tuple[str, str]]]] = (0, [])

    def show(self, told: BarText, *, low: bool = False) -> None:
        """Draw this; ``low``: in as few lines as can be."""
        if (told, low) != (self._told, self._low):
            self._told, self._low = told, low
            self._cache = (0, [])
            self.refresh(layout=True)

    @property
    def text(self) -> str:
        """All of it, for the clipboard."""
        told = self._told
        if told.verdict is None:
            return told.waiting
        found = told.verdict
        lines = [found.what, f"{found.where}  {told.source}", found.detail, *found.evidence]
        return "\n".join([*(line.strip() for line in lines if line.strip()), found.certainty])

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as there are."""
        return len(self._lines(width))

    def render_line(self, y: int) -> Strip:
        lines = self._lines(self.size.width)
        if y >= len(lines):
            return Strip.blank(self.size.width, self.rich_style)
        return self.strip_of([("▌ ", self._told.tone or "dim"), *lines[y]])

    def _lines(self, width: int) -> list[list[tuple[str, str]]]:
        if self._cache[0] != width:
            self._cache = (width, self._build(max(1, width - 3)))
        return self._cache[1]

    def _build(self, width: int) -> list[list[tuple[str, str]]]:
        told, found = self._told, self._told.verdict
        if found is None:
            return [
                [(text, "strong" if not at else "dim")] for at, text in enumerate(told.waiting.splitlines())
            ]
        head = [Part(((found.what, told.tone or "strong"),), 0)]
        if told.place:
            head.append(Part(((told.place, ""),), 1))
        # Nothing is claimed, with no evidence: then there is nothing to be unsure of.
        word = "" if found.evidence or found.certainty == "unsure" else found.certainty
        lines = [*_headline(head, width - (cell_len(word) + 3 if word else 0))]
        if word:
            lines[0] = _with_word(lines[0], word, width)
        if found.where or told.source:
            where = [Part((("at ", "dim"), (found.where, "strong")), 0)] if found.where else []
            source = [Part(((told.source, ""),), 1)] if told.source else []
            lines.append(fit([*where, *source], width))
        last = list(self._last(found, width))
        room = max(1, LOW - len(lines) - len(last)) if self._low else None
        middle = _within(found.detail, width, room) if found.detail else []
        return [*lines, *([(piece, "")] for piece in middle), *last]

    def _last(self, found: Finding, width: int) -> Iterator[list[tuple[str, str]]]:
        """The evidence, followed by how certain it is, and what to do next."""
        room = width - cell_len(found.certainty) - 3
        text = " · ".join(found.evidence)
        evidence = _within(text, max(1, room), 1 if self._low else None) if text else ()
        for number, piece in enumerate(evidence):
            yield [(piece, "dim")] if number else _with_word([(piece, "dim")], found.certainty, width)
        if found.steps and not self._low:
            steps = " · ".join(step.in_app(self._keys) for step in found.steps)
            for number, piece in enumerate(fold(steps, max(1, width - 6))):
                yield [(" " * 6 if number else "next  ", "dim"), (piece, "")]


def _headline(parts: Sequence[Part], width: int) -> Iterator[list[tuple[str, str]]]:
    """The headline is never cut: if it is too long for one line, it takes two."""
    text, style = parts[0].pieces[0]
    pieces = fold(text, width)
    if len(pieces) == 1:
        yield fit(parts, width)
    else:
        yield from ([(piece, style)] for piece in pieces[:2])


def _with_word(line: Sequence[tuple[str, str]], word: str, width: int) -> list[tuple[str, str]]:
    """A line with the word for certainty at its end."""
    gap = width - sum(cell_len(text) for text, _ in line) - cell_len(word)
    return [*line, (" " * gap, ""), (word, CERTAINTY.get(word, "dim"))]


def _within(text: str, width: int, lines: int | None) -> list[str]:
    """A text in at most this many lines; None: in as many as it takes."""
    pieces = fold(text, width)
    if lines is None or len(pieces) <= lines:
        return pieces
    return [*pieces[: lines - 1], cut("".join(pieces[lines - 1 :]), width)]
