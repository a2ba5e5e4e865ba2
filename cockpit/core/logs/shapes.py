"""The shape of a line: what remains without its numbers, times, addresses and launchers' prefixes.

Lines of one shape that many ranks print are shown as one, with a range for each number that differs.
Numbers that say *which* line it is (of a step, ``340/5004``, a line of a file) belong to the shape, and so
do words with digits in them: hosts, files, layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter

from cockpit.core.logs import prefixes
from cockpit.core.logs.levels import Level, level_of

LINE_MAX = 1024
"""A longer line has no shape."""

NUMBERS = 48
"""A line with digits in more places is a table."""

FAR = 10
"""Numbers that differ by this factor are not shown as one range."""

DASH = "–".encode()
"""What separates the least and the greatest number."""


class PartKind(IntEnum):
    """The kind of a part of a line that may differ between ranks.

    ``MOMENT`` is a time, an address, a colour or the bar of a progress bar; ``NAME`` the number of a rank, a
    process, a device; ``COUNT`` a whole number without a unit, by which lines that belong together are known.
    """

    PREFIX = 0
    MOMENT = 1
    NAME = 2
    COUNT = 3
    MEASURE = 4


Span = tuple[int, int]
"""From a byte up to another one."""

Part = tuple[int, int, PartKind]
"""A part that may differ: a span, and what it holds."""


class Shape:
    """The shape of a text, and the places in the text that are not part of its shape.

    :param key: equal for texts of one shape, except for what is ``kept``
    :param kept: where the digits are that belong to the shape
    :param parts: the parts that do not belong to it, in order
    """

    __slots__ = ("_counts", "_kept", "_key", "_pick", "parts")

    def __init__(self, key: bytes, kept: Sequence[Span], parts: Sequence[Part]) -> None:
        self._key = b"\n" + key  # equal to no line
        self._kept = kept
        self._counts = [(start, end) for start, end, kind in parts if kind is PartKind.COUNT]
        self._pick: Callable[[bytes], tuple[bytes, ...]] | None = None
        self.parts = parts

    def of(self, text: bytes) -> tuple[bytes, bytes]:
        """What all texts of the shape have in common; and the same with what this one counts.

        Among many lines of one shape, two with the same count belong together.
        """
        key = self._key
        if self._kept:
            key = b"\0".join([key, *[text[start:end] for start, end in self._kept]])
        if not self._counts:
            return key, key
        return key, b"\0".join([key, *[text[start:end] for start, end in self._counts]])

    def cut(self, text: bytes) -> tuple[bytes, ...]:
        """The text of each part, and an empty text."""
        if self._pick is None:
            # At least two, or it would return one text instead of a tuple.
            self._pick = itemgetter(*[slice(start, end) for start, end, _ in self.parts], slice(0, 0))
        return self._pick(text)


# Shapes depend on where digits are, not on which ones: they are looked up by the text with equal digits.
# Not zeros: "0 errors" is not the same as "3 errors".
_ALIKE = bytes.maketrans(b"023456789", b"1" * 9)
_HASH = re.compile(
    rb"(?<![\w.-])(?=[0-9a-f-]{0,15}1)(?=[0-9-]{0,15}[a-f])[0-9a-f]{8}[0-9a-f-]{0,56}(?![\w.-])"
)
_HEX = re.compile(rb"(?<![0-9A-Za-z_])0(?=x[0-9a-fA-F]{1,16}(?![0-9A-Za-z_]))")

_MARKS = (b"\0", b"\x01")
"""Markers in a key: before what is kept, and in place of each part."""

# Words without digits are skipped, the last one is kept: it says what the number after it is. Then each
# alternative begins with what it is recognised by, and its group says which one it is. Any other byte is
# skipped too, so that nothing is looked at twice.
_TOKEN = re.compile(
    rb"[^\w./~+\x1b\x02-]*(?:([A-Za-z_/~.][A-Za-z_./~+-]*)(?!\d)[^\w./~+\x1b\x02-]+)*"
    rb"(?:([A-Za-z_/~.][\w./~+-]*)"
    rb"|(\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?![\d:])"
    rb"|\d{4}[-/]\d\d[-/]\d\d(?:[ T_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)?(?!\d)"
    rb"|\d{1,3}%\|[^|]{0,200}\|)"
    rb"|((?:[-+](?<![\w)-].))?(?:(?<![\[,])\d{1,3}(?:,\d{3})+(?!\d)|\d{1,18})(?:\.\d{1,18})?"
    rb"(?:[eE][-+]?\d{1,3})?(?![\d_]|[.-]\w|/\d|[A-Za-z]{1,10}\d))"
    rb"|(\d[\w./:-]*)"
    rb"|(\x02x[0-9a-fA-F]{1,16}|\x1b\[[\d;:]{0,32}m)"
    rb"|(?:[-+](?!\d))+|[^\d])?",
    re.DOTALL,
)
_LABEL, _WORD, _TIME, _NUMBER, _OTHER, _ADDRESS = range(1, 7)
_KINDS = {_TIME: PartKind.MOMENT, _ADDRESS: PartKind.MOMENT, _OTHER: None}

# What counts up and is the same on all ranks; a line of a file is a place in the program.
_COUNTER = re.compile(
    rb"(?:\A|.*_)(?:n?updates?|steps?|iter(?:ation)?s?|epochs?|batch|line)\Z", re.IGNORECASE
)
_SOURCE_FILE = re.compile(rb".*\.[a-z]\w{0,4}\Z")
# Numbers that identify somebody or something: it means nothing that they are far apart.
_NAMED = re.compile(
    rb"(?:\A|.*_)(?:rank|pid|tid|id|process|thread|block|device|gpu|cuda|cpu|core|node|worker|port|shard|seed"
    rb"|slot|group)s?\Z",
    re.IGNORECASE,
)
_OF = re.compile(rb" {0,8}/ {0,8}\d")
_UNIT = re.compile(rb"[A-Za-z%]| (?:[KMGT]?i?B|[mun]?s|[WC%])\b")
_LABELLED = re.compile(rb"[\s:=#'\"\[(]{0,12}")
_RANK = re.compile(rb"[Rr]ank[-_]?(\d{1,9})")
_DIGITS = b"0123456789,+-"
# What precedes and follows a coordinate: "thread: [3,0,0]".
_OPEN = (b"[", b"(", b",")
_CLOSE = (b"]", b")", b",")
_HOST = re.compile(rb"(?<![\w\[(<,/.-])[a-z][\w.-]*:")
_NO_LETTERS = bytes(byte for byte in range(128) if not chr(byte).isalpha())
_RULES = (b"|", "│".encode(), "┃".encode(), "║".encode())


def shape_of(text: bytes) -> Shape | None:
    """The shape of a line; None: it folds only with equal lines."""
    if len(text) > LINE_MAX:
        return None
    alike = _alike(text)
    return _of_layout(alike) if b"1" in alike else None


def record_shape(text: bytes) -> Shape:
    """The shape of a traceback, of which frames and words must be equal."""
    if any(mark in text for mark in _MARKS):
        return Shape(text, [], [])
    lines = text.split(b"\n")
    head = prefixes.head(lines[0]) or b""
    keys: list[bytes] = []
    kept: list[Span] = []
    parts: list[Part] = []
    at = 0
    for line in lines:
        body = prefixes.body(line, head) if at else line[max(0, line.find(prefixes.TRACEBACK)) :]
        start = len(line) - len(body) if body is not None else 0
        read = _read(_alike(line), start) if len(line) <= LINE_MAX else None
        key, digits, differing = read or (line[start:], [], [(0, start, PartKind.PREFIX)])
        keys.append(key)
        kept += [(at + start, at + end) for start, end in digits]
        parts += [(at + start, at + end, min(kind, PartKind.NAME)) for start, end, kind in differing]
        at += len(line) + 1
    return Shape(b"\n".join(keys), kept, parts)


def told(texts: Sequence[bytes], shapes: Sequence[Shape]) -> list[tuple[list[int], bytes]]:
    """Merge texts of one shape into few: into one, except those with a number far from all others.

    Equal parts stay as they are. Numbers that differ become their range; of times the first is kept,
    of addresses any one; prefixes that say who speaks are left out.

    :return: indices of texts, each once, and the text that replaces them
    """
    columns = list(zip(*[shape.cut(text) for text, shape in zip(texts, shapes, strict=True)], strict=True))
    differing = [
        _Differing(place, kind, column)
        for place, ((_, _, kind), column) in enumerate(zip(shapes[0].parts, columns, strict=False))
        if len(set(column)) > 1
    ]
    marks = [marks for each in differing if each.kind >= PartKind.COUNT and (marks := each.clusters())]
    if differing and b"\n" not in texts[0] and level_of(_alike(texts[0])) is not Level.PLAIN:
        marks.append(list(map(level_of, texts)))
    found = []
    for group in _together(marks, len(texts)):
        first = group[0]
        pieces = [(shapes[first].parts[each.place], each.one(group)) for each in differing]
        found.append((group, _replaced(texts[first], pieces) if len(group) > 1 else texts[first]))
    return found


def _together(marks: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """The indices of things that have the same marks."""
    if not marks:
        return [list(range(count))]
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, mark in enumerate(zip(*marks, strict=True)):
        groups.setdefault(mark, []).append(index)
    return list(groups.values())


def _replaced(text: bytes, pieces: Sequence[tuple[Part, bytes]]) -> bytes:
    """A text with other pieces in some of its parts."""
    found: list[bytes] = []
    done = 0
    for (start, end, _), piece in pieces:
        found += (text[done:start], piece)
        done = end
    found.append(text[done:])
    return b"".join(found)


class _Differing:
    """A part that is not the same in all of the texts."""

    def __init__(self, place: int, kind: PartKind, said: Sequence[bytes]) -> None:
        self.place = place
        self.kind = kind
        self._said = said
        self._values: list[float] = []
        if kind >= PartKind.NAME:
            plain = [each.replace(b",", b"") for each in said] if b"," in b"".join(said) else said
            self._values = list(map(float, plain))

    def clusters(self) -> list[int]:
        """A mark for each number: the same, unless a gap of a factor :data:`FAR` separates them.

        :return: empty if they are all the same
        """
        sizes = list(map(abs, self._values))
        if not b"".join(self._said).translate(None, _DIGITS):
            sizes = [max(1, size) for size in sizes]  # one is not infinitely more than none
        if max(sizes) < FAR * min(sizes):
            return []
        ordered = sorted(set(sizes))
        cluster = {ordered[0]: 0}
        for before, size in pairwise(ordered):
            cluster[size] = cluster[before] + (size >= FAR * before)
        return [cluster[size] for size in sizes]

    def one(self, group: Sequence[int]) -> bytes:
        """What replaces it for some of the texts."""
        said, values = self._said, self._values
        if len(group) < len(said):
            said = [said[index] for index in group]
            values = [values[index] for index in group] if values else values
        if self.kind is PartKind.PREFIX:
            return min(said) if len(set(map(prefixes.speaker, said))) == 1 else b""
        if self.kind is PartKind.MOMENT:
            return min(said)
        least, greatest = min(values), max(values)
        if least == greatest:
            return said[values.index(least)]
        return said[values.index(least)] + DASH + said[values.index(greatest)]


def _alike(text: bytes) -> bytes:
    if b"0x" in text:
        text = _HEX.sub(b"\x02", text)
    return text.translate(_ALIKE)


@lru_cache(maxsize=1024)
def _of_layout(alike: bytes) -> Shape | None:
    # What distinguishes hashes and UUIDs is kept, whatever it is: one of them is read for all.
    return _shape(_HASH.sub(_any_hash, alike))


def _any_hash(found: re.Match[bytes]) -> bytes:
    return b"abcd" + b"1" * (len(found[0]) - 4)


@lru_cache(maxsize=1024)
def _shape(alike: bytes) -> Shape | None:
    if any(mark in alike for mark in _MARKS):
        return None
    prefix, _ = prefixes.split(alike)
    # What looks like a host name may be a layer's.
    host = _HOST.search(prefix)
    start = host.start() if host else len(prefix)
    read = _read(alike, start)
    if read is not None and not _tabular(read[0], read[2]):
        return Shape(*read)
    return Shape(b"", [(start, len(alike))], [(0, start, PartKind.PREFIX)]) if start else None


def _tabular(key: bytes, parts: Sequence[Part]) -> bool:
    """Whether it is a row of a table, or only figures: then the figures are its content."""
    numbers = sum([kind >= PartKind.NAME for _, _, kind in parts])
    letters = len(key.translate(None, _NO_LETTERS))
    edged = key.lstrip().startswith(_RULES) and key.rstrip().endswith(_RULES)
    return numbers > 0 and (edged or letters < 3 or 2 * letters < 3 * numbers)


def _read(alike: bytes, start: int) -> tuple[bytes, list[Span], list[Part]] | None:
    """Take a line apart whose prefix ends at ``start``, for a :class:`Shape`; None: too many numbers."""
    parts: list[Part] = [(0, start, PartKind.PREFIX)]
    key: list[bytes] = []
    kept: list[Span] = []
    label, after, done = b"", start, start
    for token in _TOKEN.finditer(alike, start):
        what = token.lastindex
        if what is None:
            continue
        if len(parts) + len(kept) > NUMBERS:
            return None
        if token.start(_LABEL) >= 0:
            label, after = token[_LABEL], token.end(_LABEL)
        first, last = token.span(what)
        if what == _NUMBER:
            kind = _number(alike, first, last, label if _LABELLED.fullmatch(alike, after, first) else b"")
        elif what > _WORD:
            kind = _KINDS[what]
        else:
            label, after = token[what], last
            if b"1" not in label:
                continue
            rank = _RANK.fullmatch(label)
            kind = PartKind.NAME if rank else None
            first += rank.start(1) if rank else 0
        if kind is None:
            kept.append((first, last))
            continue
        key += (alike[done:first], b"\x01-" if alike.startswith(b"-", first) else b"\x01")
        parts.append((first, last, kind))
        done = last
    key.append(alike[done:])
    return b"".join(key), kept, parts


def _number(alike: bytes, first: int, last: int, label: bytes) -> PartKind | None:
    """What a number is; None: it belongs to the shape."""
    if alike[first:last].translate(None, _DIGITS):
        return PartKind.MEASURE
    before = alike[first - 1 : first]
    if _COUNTER.match(label) or (before == b":" and _SOURCE_FILE.match(label)):
        return None
    if _OF.match(alike, last) or (before in b" /" and alike[:first].rstrip(b" ").endswith(b"/")):
        return None
    if _NAMED.match(label) or (before in _OPEN and alike[last : last + 1] in _CLOSE):
        return PartKind.NAME
    return PartKind.MEASURE if _UNIT.match(alike, last) else PartKind.COUNT
