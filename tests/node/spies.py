"""Processes to look at, stand-ins for py-spy, and asking the agent's verbs, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.unpacking import unpack
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.stacks import dump, permission, pyspy
from tests.waiting import until

Send = Callable[[dict[str, Any], bytes], None]

REAL = str(Path(sys.executable).with_name("py-spy"))


def start(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A Python process that runs this code; it is past the first line that it prints."""
    command = [sys.executable, "-u", "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def letter(pid: int) -> str:
    """The state of a process."""
    found = procfs.stat(pid)
    return found.state if found else ""


def in_state(pid: int, wanted: str) -> None:
    """Wait until a process is in this state."""
    until(lambda: letter(pid) == wanted, f"process {pid} in state {wanted}")


@contextmanager
def ending(processes: Iterable[subprocess.Popen[bytes]]) -> Iterator[None]:
    """After the block, whatever came of it: end processes, and what they have started."""
    try:
        yield
    finally:
        children = procfs.children()
        for process in processes:
            for child in children.get(process.pid, ()):
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
            process.kill()
            process.communicate()


def target(rank: int, pid: int) -> dict[str, int]:
    """A target of a request."""
    found = procfs.stat(pid)
    return {"rank": rank, "pid": pid, "ticks": found.ticks if found else 1}


def call(send: Send, targets: Sequence[dict[str, int]], **fields: Any) -> Call:
    """A request for stacks."""
    return Call({"id": 1, "do": "stacks", "targets": list(targets), **fields}, b"", send)


def look(*pids: int, **fields: Any) -> list[Dump]:
    """The dumps of these processes as ranks from 0, in the order of ranks."""
    dumps: list[Dump] = []

    def take(head: dict[str, Any], data: bytes) -> None:
        dumps.extend(unpack(data, str))

    answer = dump.stacks(call(take, [target(rank, pid) for rank, pid in enumerate(pids)], **fields))
    assert answer == {}
    assert sorted(one.rank for one in dumps) == list(range(len(pids)))
    return sorted(dumps, key=lambda one: one.rank)


def fake(path: Path, script: str) -> Path:
    """A stand-in for py-spy, in the shell: ``$pid`` is the process asked about, ``$REAL`` a real one."""
    head = f"""#!/bin/sh
[ "$1" = --version ] && echo py-spy 0.4.3 && exit
for pid; do :; done
REAL={REAL}
"""
    path.write_text(head + script)
    path.chmod(0o755)
    return path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be an agent that has learnt nothing yet, until the test ends."""
    monkeypatch.setattr(pyspy._Known, "spy", None)
    monkeypatch.setattr(pyspy._Known, "search", None)
    monkeypatch.setattr(permission._Remembered, "worked", {})
    monkeypatch.setattr(permission._Remembered, "sudo", None)
    monkeypatch.setattr(permission._Remembered, "sudo_from", 0.0)


def first_on_path(folder: Path) -> str:
    """A PATH on which what is in this folder comes first."""
    return os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
