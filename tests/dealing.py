"""Deals tests to the workers of xdist: each begins with a share of those that wait, while others compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def sizes(tests: int, workers: int) -> Iterator[int]:
    """How many tests in a row each worker gets at first, as ``--dist worksteal`` counts them."""
    for before in range(workers):
        size = tests // (workers - before)
        tests -= size
        yield size


def dealt(files: Mapping[str, Sequence[T]], waits: Mapping[str, float], workers: int) -> list[T]:
    """All tests in an order that gives each worker about as many seconds of waiting, at its beginning.

    Workers with nothing to do take over what others have last: what waits there would hold up the end.

    :param files: the tests of each file, which stay together where that is possible
    :param waits: files that wait, and for about how many seconds
    """
    room = list(sizes(sum(map(len, files.values())), workers))
    hands: list[list[T]] = [[] for _ in room]
    seconds = [0.0] * workers
    rest: list[T] = []
    for name in sorted(files.keys() & waits.keys(), key=lambda name: (-waits[name], name)):
        fits = [worker for worker in range(workers) if len(hands[worker]) + len(files[name]) <= room[worker]]
        if not fits:
            rest += files[name]
            continue
        least = min(fits, key=seconds.__getitem__)
        hands[least] += files[name]
        seconds[least] += waits[name]
    rest += [test for name, tests in files.items() if name not in waits for test in tests]
    order: list[T] = []
    for hand, size in zip(hands, room, strict=True):
        missing = size - len(hand)
        order += hand + rest[:missing]
        del rest[:missing]
    return order
