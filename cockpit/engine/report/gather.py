"""Reads the report of a run from its folder here; no node is asked."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice

from cockpit import __version__, config
from cockpit.base import secret
from cockpit.core.explain.report import Line, Report
from cockpit.core.finding import Finding
from cockpit.core.logs.progress.series import Series
from cockpit.core.logs.sources import Output, rank_of
from cockpit.core.logs.tracebacks import read_lines
from cockpit.core.masks import ranks_of
from cockpit.core.nccl.findings import notable
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.phases import NAMES
from cockpit.core.profile import reader
from cockpit.core.profile.words import as_lines as profile_lines
from cockpit.core.profile.words import title as profile_title
from cockpit.core.report.goodput import goodput
from cockpit.core.report.model import Course, Curve, Look, Moment, Profile, RunReport, Tail, Why
from cockpit.core.report.sieve import Sieve
from cockpit.core.run.event_table import our_time
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.run.summary import state_text, summary
from cockpit.core.run.timeline import Timeline
from cockpit.core.stacks.text import as_lines as stack_lines
from cockpit.core.text import one_line
from cockpit.engine.explain.known import explained
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.nccl import table_here
from cockpit.engine.profile.known import store_of
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.wall import Stretches, facts_of, lineage_of
from cockpit.engine.report.what import what_ran
from cockpit.engine.run.board import beginning
from cockpit.engine.run.noticed import noticed
from cockpit.engine.run.paces import PaceBook, estimate
from cockpit.engine.run.series import RunSeries
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.evidence import put_together
from cockpit.engine.stacks.listed import Listed, listed
from cockpit.errors import CockpitError

POINTS = 240
"""Of a curve."""
EVENTS = 400
"""The newest ones."""
LOOKS, PROFILES = 5, 3
"""Snapshots and profiles, the newest ones."""
STACK_LINES = 160
"""Lines of one snapshot."""
WIDTH = 100
"""Columns of the tables of a profile."""
TAILS, TAIL_LINES, TAIL_BYTES, LINE = 4, 25, 64 << 10, 400
"""Logs whose last lines are shown, lines of each, bytes that are read for them, bytes of a line."""

CURVES = {"loss": "", "step_s": "s", "work_s": "s", "tokens_s": "", "samples_s": ""}
"""Columns of a run's numbers that become curves, and their units."""
NAMED = {"step_s": "step time", "work_s": "work of the median rank"}


async def report_of(folder: RunFolder) -> RunReport:
    """The report of a run, as far as it is known here. Does much reading.

    :raises CockpitError: its manifest or its journal cannot be read
    """
    model, book = folder.model(), PaceBook(folder, writer=False)
    with suppress(CockpitError):  # of damage there `cockpit ps` tells; the rest is as true without it
        await book.recall(history=False)
    estimate(folder, model, book.pace)
    told = explained(folder, model, counts=False)
    with closing(RunSeries(folder, model, book)) as series:
        steps = Stretches(relative=series.relative)
        course, curves = _numbers(series, folder.manifest.created, steps)
        pages = tuple((page.name, page.url) for _, page in series.pages)
        speaks = series.source
    moments, left_out = _moments(folder, model)
    facts = facts_of(folder, model, steps.all(), _ended(model), speaks, exact=steps.exact)
    state = state_text(model)
    sieve = Sieve(secret.values(os.environ), one_line)
    made = RunReport(
        folder.name,
        time.time(),
        __version__,
        state,
        int(model.exit_code()) if model.over else None,
        folder.manifest.created,
        _ended(model),
        what_ran(folder, model, sieve),
        tuple(summary(model, folder.name)),
        _why(folder, told),
        course,
        curves,
        moments,
        left_out,
        _looks(folder, model),
        _profiles(folder),
        _findings(folder, model, book.pace),
        _tails(folder, model, told, speaks),
        pages,
        wall=goodput(facts),
        series=lineage_of(folder, model, facts, state),
    )
    # What ran has passed word by word: an option may say that the next word is a secret.
    clean = sieve.all_in(made)
    return replace(clean, taken=sieve.taken)


def _ended(model: RunModel) -> float | None:
    ends = [model.ended_at(rank) for rank in model.ranks.values() if rank.ended_at]
    return max(ends) if ends and model.over else None


def _why(folder: RunFolder, told: Report) -> Why:
    if not told.failed:
        return Why()
    lang, root = config.load().language, f"{folder.path}/"

    def here(line: Line) -> Line:
        # Where this person keeps runs says nothing to others.
        return line._replace(file=line.file.removeprefix(root))

    cause, row = told.cause, told.row
    return Why(
        told.how,
        told.sentence(lang),
        told.ranks,
        told.nodes,
        told.certainty,
        "" if cause is None else cause.what,
        () if cause is None else cause.places,
        () if cause is None else tuple(map(here, cause.lines)),
        "" if row is None else row.id,
        "" if row is None else row.meaning(lang),
        () if row is None else row.steps(lang),
        told.waited,
        told.ended_too,
    )


# How it moved on


class _Gauge:
    """One column of a run's numbers, as they are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._points = Series(POINTS)
        self._first = self._last = 0.0
        self._least, self._most, self._most_at = math.inf, -math.inf, 0.0
        self._odd, self._odd_from = 0, None  # type: int, float | None

    def add(self, step: float, value: float) -> None:
        """Take in the value of a step."""
        if not math.isfinite(value):
            self._odd += 1
            self._odd_from = step if self._odd_from is None else self._odd_from
            return
        self._first = value if math.isinf(self._least) else self._first
        self._last, self._least = value, min(self._least, value)
        if value > self._most:
            self._most, self._most_at = value, step
        self._points.add(step, [value])

    def curve(self) -> Curve | None:
        """What it has become; None: it has had no value."""
        if math.isinf(self._least):
            return None
        numbers = (self._first, self._last, self._least, self._most, self._most_at)
        named = NAMED.get(self.name, self.name.replace("_s", "/s"))
        return Curve(
            named, CURVES[self.name], tuple(self._points.points()), *numbers, self._odd, self._odd_from
        )


def _numbers(series: RunSeries, began: float, made: Stretches) -> tuple[Course, tuple[Curve, ...]]:
    """How far a run came and how fast, and its curves, from all of its rows."""
    gauges = {name: _Gauge(name) for name in CURVES}
    steps, first, last, begun, exact = 0, None, None, None, False
    timed, spans = 0, 0.0
    shares: dict[str, float] = {}
    phased: dict[str, int] = {}
    for place, row in enumerate(series.rows()):
        made.add(row)
        number = row["step"] if row["log_step"] is None else row["log_step"]
        step = place if number is None else number
        for name in NAMES:
            if row["steps"] and (took := row[f"{name}_s"]) is not None:
                shares[name] = shares.get(name, 0.0) + row["steps"] * took
                phased[name] = phased.get(name, 0) + row["steps"]
        for name, gauge in gauges.items():
            if row[name] is not None:
                gauge.add(step, row[name])
        if number is not None:
            first, last = (number if first is None else first), number
        if begun is None and row["t"] is not None:
            begun = max(0.0, row["t"] - began)
        steps += row["steps"]
        exact |= not row["estimated"]
        if row["step_s"] is not None and row["steps"]:
            timed, spans = timed + row["steps"], spans + row["steps"] * row["step_s"]
    course = Course(
        steps,
        first,
        last,
        begun,
        spans / timed if timed else None,
        {name: took / phased[name] for name, took in shares.items()},
        exact,
    )
    return course, tuple(curve for gauge in gauges.values() if (curve := gauge.curve()) is not None)


# What happened


def _moments(folder: RunFolder, model: RunModel) -> tuple[tuple[Moment, ...], int]:
    """The newest events, and how many more there were."""
    past = beginning(folder.manifest, model)
    timeline = Timeline(past)
    events: list[Event] = [event for event in folder.journal() if event.kind != "clock"]
    for entry in folder.manifest.nodes:
        events += folder.recorded(entry)
    for event in sorted(events, key=lambda event: our_time(model, event)):
        past.apply(event)
        timeline.tell(event)
    entries = sorted(timeline.entries, key=lambda entry: entry.at)
    shown = entries[-EVENTS:]
    told = tuple(Moment(each.at, each.text, each.level, each.node, each.rank) for each in shown)
    return told, len(entries) - len(shown)


def snapshots(folder: RunFolder, model: RunModel) -> list[Listed]:
    """All that are here, the oldest first, also those of what nodes kept."""
    if not folder.manifest.closed:
        with suppress(CockpitError, OSError):  # there is no room, say: those that are there are shown
            put_together(folder, model)
    return listed(folder.path / "stacks")


def _looks(folder: RunFolder, model: RunModel) -> tuple[Look, ...]:
    """The newest snapshots, also those that nodes took, each with its verdict."""
    found = []
    for one in snapshots(folder, model)[-LOOKS:]:
        with suppress(CockpitError):
            lines = stack_lines(saved.load(one.path), one.found, threads="main")
            more = len(lines) - STACK_LINES
            tail = (f"… {more:,} more lines: cockpit stacks {folder.name}",) if more > 0 else ()
            shown = (*map(one_line, lines[:STACK_LINES]), *tail)
            found.append(Look(one.path.name, one.head.at, one.head.by_nodes, one.found, shown))
    return tuple(found)


def _profiles(folder: RunFolder) -> tuple[Profile, ...]:
    found, store = [], store_of(folder)
    for number in store.numbers()[-PROFILES:]:
        with suppress(CockpitError):  # one that is damaged hides no other
            one = store.load(number)
            reading = reader.read(one)
            lines = profile_lines(one, reading, WIDTH)
            found.append(Profile(number, one.at, profile_title(one, reading), reading.finding, tuple(lines)))
    return tuple(found)


def _findings(folder: RunFolder, model: RunModel, pace: Pace) -> tuple[Finding, ...]:
    lang = config.load().language
    return (*noticed(folder.name, model, pace), *notable(table_here(folder), lang))


# Last words


def _tails(folder: RunFolder, model: RunModel, told: Report, speaks: Output | None) -> tuple[Tail, ...]:
    """The last lines of the ranks that matter."""
    whys: dict[Output, str] = {}

    def matter(ranks: Iterable[int], why: str) -> None:
        for number in ranks:
            if (rank := model.ranks.get(number)) is not None:
                whys.setdefault((rank.node, number), why)

    matter(told.ranks, "it holds up the others" if told.how == "stalled" else "it failed first")
    matter(ranks_of(model.watch.culprits), "it holds up the others")
    matter([rank.rank for rank in islice(model.failures(), 2)], "it failed")
    if speaks is not None:
        whys.setdefault(speaks, "its log says most about the training")
    matter(sorted(model.ranks)[:1], "the first rank")
    with closing(SpooledLogs(folder)) as logs:
        found = [_tail(logs, source, why) for source, why in list(whys.items())[:TAILS]]
    return tuple(tail for tail in found if tail.size)


def _tail(logs: SpooledLogs, source: Output, why: str) -> Tail:
    node, writer = source
    lines = [line for line in read_lines(logs.tail(source, TAIL_BYTES)) if line.strip()]
    shown = tuple(one_line(line, limit=LINE) for line in lines[-TAIL_LINES:])
    return Tail(rank_of(writer), node, why, shown, logs.size(logs.number(source)))
