"""Frames come out as they went in, however the stream is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.frames import MAX_HEADER, MAX_PAYLOAD, Decoder, FrameError, encode

HEADERS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.text(max_size=5), st.integers() | st.text(), max_size=3
)
PAYLOADS = st.binary(max_size=20) | st.builds(
    lambda byte, size: byte * size, st.binary(min_size=1, max_size=1), st.integers(0, 20_000)
)


@given(st.lists(st.tuples(HEADERS, PAYLOADS), max_size=6), st.lists(st.integers(1, 9000), max_size=30))
def test_any_frames_in_any_pieces(frames: list[tuple[dict[str, Any], bytes]], cuts: list[int]) -> None:
    rest = b"".join(encode(header, payload) for header, payload in frames)
    decoder = Decoder()
    found = []
    for cut in cuts:
        found += decoder.feed(rest[:cut])
        rest = rest[cut:]
    assert found + decoder.feed(rest) == frames
    assert all(type(payload) is bytes for _, payload in found)


def test_a_byte_at_a_time() -> None:
    decoder = Decoder()
    data = encode({"id": 1}, b"abc") + encode({"id": 2})
    found = [frame for byte in data for frame in decoder.feed(bytes([byte]))]
    assert found == [({"id": 1}, b"abc"), ({"id": 2}, b"")]
    assert decoder.feed(b"") == []


def test_many_tiny_chunks_take_no_more_memory_than_their_bytes() -> None:
    decoder = Decoder()
    head = encode({"id": 1}, b"x" * 300_000)[:-300_000]
    assert decoder.feed(head) == []
    for _ in range(100_000):
        assert decoder.feed(b"xy") == []
    assert len(decoder._parts) == 1
    ((_, payload),) = decoder.feed(b"z" * 100_000)
    assert payload == b"xy" * 100_000 + b"z" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        (MAX_HEADER + 1).to_bytes(4, "big") + bytes(4),
        bytes(4) + (MAX_PAYLOAD + 1).to_bytes(4, "big"),
        bytes(8),
        b"\0\0\0\2\0\0\0\0[]",
        b"\0\0\0\2\0\0\0\0{]",
        b"\0\0\0\1\0\0\0\0\xff",
    ],
)
def test_what_is_no_frame_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder().feed(data)


def test_nothing_too_large_is_sent() -> None:
    with pytest.raises(FrameError, match="too large"):
        encode({}, bytes(MAX_PAYLOAD + 1))
    with pytest.raises(FrameError, match="too large"):
        encode({"text": "x" * MAX_HEADER})
