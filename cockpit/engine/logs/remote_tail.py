"""The last steps that logs tell, read on their node: for whoever does not follow the run."""

from __future__ import annotations

import glob
from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from cockpit.base import verbs
from cockpit.base.record import INDEX, rank_log
from cockpit.base.times import ticks
from cockpit.engine.links.link import Link
from cockpit.engine.links.reading import read_part
from cockpit.engine.logs.spooled import LAST_TIMES
from cockpit.engine.logs.step_log import LATEST, steps_back, written

STEPS = 40
"""Steps of a log that are looked at, the last ones: from these follows how long one takes."""


class PrintedStep(NamedTuple):
    """A step printed in a log.

    :param at: when that line was there, unix seconds on the node's clock
    """

    rank: int
    step: int
    at: float


async def steps_there(link: Link, folder: str, ranks: Collection[int]) -> list[PrintedStep]:
    """What the ends of logs on a node tell, of its lowest and its highest rank, the oldest step first.

    Of lines that were written at once only the last one counts; where the end of the time index does not say
    when they were, they are left out.

    :param folder: the run folder there
    :param ranks: the ranks of that node
    :raises CockpitError: the node cannot say
    """
    names = {rank_log(rank): rank for rank in sorted({min(ranks), max(ranks)})} if ranks else {}
    words = tuple(glob.escape(f"{folder}/{name}") for name in (*names, *INDEX))
    found = {one.file: one.size for one in (await link.call(verbs.Find(words))).files}
    tails = {}
    index = next((name for name in INDEX if name in found), INDEX[0])
    for name, most in (*dict.fromkeys(names, LATEST).items(), (index, LAST_TIMES)):
        if size := found.get(name, 0):
            data = await read_part(link, folder, name, max(0, size - most), size)
            data = data.replace(b"\r", b"\n")  # a bar may be all that is there
            # The first line may be a part of one.
            tails[name] = data.partition(b"\n")[2] if size > most else data
    times = list(ticks(tails.pop(index, b"").split(b"\n")))
    told = []
    for name, data in tails.items():
        ats: dict[float, int] = {}
        for step, end in islice(steps_back(data, found[name]), STEPS):
            at = written(times, name, end)
            if at is not None:
                ats.setdefault(at, step)
        told += [PrintedStep(names[name], step, at) for at, step in sorted(ats.items())]
    return told
