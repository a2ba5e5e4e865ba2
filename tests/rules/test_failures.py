"""Failures that really happen: the run, ``ps`` and ``explain`` of the console alone say the same of each."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.needs import require_module
from tests.ports import free_port
from tests.rules.failures import FAILURES, PRELUDE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

REPO = Path(__file__).parents[2]
AT_ONCE = 3
ENDS: dict[int, str] = {
    signal.SIGKILL: "Killed",
    signal.SIGSEGV: "Segmentation fault",
    signal.SIGBUS: "Bus error",
}
"""In srun's words."""


class Told(NamedTuple):
    """What three answers say of one failure, as findings for programs."""

    over: dict[str, Any]
    ps: dict[str, Any]
    explain: dict[str, Any]


def cockpit(*words: str, cwd: Path) -> tuple[int, str]:
    """Run it; its exit code and output."""
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPO),
        "XDG_STATE_HOME": str(cwd / "state"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "cockpit", *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, done.stdout


def happen(name: str, folder: Path) -> Told:
    """Have it happen in a run, and once more without cockpit."""
    folder.mkdir()
    (folder / "train.py").write_text(PRELUDE + FAILURES[name].body)
    # Two that start in one second may draw the same name.
    words = (
        "--name",
        f"failure-{os.getpid()}-{folder.name}",
        "-w",
        "localhost:2",
        "--launcher",
        "command",
        "--python",
        sys.executable,
    )
    code, out = cockpit("run", *words, "--headless", "--json", "--", "train.py", cwd=folder)
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 1, out
    _, ps = cockpit("ps", "last", "--json", cwd=folder)
    alone = folder / "alone"
    alone.mkdir()
    shutil.copy(folder / "train.py", alone)
    labelled(alone, folder / "console.log")
    failed, explained = cockpit("explain", "console.log", "--json", cwd=folder)
    assert failed == 1, explained
    return Told(events[-1]["failed"], judged(json.loads(ps)), json.loads(explained))


def labelled(folder: Path, console: Path) -> None:
    """Run both ranks; what they print goes to one file, as by ``srun --label``, and how they ended."""
    env = {
        **os.environ,
        **{"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "WORLD_SIZE": "2"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())},
    }
    run = f"{shlex.quote(sys.executable)} train.py 2>&1"
    ranks = [
        subprocess.Popen(
            ["bash", "-c", f"set -o pipefail; {run} | sed -u 's/^/{rank}: /' >>\"$0\"", str(console)],
            cwd=folder,
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]
    for rank, one in enumerate(ranks):
        if code := one.wait(100):
            how = ENDS.get(code - 128, f"Exited with exit code {code}")
            with console.open("a") as file:
                file.write(f"srun: error: node{rank}: task {rank}: {how}\n")


def judged(told: dict[str, Any]) -> dict[str, Any]:
    """The finding about the failure, of a run's state."""
    return next(found for found in told["findings"] if found["id"] == "failed")


def test_the_end_ps_and_the_console_say_the_same(tmp_path: Path) -> None:
    """One test for all of them: workers that share its cases would have each happen several times."""
    require_module("torch")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = {name: pool.submit(happen, name, tmp_path / str(at)) for at, name in enumerate(FAILURES)}
        told = {name: one.result() for name, one in made.items()}
    said = {name: (one.over["rule"], one.ps["rule"], one.explain["rule"]) for name, one in told.items()}
    wanted = {name: (one.rule, one.rule, one.alone or one.rule) for name, one in FAILURES.items()}
    assert {name: rules for name, rules in said.items() if rules != wanted[name]} == {}
    assert all(one.over["meaning"] == one.ps["meaning"] for one in told.values())
