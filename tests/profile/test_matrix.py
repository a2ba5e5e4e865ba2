"""Whatever ends a profile early: what is kept, that nothing of it is left running, that the others step on.

docs/profiling.md has the same table; each test here is a cell of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cockpit.base.profile import order
from tests import needs
from tests.profile.ready import Nsys, keepers
from tests.profile.training import Training, agents, gone, spies, training
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.launch]

KINDS = ("torch", "cpu", "nsys")


def above_all(kind: str) -> list[Any]:
    """All kinds, the others as a campaign: what ends a recording early is met by the same code of ours."""
    others = (each for each in KINDS if each != kind)
    return [kind, *(pytest.param(each, marks=pytest.mark.campaign) for each in others)]


WORDS = {
    "torch": ["--kind", "torch", "--steps", "60"],
    "cpu": ["--kind", "cpu", "--seconds", "12"],
    "nsys": ["--kind", "nsys", "--seconds", "12"],
}
"""Long enough that it is under way when something happens to it."""


@pytest.fixture
def nsys(tmp_path: Path) -> Nsys:
    return Nsys(tmp_path / "stand-in")


@pytest.fixture
def ranks(kind: str, nsys: Nsys, tmp_path: Path) -> Iterator[Training]:
    """Two ranks that do not wait for each other."""
    with trained(kind, nsys, tmp_path) as made:
        yield made


@contextmanager
def trained(kind: str, nsys: Nsys, folder: Path, nodes: str = "") -> Iterator[Training]:
    """Two ranks that can be profiled so; with the real torch, where its profiler is what profiles."""
    if kind == "torch":
        needs.require_module("torch")
    more = nsys.words if kind == "nsys" else ()
    with training(folder, kind="alone" if kind == "torch" else "stub", nodes=nodes, more=more) as made:
        yield made


class Profiling:
    """A profile under way."""

    def __init__(self, ranks: Training, kind: str, nsys: Nsys) -> None:
        self.ranks = ranks
        self.nsys = nsys
        self.kind = kind
        self.pids = [ranks.pid(rank) for rank in (0, 1)]
        self.cockpit = ranks.verbs.start("profile", ranks.name, *WORDS[kind])
        until(lambda: all(map(self.under_way, (0, 1))), "both ranks are profiled")
        self.agents = agents(self.cockpit.pid)
        assert len(self.agents) == 2

    def under_way(self, rank: int) -> bool:
        """Whether a rank is being profiled."""
        if self.kind == "cpu":
            return bool(spies([self.pids[rank]]))
        if self.kind == "nsys":
            return self.nsys.records(self.ranks.node(rank))
        return self.ranks.answer(rank).state == "profiling"

    def agent(self, rank: int) -> psutil.Process:
        """The one that was told to profile a rank."""
        if self.kind == "cpu":
            spy = spies([self.pids[rank]])[0]
            return next(one for one in self.agents if one.pid == spy.ppid())
        if self.kind == "nsys":
            (keeper,) = keepers(self.ranks.node(rank))
            return next(one for one in self.agents if one.pid == keeper.ppid())
        mapped = [one for one in self.agents if _has_open(one, self.pids[rank])]
        assert len(mapped) == 1
        return mapped[0]

    def ended(self, code: int) -> str:
        """Wait until cockpit has; all it said."""
        done = self.ranks.verbs.end(self.cockpit, timeout=PATIENCE_S)
        assert done.code == code, done.both
        return done.both

    def nothing_is_left(self, *living: int) -> None:
        """Nothing of it runs, and ranks that live step on."""
        until(lambda: not spies(self.pids), "no py-spy is left")
        until(lambda: all(map(gone, self.agents)), "no agent is left")
        if self.kind == "nsys":
            until(lambda: not keepers(self.ranks.verbs.work), "nobody records")
            assert not any(map(self.under_way, (0, 1)))
        for rank in living:
            if self.kind == "torch":
                until(partial(self.is_through, rank), f"rank {rank} is through")
            self.ranks.steps_on(rank)

    def is_through(self, rank: int) -> bool:
        """Whether the hook of a rank has nothing to do any more."""
        return self.ranks.answer(rank).state in order.OVER

    def again(self, *living: int) -> None:
        """The same ranks can be profiled once more."""
        words = ["--kind", self.kind, "--ranks", ",".join(map(str, living))]
        words += ["--steps", "2"] if self.kind == "torch" else ["--seconds", "1"]
        done = self.ranks.profile(*words)
        assert done.code == 0, done.both


def _has_open(process: psutil.Process, pid: int) -> bool:
    """Whether an agent has the ring of a rank open."""
    try:
        return any(f".{pid}.ring" in one.path for one in process.open_files())
    except psutil.Error:
        return False


@pytest.mark.long
@pytest.mark.parametrize("kind", above_all("torch"))
def test_ctrl_c(ranks: Training, kind: str, nsys: Nsys) -> None:
    under_way = Profiling(ranks, kind, nsys)
    under_way.cockpit.send_signal(signal.SIGINT)
    said = under_way.ended(130)
    assert "cancelling; collected ranks are kept" in said
    kept = ranks.collection()
    assert kept.cancelled == "cancelled by Ctrl-C"
    assert set(kept.missing) == {0, 1}
    assert "confirmed" not in "".join(kept.missing.values())
    under_way.nothing_is_left(0, 1)
    under_way.again(0, 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", above_all("cpu"))
def test_kill_9_of_cockpit(ranks: Training, kind: str, nsys: Nsys) -> None:
    under_way = Profiling(ranks, kind, nsys)
    under_way.cockpit.kill()
    under_way.cockpit.communicate()
    under_way.nothing_is_left(0, 1)
    kept = ranks.collection()
    assert set(kept.missing) == {0, 1}
    if kind == "torch":
        # Its agents have had it ended.
        assert [ranks.answer(rank).state for rank in (0, 1)] == ["cancelled", "cancelled"]
        assert ranks.unfinished() == []
    under_way.again(0, 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", above_all("nsys"))
def test_kill_9_of_an_agent(ranks: Training, kind: str, nsys: Nsys) -> None:
    under_way = Profiling(ranks, kind, nsys)
    under_way.agent(1).kill()
    under_way.ended(3)
    kept = ranks.collection()
    assert list(kept.missing) == [1]
    assert kept.missing[1].startswith("connection lost")
    under_way.nothing_is_left(0, 1)
    if kind == "nsys":
        # Who records has stopped it, and the report is there.
        (report,) = ranks.reports(1)
        assert kept.id in report.name
    if kind == "torch":
        # Its number of steps has ended it, and the trace is there.
        answer = ranks.answer(1)
        assert (answer.state, answer.why) == ("written", "")
        (trace,) = ranks.traces(1)
        assert kept.id in trace.name
    under_way.again(0, 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", above_all("torch"))
def test_a_link_that_is_silent(ranks: Training, kind: str, nsys: Nsys) -> None:
    under_way = Profiling(ranks, kind, nsys)
    agent = under_way.agent(1)
    agent.suspend()
    try:
        under_way.ended(3)
    finally:
        with suppress(psutil.NoSuchProcess):  # it ended with the link
            agent.resume()
    kept = ranks.collection()
    assert list(kept.missing) == [1]
    assert kept.missing[1].startswith("connection lost: no answer")
    under_way.nothing_is_left(0, 1)
    under_way.again(0, 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", above_all("torch"))
@pytest.mark.parametrize("how", ["kill -9", "fails"])
def test_a_rank_that_ends(ranks: Training, kind: str, how: str, nsys: Nsys) -> None:
    under_way = Profiling(ranks, kind, nsys)
    if how == "fails":
        (ranks.verbs.work / "fail-1").touch()
    else:
        os.kill(ranks.pid(1), signal.SIGKILL)
    # Of its stacks, those until then are here.
    under_way.ended(3 if kind == "torch" else 0)
    kept = ranks.collection()
    assert list(kept.missing) == ([1] if kind == "torch" else [])
    assert "ended" in kept.results[1].why
    under_way.nothing_is_left(0)
    under_way.again(0)


@pytest.mark.long
@pytest.mark.parametrize("kind", above_all("nsys"))
def test_stop(ranks: Training, kind: str, nsys: Nsys) -> None:
    under_way = Profiling(ranks, kind, nsys)
    assert ranks.verbs.call("stop", ranks.name).code == 0
    under_way.ended(3 if kind == "torch" else 0)
    kept = ranks.collection()
    assert list(kept.missing) == ([0, 1] if kind == "torch" else [])
    assert all("ended" in one.why for one in kept.results.values())
    under_way.nothing_is_left()
    assert not any(map(psutil.pid_exists, under_way.pids))


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize("kind", above_all("cpu"))
def test_a_full_disk_on_the_nodes(kind: str, tmp_path: Path, small: Callable[..., None], nsys: Nsys) -> None:
    with trained(kind, nsys, tmp_path, nodes=str(tmp_path / "nodes")) as ranks:
        under_way = Profiling(ranks, kind, nsys)
        small(32 << 20 if kind == "nsys" else 0)
        under_way.ended(3 if kind == "torch" else 0)
        kept = ranks.collection()
        if kind == "nsys":
            assert kept.missing == {}
            assert all("the disk is nearly full" in one.why for one in kept.results.values())
        elif kind == "torch":
            assert set(kept.missing) == {0, 1}
            assert "could not be written" in kept.missing[0]
            assert ranks.unfinished() == []
        else:
            assert kept.missing == {}
        under_way.nothing_is_left(0, 1)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """A file system for the nodes, and what fills it but for so many bytes."""
    base = tmp_path / "nodes"
    base.mkdir(mode=0o700)
    mount = needs.require("mount")
    options = ["-t", "tmpfs", "-o", "size=600m,mode=700", "none", str(base)]
    if subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        needs.lacking("mounting a tmpfs is not permitted")

    def fill(left: int = 0) -> None:
        with open(base / "filler", "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 10, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue
            file.truncate(file.tell() - left)

    yield fill
    subprocess.run(["umount", "-l", str(base)], capture_output=True, check=True)
