"""Two runs, or two profiles, side by side as text and as Markdown: differences first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from cockpit.core.compare.comparing import place
from cockpit.core.compare.model import Comparison, Difference, Losses, Measure, Operation, Profiles
from cockpit.core.cutting import cut_middle
from cockpit.core.profile.words import brief
from cockpit.core.report.model import RunReport
from cockpit.core.report.words import code, head, lasted, number, typed, why_lines
from cockpit.core.tables import Table, drawn, markdown_table, padded
from cockpit.core.text import clip, columns, markdown

MD_LINES = 60
"""Lines of Markdown at most."""
OPERATIONS = 12
"""Rows of one table of a profile."""
TREE = 40
"""Lines of what working trees differ by."""
NAME = 24
"""Columns of the name of what differs."""

TREES = "working trees (the diff of both diffs)"

ABSENT = {"version": "none", "driver": "none", "code": "none"}
"""In place of a value that is not there, by kind of difference; else *not set*."""


def shown(kind: str, value: str | None) -> str:
    """The value of a difference: one that is not there, and one that is empty, in words."""
    if value is None:
        return ABSENT.get(kind, "not set")
    return value or ("set" if kind in ("argument", "launch") else "empty")


def difference_line(one: Difference) -> str:
    """``--lr: 0.1 → 0.2``."""
    return f"{one.name}: {shown(one.kind, one.before)} → {shown(one.kind, one.after)}"


def unrecorded_lines(made: Comparison) -> Iterator[str]:
    """What may differ as well."""
    sides = {made.before.run: "before", made.after.run: "after"}
    for one in made.unrecorded:
        runs = "both" if len(one.runs) > 1 else sides[one.runs[0]]
        yield f"not recorded ({runs}): {one.name}"


def measure_row(one: Measure) -> tuple[str, str, str, str, str]:
    """A row of a table: name, both values, their ratio, and whether that is more than steps vary."""
    value = [("" if each is None else number(each, one.unit)) for each in (one.before, one.after)]
    ratio = "" if one.ratio is None else f"×{one.ratio:.2f}"
    sign = (
        "" if one.beyond is None else "beyond normal variation" if one.beyond else "within normal variation"
    )
    return f"  {one.name}", value[0], value[1], ratio, sign


def loss_table(found: Losses) -> Table | None:
    """Some places, and both losses there."""
    if not found.rows:
        return None
    rows = [
        (f"  {place(row.at)}", number(row.before), number(row.after), f"{row.after - row.before:+.3g}")
        for row in found.rows
    ]
    return Table(
        f"loss by {found.by} (medians, each up to the next row)",
        (f"  {found.by}", "before", "after", "change"),
        rows,
        1,
    )


def ended_lines(report: RunReport) -> Iterator[str]:
    """How a run ended, and why."""
    code_text = "" if report.code is None else f", exit code {report.code}"
    yield f"{report.state} after {lasted(report.took_s)}{code_text}"
    yield from list(why_lines(report.why))[:4]


def _numbers(made: Comparison) -> Iterator[Table]:
    """Pace and loss."""
    if made.pace:
        rows = [measure_row(one) for one in made.pace]
        yield Table("pace", ("", "before", "after", "after/before", ""), rows, 1)
    if made.loss is not None and (table := loss_table(made.loss)) is not None:
        yield table


# Profiles


def profile_tables(found: Profiles) -> Iterator[Table]:
    """Where a step goes, sums, operations, collectives: what differs most first."""
    if found.parts:
        rows = [_part_row(part) for part in found.parts]
        yield Table("a step of the median rank", ("", "before", "after", "more", "after/before"), rows, 1)
    ranks = f" of rank {found.ranks[0]} and rank {found.ranks[1]}" if len(found.ranks) == 2 else ""
    named = {
        "sums": f"operations{ranks} by kind, per step",
        "operations": f"operations{ranks} per step, most different first",
        "collectives": "collectives per step, waiting included, most different first",
    }
    if found.unit == "share":
        named = {"operations": "frames, and the part of the time in them or what they call"}
    for name, title in named.items():
        if some := getattr(found, name):
            rows = [_operation(one, found.unit) for one in some[:OPERATIONS]]
            titles = ("", "before", "after", "more", "calls")[: len(rows[0])]
            yield Table(title, titles, rows, 1, len(some) - OPERATIONS)


def _part_row(part: Measure) -> tuple[str, ...]:
    values = ["" if each is None else brief(each) for each in (part.before, part.after)]
    more = "" if part.more is None else _signed(part.more)
    return f"  {part.name}", *values, more, "" if part.ratio is None else f"×{part.ratio:.2f}"


def _operation(one: Operation, unit: str) -> tuple[str, ...]:
    if unit == "share":
        return f"  {one.name}", f"{one.before or 0:.0%}", f"{one.after or 0:.0%}", f"{one.more:+.0%}"
    values = ["" if each is None else brief(each) for each in (one.before, one.after)]
    calls = [None if each is None else f"{each:.4g}" for each in (one.calls_before, one.calls_after)]
    both = None not in calls and calls[0] != calls[1]
    count = f"{calls[0]} → {calls[1]}" if both else calls[1] or calls[0] or ""
    return f"  {one.name}", *values, _signed(one.more), count


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{brief(abs(seconds))}"


# Text


def as_lines(made: Comparison, width: int) -> Iterator[str]:
    """Two runs for a terminal.

    :param width: columns
    """
    yield from (line for text in _heads(made) for line in _wrapped(text, width))
    for text in made.said:
        yield from _wrapped(text, width)
    yield from _part("what differs", difference_lines(made, width - 2))
    yield from _part(TREES, [clip(line, width - 2) for line in tree_lines(made)])
    yield from _tables(_numbers(made), width)
    if made.profiles is not None:
        yield ""
        yield from profile_lines(made.profiles, width)
    for name, side in (("before", made.before), ("after", made.after)):
        ended = [line for text in ended_lines(side) for line in _wrapped(text, width - 2)]
        yield from _part(f"{name}, {side.run}", ended)


def tree_lines(made: Comparison) -> list[str]:
    """In which lines their changes to tracked files differ."""
    more = len(made.tree) - TREE
    tail = [f"... {more:,} more lines: --json has them"] if more > 0 else []
    return [*made.tree[:TREE], *tail]


def _heads(made: Comparison) -> Iterator[str]:
    """Both runs, and how each ended."""
    yield f"before: {head(made.before)}"
    yield f"after:  {head(made.after)}"


def difference_lines(made: Comparison, width: int) -> list[str]:
    """Each difference in a line; one that does not fit in three."""
    lines: list[str] = []
    name = min(NAME, max((columns(one.name) for one in made.differences), default=0))
    for one in made.differences:
        was, now = shown(one.kind, one.before), shown(one.kind, one.after)
        line = f"{padded(cut_middle(one.name, NAME), name)}  {was} → {now}"
        if columns(line) <= width:
            lines.append(line)
        else:
            lines += [
                cut_middle(one.name, width),
                *(clip(f"  {sign} {each}", width) for sign, each in (("-", was), ("+", now))),
            ]
        if one.see:
            lines.append(clip(f"  see: {one.see}", width))
    return [*lines, *unrecorded_lines(made)]


def profile_lines(found: Profiles, width: int) -> Iterator[str]:
    """Two profiles for a terminal."""
    yield from _wrapped(f"before: {found.before}", width)
    yield from _wrapped(f"after:  {found.after}", width)
    yield from (line for text in found.notes for line in _wrapped(text, width))
    yield from _tables(profile_tables(found), width)


def _part(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _tables(tables: Iterable[Table], width: int) -> Iterator[str]:
    for table in tables:
        yield ""
        yield from (clip(line, width) for line in drawn(table, width))


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


# Markdown


def as_markdown(made: Comparison) -> list[str]:
    """Two runs for a ticket: at most :data:`MD_LINES` lines."""
    lines = [
        f"# {markdown(made.before.run)} → {markdown(made.after.run)}",
        "",
        f"`{code(typed(made.after))}`",
        "",
    ]
    lines += [f"- {markdown(text)}" for text in (*_heads(made), *made.said)]
    told = [*map(difference_line, made.differences), *unrecorded_lines(made)]
    room = MD_LINES - len(lines) - 24
    more = len(told) - room
    told = [*told[: room - 1], f"and {more + 1} more"] if more > 0 else told
    lines += ["", "**What differs**", "", *(f"- {markdown(text)}" for text in told)] if told else []
    return _with_tables(lines, _numbers(made))


def profile_markdown(found: Profiles) -> list[str]:
    """Two profiles for a ticket."""
    lines = [
        f"# {markdown(found.before)} → {markdown(found.after)}",
        *(["", *map(markdown, found.notes)] if found.notes else []),
    ]
    return _with_tables(lines, profile_tables(found))


def _with_tables(lines: list[str], tables: Iterable[Table]) -> list[str]:
    for table in tables:
        lines = [*lines, *markdown_table(table, MD_LINES - len(lines) - 7)]
    return lines[:MD_LINES]
