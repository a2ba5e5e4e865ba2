"""What this process has open."""

from __future__ import annotations

import os
from contextlib import suppress


def open_files() -> set[tuple[str, str]]:
    """The number of each file, and what it is: a path, or ``pipe:[…]``."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one with which the folder was read
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found
