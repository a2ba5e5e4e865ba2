"""The spread of collectives: size against duration, of all ranks and nodes, and what sticks out.

As text, as a table of comma-separated values, as SVG; both axes are logarithmic.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from operator import attrgetter
from statistics import median
from textwrap import wrap
from typing import Any, NamedTuple

from cockpit.core.profile.collection import DONE, Collection
from cockpit.core.profile.joined import Call, Joined, join
from cockpit.core.ranks import ranks_named
from cockpit.core.text import clip, one_line

OUT = 3.0
"""How many times the usual a collective takes that sticks out."""
OUT_NS = 50_000
"""Nanoseconds that it takes longer at least."""
SOME = 8
"""Collectives of one kind from which on there is something usual."""
NAMED = 10
"""Those that are named, the worst first."""
COLUMNS = (
    "step", "collective", "group", "group_ranks", "bytes", "rank", "node", "began_unix_s", "duration_s",
    "wait_s", "outlier",
)  # fmt: skip
_NS = 1e9
_LETTERS = {
    "all_reduce": "r", "all_gather": "g", "reduce_scatter": "s", "all_to_all": "t", "broadcast": "b",
    "reduce": "d", "gather": "h", "scatter": "c", "barrier": "w", "send": "p", "recv": "q", "send_recv": "p",
}  # fmt: skip
_ELSE = "x"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""That people tell apart who see no red or green (Okabe and Ito)."""
_WIDE, _HIGH, _LEFT, _TOP = 900, 540, 80, 40


class Point(NamedTuple):
    """One rank in one collective.

    :param took: nanoseconds
    """

    name: str
    size: int
    rank: int
    node: str
    took: int
    call: Call
    whole: Joined
    out: bool


class Outlier(NamedTuple):
    """A collective that took much longer than others of its kind and size.

    :param point: of the rank that was in it longest
    :param usual: how long the longest rank is in one of these, nanoseconds, the median
    :param last: who came last, with its node, and how long after the first; None: only one rank is known
    """

    point: Point
    usual: float
    last: tuple[int, str, float] | None

    @property
    def text(self) -> str:
        """``all_reduce 64 MiB in step 5: 412 ms on rank 3 (gpu02), usually 12 ms; rank 7 (gpu04) came …``."""
        one = self.point
        said = (
            f"{one.name} {_bytes(one.size)} in step {one.whole.step:,}: {_time(one.took)} on rank {one.rank} "
            f"({one.node}), usually {_time(self.usual)}"
        )
        if self.last is None:
            return said
        rank, node, after = self.last
        return f"{said}; rank {rank} ({node}) came last, {_time(after)} after the first"


class Spread(NamedTuple):
    """All collectives of a profile.

    :param unsized: how many calls have no size, and are in the table alone
    :param out: the worst first
    """

    points: Sequence[Point]
    unsized: int
    out: Sequence[Outlier]
    ranks: Sequence[int]


def spread(collection: Collection) -> Spread:
    """That of a collection."""
    here = {
        rank: one.summary
        for rank, one in sorted(collection.results.items())
        if one.state == DONE and one.summary is not None
    }
    nodes = {rank: one_line(collection.results[rank].node) for rank in here}
    joined = join(here, nodes, {one_line(node): ahead for node, ahead in collection.offsets.items()})
    alike: defaultdict[tuple[str, int, int], list[Joined]] = defaultdict(list)
    for one in joined.collectives:
        alike[one.name, one.size, one.ranks].append(one)
    points: list[Point] = []
    out: list[Outlier] = []
    for (_, size, _), some in sorted(alike.items()):
        usual = median(_longest(one) for one in some)
        for one in some:
            limit = max(OUT * usual, usual + OUT_NS) if len(some) >= SOME and size else math.inf
            mine = []
            for call in one.calls:
                took = call.end - call.began
                mine.append(Point(one.name, size, call.rank, nodes[call.rank], took, call, one, took > limit))
            points += mine
            longest = max(mine, key=attrgetter("took"))
            if longest.out:
                out.append(Outlier(longest, usual, _last(one, nodes)))
    out.sort(key=lambda one: -one.point.took / max(1.0, one.usual))
    return Spread(points, sum(not point.size for point in points), out, sorted(here))


def _longest(one: Joined) -> int:
    return max(call.end - call.began for call in one.calls)


def _last(one: Joined, nodes: Mapping[int, str]) -> tuple[int, str, float] | None:
    if len(one.calls) < 2:
        return None
    last = max(one.calls, key=attrgetter("began"))
    return last.rank, nodes[last.rank], last.began - min(call.began for call in one.calls)


def _bytes(number: float) -> str:
    """In units of 1024, as NCCL's sizes are: ``64 MiB``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.3g} B"


def _time(number: float) -> str:
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.3g} ns"


class _Axes:
    """Both axes: where a size and a time are on them, 0 to 1."""

    def __init__(self, points: Iterable[Point]) -> None:
        sizes = [point.size for point in points]
        times = [max(1, point.took) for point in points]
        self.size = _ends(min(sizes), max(sizes), 2)
        self.time = _ends(min(times), max(times), 10)

    def of(self, point: Point) -> tuple[float, float]:
        """Of one point."""
        return _place(point.size, self.size), _place(max(1, point.took), self.time)


def _ends(least: float, most: float, base: int) -> tuple[float, float]:
    """Powers between which all are."""
    log = math.log2 if base == 2 else math.log10
    low = math.floor(log(least))
    return base**low, base ** max(low + 1, math.ceil(log(most)))


def _place(number: float, ends: tuple[float, float]) -> float:
    return math.log(number / ends[0]) / math.log(ends[1] / ends[0])


# Text


def as_lines(found: Spread, width: int, height: int = 20) -> list[str]:
    """The plot in letters, one for each kind of collective, capital if it sticks out; then who sticks out.

    Only ASCII but for ``µ``.
    """
    sized = [point for point in found.points if point.size]
    if not sized:
        return [nothing(found)]
    axes = _Axes(sized)
    left = 9
    room = max(20, width - left - 2)
    cells = [[" "] * room for _ in range(height)]
    for point in sorted(sized, key=attrgetter("out")):
        x, y = axes.of(point)
        letter = _LETTERS.get(point.name, _ELSE)
        row, column = height - 1 - min(height - 1, int(y * height)), min(room - 1, int(x * room))
        cells[row][column] = letter.upper() if point.out else letter
    about = "duration by size of the message, both logarithmic"
    lines = [clip(f"{len(sized):,} calls of {ranks_named(found.ranks)}: {about}", width)]
    decades = round(math.log10(axes.time[1] / axes.time[0]))
    labels = {height - 1 - min(height - 1, round(n * height / decades)): n for n in range(decades + 1)}
    for row, each in enumerate(cells):
        label = _time(axes.time[0] * 10 ** labels[row]) if row in labels else ""
        lines.append(f"{label:>{left}} |{''.join(each)}".rstrip())
    lines.append(f"{'':{left}} +{'-' * room}")
    lines.append(f"{'':{left}}  {_labels(axes.size, room)}")
    names = sorted({point.name for point in sized})
    legend = [f"{_LETTERS.get(name, _ELSE)} {name}" for name in names[:12]]
    lines.append(clip(f"  {'  '.join(legend)}; capital: more than {OUT:g} times the usual", width))
    for text in said(found):
        lines += wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return lines


def nothing(found: Spread) -> str:
    """Why there is nothing to plot."""
    if found.points:
        return f"no sizes of messages: {found.unsized:,} collectives are not in the plot (--csv has them)"
    return "no collective in it: nothing to plot"


def _labels(ends: tuple[float, float], room: int) -> str:
    """Sizes below the plot, as many as there is room for."""
    powers = round(math.log2(ends[1] / ends[0]))
    every = max(1, math.ceil(powers * 9 / room))
    text = ""
    for power in range(0, powers + 1, every):
        label = _bytes(ends[0] * 2**power)
        place = min(room - len(label), power * room // powers)
        if place >= len(text):
            text = f"{text:<{place}}{label} "
    return text.rstrip()


def said(found: Spread) -> list[str]:
    """Who sticks out, and what is not in the plot, in sentences."""
    lines = [one.text for one in found.out[:NAMED]]
    if len(found.out) > NAMED:
        lines.append(f"and {len(found.out) - NAMED:,} more")
    if not found.out and any(point.size for point in found.points):
        lines.append(f"none takes more than {OUT:g} times as long as others of its kind and size")
    if found.unsized and found.unsized < len(found.points):
        lines.append(f"{found.unsized:,} calls without a size are not in the plot")
    return lines


# For programs


def as_csv(found: Spread) -> str:
    """All calls, one a row."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for one in sorted(found.points, key=lambda point: (point.whole.step, point.call.began, point.rank)):
        times = (f"{number / _NS:.9f}" for number in (one.call.began, one.took, one.call.wait))
        row = (
            one.whole.step, _cell(one.name), _cell(one.whole.group), one.whole.ranks or "", one.size or "",
            one.rank, _cell(one.node), *times, int(one.out),
        )  # fmt: skip
        table.writerow(row)
    return out.getvalue()


def _cell(text: str) -> str:
    """A text that no program for tables takes for a formula."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") else text


def as_json(found: Spread) -> dict[str, Any]:
    """How many calls there are, and who sticks out; times in seconds."""
    return {
        "calls": len(found.points),
        "unsized": found.unsized,
        "outliers_all": len(found.out),
        "outliers": [
            {
                "collective": one.point.name,
                "bytes": one.point.size,
                "step": one.point.whole.step,
                "rank": one.point.rank,
                "node": one.point.node,
                "took_s": one.point.took / _NS,
                "usual_s": one.usual / _NS,
                "last": one.last and one.last[0],
                "last_node": one.last and one.last[1],
                "last_after_s": one.last and one.last[2] / _NS,
            }
            for one in found.out[:NAMED]
        ],
    }


def as_svg(found: Spread, title: str) -> str:
    """A picture for a browser, in which each point says whose it is."""
    sized = [point for point in found.points if point.size]
    wide, high = _WIDE - _LEFT - 180, _HIGH - _TOP - 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDE}" height="{_HIGH}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>',
    ]
    if not sized:
        return "".join([*parts, f'<text x="{_LEFT}" y="60">{escape(nothing(found))}</text></svg>\n'])
    axes = _Axes(sized)
    parts += _grid(axes, wide, high)
    names = sorted({point.name for point in sized})
    colours = {name: _COLOURS[min(place, len(_COLOURS) - 1)] for place, name in enumerate(names)}
    drawn = set[tuple[int, int, str, bool]]()
    for point in sorted(sized, key=attrgetter("out")):
        x, y = axes.of(point)
        at = round(_LEFT + x * wide), round(_TOP + (1 - y) * high), point.name, point.out
        if at in drawn:
            continue
        drawn.add(at)
        ring = ' stroke="#000000"' if point.out else ' fill-opacity="0.6"'
        about = f"{point.name} {_bytes(point.size)}: {_time(point.took)}, rank {point.rank} ({point.node})"
        parts.append(
            f'<circle cx="{at[0]}" cy="{at[1]}" r="3" fill="{colours[point.name]}"{ring}>'
            f"<title>{escape(about)}</title></circle>"
        )
    for place, name in enumerate(names[: len(_COLOURS)]):
        y = _TOP + 16 + 20 * place
        parts.append(f'<circle cx="{_WIDE - 165}" cy="{y - 4}" r="4" fill="{colours[name]}"/>')
        parts.append(f'<text x="{_WIDE - 155}" y="{y}">{escape(name[:24])}</text>')
    return "".join([*parts, "</svg>\n"])


def _grid(axes: _Axes, wide: int, high: int) -> Iterable[str]:
    powers = round(math.log2(axes.size[1] / axes.size[0]))
    for power in range(0, powers + 1, max(1, math.ceil(powers / 10))):
        x = _LEFT + power * wide / powers
        yield f'<path d="M{x:.1f} {_TOP}v{high}" stroke="#dddddd"/>'
        label = escape(_bytes(axes.size[0] * 2**power))
        yield f'<text x="{x:.1f}" y="{_TOP + high + 18}" text-anchor="middle">{label}</text>'
    decades = round(math.log10(axes.time[1] / axes.time[0]))
    for power in range(decades + 1):
        y = _TOP + high - power * high / decades
        yield f'<path d="M{_LEFT} {y:.1f}h{wide}" stroke="#dddddd"/>'
        label = escape(_time(axes.time[0] * 10**power))
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    middle = f'x="{_LEFT + wide / 2:.0f}" y="{_TOP + high + 40}" text-anchor="middle"'
    yield f"<text {middle}>size of the message; upwards: duration; ringed: outliers</text>"
