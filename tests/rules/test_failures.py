"""Failures that really happen: the run, ``ps`` and ``explain`` of the console alone say the same of each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cgroups import entering, real_group
from tests.needs import lacking, require, require_module
from tests.rules.failures import (
    BUILDS,
    FAILURES,
    KILLED_FOR_MEMORY,
    PRELUDE,
    WITHOUT_SHARED_MEMORY,
    Failure,
)
from tests.rules.happening import (
    Programs,
    Told,
    cockpit,
    elsewhere,
    environment,
    explained,
    happen,
    labelled,
    run,
)
from tests.waiting import until
from tests.warm import Warm

pytestmark = [pytest.mark.slow]

AT_ONCE = 3
MEMORY = 1 << 30
"""Of the cgroup whose ranks take more."""


@pytest.fixture
def programs(warmed: Warm, quick_cockpit: tuple[str, ...]) -> Programs:
    require_module("torch")
    return Programs(quick_cockpit, warmed.python)


def agree(failures: Mapping[str, Failure], told: Mapping[str, Told]) -> None:
    """All three say the right rule of each."""
    said = {name: (one.over["rule"], one.ps["rule"], one.explain["rule"]) for name, one in told.items()}
    wanted = {name: (one.rule, one.rule, one.alone or one.rule) for name, one in failures.items()}
    assert said.keys() == wanted.keys()
    assert {name: rules for name, rules in said.items() if rules != wanted[name]} == {}
    assert all(one.over["meaning"] == one.ps["meaning"] for one in told.values())


def test_the_end_ps_and_the_console_say_the_same(programs: Programs, tmp_path: Path) -> None:
    """One test for all of them: workers that share its cases would have each happen several times."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = {
            name: pool.submit(happen, programs, failure, tmp_path / str(at))
            for at, (name, failure) in enumerate(FAILURES.items())
        }
        agree(FAILURES, {name: one.result() for name, one in made.items()})


@pytest.mark.root
@pytest.mark.parametrize("name", KILLED_FOR_MEMORY)
def test_what_the_kernel_kills_in_a_full_cgroup(name: str, tmp_path: Path) -> None:
    """In all of it: the cockpit and its node are there too, as in a job or a container."""
    require_module("torch")
    with real_group(MEMORY) as members:
        told = elsewhere(entering(members), tmp_path, [name], str(members))
    agree({name: KILLED_FOR_MEMORY[name]}, told)
    assert "the kernel's OOM killer killed 1 process of its cgroup" in told[name].over["detail"]


def test_a_full_dev_shm(tmp_path: Path) -> None:
    require_module("torch")
    unshare = [require("unshare"), "-m" if os.geteuid() == 0 else "-rm"]
    mounts = [*unshare, "sh", "-c", 'mount -t tmpfs -o size=4m none /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*mounts, "true"], capture_output=True, check=False).returncode:
        lacking("no namespace can be made here")
    agree(WITHOUT_SHARED_MEMORY, elsewhere(mounts, tmp_path, list(WITHOUT_SHARED_MEMORY)))


NINJA = """#!/bin/sh
[ "$1" = --version ] || exec sleep 9999
echo 1.11
"""


def killed_while_it_builds(python: str, folder: Path) -> Path:
    """The lock that it leaves."""
    compiler = folder / "bin" / "ninja"
    compiler.parent.mkdir()
    compiler.write_text(NINJA)
    compiler.chmod(0o755)
    words = [python, "train.py"]
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


def test_the_lock_of_a_build_that_was_killed(programs: Programs, tmp_path: Path) -> None:
    """Ranks wait for it for ever: the watch and ``ps`` say so; a console does once somebody ends them."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.py").write_text(PRELUDE + BUILDS)
    lock = killed_while_it_builds(programs.python, folder)
    # No copies: the watch looks into the ranks, and a signal is how they end on the console.
    hangs = ("--hang-after", "1", "--on-hang", "stop", "--stop-after", "3")
    events = run(programs, sys.executable, folder, *hangs, ends=4)
    found = [event["found"] for event in events if event["event"] == "watch" and event["found"]]
    ps = json.loads(cockpit(programs, "ps", "last", "--json", cwd=folder))
    last = json.loads(cockpit(programs, "explain", "last", "--json", cwd=folder, ends=[1]))
    labelled(sys.executable, folder, tmp_path / "console.log", count=1, INTERRUPTED="1")
    finding = ps["watch"]["finding"]
    rules = [found[-1]["rule"], finding["rule"], last["rule"], explained(programs, tmp_path)["rule"]]
    assert rules == ["build-lock-stale"] * 4
    assert finding["meaning"] == last["meaning"]
    assert str(lock) in finding["detail"]
    assert lock.exists()
