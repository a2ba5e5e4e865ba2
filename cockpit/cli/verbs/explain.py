"""``cockpit explain``: who failed first in any console, why, what that means and what to type."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cockpit import config, paths
from cockpit.cli.output import out, out_json, out_lines
from cockpit.cli.parsing import Parser, add_flag
from cockpit.core.ranks import ranks_text
from cockpit.core.text import one_line, size
from cockpit.errors import CockpitError, Exit
from cockpit.lang import word

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
        "Exit codes: 0 no failure was found, 1 one was, 2 there is nothing to read.",
    )
    made.add_argument(
        "what",
        metavar="RUN | FILE",
        nargs="*",
        help="files (plain, gzip, bzip2, xz), folders of logs, -: stdin; or a run's name, or: last (default)",
    )
    add_flag(made, "--json", "one JSON object")
    add_flag(made, "--nccl", "also NCCL settings reported by the ranks, differences first")
    add_flag(made, "--rules", "list what it knows: every rule, its meaning and where that is known from")
    made.add_argument(
        "--lang",
        choices=("en", "zh"),
        help="the language to explain in (default: lang of the settings)",
    )
    return made


def main(words: list[str]) -> int:
    """Explain a failure, or list the rules."""
    args = parser().parse_args(words)
    lang = args.lang or config.load().language
    if args.rules:
        from cockpit.cli.explained_rules import show

        return show(as_json=args.json, lang=lang)
    report = _report(args.what or ["last"])
    if args.json:
        out_json({**report.as_json(lang), "nccl": _nccl_json(report.nccl) if args.nccl else None})
    else:
        out_lines(_lines(report, lang))
        if args.nccl:
            from cockpit.cli.nccl_details import print_nccl

            out()
            if report.nccl:
                print_nccl(report.nccl, lang)
            else:
                out("NCCL says nothing in it: set NCCL_DEBUG=INFO")
    return Exit.RANK_FAILED if report.failed else Exit.OK


def _report(words: list[str]) -> Report:
    from cockpit.engine.explain import sources
    from cockpit.engine.records.bundles import is_bundle
    from cockpit.engine.records.names import LAST

    if len(words) == 1 and (not sources.is_path(words[0]) or is_bundle(words[0])):
        from cockpit.engine.explain.known import explained_run

        try:
            return explained_run(words[0])
        except CockpitError as error:
            if words == [LAST] or is_bundle(words[0]) or (paths.runs() / words[0]).is_dir():
                raise
            if "/" in words[0] or "." in words[0]:
                raise CockpitError("no such file", where=words[0]) from None
            raise CockpitError(f"no such file; {error.what}", where=words[0], hint=error.hint) from None
    from cockpit.engine.explain.reading import explained

    return explained(sources.items(words))


def _nccl_json(nccl: Table) -> dict[str, Any]:
    from cockpit.core.nccl.findings import found

    return {"findings": [one.as_json() for one in found(nccl)], **nccl.as_json()}


def _lines(report: Report, lang: str) -> Iterator[str]:
    from cockpit.core.explain.report import named
    from cockpit.core.nccl.findings import notable

    said = partial(_said, lang)
    if not report.failed:
        yield said("no failure found")
    else:
        head = "stalled: {} ({})" if report.how == "stalled" else "failed first: {} ({})"
        yield said(head, report.sentence(lang), said(report.certainty))
    if report.cause is not None:
        yield f"  {said('cause: {}', report.cause.what)}"
        if report.cause.places:
            yield f"  {said('in: {}', ' > '.join(report.cause.places))}"
        for line in report.cause.lines:
            yield f"  {line.file}:{line.number}: {one_line(line.text, limit=SHOWN)}"
    end = report.end_line
    if end is not None and (report.cause is None or end.text != report.cause.what):
        yield f"  {said('ended: {}', f'{end.file}:{end.number}: {end.text}')}"
    if report.row is not None:
        yield f"  {said('means: {}', report.row.meaning(lang))}"
        for step in report.row.steps(lang):
            yield f"  {said('next: {}', step.text)}"
    if report.waited:
        text = "waiting for it: {}" if report.how == "stalled" else "failed as a consequence: {}"
        yield said(text, named(report.waited, lang))
    if report.ended_too:
        yield said("failed after it: {}", named(report.ended_too, lang))
    for found in notable(report.nccl, lang):
        yield said("also seen ({}): {}", said(found.certainty), found.meaning)
        yield from (f"  {text}" for text in (found.what, *found.evidence))
        for step in found.steps:
            yield f"  {said('next: {}', step.text)}"
    if report.run and report.failed:
        from cockpit.cli.since_good import since_good

        yield from since_good(report.run, lang)
    yield ""
    yield from _sources(report, lang)
    yield from _speakers(report, lang)


def _said(lang: str, english: str, *values: str) -> str:
    return word(english, lang).format(*values)


def _sources(report: Report, lang: str) -> Iterator[str]:
    said = partial(_said, lang)
    if report.run:
        yield said("run {}", report.run)
    for name, lines, length, _, notes in report.files[:FILES]:
        yield said("{}: {}", name, _amount(lines, length, lang))
        for note in notes:
            yield f"  {note.text(lang)}"
    if len(report.files) > FILES:
        lines = sum(one[1] for one in report.files)
        length = sum(one[2] for one in report.files)
        more = f"{len(report.files) - FILES:,}"
        yield said("and {} more files; all: {}", more, _amount(lines, length, lang))
    if report.launchers:
        yield said("launcher: {}", ", ".join(report.launchers))


def _amount(lines: int, length: int, lang: str) -> str:
    """``1 line, 20 bytes``, ``1,204,331 lines, 64 MB``."""
    return _said(lang, "{} line, {}" if lines == 1 else "{} lines, {}", f"{lines:,}", size(length))


def _speakers(report: Report, lang: str) -> Iterator[str]:
    said = partial(_said, lang)
    ranked = [one for one in report.parties if one.rank is not None]
    if ranked:
        nodes = {one.node for one in ranked if one.node}
        numbers = ranks_text(one.rank for one in ranked if one.rank is not None)
        text = said("{} rank ({})" if len(ranked) == 1 else "{} ranks ({})", str(len(ranked)), numbers)
        on = "{} on {} node" if len(nodes) == 1 else "{} on {} nodes"
        yield said(on, text, str(len(nodes))) if nodes else text
    about = "{}" if report.exact else word("about {}", lang)
    first = set(report.ranks)
    talkers = sorted(report.parties, key=lambda one: (one.rank not in first or one.rank is None, -one.lines))
    for one in talkers[:SPEAKERS]:
        end = one.end.text(lang)
        if one.lines or end:
            what = (
                about.format(_amount(one.lines, one.size, lang)) if one.lines else said("no line of its own")
            )
            yield "  " + said("{}: {}", _who(one, lang), said("{}; {}", what, end) if end else what)
    if len(talkers) > SPEAKERS:
        rest = talkers[SPEAKERS:]
        lines, length = sum(one.lines for one in rest), sum(one.size for one in rest)
        amount = about.format(_amount(lines, length, lang))
        yield "  " + said("{} others: {}", f"{len(rest):,}", amount)


def _who(one: Party, lang: str) -> str:
    name = f"rank {one.rank}" if one.rank is not None else one.name
    if name and one.node:
        return _said(lang, "{} on {}", name, one.node)
    return name or one.node or word("lines that name nobody", lang)
