"""Programs that are no ranks, and are taken as such because somebody named them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import gate
from cockpit.base.answers import SeekAnswer
from cockpit.core.run.jobs import choose, group
from cockpit.errors import CockpitError
from cockpit.node.calls import Call, NodeError
from cockpit.node.stacks import find_ranks
from tests.node import runs
from tests.waiting import until

Start = Callable[[str], int]

LONELY = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)
"""
HELPED = """
import multiprocessing, os, sys, time
def help_it():
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(1000)
multiprocessing.get_context("fork").Process(target=help_it).start()
time.sleep(1000)
"""
WRAPS = "import subprocess, sys; subprocess.call([sys.executable, *sys.argv[1:]])"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Run a line of shell; returns what its program writes to ``$1``, and ``$0`` is what it runs as."""
    started: list[subprocess.Popen[bytes]] = []
    for name, text in (("lonely.py", LONELY), ("helped.py", HELPED), ("wraps.py", WRAPS)):
        (tmp_path / name).write_text(text)

    def run(line: str) -> int:
        told = tmp_path / f"told-{len(started)}"
        words = ["sh", "-c", line.replace("PY", sys.executable).replace("TOLD", str(told))]
        started.append(
            subprocess.Popen(words, cwd=tmp_path, env=runs.clean_environment(), start_new_session=True)
        )
        until(lambda: told.exists() and told.read_text(), "it runs")
        return int(told.read_text())

    run.__dict__["all"] = started
    yield run
    for one in started:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def asked(**what: Any) -> SeekAnswer:
    """What the node says, through the gate."""
    told = find_ranks.seek(Call({"id": 1, "do": "seek", **what}, b"", lambda head, data: None))
    return gate.read(SeekAnswer, json.loads(json.dumps(told)))


def taken(**what: Any) -> list[int]:
    """The processes that are ranks because they were named."""
    return [one.pid for one in asked(**what).ranks if one.inferred == "named"]


def test_a_program_that_is_no_rank_is_one_of_one_when_it_is_named(start: Start) -> None:
    pid = start("exec PY lonely.py TOLD")
    assert pid not in {one.pid for one in asked().ranks}
    jobs = group({"gpu01": asked(pid=pid)})
    job = choose(jobs, pid=pid)
    assert {rank: found.pid for rank, found in job.ranks.items()} == {0: pid}
    assert job.world == 1
    assert "1 inferred rank on 1 node" in job.title
    assert job.problems == [
        "~ rank 0 is inferred: it is the program you named, and there is no sign of others"
    ]


@pytest.mark.parametrize(
    "line", ["PY lonely.py TOLD; true", "exec PY wraps.py lonely.py TOLD", "PY wraps.py lonely.py TOLD; true"]
)
def test_a_shell_or_wrapper_is_looked_through(start: Start, line: str) -> None:
    pid = start(line)
    above = start.__dict__["all"][0].pid
    assert above != pid
    until(lambda: taken(pid=above) == [pid], "it is found")


def test_by_its_words_the_uppermost_program_counts(start: Start) -> None:
    pid = start("PY wraps.py lonely.py TOLD marked-4711")
    start("exec PY lonely.py TOLD unmarked")
    until(lambda: taken(match="marked-47[1]1") == [pid], "it is found")
    assert taken(match="marked-0815") == []
    with pytest.raises(NodeError, match="not a regular expression"):
        taken(match="(")


def test_what_cannot_be_a_rank_is_refused_in_words(start: Start) -> None:
    helper = start("exec PY helped.py TOLD")
    parent = start.__dict__["all"][0].pid
    sleeps = start("echo $$ >TOLD; exec sleep 1000")
    until(lambda: Path(f"/proc/{sleeps}/comm").read_text() == "sleep\n", "it sleeps")
    for pid, why in (
        (helper, f"process {helper} .* only helps process {parent}"),
        (sleeps, rf"process {sleeps} \(sleep 1000\) is not Python, and has started no Python program"),
        (1 << 29, f"there is no process {1 << 29}"),
    ):
        answer = asked(pid=pid)
        assert not any(one.inferred == "named" for one in answer.ranks)
        with pytest.raises(CockpitError, match=f"gpu01: {why}") as refused:
            choose(group({"gpu01": answer}), pid=pid)
        assert "--pid takes a rank" in str(refused.value)


def test_somebody_elses_process_is_refused_with_its_owner(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start("exec PY lonely.py TOLD")
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    from cockpit.node.stacks import named
    from cockpit.node.stacks.pythons import pythons

    found = named.by_pid(pid, pythons([pid]).stats, set())
    assert not found.programs
    assert "or root may inspect it" in found.why
