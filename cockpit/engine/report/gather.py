"""Reads the report of a run from its folder here; no node is asked."""

from __future__ import annotations

import os
import time
from contextlib import closing, suppress
from dataclasses import replace
from itertools import product

from cockpit import __version__, config
from cockpit.base import secret
from cockpit.base.record import INDEX
from cockpit.core.explain.report import Line, Report
from cockpit.core.finding import Finding
from cockpit.core.logs.sources import Output
from cockpit.core.nccl.findings import notable
from cockpit.core.pace.pace import Pace
from cockpit.core.profile import reader
from cockpit.core.profile.words import as_lines as profile_lines
from cockpit.core.profile.words import title as profile_title
from cockpit.core.report.goodput import goodput
from cockpit.core.report.model import Look, Moment, Profile, RunReport, Why
from cockpit.core.report.sieve import Sieve
from cockpit.core.run.model import RunModel
from cockpit.core.run.summary import LIVE_WORDS, ended_when, state_text, summary
from cockpit.core.run.timeline import Timeline
from cockpit.core.stacks.text import as_lines as stack_lines
from cockpit.core.text import one_line
from cockpit.engine.alike import last_good
from cockpit.engine.briefs import last_written
from cockpit.engine.explain.known import explained
from cockpit.engine.nccl import table_here
from cockpit.engine.profile.known import store_of
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.history import history
from cockpit.engine.report.numbers import CURVES, POINTS, Columns, numbers
from cockpit.engine.report.run_facts import what_ran
from cockpit.engine.report.tails import tails
from cockpit.engine.report.wall import Stretches, facts_of, lineage_of
from cockpit.engine.run.front import estimate
from cockpit.engine.run.noticed import noticed
from cockpit.engine.run.paces import PaceBook
from cockpit.engine.run.series import RunSeries
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.evidence import put_together
from cockpit.engine.stacks.listed import Listed, listed
from cockpit.errors import CockpitError

EVENTS = 400
"""The newest ones."""
LOOKS, PROFILES = 5, 3
"""Snapshots and profiles, the newest ones."""
STACK_LINES = 160
"""Lines of one snapshot."""
WIDTH = 100
"""Columns of the tables of a profile."""


async def report_of(
    folder: RunFolder, *, short: bool = False, columns: Columns = CURVES, points: int = POINTS
) -> RunReport:
    """The report of a run, as far as it is known here. Does much reading.

    :param short: without events, stacks, profiles, findings, last lines, wall time and other runs
    :param columns: those that become curves, each of so many ``points`` at most
    :raises CockpitError: its manifest or its journal cannot be read
    """
    model, book = folder.model(), PaceBook(folder, writer=False)
    with suppress(CockpitError):  # of damage there `cockpit ps` tells; the rest is as true without it
        await book.recall(history=False)
    estimate(folder, model, book.pace)
    told = explained(folder, model, counts=False)
    with closing(RunSeries(folder, model, book)) as series:
        steps = Stretches(relative=series.relative)
        course, curves = numbers(series, folder.manifest.created, columns, points, steps.add)
        if course.mean_s is None:
            course = course._replace(mean_s=steps.mean_s)
        pages = tuple((page.name, page.url) for _, page in series.pages)
        speaks = series.source
    state, seen = state_text(model), None if model.over else _seen(folder)
    sieve = Sieve(secret.values(os.environ), one_line)
    made = RunReport(
        folder.name,
        time.time(),
        __version__,
        f"{state} when last seen" if seen is not None and state in LIVE_WORDS else state,
        int(model.exit_code()) if model.over else None,
        folder.manifest.created,
        ended_when(model),
        what_ran(folder, model, sieve),
        tuple(summary(model, folder.name)),
        _why(folder, told),
        course,
        curves,
        pages=pages,
        seen=seen,
    )
    if not short:
        made = await _with_the_rest(made, folder, model, book.pace, told, speaks)
        until = made.ended or made.seen
        facts = facts_of(folder, model, steps.all(), until, speaks, exact=steps.exact)
        made = replace(made, wall=goodput(facts), series=lineage_of(folder, facts, state))
    # What ran has passed word by word: an option may say that the next word is a secret.
    clean = sieve.all_in(made)
    return replace(clean, taken=sieve.taken)


async def _with_the_rest(
    made: RunReport, folder: RunFolder, model: RunModel, pace: Pace, told: Report, speaks: Output | None
) -> RunReport:
    """All that a short one leaves out."""
    moments, left_out = await _moments(folder)
    good = last_good(folder) if told.failed else None
    return replace(
        made,
        events=moments,
        left_out=left_out,
        looks=_looks(folder, model),
        profiles=_profiles(folder),
        findings=_findings(folder, model, pace),
        tails=tails(folder, model, told, speaks),
        last_good="" if good is None else good.name,
    )


def _seen(folder: RunFolder) -> float | None:
    """Until when a run was watched; None: it is, or that is not known."""
    with suppress(CockpitError):
        if folder.bundled or not folder.writer.vacant():
            return None
    seen = last_written(folder)
    for node, name in product(folder.manifest.nodes, INDEX):
        with suppress(OSError):
            seen = max(seen, (folder.spool_dir(node) / name).stat().st_mtime)
    return seen or None


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


# What happened


async def _moments(folder: RunFolder) -> tuple[tuple[Moment, ...], int]:
    """The newest events, and how many more there were."""
    past, events = await history(folder)
    timeline = Timeline(past)
    for _, event in events:
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
            found.append(Look(one.path.name, one.head.until, one.head.by_nodes, one.found, shown))
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
