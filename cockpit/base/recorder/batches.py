"""Calls that NCCL's backend sends off together: torch records each, and one entry that ends the batch.

Facts: ``startCoalescing``, ``endCoalescing``, ``collective`` and ``pointToPoint`` of torch's
``ProcessGroupNCCL.cpp``, and how ``torch/distributed/flight_recorder/components`` of torch 2.13 reads them.

- Calls in a batch have one number: among collectives, or among calls between two ranks (``is_p2p``).
- Only the entry that ends it has an event of the GPU. Calls in a batch stay ``scheduled`` for ever.
- It is named ``coalesced``; of collectives, since dumps of version 2.7, after the operation that the batch
  stands for: ``ALLGATHER_coalesced``. Before that, collectives in a batch were not recorded themselves.
- Whatever is sent off while a CUDA graph is captured has no such end.
"""

from __future__ import annotations

import re
from typing import Dict, List, Sequence, Tuple

from cockpit.base.recorder.trace import DONE, GOING, Entry, Group

_END = re.compile(r"coalesced|[A-Z0-9_]+_coalesced")
"""Torch's own names of operations are in lower case: ``allreduce_coalesced`` is a call like any other."""

_Series = Tuple[Group, bool]


class Batches:
    """Takes the entries of a dump, oldest first.

    :ivar entries: what was called; ends of batches are not among it, but where they are all there is
    """

    def __init__(self) -> None:
        self.entries: List[Entry] = []
        self._open: Dict[_Series, Tuple[int, List[int]]] = {}
        """Of each series the number of its newest entry, and the places of those that have it."""

    def add(self, entry: Entry) -> bool:
        """The next one; returns whether it is among the entries now."""
        series = (entry.call.group, entry.call.pairwise)
        number, places = self._open.get(series, (-1, []))
        if _END.fullmatch(entry.call.op):
            members = places if number == entry.number else []
            for place in members:
                self.entries[place] = self.entries[place]._replace(state=entry.state)
            self._open.pop(series, None)
            if members or entry.call.pairwise:
                return False
        else:
            if number != entry.number:
                places = []
                self._open[series] = (entry.number, places)
            places.append(len(self.entries))
        self.entries.append(entry)
        return True


def passed(entries: Sequence[Entry]) -> List[Entry]:
    """The same; a collective is done that a later one of its group has got past.

    The GPU takes the collectives of a group in their order. Gloo does not.
    """
    done: Dict[Group, int] = {}
    found = list(entries)
    for place in range(len(found) - 1, -1, -1):
        entry = found[place]
        group = entry.call.group
        if entry.call.pairwise or group.timed:
            continue
        if entry.state == DONE:
            done[group] = max(done.get(group, 0), entry.number)
        elif entry.state == GOING and entry.number < done.get(group, 0):
            found[place] = entry._replace(state=DONE)
    return found
