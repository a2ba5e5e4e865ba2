"""Of a line of any length a little is shown, the same whether it was read whole or not."""

from __future__ import annotations

import pytest

from cockpit.core.logs.excerpt import LONG, TAIL, TEXT_MAX, clip, excerpt, long_excerpt


@pytest.mark.parametrize(
    ("line", "shown"),
    [(b"plain", b"plain"), (b"dos\r", b"dos"), (b"1%\r50%\r100%\r", b"100%"), (b"\r\r", b""), (b"", b"")],
)
def test_the_last_state_is_shown(line: bytes, shown: bytes) -> None:
    assert excerpt(line) == (shown, len(shown))


def test_a_long_line_is_cut_and_its_size_told() -> None:
    assert excerpt(b"old\r" + b"x" * 9000) == (b"x" * TEXT_MAX, 9000)


@pytest.mark.parametrize("end", ["é".encode(), "█".encode(), "🦦".encode(), b"\x1b[38;5;196m"])
def test_nothing_is_cut_in_two(end: bytes) -> None:
    for back in range(1, len(end)):
        start = b"x" * (TEXT_MAX - back)
        assert clip(start + end + b"y") == start
    assert clip(b"x" * (TEXT_MAX - len(end)) + end) == b"x" * (TEXT_MAX - len(end)) + end


@pytest.mark.parametrize(
    "line",
    [
        b"x" * (LONG + 1),
        b"\r".join([b"%6d%%" % n for n in range(LONG // 4)]),
        b"\r".join([b"%6d%%" % n for n in range(LONG // 4)]) + b"\r",
        b"old\r" + b"y" * LONG,
        b"z" * LONG + b"\r" * TAIL,
    ],
)
def test_both_ends_of_a_very_long_line_are_enough(line: bytes) -> None:
    assert excerpt(line) == long_excerpt(line[:TEXT_MAX], line[-TAIL:], len(line))


def test_a_progress_bar_of_hours_is_its_last_state() -> None:
    bar = b"\r".join([b"%6d%%" % n for n in range(LONG)])
    assert excerpt(bar) == (b"%6d%%" % (LONG - 1), 7)
