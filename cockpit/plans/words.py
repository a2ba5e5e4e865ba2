"""Words for other programs, as a person writes them into one option."""

from __future__ import annotations

import shlex

from cockpit.errors import CockpitError


def split(text: str, option: str) -> tuple[str, ...]:
    """The words of an option's value, as a shell would split it.

    :raises CockpitError: a quote is never closed
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise CockpitError(f"cannot be split into words: {error}", where=option) from None
