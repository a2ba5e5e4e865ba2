"""The environment that a rank really got, without its secrets: those never leave the node."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Tuple

from cockpit.base import record, verbs
from cockpit.base.secret import hidden, is_secret
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.ranks import Start, recorded
from cockpit.node.recorded import read_record

VALUE_LIMIT = 4096
"""Characters of a value that are told."""

TOTAL_LIMIT = 256 << 10
"""Bytes of names and values that are told: an answer is one frame, in which a byte may take six."""

# Passwords within values: https://user:password@proxy, "Password=…;", "Authorization: Bearer …".
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_PAIR = re.compile(
    r"((?:token|api[_-]?key|secret|passw(?:or)?d|passphrase|authorization)\s*[=:]\s*)(?:(?:bearer|basic)\s+)?"
    r"[^\s;&,]+",
    re.IGNORECASE,
)


def environ(call: Call) -> Dict[str, Any]:
    """The environment of a rank's process: ``environ`` {name: value}, by name; ``left_out``: how many more.

    Request: ``rank``. It is the environment that the process was started with; what it has changed since
    cannot be seen from outside.

    :raises NodeError: the rank has not started, has ended, or may not be looked at
    """
    asked = call.asked(verbs.Environ)
    folder, rank = asked.dir, asked.rank
    booted = read_record(folder)["boot_id"] == procfs.boot_id()
    pid, ticks = _identity(folder, rank)
    over = NodeError("gone", "rank %d has ended: its environment is gone with its process" % rank)
    if not booted or not procfs.alive(pid, ticks):
        raise over
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            data = file.read()
    except PermissionError as error:
        raise NodeError(
            "denied", "the environment of rank %d cannot be read: %s" % (rank, error.strerror)
        ) from None
    except OSError:
        raise over from None
    # Asked again: only now is it certain that no other process with this pid was read.
    if not procfs.alive(pid, ticks):
        raise over
    return _told(data)


def _identity(folder: str, rank: int) -> Tuple[int, int]:
    path = os.path.join(folder, record.rank_start(rank))
    try:
        start = recorded(Start, path, rank)
        return start.pid, start.ticks
    except FileNotFoundError:
        raise NodeError("early", "rank %d has not started here" % rank) from None
    except (OSError, ValueError) as error:
        raise NodeError("gone", "no start record of rank %d: %s" % (rank, error)) from None


def _told(data: bytes) -> Dict[str, Any]:
    found = []
    for each in data.split(b"\0"):
        name, is_variable, value = each.decode("utf-8", "surrogateescape").partition("=")
        if is_variable:
            found.append((name, value))
    told: Dict[str, str] = {}
    room = TOTAL_LIMIT
    for name, value in sorted(found):
        shown = _harmless(name, value)
        room -= len((name + shown).encode("utf-8", "surrogateescape")) + 16
        if room < 0:
            break
        told[name] = shown
    return {"environ": told, "left_out": len(dict(found)) - len(told)}


def _harmless(name: str, value: str) -> str:
    """A value without secrets and of bounded length."""
    if is_secret(name):
        return hidden(value)
    value = _PAIR.sub(r"\1(secret)", _USER.sub("(secret)@", value))
    if len(value) > VALUE_LIMIT:
        return "%s … (+%d characters)" % (value[:VALUE_LIMIT], len(value) - VALUE_LIMIT)
    return value
