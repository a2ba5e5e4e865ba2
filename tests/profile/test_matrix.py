"""Profiles of real ranks: by keys of the app; and whatever ends one early: what is kept, that nothing of it
is left running, that the others step on.

docs/profiling.md has the same table; each test here is a cell of it. They share ranks as long as these live.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cockpit.base.profile import order
from cockpit.config import Config
from cockpit.core.profile.collection import Collection
from cockpit.engine.records.folder import RunFolder
from cockpit.tui.app import CockpitApp
from cockpit.tui.profile.form import ProfileForm
from cockpit.tui.profile.screen import ProfileScreen
from cockpit.tui.run.purpose import Joining
from cockpit.tui.run.screen import RunScreen
from tests import needs
from tests.profile.ready import Nsys, Shared, keepers
from tests.profile.training import Training, agents, spies, training
from tests.tui.scenes import text_of
from tests.tui.scenes import until as shown
from tests.waiting import PATIENCE_S, gone, until

pytestmark = [pytest.mark.slow, pytest.mark.launch]

KINDS = ("torch", "cpu", "nsys")


def above_all(kind: str) -> list[Any]:
    """All kinds, the others as a campaign: what ends a recording early is met by the same code of ours."""
    others = (each for each in KINDS if each != kind)
    return [kind, *(pytest.param(each, marks=pytest.mark.campaign) for each in others)]


WORDS = {
    "torch": ["--kind", "torch", "--steps", "100"],
    "cpu": ["--kind", "cpu", "--seconds", "6"],
    "nsys": ["--kind", "nsys", "--seconds", "6"],
}
"""Long enough that it is under way when something happens to it."""


@contextmanager
def trained(folder: Path, kind: str = "alone", nodes: str = "") -> Iterator[tuple[Training, Nsys]]:
    """Two ranks that do not wait for each other, and that can be profiled in each way; nsys is a stand-in.

    :param kind: ``stub``: in each but by torch's profiler
    """
    if kind != "stub":
        needs.require_module("torch")
    nsys = Nsys(folder / "stand-in")
    with training(folder, kind=kind, more=nsys.words, nodes=nodes) as made:
        yield made, nsys


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """For all tests here."""
    made = Shared(tmp_path_factory, trained)
    yield made
    made.close()


class Profiling:
    """A profile under way.

    :param of: the ranks, which live
    """

    def __init__(self, made: tuple[Training, Nsys], kind: str, of: Sequence[int] = (0, 1)) -> None:
        self.ranks, self.nsys = made
        self.kind = kind
        self.of = of
        self.pids = {rank: self.ranks.pid(rank) for rank in of}
        words = ["--ranks", ",".join(map(str, of))]
        self.cockpit = self.ranks.verbs.start("profile", self.ranks.name, *WORDS[kind], *words)
        until(lambda: all(map(self.under_way, of)), "the ranks are profiled")
        self.agents = agents(self.cockpit.pid)
        assert len(self.agents) >= len(of)

    @property
    def kept(self) -> Collection:
        """The newest."""
        return self.ranks.collection(max(self.ranks.store.numbers()))

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
        until(lambda: not spies([*self.pids.values()]), "no py-spy is left")
        until(lambda: all(map(gone, self.agents)), "no agent is left")
        if self.kind == "nsys":
            until(lambda: not keepers(self.ranks.verbs.work), "nobody records")
            assert not any(map(self.under_way, self.of))
        for rank in living:
            if self.kind == "torch":
                until(partial(self.is_through, rank), f"rank {rank} is through")
            self.ranks.steps_on(rank)

    def is_through(self, rank: int) -> bool:
        """Whether the hook of a rank has nothing to do any more."""
        return self.ranks.answer(rank).state in order.OVER

    def again(self, *living: int) -> None:
        """The same ranks can be profiled once more; nsys is what is used unless another kind is asked for."""
        words = {
            "torch": ["--stack", "--steps", "2"],
            "cpu": ["--kind", "cpu", "--seconds", "1"],
            "nsys": ["--seconds", "1"],
        }
        done = self.ranks.profile(*words[self.kind], "--ranks", ",".join(map(str, living)))
        assert done.code == 0, done.both
        assert (self.kept.kind, self.kept.missing) == (self.kind, {})


def _has_open(process: psutil.Process, pid: int) -> bool:
    """Whether an agent has the ring of a rank open."""
    try:
        return any(f".{pid}.ring" in one.path for one in process.open_files())
    except psutil.Error:
        return False


def test_a_key_takes_a_profile_of_real_ranks(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by a key, taken, read, fetched, shown again."""
    ranks, _ = shared.get(0, 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(ranks.verbs.state))
    asyncio.run(_watched())
    one, stacks = (ranks.collection(number) for number in sorted(ranks.store.numbers())[-2:])
    assert (one.kind, one.missing) == ("torch", {})
    assert [len(result.summary.steps) for result in one.results.values() if result.summary] == [5, 5]
    assert stacks.kind == "cpu"
    assert all("train.py" in result.folded for result in stacks.results.values())
    for rank in (0, 1):
        ranks.steps_on(rank)


async def _watched() -> None:
    app = CockpitApp(Joining(RunFolder.find("r")), Config(ascii=False))
    async with app.run_test(size=(140, 45)) as pilot:
        await shown(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen")
        await shown(pilot, lambda: "links ok" in text_of(app), "its links")
        await pilot.press("P")
        await shown(pilot, lambda: isinstance(app.screen, ProfileForm), "the question")
        # What a run that was launched ready for nsys is offered first.
        await shown(pilot, lambda: "5 steps of ranks 0-1, by nsys" in text_of(app), "what it would meet")
        await pilot.press("right")
        await shown(pilot, lambda: "5 steps of ranks 0-1, starting" in text_of(app), "torch's profiler")
        await pilot.press("enter")
        await shown(pilot, lambda: isinstance(app.screen, ProfileScreen), "the screen")
        screen = app.screen
        assert isinstance(screen, ProfileScreen)
        await shown(pilot, lambda: screen.taking is None and screen.settled, "it is over")
        await shown(pilot, lambda: "2 ranks" in text_of(app), "both are here")
        await pilot.press("c")
        await shown(pilot, lambda: "2 of 2 files here" in text_of(app), "the traces")
        await pilot.press("P")
        await shown(pilot, lambda: isinstance(app.screen, ProfileForm), "the question again")
        await shown(pilot, lambda: "or open" in text_of(app), "the earlier one")
        await shown(pilot, lambda: "5 steps of ranks 0-1, by nsys" in text_of(app), "what it would be")
        await pilot.press("right", "right", "down", "down", "left")
        await shown(pilot, lambda: "of ranks 0-1, by py-spy" in text_of(app), "stacks")
        await pilot.press("enter")
        await shown(pilot, lambda: screen.taking is not None, "it begins")
        await shown(pilot, lambda: screen.taking is None and screen.settled, "it is over")
        await shown(pilot, lambda: "train.py" in text_of(app), "where ranks are")
        await pilot.press("escape")
        await shown(pilot, lambda: isinstance(app.screen, RunScreen), "the run")
        await pilot.press("q")
        await shown(pilot, lambda: app.return_code is not None, "left")


@pytest.mark.parametrize("kind", above_all("torch"))
def test_ctrl_c(shared: Shared, kind: str) -> None:
    under_way = Profiling(shared.get(0, 1), kind)
    under_way.cockpit.send_signal(signal.SIGINT)
    said = under_way.ended(130)
    assert "cancelling; collected ranks are kept" in said
    kept = under_way.kept
    assert kept.cancelled == "cancelled by Ctrl-C"
    assert set(kept.missing) == {0, 1}
    assert "confirmed" not in "".join(kept.missing.values())
    under_way.nothing_is_left(0, 1)
    under_way.again(0, 1)


@pytest.mark.parametrize("kind", above_all("cpu"))
def test_kill_9_of_cockpit(shared: Shared, kind: str) -> None:
    under_way = Profiling(shared.get(0, 1), kind)
    under_way.cockpit.kill()
    under_way.cockpit.communicate()
    under_way.nothing_is_left(0, 1)
    assert set(under_way.kept.missing) == {0, 1}
    if kind == "torch":
        # Its agents have had it ended.
        assert [under_way.ranks.answer(rank).state for rank in (0, 1)] == ["cancelled", "cancelled"]
        assert under_way.ranks.unfinished() == []
    under_way.again(0, 1)


@pytest.mark.parametrize("kind", above_all("nsys"))
def test_kill_9_of_an_agent(shared: Shared, kind: str) -> None:
    under_way = Profiling(shared.get(0, 1), kind)
    ranks = under_way.ranks
    under_way.agent(1).kill()
    under_way.ended(3)
    kept = under_way.kept
    assert list(kept.missing) == [1]
    assert kept.missing[1].startswith("connection lost")
    under_way.nothing_is_left(0, 1)
    if kind == "nsys":
        # Who records has stopped it, and the report is there.
        (_,) = (report for report in ranks.reports(1) if kept.id in report.name)
    if kind == "torch":
        # Its number of steps has ended it, and the trace is there.
        answer = ranks.answer(1)
        assert (answer.state, answer.why) == ("written", "")
        (_,) = (trace for trace in ranks.traces(1) if kept.id in trace.name)
    under_way.again(0, 1)


@pytest.mark.parametrize("kind", above_all("torch"))
def test_a_link_that_is_silent(shared: Shared, kind: str) -> None:
    under_way = Profiling(shared.get(0, 1), kind)
    agent = under_way.agent(1)
    agent.suspend()
    try:
        under_way.ended(3)
    finally:
        with suppress(psutil.NoSuchProcess):  # it ended with the link
            agent.resume()
    kept = under_way.kept
    assert list(kept.missing) == [1]
    assert kept.missing[1].startswith("connection lost: no answer")
    under_way.nothing_is_left(0, 1)
    under_way.again(0, 1)


# With the real torch, one that is killed: tests/node/test_profile.py.
@pytest.mark.parametrize("kind", above_all("torch"))
@pytest.mark.parametrize("how", ["fails", pytest.param("kill -9", marks=pytest.mark.campaign)])
def test_a_rank_that_ends(shared: Shared, kind: str, how: str) -> None:
    under_way = Profiling(shared.get(0, 1), kind)
    if how == "fails":
        (under_way.ranks.verbs.work / "fail-1").touch()
    else:
        os.kill(under_way.ranks.pid(1), signal.SIGKILL)
    # Of its stacks, those until then are here.
    under_way.ended(3 if kind == "torch" else 0)
    kept = under_way.kept
    assert list(kept.missing) == ([1] if kind == "torch" else [])
    assert "ended" in kept.results[1].why
    under_way.nothing_is_left(0)
    under_way.again(0)


@pytest.mark.parametrize("kind", above_all("nsys"))
def test_stop(shared: Shared, kind: str) -> None:
    """Of the rank that lives still, where the other one was ended before."""
    under_way = Profiling(shared.get(0), kind, of=[0])
    ranks = under_way.ranks
    assert ranks.verbs.call("stop", ranks.name).code == 0
    under_way.ended(3 if kind == "torch" else 0)
    kept = under_way.kept
    assert list(kept.missing) == ([0] if kind == "torch" else [])
    assert all("ended" in one.why for one in kept.results.values())
    under_way.nothing_is_left()
    assert not any(map(psutil.pid_exists, under_way.pids.values()))


@pytest.mark.root
@pytest.mark.parametrize("kind", above_all("nsys"))
def test_a_full_disk_on_the_nodes(kind: str, tmp_path: Path, small: Callable[..., None]) -> None:
    how = "alone" if kind == "torch" else "stub"
    with trained(tmp_path, how, str(tmp_path / "nodes")) as made:
        ranks, _ = made
        under_way = Profiling(made, kind)
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
