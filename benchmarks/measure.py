"""Rounds of A and B in turn, and programs run as the lab's user on its login node."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cockpit
from tests.lab.lab import USER, Lab

T = TypeVar("T")

FOLDER = Path(__file__).resolve().parent


class BenchmarkError(Exception):
    """A side did not do its work, so its time means nothing."""


@dataclass(frozen=True)
class Cost:
    """What a command took, in seconds."""

    wall: float
    cpu: float
    """User and system time of the client's whole process tree."""
    ended: float
    """Unix seconds; machines of a lab share the clock."""
    said: dict[str, Any]
    """What the command said of itself: the last line of its stderr where that is a JSON object."""
    first: float = 0.0
    last: float = 0.0
    """After how many seconds its standard output began and ended, where that was read."""


def interleave(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Each side once a round, in turning order: what drifts on the machine meets all of them alike."""
    found: dict[str, list[T]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            found[name].append(sides[name]())
    return found


def timed(
    lab: Lab, argv: Sequence[str], output: str = "/dev/null", env: Mapping[str, str] | None = None
) -> Cost:
    """Run a command as the lab's user on the login node; its standard output goes to the file ``output``.

    ``-``: it is read instead, and the :class:`Cost` says when it came.

    :raises BenchmarkError: it failed
    """
    return _cost(argv, lab.run(_timer(lab.python, output, argv), env=env, timeout=180))


def timed_here(argv: Sequence[str], env: Mapping[str, str], output: str = "/dev/null") -> Cost:
    """The same of a command on this machine, with these variables alone.

    :raises BenchmarkError: it failed
    """
    words = _timer(sys.executable, output, argv)
    done = subprocess.run(words, env=dict(env), capture_output=True, text=True, timeout=180, check=False)
    return _cost(argv, done)


def _timer(python: str, output: str, argv: Sequence[str]) -> list[str]:
    return [python, "-I", "-S", str(FOLDER / "timed.py"), output, *argv]


def _cost(argv: Sequence[str], done: subprocess.CompletedProcess[str]) -> Cost:
    if done.returncode:
        raise BenchmarkError(f"{argv[0]}: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout)
    if answer["code"]:
        raise BenchmarkError(f"{argv[0]} ended with {answer['code']}: {answer['stderr'][-2000:]}")
    last = (answer["stderr"].strip().splitlines() or [""])[-1]
    said = json.loads(last) if last.startswith("{") else {}
    return Cost(answer["wall"], answer["cpu"], answer["ended"], said, answer["first"], answer["last"])


def compiled() -> dict[str, str]:
    """The environment for our own programs on the login node: byte code as where cockpit was installed.

    The lab's user may not write it here.
    """
    compileall.compile_dir(os.path.dirname(cockpit.__file__), quiet=2)
    return {"PYTHONPATH": str(FOLDER.parent), "XDG_STATE_HOME": "/tmp/state"}


def client(lab: Lab, *words: str, python: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Cost:
    """Run our own side (:mod:`benchmarks.client`) in a fresh Python as the lab's user."""
    full = {**compiled(), **(env or {})}
    return timed(lab, [sys.executable, *python, "-m", "benchmarks.client", *words], env=full)


def fake_run(lab: Lab, node: str, folder: str, *, alive: bool = False) -> Path:
    """A run folder on a node as a finished run of one rank leaves it; return the path from outside.

    :param alive: whether a living process stands for the supervisor, as in a run that still goes on
    """
    boot_id = lab.run(["cat", "/proc/sys/kernel/random/boot_id"], node=node).stdout.strip()
    pid, ticks = 999999, 0
    if alive:
        first = lab.run(["cat", "/proc/1/stat"], node=node).stdout
        pid, ticks = 1, int(first.rpartition(")")[2].split()[19])
    for name, text in run_files(node, boot_id, pid, ticks).items():
        lab.write(node, f"{folder}/{name}", text)
    return lab.node_path(node, folder)


def run_files(node: str, boot_id: str, pid: int, ticks: int) -> dict[str, str]:
    """The record in such a folder: name of a file → text.

    :param pid: what stands for the supervisor; ticks: when it was started
    """
    events: list[dict[str, Any]] = [
        {"t": 1.0, "e": "supervisor_started", "pid": pid, "ticks": ticks, "ranks": [0], "node": node},
        {"t": 2.0, "e": "rank_started", "rank": 0, "local_rank": 0, "pid": 2, "ticks": 1, "attempt": 0},
        {"t": 3.0, "e": "rank_exited", "rank": 0, "pid": 2, "attempt": 0, "code": 0, "signal": None},
        {"t": 4.0, "e": "launcher_exited", "code": 0, "signal": None},
        {"t": 5.0, "e": "ended"},
    ]
    record = {
        "format": 1,
        "t": 1.0,
        "run": "bench",
        "node": node,
        "boot_id": boot_id,
        "supervisor": {"pid": pid, "ticks": ticks},
        "ranks": [0],
    }
    lines = "".join(json.dumps(event) + "\n" for event in events)
    return {"record.json": json.dumps(record), "events.jsonl": lines}


def fill(lab: Lab, path: Path, size: int) -> str:
    """Write ``size`` random bytes as lines into a file of the lab's user; return their sha256."""
    digest = hashlib.sha256()
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        for _ in range(size >> 20):
            block = os.urandom(1 << 19).hex("\n", 64).encode()[: 1 << 20].ljust(1 << 20, b"\n")
            digest.update(block)
            file.write(block)
    for each in (path.parent, path):
        os.chown(each, lab.ids[USER], lab.ids[USER])
    return digest.hexdigest()


def check(path: Path, digest: str) -> None:
    """Compare a file with its sha256, and remove it.

    :raises BenchmarkError: it is another
    """
    with path.open("rb") as file:
        found = hashlib.sha256()
        while chunk := file.read(1 << 20):
            found.update(chunk)
    if found.hexdigest() != digest:
        raise BenchmarkError("the copy differs from the node's file")
    path.unlink()
