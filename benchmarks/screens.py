"""The app in a process of its own, for benchmarks: ``python -m benchmarks.screens NAME N``.

Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from textual import events
from textual.app import App
from textual.pilot import Pilot

from cockpit.base.answers import SpyAnswer
from cockpit.config import Config
from cockpit.tui.app import CockpitApp
from cockpit.tui.run.purpose import Flight, Launching
from cockpit.tui.run.screen import RunScreen

SIZE = (140, 45)
TICK_S = 0.005

RANKS, LINES_S = 64, 1000
PRINTER = """
import os, sys, time
rank, lines, until = os.environ["RANK"], int(sys.argv[1]), time.time() + float(sys.argv[2])
number, next_at, text = 0, time.time(), []
while time.time() < until:
    for i in range(lines // 10):
        text.append(f"step {number + i}/999999 loss 0.1234 lr 1e-4 at={time.time():.3f} rank {rank}\\n")
    os.write(1, "".join(text).encode())
    text.clear()
    number += lines // 10
    next_at += 0.1
    time.sleep(max(0, next_at - time.time()))
"""


@asynccontextmanager
async def opened(flight: Flight) -> AsyncIterator[tuple[CockpitApp, Pilot[Any]]]:
    """The app on a run, once its screen is there."""
    app = CockpitApp(flight, Config(ascii=False))
    app.settled = gc.freeze  # as on a terminal
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: isinstance(app.screen, RunScreen), "the run's screen")
        yield app, pilot


async def until(there: Callable[[], object], what: str, deadline_s: float = 90) -> None:
    """Wait for a condition."""
    end = time.monotonic() + deadline_s
    while not there():
        if time.monotonic() > end:
            raise SystemExit(f"not within {deadline_s:g} s: {what}")
        await asyncio.sleep(0.02)


def text_of(app: App[Any]) -> str:
    """What is on the screen."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


class Ticker:
    """Measures by how much a loop is late for a short sleep."""

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self.late_s.append(max(0.0, time.perf_counter() - started - TICK_S))

    def stop(self) -> list[float]:
        """What was measured, sorted."""
        self._task.cancel()
        return sorted(self.late_s)


def share(ordered: list[float], part: float) -> float:
    """The value that ``part`` of the sorted values do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def rss_mb() -> float:
    """Our resident memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def uilag(seconds: int) -> dict[str, Any]:
    """64 real ranks print 1,000 lines a second each; everything between them and the screen is real."""
    from cockpit.cli import launch_options
    from cockpit.cli.verbs import run

    folder = Path(os.environ["XDG_STATE_HOME"])
    (folder / "printer.py").write_text(PRINTER)
    (folder / "hostfile").write_text(f"localhost slots={RANKS}\n")
    words = [
        str(folder / "hostfile"),
        "--launcher",
        "command",
        "--python",
        sys.executable,
        "--transport",
        "local",
    ]
    words += ["--node-dir", str(folder), "--", str(folder / "printer.py"), str(LINES_S), str(seconds + 60)]
    flight = Launching(run.request(launch_options.parse(run.parser(), words)))
    async with opened(flight) as (app, _):
        session = app.session
        assert session is not None
        await until(lambda: session.model.alive() == RANKS, "all ranks run")
        await asyncio.sleep(3)
        screen = app.screen
        assert isinstance(screen, RunScreen)
        ticker, first, lines = Ticker(), rss_mb(), screen.board.book.lines
        ages: list[float] = []
        half = 0.0
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds:
            await asyncio.sleep(0.25)
            newest = max((float(at) for at in re.findall(r"at=(\d+\.\d+)", text_of(app))), default=0.0)
            ages.append(time.time() - newest)
            half = half or (rss_mb() if elapsed > seconds / 2 else 0.0)
        late = ticker.stop()
        result = {
            "lines_s": (screen.board.book.lines - lines) / (time.monotonic() - started),
            "p50_ms": 1000 * share(late, 0.5),
            "p99_ms": 1000 * share(late, 0.99),
            "max_ms": 1000 * late[-1],
            "age_s": share(sorted(ages), 0.5),
            "age_max_s": max(ages),
            "rss_mb": [first, half, rss_mb()],
        }
        await session.stop("measured", hard=True)
        await until(lambda: session.model.done, "the run is over")
    return result


PACED = 300
"""Steps of the past in the pane of ranks × time."""


async def ranks(rounds: int, slow: Collection[int] = (500,)) -> dict[str, Any]:
    """128 nodes with 8 ranks each, measured once a second: from a key to what is drawn for it.

    :param slow: ranks that work half as long again as the others
    """
    from tests.tui.stage import Stage

    names = [f"gpu{number:03d}" for number in range(128)]
    stage = Stage(names, 8)
    stage.runs()
    for rank in stage.model.ranks:
        stage.prints(rank, f"rank {rank} is ready\n" + f"step 1/5 loss 0.5 of rank {rank}\n" * 20)
    began = time.time() - PACED
    _train(stage, range(PACED), began, slow)
    started = time.perf_counter()
    async with opened(stage) as (app, _):
        await until(lambda: "gpu001" in text_of(app) and "step 1/5" in text_of(app), "a full screen")
        first_s = time.perf_counter() - started
        drawn = _watch_drawing(app)
        sampling = asyncio.create_task(_sample(stage, names, began, slow))
        ticker = Ticker()
        times: dict[str, list[float]] = {}
        keys = {
            "scroll": ("down", "pagedown"),
            "select": ("right", "left"),
            "filter": ("2", "slash", "7", "escape", "1"),
            "pace": ("6", "right_square_bracket", "2"),
            "zoom": ("6", "z", "z", "2"),
            "time": ("6", *["greater_than_sign"] * 3, *["less_than_sign"] * 3, "2"),
            "lines": ("1", "z", "down", "pagedown", "z"),
        }
        for _ in range(rounds):
            for what, pressed in keys.items():
                for key in pressed:
                    times.setdefault(what, []).append(await _press(app, key, drawn))
                    await asyncio.sleep(0.15)
        sampling.cancel()
        late = ticker.stop()
    found = {what: sorted(1000 * each for each in values) for what, values in times.items()}
    return {
        "first_s": first_s,
        "p99_lag_ms": 1000 * share(late, 0.99),
        **{what: [share(values, 0.5), share(values, 0.99)] for what, values in found.items()},
    }


class _Recorded:
    """A node's link whose agent answers at once with what was packed before."""

    def __init__(self, packed: bytes) -> None:
        self.lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._packed = packed

    async def call(self, request: Any) -> Any:
        return SpyAnswer(True)

    async def stream(self, request: Any) -> Any:
        return self

    async def parts(self) -> AsyncIterator[tuple[Any, bytes]]:
        yield None, self._packed

    async def close(self) -> None:
        pass


class _Job:
    """A job on nodes that only remember."""

    title = run = "recorded"
    command = "cockpit stacks recorded"

    def __init__(self, links: dict[str, Any], ranks: dict[str, list[int]]) -> None:
        self._links = links
        self._ranks = ranks
        self.nodes = list(links)

    def places(self) -> dict[int, Any]:
        from cockpit.core.stacks.snapshot import Place

        return {rank: Place(node) for node, ranks in self._ranks.items() for rank in ranks}

    twice: Mapping[int, str] = {}

    async def refresh(self) -> None:
        """Nothing changes."""

    def folder(self, node: str) -> str:
        return ""

    async def link(self, node: str) -> Any:
        return self._links[node]

    async def targets(self, node: str, link: Any) -> list[Any]:
        from cockpit.engine.stacks.ask import RankProcess

        return [RankProcess(rank, 41_000 + rank, 90_000 + rank) for rank in self._ranks[node]]


def _shows(app: App[Any], *texts: str) -> bool:
    shown = text_of(app)
    return any(text in shown for text in texts)


async def stacks(rounds: int) -> dict[str, Any]:
    """128 nodes with 8 ranks each: from the key, as the screen is pushed, to what is on it."""
    from cockpit.base.stacks.packing import pack
    from cockpit.engine.stacks.ask import Ask
    from cockpit.engine.stacks.take import Sampler
    from cockpit.tui.stacks.app import StacksApp
    from cockpit.tui.stacks.screen import StackScreen
    from tests.tui.stack_scenes import reads, waits

    ranks = {f"gpu{number:03d}": [8 * number + local for local in range(8)] for number in range(128)}
    packed = {
        node: pack((reads if rank == 13 else waits)(rank, 1.0) for rank in each)
        for node, each in ranks.items()
    }
    found: dict[str, list[float]] = {"tree_s": [], "verdict_s": [], "lag_ms": []}
    for _ in range(rounds):
        job = _Job({node: _Recorded(data) for node, data in packed.items()}, ranks)
        taken = Sampler(job, Ask(), Path(os.environ["XDG_STATE_HOME"]))
        app = StacksApp(Sampler(_Job({}, {}), Ask(), Path(os.environ["XDG_STATE_HOME"])), Config(ascii=False))
        async with app.run_test(size=SIZE):
            ticker, began = Ticker(), time.perf_counter()
            await app.push_screen(StackScreen(taken))
            await until(partial(_shows, app, "read_shard"), "the tree")
            # On a busy machine that of two samples may be there before anybody looks.
            await until(partial(_shows, app, "rank 13 is not in", "rank 13 did not join"), "a first verdict")
            found["tree_s"].append(time.perf_counter() - began)
            await until(partial(_shows, app, "rank 13 did not join all_reduce"), "the verdict")
            found["verdict_s"].append(time.perf_counter() - began)
            found["lag_ms"].append(1000 * ticker.stop()[-1])
    return {what: share(sorted(values), 0.5) for what, values in found.items()}


async def watch(rounds: int) -> dict[str, Any]:
    """128 nodes with 8 ranks each that stand still: what the watch costs a second, and what a look takes."""
    from cockpit.base.stacks.packing import pack
    from cockpit.base.stillness import AFTER_S as HANG_AFTER_S
    from cockpit.core.watch.judge import judge
    from cockpit.core.watch.progress import Tracker
    from cockpit.engine.watching import Looker
    from tests.tui.stack_scenes import reads, waits
    from tests.tui.stage import Stage

    nodes = [f"gpu{number:03d}" for number in range(128)]
    stage = Stage(nodes, 8)
    stage.runs()
    began = time.time() - 100.0
    _train(stage, range(60), began)
    packed = {
        entry.name: pack((reads if rank == 13 else waits)(rank, 1.0) for rank in entry.ranks)
        for entry in stage.manifest.nodes
    }
    ranks = {entry.name: list(entry.ranks) for entry in stage.manifest.nodes}
    tracker = Tracker(HANG_AFTER_S)
    found: dict[str, list[float]] = {"tick_ms": [], "look_s": []}
    for _ in range(rounds):
        at = time.perf_counter()
        tracker.look(time.time(), stage.model, stage.pace)
        found["tick_ms"].append(1000 * (time.perf_counter() - at))
        job = _Job({node: _Recorded(data) for node, data in packed.items()}, ranks)
        looker = Looker(job, Path(os.environ["XDG_STATE_HOME"]) / "stacks", stage.pace, lambda: None)
        at = time.perf_counter()
        looked = await looker.look()
        found["look_s"].append(time.perf_counter() - at)
        state = "" if looked is None else judge(looked)[0]
        if state != "stalled":
            raise SystemExit(f"the look says {state}: {looked}")
    return {what: share(sorted(values), 0.5) for what, values in found.items()}


async def half(rounds: int) -> dict[str, Any]:
    """The same with every other rank slow."""
    return await ranks(rounds, range(1, 1024, 2))


def _train(stage: Any, steps: range, began: float, slow: Collection[int] = (500,)) -> None:
    """Every rank finished these steps, of a second each; the slow ones work half as long again."""
    for step in steps:
        for rank in stage.pace.steps.ranks:
            stage.pace.stepped(rank, step, began + step + rank % 7 / 100)
            stage.pace.worked(rank, step, 1.4 if rank in slow else 0.9)


async def _sample(stage: Any, names: list[str], began: float, slow: Collection[int]) -> None:
    while True:
        for name in names:
            stage.samples(name)
        front = stage.pace.front
        if front is not None:
            _train(stage, range(front[0] + 1, front[0] + 2), began, slow)
        await asyncio.sleep(1)


def _watch_drawing(app: CockpitApp) -> list[float]:
    """The times at which the app had drawn something, escape sequences included."""
    drawn: list[float] = []

    def display(screen: Any, renderable: Any) -> None:
        if hasattr(renderable, "render_segments"):
            renderable.render_segments(app.console)
            drawn.append(time.perf_counter())

    app._display = display  # type: ignore[method-assign]
    return drawn


async def _press(app: CockpitApp, key: str, drawn: list[float]) -> float:
    before, pressed = len(drawn), time.perf_counter()
    app.post_message(events.Key(key, key if len(key) == 1 else None))
    while len(drawn) == before:
        if time.perf_counter() - pressed > 5:
            raise SystemExit(f"nothing was drawn for {key}")
        await asyncio.sleep(0.001)
    return drawn[before] - pressed


def main() -> None:
    """Run one of them."""
    name, size = sys.argv[1], sys.argv[2]
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = home
        works: dict[str, Callable[[int], Coroutine[Any, Any, dict[str, Any]]]] = {
            "uilag": uilag,
            "ranks": ranks,
            "half": half,
            "stacks": stacks,
            "watch": watch,
        }
        found = asyncio.run(works[name](int(size)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
