"""The report of a run as one page: it loads nothing, nothing in it runs, and whatever a rank says is text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from cockpit.base.shell import quote
from cockpit.core.finding import Finding
from cockpit.core.html_page import html_page
from cockpit.core.pace.phases import NAMES
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.report import words
from cockpit.core.report.goodput import PARTS, Goodput
from cockpit.core.report.model import Course, Look, Moment, Profile, RunReport, Tail, Value
from cockpit.core.report.page_style import STYLE
from cockpit.core.report.plots import plot
from cockpit.core.report.working_tree import by_file, files_text
from cockpit.core.text import counted

TAIL = 25
"""Lines of a log."""


def as_page(report: RunReport) -> str:
    """The whole page."""
    return html_page(words.head(report), STYLE, _body(report))


def _body(report: RunReport) -> Iterator[str]:
    yield "<main>"
    yield from _head(report)
    yield from _ending(report)
    yield from _pace(report)
    yield from _findings(report.findings)
    yield from _stacks(report.looks)
    yield from _profiles(report.profiles)
    yield from _tails(report.tails)
    yield from _events(report.events, report.left_out)
    yield from _what(report)
    yield from _foot(report)
    yield "</main>"


def _head(report: RunReport) -> Iterator[str]:
    kind = "" if report.code is None else " bad" if report.code else " good"
    yield f'<header><h1>{escape(report.run)}</h1><p class="state{kind}">{escape(report.state)}</p>'
    about = list(words.about(report))
    yield "".join(f'<p class="dim small">{escape(text)}</p>' for text in about)
    yield f'<pre class="wrap">{escape(words.typed(report))}</pre></header>'
    facts = [("took", words.lasted(report.took_s)), ("ranks", f"{report.what.ranks:,}")]
    facts += [("nodes", f"{len(report.what.hosts):,}")]
    course = report.course
    if course.last is not None:
        facts += [("last step", f"{course.last:,}")]
    if course.mean_s is not None:
        facts += [("a step", f"{'' if course.exact else '~'}{words.lasted(course.mean_s)}")]
    facts += [
        (curve.name, words.number(curve.last, curve.unit)) for curve in report.curves if curve.unit != "s"
    ]
    cells = (f'<div><span class="dim small">{escape(n)}</span><b>{escape(v)}</b></div>' for n, v in facts)
    yield f'<div class="facts">{"".join(cells)}</div>'


def _ending(report: RunReport) -> Iterator[str]:
    lines = words.ending_lines(report)
    if not lines:
        return
    first, *rest = lines
    bad = ' class="bad"' if report.why.how else ""
    yield f"<h2>{words.ending_title(report)}</h2>"
    yield f"<section{bad}><h3>{escape(first)}</h3>{_items(rest)}</section>"


def _items(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


# How it moved on


def _pace(report: RunReport) -> Iterator[str]:
    yield "<h2>Pace</h2><section>"
    yield "".join(f"<p>{escape(line)}</p>" for line in words.course_lines(report.course))
    yield from _phases(report.course)
    yield "</section>"
    yield from _wall(report)
    if report.series is not None:
        first, *rest = words.series_lines(report.series)
        yield f"<h2>Series</h2><section><h3>{escape(first)}</h3>{_items(rest)}</section>"
    drawn = [curve for curve in report.curves if curve.points]
    if drawn:
        yield '<div class="plots">'
        for curve in drawn:
            yield from plot(curve)
        yield "</div>"


def _wall(report: RunReport) -> Iterator[str]:
    wall, lines = report.wall, [f"<p>{escape(line)}</p>" for line in words.run_wall_lines(report)]
    if not lines:
        return
    yield f"<h2>Wall time</h2><section>{''.join(lines)}"
    if wall is not None:
        yield from _split(wall)
    yield "</section>"


def _split(wall: Goodput) -> Iterator[str]:
    shares = [(name, took / wall.wall_s) for name in PARTS if (took := wall.parts.get(name, 0.0)) > 0]
    kinds = [(PARTS.index(name) % len(NAMES), name, share) for name, share in shares]
    yield from _bar(kinds, [f"{'~' if name in wall.estimated else ''}{name}" for name, _ in shares])


def _phases(course: Course) -> Iterator[str]:
    whole = sum(course.phases.values())
    if not whole > 0:
        return
    shares = [
        (place, name, course.phases[name] / whole)
        for place, name in enumerate(NAMES)
        if course.phases.get(name, 0) > 0
    ]
    yield from _bar(shares, [name for _, name, _ in shares])


def _bar(shares: Sequence[tuple[int, str, float]], named: Iterable[str]) -> Iterator[str]:
    """Shares of a whole side by side, each with its colour, and what they are."""
    bars = (f'<span class="p{place}" style="flex:{share:.4f}"></span>' for place, _, share in shares)
    yield f'<div class="phases">{"".join(bars)}</div>'
    keys = (
        f'<span><i class="p{place}"></i>{name} {100 * share:.0f} %</span>'
        for (place, _, share), name in zip(shares, named, strict=True)
    )
    yield f'<div class="legend">{"".join(keys)}</div>'


# What was found


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    found = list(findings)
    if found:
        yield "<h2>Findings</h2>"
    for one in found:
        yield from _finding(one)


def _finding(one: Finding) -> Iterator[str]:
    kind = {"error": "bad", "warning": "warn"}.get(one.severity, "")
    first, *rest = words.found_lines(one)
    yield f'<section class="{kind}"><h3>{escape(first)}</h3>{_items(line.strip() for line in rest)}</section>'


def _stacks(looks: Sequence[Look]) -> Iterator[str]:
    found = ((look.found.what, _taken(look), look.stacks) for look in reversed(looks))
    yield from _folded("Stacks", found)


def _taken(look: Look) -> str:
    by = f", taken by the nodes ({look.by_nodes})" if look.by_nodes else ""
    return words.when(look.at) + by


def _profiles(profiles: Sequence[Profile]) -> Iterator[str]:
    found = ((one.title, one.found.what, one.lines) for one in reversed(profiles))
    yield from _folded("Profiles", found)


def _folded(title: str, found: Iterable[tuple[str, str, Sequence[str]]]) -> Iterator[str]:
    """What is shown at a click, the first of it at once: heads, what is beside them, and lines."""
    for place, (head, beside, lines) in enumerate(found):
        if not place:
            yield f"<h2>{title}</h2>"
        beside = f" <span class='dim'>{escape(beside)}</span>" if beside else ""
        yield f"<details{' open' * (not place)}><summary>{escape(head)}{beside}</summary>"
        yield f"<pre>{escape(chr(10).join(lines))}</pre></details>"


# What was said, and what happened


def _tails(tails: Iterable[Tail]) -> Iterator[str]:
    yield from _folded(
        "Last lines", ((words.tail_title(tail, TAIL), "", tail.lines[-TAIL:]) for tail in tails)
    )


def _events(moments: Iterable[Moment], left_out: int) -> Iterator[str]:
    shown = list(moments)
    if not shown:
        return
    more = f" <span class='dim'>{left_out:,} before these are left out</span>" if left_out else ""
    yield f"<h2>Events</h2><details open><summary>{counted(len(shown), 'event')}{more}</summary>"
    yield '<div class="scroll"><table>'
    for one in shown:
        level = {"error": ' class="error"', "warning": ' class="warning"'}.get(one.level, "")
        at = escape(words.when(one.at)[5:])
        yield f'<tr><td class="time">{at}</td><td{level}>{escape(one.text)}</td></tr>'
    yield "</table></div></details>"


# What ran


def _what(report: RunReport) -> Iterator[str]:
    what = report.what
    yield "<h2>What ran</h2>"
    differ = words.differing(what)
    if differ:
        yield f'<section class="warn"><h3>Nodes differ</h3>{_items(map(words.value_line, differ))}</section>'
    yield from _table("Versions", ("what", "version"), map(_value, what.versions))
    if what.diff:
        title = f"Working tree <span class='dim'>{escape(files_text(by_file(what.diff)))}</span>"
        yield f"<details><summary>{title}</summary><pre>{escape(chr(10).join(what.diff))}</pre></details>"
    yield from _table("Variables that cockpit set", ("name", "value"), map(_value, what.env))
    title = "Variables that matter, of each node's first rank"
    yield from _table(title, ("name", "value"), map(_value, what.environ))
    hosts = ((host.name, host.machine, ranks_text(host.ranks), host.how) for host in what.hosts)
    yield from _table("Nodes", ("node", "machine", "ranks", "state"), hosts)
    plan = ((nodes_text(nodes), " ".join(map(quote, argv))) for argv, nodes in what.plan)
    yield from _table("Commands on the nodes", ("nodes", "command"), plan)
    yield from _table("Pages in its logs", ("tracker", "address"), report.pages)


def _value(value: Value) -> tuple[str, str]:
    name, _, text = words.value_line(value).partition(": ")
    return name, text


def _table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    if not cells:
        return
    yield f"<details><summary>{title} <span class='dim'>{len(cells):,}</span></summary>"
    yield f'<div class="scroll"><table><tr>{"".join(f"<th>{name}</th>" for name in head)}</tr>'
    yield from (f"<tr>{row}</tr>" for row in cells)
    yield "</table></div></details>"


def _foot(report: RunReport) -> Iterator[str]:
    made = f"made by cockpit {report.version}, {words.when(report.made)}; times are those of this machine"
    said = " · ".join(filter(None, (made, words.cut(report))))
    yield f"<footer>{escape(said)}</footer>"
