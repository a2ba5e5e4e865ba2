"""The manual pages in ``docs/man``, written from the parsers of the verbs by ``make docs``."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from argparse_manpage.manpage import Manpage

from cockpit.cli.main import VERBS
from cockpit.cli.parsing import HELP_ALL, wrapped

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "man"

WIDTH = 72
"""Columns of what is not filled; the page indents it."""

_STATUS = ".SH EXIT STATUS\nSee \\fBcockpit help exit\\-codes\\fR.\n"


def pages() -> Iterator[tuple[str, str]]:
    """The name of each page's file, and its text."""
    yield "cockpit.1", _program()
    for verb, summary in VERBS.items():
        yield f"cockpit-{verb}.1", _of_verb(verb, summary)


def write() -> None:
    """Write all of them, and remove what is no page any more."""
    FOLDER.mkdir(exist_ok=True)
    written = dict(pages())
    for path in FOLDER.glob("*.1"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text)


def _head(name: str, summary: str) -> str:
    head = f'.TH "{name.upper()}" 1 "" "cockpit" "User Commands"\n.nh\n'
    return f"{head}.SH NAME\n{_safe(name)} \\- {_safe(summary)}\n"


def _program() -> str:
    verbs = "".join(f".TP\n\\fBcockpit\\-{verb}\\fR(1)\n{_safe(text)}\n" for verb, text in VERBS.items())
    see = ",\n".join(f"\\fBcockpit\\-{verb}\\fR(1)" for verb in VERBS)
    return (
        _head("cockpit", "a terminal cockpit for multi-node training runs")
        + ".SH SYNOPSIS\n.B cockpit\nVERB [options]\n.br\n.B cockpit help\nVERB|TOPIC\n.br\n.B cockpit\n"
        + "VERB \\fB\\-\\-help\\-all\\fR\n.br\n.B cockpit \\-\\-version\n"
        + f".SH VERBS\n{verbs}"
        + ".SH DOCUMENTATION\n\\fBcockpit help topics\\fR lists the pages that come with the program.\n"
        + _STATUS
        + f".SH SEE ALSO\n{see}\n"
    )


def _of_verb(verb: str, summary: str) -> str:
    parser = importlib.import_module(f"cockpit.cli.verbs.{verb}").parser()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # which knows no terminal's width
    parser._option_string_actions[HELP_ALL].help = argparse.SUPPRESS  # a page has them all
    parser._manpage = []  # where Manpage looks for sections of its own
    made = str(Manpage(parser))
    body = made[made.index(".SH SYNOPSIS") :]
    text, found, notes = body.partition(".SH COMMENTS\n")
    text = re.sub(r"\n{2,}", "\n", text).replace("\\,", "").replace("\\/", "")
    see = ".SH SEE ALSO\n\\fBcockpit\\fR(1)\n"
    end = _notes(notes) if found else ""
    return _ascii(_head(f"cockpit-{verb}", summary) + text.rstrip() + "\n" + end + _STATUS + see)


def _notes(text: str) -> str:
    """What the help has at its end: examples first, often."""
    title = "EXAMPLES" if text.startswith("examples:\n") else "NOTES"
    lines = wrapped(text.removeprefix("examples:\n").rstrip(), WIDTH).split("\n")
    # A line that begins with one of these would be a command.
    kept = "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)
    return f".SH {title}\n.nf\n{kept}\n.fi\n"


def _ascii(text: str) -> str:
    return re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", text)


def _safe(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")
