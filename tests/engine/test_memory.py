"""A real rank of a foreign job that fills its memory, under a made-up limit, and ends with a traceback.

The other one says that its loss is NaN.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cockpit.base import verbs
from cockpit.base.events import Filling, MemorySample, Sample
from cockpit.core.run.memory import Pace, Watch
from cockpit.core.run.states import Run
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.run.foreign import session_of
from cockpit.engine.run.session import Session
from tests.engine.watched import Watched
from tests.waiting import PATIENCE_S, until

LIMIT = 1 << 30
RATE = 4 << 20
MOST = 300 << 20

RANK = """
import os, sys, time
held, began = [], time.monotonic()
print("begun", flush=True)
step = 0
while not os.path.exists(sys.argv[2]):
    wanted = min(%d, (time.monotonic() - began) * %d) if os.environ["RANK"] == "1" else 0
    if len(held) << 20 < wanted:
        held.append(b"x" * (1 << 20))
    else:
        time.sleep(0.02 if held else 0.4)
        step += 1
        if os.environ["RANK"] == "0":
            print("step %%d loss nan" %% step, flush=True)
if held:
    raise RuntimeError("no room for a batch")
""" % (MOST, RATE)


class Small(Watch):
    """Believes a trend of seconds; all that these ranks hold has the limit that is made up here."""

    def __init__(self) -> None:
        super().__init__(Pace(period_s=0.5, windows=(9,), late=0.0, start_s=0.0, ahead=1000.0))

    def take(self, at: float, node: str, sample: Sample, run: Run) -> Iterator[Filling]:
        held = [rank.held_bytes for rank in sample.ranks.values() if rank.held_bytes is not None]
        ranks = tuple(sample.ranks)
        memory = (MemorySample("/job_7/step_0", sum(held), LIMIT, ranks),) if sample.memory else ()
        return super().take(at, node, replace(sample, memory=memory), run)


def measured_often(session: Session) -> None:
    """Have it measured ten times a second."""
    measured = session.source.measured

    def often(entry: NodeEntry) -> verbs.Samples | None:
        request = measured(entry)
        return None if request is None else replace(request, interval=0.1)

    session.source.measured = often  # type: ignore[method-assign]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[str]:
    """Two ranks, the second of which allocates; a word of their command lines."""
    tag = f"memory-{os.getpid()}"
    (tmp_path / "rank.py").write_text(RANK)
    rank = f"RANK=$n {sys.executable} rank.py {tag} end"
    text = f"for n in 0 1; do {rank} >out-$n 2>&1 & done; wait"
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": tag}
    launcher = subprocess.Popen(["/bin/bash", "-c", text], cwd=tmp_path, env=env, start_new_session=True)

    def begun() -> bool:
        files = [tmp_path / f"out-{number}" for number in "01"]
        return all(file.exists() and file.read_bytes() for file in files)

    try:
        until(begun, "two ranks")
        yield tag
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


async def filling(folder: RunFolder) -> Filling:
    """What is told first of memory, once something is told of the loss too."""
    session = session_of(folder)
    measured_often(session)
    session._noticing.memory = Small()
    await session.rejoin()
    session.watch()

    async def told() -> Filling:
        while True:
            for _, fact in next(iter(session.model.nodes.values())).filling.values():
                if session.model.notices:
                    return fact
            await session.wait()

    try:
        return await asyncio.wait_for(told(), PATIENCE_S)
    finally:
        await session.close()


@pytest.mark.slow
def test_memory_that_a_rank_fills(job: str, quick_cockpit: tuple[str, ...], tmp_path: Path) -> None:
    first = Watched(["attach", "--match", job, "--name", "filled", "--headless", "--json"], tmp_path)
    first.event("sample")
    first.process.kill()
    first.process.wait()
    folder = RunFolder.find("filled")
    fact = asyncio.run(filling(folder))
    assert fact.full_at is not None
    assert set(fact.ranks) == {1}
    assert fact.bytes_s == pytest.approx(RATE, rel=0.5)
    assert any(isinstance(event.fact, Filling) for event in RunFolder(folder.path).journal())

    ps = [*quick_cockpit, "ps", "filled"]
    text = subprocess.run(ps, capture_output=True, check=True, timeout=PATIENCE_S, text=True).stdout
    assert "is full in about" in text
    assert "rank 1 grows by" in text
    assert "  cockpit logs filled: what was printed then" in text
    told = json.loads(
        subprocess.run([*ps, "--json"], capture_output=True, check=True, timeout=PATIENCE_S).stdout
    )
    loss, found = told["findings"]
    assert (loss["id"], loss["severity"], loss["certainty"]) == ("loss", "error", "sure")
    assert loss["what"].startswith("the loss is NaN since step ")
    assert (found["id"], found["ranks"], found["severity"]) == ("memory_filling", "1", "warning")
    assert "limit of SLURM step 7.0" in found["what"]

    collect = [*quick_cockpit, "collect", "filled", "out-*", "--json"]
    told = json.loads(subprocess.run(collect, capture_output=True, check=True, timeout=PATIENCE_S).stdout)
    assert {each["path"] for each in told["reports"]} == {str(tmp_path / f"out-{rank}") for rank in "01"}
    for each in told["reports"]:
        assert (Path(told["folder"]) / each["file"]).read_text().startswith("begun\n")
    refused = subprocess.run([*collect, "typo"], capture_output=True, check=False, timeout=PATIENCE_S)
    assert (refused.returncode, json.loads(refused.stdout)["reports"][0]["state"]) == (3, "collected")

    second = Watched(["attach", "filled", "--headless", "--json"], tmp_path)
    assert second.event("notice")["id"] == "loss"
    (tmp_path / "end").touch()
    gone = second.event("over")["gone"]
    assert (gone["what"], gone["nodes"]) == ("rank 1 is gone; its log ends with an error", found["nodes"])
    assert (gone["detail"], gone["certainty"]) == ("RuntimeError: no room for a batch", "likely")
    assert second.process.wait(PATIENCE_S) == 0
    text = subprocess.run(ps, capture_output=True, check=True, timeout=PATIENCE_S, text=True).stdout
    assert "rank 1 is gone; its log ends with an error: RuntimeError: no room for a batch" in text
    assert "(when the run ended)" in text
