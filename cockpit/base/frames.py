"""Frames: what travels over a link in both directions.

A frame is two big-endian u32 lengths, a JSON object (UTF-8) and raw bytes::

    | header length | payload length | header (JSON object) | payload (bytes) |

Raw bytes stay outside the JSON, so that logs and files travel unescaped and uncopied.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, Iterator, Tuple

from cockpit.base.gate import Whole

_LENGTHS = struct.Struct(">II")

MAX_HEADER = 4 << 20
"""Largest JSON header accepted, in bytes: a peer may be hostile or broken, memory is ours."""
MAX_PAYLOAD = 8 << 20
"""Largest payload accepted, in bytes."""

NUMBER = Whole(0, 1 << 62)
"""The number of a request, by which its answers are known; 0 is the agent's hello."""

Header = Dict[str, Any]
Frame = Tuple[Header, bytes]


class FrameError(ValueError):
    """What came is not a frame: the stream cannot be trusted or resumed after this."""


def encode(header: Header, payload: bytes = b"") -> bytes:
    """Return the bytes of one frame.

    :raises FrameError: the header or the payload is over its limit
    """
    return encode_head(header, len(payload)) + payload


def encode_head(header: Header, payload_len: int) -> bytes:
    """Return a frame up to its payload, for who can send that without another copy.

    :raises FrameError: the header or the payload is over its limit
    """
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER or payload_len > MAX_PAYLOAD:
        raise FrameError("frame too large: header %d, payload %d bytes" % (len(text), payload_len))
    return _LENGTHS.pack(len(text), payload_len) + text


class Decoder:
    """Turns chunks of any size back into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take in ``data`` and yield every frame that is complete.

        The data is taken in at the call; frames may be drawn lazily.

        :raises FrameError: a length over the limits, or a header that is not a JSON object
        """
        self._buffer += data
        return self._frames()

    def _frames(self) -> Iterator[Frame]:
        buffer = self._buffer
        start = 0
        try:
            while len(buffer) - start >= _LENGTHS.size:
                header_len, payload_len = _LENGTHS.unpack_from(buffer, start)
                if header_len > MAX_HEADER or payload_len > MAX_PAYLOAD:
                    raise FrameError("not a frame: lengths %d and %d" % (header_len, payload_len))
                body = start + _LENGTHS.size
                end = body + header_len + payload_len
                if len(buffer) < end:
                    break
                # A view saves the copy that slicing a bytearray makes; it must end before the buffer shrinks.
                with memoryview(buffer) as view:
                    header = _header(bytes(view[body : body + header_len]))
                    payload = bytes(view[body + header_len : end])
                start = end
                yield header, payload
        finally:
            del buffer[:start]


def _header(text: bytes) -> Header:
    try:
        header = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise FrameError("header is not JSON: %s" % error) from None
    if not isinstance(header, dict):
        raise FrameError("header is not a JSON object")
    return header
