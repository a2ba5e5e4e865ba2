"""What a collection says, as text, as Markdown, and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from cockpit.base.shell import quote
from cockpit.core.cutting import cut_middle
from cockpit.core.masks import mask_of
from cockpit.core.profile.collection import DONE, Collection
from cockpit.core.profile.gain import Ahead, gain
from cockpit.core.profile.reading import CollectiveRow, FileRow, Parts, Reading, Row, seconds
from cockpit.core.ranks import mask_within, ranks_named, ranks_text
from cockpit.core.tables import Table, drawn, markdown_table, padded
from cockpit.core.text import clip, columns, counted, markdown, one_line, size

PARTS = {
    "own": "own",
    "data": "data",
    "compute": "compute",
    "communication": "comm",
    "wait": "waiting",
    "idle": "idle",
}
"""Columns of ranks: attributes of :class:`~cockpit.core.profile.reading.Parts`, and what they are called."""

LETTERS = (("data", "d"), ("compute", "c"), ("communication", "m"), ("wait", "w"), ("idle", " "))
"""Of a bar, from left to right."""
LEGEND = "d data  c compute  m comm  w waiting"

BAR, BAR_MOST = 14, 40
"""Columns of a bar."""
LEFT = 18
"""Columns that ranks and nodes may take."""

RANKS, OPERATIONS, COLLECTIVES = 70, 12, 12
"""Rows of the tables as text."""
MD = (14, 8, 8)
"""The same in Markdown, which is at most :data:`MD_LINES` long."""
MD_LINES = 60

VIEWER = "https://ui.perfetto.dev"
"""Opens a trace in the browser; nothing is uploaded."""
NSYS = "nsys-ui"
"""Opens a report of nsys."""


def title(collection: Collection, reading: Reading) -> str:
    """``profile 1 of otter: steps 700-704, torch, 56 of 64 ranks``."""
    here, about = reading.asked - len(collection.missing), [collection.kind, *collection.options]
    if collection.seconds is not None:
        about[:0] = [f"{collection.seconds:g} s"]
    elif steps := (*reading.steps, *reading.left_out):
        about[:0] = [f"steps {ranks_text(steps)}"]
    about += [
        f"{here} of {counted(reading.asked, 'rank')}" if here < reading.asked else counted(here, "rank")
    ]
    what = f"profile {collection.number}" if collection.number else "a report"
    return one_line(f"{what} of {collection.run or 'a job'}: {', '.join(about)}")


def bar(parts: Parts, width: int) -> str:
    """Where a step goes, as letters; together they are as wide as that."""
    shares, text, upto = parts.shares, "", 0.0
    for name, letter in LETTERS:
        upto += getattr(shares, name)
        text += letter * (round(upto * width) - len(text))
    return text


# The tables


def _ranks(reading: Reading, most: int) -> Table | None:
    """Rows with numbers; those without are said in lines below it."""
    if reading.parts is None:
        return None
    here, step = [row for row in reading.rows if row.parts is not None], reading.parts.took
    cells = [
        (
            f"{'!' if row.slow else ' '} {mask_within(mask_of(row.ranks), LEFT)}",
            cut_middle(row.node, LEFT),
            *(seconds(getattr(row.parts, name), step) for name in PARTS),
        )
        for row in here[:most]
    ]
    mean = f"mean of {counted(len(reading.steps), 'step')}, slowest first"
    return Table(
        f"ranks, a step of {seconds(step, step)}, {mean}",
        ("  ranks", "node", *PARTS.values()),
        cells,
        2,
        len(here) - most,
    )


def _operations(reading: Reading, most: int) -> Table | None:
    found = reading.operations
    if found is None or not found.rows or reading.parts is None:
        return None
    step, name = reading.parts.took, f"rank {found.rank}"
    cells = [
        (
            f"  {row.name}",
            brief(row.own),
            "" if row.median is None else brief(row.median),
            more_text(row.more, step),
            f"{row.count:.4g}",
        )
        for row in found.rows[:most]
    ]
    others = f"; median of {counted(found.others, 'rank')}" if found.others else ""
    more = len(found.rows) - most + (found.left_out if len(found.rows) > most else 0)
    head = ("  operation", name, "median", "more", "calls")
    return Table(f"operations of {name} per step{others}", head, cells, 1, more)


def more_text(number: float | None, step: float) -> str:
    """``+0.95 s``; empty: nothing to speak of."""
    if number is None or float(seconds(number, step).split()[0]) == 0:
        return ""
    return f"{'-' if number < 0 else '+'}{brief(abs(number))}"


def _collectives(reading: Reading, most: int) -> Iterator[Table]:
    """Those between nodes, and those inside of one, apart."""
    for between, where in ((True, " between nodes"), (False, " within a node"), (None, "")):
        rows = [row for row in reading.collectives if row.between is between]
        cells = [
            (
                f"  {row.name}{group_of(row)}",
                f"{row.seen}/{row.ranks}" if row.ranks > row.seen else str(row.seen),
                _bytes(row.size) if row.size else "",
                f"{row.count:.3g}",
                brief(row.took),
                f"{row.rate / 1e9:.1f}" if row.rate else "",
                brief(row.spread),
                brief(row.wait),
                f"{row.last[0][0]} {row.last[0][1]}/{row.of}" if row.last and row.spread >= 1e-4 else "",
            )
            for row in rows[:most]
        ]
        head = ("  name", "ranks", "size", "calls", "time", "GB/s", "spread", "waiting", "last")
        if rows:
            yield Table(f"collectives{where}, per step", head, cells, 1, len(rows) - most)


def brief(number: float) -> str:
    """``0.97 s``, ``4.1 ms``, ``0.03 ms``: operations and collectives differ more than steps."""
    digits = 1 if number >= 0.00095 or not number else 2
    return f"{number:.2f} s" if number >= 0.095 else f"{1000 * number:.{digits}f} ms"


def group_of(row: CollectiveRow) -> str:
    names = [name for name in row.groups if name]
    return f" {names[0]}" if len(names) == 1 else f" {len(names)} groups" if names else ""


def _bytes(number: int) -> str:
    return f"{number} B" if number < 1000 else size(number)


# Text


def as_lines(
    collection: Collection, reading: Reading, width: int = 100, *, ahead: Ahead | None = None
) -> list[str]:
    """The sentence, ranks, operations, collectives, files and cost, as lines of at most so many columns.

    :param ahead: what the run says of itself; None: nothing is known
    """
    found = reading.finding
    lines = [*_wrapped(title(collection, reading), width), ""]
    lines += _wrapped(f"{found.what} ({found.sureness})", width)
    for text in filter(None, (gain(reading, ahead or Ahead()), found.detail, found.where, *found.evidence)):
        lines += _wrapped(text, width, "  ")
    for place, step in enumerate(found.steps):
        lines += _wrapped(step.text, width, "        " if place else "  next: ")
    if ranks := _ranks(reading, RANKS):
        lines += ["", *_with_bars(ranks, reading.rows, width)]
    lines += [line for text in _without(reading) for line in _wrapped(text, width, "  ")]
    if operations := _operations(reading, OPERATIONS):
        lines += ["", *drawn(operations, width)]
    for table in _collectives(reading, COLLECTIVES):
        lines += ["", *drawn(table, width)]
    if (arrivals := _arrivals(reading)) is not None:
        lines += _wrapped(arrivals, width, "  ")
    last = [line for text in _last(collection, reading) for line in _wrapped(text, width)]
    return [clip(line, width) for line in (*lines, *([""] if last else []), *last)]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    further = " " * (len(indent) + 2)
    return wrap(text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)


def _with_bars(table: Table, rows: Sequence[Row], width: int) -> list[str]:
    title, head, *lines = drawn(table, width)
    taken = max(map(columns, [head, *lines])) + 2
    room = min(BAR_MOST, width - taken)
    if room < BAR:
        return [title, head, *lines]
    parts = [row.parts for row in rows if row.parts is not None]
    bars = [bar(one, room) for one in parts[: len(table.rows)]]
    bars += [""] * (len(lines) - len(bars))
    with_bars = [f"{padded(line, taken)}{one}".rstrip() for line, one in zip(lines, bars, strict=True)]
    return [title, head, *with_bars, f"{LEGEND:>{taken + room}}"]


def _without(reading: Reading) -> Iterator[str]:
    """Ranks without numbers, and why; not those whose stacks are all that was asked for."""
    for row in reading.rows:
        if row.parts is None and (row.why or row.state != DONE):
            said = dict.fromkeys(filter(None, (row.state, row.why)))
            yield f"{ranks_named(row.ranks)} {row.node}".rstrip() + f": {', '.join(said) or 'no answer'}"


def _arrivals(reading: Reading) -> str | None:
    """``arrivals at all_reduce: 63 ranks within 12.0 ms of the first; rank 13 after 0.97 s``."""
    found = reading.arrivals
    if found is None or reading.parts is None:
        return None
    row = reading.collectives[found.row]
    late = sorted(found.after, key=lambda rank: (-found.after[rank], rank))
    late = [rank for rank in late if found.after[rank] >= row.spread / 2][:4]
    rest = [after for rank, after in found.after.items() if rank not in late]
    said = [f"rank {rank} after {brief(found.after[rank])}" for rank in late]
    if len(rest) == 1:
        said[:0] = [f"rank {next(rank for rank in found.after if rank not in late)} first"]
    elif rest:
        said[:0] = [f"{len(rest)} ranks within {brief(max(rest))} of the first"]
    return f"arrivals at {row.name}: {'; '.join(said)}"


def _last(collection: Collection, reading: Reading) -> Iterator[str]:
    """What is said below the tables."""
    yield from reading.notes
    cost, after = reading.cost, ""
    if cost.before is not None and cost.during is not None:
        by = f"{cost.during / cost.before - 1:+.0%}" if cost.before > 0 else ""
        more = f" ({by})" if by.strip("+-0%") else ""
        if cost.after is not None:
            after = f", {seconds(cost.after, cost.before)} after it"
        yield (
            f"cost: a step took {seconds(cost.before, cost.before)} directly before the profile, "
            f"{seconds(cost.during, cost.before)} during it{more}{after}"
        )
    if cost.stop:
        yield f"stopping the profiler paused a rank for {cost.stop:.2f} s at most"
    if reading.files and collection.number:
        whole = sum(one.size for one in reading.files)
        opens = {"torch": f"; each opens at {VIEWER}", "nsys": f"; each opens with {NSYS}"}
        fetch = f" (to fetch: cockpit collect {quote(collection.run)})" if collection.run else ""
        how = opens.get(collection.kind, "")
        yield f"{counted(len(reading.files), 'file')}, {size(whole)}, on the nodes{fetch}{how}"
        yield _pattern(reading.files)


def _pattern(files: Sequence[FileRow]) -> str:
    """What the shell calls all of them."""
    first, *others = files
    whose = f".{first.node}.rank-{first.rank}."
    if not others:
        return first.name
    return first.name.replace(whose, ".*.rank-*.").replace(f".{first.node}.nsys.", ".*.nsys.")


# Markdown


def as_markdown(collection: Collection, reading: Reading) -> list[str]:
    """The same as Markdown, of at most :data:`MD_LINES` lines."""
    found = reading.finding
    lines = [
        f"# {markdown(title(collection, reading))}",
        "",
        f"**{markdown(found.what)}** ({found.sureness})",
        "",
    ]
    texts = [text for text in (found.detail, found.where, *found.evidence) if text][:6]
    lines += [f"- {markdown(text)}" for text in texts]
    lines += [
        f"- next: `{step.command}`{f': {markdown(step.reason)}' if step.reason else ''}"
        for step in found.steps
    ]
    tables = [_ranks(reading, MD[0]), _operations(reading, MD[1]), *_collectives(reading, MD[2])]
    rest = [*_without(reading), *_last(collection, reading)]
    below = [f"- {markdown(text)}" for text in rest]
    for table in filter(None, tables):
        lines += markdown_table(table, MD_LINES - len(lines) - 7 - min(len(below), 8))
    if below:
        lines += ["", *below[: max(0, MD_LINES - 1 - len(lines))]]
    return lines


# For programs


def as_json(collection: Collection, reading: Reading) -> dict[str, Any]:
    """The same for programs: sets of ranks as text, times in seconds."""
    operations = reading.operations
    return {
        "profile": collection.number,
        "id": collection.id,
        "run": collection.run,
        "kind": collection.kind,
        "options": list(collection.options),
        "at": collection.at,
        "seconds": collection.seconds,
        "asked": reading.asked,
        "steps": list(reading.steps),
        "left_out": {str(step): why for step, why in reading.left_out.items()},
        "finding": reading.finding.as_json(),
        "step": reading.parts and _parts_json(reading.parts),
        "kept_up_s": reading.kept_up,
        "waits_known": reading.waits,
        "ranks": {
            str(rank): {"node": one_line(collection.results[rank].node), **_parts_json(parts)}
            for rank, parts in reading.ranks.items()
        },
        "missing": {
            str(rank): {"node": row.node, "state": row.state, "why": row.why}
            for row in reading.rows
            if row.parts is None and row.state != DONE
            for rank in row.ranks
        },
        "kinds": [
            {"ranks": ranks_text(kind.ranks), "typical": kind.typical, **_parts_json(kind.parts)}
            for kind in reading.kinds
        ],
        "operations": operations
        and {
            "rank": operations.rank,
            "others": operations.others,
            "left_out": operations.left_out,
            "rows": [
                {
                    "name": row.name,
                    "kind": row.kind,
                    "own_s": row.own,
                    "median_s": row.median,
                    "calls": row.count,
                    "median_calls": row.median_count,
                }
                for row in operations.rows
            ],
        },
        "collectives": [
            {
                "name": row.name,
                "groups": list(row.groups),
                "ranks": row.ranks,
                "seen": row.seen,
                "bytes": row.size,
                "calls": row.count,
                "took_s": row.took,
                "spread_s": row.spread,
                "wait_s": row.wait,
                "last": {str(rank): times for rank, times in row.last},
                "of": row.of,
                "bytes_s": row.rate,
                "between_nodes": row.between,
            }
            for row in reading.collectives
        ],
        "arrivals": reading.arrivals
        and {
            "collective": reading.arrivals.row,
            "after_s": {str(rank): after for rank, after in reading.arrivals.after.items()},
        },
        "files": [asdict(one) for one in reading.files],
        "cost": {f"{name}_s": value for name, value in asdict(reading.cost).items()},
        "notes": list(reading.notes),
        "offsets_s": dict(reading.offsets),
        "clock_s": reading.clock,
        "apart_s": reading.apart,
    }


def _parts_json(parts: Parts) -> dict[str, float]:
    return {f"{name}_s": getattr(parts, name) for name in ("took", *PARTS)}
