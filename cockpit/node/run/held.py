"""A supervisor in a step of a SLURM job: the step starts it here, and the agent hands it its launch spec.

Where SLURM tracks processes by cgroups, nothing outlives its step: a supervisor that the agent started would
end with the agent. So a step of its own, the same on all nodes, waits for a script in the run folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import List

from cockpit.base import record
from cockpit.base.shell import quote_posix


def offer(folder: str, words: List[str]) -> None:
    """Put the script into a run folder that starts its supervisor.

    :param words: what the script runs, with the launch spec on its stdin
    """
    path, spec, log = (
        os.path.join(folder, name) for name in (record.STEP_SH, record.SPEC, record.SUPERVISOR_LOG)
    )
    os.mkfifo(spec, 0o600)
    text = "exec %s <%s >>%s 2>&1\n" % (
        " ".join(map(quote_posix, words)),
        quote_posix(spec),
        quote_posix(log),
    )
    new = path + ".new"
    with open(new, "x") as file:
        file.write(text)
    os.rename(new, path)  # it is run as soon as it is there


def hand_over(folder: str, spec: bytes, timeout_s: float) -> bool:
    """Give the launch spec to the supervisor; False: the step has not started one in time.

    The spec has secrets in it: it goes through a pipe, never to disk.
    """
    deadline = time.monotonic() + timeout_s
    path = os.path.join(folder, record.SPEC)
    while True:
        try:
            number = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    try:
        os.set_blocking(number, True)
        with contextlib.suppress(BrokenPipeError):  # its log says more
            while spec:
                spec = spec[os.write(number, spec) :]
    finally:
        os.close(number)
        os.unlink(path)
    return True
