"""Pieces of argument parsing that several verbs share."""

from __future__ import annotations

import argparse
import re
import sys
from typing import NoReturn

from cockpit.cli.output import say
from cockpit.errors import Exit


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit 2, and whose help keeps line breaks."""

    def __init__(self, verb: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"cockpit {verb}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        say(f"{message}; see: {self.prog} --help")
        sys.exit(Exit.USAGE)


def split_program(words: list[str]) -> tuple[list[str], list[str]]:
    """Options before the first ``--``, the program and its arguments after it."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def add_link_options(parser: argparse.ArgumentParser) -> None:
    """How to reach nodes."""
    group = parser.add_argument_group("links")
    group.add_argument(
        "--transport",
        choices=("auto", "ssh", "local"),
        default="auto",
        help="auto: this machine's own names need no ssh",
    )
    group.add_argument(
        "-F", "--ssh-config", metavar="FILE", default="", help="ssh configuration in place of ~/.ssh/config"
    )


def seconds(text: str) -> float:
    """A number of seconds from the command line, not negative.

    :raises argparse.ArgumentTypeError: it is not
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return value


def rank_set(text: str) -> set[int]:
    """A rank set from the command line, like ``0-3,7``.

    :raises argparse.ArgumentTypeError: it is not one
    """
    from ClusterShell.RangeSet import RangeSet, RangeSetParseError  # 30 ms that other verbs save

    from cockpit.base.gate import RANK_LIMIT

    try:
        # A typing error must not fill the memory.
        if any(int(number) >= RANK_LIMIT for number in re.findall(r"\d+", text)):
            raise ValueError(f"no rank is {RANK_LIMIT:,} or more")
        ranks = {int(rank) for rank in RangeSet(text)}
        if min(ranks) < 0:
            raise ValueError("ranks begin with 0")
    except (RangeSetParseError, ValueError) as error:
        what = f"not a rank set: {text[:60]!r} (like 0-3,7): {str(error)[:120]}"
        raise argparse.ArgumentTypeError(what) from None
    return ranks
