"""Put the terminal back in order even if the app is killed with SIGKILL, which it cannot do itself."""

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
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l"  # nor of pastes, focus and size
    "\x1b[<u\x1b[0m"  # ordinary keys, no colours
)
"""Undoes what Textual's driver asks of a terminal (``textual/drivers/linux_driver.py``)."""


@contextmanager
def kept_terminal() -> Iterator[None]:
    """A process beside us mends the terminal, if we end within without having done so."""
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
        with suppress(OSError):  # it ended before us: killed by somebody
            os.write(its, b"well")
        os.close(its)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _keep(pipe: int, number: int, before: list[Any]) -> None:
    """Wait for a word or the end of the other process; never returns."""
    try:
        os.setpgid(0, 0)
        # Not in the foreground any more, it may touch the terminal only with this ignored.
        for each in (signal.SIGTTOU, signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        if not os.read(pipe, 4):
            os.write(number, SANE.encode())
            termios.tcsetattr(number, termios.TCSADRAIN, before)
    finally:
        os._exit(0)
