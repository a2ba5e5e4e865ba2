"""How far a run is by what is here: nobody is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain
from typing import Any

from cockpit.core.pace.pace import Pace
from cockpit.core.pace.past import PastStep
from cockpit.core.pace.reached import OFF
from cockpit.core.run.model import RunModel
from cockpit.core.run.starting import is_starting
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import last_steps
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.paces import last_kept
from cockpit.errors import CockpitError


def front_here(folder: RunFolder, model: RunModel) -> dict[str, Any]:
    """The furthest step of a run that is known without asking anybody, as fields of JSON.

    That is the last in the file of its pace, which while it goes on is up to two minutes old; if there is
    none, or its log tells of a later one, the last that the logs here of its lowest or its highest rank tell:
    one of them speaks for all. ``step_s`` is the time of that step, seconds, where it is known.
    """
    last = last_kept(folder)
    if last is None or last.relative or not last.exact or not model.over:
        said = said_here(folder, model)
        if last is None or (said is not None and _is_later(*said, last)):
            step, at = said or (None, None)
            took = last and last.span
            return {"step": step, "step_t": at, "step_s": took, "step_estimated": step is not None}
    return {"step": last.step, "step_t": last.at, "step_s": last.span, "step_estimated": not last.exact}


def _is_later(step: int, at: float, last: PastStep) -> bool:
    """Whether the last step in a log is a later one than the last that was saved, a while after it ended.

    A log may count otherwise than ranks do: of a resumed run further, or in other units. Close to the step
    that was saved it counts as they do if there was time for as many.

    :param at: when the log told it, unix seconds
    """
    more, since = step - last.step, at - last.at
    if not last.exact:
        return more > 0
    if last.relative and more > OFF:
        return True
    return more > 0 and abs(since - more * last.span) <= since / 2


def starting_here(folder: RunFolder, model: RunModel, *, stepped: bool) -> bool:
    """Whether no rank of a run has got to work yet, as far as is known without asking anybody.

    :param stepped: whether a step of any rank is known
    """
    # Only while somebody watches the run its output is here.
    unknown = folder.manifest.foreign is not None
    with suppress(CockpitError):
        unknown = unknown or folder.writer.vacant()
    with closing(SpooledLogs(folder)) as logs:
        printed = None if unknown else any(logs.size(number) for number, _ in logs.outputs)
    return is_starting(model, time.time(), stepped=stepped, printed=printed)


def said_here(folder: RunFolder, model: RunModel) -> tuple[int, float] | None:
    """The last step that logs here of a run's lowest or highest rank tell, and when; None: none does.

    If neither does, that which its launchers' tell: the logs of jobs that others started may be theirs.
    """
    pace = Pace({min(model.ranks), max(model.ranks)} if model.ranks else ())
    estimate(folder, model, pace)
    if pace.front is not None:
        return pace.front
    with closing(SpooledLogs(folder)) as logs:
        consoles = (last_steps(folder, model, logs, entry, (None,)) for entry in folder.manifest.nodes)
        return max(((step, at) for _, step, at in chain.from_iterable(consoles)), default=None)


def estimate(folder: RunFolder, model: RunModel, pace: Pace) -> None:
    """Take in what the ends of logs here tell, of ranks whose steps nothing else tells.

    What is kept of steps that logs tell may end before the log: the last ones had not been timed yet.
    """
    for rank, step, at in said_steps(folder, model, pace):
        pace.stepped(rank, step, at, exact=False)


def said_steps(folder: RunFolder, model: RunModel, pace: Pace) -> Iterator[tuple[int, int, float]]:
    """Such ranks, the last step that each one's log tells, and when (unix seconds on our clock)."""
    with closing(SpooledLogs(folder)) as logs:
        for entry in folder.manifest.nodes:
            unknown = [rank for rank in entry.ranks if rank in pace.steps.place and not pace.notes(rank)]
            for rank, step, at in last_steps(folder, model, logs, entry, unknown):
                assert rank is not None
                yield rank, step, at
