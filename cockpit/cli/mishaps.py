"""Unforeseen errors: a fault in cockpit itself becomes one line, and a file with the traceback.

Tracebacks go where :mod:`cockpit.engine.traces` keeps them.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from contextlib import suppress

from cockpit.cli.output import say
from cockpit.engine import traces
from cockpit.errors import CockpitError

RAISE = "COCKPIT_TRACEBACK"
"""Set it to 1, and faults are raised as usual in Python, for debugging."""

_WHAT_TO_DO = {
    errno.ENOSPC: "free some space and try again; runs on nodes continue",
    errno.EDQUOT: "your quota is used up: free some space and try again; runs on nodes continue",
    errno.EROFS: "set XDG_STATE_HOME to a writable folder; runs on nodes continue",
    errno.EACCES: "check its owner and mode; cockpit where lists all folders in use",
    errno.EPERM: "check its owner and mode; cockpit where lists all folders in use",
    errno.EMFILE: "too many files are open: raise the limit with ulimit -n",
    errno.ENFILE: "too many files are open on this machine",
    errno.EIO: "the disk is failing: see dmesg; runs on nodes continue",
}


def wanted() -> bool:
    """Whether faults are raised as usual in Python."""
    return os.environ.get(RAISE) == "1"


def local_fault(error: BaseException) -> CockpitError | None:
    """What the system refused on this machine, and what to do about it; None: it is our fault."""
    if not isinstance(error, OSError) or error.errno not in _WHAT_TO_DO:
        return None
    where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    what = os.strerror(error.errno)
    hint = _WHAT_TO_DO[error.errno]
    return CockpitError(what[:1].lower() + what[1:], where=where or "this machine", hint=hint)


def tell(error: BaseException) -> None:
    """Say that cockpit failed, and where the traceback is."""
    kept = saved(error)
    text = f": {error}" if str(error) else ""
    with suppress(OSError):  # stderr takes nothing any more: a terminal that was closed
        say(f"internal error: {type(error).__name__}{text}")
        say(f"this is a bug; runs on nodes continue. To report it: {kept}")


def saved(error: BaseException) -> str:
    """Write a traceback to a file; return its path, or why there is none."""
    try:
        return str(traces.save(error))
    except OSError as refused:
        return f"the traceback could not be saved ({refused.strerror}); {RAISE}=1 prints it"


class _Log(logging.Handler):
    """Takes what libraries log, which would otherwise go to stderr as it is."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR:
            say(f"internal error in the background: {record.getMessage()}: {saved(error or _Logged(record))}")


class _Logged(Exception):
    """An error that was logged without an exception."""

    def __init__(self, record: logging.LogRecord) -> None:
        super().__init__(f"{record.name}: {record.getMessage()}")


def keep_tracebacks_off_the_terminal() -> None:
    """From now on, failures outside the main thread also become a line, or only a file."""

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            tell(args.exc_value)

    def ignored(args: sys.UnraisableHookArgs) -> None:
        # It did no harm (a transport collected after its loop), but Python would print it.
        if args.exc_value is not None:
            with suppress(Exception):  # at the very end of the interpreter, nothing can be relied on
                saved(args.exc_value)

    logging.getLogger().addHandler(_Log())
    threading.excepthook = thread_failed
    sys.unraisablehook = ignored
