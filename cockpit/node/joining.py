"""Waiting for a thread that may never come back."""

from __future__ import annotations

import threading

_TURNS = 10


def ended(thread: threading.Thread, seconds: float) -> bool:
    """Wait for the end of a thread for so long, in turns; return whether it has ended.

    A process that was stopped, or gets no processor, would else find that all the time has passed in which
    its other thread could not run either.
    """
    for _ in range(_TURNS):
        thread.join(seconds / _TURNS)
        if not thread.is_alive():
            return True
    return False
