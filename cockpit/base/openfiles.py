"""How many files this process may have open: more than an ordinary account's 1,024, for us alone.

The limit is inherited, and programs that train must not get another one than their user has set: ``select``
breaks beyond 1,023, and what closes every possible descriptor takes long. Whoever raises it gives a child
that leads to such a program the old one back.
"""

from __future__ import annotations

import contextlib
import resource

ENOUGH = 1 << 16
"""A limit beyond which raising it helps nobody."""

_before: tuple[int, int] | None = None


def raise_limit() -> int:
    """Raise this process's soft limit of open files to its hard one; return what it is now.

    Where that is not permitted the limit stays as it is. A second call changes nothing.
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


def give_back(pid: int) -> None:
    """Give a child of ours the limit that this process had before it raised its own.

    Call it before the child can start anything: while it waits for its first input.
    """
    if _before is not None:
        with contextlib.suppress(OSError):  # it has ended already, which shows elsewhere
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _before)
