"""Many nodes at once: more than one sshd lets in, than one process may keep waiting, than fit on a screen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def test_sixty_four_nodes(make_lab: Callable[[int], Lab]) -> None:
    cockpits = Cockpits(make_lab(64), "many")
    program = ["/bin/sh", "-c", 'echo "rank $RANK of $WORLD_SIZE"; echo same']
    done = cockpits.run("--launcher", "command", program=program, nodes="node[1-64] slots=1\n", timeout=500)
    assert done.returncode == 0, done.stderr
    assert "64 ranks on 64 nodes" in done.stderr
    assert "ranks 0-63 exited 0" in done.stderr
    for rank in range(64):
        assert f"node{rank + 1}:{rank} " in done.stdout
        assert f"| rank {rank} of 64\n" in done.stdout
    cockpits.assert_spools_equal()
    assert not cockpits.left_over()
