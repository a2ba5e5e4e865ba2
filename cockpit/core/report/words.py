"""The report of a run as text and as Markdown, the essential first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from cockpit.base.shell import quote
from cockpit.core.finding import Finding
from cockpit.core.ranks import nodes_text, ranks_named
from cockpit.core.report.goodput import PARTS, Goodput
from cockpit.core.report.lineage import Lineage
from cockpit.core.report.model import Course, Curve, Moment, RunReport, Tail, Value, What, Why
from cockpit.core.report.working_tree import by_file, files_text
from cockpit.core.text import counted, markdown, one_line, size
from cockpit.core.time_text import span_text

MD_LINES = 60
"""Lines of Markdown at most."""
EVENTS, TAIL, LOOKS = 30, 12, 2
"""Events, lines of a log, and snapshots in text."""
VERSIONS = 12
"""Versions that are alike everywhere, in text."""

GOOD = "last good run of this command: {}; {}"
"""Of a run that failed: which one, and what to type."""


def when(at: float | None) -> str:
    """``2026-11-21 04:03:41``, here; empty: it is not known, or no time."""
    try:
        return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return ""


def lasted(seconds: float) -> str:
    """``0.84 s``, ``40 s``, ``12 min 05 s``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return span_text(seconds)


def number(value: float, unit: str = "") -> str:
    """A value of a curve, with its unit."""
    if unit == "s":
        return lasted(value)
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def head(report: RunReport) -> str:
    """``failed: rank 3 exited 1``: how the run is, or how it ended."""
    return f"{report.run}: {report.state}"


def about(report: RunReport) -> Iterator[str]:
    """What ran, where and when, in a few sentences."""
    what = report.what
    places = f"{counted(what.ranks, 'rank')} on {counted(len(what.hosts), 'node')}"
    yield f"{places} ({nodes_text(host.name for host in what.hosts)}), {what.launcher}"
    span = lasted(report.took_s)
    ended = f"ended {when(report.ended)}"
    if report.code is None:
        ended = (
            f"not watched since {when(report.seen)}" if report.seen else "still running when this was made"
        )
    code = "" if report.code is None else f", exit code {report.code}"
    yield f"started {when(report.began)}, {ended}, after {span}{code}"


def typed(report: RunReport) -> str:
    """What was typed, or else the program."""
    return " ".join(map(quote, report.what.command or report.what.program))


def why_lines(why: Why) -> Iterator[str]:
    """Who failed first and why, a sentence each; nothing, if no failure was found."""
    if not why.how:
        return
    yield f"{'stalled' if why.how == 'stalled' else 'failed first'}: {why.what} ({why.certainty})"
    if why.cause:
        yield f"cause: {why.cause}"
    if why.evidence:
        yield f"in: {' > '.join(why.evidence)}"
    yield from (f"{line.file}:{line.number}: {one_line(line.text, limit=200)}" for line in why.lines)
    if why.meaning:
        yield f"means: {why.meaning}"
    yield from (f"next: {step.text}" for step in why.steps)
    if why.waited:
        label = "waiting for it" if why.how == "stalled" else "failed as a consequence"
        yield f"{label}: {ranks_named(why.waited)}"
    if why.failed_too:
        yield f"failed after it: {ranks_named(why.failed_too)}"


def good_text(run: str, good: str) -> str:
    """When the same command last worked, and what shows the difference."""
    return GOOD.format(good, compare_command(good, run))


def compare_command(before: str, after: str) -> str:
    """What shows the difference of two runs."""
    return f"cockpit compare {quote(before)} {quote(after)}"


def good_lines(report: RunReport) -> Iterator[str]:
    """The same, of a run that failed, if one is known."""
    if report.last_good:
        yield good_text(report.run, report.last_good)


def ending_title(report: RunReport) -> str:
    """Above how it ended; of a run that goes on, above how it is."""
    return "How it is" if report.code is None else "How it ended"


def ending_lines(report: RunReport) -> list[str]:
    """How it ended and why, a sentence each: what was judged, then what else is recorded."""
    judged = list(why_lines(report.why))
    same = ("first to fail: ", "meaning: ", "next: ") if judged else ()
    return [*judged, *good_lines(report), *(text for text in report.outcome if not text.startswith(same))]


def course_lines(course: Course) -> Iterator[str]:
    """How far it came, and how fast."""
    if not course.steps:
        yield "no steps known"
        return
    about = "" if course.exact else "~"
    span = "" if course.mean_s is None else f", {about}{lasted(course.mean_s)} a step"
    yield f"{counted(course.steps, 'step')}, {course.first} to {course.last}{span}"
    if course.mean_s is None:
        yield "how long a step takes is not known: no two of them have times of their own"
    if course.begun_s is not None:
        yield f"first step finished after {about}{lasted(course.begun_s)}"


def phase_lines(course: Course) -> Iterator[str]:
    """Where a step goes, if that is known."""
    whole = sum(course.phases.values())
    if whole > 0:
        parts = ", ".join(f"{name} {100 * took / whole:.0f} %" for name, took in course.phases.items())
        yield f"a step of the median rank: {parts}"


def wall_lines(wall: Goodput | None) -> Iterator[str]:
    """Where the wall time went; ``~``: an estimate."""
    if wall is None or wall.wall_s <= 0:
        return
    parts = ", ".join(
        f"{'~' if name in wall.estimated else ''}{name} {lasted(wall.parts[name])}"
        f" ({100 * wall.parts[name] / wall.wall_s:.0f} %)"
        for name in PARTS
        if name in wall.parts
    )
    yield f"wall time {lasted(wall.wall_s)}: {parts}"
    if wall.lost_steps is None:
        other = "other " if wall.parts.get("lost") else ""
        yield f"{other}lost steps unknown: no checkpoint was seen"
    elif wall.lost_steps:
        about = "~" if "lost" in wall.estimated else ""
        yield f"lost: {about}{counted(wall.lost_steps, 'step')} since the last checkpoint"


def run_wall_lines(report: RunReport) -> Iterator[str]:
    """The same of a run; why it is not known."""
    yield from wall_lines(report.wall)
    if report.wall is None and report.code is not None:
        yield f"wall time {lasted(report.took_s)}: not split, as no step's time is known"


def series_lines(series: Lineage | None) -> Iterator[str]:
    """The runs that are one series, and where its wall time went."""
    if series is None:
        return
    if series.left_out:
        yield f"… {series.left_out:,} more"
    for one in series.members:
        steps = (
            f", steps {one.first:,} to {one.last:,}" if one.first is not None and one.last is not None else ""
        )
        how = f" ({'' if one.sure else '~ '}{one.how})" if one.how else ""
        yield f"{one.run}: {one.state}{steps}, started {when(one.began)}{how}"
    yield from (f"together: {line}" for line in wall_lines(series.wall))


def curve_line(curve: Curve) -> str:
    """``loss: 10.9 to 2.31, min 2.29, max 10.9 at step 1``."""
    first, last, least, most = (
        number(value, curve.unit) for value in (curve.first, curve.last, curve.least, curve.most)
    )
    text = f"{curve.name}: {first} to {last}, min {least}, max {most} at step {curve.most_at:,.0f}"
    if curve.odd and curve.odd_from is not None:
        text += f"; not a number in {counted(curve.odd, 'step')}, from step {curve.odd_from:,.0f} on"
    return text


def value_line(value: Value) -> str:
    """``torch: 2.4.0``, ``torch: 2.4.0 on gpu[01-03], 2.3.1 on gpu04``."""
    return f"{value.name}: {value_text(value)}"


def value_text(value: Value) -> str:
    """``2.4.0``, ``2.4.0 on gpu[01-03], 2.3.1 on gpu04``."""
    if not value.differs:
        return value.said[0][0]
    return ", ".join(f"{text or 'none'} on {nodes_text(nodes)}" for text, nodes in value.said)


def differing(what: What) -> list[Value]:
    """All in which nodes differ."""
    every = (*what.versions, *what.packages, *what.env, *what.environ)
    return [value for value in every if value.differs]


def diff_lines(what: What) -> Iterator[str]:
    """Which files differed from the commit, and where all of it is, if it was kept."""
    if what.diff:
        yield f"working tree: {files_text(by_file(what.diff))}; --html and --json have the diff"


def moment_line(moment: Moment) -> str:
    """``04:03:41  gpu02: rank 3 exited 1``."""
    return f"{when(moment.at)[11:]}  {moment.text}"


def found_lines(found: Finding) -> Iterator[str]:
    """A finding, its first line the sentence."""
    yield f"{found.what} ({found.sureness})"
    for text in filter(None, (found.where, found.detail, found.meaning, *found.evidence)):
        yield f"  {text}"
    yield from (f"  next: {step.text}" for step in found.steps[:2])


def tail_title(tail: Tail, most: int) -> str:
    """``rank 3 on gpu02: it failed first; last 12 lines of 1 MB``.

    :param most: lines that are shown
    """
    whose = "the launcher" if tail.rank is None else f"rank {tail.rank}"
    whole = f"{tail.size} B" if tail.size < 1000 else size(tail.size)
    shown = counted(min(most, len(tail.lines)), "line")
    return f"{whose} on {tail.node}: {tail.why}; last {shown} of {whole}"


def cut(report: RunReport) -> str:
    """How many secrets were taken out, in a sentence; empty: none."""
    return cut_text(report.taken)


def cut_text(taken: int) -> str:
    """The same of so many."""
    return f"{counted(taken, 'secret')} {'was' if taken == 1 else 'were'} taken out" if taken else ""


# Text


def as_lines(report: RunReport) -> Iterator[str]:
    """The report for a terminal."""
    yield head(report)
    yield from (f"  {text}" for text in report.outcome if text not in report.state)
    yield from _part("why", [*why_lines(report.why), *good_lines(report)])
    yield from _part("what ran", [typed(report), *about(report)])
    yield from _part(
        "pace", [*course_lines(report.course), *phase_lines(report.course), *map(curve_line, report.curves)]
    )
    yield from _part("wall time", list(run_wall_lines(report)))
    yield from _part("series", list(series_lines(report.series)))
    differ = [value_line(value) for value in differing(report.what)]
    yield from _part("nodes differ in", differ)
    alike = [value_line(value) for value in report.what.versions if not value.differs]
    versions = [", ".join(alike[:VERSIONS])] if alike else []
    yield from _part("versions", [*versions, *diff_lines(report.what)])
    for found in report.findings:
        yield from _part("finding", list(found_lines(found)))
    for look in report.looks[-LOOKS:]:
        by = f", taken by the nodes ({look.by_nodes})" if look.by_nodes else ""
        yield from _part(f"stacks of {when(look.at)}{by}", list(found_lines(look.found)))
    for profile in report.profiles:
        yield from _part(profile.title, list(found_lines(profile.found)))
    yield from _part("events", _newest(report.events, report.left_out, EVENTS))
    for tail in report.tails:
        yield from _part(tail_title(tail, TAIL), tail.lines[-TAIL:])
    yield from _part("pages", [f"{name}: {url}" for name, url in report.pages])
    if text := cut(report):
        yield ""
        yield text


def _part(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _newest(moments: Sequence[Moment], left_out: int, most: int) -> list[str]:
    more = left_out + max(0, len(moments) - most)
    return [*([f"… {more:,} before these"] if more else []), *map(moment_line, moments[-most:])]


# Markdown


def as_markdown(report: RunReport) -> list[str]:
    """The report for a ticket: at most :data:`MD_LINES` lines, the essential first."""
    lines = [f"# {markdown(head(report))}", "", f"`{code(typed(report))}`", ""]
    lines += [f"- {markdown(text)}" for text in about(report)]
    ended = ending_lines(report)[:11]
    lines += (
        ["", f"**{ending_title(report)}**", "", *(f"- {markdown(text)}" for text in ended)] if ended else []
    )
    pace = [*course_lines(report.course), *phase_lines(report.course), *map(curve_line, report.curves[:3])]
    pace += run_wall_lines(report)
    lines += ["", "**Pace**", "", *(f"- {markdown(text)}" for text in pace)]
    if report.series is not None:
        told = list(series_lines(report.series))[-6:]
        lines += ["", "**Series**", "", *(f"- {markdown(text)}" for text in told)]
    if look := report.looks[-1:]:
        lines += ["", f"**Stacks of {markdown(when(look[0].at))}**: {markdown(look[0].found.what)}"]
    told = [f"- {markdown(found.what)} ({found.sureness})" for found in report.findings[:4]]
    told += [
        f"- {markdown(profile.title)}: {markdown(profile.found.what)}" for profile in report.profiles[-1:]
    ]
    told += [
        f"- nodes differ: {markdown(value_line(value))}" for value in report.what.versions if value.differs
    ][:3]
    told += [f"- {markdown(text)}" for text in diff_lines(report.what)]
    lines += ["", *told] if told else []
    bad = [moment for moment in report.events if moment.level != "info"][:6]
    lines += ["", "**Events**", "", *(f"- {markdown(moment_line(moment))}" for moment in bad)] if bad else []
    for tail in report.tails[:2]:
        room = min(10, MD_LINES - len(lines) - 5)
        if room > 0:
            lines += [
                "",
                f"{markdown(tail_title(tail, room))}:",
                "",
                *(f"    {line}" for line in tail.lines[-room:]),
            ]
    if text := cut(report):
        lines = [*lines[: MD_LINES - 2], "", f"*{text}*"]
    return [line.rstrip() for line in lines[:MD_LINES]]


def code(text: str) -> str:
    """Text between backticks."""
    return text.replace("`", "'")
