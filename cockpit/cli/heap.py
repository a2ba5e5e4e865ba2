"""What glibc keeps of memory that is free."""

from __future__ import annotations

from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_LARGE = 128 << 10


def give_back() -> None:
    """Have large pieces of memory go back to the system as soon as they are free; does nothing without glibc.

    By itself glibc takes them from the heaps of threads once one of them was freed, of which each then keeps
    up to 64 MB: a process of weeks grows. That a threshold is set ends this (mallopt(3), M_MMAP_THRESHOLD).
    """
    import ctypes  # for processes that stay; others save its time

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)
