"""A first node that lies about itself: real launches, whose scripts are run by a real bash on every node."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.answers import FactsAnswer, PortAnswer, ResolveAnswer
from cockpit.base.gate import Malformed, read
from tests import rewritten
from tests.waiting import PATIENCE_S

COMMANDS = (
    "29500; touch {} #",
    "$(touch {})",
    "`touch {}`",
    "x\ntouch {}\n",
    "::1%$(touch {})",
    "x' ; touch {} ; '",
)


ANSWERS: dict[str, type[Any]] = {"port": PortAnswer, "resolve": ResolveAnswer, "facts": FactsAnswer}
TRUE: dict[str, Any] = {"port": 29500, "own": "::1", "addresses": "10.0.0.1", "python": "/usr/bin/python3"}
WHOLE = {"facts": {"python_version": "3.11.7", "cores": [0]}}
"""What an answer needs beside the field that is a lie."""


def lies(field: str, text: Any) -> dict[str, Any]:
    """Answers with that text in one field."""
    if field == "port":
        return {"port": {"answer": {"port": text}}}
    if field in ("own", "addresses"):
        return {"resolve": {"answer": {"addresses": [], "own": ["127.0.0.1"], field: [text]}}}
    return {"facts": {"merge": {field: text}}}


Start = Callable[[str, dict[str, Any]], subprocess.CompletedProcess[str]]


@pytest.fixture
def start(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Start:
    """A whole ``cockpit run`` with a launcher, over two nodes of which each lies in the same way."""
    return lambda launcher, changes: run(quick_cockpit, tmp_path, launcher, changes)


def run(
    cockpit: tuple[str, ...], folder: Path, launcher: str, changes: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    (folder / "hostfile").write_text("gpu01 slots=1\ngpu02 slots=1\n")
    program = folder / "program.sh"
    program.write_text("#!/bin/bash\nexit 0\n")
    program.chmod(0o700)
    words = ["run", "hostfile", "--transport", "local", "--launcher", launcher, "--node-dir", str(folder)]
    words += [
        "--python",
        str(rewritten.python(folder)),
        "--headless",
        "--failure-wait",
        "0",
        "--",
        str(program),
    ]
    env = {**os.environ, **rewritten.answers(folder / "answers", changes)}
    return subprocess.run(
        [*cockpit, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


FIELDS = ("port", "own", "addresses", "python")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda text: shlex.quote(text))
def test_the_gate_lets_no_such_lie_in(field: str, command: str) -> None:
    read_as_told(field, TRUE[field])
    with pytest.raises(Malformed):
        read_as_told(field, command.format("/tmp/canary"))


def read_as_told(field: str, text: Any) -> None:
    """Have the gate read the answer with that in one field."""
    ((verb, told),) = lies(field, text).items()
    read(ANSWERS[verb], {**WHOLE.get(verb, {}), **(told.get("answer") or told["merge"])})


@pytest.mark.parametrize(
    ("field", "command"),
    [*zip(cycle(FIELDS), COMMANDS, strict=False)],
    ids=lambda text: shlex.quote(text),
)
def test_a_first_node_runs_nothing_on_the_others(
    tmp_path: Path, start: Start, field: str, command: str
) -> None:
    canary = tmp_path / "canary"
    done = start("command", lies(field, command.format(canary)))
    assert not canary.exists(), done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 3, done.stderr
    assert "gpu01: " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "tool"),
    [("torchrun", "torchrun_tool"), ("deepspeed", "deepspeed_tool"), ("accelerate", "accelerate_tool")],
)
def test_a_tool_is_a_word(tmp_path: Path, start: Start, launcher: str, tool: str) -> None:
    canary = tmp_path / "canary"
    there = {"torch": "2.13", "accelerate": "1.15.0", "deepspeed": "0.19.8", "no_ssh": True}
    there["python"] = "/nowhere/python"
    done = start(launcher, {"facts": {"merge": {**there, tool: f"/$(touch {canary})/x' ; touch {canary} #"}}})
    assert not canary.exists(), done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1, done.stderr


def test_the_truth_is_launched(tmp_path: Path, start: Start) -> None:
    """So that what is refused above is refused for the lie."""
    changes = {
        "port": {"answer": {"port": 29999}},
        "resolve": {"answer": {"addresses": [], "own": ["127.0.0.1"]}},
    }
    done = start("command", changes)
    assert done.returncode == 0, done.stderr
    scripts = sorted(tmp_path.glob("cockpit-*/*/*/slots.sh"))
    assert len(scripts) == 2
    assert all("MASTER_ADDR=127.0.0.1 MASTER_PORT=29999\n" in path.read_text() for path in scripts)
