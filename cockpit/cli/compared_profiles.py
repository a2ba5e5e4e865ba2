"""``cockpit compare RUN#1 RUN#2``: two profiles of one run, or of two runs."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable

from cockpit.cli.output import out_json, out_lines, shows_unicode, to_file
from cockpit.core.compare.words import profile_lines, profile_markdown
from cockpit.core.text import ascii_text
from cockpit.engine.compare.gather import Taken, before_it, profiles_of
from cockpit.engine.profile.store import NUMBER
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError

STDOUT = "-"
"""In place of a file."""

_PROFILE = re.compile(rf"(.*)#({NUMBER})\Z", re.DOTALL)
"""``RUN#2``, and ``#2``: of the same run."""


def is_profile(word: str) -> bool:
    """Whether a word names a profile."""
    return _PROFILE.match(word) is not None


def compare_profiles(args: Namespace, width: int) -> None:
    """Print what differs between two profiles.

    :param width: columns of text
    :raises CockpitError: one is not here, or they have nothing in common
    """
    found = profiles_of(*_named(args.a, args.b))
    if args.json:
        out_json(found.as_json())
    tell(args, profile_markdown(found), profile_lines(found, width))


def _named(first: str, second: str | None) -> tuple[Taken, Taken]:
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


def tell(args: Namespace, md: list[str], lines: Iterable[str]) -> None:
    """Print what was compared as text, or as Markdown; nothing, if only JSON was asked for."""
    if args.md and args.md != STDOUT:
        to_file(args.md, "\n".join(md) + "\n")
    elif args.md:
        out_lines(md)
    elif not args.json:
        out_lines(lines if shows_unicode() else map(ascii_text, lines))
