"""``cockpit explain``: who failed first in any console, why, what that means and what to type."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cockpit import config
from cockpit.cli.output import out, out_json, out_lines
from cockpit.cli.parsing import Parser, add_flag
from cockpit.core.ranks import ranks_named, ranks_text
from cockpit.core.text import counted, one_line, size
from cockpit.errors import CockpitError, Exit
from cockpit.lang import language

if TYPE_CHECKING:
    from cockpit.core.explain.report import Party, Report
    from cockpit.core.nccl.table import Table

SPEAKERS = 10
"""Speakers that are shown."""
FILES = 4
"""Files that are."""
SHOWN = 120
"""Characters of a line; the rest is in the file."""


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "explain",
        "Say who failed first in any console or log, from any launcher; why, what it means and what to type.",
        "examples:\n"
        "  cockpit explain slurm-4711.out\n"
        "  cockpit explain logs/                  a folder with a log per rank\n"
        "  torchrun train.py 2>&1 | tee console.log; cockpit explain console.log\n"
        "  cockpit explain last                   a run that cockpit started\n\n"
        "exit code: 1 if a failure was found, 0 if none, 2 if there is nothing to read",
    )
    made.add_argument(
        "what",
        metavar="RUN | FILE",
        nargs="*",
        help="files (plain, gzip, bzip2, xz), folders of logs, -: stdin; or a run's name, or: last (default)",
    )
    add_flag(made, "--json", "one JSON object")
    add_flag(made, "--nccl", "also what NCCL says it uses, what differs between ranks first")
    add_flag(made, "--rules", "list what it knows: every rule, its meaning and where that is known from")
    made.add_argument(
        "--lang",
        choices=("en", "zh"),
        help="the language of meanings and steps (default: lang of the settings)",
    )
    return made


def main(words: list[str]) -> int:
    """Explain a failure, or list the rules."""
    args = parser().parse_args(words)
    lang = args.lang or language(config.load().lang, os.environ)
    if args.rules:
        from cockpit.cli.explained_rules import show

        return show(as_json=args.json, lang=lang)
    what = args.what or ["last"]
    if args.nccl and "-" in what:
        raise CockpitError(
            "--nccl reads a file twice, and stdin can be read once", hint="save it to a file first"
        )
    report = _report(what)
    nccl = _nccl(what, report) if args.nccl else None
    if args.json:
        out_json({**report.as_json(lang), "nccl": None if nccl is None else _nccl_json(nccl)})
    else:
        out_lines(_lines(report, lang))
        if nccl is not None:
            from cockpit.cli.nccl_details import print_nccl

            out()
            if nccl:
                print_nccl(nccl)
            else:
                out("NCCL says nothing in it: set NCCL_DEBUG=INFO")
    return Exit.RANK_FAILED if report.failed else Exit.OK


def _report(words: list[str]) -> Report:
    from cockpit.engine.explain import sources

    if len(words) == 1 and not sources.is_path(words[0]):
        from cockpit.engine.explain.known import explained_run

        try:
            return explained_run(words[0])
        except CockpitError as error:
            if "/" in words[0] or "." in words[0]:
                raise CockpitError("no such file", where=words[0]) from None
            raise CockpitError(f"no such file; {error.what}", where=words[0], hint=error.hint) from None
    from cockpit.engine.explain.reading import explained

    return explained(sources.items(words))


def _nccl(what: list[str], report: Report) -> Table:
    """What NCCL says in it."""
    if report.run:
        from cockpit.engine.nccl import table_here
        from cockpit.engine.records.folder import RunFolder

        return table_here(RunFolder.find(report.run))
    from cockpit.engine.explain import nccl, sources

    return nccl.table_in(sources.items(what))


def _nccl_json(nccl: Table) -> dict[str, Any]:
    from cockpit.core.nccl.findings import found

    return {"findings": [one.as_json() for one in found(nccl)], **nccl.as_json()}


def _lines(report: Report, lang: str) -> Iterator[str]:
    if not report.failed:
        yield "no failure found"
    else:
        head = "stalled" if report.how == "stalled" else "failed first"
        yield f"{head}: {report.what} ({report.certainty})"
    if report.cause is not None:
        yield f"  cause: {report.cause.what}"
        if report.cause.places:
            yield f"  in: {' > '.join(report.cause.places)}"
        for line in report.cause.lines:
            yield f"  {line.file}:{line.number}: {one_line(line.text, limit=SHOWN)}"
    end = report.end_line
    if end is not None and (report.cause is None or end.text != report.cause.what):
        yield f"  ended: {end.file}:{end.number}: {end.text}"
    if report.row is not None:
        yield f"  means: {report.row.meaning(lang)}"
        for step in report.row.steps(lang):
            yield f"  next: {step.text}"
    if report.waited:
        yield f"only followed: {ranks_named(report.waited)}"
    if report.ended_too:
        yield f"failed after it: {ranks_named(report.ended_too)}"
    yield ""
    yield from _sources(report)
    yield from _speakers(report)


def _sources(report: Report) -> Iterator[str]:
    if report.run:
        yield f"run {report.run}"
    for name, lines, length, _, notes in report.files[:FILES]:
        yield f"{name}: {counted_lines(lines)}, {size(length)}"
        for note in notes:
            yield f"  {note}"
    if len(report.files) > FILES:
        lines = sum(one[1] for one in report.files)
        length = sum(one[2] for one in report.files)
        yield f"and {len(report.files) - FILES:,} more files; all: {counted_lines(lines)}, {size(length)}"
    if report.launchers:
        yield f"launcher: {', '.join(report.launchers)}"


def counted_lines(number: int) -> str:
    """``1 line``, ``1,204,331 lines``."""
    return f"{number:,} line{'s' * (number != 1)}"


def _speakers(report: Report) -> Iterator[str]:
    ranked = [one for one in report.parties if one.rank is not None]
    if ranked:
        nodes = {one.node for one in ranked if one.node}
        numbers = ranks_text(one.rank for one in ranked if one.rank is not None)
        yield f"{counted(len(ranked), 'rank')} ({numbers})" + (
            f" on {counted(len(nodes), 'node')}" if nodes else ""
        )
    about = "" if report.exact else "about "
    first = set(report.ranks)
    talkers = sorted(report.parties, key=lambda one: (one.rank not in first or one.rank is None, -one.lines))
    for one in talkers[:SPEAKERS]:
        if one.lines or one.end:
            what = (
                f"{about}{counted_lines(one.lines)}, {size(one.size)}" if one.lines else "no line of its own"
            )
            yield f"  {_who(one)}: {what}{f'; {one.end}' if one.end else ''}"
    if len(talkers) > SPEAKERS:
        rest = talkers[SPEAKERS:]
        lines, length = sum(one.lines for one in rest), sum(one.size for one in rest)
        yield f"  {len(rest):,} others: {about}{counted_lines(lines)}, {size(length)}"


def _who(one: Party) -> str:
    name = f"rank {one.rank}" if one.rank is not None else one.name
    if not name and not one.node:
        return "lines that name nobody"
    return " on ".join(filter(None, (name, one.node)))
