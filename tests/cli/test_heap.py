"""Memory that is free goes back to the system, also where threads had it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from cockpit.cli import heap
from tests.weeks.memory import resident

if sys.argv[1] == "yes":
    heap.give_back()

def reads():
    # One is freed before the next one is there, as of files that are read whole.
    for size in (4 << 20, 16 << 20, 24 << 20):
        data = bytearray(size)
        del data
    small = [bytes(700) for _ in range(20_000)]
    del small

before = resident()
for _ in range(12):
    thread = threading.Thread(target=reads)
    thread.start()
    thread.join()
big = [None] * 12
def holds(place):
    big[place] = bytearray(20 << 20)
    gate.wait()
    big[place] = None
    done.wait()
gate, done = threading.Barrier(12), threading.Event()
threads = [threading.Thread(target=holds, args=(place,), daemon=True) for place in range(12)]
for thread in threads:
    thread.start()
while any(one is not None for one in big) or gate.n_waiting:
    pass
print(resident() - before)
"""


def grown(given_back: str) -> int:
    command = [sys.executable, "-c", PROGRAM, given_back]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_large_pieces_of_threads_go_back() -> None:
    assert grown("yes") < 8 << 20
