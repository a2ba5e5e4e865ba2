"""Regular expressions that people type, matched by RE2: its time grows with the text, whatever they are.

Python reads them first: its words say what is wrong with one, and where. What RE2 lacks (look-ahead and
look-behind, references to groups) is refused.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterator

from cockpit.errors import CockpitError

LACKS = "look-ahead, look-behind and backreferences are not supported (RE2)"

# What Python has another spelling for.
_SPELT = re.compile(
    r"\\u(?P<u>[0-9a-fA-F]{4})|\\U(?P<U>[0-9a-fA-F]{8})|\\N\{(?P<N>[^}]*)\}|\\(?P<Z>Z)|\\.|\{(?P<least>,)(?=\d*\})",
    re.DOTALL,
)


class Expression:
    r"""A regular expression; ``\w``, ``\b`` and the like are ASCII only.

    :param text: as typed
    :param fold: small letters match capitals too
    :param where: of the error: the option or the text that it is in
    :raises CockpitError: it is none; says where
    """

    def __init__(self, text: str, *, fold: bool = False, where: str = "") -> None:
        import re2  # not needed by most of what cockpit does

        where = where or f"/{text}/"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `[[` may mean something else one day
                flags = re.compile(text, re.ASCII | re.IGNORECASE if fold else re.ASCII).flags
        except re.error as error:
            place = "" if error.pos is None else f" at character {error.pos + 1}"
            raise CockpitError(f"{error.msg}{place}", where=where) from None
        except (ValueError, OverflowError, RecursionError) as error:
            raise CockpitError(f"not a regular expression: {error}", where=where) from None
        if "[[:" in text or "[^[:" in text:
            raise CockpitError(
                "classes such as [[:alpha:]] are not supported", where=where, hint="write [a-zA-Z]"
            )
        self.folds = bool(flags & re.IGNORECASE)
        """Whether small letters match capitals too."""
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.case_sensitive = not fold
        try:
            spelt = _SPELT.sub(_spelt, text)
            self._regex = re2.compile(spelt, options=options)
            # A line's own beginning and end are not those of many lines; flags may change what they are.
            alone = re.search(r"\\[AZz]|\(\?\w*-", spelt)
            self._lines = None if alone else re2.compile(f"(?m:{spelt})", options=options)
        except (re2.error, UnicodeEncodeError) as error:
            what = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else str(error)
            raise CockpitError(f"{what}; {LACKS}", where=where) from None

    def search(self, text: str) -> bool:
        """Whether it is anywhere in a text."""
        return self._regex.search(text.encode(errors="replace")) is not None

    def in_a_line(self, lines: bytes) -> bool:
        """Whether it may be in one of these lines of ASCII; False is certain, and quick."""
        if self._lines is None:
            return any(self._regex.search(line) is not None for line in lines.split(b"\n"))
        return self._lines.search(lines) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it is in a text, empty places left out."""
        for match in self._regex.finditer(text.encode(errors="replace").decode()):
            if match.end() > match.start():
                yield match.span()


def _spelt(found: re.Match[str]) -> str:
    if found["Z"]:
        return r"\z"
    if found["least"]:
        return "{0,"
    if found["N"]:
        return r"\x{%x}" % ord(unicodedata.lookup(found["N"]))
    number = found["u"] or found["U"]
    return r"\x{%s}" % number if number else found[0]
