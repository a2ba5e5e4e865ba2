"""Nobody watches: what ``attach`` shows afterwards, of real runs on two nodes that are both this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cockpit.node import procfs
from cockpit.node.run.probing import SHARED_MEMORY, is_memory
from tests.needs import require_module
from tests.waiting import PATIENCE_S, until, until_removed

COCKPIT = [sys.executable, "-m", "cockpit"]
RUN = "night"
NODES = ("na", "nb")

PROGRAM = """
import os, sys, time
from torch.distributed import distributed_c10d

def load():
    while not os.path.exists("go"):
        time.sleep(0.3)
    sys.exit(3)

if os.environ["RANK"] == "1":
    load()
distributed_c10d.barrier()
"""

BARRIER = """
import time

def barrier():
    time.sleep(1000)
"""
"""As torch's from outside: a file of that name, a function of that name, and a main thread that sleeps."""


REAL = """
import time, torch, torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def load_batch():
    time.sleep(1000)

for step in range(1000):
    if step == 30 and dist.get_rank() == 1:
        load_batch()
    model(torch.ones(4, 2)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    time.sleep(0.01)
"""


class Night:
    """A run that its cockpit leaves alone."""

    def __init__(self, folder: Path, cockpit: tuple[str, ...]) -> None:
        self.folder = folder
        self._cockpit = cockpit

    def begin(self, settings: str = "", *program: str) -> None:
        """Start it, and kill the cockpit once all ranks have started.

        :param program: with one rank a node; not given: ``train.py`` with two
        """
        (self.folder / "cockpit.toml").write_text(settings)
        slots = 1 if program else 2
        (self.folder / "hostfile").write_text("".join(f"{name} slots={slots}\n" for name in NODES))
        words = ["run", "hostfile", "--transport", "local", "--launcher", "command", "--name", RUN]
        words += ["--node-dir", str(self.folder), "--no-preflight", "--headless"]
        words += ["--python", sys.executable, "--", *(program or ["./program.sh"])]
        with subprocess.Popen(
            [*COCKPIT, *words], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as cockpit:
            try:
                for name in NODES:
                    self.started(name, slots)
            finally:
                cockpit.kill()

    def started(self, name: str, count: int) -> None:
        """Wait until the ranks of a node have started."""
        until(lambda: len(self.events(name, "rank_started")) == count, f"ranks of {name} started")

    def node(self, name: str) -> Path:
        """The run folder of a node."""
        return self.folder / f"cockpit-{os.geteuid()}" / RUN / name

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        """What a node has recorded."""
        path = self.node(name) / "events.jsonl"
        # What is after the last line's end is just being written.
        lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["e"] == kind]

    def kept(self, name: str, why: str) -> None:
        """Wait until a node has kept something for this reason."""
        until(lambda: [one for one in self.events(name, "evidence") if one["why"] == why], f"{why} on {name}")

    def kill(self, name: str) -> None:
        """All of it on a node ends at once, and nobody writes that down."""
        try:
            facts = json.loads((self.node(name) / "record.json").read_text())["supervisor"]
        except FileNotFoundError:
            return
        procfs.send(facts["pid"], facts["ticks"], signal.SIGKILL)
        until(lambda: not procfs.alive(facts["pid"], facts["ticks"]), "the supervisor is dead")
        for process in procfs.tagged(RUN, name, str(self.node(name))):
            procfs.send(process.pid, process.ticks, signal.SIGKILL)

    def cockpit(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another verb."""
        done = subprocess.run(
            [*self._cockpit, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_cockpit: tuple[str, ...]) -> Iterator[Night]:
    """A run on two nodes with two ranks each; rank 1 is somewhere else than the others."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    torch = tmp_path / "site-packages" / "torch" / "distributed"
    torch.mkdir(parents=True)
    for file, text in ((torch.parent / "__init__.py", ""), (torch / "__init__.py", "")):
        file.write_text(text)
    (torch / "distributed_c10d.py").write_text(BARRIER)
    (tmp_path / "train.py").write_text(PROGRAM)
    program = tmp_path / "program.sh"
    place = tmp_path / "site-packages"
    program.write_text(f"#!/bin/sh\nPYTHONPATH={place} exec {sys.executable} -S train.py\n")
    program.chmod(0o700)
    made = Night(tmp_path, quick_cockpit)
    yield made
    for name in NODES:
        made.kill(name)


@pytest.mark.slow
def test_a_stall_and_then_all_of_it_is_killed(night: Night) -> None:
    night.begin("[evidence]\nidle = 1.0\n")
    for name in NODES:
        night.kept(name, "stall")
    for name in NODES:
        night.kill(name)
    said = night.cockpit("attach", RUN, "--plain").stderr
    lines = [each for each in said.splitlines() if "snapshot of" in each]
    assert len(lines) == 1, said
    (line,) = lines
    assert "the ranks of na,nb had made no progress" in line
    assert "rank 1" in line
    listed = json.loads(night.cockpit("stacks", RUN, "--list", "--json").stdout)
    assert [one["by_nodes"] for one in listed] == [line.partition("(")[2].partition(")")[0]]
    shown = night.cockpit("stacks", listed[0]["path"])
    # On a busy machine it may have been looked at twice by now.
    assert re.search(r"rank 1 (is not in barrier, where 3 ranks are|did not join barrier)", shown.stdout)
    assert "at train.py:7 load" in shown.stdout
    assert "taken by its nodes" in shown.stderr
    assert "rank 1" in night.cockpit("stacks", RUN, "--list").stdout
    assert "snapshot of" in night.cockpit("ps", RUN).stdout
    (spooled,) = (night.folder / "state").glob(f"cockpit/runs/{RUN}/evidence")
    for place in (spooled, night.node("na") / "evidence"):
        until_removed(place)
    told = night.cockpit("ps", RUN).stderr
    assert "cockpit: na: its run record names evidence that doesn't exist" in told
    assert "nb" not in told


@pytest.mark.slow
def test_a_failed_rank_and_a_node_that_was_rebooted(night: Night) -> None:
    night.begin()
    (night.folder / "go").touch()
    night.kept("na", "failure")
    for name in NODES:
        night.kill(name)
    until_removed(night.node("nb"))
    said = night.cockpit("attach", RUN, "--plain", "--give-up", "5").stderr
    (line,) = [each for each in said.splitlines() if "snapshot of" in each]
    assert "(rank 1 failed): rank 1 exited 3" in line
    (none,) = [each for each in said.splitlines() if "no evidence from" in each]
    assert "no evidence from nb (" in none
    assert "no run record" in none


@pytest.mark.slow
@pytest.mark.launch
def test_with_torch_its_steps_and_recorders_are_kept(night: Night) -> None:
    require_module("torch")
    (night.folder / "real.py").write_text(REAL)
    night.begin("[evidence]\nafter = 5.0\nidle = 1000.0\n", sys.executable, "real.py")
    for name in NODES:
        night.kept(name, "stall")
    for name in NODES:
        night.kill(name)
    said = night.cockpit("attach", RUN, "--plain").stderr
    (line,) = [each for each in said.splitlines() if "snapshot of" in each]
    assert "rank 1 is not in all_reduce" in line
    (one,) = json.loads(night.cockpit("stacks", RUN, "--list", "--json").stdout)
    assert "load_batch" in one["verdict"]["where"]
    head = json.loads((Path(one["path"]) / "snapshot.json").read_text())
    assert head["collectives"]["missing"] == "1"
    assert {done["step"] for done in head["progress"]["ranks"].values()} == {30}


# Its steps

STUB = Path(__file__).parents[1] / "probe" / "stub"
STEPS = 1300
"""More than two rings hold."""

STEPPING = f"""
import os, time
import torch
made = torch.optim.SGD()
for step in range({STEPS}):
    made.step()
    # Until it is said that nobody watches; and later a pause.
    while step == 10 and not os.path.exists("alone"):
        time.sleep(0.05)
    time.sleep(1.0 if step == 700 else 0.01)
"""


@pytest.mark.slow
@pytest.mark.skipif(not is_memory(SHARED_MEMORY), reason="no /dev/shm here")
def test_all_steps_of_a_run_that_nobody_watched(night: Night) -> None:
    (night.folder / "train.py").write_text(STEPPING)
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
