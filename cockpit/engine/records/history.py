"""All that the folder of a run has of what happened, in order."""

from __future__ import annotations

import asyncio
from itertools import chain
from operator import itemgetter

from cockpit.base.events import ClockMeasured, StopAsked
from cockpit.core.replay.order import Clocks, Timed, clocks_of, rebased, standing, written
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, planned
from cockpit.engine.time_slices import by_turns


async def history(folder: RunFolder) -> tuple[RunModel, list[Timed]]:
    """The model as it was before anything happened, but for the clocks, and all events, the earliest first.

    What is damaged is left out.

    :raises CockpitError: the journal cannot be read
    """
    journal, states = folder.told()
    await asyncio.sleep(0)
    clocks = clocks_of([*journal, *states])
    told = [each async for each in by_turns(chain(written(journal), standing(states, clocks)))]
    asked = [each for each in told if isinstance(each[1].fact, StopAsked)]
    for entry in folder.manifest.nodes:
        told += [each async for each in by_turns(clocks.placed(entry.name, folder.recorded(entry), asked))]
    told.sort(key=itemgetter(0))
    return _beginning(folder.manifest, clocks), [each async for each in by_turns(rebased(told, clocks))]


def _beginning(manifest: Manifest, clocks: Clocks) -> RunModel:
    model = RunModel.of([planned(manifest)])
    for name in model.nodes:
        # What is known about the clocks in the end puts the past in order too.
        model.apply(Event(0.0, name, ClockMeasured(clocks.last(name), clocks.rtt_s(name))))
    return model
