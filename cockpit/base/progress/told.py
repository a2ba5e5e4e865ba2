"""What a probe says about itself: its file has these fields, and so has the run record."""

from __future__ import annotations

from typing import Tuple

from cockpit.base.gate import PID, RANK, SENTENCE, WORD, Definition, ListOf, bound


class Told(Definition):
    """The probe in a rank's process.

    :param server: why torch's server is not there; empty: it is
    :param handlers: of the server
    :param steps: why no steps are noted; empty: they are
    """

    rank: int = bound(RANK)
    pid: int = bound(PID)
    torch: str = bound(WORD, "")
    server: str = bound(SENTENCE, "")
    handlers: Tuple[str, ...] = bound(ListOf(WORD, 100), ())
    steps: str = bound(SENTENCE, "")
