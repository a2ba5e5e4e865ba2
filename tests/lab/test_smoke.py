"""One run on two real nodes over real ssh: what ``make test`` has of the lab."""

from __future__ import annotations

import pytest

from tests.lab.cockpits import Cockpits

pytestmark = pytest.mark.lab


def test_any_program_one_a_slot(cockpits: Cockpits) -> None:
    program = ["/bin/sh", "-c", 'echo "I am $RANK of $WORLD_SIZE, $LOCAL_RANK here"; echo same']
    done = cockpits.run("--launcher", "command", program=program)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"I am {rank} of 4, {rank % 2} here" in done.stdout
    assert "same" in done.stdout
