"""A node that loses power in the middle of a run, and comes back without it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.lab import Lab
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

REBOOTED = r"node2 was rebooted at \d\d:\d\d:\d\d; its run folder in /tmp is gone"

HANGS = "import time\nprint('ready', flush=True)\nwhile True:\n    time.sleep(1000)\n"


def reboot(lab: Lab, node: str) -> None:
    lab.kill_node(node)
    lab.start_node(node)


def test_a_rebooted_node_has_lost_its_ranks(make_lab: Callable[[int], Lab]) -> None:
    """Of a run that is watched, and of one that nobody watches, whose ranks have stood still."""
    lab = make_lab(2)
    night, cockpits = Cockpits(lab, "night"), Cockpits(lab, "reboot")
    lab.write(None, lab.home() / "cockpit.toml", "[evidence]\nidle = 1.0\n")
    lab.write(None, lab.home() / "hangs.py", HANGS)
    process = night.start("--launcher", "command", "--no-watch", program=[str(lab.home() / "hangs.py")])
    process.kill()
    process.wait()
    words = ("--launcher", "command", "--failure-wait", "1", "--no-preflight")
    process = cockpits.start(*words, program=cockpits.steps(), stderr=subprocess.PIPE)
    until(lambda: night.count("node1", "evidence"), "node1 has kept evidence")
    reboot(lab, "node2")

    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, said
    assert "node2: connection lost (the run continues)" in said
    assert re.search(f"first to fail: rank 2 on node2, lost: {REBOOTED}", said), said
    assert not cockpits.left_over()

    # The other node has kept what its ranks were doing, and of this one there is none.
    said = night.cockpit("ps", "night").stdout
    assert re.search(REBOOTED, said), said
    said = night.cockpit("attach", "night", "--plain", "--give-up", "5").stderr
    assert " (the ranks of node1 had made no progress" in said, said
    assert re.search(rf"no evidence from node2 \({REBOOTED}\)", said), said
