"""``cockpit compare A B``: what differs between two runs, then pace, loss, profiles, how each ended."""

from __future__ import annotations

import asyncio
import shutil

from cockpit.cli.compared_profiles import STDOUT, compare_profiles, is_profile, tell
from cockpit.cli.output import out_json, say
from cockpit.cli.parsing import Parser, add_flag
from cockpit.core.compare import words as written
from cockpit.engine.alike import last_good
from cockpit.engine.compare.gather import comparison_of
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError, Exit


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
        "a", metavar="RUN", help="a run's name, a part of it, last, or a bundle; RUN#N: profile N of a run"
    )
    made.add_argument(
        "b",
        metavar="RUN",
        nargs="?",
        help="a later run to compare with (default: RUN is compared with the last successful run of its "
        "command)",
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
    if is_profile(args.a) or is_profile(args.b or ""):
        compare_profiles(args, width)
        return Exit.OK
    made = asyncio.run(comparison_of(*_runs(args.a, args.b)))
    if args.json:
        out_json(made.as_json())
    tell(args, written.as_markdown(made), written.as_lines(made, width))
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
        what = "no earlier successful run of the same command"
        raise CockpitError(
            what, where=one.name, hint=f"name one: cockpit compare RUN {one.name}; see: cockpit ps"
        )
    say(f"comparing {one.name} with {good.name}, the last successful run of the same command")
    return good, one
