"""``cockpit attach`` without the app: missed output, then live lines, as text or JSON."""

from __future__ import annotations

import argparse
import time

from cockpit.cli.live import Live
from cockpit.cli.merged import Missed
from cockpit.cli.output import say
from cockpit.cli.plain import Output, watch
from cockpit.core.watch.options import WatchOptions
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.foreign import session_of
from cockpit.engine.run.foreign_jobs import Known
from cockpit.errors import Exit


async def join(
    folder: RunFolder, known: Known | None, args: argparse.Namespace, stalls: WatchOptions
) -> Exit:
    """Watch it until it is over, as the options of ``cockpit attach`` say.

    :param known: what is known of it, if others started it
    :raises CockpitError: its nodes cannot be reached, or somebody else holds its folder
    """
    output = Output(
        args.json, args.headless, give_up_s=args.give_up, stalls=stalls, notify=args.notify, since=time.time()
    )
    live = Live(folder.manifest, json=output.json, fold=output.fold, leaving=output.leaving)
    writer = folder.lock()
    if not writer:
        say(f"{folder.name}: {folder.writer.held()}; this one watches, and prints new lines only")
    missed = Missed(folder, live) if writer else None
    session = session_of(folder, missed or live, writer=writer, known=known)
    try:
        await session.rejoin()
        roll = session.pool.roll
        roll.call(name for name, node in session.model.nodes.items() if not node.done)
        return await watch(session, live, output, roll, missed)
    finally:
        await session.close()
