"""Nodes without a hostfile over real ssh: from a list on stdin, with as many slots as each has GPUs."""

from __future__ import annotations

import pytest

from tests.cli.test_nodes import CUDA
from tests.lab.cockpits import ENV, Cockpits
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TWO_AND_ONE = "export FAKE_GPUS=$([ $(hostname) = node1 ] && echo 2 || echo 1)"
"""What the driver of each node counts."""


def run_listed(cockpits: Cockpits, *words: str) -> tuple[int, str, str]:
    """A run on what lists the nodes as ``scontrol show hostnames`` does; slots come from GPUs."""
    folder = cockpits.lab.home() / "cuda"
    cockpits.lab.write(None, folder / "sitecustomize.py", CUDA)
    setup = f"export PYTHONPATH={folder}; {TWO_AND_ONE}"
    sent = [word for name in ENV for word in ("--env", name)]
    where = ["--name", cockpits.name, "--plain", "--python", cockpits.lab.python, "--setup", setup]
    command = ["cockpit", "run", "-", *where, *sent, *words]
    lists = "printf '%s\\n' node1 node2 | \"$@\""
    done = cockpits.lab.run(["sh", "-c", lists, "sh", *command], env=ENV, timeout=PATIENCE_S)
    return done.returncode, done.stdout, done.stderr


def test_as_many_ranks_as_gpus_on_nodes_that_are_kept_and_found_again(cockpits: Cockpits) -> None:
    code, out, err = run_listed(cockpits, "--launcher", "command", "--", "sh", "-c", "echo I am $RANK")
    assert code == 0, err
    assert "cockpit: slots, one per GPU: node1 2, node2 1\n" in err
    assert "3 ranks on 2 nodes starting" in err
    assert all(f"I am {rank}" in out for rank in range(3))
    ends = {node: cockpits.count(node, "rank_exited") for node in cockpits.lab.nodes}
    assert ends == {"node1": 2, "node2": 1}
    again = cockpits.cockpit("attach", cockpits.name, "--plain")
    assert again.returncode == 0, again.stderr
    elsewhere = {"XDG_STATE_HOME": f"/tmp/elsewhere-{cockpits.name}"}
    found = cockpits.cockpit("ps", "-w", "node[1-2]", env=elsewhere)
    assert found.returncode == 0, found.stderr
    assert cockpits.name in found.stdout
    assert "node[1-2]" in found.stdout
