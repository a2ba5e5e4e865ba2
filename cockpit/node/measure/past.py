"""What a node kept of its ranks' steps, for a cockpit that was not there."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Iterator, List

from cockpit.base import record, verbs
from cockpit.base.progress.past import EVERY_S, ROWS, Stretch, folded, rows
from cockpit.node.calls import Call
from cockpit.node.run.past import by_rank, read

SPANS = 4000
"""In one item, about: whoever reads it has other things to do as well."""


def past(call: Call) -> Dict[str, Any]:
    """The rows of a run folder since a moment, at most so many steps of a rank one by one, in items.

    Request: ``dir``, ``ranks``, ``since`` (unix seconds, this node's clock), ``steps``. Item: ``rows``.
    """
    asked = call.asked(verbs.Past)
    ranks = frozenset(asked.ranks)
    found = (
        row
        for name in (record.STEPS_FOLDED, record.STEPS)
        for row in read(os.path.join(asked.dir, name), max(1, len(ranks)))
        if row.rank in ranks and row.end > asked.since
    )
    told: List[Stretch] = []
    for (rank, source), some in by_rank(found).items():
        some = [piece for piece in some if piece.end > asked.since]
        older, newer = some[: -asked.steps], some[-asked.steps :]
        told += rows(rank, source, [*folded(older, EVERY_S), *newer])
    for portion in _portions(sorted(told, key=lambda row: row.end)):
        if call.cancelled:
            break
        call.item({"rows": [row.values() for row in portion]})
    return {}


def _portions(some: Iterable[Stretch]) -> Iterator[List[Stretch]]:
    portion: List[Stretch] = []
    spans = 0
    for row in some:
        portion.append(row)
        spans += len(row.spans)
        if spans >= SPANS or len(portion) == ROWS:
            yield portion
            portion, spans = [], 0
    if portion:
        yield portion
