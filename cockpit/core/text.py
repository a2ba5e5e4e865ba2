"""The one place where text that a node sent becomes text for a terminal.

What :func:`sanitise` lets through, and what it makes of the rest:

==============================================  =====================================================
printable characters, all kinds of spaces       as they are
tab                                             spaces, to the next multiple of 8 columns of the line
colours and styles (a *sane* SGR sequence)      as they are with ``colour``, else dropped
C0 controls, DEL, ESC of any other sequence     ``\\x1b``; what follows the ESC is shown as plain text
bytes that are not UTF-8 (8-bit C1 among them)  ``\\x9b``
UTF-8 encoded C1, bidi and zero-width
characters, line separators, tags, fillers,
noncharacters                                   ``<U+202E>``
combining marks and variation selectors         8 in a row as they are, the others ``<U+0301>``
==============================================  =====================================================

No state is kept while an escape sequence is read, so an unterminated one cannot swallow anything.
A *sane* SGR is colours (16, 256, RGB) and styles with at most 16 parameters; *conceal* is not one of them.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

MAX_MARKS = 8
"""Combining marks in a row that are shown; the tallest real scripts need four."""

RESET = "\x1b[0m"

_PLAIN = bytes(range(0x20, 0x7F))
_CONTROLS = "\x00-\x08\x0a-\x1f\x7f-\x9f"
_INVISIBLE = (
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_SURROGATES = "\ud800-\udfff"
# Those that no odd byte was decoded to (PEP 383).
_LONE = re.compile("[\ud800-\udc7f\udd00-\udfff]")

_BYTE = r"(?:25[0-5]|2[0-4]\d|[01]?\d?\d)"
_STYLE = (
    rf"(?:[345]8;5;{_BYTE}|[345]8;2;{_BYTE};{_BYTE};{_BYTE}"
    rf"|[345]8:5:{_BYTE}|[345]8:2:(?:\d?:)?{_BYTE}:{_BYTE}:{_BYTE}"
    r"|4:[0-5]|0?[0-79]|2[1-79]|[34][0-79]|5[359]|9[0-7]|10[0-7])"
)
# One set at the start of the pattern, not an alternation: only then does re skip clean text quickly.
_UNSAFE = re.compile(
    rf"[{_CONTROLS}{_INVISIBLE}{_SURROGATES}](?:(?<=\x1b)\[(?:{_STYLE}(?:;{_STYLE}){{0,15}})?m)?",
    re.ASCII,
)
_ACTING = re.compile(f"[{_CONTROLS}\t{_INVISIBLE}{_SURROGATES}]")
# Runs in which there may be too many marks. Blocks that hold none (box drawing and the blocks of progress
# bars, CJK, Hangul, emoji) are left out so that such text costs nothing.
_MAYBE_MARKS = re.compile(
    "[\u0300-\u20ff\u2cef-\u302f\u3099\u309a\ua66f-\uabff\ud7b0-\ud7ff\uf900-\U0001efff\U0001fb00-\U0010ffff]"
    f"{{{MAX_MARKS + 1},}}"
)


@dataclass(frozen=True)
class RemoteText:
    """Text that a node sent: output, a host or file name, an error message.

    It refuses to become a ``str`` by itself (``str()``, f-strings, ``print``), so that it cannot reach a
    terminal or a markup parser unseen; :meth:`shown` is the way.

    :param raw: the bytes as they came
    """

    raw: bytes

    @classmethod
    def of(cls, text: bytes | str) -> RemoteText:
        """Wrap bytes, or a string decoded elsewhere (out of JSON, say; lone surrogates are allowed)."""
        if isinstance(text, bytes):
            return cls(text)
        try:
            return cls(text.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            # Some stand for bytes, and some for nothing at all.
            return cls(_LONE.sub(_spelled, text).encode("utf-8", "surrogateescape"))

    def shown(self, *, colour: bool = False, limit: int | None = None) -> str:
        """Return it for a terminal; see :func:`sanitise`."""
        return sanitise(self.raw, colour=colour, limit=limit)

    def __str__(self) -> str:
        raise TypeError("remote text is not a str; use shown()")

    def __format__(self, spec: str) -> str:
        raise TypeError("remote text is not a str; use shown()")


def one_line(text: bytes | str, *, limit: int | None = None) -> str:
    """Text that a node sent, as one line of harmless text without colours; see :func:`sanitise`."""
    return RemoteText.of(text).shown(limit=limit)


def sanitise(raw: bytes, *, colour: bool, limit: int | None = None) -> str:
    """Return ``raw`` as one line of harmless text (the rules are in the table above).

    Without ``colour`` and ``limit``, doing it twice changes nothing more.

    :param raw: what a node sent; a newline in it is a control like any other
    :param colour: let sane SGR sequences through; a reset then ends the text
    :param limit: characters of the source to show; `` … (+12,345 bytes)`` says how much is left out
    """
    if limit is not None and len(raw) > limit:
        # A character has at most 4 bytes, so this prefix holds `limit` whole ones.
        head = raw[: 4 * limit + 3].decode("utf-8", "surrogateescape")[:limit]
        left = len(raw) - len(head.encode("utf-8", "surrogateescape"))
        suffix = f" … (+{left:,} bytes)" if left else ""
        return _clean(head, colour) + suffix
    if not raw.translate(None, _PLAIN):
        return raw.decode("ascii")
    return _clean(raw.decode("utf-8", "surrogateescape"), colour)


def harmless(text: str) -> str:
    """``text`` without what may act on a terminal: the last wall, for what should have been sanitised."""
    return text if text.isprintable() else _ACTING.sub("", text)


def _clean(text: str, colour: bool) -> str:
    text = _UNSAFE.sub(_keep_style if colour else _drop_style, text)
    if not text.isascii():
        text = _MAYBE_MARKS.sub(_cap_marks, text)
    if "\t" in text:
        text = text.expandtabs()
    return text + RESET if colour and "\x1b" in text else text


def _spelled(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


def counted(number: int, noun: str) -> str:
    """``1 rank``, ``2 ranks``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def markdown(text: str) -> str:
    """Text in which nothing is a mark of Markdown or HTML."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|~&" else char for char in text)


def columns(text: str) -> int:
    """Columns that a terminal needs for a text without controls."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def clip(text: str, width: int) -> str:
    """The beginning of a text without controls that fits into so many columns."""
    if text.isascii():
        return text[:width]
    for place, char in enumerate(text):
        width -= _columns(char)
        if width < 0:
            return text[:place]
    return text


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


class _Codes(dict[str, str]):
    """What stands for an unsafe character; filled as they are met, since few kinds ever are."""

    def __missing__(self, char: str) -> str:
        point = ord(char)
        if point < 0x80:
            code = f"\\x{point:02x}"
        elif 0xDC80 <= point <= 0xDCFF:
            code = f"\\x{point - 0xDC00:02x}"
        else:
            code = f"<U+{point:04X}>"
        self[char] = code
        return code


_CODES = _Codes()


def _keep_style(match: re.Match[str]) -> str:
    found = match[0]
    return _CODES[found] if len(found) == 1 else found


def _drop_style(match: re.Match[str]) -> str:
    found = match[0]
    return _CODES[found] if len(found) == 1 else ""


def _cap_marks(match: re.Match[str]) -> str:
    shown = []
    marks = 0
    for char in match[0]:
        # Conjoining Hangul vowels and finals take no column either, though they are letters.
        jamo = "\u1160" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7ff"
        if jamo or unicodedata.category(char) in ("Mn", "Me"):
            marks += 1
        else:
            marks = 0
        shown.append(_CODES[char] if marks > MAX_MARKS else char)
    return "".join(shown)


def size(number: float) -> str:
    """Bytes as a person says them: ``64 MB``, ``1.9 TB``."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= factor:
            return (
                f"{number / factor:.3g} {unit}" if number < 100 * factor else f"{number / factor:.0f} {unit}"
            )
    return f"{number / 1e3:.0f} kB"


ASCII_SIGNS = str.maketrans(
    {"├": "|", "└": "`", "│": "|", "·": "-", "…": "...", "–": "-", "×": "x", "→": "->"}
)
"""What stands for our own signs where only ASCII is shown."""


def ascii_text(text: str) -> str:
    """The same for a terminal that shows only ASCII; what has no ASCII equivalent is escaped."""
    return text.translate(ASCII_SIGNS).encode("ascii", "backslashreplace").decode("ascii")
