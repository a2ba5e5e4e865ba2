"""Real ranks that tell no steps: their collectives show how far they are, else their main threads."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.cli.verbs import HERE, Verbs
from tests.waiting import until

SPINS = """
import os, time
print("begun", flush=True)
while os.environ["RANK"] == "0":
    pass
time.sleep(600)
"""

EXCHANGES = """
import os, time
import torch
import torch.distributed as dist
import model  # the probe begins at the first import after torch
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(4))
works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3 * (rank != 1))]
print("begun", flush=True)
time.sleep(600)
"""
"""Nothing here makes an optimizer's step. Rank 1 misses the last three."""


@contextmanager
def launched(verbs: Verbs, program: str) -> Iterator[None]:
    """Two ranks of a program, once both have begun; killed at the end."""
    work = verbs.work
    (work / "hosts").write_text("localhost slots=2\n")
    (work / "program.py").write_text(program)
    (work / "model.py").touch()
    where = ["--cwd", str(work), "--node-dir", str(work / "nodes"), "--name", "silent"]
    words = [*HERE, *where, str(work / "hosts"), "--", sys.executable, "program.py"]
    process = verbs.begin("run", "--headless", *words, env={"OMP_NUM_THREADS": "1"})

    def begun() -> bool:
        assert process.poll() is None
        logs = [log.read_text() for log in work.glob("nodes/*/silent/*/rank-*.log")]
        return sum("begun" in log for log in logs) == 2

    try:
        until(begun, "both ranks have begun")
        yield
    finally:
        verbs.call("stop", "silent", "--now")
        process.kill()
        process.communicate()


def told(verbs: Verbs) -> list[dict[str, Any]]:
    """The progress of all ranks."""
    ranks = json.loads(verbs.call("ps", "silent", "--json").out)["ranks"]
    assert [rank["step"] for rank in ranks] == [None, None]
    return [rank["progress"] for rank in ranks]


@pytest.mark.slow
@pytest.mark.launch
def test_without_steps_or_recorders_main_threads_tell(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path, quick_cockpit)
    with launched(verbs, SPINS):

        def seen() -> bool:
            found = told(verbs)
            assert all(one["collectives"] is one["behind_collectives"] is None for one in found)
            return [(one["source"], one["at_least"]) for one in found] == [("cpu", False), ("cpu", True)]

        until(seen, "rank 0 runs and rank 1 sleeps")
        text = verbs.call("ps", "silent").out
        assert "no step is known for ranks 0-1: AGE is since their main threads last ran" in text
        assert re.search(r"\s>\d", text)


@pytest.mark.slow
@pytest.mark.launch
def test_without_steps_recorders_tell_who_is_behind(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    """The server is there because the probe started it; the hook never sees a step."""
    needs.require_module("torch")
    verbs = Verbs(tmp_path / "state", tmp_path, quick_cockpit)
    with launched(verbs, EXCHANGES):

        def seen() -> bool:
            found = told(verbs)
            return [one["source"] for one in found] == ["recorder", "recorder"]

        until(seen, "both ranks' recorders are reported")
        first, second = told(verbs)
        assert (first["behind_collectives"], second["behind_collectives"]) == (0, 3)
        assert first["collectives"] == second["collectives"] + 3 >= 23
        assert second["age_s"] >= first["age_s"] > 0
        text = verbs.call("ps", "silent").out
        assert "~3 collectives" in text
        assert "no step is known for ranks 0-1: AGE is since their last collective" in text
        assert "as of " in text
        assert "(flight recorders)" in text
