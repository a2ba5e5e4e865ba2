"""``cockpit metrics RUN``: all numbers of a run, step by step."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice, pairwise
from statistics import fmean
from typing import Any

from cockpit.cli.awaiting import catch_up, may_ask, started, telling
from cockpit.cli.output import StatusLine, out, out_lines, say, shows_unicode, table
from cockpit.cli.parsing import Parser, add_flag
from cockpit.cli.slurm_options import add_run, run_folder
from cockpit.core.logs.progress.series import Series
from cockpit.core.pace.phases import NAMES
from cockpit.core.pace.series import COLUMNS, Row
from cockpit.core.run.model import RunModel
from cockpit.core.run.summary import state_text
from cockpit.core.time_text import span_text
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.logs.step_log import tracker_json
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.current_state import model_now
from cockpit.engine.run.foreign import session_of
from cockpit.engine.run.join import pool_for
from cockpit.engine.run.paces import PaceBook
from cockpit.engine.run.series import RunSeries
from cockpit.engine.stacks.targets import RunParty
from cockpit.engine.work_sampler import glance_at_work, unworked
from cockpit.errors import CockpitError, Exit
from cockpit.tui.look.spark import sparkline
from cockpit.tui.look.units import number_text

NOTHING = "no steps known: no rank has finished one, or neither the probe nor the log reports them"
"""What is said of a run without numbers."""

SHOWN = {
    "step_s": ("step time", span_text),
    "work_s": ("work", span_text),
    "slowest_s": ("slowest rank", span_text),
    **{f"{name}_s": (name, span_text) for name in NAMES if name != "other"},
    "loss": ("loss", number_text),
    "lr": ("lr", number_text),
    "samples_s": ("samples/s", number_text),
    "tokens_s": ("tokens/s", number_text),
}
"""The series of the short table, how they are called there, and how their values are written."""

_KINDS = {"step": 1, "enqueue": 2, "work": 2}
"""What ranks are compared by, and how much that says."""

SPARK = 40
"""Columns of a series' curve."""

_PART = 512
"""Rows that are written at once."""


def main(words: list[str]) -> int:
    """Print the numbers of a run."""
    args = parser().parse_args(words)
    folder = run_folder(args.run, args.slurm)
    model, book = asyncio.run(_now(folder, connect=not args.no_connect))
    with closing(RunSeries(folder, model, book)) as series:
        rows = _read(series)
        if args.csv:
            some = _csv(rows)
        elif args.json:
            some = _json(rows, folder, model, series)
        else:
            some = _people(rows, folder, model, series)
        for trouble in series.troubles:
            say(trouble)
    if not some and (args.csv or args.json):
        say(f"{folder.name}: {NOTHING}")
    return Exit.OK


def parser() -> Parser:
    made = Parser(
        "metrics",
        "Print a run's metrics, one row per step, while it runs or afterwards: when the step ended, how\n"
        "many ranks finished it, step time, work of the median and of the slowest rank, slow ranks, and\n"
        "from the log loss, learning rate, samples and tokens per second. Without an option: a short table.",
        "examples:\n"
        "  cockpit metrics last\n"
        "  cockpit metrics last --csv > run.csv\n"
        "  python -c 'import pandas; print(pandas.read_csv(\"run.csv\").describe())'\n"
        "  cockpit metrics last --json | jq '.steps[-1]'\n\n"
        "columns:\n" + "\n".join(f"  {name:<13} {text}" for name, text in COLUMNS.items()),
    )
    add_run(made)
    form = made.add_mutually_exclusive_group()
    add_flag(form, "--csv", "CSV: a header, then one line per step")
    add_flag(form, "--json", "one JSON object; its steps are a list")
    add_flag(made, "--no-connect", "use only local data; don't contact nodes")
    return made


async def _now(folder: RunFolder, *, connect: bool) -> tuple[RunModel, PaceBook]:
    """The run and its pace; of a live one its nodes are asked, and its logs fetched."""
    book = PaceBook(folder, writer=False)
    model = folder.model()
    if model.done or not connect or not may_ask(folder):
        return model, book
    try:
        await started(folder)
        return await _asked(RunFolder(folder.path), book), book
    except CockpitError as error:
        say(f"{error}; what was already fetched:")
        return model, book


async def _asked(folder: RunFolder, book: PaceBook) -> RunModel:
    if not folder.lock():  # the cockpit that watches it fetches its logs
        async with pool_for(folder.manifest) as pool, telling(lambda: pool.roll):
            return await _model(folder, pool, book)
    session = session_of(folder, writer=True)
    try:
        await session.rejoin()
        session.watch(policy=False)
        await catch_up(session)
        return await _model(folder, session.pool, book)
    finally:
        await session.close()


async def _model(folder: RunFolder, pool: LinkPool, book: PaceBook) -> RunModel:
    model, _ = await model_now(pool, folder.manifest, measure=True, paces=book)
    if folder.manifest.foreign is None and unworked(model, book.pace):
        await glance_at_work(RunParty(folder.manifest, model, pool.lend), book.pace)
    return model


def _read(series: RunSeries) -> Iterator[Row]:
    """The rows; how far it is, is said on the terminal."""
    line = StatusLine()
    from_s = time.monotonic()

    def progress(share: float) -> None:
        if time.monotonic() - from_s > 1.0:
            line.show(f"reading the log: {share:.0%}")

    try:
        yield from series.rows(progress)
    finally:
        line.clear()


# For programs


def _csv(rows: Iterator[Row]) -> bool:
    """Whether there was any row."""
    out(",".join(COLUMNS))
    return _written(rows, lambda row: _line(map(_cell, row.values())))


def _line(cells: Iterable[str]) -> str:
    made = io.StringIO()
    csv.writer(made, lineterminator="").writerow(cells)
    return made.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{one.rank}:{one.excess:.3f}" for one in value)
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def _json(rows: Iterator[Row], folder: RunFolder, model: RunModel, series: RunSeries) -> bool:
    """Row by row, so that a long run fits in memory; whether there was any row."""
    head = {
        "run": folder.name,
        "state": state_text(model),
        "ranks": len(model.ranks),
        "log": series.source and dict(zip(("node", "rank"), series.source, strict=True)),
        "pages": [tracker_json(source, page) for source, page in series.pages],
    }
    out(json.dumps(head)[:-1] + ', "steps": [')
    first = next(rows, None)
    if first is not None:
        out(_object(first))
        _written(rows, lambda row: f",{_object(row)}")
    out("]}")
    return first is not None


def _object(row: Row) -> str:
    slow = [{"rank": one.rank, "excess": one.excess} for one in row["slow"]]
    # JSON has no NaN: such a loss is written as a string.
    values = {name: _finite(value) for name, value in row.items()}
    return json.dumps({**values, "slow": slow})


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _written(rows: Iterator[Row], form: Callable[[Row], str]) -> bool:
    some = False
    while part := list(islice(rows, _PART)):
        out_lines(map(form, part))
        some = True
    return some


# For people


def _people(rows: Iterator[Row], folder: RunFolder, model: RunModel, series: RunSeries) -> bool:
    ranks = len(model.ranks)
    seen = _RowSummary(ranks)
    for row in rows:
        seen.add(row)
    out(f"{folder.name}: {state_text(model)}, {ranks} rank{'s' if ranks > 1 else ''}{seen.last(model.over)}")
    if series.pages:
        out()
        out("found in its logs:")
    for source, page in series.pages:
        whose = f"the launcher on {source[0]}" if source[1] is None else f"rank {source[1]} on {source[0]}"
        out(f"  {page.name}: {page.url} ({whose})")
    out()
    if not seen.rows:
        out(NOTHING)
        return False
    found = list(seen.table())
    if found:
        table([("SERIES", "LAST", "MIN", "MAX", f"{seen.rows:,} rows"), *found])
    for some, what in (
        (seen.slow, "at least 15 % slower"),
        (seen.late, "on NCCL, CPUs that enqueue at least 15 % later"),
    ):
        worst = some.ranks.most_common(5)
        if worst:
            out()
            out(f"{what} than the median rank:")
            table([(f"  rank {rank}", f"in {count:,} of {some.compared:,} steps") for rank, count in worst])
    return True


class _Apart:
    """In how many steps ranks were compared, and in how many each was apart from the others."""

    def __init__(self) -> None:
        self.compared = 0
        self.ranks: Counter[int] = Counter()


class _RowSummary:
    """What is kept of the rows for a short table, however many there are.

    :param ranks: of the run
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self.rows = 0
        self.slow, self.late = _Apart(), _Apart()
        self._last: Row = {}
        self._points = {name: Series(2 * SPARK) for name in SHOWN}
        self._bounds: dict[str, tuple[float, float, float]] = {}
        self._estimated = True
        self._slowest = ""
        self._kind = 0

    def add(self, row: Row) -> None:
        """Take in a row."""
        self.rows += 1
        if row["step"] is not None:
            self._last = row
        self._estimated &= row["estimated"]
        kind = _KINDS.get(row["compared"], 0)
        if kind > self._kind:
            self._begin_to_compare(kind)
        if row["ranks"] != self._ranks or kind < self._kind:
            row = {
                **row,
                "slowest_s": None,
            }  # the slowest has not finished it, or it is not the slowest's work
        elif row["slowest_rank"] is not None:
            self._slowest = f"rank {row['slowest_rank']}"
            some = self.late if row["compared"] == "enqueue" else self.slow
            some.compared += row["steps"]
            for one in row["slow"]:
                some.ranks[one.rank] += row["steps"]
        for name, points in self._points.items():
            value = row[name]
            if value is None:
                continue
            points.add(0.0, [value])
            # A comparison with NaN is false: it is neither least nor greatest.
            least, most, _ = self._bounds.get(name, (math.inf, -math.inf, value))
            self._bounds[name] = (min(least, value), max(most, value), value)

    def _begin_to_compare(self, kind: int) -> None:
        """What was compared so far says less: whole steps, which differ by chance."""
        self._kind = kind
        self.slow, self.late = _Apart(), _Apart()
        self._points["slowest_s"] = Series(2 * SPARK)
        self._bounds.pop("slowest_s", None)

    def last(self, over: bool) -> str:
        """The last step of all, in words."""
        if not self._last:
            return ""
        about = "~" if self._last["estimated"] else ""
        at = self._last["t"]
        age = "" if at is None or over else f", {about}{span_text(max(0.0, time.time() - at))} ago"
        return f", step {self._last['step']:,}{age}"

    def table(self) -> Iterator[tuple[str, ...]]:
        """A line for each series that has values."""
        for name, (called, text) in SHOWN.items():
            if name not in self._bounds:
                continue
            least, most, last = self._bounds[name]
            about = "~" if name == "step_s" and self._estimated else ""
            values = _resampled([value for _, value in self._points[name].points()], SPARK)
            drawn = sparkline(values, len(values), ascii_only=not shows_unicode())
            aside = f"  {self._slowest}" if name == "slowest_s" else ""
            yield called, about + text(last), about + text(least), about + text(most), drawn + aside


def _resampled(values: Sequence[float], count: int) -> list[float]:
    """At most so many values, over all of them: means of neighbours; what is no number is left out."""
    known = [value for value in values if math.isfinite(value)]
    if len(known) <= count:
        return known
    edges = [len(known) * place // count for place in range(count + 1)]
    return [fmean(known[begin:end]) for begin, end in pairwise(edges)]
