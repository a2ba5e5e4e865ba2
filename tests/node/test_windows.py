"""Windows of steps: begun from outside for a rank that has no GPU, by cudaProfilerStart for one that has."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.node import procfs
from cockpit.node.probe import hooks
from cockpit.node.probe import windows as probe_windows
from cockpit.node.run import windows
from tests.waiting import until


class Cuda:
    """Stands in for ``torch.cuda`` and notes what is called."""

    def __init__(self, gpu: bool = True) -> None:
        self.gpu = gpu
        self.called: list[str] = []
        self.nvtx = self

    def is_available(self) -> bool:
        return self.gpu

    def cudart(self) -> Cuda:
        return self

    def range_push(self, text: str) -> None:
        self.called.append(text)

    def __getattr__(self, name: str) -> object:
        return lambda: self.called.append(name)


def test_cuda_is_told_at_the_first_and_after_the_last_step() -> None:
    cuda = Cuda()
    window = probe_windows.made("3 4 0", cuda)
    assert [window.stepped(step) for step in range(1, 3)] == [True, True]
    assert cuda.called == ["cudaProfilerStart"]
    assert [window.stepped(step) for step in (3, 4)] == [True, False]
    assert cuda.called == ["cudaProfilerStart", "synchronize", "cudaProfilerStop"]


def test_each_step_of_it_may_have_a_range() -> None:
    cuda = Cuda()
    window = probe_windows.made("1 2 1", cuda)
    assert [window.stepped(step) for step in (1, 2)] == [True, False]
    begun = ["cudaProfilerStart", "step 1", "range_pop", "step 2"]
    assert cuda.called == [*begun, "range_pop", "synchronize", "cudaProfilerStop"]


def test_steps_that_are_over_are_not_recorded() -> None:
    """A checkpoint takes the number of the step far ahead."""
    cuda = Cuda()
    assert not probe_windows.made("3 4 1", cuda).stepped(1000)
    assert cuda.called == []


def test_without_a_gpu_nothing_is_begun() -> None:
    with pytest.raises(ValueError, match="torch sees no GPU"):
        probe_windows.made("3 4 0", Cuda(gpu=False))


def test_a_step_waits_until_others_have_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "be gun"
    window = probe_windows.made(f"3 4 0 {path}", None)
    assert window.stepped(1)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        path.touch()

    monkeypatch.setattr("cockpit.node.probe.windows.time.sleep", sleep)
    assert not window.stepped(2)
    assert len(waited) == 1


def test_a_step_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("cockpit.node.probe.windows.time.monotonic", lambda: now[0])
    monkeypatch.setattr("cockpit.node.probe.windows.time.sleep", lambda s: now.__setitem__(0, now[0] + s))
    assert not probe_windows.made(f"1 4 0 {tmp_path}/never", None).stepped(2)
    assert probe_windows.PATIENCE_S <= now[0] < probe_windows.PATIENCE_S + 0.1
    assert probe_windows.PATIENCE_S == windows.PATIENCE_S


class Rank:
    """A process, its ring, and a stand-in for nsys that notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(["sleep", "1000"])
        self.identity = self.process.pid, procfs.ticks(self.process.pid)
        self.ring = hooks.Ring(str(folder / f"7.{self.process.pid}.ring"), 7, 1)
        self.said = ""
        self.nsys("exit 0")

    def nsys(self, text: str) -> None:
        path = self.folder / "nsys"
        path.write_text(f'#!/bin/sh\necho "$1" >>{self.folder}/asked\n{text}\n')
        path.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().split() if path.exists() else []

    def begin(self, first: int, last: int) -> threading.Thread:
        nsys, begun = str(self.folder / "nsys"), str(self.folder / "begun")
        words = [nsys, "start"], [nsys, "stop"]
        window = windows.Window(*words, first, last, str(self.folder), 7, self.identity, begun)

        def record() -> None:
            self.said = window.record()

        thread = threading.Thread(target=record)
        thread.start()
        return thread

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    made = Rank(tmp_path)
    yield made
    made.end()


def test_a_window_is_stopped_after_its_last_step(rank: Rank) -> None:
    thread = rank.begin(3, 4)
    until(lambda: (rank.folder / "begun").exists(), "it has begun")
    for step in range(1, 5):
        assert rank.asked == ["start"]
        rank.ring.add(step)
    thread.join(30)
    assert rank.asked == ["start", "stop"]
    assert rank.said.startswith("its report holds steps 2 to 4 whole, asked were steps 3 to 4")


def test_a_window_far_ahead_is_begun_shortly_before(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "EARLY_S", 0.0)  # steps of no time would make any step a near one
    thread = rank.begin(10_000, 10_001)
    rank.ring.add(1)
    rank.ring.add(2)
    assert not rank.asked
    rank.ring.add(9_998)  # of an engine that took up a checkpoint
    rank.ring.add(9_999)
    until(lambda: (rank.folder / "begun").exists(), "it has begun")
    rank.ring.add(10_000)
    rank.ring.add(10_001)
    thread.join(30)
    # The hook would have held the first of them.
    assert rank.said.startswith("its report holds steps 10000 to 10001 whole")


def test_a_rank_that_ends_before(rank: Rank) -> None:
    thread = rank.begin(100, 101)
    rank.ring.add(1)
    rank.end()
    thread.join(30)
    assert rank.said == "it ended before steps 100 to 101"
    assert rank.asked == []


def test_a_rank_that_ends_within(rank: Rank) -> None:
    thread = rank.begin(2, 9)
    until(lambda: (rank.folder / "begun").exists(), "it has begun")
    for step in (1, 2, 3):
        rank.ring.add(step)
    rank.end()
    thread.join(30)
    assert rank.said == "its report holds steps 2 to 3 whole, asked were steps 2 to 9; then it ended"
    assert rank.asked == ["start"]  # nsys has stopped with the rank


@pytest.mark.parametrize("what", ["start", "stop"])
def test_nsys_that_fails_keeps_no_rank_waiting(rank: Rank, what: str) -> None:
    rank.nsys(f'[ "$1" != {what} ] || {{ echo; echo "No such session"; exit 4; }}')
    thread = rank.begin(1, 1)
    until(lambda: (rank.folder / "begun").exists(), "nobody waits")
    rank.ring.add(1)
    thread.join(30)
    assert rank.said == f"nsys {what} failed: status 4: No such session"


def test_a_damaged_ring_is_no_step(rank: Rank) -> None:
    rank.ring.words[0] = 0
    rank.ring.add(1000)
    thread = rank.begin(3, 4)
    rank.end()
    thread.join(30)
    assert rank.said == "it ended before steps 3 to 4" or rank.said.startswith("no whole step")


def test_nsys_that_is_not_there(tmp_path: Path) -> None:
    assert windows._ran([str(tmp_path / "none")], 1) == os.strerror(2)
    assert windows._ran(["sleep", "9"], 0.01) == "no answer within 0.01 s"
