"""How much memory this process takes."""

from __future__ import annotations

import os


def resident() -> int:
    """Bytes of it that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
