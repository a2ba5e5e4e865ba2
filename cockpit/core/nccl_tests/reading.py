"""Reading the tables in a log, by their header line: which columns there are depends on version and options.

Forms are those of nccl-tests 2.0 to 2.19 (``print_header`` and ``BenchTime`` in its ``src/*.cu``; from 2.17
on ``src/util.cu``). A line is printed in pieces, as halves are measured: what NCCL prints may be in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cockpit.core.logs.prefixes import speaker, split
from cockpit.core.nccl_tests.table import Damage, Device, Half, Row, Table, What
from cockpit.core.text import one_line

SPEAKERS = 256
"""Processes in one log that are told apart, by what launchers put before their lines."""
TABLES, ROWS, DEVICES, DAMAGES = 100, 10_000, 1 << 14, 20
"""What is kept of one log, of one table, of one list of devices; a hostile log costs no more."""
MOST = 1e18
"""A larger number is none."""
LONGEST = 4096
"""Bytes of a line that belongs to a table."""
_NAME = 100
_SHOWN = 80

_BEGINS = re.compile(rb"# *(?:nccl-tests version|Collective test starting|nThread \d|Using devices)|busbw")
"""What a table, or what precedes it, has: a log without it is not looked at line by line."""
_VERSION = re.compile(r"# nccl-tests version (\S+)(?:.* nccl-library=(\d+))?")
_STARTING = re.compile(r"# Collective test starting: (.+)")
_JSON = re.compile(r"# Writing JSON output to (.+)")
_DEVICE = re.compile(r"#\s+Rank\s+(\d{1,7})\s.*?\bon\s+(\S+)\s+device\s+(\d{1,4})\s+\[[^\]]*\]\s*(.*)")
_HEADER = re.compile(r"#\s+size\s+count\s+type\s.*\bbusbw\b")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s*: (\d{1,18})\b")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (\S+)")
_NCCL = re.compile(
    r"(?:\[[\d :.-]{8,40}\] )?(?<![A-Za-z])[A-Za-z][\w.-]{0,100}:\d{1,10}:\d{1,10} \[\d{1,4}\] "
    r"(?:\S{1,100} )?NCCL "
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?\Z")
_WHOLE = re.compile(r"\d{1,18}\Z")
_ROOT = re.compile(r"-?\d{1,9}\Z")
_UNKNOWN = {"N/A", "nan", "-nan", "inf", "-inf"}

_FIELDS = {
    "time": "time_us",
    "cputime": "time_us",
    "algbw": "algbw",
    "busbw": "busbw",
    "#wrong": "wrong",
    "error": "delta",
    "i_min": "min_us",
    "i_max": "max_us",
    "i_p99": "p99_us",
    "i_cv%": "cv_percent",
}
"""Columns of a half, and what they are here; others are passed over."""
_STAMP = "timestamp"
"""The one column of two words: a date and a time of day."""


class _Unreadable(Exception):
    """Why a line is none of its table."""


@dataclass(frozen=True)
class _Columns:
    """The columns of a table.

    :param lead: before the halves
    :param half: of each half
    :param rest: after them
    :param ends: where the first column of each half ends in the header
    """

    lead: tuple[str, ...]
    half: tuple[str, ...]
    rest: tuple[str, ...]
    ends: tuple[int, int]

    @classmethod
    def of(cls, header: str) -> _Columns:
        found = list(re.finditer(r"\S+", header))[1:]
        names = [word.group() for word in found]
        starts = [at for at, name in enumerate(names) if name in ("time", "cputime")]
        if len(starts) != 2:
            raise _Unreadable("the header has not two halves")
        first, second = starts
        width = second - first
        half = tuple(names[first:second])
        if tuple(names[second : second + width]) != half:
            raise _Unreadable("the halves of the header differ")
        ends = (found[first].end(), found[second].end())
        return cls(tuple(names[:first]), half, tuple(names[second + width :]), ends)

    @property
    def words(self) -> int:
        """Words of a line without blanks."""
        return len(self.lead) + 2 * len(self.half) + sum(2 if one == _STAMP else 1 for one in self.rest)

    def row(self, text: str, line: int) -> Row:
        """A line of the table.

        :raises _Unreadable: it is none
        """
        found = list(re.finditer(r"\S+", text))
        words = [word.group() for word in found]
        lead, half = len(self.lead), len(self.half)
        blank = len(words) == self.words - half
        if len(words) != self.words and not blank:
            raise _Unreadable(f"{len(words)} values, where the header has {self.words}")
        named = dict(zip(self.lead, words, strict=False))
        what = What(
            int(_checked(named, "size", _WHOLE)),
            one_line(named.get("type", ""), limit=_NAME),
            one_line(named.get("redop", ""), limit=_NAME),
            int(_checked(named, "root", _ROOT)) if "root" in named else None,
        )
        count = int(_checked(named, "count", _WHOLE))
        if not blank:
            first = self._half(words[lead : lead + half])
            second = self._half(words[lead + half : lead + 2 * half])
        elif self.is_second(found[lead].end()):
            first, second = None, self._half(words[lead : lead + half])
        else:
            first, second = self._half(words[lead : lead + half]), None
        at = one_line(" ".join(words[-2:]), limit=_NAME) if _STAMP in self.rest else ""
        return Row(what, count, first, second, at, line)

    def is_second(self, end: int) -> bool:
        """Whether a half whose first value ends there is the second one: columns are aligned to the right."""
        return abs(end - self.ends[1]) < abs(end - self.ends[0])

    def is_piece(self, text: str) -> bool:
        """Whether a line stops where the program pauses: before a half is measured."""
        found = list(re.finditer(r"\S+", text))
        lead, half = len(self.lead), len(self.half)
        if len(found) == lead:
            return True
        # As many words has a line whose first half is blank: that one is whole.
        return len(found) == lead + half and (bool(self.rest) or not self.is_second(found[lead].end()))

    def is_like(self, text: str, *, goes_on: bool) -> bool:
        """Whether this may be a line of the table, or the rest of one, not what another says."""
        words = text.split()
        numbers = sum(1 for word in words if word in _UNKNOWN or _NUMBER.match(word))
        if 2 * numbers < len(words):
            return False
        if len(words) in (self.words, self.words - len(self.half)):
            return True
        return len(words) > (0 if goes_on else 1) and words[0][0] in "0123456789.-"

    def _half(self, words: Sequence[str]) -> Half:
        values: dict[str, float | None] = {}
        for name, word in zip(self.half, words, strict=True):
            if word in _UNKNOWN:
                values[name] = None
            elif _is_number(word):
                values[name] = float(word)
            else:
                raise _Unreadable(f"{name} is no number: {one_line(word, limit=_SHOWN)}")
        return Half(**{_FIELDS[name]: value for name, value in values.items() if name in _FIELDS})


def _is_number(word: str) -> bool:
    return _NUMBER.match(word) is not None and abs(float(word)) <= MOST


def _checked(named: dict[str, str], name: str, rule: re.Pattern[str]) -> str:
    word = named.get(name, "")
    if not rule.match(word):
        raise _Unreadable(f"{name} is no number: {one_line(word, limit=_SHOWN)}")
    return word


@dataclass
class _PrintedTable:
    """What a process has printed so far of its next table, or of the one it is at."""

    test: str = ""
    version: str = ""
    nccl: str = ""
    json_file: str = ""
    devices: list[Device] = field(default_factory=list)
    columns: _Columns | None = None
    line: int = 0
    rows: list[Row] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    begun: str = ""
    """A line whose end has not come yet."""
    begun_at: int = 0
    out_of_bounds: int | None = None
    average: float | None = None
    finished: bool = False
    last: int = 0

    def damaged(self, line: int, what: str) -> None:
        if len(self.damage) < DAMAGES:
            self.damage.append(Damage(line, what))

    def row(self, text: str, line: int) -> None:
        """Take a line of numbers."""
        assert self.columns is not None
        self.last = line
        whole = f"{self.begun} {text}" if self.begun else text
        at, began = self.begun_at if self.begun else line, self.begun
        if self.columns.is_piece(whole):
            self.begun, self.begun_at = whole, at
            return
        self.begun = ""
        try:
            found = self.columns.row(whole, at)
        except _Unreadable as error:
            if began:
                self.damaged(at, _cut(began, self.columns))
                self.row(text, line)
            else:
                self.damaged(line, str(error))
            return
        if len(self.rows) < ROWS:
            self.rows.append(found)

    def end(self) -> None:
        """No more of a line that has begun will come."""
        if self.begun and self.columns is not None:
            self.damaged(self.begun_at, _cut(self.begun, self.columns))
        self.begun = ""

    def table(self, named: str, *, over: bool) -> Table:
        """The table so far.

        :param named: the test, if it does not say
        :param over: whether nothing more will be printed
        """
        damage = list(self.damage)
        if over and self.begun and self.columns is not None:
            damage.append(Damage(self.begun_at, _cut(self.begun, self.columns)))
        elif over and not self.finished:
            damage.append(Damage(self.last, "the table ends here, without its summary"))
        return Table(
            self.test or named,
            self.version,
            self.nccl,
            tuple(sorted(self.devices)),
            tuple(self.rows),
            self.line,
            self.out_of_bounds,
            self.average,
            self.finished,
            self.json_file,
            tuple(damage),
        )


def _cut(text: str, columns: _Columns) -> str:
    return f"cut off: {len(text.split())} values, where the header has {columns.words}"


class Reader:
    """Takes a log as it grows; see :meth:`take`.

    :param test: the program that prints it, by the command; empty: not known
    """

    def __init__(self, test: str = "") -> None:
        self._test = test
        self._line = 0
        self._looks = False
        self._said: dict[bytes, _PrintedTable] = {}
        self._done: list[_PrintedTable] = []

    def take(self, data: bytes) -> None:
        """Take whole lines, the last one maybe without its end."""
        if not self._looks and _BEGINS.search(data) is None:
            self._line += data.count(b"\n")
            return
        self._looks = True
        for line in data.split(b"\n")[: None if not data.endswith(b"\n") else -1]:
            self._line += 1
            if len(line) <= LONGEST:
                self._feed(line)

    def tables(self, *, over: bool = False) -> Iterator[Table]:
        """All so far, in the order of their ends.

        :param over: whether nothing more will be printed
        """
        for said in self._done:
            yield said.table(self._test, over=True)
        for said in self._said.values():
            if said.line:
                yield said.table(self._test, over=over)

    def _feed(self, line: bytes) -> None:
        prefix, body = split(line.rstrip(b"\r"))
        who = speaker(prefix)
        said = self._said.get(who)
        if said is None:
            if _BEGINS.search(body) is None and b"# Writing JSON" not in body:
                return
            if len(self._said) >= SPEAKERS:
                return
            said = self._said[who] = _PrintedTable()
        text = body.decode(errors="replace")
        nccl = _NCCL.search(text)
        if nccl is not None:
            # It comes between two pieces of a line.
            text = text[: nccl.start()]
        if text.lstrip().startswith("#"):
            self._remark(who, said, text.strip())
        elif said.columns is not None and said.columns.is_like(text, goes_on=bool(said.begun)):
            said.row(text, self._line)

    def _remark(self, who: bytes, said: _PrintedTable, text: str) -> None:
        if said.line and _is_next(text):
            said.end()
            if len(self._done) < TABLES:
                self._done.append(said)
            said = self._said[who] = _PrintedTable()
        if found := _VERSION.match(text):
            said.version, said.nccl = one_line(found[1], limit=_NAME), found[2] or ""
        elif found := _STARTING.match(text):
            said.test = one_line(found[1].rpartition("/")[2], limit=_NAME)
        elif found := _JSON.match(text):
            said.json_file = one_line(found[1], limit=LONGEST)
        elif found := _DEVICE.match(text):
            if len(said.devices) < DEVICES:
                host, name = one_line(found[2], limit=_NAME), one_line(found[4], limit=_NAME)
                said.devices.append(Device(int(found[1]), host, int(found[3]), name))
        elif _HEADER.match(text):
            said.line = said.last = self._line
            try:
                said.columns = _Columns.of(text)
            except _Unreadable as error:
                said.damaged(self._line, str(error))
        elif found := _OUT_OF_BOUNDS.match(text):
            said.end()
            said.out_of_bounds = int(found[1])
        elif (found := _AVERAGE.match(text)) and said.line:
            said.end()
            said.columns, said.finished = None, True
            if _is_number(found[1]):
                said.average = float(found[1])
            elif found[1] not in _UNKNOWN:
                said.damaged(self._line, f"the average is no number: {one_line(found[1], limit=_SHOWN)}")


def _is_next(text: str) -> bool:
    """Whether a remark is about the next table: the first of those that precede one."""
    return bool(_HEADER.match(text)) or text.startswith(
        (
            "# nccl-tests version",
            "# Collective test starting",
            "# nThread ",
            "# Using devices",
            "# Writing JSON",
        )
    )
