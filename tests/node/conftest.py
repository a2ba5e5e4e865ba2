"""Runs that are cleaned up whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cockpit.engine.links import payload
from cockpit.node.stacks import pyspy
from tests.node import runs, spies

Launch = Callable[..., runs.Run]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a shell script in the place of py-spy."""

    def put(script: str) -> Path:
        path = spies.fake(tmp_path / "fake-spy", script)
        monkeypatch.setattr(pyspy._Known, "spy", str(path))
        return path

    return put


@pytest.fixture(scope="session")
def pyz() -> bytes:
    """The node code as it is sent to a node."""
    return payload.archive()


@pytest.fixture
def launch(tmp_path: Path, pyz: bytes) -> Iterator[Launch]:
    """Start a run with a launch script; facts given by name replace those of the spec."""
    started: list[runs.Run] = []

    def start(script: str, **facts: Any) -> runs.Run:
        run = f"test-{uuid4().hex}"  # also unique among test runs at the same time
        spec = {
            "format": 1,
            "run": run,
            "node": "node1",
            "index": 0,
            "dir": str(tmp_path / "base" / run / "node1"),
            "script": script,
            "files": {},
            "env": {},
            "ranks": [0, 1],
            "launcher": "command",
            "profile": None,
            "grace_s": 30,
            "finalise_s": 60,
        }
        started.append(runs.Run.start({**spec, **facts}, pyz))
        return started[-1]

    yield start
    for run in started:
        run.clean()
