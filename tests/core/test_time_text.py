"""Times and spans of time in words."""

from __future__ import annotations

import time

import pytest

from cockpit.core.time_text import ahead, clock, rounded_span, span_text

AT = time.mktime((2026, 11, 21, 4, 3, 41, 0, 0, -1))
HOUR_S = 3600.0


@pytest.mark.parametrize("now", [AT, AT + 60, AT + 19.9 * HOUR_S, AT - 4 * HOUR_S])
def test_the_same_day_is_not_said(now: float) -> None:
    assert clock(AT, now) == "04:03:41"


@pytest.mark.parametrize("now", [AT + 20 * HOUR_S, AT - 5 * HOUR_S, AT + 365 * 24 * HOUR_S])
def test_another_day_is(now: float) -> None:
    assert clock(AT, now) == "2026-11-21 04:03:41"
    assert clock(AT, now, "%H:%M") == "2026-11-21 04:03"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0004, "0.4 ms"),
        (0.118, "118 ms"),
        (0.9999, "1.0 s"),
        (1.24, "1.2 s"),
        (34, "34 s"),
        (99.4, "99 s"),
        (99.6, "1 min 40 s"),
        (761, "12 min 41 s"),
        (3599.7, "1 h 00 min"),
        (11100, "3 h 05 min"),
        (187200, "2 d 4 h"),
        (float("nan"), "?"),
        (float("inf"), "?"),
    ],
)
def test_a_span_has_two_units_at_most(seconds: float, words: str) -> None:
    assert span_text(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (99, "99 s"), (761, "13 min"), (5999, "100 min"), (11100, "3 h")]
)
def test_a_rounded_one_has_one(seconds: float, words: str) -> None:
    assert rounded_span(seconds) == words


def test_what_is_about_to_be() -> None:
    assert [ahead(seconds) for seconds in (-3, 59, 61, 720)] == [
        "in less than a minute",
        "in less than a minute",
        "in about 61 s",
        "in about 12 min",
    ]
