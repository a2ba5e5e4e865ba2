"""Two profiles: where a step goes, which operations take longer, which collectives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from cockpit.core.compare.model import Measure, Operation, Profiles
from cockpit.core.profile import folded, reader
from cockpit.core.profile.collection import DONE, Collection
from cockpit.core.profile.reading import CollectiveRow, OperationRow, Reading
from cockpit.core.profile.words import PARTS, title
from cockpit.core.text import size
from cockpit.errors import CockpitError

STACKS = "cpu"
"""The kind whose profiles are of stacks."""


class Profiled(NamedTuple):
    """A collection and what it says."""

    collection: Collection
    reading: Reading

    @property
    def title(self) -> str:
        """What it is of."""
        return title(self.collection, self.reading)


def comparable(one: Collection, other: Collection) -> bool:
    """Whether they measure the same: stacks have samples, the others operations."""
    return (one.kind == STACKS) == (other.kind == STACKS)


def profiles(before: Profiled, after: Profiled) -> Profiles:
    """What there is to say of both.

    :raises CockpitError: one has stacks and the other one has operations
    """
    kinds = before.collection.kind, after.collection.kind
    if not comparable(before.collection, after.collection):
        raise CockpitError(f"profiles of the kinds {kinds[0]} and {kinds[1]} have nothing in common")
    if kinds[0] == STACKS:
        return _stacks(before, after)
    notes = (
        [f"one is by {kinds[0]}, the other by {kinds[1]}: operations may have other names"]
        if kinds[0] != kinds[1]
        else []
    )
    notes += [
        f"{of} has no steps to compare"
        for of, one in (("before", before), ("after", after))
        if one.reading.parts is None
    ]
    rows = [_operations(one) for one in (before, after)]
    ranks = [rank for one in (before, after) if (rank := _typical(one)) is not None]
    return Profiles(
        before.title,
        after.title,
        parts=tuple(_parts(before.reading, after.reading)),
        ranks=tuple(ranks),
        operations=_joined(rows[0], rows[1], lambda row: (row.name, row.kind)),
        sums=_joined(_sums(rows[0]), _sums(rows[1]), lambda row: (row.name, row.kind)),
        collectives=_joined(
            list(map(_collective, before.reading.collectives)),
            list(map(_collective, after.reading.collectives)),
            lambda row: row.name,
        ),
        notes=tuple(notes),
    )


def _parts(before: Reading, after: Reading) -> Iterable[Measure]:
    was, now = before.parts, after.parts
    for name, called in {"took": "step", **PARTS}.items():
        values = [None if parts is None else float(getattr(parts, name)) for parts in (was, now)]
        yield Measure(called, "s", values[0], values[1])


def _typical(one: Profiled) -> int | None:
    """The typical rank of the kind that most ranks are of."""
    kind = max(one.reading.kinds, key=lambda kind: len(kind.ranks), default=None)
    return None if kind is None else kind.typical


def _operations(one: Profiled) -> list[OperationRow]:
    """Those of the typical rank."""
    rank = _typical(one)
    found = None if rank is None else reader.operations(one.collection, one.reading, rank)
    return [] if found is None else list(found.rows)


def _sums(rows: Iterable[OperationRow]) -> list[OperationRow]:
    """Of all operations of a kind."""
    own, calls = defaultdict[str, float](float), defaultdict[str, float](float)
    for row in rows:
        own[row.kind] += row.own
        calls[row.kind] += row.count
    return [OperationRow(kind, kind, own[kind], None, calls[kind], None) for kind in own]


def _collective(row: CollectiveRow) -> OperationRow:
    """What a rank is in it, of a step: moving data, and waiting for others."""
    name = f"{row.name} {size(row.size)}" if row.size else row.name
    return OperationRow(name, "communication", row.took * row.count + row.wait, None, row.count, None)


def _joined(
    before: Iterable[OperationRow], after: Iterable[OperationRow], key: Callable[[OperationRow], object]
) -> tuple[Operation, ...]:
    """Rows of one name beside each other, those that differ most first; of several that are alike the sum."""
    sides = _by_key(before, key), _by_key(after, key)
    found = []
    for one in dict.fromkeys([*sides[0], *sides[1]]):
        was, now = sides[0].get(one), sides[1].get(one)
        row = was or now
        assert row is not None
        found.append(
            Operation(
                row.name,
                row.kind,
                None if was is None else was.own,
                None if now is None else now.own,
                None if was is None else was.count,
                None if now is None else now.count,
            )
        )
    return tuple(sorted(found, key=lambda one: (-abs(one.more), one.name)))


def _by_key(
    rows: Iterable[OperationRow], key: Callable[[OperationRow], object]
) -> Mapping[object, OperationRow]:
    found: dict[object, OperationRow] = {}
    for row in rows:
        there = found.get(key(row))
        if there is not None:
            own, count = there.own + row.own, there.count + row.count
            row = OperationRow(row.name, row.kind, own, None, count, None)
        found[key(row)] = row
    return found


def _stacks(before: Profiled, after: Profiled) -> Profiles:
    """Frames that one of them is in for longer, by as much as so many samples prove."""
    sides = {0: _samples(before.collection), 1: _samples(after.collection)}
    longer = folded.differences(sides, 1)
    shorter = folded.differences(sides, 0)
    rows = [Operation(one.frame, "frame", one.others, one.share) for one in longer]
    rows += [Operation(one.frame, "frame", one.share, one.others) for one in shorter]
    least = folded.least_shown(min(sum(side.values()) for side in sides.values()))
    note = f"not listed: frames that differ by less than {least:.0%} of the time: too few samples"
    return Profiles(
        before.title,
        after.title,
        "share",
        operations=tuple(sorted(rows, key=lambda one: (-abs(one.more), one.name))),
        notes=(note,) if all(sides.values()) else ("one of them has no samples",),
    )


def _samples(collection: Collection) -> folded.Samples:
    """Those of all ranks."""
    found = Counter[folded.Stack]()
    for result in collection.results.values():
        if result.state == DONE:
            found.update(folded.main_thread(folded.parsed(result.folded)))
    return found
