"""Memory of a process that stays: what glibc keeps of it, and when Python looks for cycles in it."""

from __future__ import annotations

import gc
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_LARGE = 128 << 10

_USUAL = gc.get_threshold()
_AT_START = 100_000


def give_back() -> None:
    """Have large pieces of memory go back to the system as soon as they are free; does nothing without glibc.

    By itself glibc takes them from the heaps of threads once one of them was freed, of which each then keeps
    up to 64 MB: a process of weeks grows. That a threshold is set ends this (mallopt(3), M_MMAP_THRESHOLD).
    """
    import ctypes  # for processes that stay; others save its time

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


def start() -> None:
    """Have the collector of cycles wait: a start makes little garbage, and each look for it takes time."""
    gc.set_threshold(_AT_START)


def settle() -> None:
    """The start is over: most of what there is stays, and is not looked through again.

    With 1,024 ranks a key would otherwise wait 90 ms for a full collection.
    """
    gc.freeze()
    gc.set_threshold(*_USUAL)
