"""Reads consoles, with two processes where there is much, and judges what they tell."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from cockpit.core.explain.console import ALL, READ_FIRST, Console, ConsoleFacts, joined
from cockpit.core.explain.gate import Gate
from cockpit.core.explain.judging import judged
from cockpit.core.explain.report import Report
from cockpit.core.explain.witnesses import Source
from cockpit.core.nccl.lines import LONGEST
from cockpit.core.nccl.reading import Reader, marked
from cockpit.core.rules.table import table
from cockpit.engine.explain.sources import Item, NotALog, blocks, opened
from cockpit.errors import CockpitError
from cockpit.lang import Phrase

MUCH = 24 << 20
"""Bytes from which on two processes are quicker than one."""
PROCESSES = 2
BUDGET_LEAST = 32 << 10
FIRST_LEAST = 64 << 10
"""Bytes at the beginning of each of many files that are read whatever is in them."""
NCCL_MOST = 32 << 20
"""Bytes of a file in which NCCL's lines are looked for: communicators are made early."""
_LINE_END = 1 << 16


class _Part(NamedTuple):
    """A part of a file, to be read."""

    number: int
    item: Item
    start: int
    end: int | None
    budget: int


class _Read(NamedTuple):
    number: int
    heard: ConsoleFacts
    notes: tuple[Phrase, ...]
    nccl: Sequence[bytes] = ()
    error: CockpitError | None = None


def explained(items: Sequence[Item]) -> Report:
    """What files tell together.

    :raises CockpitError: one that was named cannot be read or is no log, or all are not
    """
    budget = max(BUDGET_LEAST, ALL // max(1, len(items)))
    big = sum(item.size for item in items if item.plain) >= MUCH
    parts = []
    for number, item in enumerate(items):
        if big and item.plain and item.size >= MUCH:
            middle = _line_after(item, item.size // 2)
            parts.append(_Part(number, item, 0, middle, budget // 2))
            parts.append(_Part(number, item, middle, None, budget // 2))
        else:
            parts.append(_Part(number, item, 0, None, budget))
    _gate()  # made once, for both processes
    reads = _both(parts) if big and len(parts) > 1 else [_read(part) for part in parts]
    sources = []
    unread = []
    nccl = Reader()
    for number, item in enumerate(items):
        its = [one for one in reads if one.number == number]
        error = next((one.error for one in its if one.error is not None), None)
        if error is not None:
            if item.given:
                raise error
            unread.append(error)
            continue
        heard = joined([one.heard for one in its])
        if not heard.size and item.given and len(items) == 1:
            raise NotALog("empty: there is nothing to explain", where=item.name)
        notes = tuple(note for one in its for note in one.notes)
        sources.append(Source(item.name, heard, item.rank, notes=notes))
        for line in (line for one in its for line in one.nccl):
            nccl.feed(line, item.rank)
    if not sources:
        raise unread[0]
    return replace(judged(sources, table()), nccl=nccl.table())


def _both(parts: Sequence[_Part]) -> list[_Read]:
    """Read with all processes; the biggest first."""
    context = multiprocessing.get_context("fork")
    order = sorted(range(len(parts)), key=lambda at: -_size(parts[at]))
    processes = min(PROCESSES, len(os.sched_getaffinity(0)))
    if processes < 2:
        return [_read(part) for part in parts]
    with ProcessPoolExecutor(processes, context) as pool:
        chunk = max(1, len(parts) // 64)
        reads = pool.map(_read, [parts[at] for at in order], chunksize=chunk)
        done = dict(zip(order, reads, strict=True))
    return [done[at] for at in range(len(parts))]


def _size(part: _Part) -> int:
    return (part.end or part.item.size) - part.start


def _read(part: _Part) -> _Read:
    first = max(FIRST_LEAST, READ_FIRST * part.budget // ALL)
    console = Console(_gate(), part.budget, first=0 if part.start else first)
    notes: list[Phrase] = []
    nccl: list[bytes] = []
    found = blocks(part.item, part.start, part.end, notes)
    try:
        for block in found if part.start else _keeping(found, nccl, part.budget):
            console.feed(block)
    except CockpitError as error:
        return _Read(part.number, ConsoleFacts(), (), error=error)
    return _Read(part.number, console.finish(), tuple(notes), nccl)


def _keeping(found: Iterable[bytes], nccl: list[bytes], most: int) -> Iterator[bytes]:
    """The same blocks; lines of NCCL in the first of them are kept, so many bytes at most."""
    left, rest = NCCL_MOST, b""
    for block in found:
        if left > 0 and most > 0:
            left -= len(block)
            data = rest + block
            whole = data.rfind(b"\n") + 1
            rest = data[whole:]
            if len(rest) > 2 * LONGEST:
                whole, rest = len(data), b""
            for line in marked(data[:whole]):
                most -= len(line)
                if most < 0:
                    break
                nccl.append(line)
        yield block


_gates: list[Gate] = []


def _gate() -> Gate:
    if not _gates:
        _gates.append(Gate(table()))
    return _gates[0]


def _line_after(item: Item, at: int) -> int:
    """The beginning of the next line; the place itself, if the line is long."""
    try:
        with opened(item.path, given=item.given) as file:
            file.seek(at)
            found: int = file.read(_LINE_END).find(b"\n")
    except OSError:
        return at
    return at + found + 1
