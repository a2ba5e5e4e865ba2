"""Who prints a line of a console, by what launchers put before it; no node or rank is known beforehand."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from cockpit.core.logs.prefixes import speaker, split


class Speaker(NamedTuple):
    """Who prints.

    :param kind: what the number is: ``rank``; ``label``, srun's, a rank if most lines have one; ``local``, a
        place on the node; ``actor``, the pid of a process of Ray; ``host``: there is none; empty: nobody is
        named
    :param node: a host, an address, a pod; empty: not named
    :param name: as what it works, as its launcher calls it
    """

    kind: str = ""
    node: str = ""
    number: int = -1
    name: str = ""


NOBODY = Speaker()

_HOST = re.compile(rb"([a-z0-9][a-z0-9._-]{0,63}):(?: |\Z)")
_POD = re.compile(rb"\[pod/([^/\[\]\s]{1,64})/[^\[\]\s]{1,128}\]|([a-z][\w.-]{0,63}[-_]\d{1,5}) {1,40}\|")
_RANK = re.compile(rb"\[rank(\d{1,6})\]:|\[[^\[\]\s,]{0,64}[@\d],(\d{1,6})\](?:<\w{1,16}>)?:")
_LABEL = re.compile(rb"(\d{1,6}):\Z|([A-Za-z][\w.-]{0,63})/(\d{1,6})\Z")
_LOCAL = re.compile(
    rb"\[(?!epoch|step|iter|batch|layer|stage|gpu|cuda|node|task|file)([A-Za-z_][A-Za-z_.-]{0,60})(\d{1,6})\]:"
)
_ACTOR = re.compile(rb"\(([^()\n]{1,64}) pid=(\d{1,10})(?:, ip=([\w.:-]{1,64}))?[^()\n]{0,64}\)")
_WRITTEN = re.compile(rb"[^\n]{0,159}?\[(?:[Rr]ank|RANK)[ _]?(\d{1,6})\]")

HEAD = 256
"""Bytes of a line in which its speaker is looked for."""


def of_line(line: bytes) -> Speaker:
    """Who prints a line."""
    prefix = split(line[:HEAD])[0]
    return of_prefix(prefix) if prefix else NOBODY


def written(line: bytes) -> int | None:
    """The rank that a program itself writes into its line: ``[Rank 3] Watchdog …``."""
    found = _WRITTEN.match(line[:HEAD]) if b"ank" in line[:HEAD] or b"RANK" in line[:HEAD] else None
    return int(found[1]) if found else None


@lru_cache(1 << 13)
def of_prefix(prefix: bytes) -> Speaker:
    """Who has this prefix, times included."""
    return _of_tag(speaker(prefix))


@lru_cache(1 << 13)
def _of_tag(tag: bytes) -> Speaker:
    if not tag:
        return NOBODY
    node = ""
    host = _HOST.match(tag)
    if host and not host[1].isdigit():
        node, tag = host[1].decode(), tag[host.end() :].strip()
    elif pod := _POD.match(tag):
        node, tag = (pod[1] or pod[2]).decode("utf-8", "replace"), tag[pod.end() :].strip()
    actor = _ACTOR.search(tag)
    if found := _RANK.search(tag):
        return Speaker("rank", node or _address(actor), int(found[1] or found[2]))
    if actor:
        return Speaker("actor", _address(actor), int(actor[2]), actor[1].decode("utf-8", "replace"))
    if found := _LABEL.search(tag):
        name = (found[2] or b"").decode("utf-8", "replace")
        return Speaker("label", node, int(found[1] or found[3]), name)
    if found := _LOCAL.search(tag):
        return Speaker("local", node, int(found[2]), found[1].decode())
    return Speaker("host", node) if node else NOBODY


def _address(actor: re.Match[bytes] | None) -> str:
    return "" if actor is None or actor[3] is None else actor[3].decode()
