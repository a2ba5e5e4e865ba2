"""The shape of a line: what is left of it without its numbers, times, addresses and launchers' prefixes.

Lines of one shape that many ranks print are told as one, in which a number that differs stands as a range.
Numbers that tell *which* line it is (of a step, ``340/5004``, a line of a file) belong to the shape, and so
do words with digits in them: hosts, files, layers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from cockpit.core import prefixes
from cockpit.core.levels import Level, level_of

LINE_MAX = 1024
"""A longer line has no shape."""

NUMBERS = 32
"""A line of more numbers is a table: it has no shape."""

FAR = 10
"""Numbers that are so many times apart are not told as one range."""

DASH = "–".encode()
"""Between the least and the greatest number."""


class Kind(IntEnum):
    """What a part of a line is that may differ between ranks."""

    PREFIX = 0
    MOMENT = 1
    NAME = 2
    MEASURE = 3


class Part(NamedTuple):
    """A part that may differ: bytes ``start`` to ``end`` of the text."""

    start: int
    end: int
    kind: Kind


class Shape(NamedTuple):
    """The shape of a text, and where in that text stands what is none of it.

    :param key: equal for texts of one shape, but for what is ``kept``
    :param kept: spans of digits that belong to the shape
    :param parts: in order
    :param loud: whether words of a level are in it
    """

    key: bytes
    kept: tuple[tuple[int, int], ...]
    parts: tuple[Part, ...]
    loud: bool

    def of(self, text: bytes) -> bytes:
        """What this and all other texts of the shape have in common."""
        if not self.kept:
            return self.key
        return b"\0".join([self.key, *[text[start:end] for start, end in self.kept]])


# Shapes depend on where digits are, not on which ones: they are looked up by the text with all digits alike.
# Not zeros, for "0 errors" is another thing than "3 errors".
_ALIKE = bytes.maketrans(b"023456789", b"1" * 9)
_HEX = re.compile(rb"(?<![0-9A-Za-z_])0(?=[xX][0-9a-fA-F]{1,16}(?![0-9A-Za-z_]))")

_TOKEN = re.compile(
    rb"(?P<moment>\x1b\[[\d;:]{0,32}m|\d{1,3}%\|[^|]{0,200}\||\x02[xX][0-9a-fA-F]{1,16}"
    rb"|\b\d{4}[-/]\d\d[-/]\d\d(?:[ T_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)?(?!\d)"
    rb"|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?![\d:]))"
    rb"|\b[Rr]ank[-_]?(?P<rank>\d{1,9})\b(?![-./]\w)"
    rb"|(?P<word>[A-Za-z_/~.][\w./~+-]*)"
    rb"|(?P<number>(?<![\w)-])[-+]?(?:(?<![\[,])\d{1,3}(?:,\d{3})+(?!\d)|\d{1,18})(?:\.\d{1,18})?"
    rb"(?:[eE][-+]?\d{1,3})?(?![\d_]|[.-]\w|/\d|[A-Za-z]{1,10}\d))"
    rb"|(?P<other>\d[\w./:-]*)"
)

# What counts up and is the same on all ranks; a line of a file is a place in the program.
_COUNTER = re.compile(
    rb"(?:\A|.*_)(?:n?updates?|steps?|iter(?:ation)?s?|epochs?|batch|line)\Z", re.IGNORECASE
)
_SOURCE_FILE = re.compile(rb".*\.[a-z]\w{0,4}\Z")
# What stands for somebody or something: that such numbers are far apart says nothing.
_NAMED = re.compile(
    rb"(?:\A|.*_)(?:rank|pid|tid|id|process|thread|block|device|gpu|cuda|cpu|core|node|worker|port|shard|seed"
    rb"|slot|group)s?\Z",
    re.IGNORECASE,
)
_LABELLED = re.compile(rb"[\s:=#'\"\[(]{0,12}")
_WHOLE = re.compile(rb"[-+]?[\d,]+")
_HOST = re.compile(rb"(?<![\w\[(<,/.-])[a-z][\w.-]*:")
_NO_LETTERS = bytes(byte for byte in range(128) if not chr(byte).isalpha())
_RULES = (b"|", "│".encode(), "┃".encode(), "║".encode())


def shape_of(text: bytes) -> Shape | None:
    """The shape of a line; None: it folds with equal lines only."""
    if len(text) > LINE_MAX:
        return None
    alike = _alike(text)
    return _shape(alike) if b"1" in alike else None


def record_shape(text: bytes) -> Shape:
    """The shape of a traceback, of which frames and words must be equal."""
    lines = text.split(b"\n")
    head = prefixes.head(lines[0]) or b""
    keys: list[bytes] = []
    kept: list[tuple[int, int]] = []
    parts: list[Part] = []
    at = 0
    for line in lines:
        body = prefixes.body(line, head) if at else line[max(0, line.find(prefixes.TRACEBACK)) :]
        start = len(line) - len(body) if body is not None else 0
        found = _read(_alike(line), start) if len(line) <= LINE_MAX else Shape(line, (), (), loud=False)
        keys.append(found.key)
        kept += [(at + first, at + last) for first, last in found.kept]
        parts += [Part(at + first, at + last, min(kind, Kind.NAME)) for first, last, kind in found.parts]
        at += len(line) + 1
    return Shape(b"\n".join(keys), tuple(kept), tuple(parts), loud=False)


def told(texts: Sequence[bytes], shapes: Sequence[Shape]) -> list[tuple[list[int], bytes]]:
    """Tell texts of one shape as few: as one, but for those with a number far from all others.

    What is equal in them stands as it is. Numbers that differ become their range, of times and addresses it
    is the first; prefixes that tell who speaks are left out.

    :return: indices of texts, each once, and what stands for them
    """
    rows = [
        [text[start:end] for start, end, _ in shape.parts] for text, shape in zip(texts, shapes, strict=True)
    ]
    columns = list(zip(*rows, strict=True))
    kinds = [part.kind for part in shapes[0].parts]
    differing = [place for place, column in enumerate(columns) if len(set(column)) > 1]
    marks = [_clusters(columns[place]) for place in differing if kinds[place] is Kind.MEASURE]
    if any(shape.loud for shape in shapes):
        marks.append(list(map(level_of, texts)))
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, mark in enumerate(zip(*marks, strict=True) if marks else [()] * len(texts)):
        groups.setdefault(mark, []).append(index)
    found = []
    for group in groups.values():
        first = texts[group[0]]
        pieces = {
            place: _one([columns[place][index] for index in group], kinds[place]) for place in differing
        }
        found.append((group, _replaced(first, shapes[group[0]].parts, pieces) if len(group) > 1 else first))
    return found


def _replaced(text: bytes, parts: Sequence[Part], pieces: Mapping[int, bytes]) -> bytes:
    """A text with other pieces in some of its parts."""
    found: list[bytes] = []
    done = 0
    for place, piece in pieces.items():
        found += (text[done : parts[place].start], piece)
        done = parts[place].end
    found.append(text[done:])
    return b"".join(found)


def _one(said: Sequence[bytes], kind: Kind) -> bytes:
    """What stands for a part that differs."""
    if kind is Kind.PREFIX:
        return min(said) if len(set(map(prefixes.speaker, said))) == 1 else b""
    if kind is Kind.MOMENT:
        return min(said)
    values = dict(zip(_values(said), said, strict=True))
    least, greatest = min(values), max(values)
    return values[least] if least == greatest else values[least] + DASH + values[greatest]


def _values(numbers: Sequence[bytes]) -> list[float]:
    if any(b"," in number for number in numbers):
        numbers = [number.replace(b",", b"") for number in numbers]
    return list(map(float, numbers))


def _clusters(numbers: Sequence[bytes]) -> list[int]:
    """A mark for each number: the same, unless somewhere between two they are :data:`FAR` times apart."""
    sizes = list(map(abs, _values(numbers)))
    if all(map(_WHOLE.fullmatch, numbers)):
        sizes = [size + 1 for size in sizes]  # one is not infinitely more than none
    ordered = sorted(set(sizes))
    if ordered[-1] < FAR * ordered[0]:
        return [0] * len(sizes)
    cluster = {ordered[0]: 0}
    for before, size in pairwise(ordered):
        cluster[size] = cluster[before] + (size >= FAR * before)
    return [cluster[size] for size in sizes]


def _alike(text: bytes) -> bytes:
    if b"0x" in text or b"0X" in text:
        text = _HEX.sub(b"\x02", text)
    return text.translate(_ALIKE)


@lru_cache(maxsize=1024)
def _shape(alike: bytes) -> Shape | None:
    prefix, _ = prefixes.split(alike)
    # The name of a host may as well be that of a layer.
    named = prefix and _HOST.search(prefixes.speaker(prefix))
    found = _read(alike, 0 if named else len(prefix))
    numbers = sum(part.kind >= Kind.NAME for part in found.parts)
    letters = len(found.key.translate(None, _NO_LETTERS))
    told = letters >= 3 and 2 * letters >= 3 * numbers and numbers <= NUMBERS
    return found if told and not found.key.lstrip().startswith(_RULES) else None


def _read(alike: bytes, start: int) -> Shape:
    """The shape of a line whose prefix ends at ``start``."""
    key: list[bytes] = []
    kept: list[tuple[int, int]] = []
    parts = [Part(0, start, Kind.PREFIX)]
    word, after, done = b"", start, start
    for token in _TOKEN.finditer(alike, start):
        what = token.lastgroup
        if what == "word":
            word, after = token[0], token.end()
            if b"1" in word:
                kept.append(token.span())
            continue
        first, last = token.span(what or 0)
        label = word if what == "number" and _LABELLED.fullmatch(alike, after, first) else b""
        kind = _kind(what, alike, first, last, label)
        if kind is None:
            kept.append((first, last))
            continue
        key += (alike[done:first], b"\x01-" if alike.startswith(b"-", first) else b"\x01")
        parts.append(Part(first, last, kind))
        done = last
    key.append(alike[done:])
    return Shape(b"".join(key), tuple(kept), tuple(parts), level_of(alike) is not Level.PLAIN)


def _kind(what: str | None, alike: bytes, first: int, last: int, label: bytes) -> Kind | None:
    """What a token is that may differ; None: it belongs to the shape."""
    if what == "moment":
        return Kind.MOMENT
    if what == "rank":
        return Kind.NAME
    if what != "number":
        return None
    whole = _WHOLE.fullmatch(alike, first, last) is not None
    before, behind = alike[first - 1 : first], alike[last : last + 1]
    if whole and (_COUNTER.match(label) or (before == b":" and _SOURCE_FILE.match(label))):
        return None
    coordinate = whole and before in (b"[", b"(", b",") and behind in (b"]", b")", b",")
    return Kind.NAME if coordinate or _NAMED.match(label) else Kind.MEASURE
