"""Frames: what travels over a link in both directions.

A frame is two big-endian u32 lengths, a JSON object (UTF-8) and raw bytes::

    | header length | payload length | header (JSON object) | payload (bytes) |

Raw bytes stay outside the JSON, so that logs and files travel unescaped and uncopied.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, List, Optional, Tuple, Union

from cockpit.base.gate import Whole

_LENGTHS = struct.Struct(">II")

MAX_HEADER = 4 << 20
"""Largest JSON header accepted, in bytes: a peer may be hostile or broken, and the memory is ours."""
MAX_PAYLOAD = 8 << 20
"""Largest payload accepted, in bytes."""

NUMBER = Whole(0, 1 << 62)
"""The number of a request, by which its answers are known; 0 is the agent's hello."""

_TINY = 4096

Header = Dict[str, Any]
Frame = Tuple[Header, bytes]


class FrameError(ValueError):
    """The data is not a frame: the stream cannot be trusted or resumed after this."""


def encode(header: Header, payload: bytes = b"") -> bytes:
    """Return the bytes of one frame.

    :raises FrameError: the header or the payload is over its limit
    """
    return encode_head(header, len(payload)) + payload


def encode_head(header: Header, payload_len: int) -> bytes:
    """Return a frame up to its payload, for callers that can send that without another copy.

    :raises FrameError: the header or the payload is over its limit
    """
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER or payload_len > MAX_PAYLOAD:
        raise FrameError("frame too large: header %d, payload %d bytes" % (len(text), payload_len))
    return _LENGTHS.pack(len(text), payload_len) + text


class Decoder:
    """Turns chunks of any size back into frames."""

    def __init__(self) -> None:
        self._head = bytearray()
        """What has arrived of the lengths and the header of the next frame."""
        self._header: Optional[Header] = None
        """The header of the frame whose payload is awaited."""
        self._parts: List[Union[bytearray, memoryview]] = []
        self._missing = _LENGTHS.size
        """Bytes that have not arrived: of the lengths, then of the header, then of the payload."""

    def feed(self, data: bytes) -> List[Frame]:
        """Take in ``data`` and return every frame that is complete with it.

        :raises FrameError: a length over the limits, or a header that is not a JSON object
        """
        frames: List[Frame] = []
        rest = memoryview(data)
        while True:
            part, rest = rest[: self._missing], rest[self._missing :]
            self._missing -= len(part)
            if self._header is None:
                self._head += part
            elif part:
                self._keep(part)
            if self._missing:
                return frames
            if self._header is not None:
                frames.append((self._header, b"".join(self._parts)))
                self._header, self._parts, self._missing = None, [], _LENGTHS.size
            else:
                self._go_on()

    def _keep(self, part: memoryview) -> None:
        """Keep a part of a payload as it is: only tiny ones are copied, which would take memory otherwise."""
        if len(part) >= _TINY:
            self._parts.append(part)
        elif self._parts and isinstance(self._parts[-1], bytearray):
            self._parts[-1] += part
        else:
            self._parts.append(bytearray(part))

    def _go_on(self) -> None:
        """Read the awaited part of the head."""
        header_len, payload_len = _LENGTHS.unpack_from(self._head)
        if header_len > MAX_HEADER or payload_len > MAX_PAYLOAD:
            raise FrameError("not a frame: lengths %d and %d" % (header_len, payload_len))
        self._missing = _LENGTHS.size + header_len - len(self._head)
        if not self._missing:
            self._header = _parsed(bytes(self._head[_LENGTHS.size :]))
            self._head = bytearray()
            self._missing = payload_len


def _parsed(text: bytes) -> Header:
    try:
        header = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise FrameError("header is not JSON: %s" % error) from None
    if not isinstance(header, dict):
        raise FrameError("header is not a JSON object")
    return header
