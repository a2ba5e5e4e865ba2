"""Profiles by py-spy: real processes, a real py-spy, and a stand-in where that is to fail."""

from __future__ import annotations

import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import verbs
from cockpit.base.shared_fields import THREAD, Target
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.profile import spying
from tests.node import spies
from tests.waiting import until

PROGRAM = """
import threading, time

def read_shard():
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        sum(range(1000))

threading.Thread(target=time.sleep, args=(1000,), name="Thread-7 (worker)", daemon=True).start()
print()
while True:
    read_shard()
    time.sleep(0.05)
"""

ENDLESS = "[ $1 = dump ] && exit 0; echo $$ > {0}/new; mv {0}/new {0}/pid; exec sleep 1000"

Put = Callable[[str], Path]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that has learnt nothing yet."""
    spies.forget(monkeypatch)


@pytest.fixture
def busy() -> Iterator[int]:
    """A Python process that works and sleeps in turn."""
    process = spies.start(PROGRAM)
    yield process.pid
    process.kill()
    process.communicate()


class Asked:
    """A request, and what came of it."""

    def __init__(self, *pids: int, seconds: float = 1.0, rate: int = 20) -> None:
        self.items: list[dict[str, Any]] = []
        self.folded: dict[int, str] = {}
        targets = tuple(Target(rank, pid, procfs.ticks(pid)) for rank, pid in enumerate(pids))
        self.asked = verbs.Profile("", targets, "cpu", "c1", seconds=seconds, rate=rate)
        self.call = Call({"id": 1}, b"", self._took)

    def _took(self, head: dict[str, Any], payload: bytes) -> None:
        self.items.append(head["item"])
        if payload:
            self.folded[head["item"]["rank"]] = zlib.decompress(payload).decode()

    def run(self) -> Asked:
        spying.run(self.call, self.asked)
        return self

    def last(self, rank: int = 0) -> dict[str, Any]:
        return [item for item in self.items if item["rank"] == rank][-1]

    def lines(self, rank: int) -> list[str]:
        """Of its stacks."""
        return self.folded.get(rank, "").splitlines()


def works(lines: list[str]) -> bool:
    """Whether the main thread was met at work."""
    return any("read_shard" in line and not line.startswith(THREAD) for line in lines)


def test_names_of_functions_may_be_anything() -> None:
    began = time.monotonic()
    said = f"thread (7): x;{' (' * 500_000} 3\nthread (7);{'y' * 5000} (a.py:3) 4\n"
    found = spying.folded(said, {7}, "", "/home/u")
    assert sorted(found.values()) == [3, 4]
    assert max(map(len, found)) <= spying.FRAME + 5  # a file without its folder is …/file
    assert time.monotonic() < began + 20
    assert len(spying.written({f"{one:06}": 1 for one in range(1 << 20)})) <= spying.MOST_BYTES


def test_all_ranks_are_recorded_at_once_and_the_main_thread_apart(busy: int) -> None:
    other = spies.start(PROGRAM)
    try:
        # Where every CPU is taken, seconds may pass without a sample, or without one that meets it at work.
        for seconds in (1.0, 2.0, 4.0, 8.0, 16.0):
            done = Asked(busy, other.pid, seconds=seconds).run()
            if all(map(works, map(done.lines, (0, 1)))):
                break
    finally:
        other.kill()
        other.communicate()
    for rank in (0, 1):
        states = [item["state"] for item in done.items if item["rank"] == rank]
        assert states == ["ready", "profiling", "done"]
        last = done.last(rank)
        assert last["samples"] > 0
        assert 1 <= last["rate"] <= 20
        assert works(done.lines(rank))
        assert any(line.startswith("thread: Thread (worker);") for line in done.lines(rank))
    assert procfs.stat(busy) is not None


def test_the_rate_keeps_what_a_rank_is_held_up_small() -> None:
    assert spying.rate_for(0.0, 20) == (20, False)
    assert spying.rate_for(0.002, 20) == (10, False)
    assert spying.rate_for(0.002, 5) == (5, False)
    assert spying.rate_for(0.019, 20) == (1, False)
    assert spying.rate_for(0.03, 20) == (20, True)


def test_a_rank_that_ends_costs_only_its_own_profile(busy: int) -> None:
    gone = spies.start(PROGRAM)
    asked = Asked(busy, gone.pid)
    gone.kill()
    gone.communicate()
    done = asked.run()
    assert done.last(0)["state"] == "done"
    assert done.last(1) == {"rank": 1, "state": "failed", "what": "its process has ended"}


@pytest.mark.parametrize(
    ("script", "state", "what"),
    [
        ("echo Error: Permission denied >&2; exit 1", "failed", ""),
        ("echo Error: strange >&2; exit 1", "failed", "py-spy failed: strange"),
        (
            '[ $1 = dump ] && exit 0; echo "Error: gone wrong" >&2; exit 1',
            "failed",
            "py-spy failed: gone wrong",
        ),
        ("[ $1 = dump ] && exit 0; echo nothing that is a stack", "done", None),
    ],
)
def test_what_py_spy_complains_about_is_said(
    busy: int, use: Put, script: str, state: str, what: str | None
) -> None:
    use(script)
    last = Asked(busy).run().last()
    assert last["state"] == state
    if what is not None:
        assert what in last["what"]


def test_a_cancelled_request_ends_its_py_spy(busy: int, use: Put, tmp_path: Path) -> None:
    use(ENDLESS.format(tmp_path))
    asked = Asked(busy, seconds=600)
    thread = threading.Thread(target=asked.run)
    thread.start()
    until((tmp_path / "pid").exists, "py-spy")
    asked.call.cancel()
    thread.join()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: procfs.stat(pid) is None, "the end of py-spy")
    assert asked.last()["state"] == "cancelled"


def test_an_agent_that_is_killed_takes_its_py_spy_along(busy: int, use: Put, tmp_path: Path) -> None:
    use(ENDLESS.format(tmp_path))
    agent = os.fork()
    if not agent:
        try:
            Asked(busy, seconds=600).run()
        finally:
            os._exit(0)
    until((tmp_path / "pid").exists, "py-spy")
    pid = int((tmp_path / "pid").read_text())
    os.kill(agent, signal.SIGKILL)
    os.waitpid(agent, 0)
    until(lambda: procfs.stat(pid) is None or procfs.stat(pid).state == "Z", "the end of py-spy")  # type: ignore[union-attr]


def test_file_names_are_those_of_stacks() -> None:
    said = (
        "py-spy> Sampling\n"
        "thread (7): MainThread;<module> (/w/train.py:8);f (/v/lib/python3.11/site-packages/torch/x.py:3) 9\n"
        "process 7:python;thread (8): Thread-3 (_do);run (/usr/lib/python3.11/threading.py:1) 4\n"
        "thread (9): Thread-12 (_do);run (/usr/lib/python3.11/threading.py:1) 2\n"
    )
    assert spying.folded(said, {7}, "/w", "/root") == {
        "<module> (./train.py:8);f (torch/x.py:3)": 9,
        "thread: Thread (_do);run (python/threading.py:1)": 6,
    }
