"""The home screen where SLURM is: jobs of the user, and what can be watched of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.lab.slurm import Slurm, without_sshd
from tests.lab.terminals import Terminal, terminal
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TRAINS = (
    "import time\nfor step in range(1, 100000):\n    print('step', step, flush=True)\n    time.sleep(0.1)\n"
)
SCRIPT = """#!/bin/sh
#SBATCH -N2
#SBATCH --ntasks-per-node=2
#SBATCH --job-name=llama
export WORLD_SIZE=4
srun --overlap sh -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec /usr/bin/python3 train.py'
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Two nodes on which no sshd listens."""
    with without_sshd() as cluster:
        yield cluster


@pytest.fixture
def job(slurm: Slurm) -> Iterator[str]:
    """A job of which cockpit knows nothing: four ranks that train."""
    home = slurm.lab.home()
    slurm.lab.write(None, home / "train.py", TRAINS)
    slurm.lab.write(None, home / "job.sh", SCRIPT)
    number = slurm.run("sbatch", "--parsable", "job.sh").strip()
    try:
        # All four: who is not there when cockpit attaches is not looked for later.
        until(lambda: len(_training(slurm)) == 4, "four ranks train")
        yield number
    finally:
        slurm.cancel(number)


def _training(slurm: Slurm) -> list[int]:
    found = [process for node in slurm.lab.nodes for process in slurm.lab.processes(node)]
    return [process.pid for process in found if process.cmdline[-1:] == ("train.py",)]


@pytest.fixture
def home(slurm: Slurm, job: str) -> Iterator[Terminal]:
    with terminal(slurm.lab, ["cockpit"], "xterm-256color", slurm.env) as made:
        made.resize(140, 45)
        yield made


def shows(home: Terminal, pattern: str) -> None:
    until(lambda: re.search(pattern, home.text), f"{pattern!r} in {home.text[-3000:]!r}")


def test_a_job_of_ones_own_is_listed_and_watched(slurm: Slurm, home: Terminal, job: str) -> None:
    waits = slurm.run("sbatch", "--parsable", "--job-name=waits", "job.sh").strip()
    try:
        shows(home, rf"{job}\s+llama")
        shows(home, rf"{waits}\s+waits")
        home.type("a")
        shows(home, r"ranks 4/4")
        before = len(home.text)
        home.type("q")
        until(lambda: "your jobs" in home.text[before:], "home again")
    finally:
        slurm.cancel(waits)
    assert slurm.state(job) == "RUNNING"
    home.type("q")
    assert home.end() == 0
