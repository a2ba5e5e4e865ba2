"""Real training in which now and then one rank is slow: a profile of each phase, by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cockpit.base.progress import ring
from tests.slowpool.cases import Launch
from tests.slowpool.watching import begun, left
from tests.waiting import PATIENCE_S, until

STEPS = 40
"""Of a phase: it takes a while until a profile begins."""

SETTLED = 3
"""Steps of a phase before it is ordered."""


def profiled(launch: Launch, folder: Path) -> Iterator[dict[str, Any]]:
    """Start a run and profile each of its phases: what ``cockpit profile --json`` says.

    :param folder: empty
    :raises AssertionError: it did not go on, or a profile is not whole
    """
    with left(launch, folder, STEPS) as name:
        for number in range(len(launch.phases)):
            began = time.monotonic()
            (folder / f"{number}.go").touch()
            start = _front(folder)
            until(lambda start=start: _front(folder) >= start + SETTLED, "the phase")  # type: ignore[misc]
            words = [sys.executable, "-m", "cockpit", "profile", name, "--kind", "torch", "--json"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
            told = json.loads(done.stdout.splitlines()[-1])
            inside = STEPS * number < min(told["steps"]) and max(told["steps"]) <= STEPS * (number + 1)
            until(partial(begun, folder, launch, number + 1), f"the end of phase {number}")
            yield {
                "phase": number,
                "finding": told["finding"],
                "inside": inside,
                "seconds": time.monotonic() - began,
                "load": os.getloadavg()[0],
            }


def _front(folder: Path) -> int:
    """The last step that all ranks have made, by their rings."""
    record = json.loads(next(folder.glob("nodes/*/*/*/record.json")).read_text())
    last = []
    for path in Path(record["rings"]).glob("*.ring"):
        steps = ring.read(path.read_bytes()).steps
        last.append(steps[-1].step if steps else 0)
    return min(last, default=0)
