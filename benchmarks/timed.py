"""Run a command and print what it cost, as JSON: wall, cpu (user + system of its whole process tree), code.

``python -I -S timed.py OUTPUT COMMAND…``: its standard output goes to the file OUTPUT; ``-``: it is read
here, and ``first`` and ``last`` are the seconds after which its first and its last bytes came. A program of
its own, so that it can run as the lab's user and its only children are what is measured.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any


def main() -> None:
    """Measure one command; what it wrote to stderr comes along, and ``ended``, in unix seconds."""
    output, command = sys.argv[1], sys.argv[2:]
    read_end, write_end = os.pipe()
    shown, showing = os.pipe()
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    if output == "-":
        actions.append((os.POSIX_SPAWN_DUP2, showing, 1))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    actions += [
        (os.POSIX_SPAWN_DUP2, write_end, 2),
        (os.POSIX_SPAWN_CLOSE, read_end),
    ]
    started = time.monotonic()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
    os.close(write_end)
    os.close(showing)
    came: list[float] = []

    def read() -> None:
        while os.read(shown, 1 << 16):
            came.append(time.monotonic() - started)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(read_end, "rb") as stderr:
        words = stderr.read()
    _, status, usage = os.wait4(pid, 0)
    reader.join()
    answer = {
        "first": came[0] if came else 0.0,
        "last": came[-1] if came else 0.0,
        "wall": time.monotonic() - started,
        "cpu": usage.ru_utime + usage.ru_stime,
        "ended": time.time(),
        "code": os.waitstatus_to_exitcode(status),
        "stderr": words.decode(errors="replace"),
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
