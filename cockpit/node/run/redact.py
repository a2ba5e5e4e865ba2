"""Environment variables as they may be shown: without secrets, and bounded.

A rank's wrapper needs this in a child of its own, so it imports little.
"""

from __future__ import annotations

from cockpit.base import secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME_LIMIT = 4096
"""Characters of a name; a variable with a longer name is left out."""

VALUE_LIMIT = 4096
"""Characters of a value that are shown."""

TOTAL_LIMIT = 256 << 10
"""Bytes of names and values that are sent: an answer is one frame, in which a byte may take six."""

_EACH = 32
"""Bytes that a variable counts for besides its name and value: many small ones make a long answer too."""


def told(variables: list[bytes]) -> dict[str, Any]:
    """``environ`` {name: value}, by name, and ``left_out``: how many more there are.

    :param variables: ``NAME=value`` each, as the kernel has them; anything else is ignored
    """
    found = []
    for each in variables:
        name, is_variable, value = each.decode("utf-8", "surrogateescape").partition("=")
        if is_variable:
            found.append((name, value))
    known = secret.values(dict(found))
    chosen: dict[str, str] = {}
    room = TOTAL_LIMIT
    for name, value in sorted(found):
        if len(name) > NAME_LIMIT:
            continue
        shown = _harmless(name, value, known)
        room -= weight(name, shown)
        if room < 0:
            break
        chosen[name] = shown
    return {"environ": chosen, "left_out": len(dict(found)) - len(chosen)}


def weight(name: str, value: str) -> int:
    """Bytes of :data:`TOTAL_LIMIT` that a variable takes as it is sent.

    :raises ValueError: it holds what no environment can
    """
    return len((name + value).encode("utf-8", "surrogateescape")) + _EACH


def _harmless(name: str, value: str, known: list[str]) -> str:
    """A value without secrets and of bounded length."""
    # Of a long one more is looked at than is shown: what is recognised by its end is not cut in two.
    shown = secret.variable(name, value[: 2 * VALUE_LIMIT], known)
    more = len(value) - 2 * VALUE_LIMIT
    if secret.is_secret(name):
        return secret.hidden(value)
    if len(shown) > VALUE_LIMIT or more > 0:
        return "%s … (+%d characters)" % (shown[:VALUE_LIMIT], len(shown) - VALUE_LIMIT + max(0, more))
    return shown
