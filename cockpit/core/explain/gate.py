"""What must be read line by line: where a console has signs of a failure, of a rule, or of a launcher."""

from __future__ import annotations

import re
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


SHAPES = 1 << 15
SHAPE_MOST = 400
"""Shapes of lines that are remembered, and bytes of one."""

_DIGITS = b"0123456789"


class Gate:
    """Rules out what is healthy, many lines at once.

    A log says the same again and again with other numbers: a line that is, but for its digits, as one in
    which nothing was found need not be searched.

    :param rules: signs of these are looked for, too
    """

    def __init__(self, rules: Table) -> None:
        self._rules = rules
        self._dull: set[bytes] = set()
        self._line = lru_cache(1 << 12)(self._weigh)

    @cached_property
    def _rows(self) -> Rows[str]:
        signs = [one.regex for one in SIGNS.rows]
        rules = [sign for row in self._rules.rows for sign in row.signs]
        every = dict.fromkeys([*signs, *level_words.ERROR, *rules, *launchers.SIGNS])
        return Rows([Expression("", regex) for regex in every])

    @cached_property
    def _numbered(self) -> re.Pattern[bytes]:
        """Texts that are looked for, without their digits: with others a line may be of interest."""
        texts = {text.encode() for text in self._rows.texts}
        bare = {text.translate(None, _DIGITS) for text in texts if text.translate(None, _DIGITS) != text}
        return re.compile(b"|".join(map(re.escape, sorted(bare))))

    def found_in(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Where lines begin that are of interest, and how much they are; each once, in order."""
        dull = self._dull
        shapes = block.translate(None, _DIGITS).split(b"\n")
        new = set(shapes) - dull
        if not new:
            return
        hint = self._rows.hint
        at = 0
        for shape, line in zip(shapes, block.split(b"\n"), strict=True):
            start, at = at, at + len(line) + 1
            if shape not in new:
                continue
            found = hint(line)
            if found is not None:
                if worth := self._worth(line, found.start()):
                    yield start, worth
            elif len(shape) <= SHAPE_MOST and not self._numbered.search(shape):
                dull.add(shape)
        if len(dull) > SHAPES:
            dull.clear()

    def _worth(self, line: bytes, at: int) -> int:
        """How much a line is of interest, with a sign that may be one."""
        if len(line) <= LINE_MOST:
            return self._line(line)
        # Around each sign of a long line; in all, no more than a few.
        hint, worth, left = self._rows.hint, DULL, 8
        while left and worth < HEAVY:
            low = max(0, at - LINE_MOST // 2)
            worth = max(worth, self._line(line[low : low + LINE_MOST]))
            found = hint(line, low + LINE_MOST)
            if found is None:
                break
            at, left = found.start(), left - 1
        return worth

    def _weigh(self, line: bytes) -> int:
        text = message(line)
        if TRACEBACK in text:
            return HEAVY
        weights = [weight for weight, _ in SIGNS.found_in(text)] if SIGNS.hint(text) else []
        if weights:
            return HEAVY if max(weights) >= Weight.VICTIM else TOLD
        if level_of(text) is Level.ERROR or launchers.tells(line):
            return TOLD
        return TOLD if self._rules.rows and self._rules.found_in(line) else DULL
