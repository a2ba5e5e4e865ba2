"""``cockpit report RUN``: what a run was, in one page, from what is known of it here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cockpit.base.shell import quote
from cockpit.cli.output import out_json, out_lines, say, shows_unicode, to_file
from cockpit.cli.parsing import Parser, add_flag, add_word, whole
from cockpit.cli.slurm_options import add_run, run_folder
from cockpit.core.report import words as written
from cockpit.core.text import ascii_text
from cockpit.engine.report.gather import report_of
from cockpit.errors import Exit

if TYPE_CHECKING:
    from argparse import Namespace

    from cockpit.core.report.model import RunReport
    from cockpit.engine.records.folder import RunFolder

STDOUT = "-"
"""In place of a file."""


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "report",
        "Report on a run, running or ended: what ran, how it ended and why, pace, loss, events, stacks,\n"
        "profiles, findings, the last lines of the ranks that matter. No node is asked: `cockpit attach`\n"
        "or `cockpit ps RUN` fetches what they still have. Secrets are taken out, and counted.",
        "examples:\n"
        "  cockpit report last\n"
        "  cockpit report last --md                 for a ticket, at most 60 lines\n"
        "  cockpit report last --html run.html      one page; it loads nothing from outside\n"
        "  cockpit report last --bundle run.tar.gz  for somebody else: cockpit attach run.tar.gz\n"
        "  cockpit report last --json | jq .why",
    )
    add_run(made)
    made.add_argument(
        "--md", metavar="FILE", nargs="?", const=STDOUT, help="Markdown, to FILE or else to stdout"
    )
    add_word(made, "--html", "FILE", "a page that loads nothing from outside, to read, print or send", None)
    add_word(
        made,
        "--bundle",
        "FILE",
        "a .tar.gz for somebody else's cockpit: attach, report, logs, stacks, ps … take it instead of RUN",
        None,
    )
    made.add_argument(
        "--log-mb",
        type=whole("a number of megabytes", 0, 1024),
        default=1,
        metavar="N",
        help="with --bundle: last N MB of each log (default: 1)",
    )
    add_flag(made, "--json", "one JSON object")
    return made


def main(words: list[str]) -> int:
    """Print the report, or write it to files."""
    made = parser()
    args = made.parse_args(words)
    for option in ("md", "html", "bundle"):
        if getattr(args, option) == "":
            made.error(f"--{option}: no file name")
    if args.json and args.md == STDOUT:
        made.error("--json and --md would both print: give --md a FILE")
    folder = run_folder(args.run, args.slurm)
    if args.bundle:
        _pack(folder, args)
        if not (args.md or args.html or args.json):
            return Exit.OK
    _tell(asyncio.run(report_of(folder)), args)
    return Exit.OK


def _tell(report: RunReport, args: Namespace) -> None:
    if args.md and args.md != STDOUT:
        _written(args.md, "\n".join(written.as_markdown(report)) + "\n", report)
    if args.html:
        from cockpit.core.report.page import as_page

        _written(args.html, as_page(report), report)
    if args.md == STDOUT:
        out_lines(written.as_markdown(report))
    if args.json:
        out_json(report.as_json())
    elif not args.md and not args.html:
        lines = written.as_lines(report)
        out_lines(lines if shows_unicode() else map(ascii_text, lines))


def _pack(folder: RunFolder, args: Namespace) -> None:
    from cockpit.engine.report.bundle import pack

    taken = pack(folder, args.bundle, args.log_mb << 20)
    say(f"written: {args.bundle}; {written.cut_text(taken) or 'no secrets were found'}")
    say(f"to open it: cockpit attach {quote(args.bundle)} (or report, logs, ps, stacks, metrics)")


def _written(target: str, text: str, report: RunReport) -> None:
    to_file(target, text)
    if told := written.cut(report):
        say(told)
