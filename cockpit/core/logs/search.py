"""Search for many expressions at once: one quick search rules out most lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from cockpit.core.logs.patterns import needed_texts

T = TypeVar("T")

# From the frequent to the rare, as counted in tests/logs; what is missing is rarer.
_FREQUENT = " 01s:.e2toar3in4l,-p/m5|c_86[7]d9=guh'%vkbT<()LOENFIyfw\"*RCPxADSMGB"
_SHORT = 3
"""Texts with fewer characters are too frequent to look for."""


class Expression(NamedTuple, Generic[T]):
    """An expression in text without newlines, and what a match means."""

    tells: T
    regex: str


class Rows(Generic[T]):
    """Expressions; nothing is compiled before it is needed.

    :param rows: each needs a text of three characters (:func:`needed_texts`), or begins with a literal
        character and has no alternatives outside of groups
    """

    def __init__(self, rows: Iterable[Expression[T]]) -> None:
        self.rows = tuple(rows)

    @cached_property
    def hint(self) -> Callable[..., re.Match[bytes] | None]:
        """Finds, in a text of any size, a sign that one of them may match some line; None is certain.

        It takes the text and the position to begin at.
        """
        return self._quick.search

    def found_in(self, line: bytes) -> list[tuple[T, re.Match[bytes]]]:
        """What matches, each at its first place."""
        numbers: set[int] = set()
        for hint in self._quick.finditer(line):
            numbers.update(self._linked(hint[0]))
        found = []
        for number in numbers:
            match = self._pattern(number).search(line)
            if match is not None:
                found.append((self.rows[number].tells, match))
        return found

    @cached_property
    def texts(self) -> set[str]:
        """What is looked for, of the expressions that need a text."""
        return {end for texts in self._ends for end in texts}

    def _pattern(self, number: int) -> re.Pattern[bytes]:
        pattern = self._compiled[number]
        if pattern is None:
            pattern = self._compiled[number] = re.compile(self.rows[number].regex.encode())
        return pattern

    @cached_property
    def _compiled(self) -> list[re.Pattern[bytes] | None]:
        return [None] * len(self.rows)

    @cached_property
    def _ends(self) -> list[list[str]]:
        """Of each row the texts to look for, from their rarest character on; none: look for the row."""
        texts = (needed_texts(row.regex) or [""] for row in self.rows)
        return [[] if len(min(each, key=len)) < _SHORT else list(map(_rarest_on, each)) for each in texts]

    @cached_property
    def _quick(self) -> re.Pattern[bytes]:
        # Each alternative begins with a character that stands for itself: only then `re` is quick.
        ends: dict[str, set[str]] = {}
        for end in self.texts:
            ends.setdefault(end[0], set()).add(re.escape(end[1:]))
        for at in self._textless:
            regex = self.rows[at].regex
            ends.setdefault(regex[0], set()).add(regex[1:])
        told = [f"{re.escape(first)}(?:{'|'.join(sorted(rest))})" for first, rest in sorted(ends.items())]
        return re.compile("|".join(told).encode(), re.MULTILINE)

    @cached_property
    def _textless(self) -> tuple[int, ...]:
        return tuple(at for at, texts in enumerate(self._ends) if not texts)

    def _linked(self, found: bytes) -> tuple[int, ...]:
        """The rows of a text that was found, and of those that may begin within it and were skipped."""
        known = self._rows_of.get(found)
        if known is None:
            text = found.decode()
            near = {end for end in self.texts if _begins_in(end, text)} if text in self.texts else set()
            rows = (at for at, texts in enumerate(self._ends) if near.intersection(texts))
            known = self._rows_of[found] = tuple(rows) if near else self._textless
        return known

    @cached_property
    def _rows_of(self) -> dict[bytes, tuple[int, ...]]:
        """The former, of texts that were found before."""
        return {}


def _rarest_on(text: str) -> str:
    """The end of a text from its rarest character on: there are fewer places to look at."""
    starts = range(max(1, len(text) - _SHORT))
    return text[max(starts, key=lambda at: (_FREQUENT + text[at]).index(text[at])) :]


def _begins_in(end: str, found: str) -> bool:
    return any(_overlaps(end, found[at:]) for at in _places(end[0], found))


def _places(char: str, text: str) -> Iterator[int]:
    at = text.find(char)
    while at >= 0:
        yield at
        at = text.find(char, at + 1)


def _overlaps(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
