"""What the detail of a node and that of a rank share: what they are made of, and the paper they are on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from cockpit.base.answers import EnvironAnswer
from cockpit.base.events import GpuSample, NodeSample
from cockpit.core.cutting import cut_command
from cockpit.core.finding import Finding
from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.sources import Output
from cockpit.core.logs.trackers import Tracker
from cockpit.core.nccl.table import NOTHING, Table
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.phases import Phases
from cockpit.core.run.model import LIVE, Node, Rank, RunModel
from cockpit.core.run.trends import LIMIT, Trends
from cockpit.core.text import one_line
from cockpit.core.time_text import span_text
from cockpit.engine.records.manifest import NodeEntry
from cockpit.plans.command_words import render_word
from cockpit.tui.look.glyphs import ASCII, UNICODE
from cockpit.tui.look.spark import sparkline
from cockpit.tui.look.units import BINARY, Sizes
from cockpit.tui.pace.phase_strip import numbers, strip
from cockpit.tui.panes.text_pane import Line, Piece, fold, hanging

STALE_S = 5.0
"""Measurements older than this show their age: they arrive once a second."""

LABEL = 11
"""Columns for the names of values."""

NARROWEST, WIDEST = 8, 48
"""Columns of a strip of phases."""

_VALUES = 24
_BLANK = Line()


class Part(Enum):
    """What a pane shows of a detail: a tab beside a pane that shows some of it shows the rest."""

    ALL = auto()
    NOW = auto()
    """What changes: state, measurements, pace, training, link, what went wrong."""
    REST = auto()
    """What stays: process, command, environment, what was found on the node."""


@dataclass(frozen=True)
class About:
    """Everything a detail is made of.

    :param rank: None: the detail is the node's
    :param entry: the node in the run's manifest
    :param plan: what was planned for the node (``plan_json``); empty if unknown
    :param environ: the answer of the verb ``environ`` for the rank; why there is none; None: not here yet
    :param now: unix seconds
    :param pages: pages about the run, and whose log names them
    :param log: where the rank's log is on its node, in words; empty: in the run folder
    :param part: which of it is shown
    :param more: the key that shows what stays, of which this is only the command; empty: this is all of it
    :param sizes: how bytes are written
    :param plain: shades and letters instead of colours
    :param nccl: what ranks say of their NCCL, and what is wrong by that
    """

    node: str
    rank: int | None
    model: RunModel
    trends: Trends
    metrics: Metrics
    entry: NodeEntry
    plan: Mapping[str, Any]
    environ: EnvironAnswer | str | None
    now: float
    log: str = ""
    pace: Pace | None = None
    pages: Sequence[tuple[Output, Tracker]] = ()
    part: Part = Part.ALL
    more: str = ""
    sizes: Sizes = BINARY
    plain: bool = False
    nccl: Table = NOTHING
    nccl_wrong: Sequence[Finding] = ()


class Paper:
    """Lays out lines for a width.

    :param rows: of a command of which only the beginning and the end are shown if it needs more
    """

    def __init__(self, width: int, ascii_only: bool, *, plain: bool = False, rows: int = 1) -> None:
        self.width = width
        self.rows = rows
        self.lacking = 0
        """Rows that the command lacks, once it is laid out."""
        self._letters = ascii_only or plain
        self._ascii = ascii_only
        self.glyphs = ASCII if ascii_only else UNICODE
        self._spark = max(0, min(LIMIT // 2, width - 6 - _VALUES))

    def heading(self, text: str, aside: str = "") -> Iterator[Line]:
        yield _BLANK
        yield from self.flow(Piece(text, "title"), Piece(f"  {aside}" if aside else "", "label"))

    def row(self, label: str, text: str, role: str = "") -> Iterator[Line]:
        """A value after its name; nothing if there is no value."""
        if text:
            yield from hanging((Piece(f"{label:<{LABEL}}", "label"),), text, self.width, role)

    def text(self, text: str, role: str = "") -> Iterator[Line]:
        yield from hanging((), text, self.width, role)

    def flow(self, *pieces: Piece) -> Iterator[Line]:
        """Pieces side by side, on further lines if they do not fit."""
        line: list[Piece] = []
        used = 0
        for piece in pieces:
            if used and used + len(piece.text) > self.width:
                yield Line(tuple(line))
                piece = Piece(piece.text.lstrip(), piece.role)
                line, used = [], 0
            for number, part in enumerate(fold(piece.text, self.width)):
                if number:
                    yield Line(tuple(line))
                    line, used = [], 0
                line.append(Piece(part, piece.role))
                used += len(part)
        yield Line(tuple(line))

    def measure(
        self,
        label: str,
        points: Sequence[float],
        value: str,
        role: str,
        *,
        low: float | None = 0.0,
        high: float | None = None,
    ) -> Iterator[Line]:
        """A sparkline between the name of a measurement and its newest value."""
        if not value:
            return
        pieces = [Piece(f"{label:<6}", "label")]
        if self._spark >= 8:
            pieces += [Piece(sparkline(points, self._spark, low, high, self._ascii), role), Piece("  ")]
        yield Line((*pieces, Piece(value)))

    def phases(self, of: Phases, about: str) -> Iterator[Line]:
        """Where the time of a step goes: a strip, and below it seconds."""
        halves = [half for half in numbers(of, about) if half]
        longest = max(sum(len(piece.text) + 2 for piece in half) - 2 for half in halves)
        indent = LABEL if longest <= self.width - LABEL else len("phases") + 2
        room = min(WIDEST, self.width - indent)
        rows = [strip(of, room, letters=self._letters)] if room >= NARROWEST else []
        rows += [row for half in halves for row in _spaced(half, room)]
        for at, row in enumerate(rows):
            yield Line((Piece(("" if at else "phases").ljust(indent), "label"), *row))


def _spaced(pieces: Sequence[Piece], room: int) -> Iterator[list[Piece]]:
    """Pieces with gaps between them, as many to a row as there is room for."""
    row: list[Piece] = []
    used = 0
    for piece in pieces:
        if row and used + 2 + len(piece.text) > room:
            yield row
            row = []
        row += [Piece("  "), piece] if row else [piece]
        used = sum(len(each.text) for each in row)
    yield row


def measured_ago(node: Node, rank: Rank | None, now: float, paper: Paper) -> Iterator[Line]:
    """How old the measurements are, if that needs saying."""
    if node.sampled_at is None:
        note = node.unmeasured
        if note or node.launched:
            yield from paper.text(safe(note) or "not measured yet", "warning" if note else "label")
        return
    if rank is not None and rank.state not in LIVE:
        if rank.sample:
            yield from paper.text("last measured before it ended", "label")
        return
    age = now - node.sampled_at
    if age > STALE_S:
        yield from paper.text(f"measured {span_text(age)} ago", "label" if node.over else "warning")


def memory_used(of: NodeSample | GpuSample, sizes: Sizes) -> str:
    used, total = of.memory_bytes, of.memory_total_bytes
    if used is None:
        return ""
    return sizes.part(used, total) if total else sizes.text(used)


def page_lines(sight: About, paper: Paper) -> Iterator[Line]:
    """Where else the run can be watched."""
    if not sight.pages:
        return
    yield from paper.heading("Pages", "named in its logs")
    for (node, rank), page in sight.pages:
        whose = f"the launcher on {safe(node)}" if rank is None else f"rank {rank} on {safe(node)}"
        yield from paper.text(f"{page.name}: {page.url}")
        yield from paper.text(f"  in the log of {whose}", "label")


def more_lines(sight: About, what: str, paper: Paper) -> Iterator[Line]:
    """The command, cut where it needs more rows than there are, and where ``what`` is."""
    sign = "~" if paper.glyphs.ascii else "…"
    room = max(8, paper.width - LABEL)
    pieces = fold(safe(_command(sight), 4000), room)
    last = paper.rows - 1
    paper.lacking = max(0, len(pieces) - paper.rows)
    if paper.lacking:
        pieces[last:] = [cut_command("".join(pieces[last:]), room, sign)]
    for at, piece in enumerate(pieces if pieces[0] else ()):
        head = Piece(("" if at else "command").ljust(LABEL), "label" if not at else "")
        yield Line((head, Piece(piece)), LABEL if at else 0, joins=at > 0)
    yield from paper.text(f"{sight.more}: {what}", "label")


def _command(sight: About) -> str:
    argv = sight.plan.get("argv") or ()
    return str(sight.plan.get("text") or "") or " ".join(map(render_word, argv))


def command_lines(sight: About, paper: Paper) -> Iterator[Line]:
    text = _command(sight)
    if not text:
        return
    whose = f"that starts the ranks of {safe(sight.node)}"
    elsewhere = not sight.model.nodes[sight.node].ranks
    yield from paper.heading("Command", "that started the ranks elsewhere" if elsewhere else whose)
    yield from paper.row("in", safe(sight.plan.get("cwd") or "", 1000))
    setup = str(sight.plan.get("setup") or "").strip()
    for number_of, line in enumerate(setup.splitlines()):
        yield from paper.row("" if number_of else "after", safe(line, 1000))
    for line in text.splitlines():
        yield from paper.text(safe(line, 20_000))


def variable_lines(name: object, value: object, paper: Paper) -> Iterator[Line]:
    head = safe(name, 200)
    pieces = fold(f"{head}={safe(value, 8000)}", max(8, paper.width - 2))
    known = len(head)
    for at, piece in enumerate(pieces):
        cut = min(len(piece), known)
        known -= cut
        indent = 2 if at else 0
        yield Line(
            (Piece(" " * indent), Piece(piece[:cut], "spark"), Piece(piece[cut:])), indent, joins=at > 0
        )


def safe(value: object, limit: int = 300) -> str:
    """A value that a node sent, as one line of harmless text; None is ``?``."""
    return one_line("?" if value is None else str(value), limit=limit)


def number(value: object) -> float | None:
    """A value that a node sent, if it is a number one can calculate with."""
    if isinstance(value, (int, float)) and abs(value) < 1e30 and not math.isnan(value):
        return float(value)
    return None


def mapping(value: object) -> Mapping[str, Any]:
    """A value that a node sent, if it has fields; else none."""
    return value if isinstance(value, Mapping) else {}
