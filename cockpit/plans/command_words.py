"""Words of command lines: split as a shell would, and shown as a person would type them."""

from __future__ import annotations

import re
import shlex

from cockpit.base.record import ENV_DIR
from cockpit.base.shell import quote
from cockpit.errors import CockpitError

DIR = "@COCKPIT_DIR@"
"""Placeholder for the run folder in an argv; scripts have ``"$COCKPIT_DIR"`` there."""

SECRET = "@COCKPIT_SECRET:%s@"
"""Placeholder for a secret in an argv, by the name of its variable."""

_PLACEHOLDER = re.compile(SECRET % "([A-Za-z_][A-Za-z0-9_]*)")


def split(text: str, option: str) -> tuple[str, ...]:
    """The words of an option's value, as a shell would split it.

    :raises CockpitError: a quote is never closed
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise CockpitError(f"cannot be split into words: {error}", where=option) from None


def render_word(word: str) -> str:
    """One word of an argv, placeholders in it as ``"$COCKPIT_DIR"``, and secrets by their variables."""
    # Every second piece is the name of a variable.
    pieces = _PLACEHOLDER.split(word.replace(DIR, SECRET % ENV_DIR))
    shown = (f'"${piece}"' if at % 2 else quote(piece) for at, piece in enumerate(pieces) if piece)
    return "".join(shown) or "''"
