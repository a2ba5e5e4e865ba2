"""Bytes that are kept until the spool has them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cockpit.engine.logs.recent import OVERHEAD, Recent

TEXT = bytes(range(256)) * 4


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=20),
    st.integers(0, 1200),
    st.integers(0, 1200),
    st.integers(0, 900),
)
def test_what_is_read_is_what_was_kept(sizes: list[int], start: int, length: int, spooled: int) -> None:
    recent = Recent()
    end = 0
    for size in sizes:
        recent.keep(7, end, TEXT[end : end + size])
        end = min(end + size, len(TEXT))
    recent.forget(7, spooled)
    found = recent.read(7, start, length)
    assert found == TEXT[start : start + len(found)]
    if spooled <= start < end:
        assert len(found) == min(length, end - start)
    assert recent.read(8, start, length) == b""


def test_the_oldest_go_first_and_memory_is_bounded() -> None:
    recent = Recent(limit=10 * (100 + OVERHEAD))
    for at in range(100):
        recent.keep(at % 3, at // 3 * 100, TEXT[:100])
        assert recent.size <= 10 * (100 + OVERHEAD)
    assert recent.read(0, 0, 100) == b"", "gone"
    assert recent.read(0, 33 * 100, 100) == TEXT[:100], "the newest"
    for number in range(3):
        recent.forget(number, 1 << 20)
    assert (recent.size, recent.numbers()) == (0, [])
