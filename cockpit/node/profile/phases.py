"""What the marks in a rank's ring add to the summary of its trace: phases of steps, and of collectives."""

from __future__ import annotations

from bisect import bisect_left
from statistics import median_low
from typing import Any, Dict, List, Sequence

from cockpit.base.gate import fields
from cockpit.base.profile.summary import Collective, StepTimes
from cockpit.base.progress import ring
from cockpit.base.progress.phases import UNKNOWN, Reader, Span
from cockpit.base.progress.ring import Ring

_PHASES = [name for name, _, _ in fields(StepTimes)].index("phases")
_BEGAN = [name for name, _, _ in fields(Collective)].index("began")


def phased(steps: Sequence[List[Any]], collectives: Sequence[List[Any]], said: Ring) -> Dict[str, Any]:
    """The rows of steps and collectives, each with its phases.

    :param steps: as :class:`cockpit.base.profile.summary.StepTimes`, of the trace alone
    :param collectives: as :class:`cockpit.base.profile.summary.Collective`, likewise
    :param said: the ring, soon after the last of these steps
    """
    spans: List[Span] = []
    found = Reader().read(ring.spans(said.steps), said.marks, said.marks_since_ns, spans)
    phases = {
        step.step: [-1 if one is None else one for one in each]
        for step, each in zip(said.steps, found)
        if each != UNKNOWN
    }
    # A process that loses its CPU between one clock and the other reads them too far apart.
    ahead = median_low(step.wall_ns - step.mono_ns for step in said.steps)
    begins = {row[0]: row[1] - ahead for row in steps}
    ends = [begins[row[0]] + sum(row[_BEGAN : _BEGAN + 2]) for row in collectives]
    return {
        "steps": [[*row[:_PHASES], phases.get(row[0], ())] for row in steps],
        "collectives": [[*row[:-1], one] for row, one in zip(collectives, _at(spans, ends))],
    }


def _at(spans: Sequence[Span], moments: Sequence[int]) -> List[int]:
    """In which phase the training thread was at each moment, monotonic nanoseconds; -1: not known."""
    ends = [span.ended for span in spans]
    found = []
    for moment in moments:
        place = bisect_left(ends, moment)
        inside = place < len(spans) and spans[place].began < moment
        found.append(spans[place].phase if inside else -1)
    return found
