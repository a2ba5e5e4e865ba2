"""Failures that really happen: the run, ``ps`` and ``explain`` of the console alone say the same of each."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cgroups import entering, kills, real_group
from tests.needs import lacking, require, require_module
from tests.ports import free_port
from tests.rules.failures import (
    BUILDS,
    FAILURES,
    KILLED_FOR_MEMORY,
    PRELUDE,
    WITHOUT_SHARED_MEMORY,
    Failure,
)
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow]

REPO = Path(__file__).parents[2]
AT_ONCE = 3
NUMBERS = itertools.count()
ENDS: dict[int, str] = {
    signal.SIGKILL: "Killed",
    signal.SIGSEGV: "Segmentation fault",
    signal.SIGBUS: "Bus error",
    signal.SIGINT: "Interrupt",
}
"""In srun's words."""
SOME = "Some of the step tasks have been OOM Killed."
MEMORY = 768 << 20
"""Of the cgroup whose ranks take more."""


class Told(NamedTuple):
    """What three answers say of one failure, as findings for programs."""

    over: dict[str, Any]
    ps: dict[str, Any]
    explain: dict[str, Any]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of what is started in a test."""
    here = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO), "XDG_STATE_HOME": str(folder / "state")}
    return {**os.environ, **here, **more}


def cockpit(*words: str, cwd: Path, within: Sequence[str] = (), ends: Sequence[int] = (0, 1)) -> str:
    """Run it; its output.

    :param within: what is put before the command
    :param ends: the exit codes that it may have
    """
    done = subprocess.run(
        [*within, sys.executable, "-m", "cockpit", *words],
        cwd=cwd,
        env=environment(cwd),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode in ends, done.stdout + done.stderr
    return done.stdout


def run(folder: Path, *options: str, within: Sequence[str] = (), ends: int = 1) -> list[dict[str, Any]]:
    """Have ``train.py`` run by two ranks; the events."""
    # Two that start in one second may draw the same name.
    name = f"failure-{os.getpid()}-{next(NUMBERS)}"
    words = ("--name", name, "-w", "localhost:2", "--launcher", "command", "--python", sys.executable)
    # Root of a namespace may be nobody outside of it, and /tmp have a folder of the real one's.
    place = ("--node-dir", str(folder / "nodes"))
    more = (*place, "--headless", "--json", *options, "--", "train.py")
    out = cockpit("run", *words, *more, cwd=folder, within=within, ends=[ends])
    return [json.loads(line) for line in out.splitlines()]


def happen(
    failure: Failure, folder: Path, within: Sequence[str] = (), killed: Callable[[], int] = int
) -> Told:
    """Have it happen in a run, and once more without cockpit.

    :param killed: how many processes the kernel has killed for memory
    """
    folder.mkdir()
    (folder / "train.py").write_text(PRELUDE + failure.body)
    events = run(folder, within=within)
    ps = json.loads(cockpit("ps", "last", "--json", cwd=folder))
    alone = folder / "alone"
    alone.mkdir()
    shutil.copy(folder / "train.py", alone)
    before = killed()
    labelled(alone, folder / "console.log", within, lambda: killed() - before)
    return Told(events[-1]["failed"], judged(ps), explained(folder))


def explained(folder: Path) -> dict[str, Any]:
    """What ``explain`` says of the console there."""
    told: dict[str, Any] = json.loads(cockpit("explain", "console.log", "--json", cwd=folder, ends=[1]))
    return told


def labelled(
    folder: Path, console: Path, within: Sequence[str] = (), killed: Callable[[], int] = int, **more: str
) -> None:
    """Run both ranks; what they print goes to one file, as by ``srun --label``, and how they ended."""
    here = {"PYTHONUNBUFFERED": "1", "WORLD_SIZE": "2"}
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env = environment(folder, **here, **rendezvous, **more)
    run = f"{shlex.join([*within, sys.executable])} train.py 2>&1"
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
                if number := killed():
                    file.write(f"slurmstepd: error: Detected {number} oom_kill event in StepId=1.0. {SOME}\n")
                    how = how.replace("Killed", "Out Of Memory")
                file.write(f"srun: error: node{rank}: task {rank}: {how}\n")


def judged(told: dict[str, Any]) -> dict[str, Any]:
    """The finding about the failure, of a run's state."""
    return next(found for found in told["findings"] if found["id"] == "failed")


def agree(failures: Mapping[str, Failure], told: Mapping[str, Told]) -> None:
    """All three say the right rule of each."""
    said = {name: (one.over["rule"], one.ps["rule"], one.explain["rule"]) for name, one in told.items()}
    wanted = {name: (one.rule, one.rule, one.alone or one.rule) for name, one in failures.items()}
    assert {name: rules for name, rules in said.items() if rules != wanted[name]} == {}
    assert all(one.over["meaning"] == one.ps["meaning"] for one in told.values())


@pytest.mark.long
def test_the_end_ps_and_the_console_say_the_same(tmp_path: Path) -> None:
    """One test for all of them: workers that share its cases would have each happen several times."""
    require_module("torch")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = {
            name: pool.submit(happen, failure, tmp_path / str(at))
            for at, (name, failure) in enumerate(FAILURES.items())
        }
        agree(FAILURES, {name: one.result() for name, one in made.items()})


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize("name", KILLED_FOR_MEMORY)
def test_what_the_kernel_kills_in_a_full_cgroup(name: str, tmp_path: Path) -> None:
    """In all of it: the cockpit and its node are there too, as in a job or a container."""
    require_module("torch")
    failure = KILLED_FOR_MEMORY[name]
    with real_group(MEMORY) as members:
        one = happen(failure, tmp_path / "run", entering(members), lambda: kills(members))
    agree({name: failure}, {name: one})
    assert "the kernel's OOM killer killed 1 process of its cgroup" in one.over["detail"]


@pytest.mark.long
@pytest.mark.parametrize("name", WITHOUT_SHARED_MEMORY)
def test_a_full_dev_shm(name: str, tmp_path: Path) -> None:
    require_module("torch")
    unshare = [require("unshare"), "-m" if os.geteuid() == 0 else "-rm"]
    mounts = [*unshare, "sh", "-c", 'mount -t tmpfs -o size=4m none /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*mounts, "true"], capture_output=True, check=False).returncode:
        lacking("no namespace can be made here")
    failure = WITHOUT_SHARED_MEMORY[name]
    agree({name: failure}, {name: happen(failure, tmp_path / "run", mounts)})


NINJA = """#!/bin/sh
[ "$1" = --version ] || exec sleep 9999
echo 1.11
"""


def killed_while_it_builds(folder: Path) -> Path:
    """The lock that it leaves."""
    compiler = folder / "bin" / "ninja"
    compiler.parent.mkdir()
    compiler.write_text(NINJA)
    compiler.chmod(0o755)
    words = [sys.executable, "train.py"]
    env = environment(folder, PATH=f"{compiler.parent}:{os.environ['PATH']}")
    build = subprocess.Popen(words, cwd=folder, env=env, start_new_session=True)
    lock = folder / "extensions" / "op" / "lock"
    try:
        until((folder / "extensions" / "op" / "build.ninja").exists, "a build")
        assert lock.exists()
    finally:
        os.killpg(build.pid, signal.SIGKILL)
        build.wait()
    return lock


@pytest.mark.long
def test_the_lock_of_a_build_that_was_killed(tmp_path: Path) -> None:
    """Ranks wait for it for ever: the watch and ``ps`` say so; a console does once somebody ends them."""
    require_module("torch")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.py").write_text(PRELUDE + BUILDS)
    lock = killed_while_it_builds(folder)
    events = run(folder, *("--hang-after", "1", "--on-hang", "stop", "--stop-after", "5"), ends=4)
    found = [event["found"] for event in events if event["event"] == "watch" and event["found"]]
    ps = json.loads(cockpit("ps", "last", "--json", cwd=folder))
    last = json.loads(cockpit("explain", "last", "--json", cwd=folder, ends=[1]))
    labelled(folder, tmp_path / "console.log", INTERRUPTED="1")
    finding = ps["watch"]["finding"]
    rules = [found[-1]["rule"], finding["rule"], last["rule"], explained(tmp_path)["rule"]]
    assert rules == ["build-lock-stale"] * 4
    assert finding["meaning"] == last["meaning"]
    assert str(lock) in finding["detail"]
    assert lock.exists()
