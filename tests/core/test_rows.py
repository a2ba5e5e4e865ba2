"""Many expressions at once find what each finds alone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.logs import level_words
from cockpit.core.logs.search import Expression, Rows
from tests.logs.judged import levels

REGEXES = (*level_words.ERROR, *level_words.WARNING)
ROWS = Rows([Expression(regex, regex) for regex in REGEXES])


def alone(line: bytes) -> set[str]:
    return {regex for regex in REGEXES if re.search(regex.encode(), line)}


def test_each_row_is_found_in_real_lines() -> None:
    for _, line, _, _ in levels():
        assert {tells for tells, _ in ROWS.found_in(line)} == alone(line), line


PIECES = [
    *(
        b"ERROR",
        b"rror",
        b"error: ",
        b"Killed ",
        b" process 3",
        b"E ",
        b"E1120 03:14:05.1 a.py:3]",
        b"[E a.cc:1 ",
    ),
    *(
        b"(core dumped)",
        b"*** ",
        b"make: *** ",
        b"***: terminated",
        b": +",
        b"Fatal:",
        b"fatal:",
        b"(): invalid ",
    ),
    *(
        b'level="error"',
        b'"level": "fatal"',
        b"warning: ",
        b"CMake Error",
        b"No such file or directory",
        b"12:",
        b" ",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join))
def test_texts_that_overlap_hide_no_row(line: bytes) -> None:
    assert {tells for tells, _ in ROWS.found_in(line)} == alone(line)


def test_a_text_within_another_is_seen() -> None:
    rows = Rows(
        [
            Expression(1, "xylophone"),
            Expression(2, "phone book"),
            Expression(3, "zebra|phone"),
            Expression(4, r"E\d\d"),
        ]
    )
    assert sorted(tells for tells, _ in rows.found_in(b"a xylophone book")) == [1, 2, 3]
    assert [(tells, match.start()) for tells, match in rows.found_in(b"in E12")] == [(4, 3)]
    assert rows.hint(b"nothing of it") is None


@pytest.mark.parametrize(
    "unit", [b"error", b"E1120 03:", b"Killed", b"[E ", b" ", b"1", b"Assertion ", b"[", b"\xff"]
)
def test_a_megabyte_of_anything_is_searched(unit: bytes) -> None:
    text = unit * ((1 << 20) // len(unit))
    ROWS.hint(text)
    ROWS.found_in(text)
