"""A rank that hangs, for benchmarks: a deep stack, some threads, and nothing to do."""

from __future__ import annotations

import threading
import time

DEPTH, THREADS = 40, 5


def descend(left: int) -> None:
    """Go down to where nothing happens any more."""
    if left:
        descend(left - 1)
    else:
        time.sleep(3600)


def main() -> None:
    """Hang, with as many threads as a rank of a training job has."""
    for _ in range(THREADS):
        threading.Thread(target=descend, args=(DEPTH // 4,), daemon=True).start()
    print("hangs", flush=True)
    descend(DEPTH)


if __name__ == "__main__":
    main()
