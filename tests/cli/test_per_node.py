"""Programs that start their ranks themselves: once on each node, and none of a rank's variables is set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import require_module
from tests.waiting import PATIENCE_S, until

TELLS = """
import json, os, sys
print(json.dumps({"node": os.environ["NODE_RANK"], "of": os.environ["NNODES"], "names": sorted(os.environ)}))
"""

SPAWNS = """
import os, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    dist.barrier()
    open(f"{rank}.ready", "w").close()
    if rank:
        time.sleep(600)
    dist.barrier()

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""


def run(cockpit: tuple[str, ...], folder: Path, nodes: str, *words: str) -> list[str]:
    launched = (
        "--launcher",
        "per-node",
        "--python",
        sys.executable,
        "--name",
        "once",
        "--headless",
        "--node-dir",
        str(folder),
    )
    return [*cockpit, "run", "-w", nodes, *launched, *words, "--", "program.py"]


def test_no_variable_says_that_it_is_a_rank(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    (tmp_path / "program.py").write_text(TELLS)
    ours = dict.fromkeys(("LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID"), "1")
    words = run(quick_cockpit, tmp_path, "localhost,127.0.0.1:4")
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, **ours}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "once: 2 programs on 2 nodes starting" in done.stderr
    said = [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines()]
    assert sorted((each["node"], each["of"]) for each in said) == [("0", "2"), ("1", "2")]
    for each in said:
        assert {"MASTER_ADDR", "MASTER_PORT", "COCKPIT_RUN"} <= set(each["names"])
        given = {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "COCKPIT_RANK", *ours} & set(each["names"])
        assert given == set()


def test_nothing_is_stopped_for_what_is_inferred(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    for words in (("--on-hang", "stop"), ("--probe", "on")):
        done = subprocess.run(
            run(quick_cockpit, tmp_path, "localhost", *words), capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "per-node" in done.stderr


@pytest.mark.slow
@pytest.mark.launch
def test_the_ranks_that_a_program_has_spawned(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    require_module("torch")
    (tmp_path / "program.py").write_text(SPAWNS)
    process = subprocess.Popen(run(quick_cockpit, tmp_path, "localhost"), cwd=tmp_path)
    try:
        until(lambda: len(list(tmp_path.glob("*.ready"))) == 2, "both ranks are there")
        asked = [*quick_cockpit, "stacks", "once", "--json"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "rank 1 did not join barrier" in done.stdout
    finally:
        subprocess.run([*quick_cockpit, "stop", "once", "--now"], capture_output=True, check=False)
        assert process.wait(PATIENCE_S) == 1
