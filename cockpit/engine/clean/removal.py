"""Removes runs here and on their nodes; what cannot be removed is told, by node."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

from cockpit.base import trees, verbs
from cockpit.base.answers import KeptFolder
from cockpit.core.run.cleaning import Old, Part, Wanted
from cockpit.core.text import counted
from cockpit.engine.clean.reports import written
from cockpit.engine.clean.survey import Place, Survey, trash
from cockpit.engine.links.link import RemoteError
from cockpit.engine.links.pool import settle
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError

REMOVE_S = 20.0
"""Seconds that a node deletes before it answers; it is asked again until all is gone."""
_ANSWER_S = 60.0
_AGAIN = 90
"""How often: half an hour for one folder."""


@dataclass
class Removed:
    """What became of a run.

    :param here: bytes that were freed on this machine; away: on nodes
    :param gone: whether nothing that looks like it is left, where it was to be removed
    :param left: why something is left, by node; the empty name is this machine
    """

    run: str
    here: int = 0
    away: int = 0
    gone: bool = False
    left: dict[str, str] = field(default_factory=dict)


async def remove(run: Old, folder: RunFolder, found: Survey, wanted: Wanted) -> Removed:
    """Remove a run from its nodes, and then, if all of them have, from this machine.

    A run on whose nodes something is left stays known here: it is removed by doing it again.
    """
    done = Removed(run.run)
    try:
        if not folder.lock():
            done.left[""] = folder.writer.held()
            return done
        if not wanted.here:
            places = {name: place for (of, name), place in found.places.items() if of == run.run}
            sizes, errors = await settle(
                {name: _remove(place, unended=wanted.unended) for name, place in places.items()}
            )
            done.away = sum(sizes.values())
            done.left = {name: error.what for name, error in errors.items()}
        if not done.left:
            await asyncio.to_thread(folder.discard)
            done.here, done.gone = run.here, True
    except CockpitError as error:
        done.left[""] = str(error)
    finally:
        folder.close()
    return done


async def remove_stray(place: Place, *, unended: bool) -> Removed:
    """Remove a run folder from the node that made it."""
    done = Removed(place.run)
    try:
        done.away = await _remove(place, unended=unended)
        done.gone = True
    except CockpitError as error:
        done.left[place.node] = error.what
    return done


async def _remove(place: Place, *, unended: bool) -> int:
    """Remove a run folder; the bytes that were freed.

    :raises CockpitError: the node cannot be asked, refuses, or something of it is left
    """
    facts = place.folder.record
    if facts is None:
        raise RemoteError("folder", "it has no valid record", where=place.node)
    request = verbs.Remove(
        place.folder.dir, facts.run, facts.node, facts.boot_id, facts.supervisor, unended, REMOVE_S
    )
    size = 0
    for _ in range(_AGAIN):
        link = await place.pool.lend(place.node)
        answer = await link.call(request, deadline_s=REMOVE_S + _ANSWER_S)
        size += answer.bytes
        if not answer.late:
            break
    if answer.left or not answer.gone:
        what = f"not everything was deleted: {answer.left or 'no reason reported'}"
        raise RemoteError("left", what, where=place.node)
    return size


async def part_of(place: Place) -> Part:
    """What is known of a run folder whose run is not known here: nobody here has collected its reports."""
    one: KeptFolder = place.folder
    part = Part(True, one.bytes, one.whole, 0, bool(one.alive or one.living), one.ended)
    if not one.ours:
        return Part(True, one.bytes, one.whole, why=f"it is {one.owner}'s")
    if one.record is None:
        return Part(True, one.bytes, one.whole, alive=part.alive, why="it has no valid record")
    try:
        link = await place.pool.lend(place.node)
        reports = sum(1 for _ in written(await link.call(verbs.Reports(one.dir)), one.dir))
    except CockpitError as error:
        return Part(True, one.bytes, one.whole, alive=part.alive, why=error.what)
    return Part(True, one.bytes, one.whole, reports, part.alive, part.ended)


def why_stray_kept(part: Part, wanted: Wanted) -> str:
    """Why a run folder stays that was named; empty: it goes."""
    if part.alive:
        return "it is running there"
    if part.why:
        return part.why
    if not part.ended and not wanted.unended:
        return "no recorded end; to remove it anyway: --unended"
    if part.reports and not wanted.uncollected:
        return f"{counted(part.reports, 'report')} in it not collected; to remove them, too: --uncollected"
    return ""


def empty_trash() -> int:
    """Delete what earlier deletions have left here; the bytes that were freed."""
    size = 0
    for path in trash():
        with suppress(OSError):
            size += trees.cleared(str(path), time.monotonic() + REMOVE_S).bytes
    return size
