"""Steps that nobody watched: who attaches after the run has ended sees all of them."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from cockpit.node.run.probing import SHARED_MEMORY, is_memory
from tests.engine.test_evidence import NODES, RUN, Night, night
from tests.waiting import until

__all__ = ["night"]

STUB = Path(__file__).parents[1] / "probe" / "stub"
STEPS = 1300
"""More than two rings hold."""

TRAIN = f"""
import os, time
import torch
made = torch.optim.SGD()
for step in range({STEPS}):
    made.step()
    # Until it is said that nobody watches; and later a pause.
    while step == 10 and not os.path.exists("alone"):
        time.sleep(0.05)
    time.sleep(1.0 if step == 700 else 0.003)
"""


@pytest.mark.skipif(not is_memory(SHARED_MEMORY), reason="no /dev/shm here")
def test_all_steps_of_a_run_that_nobody_watched(night: Night) -> None:
    (night.folder / "train.py").write_text(TRAIN)
    (night.folder / "steps.sh").write_text(
        f"#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{STUB} exec {sys.executable} train.py\n"
    )
    (night.folder / "steps.sh").chmod(0o700)
    night.begin("", "./steps.sh")
    (night.folder / "alone").touch()
    for name in NODES:
        until(lambda name=name: night.events(name, "ended"), f"{name} has ended")  # type: ignore[misc]
    assert night.cockpit("attach", RUN, "--headless").returncode == 0
    told = json.loads(night.cockpit("metrics", RUN, "--json", "--no-connect").stdout)
    assert sum(row["steps"] for row in told["steps"]) == STEPS
    assert {row["ranks"] for row in told["steps"]} == {2}
    assert told["steps"][-1]["step"] == STEPS
    gaps = [(after["t"] - row["t"], row["step"]) for row, after in pairwise(told["steps"])]
    assert any(gap >= 1.0 and 600 <= step <= 701 for gap, step in gaps), "the pause is there"
