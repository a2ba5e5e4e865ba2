"""The JSON that programs of nccl-tests write (``-J``): it has their whole environment, secrets included."""

from __future__ import annotations

import re

HEAD = 8 << 20
"""Bytes at the beginning that have the environment, however large it is."""

_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*'
_STRINGS = rb'(?:%s"\s*(?:,\s*)?)*' % _STRING
# Version, time and arguments come first (src/util.cu, jsonOutputInit); a test that is killed leaves no end.
_ENV = re.compile(
    rb'(\s*\{\s*"version"\s*:\s*\d+\s*,(?:\s*"start_time"\s*:\s*%s"\s*,)?\s*"args"\s*:\s*\[\s*%s\]\s*,\s*"env"\s*:\s*\[)'
    rb"\s*%s(?:%s\\?)?" % (_STRING, _STRINGS, _STRINGS, _STRING),
    re.S,
)


def without_env(head: bytes) -> bytes | None:
    """The beginning of such a file with no environment; None: it is no such file.

    :param head: its first :data:`HEAD` bytes, or all of it
    """
    found = _ENV.match(head)
    return None if found is None else found[1] + head[found.end() :]
