"""A node that loses power in the middle of a run, and comes back without it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.lab.cockpits import EXAMPLES, Cockpits
from tests.lab.lab import Lab

pytestmark = pytest.mark.lab


def test_a_rebooted_node_has_lost_its_ranks(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(2)
    cockpits = Cockpits(lab, "reboot")
    program = [str(EXAMPLES / "train_plain.py"), "--steps", "100000"]
    process = cockpits.start(
        "--launcher", "command", "--failure-wait", "1", program=program, stderr=subprocess.PIPE
    )
    lab.kill_node("node2")
    lab.start_node("node2")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert "node2: link lost, the run goes on" in said
    assert "first to fail: rank 2 on node2, lost: no run record" in said
    assert not cockpits.left_over()
