"""``cockpit attach RUN``: watch a run that was left or lost."""

from __future__ import annotations

import asyncio

from cockpit.cli import terminal
from cockpit.cli.live import Live, Output, watch
from cockpit.cli.narration import say
from cockpit.cli.parsing import Parser, seconds
from cockpit.engine.joining import fleet_for
from cockpit.engine.runs import RunFolder
from cockpit.engine.session import Session
from cockpit.errors import Exit


def main(words: list[str]) -> int:
    """Join a run's nodes and go on as ``cockpit run`` does."""
    parser = Parser(
        "attach",
        "Watch a run that was left or lost: missed output comes first, then live lines.",
        "RUN is a run's name, a part of it, or: last. `cockpit ps` lists them.",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "--give-up",
        type=seconds,
        default=600.0,
        metavar="S",
        help="wait so long for lost links when all else has ended (600; the app waits on)",
    )
    terminal.add_options(parser)
    args = parser.parse_args(words)
    folder = RunFolder.find(args.run)
    if terminal.wanted(plain=args.plain, headless=args.headless, json=args.json):
        from cockpit.tui.flight import Joining

        return terminal.fly(Joining(folder), read_only=args.read_only)
    return asyncio.run(_attach(folder, Output(args.json, args.headless, args.give_up)))


async def _attach(folder: RunFolder, output: Output) -> Exit:
    live = Live(folder.manifest, output)
    writer = folder.lock()
    if not writer:
        say(f"another cockpit watches {folder.name}: reading along, new lines only")
    session = Session(folder, fleet_for(folder.manifest), live, writer=writer)
    try:
        session.rejoin()
        return await watch(session, live, output)
    finally:
        await session.close()
