"""Numbers of training that the logs here told before anybody watched, with the times of their lines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from threading import Event

from cockpit.core.logs.metrics import POINTS
from cockpit.core.logs.progress.series import Series
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import FIELDS, said, speaker
from cockpit.engine.records.folder import RunFolder

MOST = 16 << 20
"""Bytes at the end of a log that are read: reading takes the app's processor time."""

Points = Sequence[tuple[float, float]]


async def told_before(folder: RunFolder, model: RunModel) -> Mapping[str, Points]:
    """Fields of lines with the run's numbers: unix seconds on our clock and values, thinned, oldest first.

    Of the one log that says most, read in a thread.

    :raises CockpitError: the log's index cannot be read
    """
    enough = Event()
    try:
        return await asyncio.to_thread(numbers, folder, model, MOST, enough)
    finally:
        enough.set()


class EnoughError(Exception):
    """Nobody waits for it any more."""


def numbers(folder: RunFolder, model: RunModel, most: int, enough: Event) -> Mapping[str, Points]:
    """The same in this thread.

    :param most: bytes at the end of the log that are read
    :param enough: set: nobody waits for it any more
    :raises CockpitError: the log's index cannot be read
    """

    def go_on(share: float) -> None:
        if enough.is_set():
            raise EnoughError

    found = {name: Series(POINTS) for name in FIELDS}
    with closing(SpooledLogs(folder)) as logs:
        source = speaker(logs)
        if source is None:
            return {}
        since = max(0, logs.size(logs.number(source)) - most)
        for one in said(folder, model, logs, source, go_on, since=since):
            for name in FIELDS if one.at is not None else ():
                value = getattr(one, name)
                if value is not None and math.isfinite(value):
                    found[name].add(one.at or 0.0, [value])
    return {name: points for name, series in found.items() if (points := series.points())}
