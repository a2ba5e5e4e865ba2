"""Ending all that a demo started, whoever started it for the demo and however far it got away."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

from cockpit.node import procfs

TAG = "COCKPIT_DEMO"
"""Every process behind a demo's ssh servers carries this variable; its value is the demo's folder."""

ROUND_S = 2.0
"""Seconds between SIGTERM and SIGKILL, and from there to the next look."""


def carriers(folder: Path) -> list[procfs.Stat]:
    """Every process, but this one and zombies, that was started behind the servers of a demo."""
    return procfs.carrying({TAG: str(folder)})


def await_others(folder: Path, longest_s: float) -> None:
    """Wait until nothing runs on the nodes of a demo that its own cockpit has left, for so long at most."""
    deadline = time.monotonic() + longest_s
    while carriers(folder) and time.monotonic() < deadline:
        time.sleep(0.05)


def end(folder: Path) -> list[str]:
    """End every process of the demo in ``folder``, then remove the folder; blocks for seconds at most.

    :return: a sentence for each thing that is left all the same; normally none
    """
    found = carriers(folder)
    # The third round is for those that were forked during the second.
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        for process in found:
            procfs.send(process.pid, process.ticks, number)
        deadline = time.monotonic() + ROUND_S
        while any(procfs.alive(one.pid, one.ticks) for one in found) and time.monotonic() < deadline:
            time.sleep(0.02)
        found = carriers(folder)
        if not found:
            break
    left = [f"process {process.pid} ({process.name}) does not end" for process in found]
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        left.append(f"folder {folder} cannot be removed")
    return left
