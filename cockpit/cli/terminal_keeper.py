"""Restore the terminal even if the app is killed with SIGKILL, when it cannot do so itself."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SANE = (
    "\x1b[?1049l"  # the ordinary screen
    "\x1b[?25h"  # the cursor
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l"  # no mouse reports
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l"  # nor reports of pastes, focus and size
    "\x1b[<u\x1b[0m"  # ordinary keys, no colours
)
"""Undoes what Textual's driver asks of a terminal (``textual/drivers/linux_driver.py``)."""


@contextmanager
def kept_terminal() -> Iterator[None]:
    """Have a second process restore the terminal if we end within the block without doing so."""
    number = sys.stdout.fileno()
    before = termios.tcgetattr(number)
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(its)
        _keep(ours, number, before)
    os.close(ours)
    try:
        yield
    finally:
        with suppress(OSError):  # it ended before us: somebody killed it
            os.write(its, b"well")
        os.close(its)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _keep(pipe: int, number: int, before: list[Any]) -> None:
    """Wait for a message from the other process, or its end; never returns."""
    try:
        os.setpgid(0, 0)
        # No longer in the foreground, it may touch the terminal only with this ignored.
        for each in (signal.SIGTTOU, signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        if not os.read(pipe, 4):
            os.write(number, SANE.encode())
            termios.tcsetattr(number, termios.TCSADRAIN, before)
    finally:
        os._exit(0)
