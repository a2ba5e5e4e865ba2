"""What is known here of a run that is to be profiled, and that it was: who tells its journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cockpit.base.gate import Malformed
from cockpit.core.logs.causes import TAIL
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.past import past_of
from cockpit.core.profile.collection import DONE, Collection
from cockpit.core.profile.gain import Ahead
from cockpit.core.run import watch_messages
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.slow import since
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import speaker
from cockpit.engine.profile.choose import Known
from cockpit.engine.profile.store import Store
from cockpit.engine.profile.taking import fact_of, is_over
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.eta import left, told
from cockpit.engine.run.past_file import PastFile
from cockpit.errors import CockpitError

if TYPE_CHECKING:
    from cockpit.engine.run.session import Session

LOOK_S = 2.0
"""Seconds between two looks for profiles that others have taken."""


def store_of(folder: RunFolder) -> Store:
    """Where profiles of a run are kept."""
    return Store(folder.path / "profiles")


def known_of(
    store: Store,
    command: str,
    model: RunModel | None = None,
    saves: Sequence[float] = (),
    folder: RunFolder | None = None,
) -> Known:
    """What is known of a job.

    :param command: takes its stacks
    :param model: of a run
    :param saves: when its logs named checkpoints, unix seconds; the newest last
    :param folder: of a run
    """
    stalled = ""
    if model is not None and model.watch.state in ("quiet", "stalled"):
        still_s = model.watch.for_s(time.time())
        stalled = watch_messages.news(replace(model.watch, still_s=still_s))[0]
    saved_s = time.time() - saves[-1] if saves else None
    slow = {} if model is None else since(model)
    slowest = next(iter(slow), None if folder is None else _slowest(folder))
    launched = (folder.manifest.profile if folder is not None else None) or {}
    ready = bool(launched.get("ready"))
    heads = store.heads()
    torch, nsys = (_earlier(heads, kind) for kind in ("torch", "nsys"))
    earlier = torch and store.load(torch.number)
    return Known(
        stalled, saved_s, slowest, slow, None, earlier, nsys, ready, ready and "ranks" in launched, command
    )


def _slowest(folder: RunFolder) -> int | None:
    """The rank that took longest in the last step that is known here."""
    with suppress(CockpitError, Malformed), PastFile(folder.path / "pace.jsonl") as file:
        lines = [line for part in file.parts(file.last(1), file.size) for line in part]
        if lines:
            return past_of(lines[-1]).slowest
    return None


def ahead_of(folder: RunFolder) -> Ahead:
    """How far a run has still to go, and what it says of its speed; without asking anybody."""
    model = folder.model()
    with closing(SpooledLogs(folder)) as logs:
        found = left(folder, model, logs, Pace(), time.time())
        source = None if model.over else speaker(logs)
        said = told(logs.tail(source, TAIL), source[1]).series("tokens_s") if source else ()
    return Ahead(None if found is None else found.seconds, said[-1][1] if said else None)


def _earlier(heads: Sequence[Collection], kind: str) -> Collection | None:
    """The newest of a kind of which something is here."""
    for one in reversed(heads):
        if one.kind == kind and any(result.state == DONE for result in one.results.values()):
            return one
    return None


def keep_event(folder: RunFolder, one: Collection) -> None:
    """Note a profile in the run's journal, unless another cockpit writes that, which then finds it itself."""
    mine = RunFolder(folder.path)
    with suppress(CockpitError):  # the profile is there without
        try:
            if mine.lock():
                mine.write(Event(time.time(), "", fact_of(one)))
        finally:
            mine.close()


def note_profiles(session: Session) -> None:
    """Note in the journal which profiles others have taken, once this cockpit is the one to write it."""
    session.act(lambda: _note_all(session), "noting profiles")


async def _note_all(session: Session) -> None:
    store, done = store_of(session.folder), set[int]()
    while True:
        for number in await asyncio.to_thread(store.numbers):
            if number in done or not session.model.new_profile(number):
                continue
            with suppress(CockpitError):
                one = await asyncio.to_thread(store.head, number)
                if all(map(is_over, one.results.values())):
                    done.add(number)
                    session.note("", fact_of(one))
        await asyncio.sleep(LOOK_S)
