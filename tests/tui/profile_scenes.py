"""Every designed state of the profile screen, on made-up ranks: for snapshots and pictures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from textual.pilot import Pilot

from cockpit.base.profile.summary import Operation
from cockpit.config import Config, Quotas
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.engine.profile.choose import Estimate, Plan, Wish
from cockpit.engine.profile.store import Store
from cockpit.engine.profile.taking import Taking
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.join import pool_for
from cockpit.errors import CockpitError
from cockpit.tui.base_app import BaseApp
from cockpit.tui.profile.form import ProfileForm
from cockpit.tui.profile.job import Job
from cockpit.tui.profile.screen import ProfileScreen
from tests.core.profiled import Work, collection
from tests.tui.scenes import busy, text_of, until
from tests.tui.stage import NOW
from tests.waiting import PATIENCE_S

RUN = "20261121-0412-otter"
MS = 1_000_000


def usual(rank: int, step: int) -> Work:
    """What a rank does, each a little differently."""
    ripple = (37 * rank + 11 * step) % 7
    return Work(
        data=20, forward=560, backward=1_120 + ripple, idle=40, update=60 - ripple / 10, idle_in="forward"
    )


def reads(slow: int) -> Callable[[int, int], Work]:
    """One rank waits for its data."""
    return lambda rank, step: replace(usual(rank, step), data=970) if rank == slow else usual(rank, step)


def shown(ranks: int, does: Callable[[int, int], Work], **more: Any) -> Collection:
    """A profile of a job with so many ranks, eight a node, or two."""
    a_node = 8 if ranks > 8 else 2
    made = collection(
        ranks,
        does,
        nodes=ranks // a_node,
        steps=range(1212, 1217),
        group="data parallel",
        at=NOW - 60,
        run=RUN,
        options=("shapes",),
        before=1.83,
        **more,
    )
    results = {rank: _with(one, does(rank, 1212)) for rank, one in made.results.items()}
    return replace(made, results=results)


def _with(one: RankResult, work: Work) -> RankResult:
    """With what a model calls."""
    assert one.summary is not None
    calls: dict[str, tuple[str, float, int]] = {
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": ("data", work.data, 1),
        "aten::mm": ("compute", 0.4 * work.forward + 0.5 * work.backward, 144),
        "aten::_flash_attention_backward": ("compute", 0.3 * work.backward, 24),
        "aten::_flash_attention_forward": ("compute", 0.3 * work.forward, 24),
        "aten::native_layer_norm": ("compute", 0.1 * work.forward, 48),
        "aten::gelu": ("compute", 0.1 * work.forward, 24),
        "aten::_fused_adam_": ("compute", work.update, 1),
        "aten::copy_": ("copy", 12, 36),
        "aten::cross_entropy_loss": ("compute", 5, 1),
    }
    rows = tuple(
        Operation(name=name, kind=kind, own=round(5 * own * MS), count=5 * count)
        for name, (kind, own, count) in calls.items()
    )
    file = f"{RUN}.{one.node}.rank-{one.rank}.torch.step-1212.261121-040341-0f3a21.trace.json.gz"
    return replace(
        one, file=file, size=16 << 20, summary=replace(one.summary, operations=rows, operations_all=len(rows))
    )


def partial(ranks: int, missing: Mapping[int, tuple[str, str]], **more: Any) -> Collection:
    """The same, without what has not come.

    :param missing: by rank its state, and why nothing comes
    """
    whole = shown(ranks, reads(13 if ranks > 13 else 3), **more)
    results = {
        rank: replace(one, state=missing[rank][0], why=missing[rank][1], summary=None, file="", size=0)
        if rank in missing
        else one
        for rank, one in whole.results.items()
    }
    return replace(whole, results=results)


def sampled(ranks: int, slow: int) -> Collection:
    """Stacks of ranks, one of which reads."""
    a_node = 8 if ranks > 8 else 2
    main = "<module> (train.py:240);main (train.py:212)"
    step = f"{main};train_step (train.py:188)"
    results = {}
    for rank in range(ranks):
        reading = 66 if rank == slow else 3
        stacks = {
            f"{main};next_batch (train.py:183);__next__ (data.py:131);read_shard (data.py:118)": reading,
            f"{step};backward (deepspeed/runtime/engine.py:3431);all_reduce (torch/distributed.py:3252)": 80,
            f"{step};forward (model/attention.py:71);linear (torch/nn/functional.py:125)": 114 - reading,
            "thread: pin_memory;_pin_memory_loop (torch/utils/data/pin_memory.py:52)": 197,
        }
        results[rank] = RankResult(
            rank,
            f"gpu{rank // a_node + 1:02d}",
            DONE,
            began=NOW - 58,
            rate=20,
            samples=197,
            folded="\n".join(f"{stack} {many}" for stack, many in stacks.items()),
        )
    return Collection(1, "id", RUN, "cpu", NOW - 60, seconds=10.0, results=results)


class Played(Taking):
    """A profile that a test plays."""

    def __init__(self, one: Collection, steps: Mapping[int, int] | None = None) -> None:
        self.wish = Wish()
        estimate = Estimate(3.2, 14.8, 170 << 20, 16 << 20, (0.3, 0.5))
        cpu = one.kind == "cpu"
        self.plan = Plan(
            one.kind, tuple(one.results), {}, None if cpu else one.first, one.steps, one.seconds or 0.0, 20,
            one.options, 120.0, estimate,
        )  # fmt: skip
        self.one = one
        self.number, self.id = one.number, one.id
        self.results = dict(one.results)
        self.steps = dict(steps or {})
        self.cancelled = self.trouble = ""
        self.fails: CockpitError | None = None
        self.over_ = asyncio.Event()
        self.begun = False

    async def take(self) -> Collection:
        self.begun = True
        if self.fails is not None:
            raise self.fails
        await self.over_.wait()
        return self.collection()

    def collection(self, *times: float | None) -> Collection:
        return replace(self.one, results=dict(self.results), cancelled=self.cancelled)

    def cancel(self, why: str) -> None:
        self.cancelled = self.cancelled or why


class App(BaseApp):
    """The screen alone.

    :param shown: what it opens with; None: the question
    """

    def __init__(
        self,
        ranks: int,
        shown: Callable[[], Taking | Collection | None],
        earlier: Sequence[Collection] = (),
        prepare: Callable[[Wish], Taking] | None = None,
        config: Config | None = None,
        why_not: str = "",
    ) -> None:
        super().__init__(config or Config(ascii=False))
        a_node = 8 if ranks > 8 else 2
        nodes = [
            NodeEntry(f"gpu{at // a_node + 1:02d}", f"/tmp/{at}", list(range(at, at + a_node)))
            for at in range(0, ranks, a_node)
        ]
        manifest = Manifest(
            run=RUN,
            nodes=nodes,
            created=NOW - 900,
            launcher="deepspeed",
            program=["train.py"],
            cwd="/home",
        )
        self.folder = RunFolder.create(manifest)
        self.store = Store(self.folder.path / "profiles")
        self.wishes: list[Wish] = []
        self.why_not_ = why_not
        self._begin_with = shown
        self._prepare = prepare
        self.answers = prepare is not None
        """Whether nodes answer what a profile would meet."""
        for one in earlier:
            self.keep(one)
        self.job = Job(
            self.folder,
            self.store,
            pool_for(manifest),
            self._prepared,
            lambda: self.why_not_,
            local={rank: rank % a_node for rank in range(ranks)},
            marked=lambda: {"marked ranks 3,7": frozenset({3, 7})},
        )

    def keep(self, one: Collection) -> int:
        """Put a profile on the disk."""
        number = self.store.begin(Quotas())
        self.store.save(replace(one, number=number))
        return number

    async def _prepared(self, wish: Wish) -> Taking:
        self.wishes.append(wish)
        if self._prepare is None:
            await asyncio.Event().wait()
        assert self._prepare is not None
        return self._prepare(wish)

    def on_mount(self) -> None:
        """Show it."""
        begin = self._begin_with()
        if begin is None:
            self.push_screen(ProfileForm(self.job, self.store.heads()), self.answered)
        else:
            self.answered(self.keep(begin) if isinstance(begin, Collection) else begin)

    def answered(self, answer: Taking | int | None) -> None:
        """What was chosen."""
        if answer is not None:
            self.push_screen(ProfileScreen(self.job, answer))


@dataclass(frozen=True)
class ProfileScene:
    """What is played, and keys before it is looked at."""

    make: Callable[[], App]
    keys: tuple[str, ...] = ()


def begins(ranks: int) -> Taking:
    """Nothing is here: the first step is awaited."""
    blank = dict.fromkeys(range(ranks), ("ready", ""))
    return Played(partial(ranks, blank), dict.fromkeys(range(ranks), 1209))


def goes_on(ranks: int, **more: Any) -> Taking:
    """The ranks of the last node write."""
    a_node = 8 if ranks > 8 else 2
    late = dict.fromkeys(range(ranks - a_node, ranks), ("writing", ""))
    return Played(partial(ranks, late, **more), dict.fromkeys(range(ranks), 1216))


def refuses(ranks: int) -> Collection:
    """Some ranks could not be profiled."""
    why = "another profiler (torch.profiler) already runs in it"
    return partial(ranks, {0: ("refused", why), 1: ("refused", why)})


def ends_early(ranks: int) -> Collection:
    """It was cancelled."""
    some = dict.fromkeys(range(2, ranks), ("cancelled", "cancelled in the cockpit"))
    return partial(ranks, some, cancelled="cancelled in the cockpit")


def recorded(ranks: int) -> Collection:
    """Reports of nsys, of two ranks each."""
    results = {}
    for rank in range(ranks):
        node = f"gpu{rank // 2 + 1:02d}"
        results[rank] = RankResult(
            rank,
            node,
            DONE,
            "steps 1212 to 1216 are in it, with 0.8 s before and 0.3 s after; nsys took 0.6 s to start",
            began=NOW - 58 + rank // 2 / 10,
            file=f"{RUN}.{node}.nsys.261121-040341-0f3a21.nsys-rep",
            size=31 << 20,
        )
    return Collection(1, "261121-040341-0f3a21", RUN, "nsys", NOW - 60, 1212, 5, results=results)


def writes(ranks: int) -> Taking:
    """nsys writes its reports."""
    one = recorded(ranks)
    results = {
        rank: replace(each, state="writing", why="", file="", size=23 << 20)
        for rank, each in one.results.items()
    }
    return Played(replace(one, results=results), dict.fromkeys(range(ranks), 1216))


def planned(wish: Wish) -> Taking:
    """What can be had of it."""
    kind = wish.kind or "torch"
    if wish.ranks == frozenset({3, 7}):
        raise CockpitError(
            "no step for 14 s, and one usually takes 2.0 s: it is writing a checkpoint",
            hint="try again once steps continue",
        )
    ranks = 64
    if kind == "nsys":
        return Played(recorded(ranks))
    return Played(sampled(ranks, 13) if kind == "cpu" else shown(ranks, usual))


SCENES: dict[str, ProfileScene] = {
    "profile-64": ProfileScene(lambda: App(64, lambda: shown(64, reads(13)))),
    "profile-4": ProfileScene(lambda: App(4, lambda: shown(4, reads(3)))),
    "profile-64-narrow": ProfileScene(lambda: App(64, lambda: shown(64, reads(13)))),
    "profile-4-wide": ProfileScene(lambda: App(4, lambda: shown(4, reads(3)))),
    "profile-healthy": ProfileScene(lambda: App(64, lambda: shown(64, usual))),
    "profile-begins": ProfileScene(lambda: App(64, lambda: begins(64))),
    "profile-goes-on": ProfileScene(lambda: App(64, lambda: goes_on(64))),
    "profile-goes-on-4": ProfileScene(lambda: App(4, lambda: goes_on(4))),
    "profile-refused": ProfileScene(lambda: App(4, lambda: refuses(4))),
    "profile-cancelled": ProfileScene(lambda: App(4, lambda: ends_early(4))),
    "profile-cpu": ProfileScene(lambda: App(64, lambda: sampled(64, 13))),
    "profile-cpu-4": ProfileScene(lambda: App(4, lambda: sampled(4, 3))),
    "profile-nsys-4": ProfileScene(lambda: App(4, lambda: recorded(4))),
    "profile-nsys-writes-4": ProfileScene(lambda: App(4, lambda: writes(4))),
    "profile-operations-4": ProfileScene(lambda: App(4, lambda: shown(4, reads(3))), ("2",)),
    "profile-collectives-4": ProfileScene(lambda: App(4, lambda: shown(4, reads(3))), ("3",)),
    "profile-files-4": ProfileScene(lambda: App(4, lambda: shown(4, reads(3))), ("4",)),
    "profile-ascii": ProfileScene(
        lambda: App(64, lambda: goes_on(64), config=Config(ascii=True)),
    ),
    "profile-collectives-ascii": ProfileScene(
        lambda: App(4, lambda: shown(4, reads(3)), config=Config(ascii=True)), ("3",)
    ),
    "profile-form": ProfileScene(
        lambda: App(64, lambda: None, [shown(64, usual), sampled(64, 13)], planned),
    ),
    "profile-form-refused": ProfileScene(lambda: App(64, lambda: None, (), planned), ("down", "right")),
    "profile-form-asking": ProfileScene(lambda: App(64, lambda: None)),
    "profile-form-over": ProfileScene(
        lambda: App(64, lambda: None, [shown(64, usual)], planned, why_not="the run has ended")
    ),
}


@asynccontextmanager
async def profiled(
    scene: ProfileScene, size: tuple[int, int], theme: str = ""
) -> AsyncIterator[tuple[App, Pilot[Any]]]:
    """The app in a scene, drawn and at rest."""
    app = scene.make()
    app.theme = theme or app.theme
    async with app.run_test(size=size) as pilot:
        there = ProfileScreen, ProfileForm
        await until(pilot, lambda: isinstance(app.screen, there), "the screen")
        await at_rest(pilot)
        for key in scene.keys:
            await pilot.press(key)
            await at_rest(pilot)
        yield app, pilot
    app.folder.close()


async def at_rest(pilot: Pilot[Any]) -> None:
    """Wait until all there is has been worked out, and two looks in a row show the same screen."""
    before, same = "", 0
    deadline = time.monotonic() + PATIENCE_S
    while same < 2:
        assert time.monotonic() < deadline, "the screen does not come to rest"
        screens = [each for each in pilot.app.screen_stack if isinstance(each, ProfileScreen)]
        for screen in screens:
            screen._tick()
        await pilot.pause(0.03)
        now = text_of(pilot.app)
        app = cast(App, pilot.app)
        left = [each for each in busy(app) if each != "form" or app.answers]
        still = all(screen.settled for screen in screens) and not left
        same = same + 1 if now == before and still else 0
        before = now
