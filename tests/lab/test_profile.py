"""Profiles over real ssh, on two nodes: each kind, twice in a row; and pulled cables."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from cockpit.base.profile import order
from cockpit.base.progress import ring
from cockpit.engine.profile.store import Store
from tests.lab.cockpits import ENV, EXAMPLES, Cockpits
from tests.needs import require_module
from tests.profile.training import SCRIPT
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.launch]

RANKS = {"node1": [0, 1], "node2": [2]}
SCRIPTS = {"deepspeed": "train_deepspeed.py", "torchrun": "train_torch.py"}


def rings(cockpits: Cockpits, node: str) -> list[bytes]:
    """Those of a node's ranks."""
    record = cockpits.node_folder(node) / "record.json"
    if not record.exists():
        return []
    folder = cockpits.lab.node_path(node, json.loads(record.read_text())["rings"])
    return [path.read_bytes() for path in folder.glob("*.ring")]


def steps(cockpits: Cockpits, node: str) -> dict[int, int]:
    """The last step of each rank of a node that has ended one."""
    found = {}
    for data in rings(cockpits, node):
        with suppress(ring.Malformed):  # it is being made
            one = ring.read(data)
            found.update({one.rank: one.steps[-1].step} if one.steps else {})
    return found


def step_on(cockpits: Cockpits, node: str) -> None:
    """Wait until all ranks of a node have ended some more steps."""
    before = steps(cockpits, node)

    def further() -> bool:
        now = steps(cockpits, node)
        return sorted(now) == RANKS[node] and all(now[rank] >= before.get(rank, 0) + 3 for rank in now)

    until(further, f"ranks of {node} step on")


def profiled(cockpits: Cockpits, *words: str, code: int = 0) -> dict[str, Any]:
    """Take one."""
    done = cockpits.cockpit("profile", cockpits.name, "--json", *words)
    assert done.returncode == code, done.stderr + done.stdout
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def start(cockpits: Cockpits, launcher: str, *program: str) -> None:
    """A run that nobody watches, whose ranks step."""
    words = ("--launcher", launcher, "--headless", "--probe", "on")
    nodes = "".join(f"{node} slots={len(ranks)}\n" for node, ranks in RANKS.items())
    null = subprocess.DEVNULL
    line = cockpits.words(*words, program=list(program), nodes=nodes)
    process = cockpits.lab.popen(line, env=ENV, stdin=null, stdout=null, stderr=null)
    for node, ranks in RANKS.items():
        until(partial(_started, cockpits, node, len(ranks)), f"ranks of {node} have started")
    process.kill()
    process.wait()
    step_on_all(cockpits)


def _started(cockpits: Cockpits, node: str, ranks: int) -> bool:
    return cockpits.count(node, "rank_started") >= ranks


def step_on_all(cockpits: Cockpits) -> None:
    for node in RANKS:
        step_on(cockpits, node)


def twice_in_a_row(cockpits: Cockpits) -> None:
    """Each kind; the ranks step on."""
    for number in (1, 2):
        told = profiled(cockpits, "--kind", "torch", "--steps", "3")
        assert (told["profile"], told["missing"], sorted(told["ranks"])) == (number, {}, ["0", "1", "2"])
        found = Store(cockpits.folder / "profiles").load(number)
        wanted = list(range(told["first"], told["first"] + 3))
        assert all(
            [step.step for step in one.summary.steps] == wanted
            for one in found.results.values()
            if one.summary is not None
        )
        assert found.before is not None
    for number in (3, 4):
        told = profiled(cockpits, "--kind", "cpu", "--seconds", "2")
        assert (told["profile"], told["missing"]) == (number, {})
        assert all(one["samples"] for one in told["taken"].values())
    step_on_all(cockpits)


def collected_and_stopped(cockpits: Cockpits) -> None:
    collected = cockpits.cockpit("collect", cockpits.name, "--json")
    assert {one["state"] for one in json.loads(collected.stdout)["reports"]} == {"collected"}
    assert cockpits.cockpit("stop", cockpits.name).returncode == 0
    assert not cockpits.left_over()


def as_a_job_of_others(cockpits: Cockpits) -> None:
    """It is found on its nodes, whoever started it."""
    nodes = cockpits.lab.home() / f"hostfile-{cockpits.name}"
    done = cockpits.cockpit("profile", str(nodes), "--seconds", "2", "--job", "1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["kind"], sorted(told["taken"]), told["missing"]) == ("cpu", ["0", "1", "2"], {})


def past_a_pulled_cable(cockpits: Cockpits, kind: str, number: int) -> None:
    """The rank behind it is missing, with the reason; its profile stops, and the next one includes it."""
    words = ["--kind", "torch", "--steps", "100"] if kind == "torch" else ["--kind", "cpu", "--seconds", "30"]
    profile = cockpits.lab.popen(["cockpit", "profile", cockpits.name, "--ranks", "0,2", *words])
    # Ranks that run alone get to these steps at different times.
    until(partial(_under_way, cockpits, "node2", kind), "the rank of node2 is profiled")
    cockpits.lab.link_down("node2")
    try:
        assert profile.wait(timeout=PATIENCE_S) == 3, kind
    finally:
        cockpits.lab.link_up("node2")
    found = Store(cockpits.folder / "profiles").load(number)
    assert list(found.missing) == [2], kind
    assert found.missing[2].startswith("connection lost"), kind
    step_on_all(cockpits)
    if kind == "torch":
        # Its number of steps has ended it: the trace is there.
        reports = cockpits.node_folder("node2") / "reports"
        until(lambda: list(reports.glob(f"*{found.id}*.gz")), "its trace")
    until(lambda: not _spied(cockpits, "node2"), "no py-spy is left")
    told = profiled(cockpits, "--kind", kind, *(["--steps", "2"] if kind == "torch" else ["--seconds", "1"]))
    assert told["missing"] == {}, kind


def test_twice_in_a_row_past_pulled_cables_and_as_a_job_of_others(cockpits: Cockpits) -> None:
    require_module("torch")
    start(cockpits, "command", str(SCRIPT), "alone", "0.1")
    twice_in_a_row(cockpits)
    past_a_pulled_cable(cockpits, "torch", number=5)
    past_a_pulled_cable(cockpits, "cpu", number=7)
    as_a_job_of_others(cockpits)
    collected_and_stopped(cockpits)


@pytest.mark.campaign
@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun"])
def test_twice_in_a_row_below_a_launcher(cockpits: Cockpits, launcher: str) -> None:
    require_module(launcher.replace("torchrun", "torch"))
    start(cockpits, launcher, str(EXAMPLES / SCRIPTS[launcher]), "--steps", "100000")
    twice_in_a_row(cockpits)
    collected_and_stopped(cockpits)


def _under_way(cockpits: Cockpits, node: str, kind: str) -> bool:
    """Whether a rank of a node is being profiled."""
    if kind == "cpu":
        return _spied(cockpits, node)
    return any(order.answer(one[ring.ORDER :]).state == "profiling" for one in rings(cockpits, node))


def _spied(cockpits: Cockpits, node: str) -> bool:
    """Whether there is a py-spy that records."""
    return any("record" in one.cmdline for one in cockpits.lab.processes(node))
