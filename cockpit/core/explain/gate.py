"""What must be read line by line: where a console has signs of a failure, of a rule, or of a launcher."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

from cockpit.core.explain import launchers
from cockpit.core.logs import level_words
from cockpit.core.logs.cause_words import SIGNS, Weight
from cockpit.core.logs.levels import Level, level_of
from cockpit.core.logs.prefixes import TRACEBACK, message
from cockpit.core.logs.search import Expression, Rows
from cockpit.core.rules.table import Table

LINE_MOST = 4000
"""Bytes of a line that are looked at."""

DULL, TOLD, HEAVY = range(3)
"""A line of no interest; one that says something of a failure; one that may be why something ended."""


class Gate:
    """Rules out what is healthy, many lines at once.

    :param rules: signs of these are looked for, too
    """

    def __init__(self, rules: Table) -> None:
        self._rules = rules
        self.line = lru_cache(1 << 10)(self._line)

    @cached_property
    def _rows(self) -> Rows[str]:
        signs = [one.regex for one in SIGNS.rows]
        rules = [sign for row in self._rules.rows for sign in row.signs]
        every = dict.fromkeys([*signs, *level_words.ERROR, *rules, *launchers.SIGNS])
        return Rows([Expression("", regex) for regex in every])

    def found_in(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Where lines begin that are of interest, and how much they are; each once, in order."""
        hint, at = self._rows.hint, 0
        while (hit := hint(block, at)) is not None:
            start = block.rfind(b"\n", 0, hit.start()) + 1
            end = block.find(b"\n", hit.end())
            end = len(block) if end < 0 else end
            low = max(start, hit.start() - LINE_MOST // 2)
            worth = self.line(block[low : min(end, low + LINE_MOST)])
            if worth:
                yield start, worth
                at = end + 1
            elif end - hit.start() > LINE_MOST:
                at = low + LINE_MOST  # more of a long line
            else:
                at = end + 1
            if at >= len(block):
                return

    def _line(self, line: bytes) -> int:
        text = message(line)
        if TRACEBACK in text:
            return HEAVY
        weights = [weight for weight, _ in SIGNS.found_in(text)] if SIGNS.hint(text) else []
        if weights:
            return HEAVY if max(weights) >= Weight.VICTIM else TOLD
        if level_of(text) is Level.ERROR or launchers.tells(line):
            return TOLD
        return TOLD if self._rules.rows and self._rules.found_in(line) else DULL
