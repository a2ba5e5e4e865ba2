"""Wait for a condition, never for a time."""

from __future__ import annotations

import asyncio
import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

PATIENCE_S = 180
"""Longest wait: far more than anything takes, also where six launches share two slow cores."""


def until(condition: Callable[[], T], what: str = "", timeout: float = PATIENCE_S) -> T:
    """Poll ``condition`` until it gives something true, and return that.

    :raises AssertionError: it did not within ``timeout`` seconds
    """
    deadline = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {timeout} s: {what or condition}")
        # A condition that starts a program must not take the processor from what it waits for.
        time.sleep(min(max(0.02, 2 * (now - began)), 0.5))


async def soon(condition: Callable[[], T], what: str = "", timeout: float = PATIENCE_S) -> T:
    """As :func:`until`, while the event loop goes on.

    :raises AssertionError: it did not within ``timeout`` seconds
    """
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what or condition}")
        await asyncio.sleep(0.01)
    return value


def gone(process: psutil.Process) -> bool:
    """Whether a process is no more."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def until_removed(place: Path) -> None:
    """Remove a folder that running programs may write into: one may put a file there after it was emptied."""

    def removed() -> bool:
        try:
            shutil.rmtree(place)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
                raise
        return not place.exists()

    until(removed, f"{place} is removed")
