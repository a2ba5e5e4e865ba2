"""Chunks of a log become lines, the same however they were cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.logs.lines import Cut, LineAssembler, last_state

logs = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"long text", b"\x00\xff"])).map(
    b"".join
)


def cuts(data: bytes, at: list[int]) -> list[bytes]:
    """Cut ``data`` at these places."""
    ends = sorted({min(place, len(data)) for place in at})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


def run(log: LineAssembler, chunks: list[bytes]) -> tuple[list[bytes], list[int]]:
    """Feed all; return the lines and their spans, the unfinished one too."""
    lines, spans = [], []
    for chunk in chunks:
        lines += log.feed(chunk)
        spans += log.spans
    lines += log.finish()
    return lines, spans + log.spans


@given(logs, st.lists(st.integers(0, 60)))
def test_lines_do_not_depend_on_chunks(data: bytes, at: list[int]) -> None:
    lines, spans = run(LineAssembler(), cuts(data, at))
    ended = data.split(b"\n")
    if not ended[-1]:
        ended.pop()
    assert lines == [last_state(line) for line in ended]
    assert sum(spans) == len(data)


@given(logs, st.lists(st.integers(0, 60)), st.integers(1, 9))
def test_nothing_is_lost_of_long_lines(data: bytes, at: list[int], limit: int) -> None:
    data = data.replace(b"\r", b"")
    lines, spans = run(LineAssembler(limit), cuts(data, at))
    assert (lines, spans) == run(LineAssembler(limit), [data])
    assert all(len(line) <= limit for line in lines)
    whole = b"".join(line if isinstance(line, Cut) else line + b"\n" for line in lines)
    assert whole in (data, data + b"\n")
    assert sum(spans) == len(data)


@given(logs, st.lists(st.integers(0, 60)), st.integers(1, 9))
def test_spans_cover_the_log_with_progress_bars_too(data: bytes, at: list[int], limit: int) -> None:
    _, spans = run(LineAssembler(limit), cuts(data, at))
    assert sum(spans) == len(data)
    assert all(span >= 0 for span in spans)


def test_progress_bar_is_its_last_state() -> None:
    log = LineAssembler()
    assert log.feed(b"\r 10%|#") == []
    assert log.pending() == b" 10%|#"
    assert log.overwrites
    assert log.feed(b"\r 20%") == []
    assert log.feed(b"|##") == []
    assert log.pending() == b" 20%|##"
    assert log.feed(b"\r") == []
    assert log.pending() == b" 20%|##", "a state stays until the next one comes"
    assert log.feed(b"\r100%|##########\r\nnext") == [b"100%|##########"]
    assert log.pending() == b"next"
    assert not log.overwrites


def test_crlf_cut_in_the_middle() -> None:
    log = LineAssembler()
    assert log.feed(b"one\r") == []
    assert log.feed(b"\ntwo\r\n\r\n") == [b"one", b"two", b""]
    assert log.finish() == []


def test_hours_of_a_progress_bar_take_no_memory() -> None:
    log = LineAssembler()
    for step in range(5000):
        assert log.feed(b"\r%6d " % step + b"#" * 200) == [], "a bar is never cut: old states are forgotten"
        assert sum(map(len, log._pieces)) <= 207
    assert log.pending().startswith(b"  4999 ")


def test_line_without_end_is_bounded_and_joined_once() -> None:
    log = LineAssembler(1 << 16)
    emitted = 0
    for _ in range(4096):
        for piece in log.feed(b"x" * 1024):
            assert isinstance(piece, Cut)
            assert len(piece) == 1 << 16
            emitted += len(piece)
        held = [len(piece) for piece in log._pieces]
        assert sum(held) <= 1 << 16
        assert all(size <= 1024 for size in held[1:]), (
            "a new chunk is kept beside the old ones, not joined to them"
        )
    assert emitted + len(log.pending()) == 4096 * 1024
