"""``docs/agents.md``: each command that it names gives the fields that it names, tried on a real run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.schemas import fits
from tests.lab.lab import REPO
from tests.waiting import PATIENCE_S, until

PAGE = (REPO / "docs" / "agents.md").read_text()

RUN = f"night-{os.getpid()}"
"""A stop goes by the names of run and node: no other worker's run may have the same."""

PROGRAM = """
import os, time
for step in range(1, 4):
    print(f"step {step}/9 loss {3 / step:.3f}", flush=True)
if os.environ["RANK"] == "1":
    raise RuntimeError("the data has a hole")
time.sleep(600)
"""

CONSOLE = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/program.py", line 6, in <module>
[rank1]:     raise RuntimeError("the data has a hole")
[rank1]: RuntimeError: the data has a hole
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def rows() -> list[tuple[str, list[str]]]:
    """Each command of the table, and the fields to read."""
    found = re.findall(r"^\|[^|`]+\| `(cockpit [^`]+)` \|(.+)\|$", PAGE, re.MULTILINE)
    return [(command, re.findall(r"`([a-z_]+(?:(?:\[\])?\.[a-z_]+)*)`", read)) for command, read in found]


PLACES = {"RUN": RUN, "N": "0", "HOSTFILE": "hostfile", "MOMENT": "end", "FILE": "console.log"}
"""What stands for what is to be typed there."""

WORDS = {"going", "quiet", "stalled", "blind", "sure", "likely", "waiting"}
"""Values, not fields."""


def lacks(told: Any, path: str) -> str:
    """Why a field is not there; empty: it is."""
    for part in path.split("."):
        name = part.removesuffix("[]")
        if name not in told:
            return f"{path}: {name} is none of {sorted(told)}"
        told = told[name]
        if part.endswith("[]"):
            if not told:
                return f"{path}: there is no {name}"
            told = told[0]
    return ""


def asked(cockpit: tuple[str, ...], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a verb answers."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        [*cockpit, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, quick_cockpit: tuple[str, ...]) -> Iterator[Path]:
    """A run of which one rank has failed and the other one lives on."""
    folder = tmp_path_factory.mktemp("agents")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "console.log").write_text(CONSOLE)
    # Two names of one machine: the doctor has something to find.
    (folder / "hostfile").write_text("localhost slots=2\n127.0.0.1 slots=2\n")
    options = ("--launcher", "command", "--name", RUN, "--headless", "--on-failure", "wait")
    where = ("--node-dir", str(folder))
    line = [*quick_cockpit, "run", "-w", "localhost:2", *options, *where, "--", sys.executable, "program.py"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    process = subprocess.Popen(line, cwd=folder, env=environment, stdout=subprocess.DEVNULL)

    def failed() -> bool:
        done = asked(quick_cockpit, folder, "ps", RUN, "--json")
        return done.returncode == 0 and bool(json.loads(done.stdout)["findings"])

    def printed() -> bool:
        return "step 3" in asked(quick_cockpit, folder, "logs", RUN, "--rank", "0").stdout

    try:
        until(failed, "one rank has failed")
        until(printed, "the other one has printed all")
        yield folder
    finally:
        asked(quick_cockpit, folder, "stop", RUN, "--now")
        process.wait(PATIENCE_S)


@pytest.mark.few(2)
@pytest.mark.parametrize(("command", "fields"), rows(), ids=[command for command, _ in rows()])
def test_a_question_is_answered(
    running: Path, quick_cockpit: tuple[str, ...], command: str, fields: list[str]
) -> None:
    words = [PLACES.get(word, word) for word in command.split()]
    done = asked(quick_cockpit, running, *words[1:])
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines() if words[1] == "logs" else [done.stdout]
    name = "ps-run" if words[1:3] == ["ps", RUN] else words[1]
    for line in lines:
        fits(name, json.loads(line))
    told = json.loads(lines[0])
    told = told[0] if isinstance(told, list) else told
    assert fields
    assert [lack for path in fields if path not in WORDS and (lack := lacks(told, path))] == []


def test_there_are_questions() -> None:
    assert len(rows()) >= 10
    assert lacks({"a": [{"b": 1}]}, "a[].c")
    assert not lacks({"a": [{"b": 1}]}, "a[].b")
