"""A rehearsal on this machine: real torch, real ranks, and nothing is left of them, however it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from cockpit.base import verbs
from cockpit.base.gate import plain, read
from cockpit.base.rehearsal_answers import RehearseItem, TrialAnswer, TrialItem
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.checkup import rehearsal
from tests.needs import require_module
from tests.waiting import until


class Asked:
    """A request that is being served in a thread."""

    def __init__(self, serve: Any, request: verbs.Request[Any, Any]) -> None:
        self.items: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {}
        self.error: NodeError | None = None
        self.call = Call({"id": 1, **plain(request)}, b"", lambda head, data: self.items.append(head["item"]))
        self.thread = threading.Thread(target=self._serve, args=(serve,))
        self.thread.start()

    def _serve(self, serve: Any) -> None:
        try:
            self.answer = serve(self.call)
        except NodeError as error:
            self.error = error

    def port(self) -> int | None:
        """Where rank 0 listens, once it does."""
        return next((item["port"] for item in self.items if item.get("port")), None)

    def ended(self) -> TrialAnswer:
        """Its answer."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.error is None
        return read(TrialAnswer, self.answer)


@contextmanager
def rehearsing(**more: Any) -> Iterator[Asked]:
    asked = Asked(rehearsal.rehearse, verbs.Rehearse(**{"cwd": "/", "python": sys.executable, **more}))
    try:
        until(lambda: asked.items or asked.error or not asked.thread.is_alive(), "torch is imported")
        yield asked
    finally:
        asked.call.cancel()
        asked.thread.join(60)
        assert not asked.thread.is_alive()


def trial(rank: int, world: int, port: int = 0, **more: Any) -> Asked:
    return Asked(rehearsal.trial, verbs.Trial(rank, world, "127.0.0.1", port, **{"limit_s": 60.0, **more}))


def below() -> set[psutil.Process]:
    """Our children and theirs."""
    return set(psutil.Process().children(recursive=True))


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie that somebody else may reap."""
    found = procfs.stat(pid)
    return found is not None and found.state not in "ZX"


@pytest.mark.slow
def test_ranks_meet_reduce_and_measure_and_nothing_is_left() -> None:
    require_module("torch")
    before = below()
    env = {"GLOO_SOCKET_IFNAME": "lo"}
    with rehearsing(env=env) as asked:
        (item,) = asked.items
        assert read(RehearseItem, item).torch

        first = trial(0, 2, peers=(1, -1))
        port = until(first.port, "rank 0 listens") or 0
        second = trial(1, 2, port, peers=(0, -1))
        answers = [first.ended(), second.ended()]
        assert [answer.error for answer in answers] == ["", ""]
        assert {answer.step for answer in answers} == {"done"}
        assert {(answer.interface, answer.address) for answer in answers} == {("lo", "127.0.0.1")}
        rate, none = answers[0].rates
        assert rate
        assert none is None
        assert answers[1].rates == (None, None)
        assert answers[0].took_s["reduce"] >= 0
        steps = [read(TrialItem, each).step for each in first.items]
        assert steps == ["rendezvous", "gather", "connect", "reduce", "measure", "done"]

        # Nobody comes: it says for what it waited.
        alone = trial(0, 2, limit_s=4.0).ended()
        assert alone.step == "gather"
        assert "timeout" in alone.error
        assert alone.said.count("\n") < 200

        # A rank that dies, one that nobody wants any more, and all that are there when the rehearsal ends.
        ranks = below() - before
        dying = trial(0, 2)
        until(dying.port)
        (rank,) = below() - before - ranks
        rank.send_signal(signal.SIGSEGV)
        assert dying.ended().error == "it died: signal 11"
        # One that does not even end by itself takes no other with it.
        stuck = trial(0, 2, limit_s=5.0)
        until(stuck.port)
        (rank,) = below() - before - ranks
        rank.suspend()
        assert stuck.ended().error == "not finished in time"
        unwanted = trial(0, 2)
        until(unwanted.port)
        unwanted.call.cancel()
        assert unwanted.ended().step == "gather"
        assert below() - before == ranks
        left = trial(0, 2)
        until(left.port)
    left.thread.join(60)
    assert left.error is not None
    assert "ended" in left.error.what
    assert below() <= before
    with pytest.raises(NodeError, match="no torch test runs here"):
        rehearsal.trial(Call({"id": 1, **plain(verbs.Trial(0, 1, "x"))}, b"", lambda *_: None))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"setup": "echo no such module >&2; false"}, "no such module"),
        ({"python": "/nonexistent/python"}, "exit 92"),
        ({"setup": "kill -9 $$"}, "killed by signal 9 (out of memory?"),
    ],
)
def test_what_keeps_torch_from_starting_is_told(more: dict[str, Any], words: str) -> None:
    with rehearsing(**more) as asked:
        assert asked.error is not None
        assert words in asked.error.what
        assert asked.items == []


def test_a_python_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    with rehearsing(env={"PYTHONPATH": str(tmp_path)}) as asked:
        assert asked.error is not None
        assert "libcudart.so.12" in asked.error.what


def test_a_setup_that_hangs_ends_with_the_request_and_its_children_too(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    setup = f"sleep 600 & echo $! $$ > {pids}; wait"
    asked = Asked(rehearsal.rehearse, verbs.Rehearse("/", setup, sys.executable))
    until(lambda: pids.exists() and pids.read_text().endswith("\n"), "the setup runs")
    asked.call.cancel()
    asked.thread.join(60)
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not runs(pid), "it is gone")  # type: ignore[misc]


def test_its_time_is_over(tmp_path: Path) -> None:
    began = time.monotonic()
    asked = Asked(rehearsal.rehearse, verbs.Rehearse("/", "sleep 600", sys.executable, limit_s=0.3))
    asked.thread.join(60)
    assert not asked.thread.is_alive()
    assert time.monotonic() - began < 60
    assert not [child for child in below() if "sleep" in child.name() and child.ppid() == os.getpid()]
