"""A supervisor that can open no file for a while, as where none is left: its ranks are not given up."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.base import record
from cockpit.node import procfs
from cockpit.node.run.helpers import Helpers, reached
from tests.node import runs
from tests.node.conftest import Launch
from tests.waiting import until


@pytest.fixture
def blind() -> Iterator[None]:
    """This process can open no file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
def test_ranks_are_not_given_up_and_their_ends_are_recorded(launch: Launch, tmp_path: Path) -> None:
    go = tmp_path / "go"
    count = runs.program(tmp_path / "count", f"until [ -e {go} ]; do sleep 0.05; done; exit $((RANK * 7))\n")
    # What ranks use of the CPU is looked at in each tick.
    run = launch(runs.command(2, count), evidence={"idle_s": 0.1})
    ranks = [int(run.event("rank_started", rank=rank)["pid"]) for rank in (0, 1)]
    pid = int(run.started["pid"])
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
    until(lambda: len(run.events("note")) > 12, "it goes on", 30)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert all(map(runs.alive, ranks))
    assert "continued after" in run.events("note")[0]["text"]
    go.touch()
    run.ended()
    assert not run.events("rank_lost")
    assert [run.event("rank_exited", rank=rank)["code"] for rank in (0, 1)] == [0, 7]


@pytest.mark.usefixtures("blind")
def test_a_process_is_there_unless_it_surely_is_not() -> None:
    assert procfs.exists(os.getpid(), 1)
    assert procfs.alive(os.getpid(), 1)
    assert not procfs.alive(1 << 30, 1)
    assert not procfs.send(os.getpid(), 1, 0)  # it may be another one


def test_who_cannot_be_let_in_does_not_keep_the_supervisor_busy(tmp_path: Path) -> None:
    asked = Helpers(str(tmp_path), {})
    listening = asked.sockets()
    assert len(listening) == 1
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reached(str(tmp_path)) as address:
        peer.connect(address)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    asked.tick()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert asked.sockets() == []
    asked.tick()
    assert len(asked.sockets()) == 2  # it is let in
    peer.close()
    asked.close()


def test_a_request_to_stop_with_an_endless_number_stops(launch: Launch, tmp_path: Path) -> None:
    sleeps = runs.program(tmp_path / "sleeps", "trap 'exit 3' TERM; echo on; while :; do sleep 0.05; done\n")
    run = launch(runs.command(1, sleeps), ranks=[0])
    run.says(0, "on")
    (run.folder / record.STOP).write_text(json.dumps({"reason": "x", "grace_s": 10**400}))
    run.ended()
    assert run.event("rank_exited", rank=0)["code"] == 3
