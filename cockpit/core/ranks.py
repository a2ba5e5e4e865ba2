"""Rank sets and node sets, read, expanded and printed: ``0-5,7`` and ``gpu[01-16]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from contextlib import suppress
from functools import lru_cache
from math import prod

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetBase
from ClusterShell.RangeSet import RangeSet, RangeSetException, RangeSetND

from cockpit.base.gate import RANK_LIMIT
from cockpit.core.masks import ranks_of
from cockpit.errors import CockpitError

MAX_HOSTS = 10_000
"""Hosts of one file or set, ranges expanded: more than this is treated as a typo."""

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_NUMBERS = re.compile(r"[0-9]+")
# Also a folder name and an ssh argument: no leading "-" or ".", no "/", nothing a shell would interpret.
_USER = r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?"
_NAME = re.compile(
    rf"(?=.{{1,255}}\Z){_USER}(?:[A-Za-z0-9_][A-Za-z0-9._:-]*|\[[0-9A-Fa-f.]*:[0-9A-Fa-f.:]*\](?::[0-9]+)?)\Z"
)
_BRACKET = re.compile(r"\[([0-9,/-]+)\]")
_PIECE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?\Z")


def ranks_text(ranks: Iterable[int]) -> str:
    """Rank numbers, folded: ``0-5,7``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def ranks_named(ranks: Iterable[int]) -> str:
    """The same with the noun before it: ``rank 3``, ``ranks 0-7``."""
    text = ranks_text(ranks)
    return f"rank{'' if text.isdigit() else 's'} {text}"


@lru_cache(maxsize=4096)
def mask_text(mask: int) -> str:
    """The ranks of a mask, folded: ``0-12,14-63``."""
    return ranks_text(ranks_of(mask))


def mask_within(mask: int, width: int, end: str = ",…") -> str:
    """The ranks of a mask in at most this many columns: if they do not fit, the first ones and ``end``."""
    text = mask_text(mask)
    if len(text) <= width:
        return text
    # Half a number would be another rank.
    head, comma, _ = text[: max(0, width - len(end) + 1)].rpartition(",")
    return head + end if comma else text[: max(0, width - 1)] + "…"


def nodes_text(nodes: Iterable[str]) -> str:
    """Node names folded, in their order: ``gpu[01-16]``, ``storage,gpu[01-16]``.

    Names that differ only in numbers are put together, where the first of them is. A name that is not a
    plain host name stays as it is.
    """
    alike: dict[str, list[str]] = {}
    for name in nodes:
        alike.setdefault(_NUMBERS.sub("0", name) if _PLAIN.fullmatch(name) else name, []).append(name)
    return ",".join(_folded(names) for names in alike.values())


def in_order(nodes: Iterable[str], order: Iterable[str]) -> list[str]:
    """Nodes in the order of the run's hostfile; those that are not in it come last."""
    places = {name: place for place, name in enumerate(order)}
    return sorted(nodes, key=lambda name: places.get(name, len(places)))


def _folded(names: list[str]) -> str:
    if len(names) == 1 or not _PLAIN.fullmatch(names[0]):
        return ",".join(names)
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))


def read_ranks(text: str) -> frozenset[int]:
    """The ranks of a set like ``0-3,7``.

    :raises CockpitError: it is not one
    """
    try:
        # A typo must not fill the memory.
        if any(int(number) >= RANK_LIMIT for number in re.findall(r"\d+", text)):
            raise ValueError(f"no rank is {RANK_LIMIT:,} or more")
        ranks = frozenset(map(int, RangeSet(text)))
        if min(ranks) < 0:
            raise ValueError("ranks begin with 0")
    except (RangeSetException, ValueError) as error:
        raise CockpitError(f"not a rank set: {text[:60]!r} (like 0-3,7): {str(error)[:120]}") from None
    return ranks


def read_nodes(text: str) -> frozenset[str]:
    """The node names of a set like ``gpu[01-16],storage``, without ClusterShell's groups and operators.

    :raises CockpitError: a bad range, or too many names
    """
    names: set[str] = set()
    for word in set_words(text):
        names.update(expand(word) if "[" in word or not word else [word])
        if len(names) > MAX_HOSTS:
            raise CockpitError(f"{piece_of(text)} is more than {MAX_HOSTS} hosts", hint="check the ranges")
    return frozenset(names)


def nodes_set(nodes: Set[str]) -> str:
    """Node names folded into a set that :func:`read_nodes` reads."""
    text = nodes_text(sorted(nodes))
    with suppress(CockpitError):
        if read_nodes(text) == nodes:
            return text
    return ",".join(sorted(nodes))


def set_words(text: str) -> list[str]:
    """The words of a set like ``gpu[01,03],storage``, with their ranges."""
    words, end, inside = list[str](), len(text), False
    for at in range(len(text) - 1, -1, -1):
        if text[at] in "[]":
            inside = text[at] == "]"
        elif text[at] == "," and not inside:
            words.append(text[at + 1 : end])
            end = at
    return [text[:end], *reversed(words)]


def is_name(name: object) -> bool:
    """Whether it is a valid node name here: for ssh, for a file system and for a shell."""
    return isinstance(name, str) and _NAME.match(name) is not None


def expand(name: str) -> list[str]:
    """The names that ``gpu[01-03]`` or ``rack[1-2]n[01-16]`` stand for; ``[::1]`` stands for itself.

    :raises CockpitError: not a valid host name, a bad range, or too many names
    """
    parts = _BRACKET.split(name)
    names: list[str] = []
    # Not by the reader of NodeSet: to it, n9[8-11] is n98 to n911, and `!`, `&`, `^` and `%` mean something.
    if is_name("0".join(parts[::2])):
        ranges: list[RangeSet] = []
        for part in parts[1::2]:
            ranges.append(_range(part))
            if prod(map(len, ranges)) > MAX_HOSTS:
                what = f"{piece_of(name)} is more than {MAX_HOSTS} hosts"
                raise CockpitError(what, hint="check the ranges")
        numbers = RangeSetND([ranges]) if len(ranges) > 1 else next(iter(ranges), None)
        names = list(NodeSetBase("%s".join(parts[::2]), numbers))
    if not names or not all(map(is_name, names)):
        hint = "a name has letters, digits and . _ - : @, and starts with a letter or digit"
        raise CockpitError(f"bad host name {piece_of(name)}", hint=hint)
    return names


def _range(text: str) -> RangeSet:
    hint = "ranges are like [01-16], [1,3,5-8] or [0-30/2]"
    total = 0
    # Counted before ClusterShell makes the set: it would fill the memory with [0-999999999].
    for piece in text.split(","):
        match = _PIECE.match(piece)
        if match is None:
            raise CockpitError(f"bad range [{piece_of(text)}]", hint=hint)
        total += (int(match[2] or match[1]) - int(match[1])) // max(1, int(match[3] or 1)) + 1
        if total > MAX_HOSTS:
            raise CockpitError(f"range [{piece_of(text)}] is more than {MAX_HOSTS} hosts", hint="check it")
    try:
        values = RangeSet(text)
    except RangeSetException:
        raise CockpitError(f"bad range [{piece_of(text)}]", hint=hint) from None
    if len(values) < total:
        raise CockpitError(f"range [{piece_of(text)}] names a host twice", hint=hint)
    return values


def piece_of(text: str) -> str:
    """What a person wrote, for a message: short, and harmless on a terminal."""
    text = text if len(text) <= 80 else text[:77] + "..."
    return text if text.isprintable() else ascii(text)
