"""``cockpit compare A B``: what differs between two runs, then pace, loss, profiles, how each ended."""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING

from cockpit.cli.output import out_json, out_lines, say, shows_unicode, to_file
from cockpit.cli.parsing import Parser, add_flag
from cockpit.core.compare import words as written
from cockpit.core.text import ascii_text
from cockpit.engine.compare.gather import Taken, before_it, comparison_of, profiles_of
from cockpit.engine.profile.store import NUMBER
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.last_good import last_good
from cockpit.errors import CockpitError, Exit

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

STDOUT = "-"
"""In place of a file."""

_PROFILE = re.compile(rf"(.*)#({NUMBER})\Z", re.DOTALL)
"""``RUN#2``, and ``#2``: of the same run."""


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "compare",
        "Compare two runs: first what differs (arguments, code, ranks, nodes, packages, variables, …),\n"
        "then pace, loss by step, phases, profiles, how each ended. No node is asked.",
        "examples:\n"
        "  cockpit compare last                 what changed since the same command last worked\n"
        "  cockpit compare otter heron          otter before, heron after\n"
        "  cockpit compare run.tar.gz last      a run that somebody sent, and the newest here\n"
        "  cockpit compare last#1 last#2        two profiles: shares, operations, collectives\n"
        "  cockpit compare last --md            for a ticket, at most 60 lines\n"
        "  cockpit compare otter heron --json | jq .differences",
    )
    made.add_argument(
        "a", metavar="A", help="a run's name, a part of it, last, or a bundle; RUN#N: profile N of a run"
    )
    made.add_argument(
        "b",
        metavar="B",
        nargs="?",
        help="what A is compared with, and comes after it; without it A itself comes after the last run of "
        "the same command that ended well",
    )
    made.add_argument(
        "--md", metavar="FILE", nargs="?", const=STDOUT, help="Markdown, to FILE or else to stdout"
    )
    add_flag(made, "--json", "one JSON object")
    return made


def main(words: list[str]) -> int:
    """Print the comparison, or write it to a file."""
    args = parser().parse_args(words)
    width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
    if _PROFILE.match(args.a) or _PROFILE.match(args.b or ""):
        found = profiles_of(*_profiles(args.a, args.b))
        _tell(args, found.as_json(), written.profile_markdown(found), written.profile_lines(found, width))
        return Exit.OK
    made = asyncio.run(comparison_of(*_runs(args.a, args.b)))
    _tell(args, made.as_json(), written.as_markdown(made), written.as_lines(made, width))
    return Exit.OK


def _runs(first: str, second: str | None) -> tuple[RunFolder, RunFolder]:
    """Which run comes before, and which after.

    :raises CockpitError: there is no such run, or none that ended well
    """
    one = RunFolder.find(first)
    if second is not None:
        other = RunFolder.find(second)
        if other.path == one.path:
            raise CockpitError("both are the same run", where=one.name, hint="see: cockpit ps")
        return one, other
    good = last_good(one)
    if good is None:
        what = "no earlier run of the same command that ended well is known here"
        raise CockpitError(
            what, where=one.name, hint=f"name one: cockpit compare RUN {one.name}; see: cockpit ps"
        )
    say(f"{one.name} beside {good.name}, the last run of the same command that ended well")
    return good, one


def _profiles(first: str, second: str | None) -> tuple[Taken, Taken]:
    """Which profile comes before, and which after.

    :raises CockpitError: only one is named as a profile, or there is no such run
    """
    one = _taken(first, None)
    if second is None:
        return before_it(one), one
    return one, _taken(second, one.folder)


def _taken(word: str, same: RunFolder | None) -> Taken:
    """:param same: the run that ``#N`` alone is of"""
    found = _PROFILE.match(word)
    if found is None:
        what = "a profile can be compared only with a profile"
        raise CockpitError(what, where=word, hint=f"name it: {word}#N; see: cockpit profile show {word}")
    if not found[1] and same is None:
        raise CockpitError("of which run?", where=word, hint=f"cockpit compare RUN{word}")
    folder = same if not found[1] and same is not None else RunFolder.find(found[1])
    return Taken(folder, int(found[2]))


def _tell(args: Namespace, told: object, md: list[str], lines: Iterable[str]) -> None:
    if args.md and args.md != STDOUT:
        to_file(args.md, "\n".join(md) + "\n")
    if args.md == STDOUT:
        out_lines(md)
    if args.json:
        out_json(told)
    elif not args.md:
        out_lines(lines if shows_unicode() else map(ascii_text, lines))
