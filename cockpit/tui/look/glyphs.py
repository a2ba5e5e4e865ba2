"""Signs for states, so that no state is shown by colour alone; and whether a terminal can draw them."""

from __future__ import annotations

import locale
import os
import signal
from dataclasses import dataclass, fields

from cockpit.core.run.model import Rank, RankState


@dataclass(frozen=True)
class Glyphs:
    """The signs of one kind of terminal.

    :param ascii: only ASCII is drawn
    :param look: of what is no state but wants to be looked at
    :param held: of a rank that waits for others, while the run stands still
    """

    ascii: bool
    waiting: str
    starting: str
    running: str
    done: str
    failed: str
    killed: str
    lost: str
    look: str
    held: str

    def of(self, rank: Rank) -> str:
        """The sign of a rank's state."""
        return str(getattr(self, state_name(rank)))


UNICODE = Glyphs(False, "·", "◌", "●", "✓", "✖", "■", "?", "▲", "○")
ASCII = Glyphs(True, ".", "~", "o", "+", "X", "#", "?", "!", "w")

STATES = tuple(field.name for field in fields(Glyphs) if field.name not in ("ascii", "look", "held"))
"""The states that have a sign."""


def state_name(rank: Rank) -> str:
    """The state by its name in themes: ``waiting``, ``running``, ``done``, ``failed``, ``killed`` …"""
    if rank.state is RankState.EXITED:
        return "failed" if rank.failed else "done"
    return "lost" if rank.state is RankState.GONE else str(rank.state.value)


def stopped(rank: Rank) -> bool:
    """Whether it was ended as a stop of the run ends ranks: it has not failed by itself."""
    ends = signal.SIGTERM, signal.SIGKILL
    return rank.state is RankState.KILLED and rank.signal in ends and not rank.oom_kills


def choose(ascii_only: bool | str = "auto") -> Glyphs:
    """The signs this terminal can draw.

    :param ascii_only: True, False, or ``auto``: by the character set of the locale
    """
    if ascii_only == "auto":
        charset = locale.nl_langinfo(locale.CODESET) if hasattr(locale, "nl_langinfo") else "UTF-8"
        ascii_only = "utf" not in charset.lower() or os.environ.get("TERM") == "linux"
    return ASCII if ascii_only else UNICODE
