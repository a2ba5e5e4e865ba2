"""A file of steps that is full loses detail where it is oldest, and nothing of what is newest."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO

from cockpit.base.ages import Ages, coarser
from cockpit.base.gate import Malformed
from cockpit.core.pace.past import PastStep, past_of, worse

OLDER = 1 << 14
"""Steps that become one are so many times nearer to each other than they are old, if that fits."""

APART_S = 0.5
"""Of steps that end within so many seconds one is kept: that in which the ranks differed most."""


def thinned(data: bytes) -> bytes:
    """The content of a file with half of its lines at most: the older they are, the more steps become one.

    That in which ranks differed most stands for all of them; damaged lines are left out.
    """
    moments = array("d", (step.at for step in _steps(data)))
    older = OLDER
    while True:
        firsts = _firsts(moments, older)
        if sum(firsts) <= len(moments) // 2 or older == 1:
            break
        older = coarser(older, sum(firsts), len(moments) // 2)
    found = bytearray()
    before: PastStep | None = None
    for first, step in zip(firsts, _steps(data), strict=True):
        if before is not None and not first and step.restarts == before.restarts:
            before = worse(before, step)
            continue
        if before is not None:
            found += before.line()
        before = step
    if before is not None:
        found += before.line()
    return bytes(found)


def _firsts(moments: Sequence[float], older: int) -> bytearray:
    """Of each step whether it is the first of those that become one."""
    ages, firsts = Ages(older, APART_S), bytearray(len(moments))
    after: object = None
    for place in range(len(moments) - 1, -1, -1):
        span = ages.span(moments[place])
        if place + 1 < len(moments):
            firsts[place + 1] = span != after
        after = span
    return firsts


def _steps(data: bytes) -> Iterator[PastStep]:
    """The steps of some lines, one after the other; damaged ones are left out."""
    for line in BytesIO(data):
        with suppress(Malformed):
            yield past_of(line)
