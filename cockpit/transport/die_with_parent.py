"""Starts a program that ends with the process that has started this one, however that ends (prctl(2))."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Become the program; returns 1 if the process that wanted it is gone.

    The words are the number of that process, then the program with its own words.
    """
    wanted_by, *words = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != int(wanted_by):
        return 1
    os.execvp(words[0], words)


if __name__ == "__main__":
    sys.exit(main())
