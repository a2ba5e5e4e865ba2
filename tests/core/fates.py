"""What became of ranks, for tests, by the words that people have for it."""

from __future__ import annotations

import signal

from cockpit.core.stacks.fate import End, Fate


def end(why: str) -> End | None:
    """``exited 3``, ``killed by SIGKILL``, ``lost: why``, ``gone``, ``starting``; else nobody has it."""
    first, _, rest = why.partition(" ")
    if not why:
        return None
    if first == "exited":
        return End(Fate.EXITED, code=int(rest))
    if first == "killed":
        return End(Fate.KILLED, signal=signal.Signals[rest.rpartition(" ")[2]])
    if first == "lost:":
        return End(Fate.LOST, why=rest)
    return End({"gone": Fate.GONE, "gone:": Fate.GONE, "starting": Fate.UNSTARTED}.get(first, Fate.UNSEEN))
