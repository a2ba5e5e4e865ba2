"""``cockpit logs RUN``: a run's output, all or some, old and new."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cockpit.base.record import rank_log
from cockpit.cli.awaiting import Telling, started
from cockpit.cli.output import raw, say
from cockpit.cli.parsing import Parser, rank_set
from cockpit.cli.plain import Live, Output
from cockpit.core.logs.lines import LineAssembler
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.files import chunks
from cockpit.engine.logs.history import history
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError, Exit

_CONNECT_S = 15.0
"""How long a node may take to send what is missing here, before what we have is shown without it."""


def main(words: list[str]) -> int:
    """Print logs."""
    parser = Parser(
        "logs",
        "Print a run's output: what is here, what its nodes still have, and with -f new output.",
        "examples:\n"
        "  cockpit logs last --rank 0-3 --tail 20\n"
        "  cockpit logs last -f --node gpu07 --grep 'loss|Error'\n"
        "  cockpit logs last --since 10m\n"
        "  cockpit logs last --rank 0 --raw > rank0.log",
    )
    parser.add_argument("run", metavar="RUN", help="a run's name, a part of it, or: last")
    parser.add_argument("-f", "--follow", action="store_true", help="follow new output until the run ends")
    parser.add_argument("--rank", type=rank_set, metavar="SET", help="only these ranks: 0-3,7")
    parser.add_argument("--node", metavar="NAME", action="append", help="only this node (repeatable)")
    parser.add_argument("--grep", type=_regex, metavar="REGEX", help="only lines that match")
    parser.add_argument("--since", type=_since, metavar="TIME", default=0.0, help="10m, 2h, 14:30, 14:30:05")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each rank")
    parser.add_argument(
        "--raw", action="store_true", help="the bytes of one rank's log, unchanged; not on a terminal"
    )
    parser.add_argument(
        "--no-fold",
        action="store_true",
        help="print each line of each rank, also where many ranks print the same",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args(words)
    folder = RunFolder.find(args.run)
    wanted = _Wanted(args.rank, args.node and set(args.node), args.grep, args.tail)
    wanted.check(folder)
    if args.raw and (args.rank is None or len(args.rank) != 1 or args.follow):
        raise CockpitError("--raw takes exactly one --rank, and no -f", hint="see: cockpit logs --help")
    return asyncio.run(_logs(folder, wanted, args))


@dataclass
class _Wanted:
    ranks: set[int] | None
    nodes: set[str] | None
    grep: re.Pattern[bytes] | None
    tail: int | None
    lines: dict[tuple[str, int | None], _Lines] = field(default_factory=dict)

    def check(self, folder: RunFolder) -> None:
        """Refuse ranks and nodes that the run does not have."""
        manifest = folder.manifest
        if self.ranks is not None and (odd := self.ranks - set(manifest.world)):
            raise CockpitError(
                f"no rank {min(odd)}", where=folder.name, hint=f"it has 0-{max(manifest.world)}"
            )
        names = {node.name for node in manifest.nodes}
        if self.nodes is not None and (odd_nodes := self.nodes - names):
            raise CockpitError(
                f"no node {min(odd_nodes)}", where=folder.name, hint=f"it has {', '.join(names)}"
            )

    def takes(self, node: str, rank: int | None) -> bool:
        """Whether a source is wanted; the launcher's console only if no rank was named."""
        return (self.nodes is None or node in self.nodes) and (self.ranks is None or rank in self.ranks)

    def filter(self, node: str, rank: int | None, offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        """What to show of new bytes, with its offsets: all of them, or the whole lines that match."""
        if self.grep is None:
            yield offset, data
            return
        lines = self.lines.setdefault((node, rank), _Lines(offset))
        yield from ((at, line + b"\n") for at, line in lines.feed(data) if self.grep.search(line))


class _Lines:
    """Lines of one log with their offsets."""

    def __init__(self, offset: int) -> None:
        self._at = offset
        self._assembler = LineAssembler()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        for line, span in zip(self._assembler.feed(data), self._assembler.spans, strict=True):
            yield self._at, line
            self._at += span


class _Show:
    """A listener that shows what is wanted, after the history."""

    def __init__(self, live: Live, wanted: _Wanted) -> None:
        self._live = live
        self._wanted = wanted

    def joined(self, model: RunModel) -> None:
        """Logs only: events are for ``attach``."""

    def log(self, node: str, rank: int | None, offset: int, data: bytes) -> None:
        if self._wanted.takes(node, rank):
            for at, shown in self._wanted.filter(node, rank, offset, data):
                self._live.log(node, rank, at, shown)

    def event(self, event: Event, changed: set[str | int]) -> None:
        """Logs only: events are for ``attach``."""


async def _logs(folder: RunFolder, wanted: _Wanted, args: argparse.Namespace) -> int:
    if not folder.model().done:
        await started(folder)
        try:
            await _catch_up(folder)
        except CockpitError as error:
            say(f"{error}; what is here already:")
    if args.raw:
        _raw(folder, wanted)
        return Exit.OK
    live = Live(folder.manifest, Output(json=args.json, fold=not args.no_fold))
    _print_history(folder, live, wanted, args.since)
    if args.follow and not folder.model().done:
        return await _follow(folder, live, wanted)
    live.close()
    return Exit.OK


async def _catch_up(folder: RunFolder) -> None:
    """Bring the spool up to date with the nodes; report nodes that do not answer."""
    folder = RunFolder(folder.path)
    if not folder.lock():
        return  # another cockpit keeps the spool up to date
    session = Session(folder)
    deadline = time.monotonic() + _CONNECT_S
    teller = Telling(lambda: session.pool.roll, failures=False)
    try:
        await session.rejoin()
        session.watch(policy=False)
        names = set(session.model.nodes)
        while time.monotonic() < deadline:
            await session.wait(0.1)
            names = {
                name
                for name, node in session.model.nodes.items()
                if session.behind.get(name) != 0 and not node.done and node.link != "gone"
                if name not in session.paused
            }
            if not names:
                break
        absent = {
            n for n, node in session.model.nodes.items() if node.link in ("gone", "stale") and not node.done
        }
        for name, node in session.model.nodes.items():
            if name in absent or name in names:
                say(f"{name}: no answer, its output may be incomplete here: {node.link_why}")
        for name, why in session.paused.items():
            say(f"{name}: its output is incomplete here: {why}")
    finally:
        await teller.stop()
        await session.close()


def _raw(folder: RunFolder, wanted: _Wanted) -> None:
    assert wanted.ranks
    rank = min(wanted.ranks)
    node = next(node for node in folder.manifest.nodes if rank in node.ranks)
    for data in chunks(folder.spool_dir(node) / rank_log(rank)):
        raw(data)


def _print_history(folder: RunFolder, live: Live, wanted: _Wanted, since: float) -> None:
    last: dict[tuple[str, int | None], deque[tuple[int, bytes]]] = {}
    splitters: dict[tuple[str, int | None], _Lines] = {}
    for piece in history(folder, lambda error: say(str(error)), since):
        source = (piece.node, piece.rank)
        if not wanted.takes(*source):
            continue
        for at, shown in wanted.filter(*source, piece.offset, piece.data):
            if wanted.tail is None:
                live.log(*source, at, shown)
            else:
                kept = last.setdefault(source, deque(maxlen=wanted.tail))
                # With a filter, each piece is one line; otherwise lines continue from piece to piece.
                whole = wanted.grep is not None
                lines = _Lines(at) if whole else splitters.setdefault(source, _Lines(at))
                kept.extend(lines.feed(shown))
        live.tick()
    for source, kept in last.items():
        for at, line in kept:
            live.log(*source, at, line + b"\n")
    live.tick()


async def _follow(folder: RunFolder, live: Live, wanted: _Wanted) -> int:
    folder = RunFolder(folder.path)
    session = Session(folder, _Show(live, wanted), writer=folder.lock())
    try:
        await session.rejoin()
        session.watch(policy=False)
        while not session.model.done:
            await session.wait(0.1)
            live.tick()
        return Exit.OK
    finally:
        live.close()
        await session.close()


def _regex(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {text!r}: {error}") from None


def _since(text: str) -> float:
    """Unix seconds of ``10m`` (ago), ``14:30`` or ``14:30:05`` (today)."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return time.time() - float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
    if found := re.fullmatch(r"(\d\d?):(\d\d)(?::(\d\d))?", text):
        now = time.localtime()
        clock = (int(found[1]), int(found[2]), int(found[3] or 0))
        return time.mktime((*now[:3], *clock, 0, 0, -1))
    raise argparse.ArgumentTypeError(f"not a time: {text!r} (like 10m, 2h, 14:30, 14:30:05)")
