"""How much memory this process takes."""

from __future__ import annotations

import ctypes
import gc
import os


def resident() -> int:
    """Bytes of it that are in memory, less what nothing uses and the C library keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
