"""Regular expressions over what a screen shows of a log, and a quick way to skip what cannot match."""

from __future__ import annotations

import re

from cockpit.core.expressions import Expression
from cockpit.core.logs.excerpt import TEXT_MAX
from cockpit.core.text import sanitise
from cockpit.errors import CockpitError

_PLAIN = bytes(range(0x20, 0x7F)) + b"\r\n"
_COUNT = re.compile(r"[*+?]|\{(\d*)(?:,\d*)?\}")
# What follows \x41, \u00e9, \N{…} and \123 belongs to it.
_ESCAPE = re.compile(r"N\{[^}]*\}|[xuU0-9][0-9a-fA-F]*|[A-Za-z]")
# A group whose content is part of the match: no assertion, condition or reference.
_INSIDE = re.compile(r"(?!\?)|\?:|\?P<\w+>")
_MOST = 32
"""Texts to look for; more of them are slower than the expression itself."""

# Flags change what the rest means; a comment is not a group to skip.
_FLAGS = re.compile(r"\(\?[aiLmsux#-]")


class Pattern:
    r"""A regular expression in the text of a line, without its colours.

    Small letters match capitals too, unless the expression has a capital; a leading ``!`` inverts.
    ``\w``, ``\b`` and the like are ASCII only. See :class:`~cockpit.core.expressions.Expression`.

    :param text: the expression as typed
    :raises CockpitError: it is not a regular expression; says where
    """

    def __init__(self, text: str) -> None:
        self.inverted = text.startswith("!")
        regex = text[self.inverted :]
        try:
            self._regex = Expression(regex, fold=not _has_capital(regex), where=f"/{text}/")
        except CockpitError as error:
            if not self.inverted:
                raise
            what = re.sub(r"(?<=at character )\d+\Z", lambda place: str(int(place[0]) + 1), error.what)
            raise CockpitError(what, where=error.where) from None
        try:
            needed = needed_texts(regex)
        except RecursionError as error:
            raise CockpitError(f"not a regular expression: {error}", where=f"/{text}/") from None
        self._folds = self._regex.folds
        # Letters outside ASCII have capitals that bytes do not know of.
        if needed is not None and self._folds and not all(map(str.isascii, needed)):
            needed = None
        self._needed: list[bytes] | None = None
        if needed is not None:
            self._needed = [self._fold(text.encode(errors="surrogatepass")) for text in needed]

    def matches(self, line: bytes) -> bool:
        """Whether a line is selected."""
        return self._regex.search(sanitise(line, colour=False)) != self.inverted

    def spans(self, shown: str) -> list[tuple[int, int]]:
        """Where it matches in the shown text, for highlighting; nothing if inverted."""
        if self.inverted:
            return []
        return list(self._regex.spans(shown))

    def may_match(self, block: bytes) -> bool:
        """Whether a line of ``block`` could be selected; False is certain, and quick."""
        if self.inverted:
            return True
        clean = not block.translate(None, _PLAIN)
        if self._needed is None:
            return not clean or self._searched(block)
        folded = self._fold(block)
        if any(text in folded for text in self._needed):
            return True
        if clean:
            return False
        if b"\t" in block and any(b" " in text for text in self._needed):
            return True
        # Colours may be in the middle of the text, and a replaced control character may be a part of it.
        clean_text = sanitise(block.replace(b"\n", b" "), colour=False)
        shown = (clean_text.casefold() if self._folds else clean_text).encode()
        return any(text in shown for text in self._needed)

    def _fold(self, text: bytes) -> bytes:
        return text.lower() if self._folds else text

    def _searched(self, block: bytes) -> bool:
        lines = block.replace(b"\r", b"\n")
        if len(block) > TEXT_MAX and max(map(len, lines.split(b"\n"))) > TEXT_MAX:
            return True  # the shown part of the line ends elsewhere
        return self._regex.in_a_line(lines)


def _has_capital(regex: str) -> bool:
    return any(map(str.isupper, re.sub(r"\\.|\(\?P", "", regex, flags=re.DOTALL)))


def needed_texts(regex: str) -> list[str] | None:
    """Texts, at least one of which is in everything that a valid expression matches; None: cannot tell."""
    return None if _FLAGS.search(regex) else _Needed(regex).alternatives()


class _Needed:
    """Reads an expression from ``at`` on; every part says which texts it needs, None if it needs none."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._at = 0

    def _next(self) -> str:
        return self._regex[self._at : self._at + 1]

    def alternatives(self) -> list[str] | None:
        """Read up to the end of the group."""
        found: list[str] | None = []
        while True:
            branch = self._sequence()
            found = None if found is None or branch is None else found + branch
            if self._next() != "|":
                return found
            self._at += 1

    def _sequence(self) -> list[str] | None:
        needed: list[list[str]] = []
        run = ""
        while self._next() not in ("", "|", ")"):
            atom = self._atom()
            least = self._least()
            if isinstance(atom, str):
                run += atom if least != 0 else ""
                if least is None:
                    continue
            needed.append([run])
            run = ""
            if isinstance(atom, list) and least != 0:
                needed.append(atom)
        best = max([*needed, [run]], key=lambda texts: min(map(len, texts)))
        return best if all(best) and len(best) <= _MOST else None

    def _least(self) -> int | None:
        """Read a count; return the minimum. None: there is no count."""
        count = _COUNT.match(self._regex, self._at)
        if count is None or count[0] == "{}":
            return None
        self._at = count.end()
        if self._next() in ("?", "+"):
            self._at += 1
        return 1 if count[0] == "+" or (count[1] or "").strip("0") else 0

    def _atom(self) -> str | list[str] | None:
        """Read a character, a class or a group; return a character that stands for itself."""
        char = self._next()
        self._at += 1
        if char == "[":
            self._at = _after_class(self._regex, self._at)
            return None
        if char == "(":
            return self._group()
        if char == "\\":
            return self._escape()
        return None if char in ".^$" else char

    def _escape(self) -> str | None:
        escape = _ESCAPE.match(self._regex, self._at)
        if escape is None:
            self._at += 1
            return self._regex[self._at - 1]
        self._at = escape.end()
        return None

    def _group(self) -> list[str] | None:
        name = _INSIDE.match(self._regex, self._at)
        if name is None:
            self._at = _after_group(self._regex, self._at)
            return None
        self._at = name.end()
        texts = self.alternatives()
        self._at += 1
        return texts


def _after_class(regex: str, at: int) -> int:
    """Where the class that began just before ``at`` ends."""
    at += regex.startswith("^", at)
    at += regex.startswith("]", at)
    while regex[at] != "]":
        at += 2 if regex[at] == "\\" else 1
    return at + 1


def _after_group(regex: str, at: int) -> int:
    """Where the group that began just before ``at`` ends."""
    depth = 1
    while depth:
        char = regex[at]
        at += 1
        if char == "\\":
            at += 1
        elif char == "[":
            at = _after_class(regex, at)
        elif char in "()":
            depth += 1 if char == "(" else -1
    return at
