"""Profiles of a node's ranks, from the order to the summary, and what ends them early."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record, verbs
from cockpit.base.answers import WindowAnswer
from cockpit.base.gate import plain, read
from cockpit.base.profile.summary import RankProfile
from cockpit.base.shared_fields import Target
from cockpit.node.calls import Call
from cockpit.node.profile import window
from cockpit.node.profile.profile import profile
from cockpit.node.run import probing
from tests.needs import require_module
from tests.node import runs
from tests.node.conftest import Launch
from tests.node.runs import command, program
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not probing.is_memory(probing.SHARED_MEMORY), reason="no /dev/shm here"),
]

TRAIN = """
import os, sys, time
import torch
folder = os.environ["COCKPIT_DIR"]
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
data = torch.utils.data.DataLoader(torch.ones(1 << 16, 8), batch_size=2)
made = torch.optim.SGD(model.parameters())
for batch in data:
    model(batch).sum().backward()
    made.step()
    made.zero_grad()
    while os.path.exists(folder + "/hang"):
        time.sleep(0.02)
    if os.path.exists(folder + "/end"):
        break
    time.sleep(0.02)
print("through", flush=True)
"""


@pytest.fixture
def training(launch: Launch, tmp_path: Path, pyz: bytes, monkeypatch: pytest.MonkeyPatch) -> runs.Run:
    """Two ranks that make steps, with the real torch; the node code is beside them, as an agent has it."""
    require_module("torch")
    archive = tmp_path / "node.pyz"
    archive.write_bytes(pyz)
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    (tmp_path / "train.py").write_text(TRAIN)
    rank = program(tmp_path / "rank", f"exec {sys.executable} {tmp_path}/train.py\n")
    run = launch(command(2, rank), probe="auto", env={"OMP_NUM_THREADS": "1"})
    until(lambda: sum(bool(one.step) for one in met(run)) == 2, "both ranks make steps", timeout=150)
    return run


def targets(run: runs.Run) -> tuple[Target, ...]:
    found = []
    for rank in (0, 1):
        facts = json.loads((run.folder / record.rank_start(rank)).read_text())
        found.append(Target(rank, facts["pid"], facts["ticks"]))
    return tuple(found)


def met(run: runs.Run) -> list[Any]:
    """What a profile of its ranks would meet."""
    try:
        request = verbs.Window(str(run.folder), targets(run), "torch")
    except (OSError, ValueError):
        return []
    return list(read(WindowAnswer, window.window(called(request))).ranks)


def called(request: Any, hear: Callable[[dict[str, Any], bytes], None] = lambda head, data: None) -> Call:
    return Call({"id": 1, **plain(request)}, b"", hear)


class Asked:
    """A request for a profile, in a thread of its own."""

    def __init__(self, run: runs.Run, ahead: int = 8, **facts: Any) -> None:
        self.items: list[tuple[dict[str, Any], bytes]] = []
        front = max(one.step for one in met(run))
        asked = {"id": "one-1", "first": front + ahead, "steps": 3, "deadline_s": 60.0, **facts}
        self.request = verbs.Profile(str(run.folder), targets(run), "torch", **asked)
        self.call = called(self.request, lambda head, data: self.items.append((head["item"], data)))
        self.thread = threading.Thread(target=profile, args=(self.call,), daemon=True)
        self.thread.start()

    def states(self, rank: int) -> list[str]:
        return [item["state"] for item, _ in self.items if item["rank"] == rank]

    def over(self) -> list[tuple[dict[str, Any], bytes]]:
        """The last item of each rank, once it is answered."""
        self.thread.join(120)
        assert not self.thread.is_alive()
        return [next(one for one in reversed(self.items) if one[0]["rank"] == rank) for rank in (0, 1)]


def test_the_same_steps_of_all_ranks(training: runs.Run) -> None:
    asked = Asked(training)
    first = asked.request.first
    for item, payload in asked.over():
        rank = item["rank"]
        assert item["state"] == "done", item
        assert item["file"] == f"{training.run}.node1.rank-{rank}.torch.step-{first}.one-1.trace.json.gz"
        path = training.folder / record.REPORTS / item["file"]
        assert path.stat().st_size == item["size"]
        assert path.stat().st_mode & 0o777 == 0o600
        trace = json.loads(gzip.decompress(path.read_bytes()))
        named = {one["name"] for one in trace["traceEvents"] if one["name"].startswith("ProfilerStep#")}
        assert named == {f"ProfilerStep#{step}" for step in range(first, first + 3)}
        assert trace["cockpit"]["run"] == training.run
        assert (trace["cockpit"]["node"], trace["cockpit"]["rank"]) == ("node1", rank)
        found = read(RankProfile, json.loads(zlib.decompress(payload)))
        assert [step.step for step in found.steps] == [first, first + 1, first + 2]
        assert found.file == item["file"]
        assert all(len(step.phases) == 4 and min(step.phases) >= 0 for step in found.steps)
        assert found.before is not None
        assert found.before > 0.02
        assert found.stop_s > 0
        assert found.warm_s > 0
        assert found.began / 1e9 == pytest.approx(item["t"])
    order = [state for state in asked.states(0) if state not in ("stopping", "writing")]
    assert order[-3:] == ["written", "reading", "done"]
    assert sorted(os.listdir(training.folder / record.REPORTS)) == sorted(
        item["file"] for item, _ in asked.over()
    )
    again = Asked(training, id="two-2", shapes=False, stack=True)
    assert [item["state"] for item, _ in again.over()] == ["done", "done"]
    (training.folder / "end").touch()
    training.ended()
    assert [training.log(rank) for rank in (0, 1)] == ["through\n", "through\n"]
