"""Launch on all nodes or on none, and find what an interrupted launch has left.

Where nothing outlives what has started it, one process here holds all supervisors of a run. It belongs to
nobody: it goes on when the cockpit ends, and its end is the end of the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import Any

from cockpit.base import events, record, verbs
from cockpit.base.answers import LaunchAnswer
from cockpit.core.ranks import nodes_text
from cockpit.core.run.events import Event
from cockpit.engine.files import open_regular, read_small
from cockpit.engine.links.link import Link, RemoteError
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.engine.records.folder import STEP_LINE, STEP_LOG, RunFolder
from cockpit.engine.records.manifest import NodeEntry, planned
from cockpit.engine.run.join import Errors, ask_all
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.transport.base import HeldCommand, Reach
from cockpit.transport.registry import TRANSPORTS

_LOOK_S = 0.1


class Holding:
    """The process, started.

    :raises CockpitError: it cannot be started
    """

    def __init__(self, folder: RunFolder, command: HeldCommand) -> None:
        self.spec = {"held": True, "term_grace_s": max(1.0, command.kill_wait_s * 0.7 - 0.5)}
        """What each launch spec says of it; a supervisor's own SIGKILL comes before that of the cluster."""
        self._path = folder.path / STEP_LOG
        self._program = command.words[0]
        number = open_regular(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            # Not asyncio's: it would end the process together with the event loop.
            self._process = subprocess.Popen(
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=number,
                stderr=number,
                env=command.env,
                start_new_session=True,
            )
        except OSError as error:
            raise CockpitError(f"cannot start {self._program}: {error.strerror}", where=folder.name) from None
        finally:
            os.close(number)
        folder.note_holder(self._process.pid)

    async def ended(self) -> CockpitError:
        """Wait for its end, and say why."""
        while self._process.poll() is None:  # noqa: ASYNC110 (nothing else says it)
            await asyncio.sleep(_LOOK_S)
        lines = read_small(self._path).splitlines()
        words = b" ".join(line for line in lines if not STEP_LINE.match(line)).decode(errors="replace")
        said = " ".join(words.split())[-600:]
        what = f"{self._program} ended with status {self._process.returncode}: {said or 'no output'}"
        return CockpitError(what, code=Exit.NODE_UNFIT)

    def end(self) -> None:
        """End it, and with it what it holds."""
        if self._process.poll() is None:
            self._process.terminate()

    def leave(self) -> None:
        """Let it go on by itself."""
        # Python would warn of a child that nobody has waited for.
        self._process.returncode = self._process.poll() or 0


async def hold(folder: RunFolder, reach: Reach, dirs: Mapping[str, str]) -> Holding | None:
    """Start it; None: supervisors need none, they outlive the connections that start them.

    :param dirs: the run folder on each node
    :raises CockpitError: it cannot be started
    """
    holding = TRANSPORTS[reach.kind].holding
    if holding is None:
        return None
    scripts = {node: os.path.join(dir, record.STEP_SH) for node, dir in dirs.items()}
    return Holding(folder, await asyncio.to_thread(holding, reach.options, scripts))


LAUNCH_S = 60.0
"""For a node to start its supervisor."""

UNDO_S = 20.0
"""For an interrupted launch to be undone, once every request has been answered or given up."""

_OLDER_S = 60.0
"""A run folder older than its run by more than this belongs to another run."""


async def launch(session: Session, links: Mapping[str, Link], specs: Mapping[str, dict[str, Any]]) -> None:
    """Start the supervisors of all nodes, or leave none behind.

    If interrupted, it undoes what it launched. If a node cannot say whether it launched, the run's folder
    stays, so that :func:`remains` and ``cockpit stop`` can ask later.

    :param links: an open link to each node
    :param specs: the launch spec of each node
    :raises ManyErrors: one line for each node that refused; the others were stopped
    """
    tasks: dict[str, asyncio.Task[LaunchAnswer]] = {}
    holding: Holding | None = None
    try:
        session.record(planned(session.manifest))
        dirs = {name: spec["dir"] for name, spec in specs.items()}
        holding = await hold(session.folder, session.manifest.reach, dirs)
        session.pool.roll.call(links, "started")
        for name, link in links.items():
            spec = {**specs[name], **holding.spec} if holding else specs[name]
            asked = link.call(verbs.Launch(), json.dumps(spec).encode(), deadline_s=LAUNCH_S)
            tasks[name] = asyncio.create_task(session.pool.roll.heard(name, asked))
        await _answered(tasks.values(), holding)
        _, errors = await settle(tasks)
        if not errors:
            for entry in session.manifest.nodes:
                session.record(Event(time.time(), entry.name, events.Launched(entry.dir)))
            if holding:
                holding.leave()
            return
    except BaseException:
        await _undo(session, tasks, "the start was interrupted", holding)
        raise
    left = await _undo(session, tasks, f"launch failed on {nodes_text(errors)}", holding)
    raise ManyErrors(list({**errors, **left}.values()))


async def _answered(tasks: Iterable[asyncio.Task[LaunchAnswer]], holding: Holding | None) -> None:
    """Wait until every node has answered, or cannot launch because what holds the supervisors has ended.

    :raises CockpitError: it has ended
    """
    # Not gather: what interrupts us must not interrupt requests, or nobody knows what was launched.
    answered = asyncio.create_task(asyncio.wait(tasks))
    ended = asyncio.create_task(holding.ended()) if holding else answered
    try:
        done, _ = await asyncio.wait({answered, ended}, return_when=asyncio.FIRST_COMPLETED)
        if holding and answered not in done:
            raise await holding.ended()
    finally:
        answered.cancel()
        ended.cancel()


async def _undo(
    session: Session, tasks: Mapping[str, asyncio.Task[Any]], reason: str, holding: Holding | None
) -> Errors:
    """Undo what was launched; an error for each node that may still be running."""
    if tasks:
        await asyncio.wait(tasks.values(), timeout=UNDO_S)
    taken = {
        entry.name: asyncio.wait_for(_take_back(session, entry, reason), UNDO_S)
        for entry in session.manifest.nodes
        if entry.name in tasks and _may_run(tasks[entry.name])
    }
    _, errors = await settle(taken)
    if holding:
        holding.end()
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    if not errors:
        session.folder.discard()
    run = session.manifest.run
    return {
        name: CockpitError(
            "it may have been launched here, and is not reachable",
            where=name,
            hint=f"when it is reachable again: cockpit stop {run}",
            code=Exit.NODE_UNFIT,
        )
        for name in errors
    }


def _may_run(task: asyncio.Task[Any]) -> bool:
    """Whether a launch may have happened: not if the node has said that it did not."""
    return not task.done() or task.cancelled() or not isinstance(task.exception(), RemoteError)


async def _take_back(session: Session, entry: NodeEntry, reason: str) -> None:
    """Stop what was launched on a node, wait for its end, and remove its run folder."""
    link = await session.pool.lend(entry.name, now=True)
    try:
        status = await link.call(verbs.Status(entry.dir))
        await link.measure_clock()
        record = status.record
        if record is not None and record.t - link.clock.offset_s < session.manifest.created - _OLDER_S:
            return  # it was there before, and the node refused our launch because of it
        await link.call(verbs.Stop(entry.dir, reason, "cockpit", hard=True))
        while (await link.call(verbs.Status(entry.dir))).alive:  # noqa: ASYNC110 (on another machine)
            await asyncio.sleep(0.1)
        await link.call(verbs.Discard(entry.dir))
    except RemoteError as error:
        if error.kind != "gone":
            raise


def unfinished(folder: RunFolder) -> bool:
    """Whether there is no record that this run, started here, was launched anywhere."""
    manifest = folder.manifest
    if not manifest.plans or any(event.kind == "launched" for event in folder.journal()):
        return False
    return not any(True for entry in manifest.nodes for _ in folder.recorded(entry))


async def remains(folder: RunFolder, pool: LinkPool) -> tuple[list[str], Errors]:
    """What an :func:`unfinished` start has left: nodes where it was launched, and those that do not say.

    :raises CockpitError: it is being started right now
    """
    mine = RunFolder(folder.path)
    if not mine.lock():
        what = "another cockpit is starting it right now"
        raise CockpitError(what, where=folder.name, hint="wait for that, or end it with Ctrl-C there")
    try:
        if not any(True for _ in folder.journal()):
            return [], {}  # it ended before any node was asked to launch

        async def ask(link: Link, node: NodeEntry) -> bool:
            try:
                status = await link.call(verbs.Status(node.dir, folder.name, node.name))
            except RemoteError as error:
                if error.kind != "gone":
                    raise
                return False
            if status.record is None:
                # Even without a run folder: what carries the run's tags belongs to it.
                return status.gone is not None and bool(status.gone.ranks or status.gone.processes)
            return status.record.run == folder.name

        answers, errors = await ask_all(pool, folder.manifest, ask)
        launched = [name for name, found in answers.items() if found]
        for entry in folder.manifest.nodes:
            if entry.name in launched:
                mine.write(Event(time.time(), entry.name, events.Launched(entry.dir)))
        return launched, errors
    finally:
        mine.close()


async def check_started(folder: RunFolder, pool: LinkPool) -> None:
    """Check that there is something to watch.

    :raises CockpitError: its start was interrupted, and no node is known to run any of it
    """
    if not unfinished(folder):
        return
    launched, errors = await remains(folder, pool)
    if launched:
        return
    if errors:
        what = (
            f"its start was interrupted, and {nodes_text(errors)} cannot be asked whether it is running there"
        )
        hint = f"to stop what may be running: cockpit stop {folder.name}"
        raise CockpitError(what, where=folder.name, hint=hint, code=Exit.NODE_UNFIT)
    raise CockpitError(
        "never started: its start was interrupted before anything was launched",
        where=folder.name,
        hint=f"nothing is running; to remove it: rm -r {folder.path}",
    )
