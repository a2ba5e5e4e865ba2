"""What is shown of a line, however long it is."""

from __future__ import annotations

import re

from cockpit.core.logs.lines import last_state

TEXT_MAX = 8 << 10
"""Bytes of a line that are shown."""

LONG = 256 << 10
"""A line with more bytes is not read whole."""

TAIL = 64 << 10
"""Bytes at the end of such a line that are searched for its last state."""

# A colour or a character cut in two would be shown as garbage.
_HALF = re.compile(rb"(?:\x1b[^m]{0,80}|[\xc0-\xff][\x80-\xbf]{0,3})\Z")


def excerpt(line: bytes) -> tuple[bytes, int]:
    r"""Return what is shown of a line, and how many bytes the whole would be.

    For a line with carriage returns that is its last non-empty state; for a long one see
    :func:`long_excerpt`.

    :param line: the whole line without its newline
    """
    if len(line) > LONG:
        return long_excerpt(line[:TEXT_MAX], line[-TAIL:], len(line))
    state = last_state(line) if b"\r" in line else line
    return clip(state), len(state)


def long_excerpt(head: bytes, tail: bytes, size: int) -> tuple[bytes, int]:
    """The same for a line of which only the ends were read: its last state, or its beginning if that is long.

    :param head: its first ``TEXT_MAX`` bytes
    :param tail: its last ``TAIL`` bytes
    :param size: bytes of the line, without its newline
    """
    tail = tail.rstrip(b"\r")
    last = tail.rfind(b"\r") + 1
    if last:
        return clip(tail[last:]), len(tail) - last
    return clip(last_state(head)), size


def clip(text: bytes) -> bytes:
    """At most ``TEXT_MAX`` bytes of ``text``, no character or colour cut in two."""
    return text if len(text) <= TEXT_MAX else _HALF.sub(b"", text[:TEXT_MAX])
