"""A job that others started: from the command to the full screen, and what watching it costs its node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.here import start, wait
from benchmarks.measure import FOLDER, BenchmarkError
from benchmarks.table import Level, Result
from tests.lab.lab import Lab
from tests.lab.terminals import Terminal

NODES, SLOTS = 16, 4
ROUNDS = 3
WINDOWS, WINDOW_S = 2, 60.0
SETTLE_S = 5.0
_HUNG = FOLDER / "hung.py"
_STEPS = """
import time
for step in range(10**6):
    print("step", step, "loss", 1 / (1 + step), flush=True)
    time.sleep(0.5)
"""
_LAUNCHER = """
import os, subprocess, sys
folder, ranks, program = sys.argv[1], int(sys.argv[2]), sys.argv[3]
job = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
children = [
    subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        stdout=open("%s/rank-%d.log" % (folder, rank), "w"),
    )
    for rank in range(ranks)
]
for child in children:
    child.wait()
"""


def run() -> Result:
    """Measure from the command to the full screen; needs the lab."""
    with Lab(nodes=NODES) as lab, _job(lab):
        hostfile = lab.home() / "hostfile"
        lab.write(None, hostfile, "".join(f"{node} slots={SLOTS}\n" for node in lab.nodes))
        _attached(lab, hostfile, 0)  # files into the cache
        found = [_attached(lab, hostfile, number + 1) for number in range(ROUNDS)]
    return Result(
        "attach",
        f"a job of others on {NODES} nodes with {SLOTS} ranks each: from the command to the full screen",
        {"cockpit": "cockpit attach HOSTFILE, seen for the first time, on a terminal of 140 x 45"},
        levels=[
            Level("the job is found, and has a name", [named for named, _ in found], "s"),
            Level("all ranks, and what they print, are on the screen", [full for _, full in found], "s"),
        ],
        notes=["Nodes, their sshds and the client share the cores, so wall is the sum of both ends' work."],
    )


def cost() -> Result:
    """Measure what watching costs a node, in windows one after the other; needs nothing."""
    with tempfile.TemporaryDirectory(prefix="cockpit-bench-") as name:
        job = subprocess.Popen(
            [sys.executable, "-c", _LAUNCHER, name, str(SLOTS), _STEPS], start_new_session=True
        )
        try:
            wait(lambda: len(list(Path(name).glob("rank-*.log"))) == SLOTS, "the ranks' start")
            cockpit = start(Path(name), ["attach", "--pid", str(job.pid), "--headless"])
            try:
                shares = _shares(cockpit, Path(name))
            finally:
                cockpit.kill()
                cockpit.wait()
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return Result(
        "foreigncost",
        f"our process on a node with {SLOTS} ranks of a job that others started, watched for {WINDOW_S:g} s",
        {"cockpit": "cockpit attach --pid N --headless (each rank prints two lines a second)"},
        levels=[
            Level(f"agent, CPU, {WINDOWS} windows one after the other", shares, "% of a core", 1.0, _LESS),
        ],
    )


def _attached(lab: Lab, hostfile: Path, number: int) -> tuple[float, float]:
    """Seconds until the job has a name, and until all of it is on the screen."""
    state = f"XDG_STATE_HOME=/tmp/attach-{number}"
    words = [
        "env",
        state,
        sys.executable,
        "-m",
        "cockpit",
        "attach",
        str(hostfile),
        "--name",
        f"job-{number}",
    ]
    began = time.monotonic()
    terminal = Terminal(lab, words, kind="xterm-256color")
    try:
        terminal.resize(140, 45)
        terminal.wait_for("its name here")
        named = time.monotonic() - began
        for text in ("hangs", f"{NODES * SLOTS}/{NODES * SLOTS}"):
            terminal.wait_for(text)
        return named, time.monotonic() - began
    finally:
        terminal.process.terminate()
        terminal.process.wait(30)


@contextmanager
def _job(lab: Lab) -> Iterator[None]:
    """Ranks on every node, as a launcher would start them, each with a file of its own."""
    ranks = []
    try:
        for number, node in enumerate(lab.nodes):
            for local in range(SLOTS):
                rank = number * SLOTS + local
                env = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(NODES * SLOTS)}
                env.update({"MASTER_ADDR": lab.nodes[0], "MASTER_PORT": "29500"})
                words = ["sh", "-c", 'exec "$@" > "$0"', f"/tmp/rank-{rank}.log", sys.executable, str(_HUNG)]
                ranks.append(lab.popen(words, node=node, env=env))
        wait(lambda: all(_prints(lab, node) for node in lab.nodes), "the ranks' start")
        yield
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def _prints(lab: Lab, node: str) -> bool:
    logs = list(lab.node_path(node, "/tmp").glob("rank-*.log"))
    return len(logs) == SLOTS and all(log.stat().st_size for log in logs)


def _shares(cockpit: subprocess.Popen[bytes], folder: Path) -> list[float]:
    """The agent's CPU time in each window, in percent."""
    wait(lambda: len(list(folder.glob("state/**/spool/*/rank-*.log"))) == SLOTS, "the ranks' output here")
    agents = [child for child in psutil.Process(cockpit.pid).children() if "-I" in child.cmdline()]
    if len(agents) != 1:
        raise BenchmarkError(f"not one agent: {agents}")
    time.sleep(SETTLE_S)  # past the start: imports, first samples
    shares = []
    for _ in range(WINDOWS):
        began, before = time.monotonic(), sum(agents[0].cpu_times()[:2])
        time.sleep(WINDOW_S)
        shares.append(100 * (sum(agents[0].cpu_times()[:2]) - before) / (time.monotonic() - began))
    return shares


_LESS = "longer intervals between two looks at files and processes."
