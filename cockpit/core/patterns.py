"""Regular expressions over what a screen shows of a log, and a quick way to pass over what cannot match."""

from __future__ import annotations

import re
import warnings

from cockpit.core.excerpt import TEXT_MAX
from cockpit.core.text import sanitise
from cockpit.errors import CockpitError

_PLAIN = bytes(range(0x20, 0x7F)) + b"\r\n"
_COUNT = re.compile(r"\{(\d*)(,\d*)?\}")
# Flags change what the rest means; a comment is no group to pass over.
_FLAGS = re.compile(r"\(\?[aiLmsux#-]")


class Pattern:
    r"""A regular expression in the text of a line, without its colours.

    Small letters find capitals too, unless there is a capital in the expression; a leading ``!`` inverts.
    ``\w``, ``\b`` and the like know ASCII only.

    :param text: the expression as typed
    :raises CockpitError: it is not one; says where
    """

    def __init__(self, text: str) -> None:
        self.inverted = text.startswith("!")
        regex = text[self.inverted :]
        flags = re.ASCII if _has_capital(regex) else re.ASCII | re.IGNORECASE
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `[[` may mean something else one day
                self._regex = re.compile(regex, flags)
        except re.error as error:
            place = "" if error.pos is None else f" at character {error.pos + 1 + self.inverted}"
            raise CockpitError(f"{error.msg}{place}", where=f"/{text}/") from None
        except (ValueError, OverflowError, RecursionError) as error:
            raise CockpitError(f"not a regular expression: {error}", where=f"/{text}/") from None
        self._folds = bool(self._regex.flags & re.IGNORECASE)
        self._needed: list[bytes] | None = None
        if needed := needed_texts(regex):
            self._needed = [self._fold(text.encode(errors="surrogatepass")) for text in needed]

    def matches(self, line: bytes) -> bool:
        """Whether a line is meant."""
        return (self._regex.search(sanitise(line, colour=False)) is None) == self.inverted

    def spans(self, shown: str) -> list[tuple[int, int]]:
        """Where it matches in a shown text, to highlight; nothing if inverted."""
        if self.inverted:
            return []
        return [match.span() for match in self._regex.finditer(shown) if match.end() > match.start()]

    def may_match(self, block: bytes) -> bool:
        """Whether a line of ``block`` could be meant; False is certain, and quick."""
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
        # Colours may be in the middle of the text, and what stands for a control character may be a part.
        shown = self._fold(sanitise(block.replace(b"\n", b" "), colour=False).encode())
        return any(text in shown for text in self._needed)

    def _fold(self, text: bytes) -> bytes:
        return text.lower() if self._folds else text

    def _searched(self, block: bytes) -> bool:
        lines = block.replace(b"\r", b"\n").decode("ascii").split("\n")
        if len(block) > TEXT_MAX and max(map(len, lines)) > TEXT_MAX:
            return True  # what is shown of the line has another end
        search = self._regex.search
        return any(search(line) for line in lines)


def _has_capital(regex: str) -> bool:
    return any(map(str.isupper, re.sub(r"\\.|\(\?P", "", regex, flags=re.DOTALL)))


def needed_texts(regex: str) -> list[str] | None:
    """Texts of which at least one is in everything that a valid expression matches; None: cannot tell."""
    if _FLAGS.search(regex):
        return None
    found: list[str] = []
    runs = [""]
    at = 0
    while at < len(regex):
        char = regex[at]
        at += 1
        if char == "|":
            found.append(max(runs, key=len))
            runs = [""]
        elif char == "[":
            at = _after_class(regex, at)
            runs.append("")
        elif char == "(":
            at = _after_group(regex, at)
            runs.append("")
        elif char in "*?" or (char == "{" and (count := _COUNT.match(regex, at - 1)) and count[0] != "{}"):
            if char == "{" and count:
                at = count.end()
                optional = not count[1].strip("0")
            else:
                optional = True
            runs[-1] = runs[-1][:-1] if optional else runs[-1]
            runs.append("")
            at += regex[at : at + 1] in ("?", "+")
        elif char == "+":
            runs.append("")
            at += regex[at : at + 1] in ("?", "+")
        elif char in ".^$":
            runs.append("")
        elif char == "\\" and regex[at].isalnum():
            at += 1
            # \x41, \u00e9, \N{…}, \123: what follows belongs to it.
            rest = re.compile(r"(?:N\{[^}]*\}|[xuU0-9][0-9a-fA-F]*)?").match(regex, at - 1)
            at = max(at, rest.end()) if rest else at
            runs.append("")
        elif char == "\\":
            runs[-1] += regex[at]
            at += 1
        else:
            runs[-1] += char
    found.append(max(runs, key=len))
    return found if all(found) else None


def _after_class(regex: str, at: int) -> int:
    """Where the class that began just before ``at`` has ended."""
    at += regex.startswith("^", at)
    at += regex.startswith("]", at)
    while regex[at] != "]":
        at += 2 if regex[at] == "\\" else 1
    return at + 1


def _after_group(regex: str, at: int) -> int:
    """Where the group that began just before ``at`` has ended."""
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
