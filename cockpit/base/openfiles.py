"""How many files this process may have open: more than an ordinary account's 1,024, for us only.

The limit is inherited, but training programs must keep the one that their user has set: ``select`` breaks
beyond 1,023, and code that closes every possible descriptor takes long. So a process that raises it restores
the old limit for a child that leads to such a program.
"""

from __future__ import annotations

import contextlib
import resource

ENOUGH = 1 << 16
"""Raising the limit beyond this helps nobody."""

_before: tuple[int, int] | None = None


def raise_limit() -> int:
    """Raise this process's soft limit of open files to its hard one; return what it is now.

    If that is not permitted, the limit stays as it is. A second call changes nothing.
    """
    global _before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _before is None:
        _before = soft, hard
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ENOUGH if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # a filter of system calls, or a kernel with a lower bound of its own
        return soft
    return wanted


def theirs() -> int | None:
    """The soft limit that training programs get; None: unlimited."""
    soft = (_before or resource.getrlimit(resource.RLIMIT_NOFILE))[0]
    return None if soft == resource.RLIM_INFINITY else soft


def give_back(pid: int) -> None:
    """Give our child the limit that this process had before raising its own.

    Call it before the child can start anything: while it waits for its first input.
    """
    if _before is not None:
        with contextlib.suppress(OSError):  # it has already ended, which shows elsewhere
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _before)
