"""The home screen: a thousand known runs against ten, and ten against a Textual app that says hello."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from benchmarks.firstframe import COCKPIT, HELLO, first
from benchmarks.measure import interleave
from benchmarks.table import Figure, Level, Result

ROUNDS = 8
MANY, FEW = 1000, 10
AS_QUICK, AIM = 1.15, 3.0

MAKE = """
import sys, time
from tests.engine.knownruns import many
many(int(sys.argv[1]), time.time())
"""
"""Writes so many runs."""


def run(rounds: int = ROUNDS, most: int = MANY) -> Result:
    """Measure; needs nothing.

    :param most: runs that are known
    """
    with tempfile.TemporaryDirectory() as folder:
        envs = {count: _env(f"{folder}/{count}") for count in (FEW, most)}
        for count, env in envs.items():
            _python(["-c", MAKE, str(count)], env)
            began = time.monotonic()
            _python(["-c", COCKPIT, "ps", "--all", "--no-connect", "--json"], env)
            made = time.monotonic() - began
        listed = []
        for _ in range(rounds):
            began = time.monotonic()
            _python(["-c", COCKPIT, "ps", "--all", "--no-connect", "--json"], envs[most])
            listed.append(time.monotonic() - began)
        sides = {
            "many": lambda: _home(most, envs[most]),
            "few": lambda: _home(FEW, envs[FEW]),
            "hello": lambda: first(["-c", HELLO], b"Hello", envs[FEW]),
        }
        interleave(sides, 1)  # files into the cache
        walls = interleave(sides, rounds)
        os.unlink(f"{folder}/{most}/cockpit/runs.jsonl")
        bare = [_home(most, envs[most])]
    return Result(
        "home",
        f"until the newest of {most:,} known runs is on the home screen",
        {"cockpit": "cockpit", "other": f"with {FEW} known runs; Hello().run() of Textual"},
        figures=[
            Figure(f"{most:,} runs against {FEW}", walls["many"], walls["few"], "s", AS_QUICK),
            Figure(f"{FEW} runs against hello", walls["few"], walls["hello"], "s", AIM),
        ],
        levels=[
            Level("without an index", bare, "s"),
            Level(f"ps -a of {most:,} runs", listed, "s"),
            Level("the same, and its index made", [made], "s"),
        ],
    )


def _home(count: int, env: dict[str, str]) -> float:
    return first(["-c", COCKPIT], f"run-{count - 1:04d}".encode(), env)


def _env(home: str) -> dict[str, str]:
    env = {**os.environ, "XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home, "TERM": "xterm-256color"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs are compiled
    return env


def _python(words: list[str], env: dict[str, str]) -> None:
    subprocess.run([sys.executable, *words], env=env, check=True, stdout=subprocess.DEVNULL)
