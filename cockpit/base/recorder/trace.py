"""A trace: the collectives that one rank has entered lately, as torch's flight recorder has them.

Where the facts are from: ``torch/csrc/distributed/c10d/FlightRecorder*.hpp`` of torch 2.13, and dumps of it.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, NamedTuple, Sequence, Tuple

from cockpit.base.gate import Malformed

GROUPS = 4096
"""Process groups of one rank."""

MEMBERS = 1 << 20
"""Ranks in all groups of one rank together."""

TENSORS = 4096
"""Tensors of one call."""

SOURCES = 512
"""Entries whose source is told."""

TEXT = 200
"""Characters of a name, or of the sizes of a call."""

DEFAULT_GROUP = "default_pg"
"""How torch describes the group of all ranks."""

PAIRWISE = ("send", "recv")
"""Operations between two ranks, where nothing else says which ones are."""

GOING, DONE = 0, 1


class Group(NamedTuple):
    """A process group.

    :param backend: ``gloo``, ``nccl``: two backends of one group count apart
    :param name: one and the same on all its ranks
    :param desc: what the program says it is for; ``undefined`` is torch's word for nothing
    """

    backend: str
    name: str
    desc: str

    @property
    def everybody(self) -> bool:
        """Whether this is the group of all ranks."""
        return self.desc == DEFAULT_GROUP

    @property
    def timed(self) -> bool:
        """Whether calls are recorded when the rank arrives; else when its CPU enqueues them for a GPU."""
        return self.backend == "gloo"


class Call(NamedTuple):
    """What is called, which is the same for many entries.

    :param op: ``all_reduce``; ``send`` and ``recv`` are between two ranks
    :param shapes: of its input tensors, or else of the output: ``128x64,10``
    :param inputs: elements of all input tensors; ``outputs``: of all output tensors
    :param dtype: ``Float``; several: ``Float,Half``
    :param peer: of ``send`` and ``recv``, the other rank by its place in the group; else -1
    :param pairwise: whether it is between two ranks: its numbers are counted apart, and apart on each rank
    """

    group: Group
    op: str
    shapes: str
    inputs: int
    outputs: int
    dtype: str
    peer: int
    pairwise: bool = False


class Entry(NamedTuple):
    """One call.

    :param number: its number among those of the group; calls that torch sends off together share one
    :param at_us: when the rank entered it, unix microseconds
    :param state: :data:`GOING` or :data:`DONE`
    :param source: the line of the program that made it, where the dump has stacks: ``train.py:7 step``
    """

    call: Call
    number: int
    at_us: int
    state: int
    source: str = ""


class Trace(NamedTuple):
    """What the recorder of one rank has.

    :param source: the handler that gave it, or ``file``
    :param version: of the form of the dump
    :param entries: oldest first
    :param from_us: from this moment on all calls are here
    :param whole: whether the recorder itself has forgotten nothing
    :param lows: every group that has entries in the recorder, with its lowest number there: 0 if it has only
        calls between two ranks
    :param members: the ranks of groups, where torch tells (it does not for gloo), by the groups' names
    """

    source: str
    version: str
    entries: Tuple[Entry, ...] = ()
    from_us: int = 0
    whole: bool = True
    lows: Dict[Group, int] = {}  # noqa: RUF012 (never changed)
    members: Dict[str, Tuple[int, ...]] = {}  # noqa: RUF012

    def shifted(self, us: int) -> Trace:
        """The same by a clock that is ahead by so many microseconds."""
        entries = tuple(entry._replace(at_us=entry.at_us + us) for entry in self.entries)
        return self._replace(entries=entries, from_us=max(0, self.from_us + us))


def reduced(trace: Trace, since_us: int, rows: int) -> Trace:
    """What was called since a moment, what is not done, and the last calls of each group; at most ``rows``.

    What is left out is told: :attr:`Trace.from_us` moves to the first moment from which all is there.
    """
    keep = set(_last(trace.entries))
    from_us = max(trace.from_us, since_us)
    room = max(0, rows - len(keep))
    for place in range(len(trace.entries) - 1, -1, -1):
        entry = trace.entries[place]
        if place in keep or (entry.at_us < since_us and entry.state == DONE):
            continue
        if not room:
            from_us = max(from_us, entry.at_us + 1)
            break
        room -= 1
        keep.add(place)
    places = sorted(keep)
    for place in places[:-rows]:
        # There are more groups than rows: not even the last call of each is here.
        from_us = max(from_us, trace.entries[place].at_us + 1)
    kept = tuple(trace.entries[place] for place in places[-rows:])
    return trace._replace(entries=kept, from_us=from_us)


def _last(entries: Sequence[Entry]) -> Iterator[int]:
    """The places of the last calls of each group: of a batch all, or it would look like another call."""
    numbers: Dict[Tuple[Group, bool], int] = {}
    for place in range(len(entries) - 1, -1, -1):
        entry = entries[place]
        series = (entry.call.group, entry.call.pairwise)
        if numbers.setdefault(series, entry.number) == entry.number:
            yield place
        else:
            numbers[series] = -1  # the same number further back is of an earlier group of that name


def lows(entries: Sequence[Entry]) -> Dict[Group, int]:
    """See :attr:`Trace.lows`.

    :raises Malformed: there are too many groups
    """
    found: Dict[Group, int] = {}
    for entry in entries:
        group = entry.call.group
        if entry.call.pairwise:
            found.setdefault(group, 0)
        elif not found.get(group) or entry.number < found[group]:
            found[group] = entry.number
    if len(found) > GROUPS:
        raise Malformed("more than %d groups" % GROUPS)
    return found


def integer(value: Any, most: int = 1 << 62) -> int:
    """An integer from 0 on.

    :raises Malformed: it is something else
    """
    if type(value) is int and 0 <= value <= most:
        return int(value)
    raise Malformed("expected an integer from 0 to %d" % most)


def text(value: Any) -> str:
    """A text, cut where it is long.

    :raises Malformed: it is something else
    """
    if isinstance(value, str):
        return value if len(value) <= TEXT else value[:TEXT] + "…"
    raise Malformed("expected a text")
