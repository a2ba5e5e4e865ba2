"""``cockpit logs RUN``: a run's output, all or some, old and new."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Set

from cockpit.base.events import Gap
from cockpit.cli.awaiting import catch_up, may_ask, started
from cockpit.cli.live import TICK_S, Live
from cockpit.cli.merged import Show
from cockpit.cli.output import raw, say
from cockpit.cli.parsing import Parser, add_flag, add_word, rank_set, whole
from cockpit.cli.slurm_options import add_run, run_folder
from cockpit.core.logs.batches import PATIENCE_S
from cockpit.core.logs.query import Query
from cockpit.core.logs.sources import Nccl, Writer, file_of
from cockpit.core.ranks import read_nodes
from cockpit.core.run.events import Event
from cockpit.engine.files import chunks
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.spooled import sources_of
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.foreign import session_of
from cockpit.engine.run.session import Listener, Session
from cockpit.errors import CockpitError, Exit

_STEP = 256 << 10
"""Bytes of a log to print at once."""


def main(words: list[str]) -> int:
    """Print logs."""
    args = parser().parse_args(words)
    query = query_of(args)
    folder = run_folder(args.run, args.slurm)
    query.check(sources_of(folder.manifest), folder.name)
    others = args.follow, args.json, args.grep, args.time, args.since, args.tail
    if args.raw and (len(query.ranks) != 1 or any(others)):
        what = "--raw takes exactly one --rank, and nothing that selects or formats lines"
        raise CockpitError(what, hint="see: cockpit logs --help")
    return asyncio.run(_logs(folder, query, args))


def parser() -> Parser:
    """The parser of the verb."""
    made = Parser(
        "logs",
        "Print a run's output, merged by time: fetched lines, what its nodes still have, with -f new lines.",
        "examples:\n"
        "  cockpit logs last --rank 0-3 --tail 20\n"
        "  cockpit logs last -f --node 'gpu[01-04]' --grep 'loss|error'\n"
        "  cockpit logs last --since 10m --time --grep '!debug'\n"
        "  cockpit logs last --rank 0 --raw > rank0.log",
    )
    add_run(made)
    add_flag(made, "-f --follow", "follow new output until the run ends")
    made.add_argument(
        "--rank",
        type=rank_set,
        metavar="SET",
        action="extend",
        default=[],
        help="only these ranks: 0-3,7 (repeatable)",
    )
    made.add_argument(
        "--node",
        type=read_nodes,
        metavar="SET",
        action="extend",
        default=[],
        help="only these nodes: 'gpu[01-04],gpu07' (repeatable)",
    )
    add_word(
        made,
        "--grep",
        "REGEX",
        "only matching lines; !REGEX: only others; an all-lowercase REGEX ignores case",
    )
    add_flag(
        made, "--nccl", "only what NCCL says, all of it; otherwise only its warnings (see run --nccl-debug)"
    )
    add_flag(made, "--time", "print the time of each line")
    made.add_argument("--since", type=_since, metavar="TIME", default=0.0, help="10m, 2h, 14:30, 14:30:05")
    made.add_argument(
        "--tail", type=whole("a number of lines"), metavar="N", help="only the last N lines of each rank"
    )
    add_flag(made, "--raw", "print one rank's log byte for byte; not to a terminal")
    add_flag(made, "--no-fold", "print every rank's lines separately, even identical ones")
    add_flag(made, "--json", "one JSON object per line")
    return made


def query_of(args: argparse.Namespace) -> Query:
    """What the words ask for."""
    return Query(frozenset(args.rank), frozenset(args.node), args.grep, args.time, nccl=args.nccl)


class _Feed(Listener):
    """Feeds a book, once there is one, with logs and gaps in them: other events are for ``attach``."""

    book: Logbook | None = None
    lacking: Set[str] = frozenset()
    """Nodes whose output is not known to be all here."""

    def read_along(self) -> None:
        """Another cockpit writes the spool from now on."""
        if self.book is not None:
            self.book.reads_along = True

    def event(self, event: Event, changed: set[str | int]) -> None:
        """An event was applied."""
        if self.book is not None and isinstance(event.fact, Gap):
            self.book.gap(event.node, event.fact)

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        """New bytes of a log: they are in the spool too, unless another cockpit writes it."""
        if self.book is not None:
            self.book.feed(node, writer, offset, data)


async def _logs(folder: RunFolder, query: Query, args: argparse.Namespace) -> int:
    session = trouble = None
    complete = True
    feed = _Feed()
    if not folder.model().done and may_ask(folder):
        await started(folder)
        folder = RunFolder(folder.path)
        try:
            session = await _joined(folder, feed, args)
        except CockpitError as error:
            trouble = error
            say(f"{error}; what was already fetched:")
        if session is not None and not args.follow:
            await session.close()
            session = None
    try:
        if args.raw:
            complete = _raw(folder, query, feed)
        else:
            await _show(folder, query, args, feed, session)
    finally:
        if session is not None:
            await session.close()
    if trouble and (args.follow or args.raw):
        return trouble.code
    return Exit.OK if complete else Exit.NODE_UNFIT


async def _show(
    folder: RunFolder, query: Query, args: argparse.Namespace, feed: _Feed, session: Session | None
) -> None:
    """Print what is here; with a session also what comes, until the run has ended."""
    book = feed.book = feed.book or Logbook(folder)
    live = Live(folder.manifest, json=args.json, fold=not args.no_fold, nccl=args.nccl)
    show = Show(book, query, live)
    try:
        await book.load()
        show.begin(args.since, args.tail)
        await show.batches()
        while session is not None and not session.model.done:
            if query.matcher is None:
                await show.unfinished(args.since)
            live.tick()
            await session.wait(TICK_S)
            book.flush(time.time(), wait_s=PATIENCE_S)
            await show.batches()
        book.flush(time.time())
        await show.batches()
        await show.unfinished(args.since)
    finally:
        live.close()
        book.close()


async def _joined(folder: RunFolder, feed: _Feed, args: argparse.Namespace) -> Session | None:
    """A session that has brought the spool up to date with the nodes; nodes that do not answer are said.

    Where another cockpit may keep it up to date, there is none unless new lines, or every byte, are wanted.
    """
    writer = folder.lock()
    if not writer:
        if not (args.follow or args.raw or folder.writer.suspended() or folder.writer.barred):
            return None
        feed.book = Logbook(folder)
        feed.book.reads_along = True
    session = session_of(folder, feed, writer=writer)
    try:
        await session.rejoin()
        session.watch(policy=False)
        if writer or not args.follow:
            feed.lacking = await catch_up(session)
        if writer and args.follow:
            session.give_way(feed.read_along)
    except BaseException:
        await session.close()
        raise
    return session


def _raw(folder: RunFolder, query: Query, feed: _Feed) -> bool:
    """Print what is spooled of a rank's log, and what else has arrived of it; whether that was all."""
    (rank,) = query.ranks
    node = next(node for node in folder.manifest.nodes if rank in node.ranks)
    writer = Nccl(rank) if query.nccl else rank
    size = 0
    for data in chunks(folder.spool_dir(node) / file_of(writer)):
        raw(data)
        size += len(data)
    if feed.book is None:
        return node.name not in feed.lacking
    logs, number = feed.book.logs, feed.book.logs.number((node.name, writer))
    while data := logs.read(number, size, _STEP):
        raw(data)
        size += len(data)
    return node.name not in feed.lacking and size == logs.size(number)


def _since(text: str) -> float:
    """Unix seconds of ``10m`` (ago), ``14:30`` or ``14:30:05``: the last time it was so."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return time.time() - float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
    if found := re.fullmatch(r"(\d\d?):(\d\d)(?::(\d\d))?", text):
        year, month, day, *_ = time.localtime()
        clock = (int(found[1]), int(found[2]), int(found[3] or 0))
        today, yesterday = (time.mktime((year, month, each, *clock, 0, 0, -1)) for each in (day, day - 1))
        return today if today <= time.time() else yesterday
    raise argparse.ArgumentTypeError(f"not a time: {text!r} (like 10m, 2h, 14:30, 14:30:05)")
