"""How a terminal says that somebody is called: its bell, and a notification of the desktop it is on.

Terminals know one of two sequences, OSC 9 (iTerm2, kitty, WezTerm, Ghostty, Windows Terminal) and OSC 777
(urxvt, foot, VTE); who knows neither ignores them, except those that are left out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cockpit.core.text import harmless, one_line

if TYPE_CHECKING:
    from cockpit.core.calls.calls import Call

BELL = "\a"
_ST = "\x1b\\"
_WIDTH = 200
"""Characters of a notification."""


def alert(call: Call, environ: Mapping[str, str]) -> str:
    """What to write to a terminal.

    :param environ: the variables that say which terminal it is
    """
    return BELL + _notification(call, environ)


def _notification(call: Call, environ: Mapping[str, str]) -> str:
    term = environ.get("TERM", "dumb")
    inside = "tmux" if environ.get("TMUX") else ""
    # The console of Linux prints what it does not know; screen passes nothing on.
    if not inside and term.startswith(("dumb", "linux", "screen", "vt", "cons")):
        return ""
    if not inside and (term.startswith(("rxvt", "foot")) or environ.get("VTE_VERSION")):
        title, body = "cockpit", _text(call)
        sequence = f"\x1b]777;notify;{title};{body}{_ST}"
    else:
        # What begins with a number is a command to some terminals.
        sequence = f"\x1b]9;cockpit: {_text(call)}{_ST}"
    if inside:
        # tmux hands on what is wrapped like this, if its option allow-passthrough is on.
        return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}{_ST}"
    return sequence


def _text(call: Call) -> str:
    text = ": ".join((call.title, *call.lines[:1])) if call.kind != "stall" else call.title
    return harmless(one_line(text, limit=_WIDTH)).replace(";", ",")
