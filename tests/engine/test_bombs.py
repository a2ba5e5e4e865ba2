"""No answer of a node takes more memory than there is for it, nor an honest one from another node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.bombs import BOMBS, RANKS

PEAK_MB = 300
ROOT = Path(__file__).parents[2]

WHY = {
    "chain": "too much: a stack of more than 4000 frames",
    "chains": "too much: stacks of more than 34 MB",
    "threads": "too much: stacks of more than 34 MB",
    "odd": "something that is not a dump",
    "nested": "something that is not a dump: maximum recursion depth",
    "spaces": "too much: a line of more than",
    "claims": "too much: a line of more than",
    "endless": "a dump of rank 0, which was not requested",
}
"""What is said of the node; of one that is not here, nothing: what it sends is allowed."""
ALIKE = ("threads",)
"""Refused for the same as ``chains``, which hold more."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.campaign] * (one in ALIKE)) for one in BOMBS]
)
def test_a_bomb_is_the_line_of_its_node(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.bombs", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["peak_mb"] <= PEAK_MB
    assert RANKS in found["ranks"]
    assert found["loaded"] == found["ranks"]
    if name in WHY:
        assert list(found["silent"]) == ["bad"]
        assert f"sent {WHY[name]}" in found["silent"]["bad"]
    else:
        assert found["silent"] == {}
        assert found["ranks"] == list(range(RANKS + 1))
