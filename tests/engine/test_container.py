"""The output of a container by ``kubectl logs``: reading continues after the last line read."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from cockpit.engine.logs.container import Lines, Place, _Reader, follow
from cockpit.transport.base import Tail

AT = 1_796_004_800
"""2026-11-30T02:13:20Z."""


def line(text: str, ns: int = 0) -> bytes:
    """One as kubectl prints it with its time."""
    return f"2026-11-30T02:13:20.{ns:09d}Z {text}\n".encode()


def place(text: str, ns: int = 0) -> Place:
    """Where that line is."""
    return Place(AT * 10**9 + ns, zlib.crc32(text.encode()))


def read(after: Place | None, *pieces: bytes) -> tuple[bytes, Place | None, bool]:
    """What is new, in however many pieces it comes."""
    reader = _Reader(after)
    found = [lines for piece in pieces if (lines := reader.feed(piece)) is not None]
    data = b"".join(lines.data for lines in found)
    return data, found[-1].end if found else after, any(lines.missing for lines in found)


def test_times_are_taken_away_and_lines_are_whole() -> None:
    data = line("one", 1) + line("", 2) + line("half", 3)[:-3]
    assert read(None, data) == (b"one\n\n", place("", 2), False)
    assert read(None, *(bytes([each]) for each in data)) == (b"one\n\n", place("", 2), False)


def test_it_goes_on_after_the_line_that_was_read_last() -> None:
    data = line("one", 1) + line("two", 1) + line("two", 1) + line("three", 2)
    assert read(place("one", 1), data) == (b"two\ntwo\nthree\n", place("three", 2), False)
    assert read(place("two", 1), data)[0] == b"two\nthree\n"
    assert read(place("three", 2), data) == (b"", place("three", 2), False)


def test_what_was_rotated_away_is_known_to_be_missing() -> None:
    assert read(place("one", 1), line("two", 2)) == (b"two\n", place("two", 2), True)
    assert read(place("one", 1), line("other", 1), line("two", 2)) == (b"two\n", place("two", 2), True)


@pytest.mark.parametrize(
    ("said", "ns"),
    [
        (b"2026-11-30T02:13:20Z", 0),
        (b"2026-11-30T03:13:20.5+01:00", 500_000_000),
        (b"2026-11-29T20:43:20.000000001-05:30", 1),
    ],
)
def test_times_as_runtimes_write_them(said: bytes, ns: int) -> None:
    assert read(None, said + b" x\n") == (b"x\n", place("x", ns), False)


@pytest.mark.parametrize("odd", [b"no time", b"", b"\xff\x00", b"9999-99-99T99:99:99Z x"])
def test_a_line_without_a_time_belongs_to_the_one_before(odd: bytes) -> None:
    data, end, _ = read(None, line("one", 1) + odd + b"\n" + line("two", 2))
    assert data.startswith(b"one\n")
    assert data.endswith(b"two\n")
    assert end == place("two", 2)


def test_an_endless_line_is_not_held() -> None:
    reader = _Reader(None)
    kept = [reader.feed(line("x" * 100, 1)[:-1] * 1000) for _ in range(20)]
    assert any(kept)
    assert len(reader._rest) <= 2 << 20


def test_a_kubectl_that_fails_says_why_and_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "kubectl"
    script.write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/asked\nprintf "%s" "{line("one", 1).decode()}"\necho no >&2\n'
    )
    script.chmod(0o755)

    async def main(after: Place | None) -> tuple[list[Lines], str]:
        said = Tail()
        found = [lines async for lines in follow([str(script), "logs"], after, said)]
        return found, said.text()

    found, said = asyncio.run(main(None))
    assert [lines.data for lines in found] == [b"one\n"]
    assert said == "no"
    assert asyncio.run(main(place("one", 1)))[0] == []
    assert (tmp_path / "asked").read_text() == "logs --since-time=2026-11-30T02:13:20Z\n"
