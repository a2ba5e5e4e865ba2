"""The home screen: what is known here, whatever nodes do; and that nothing is done unasked."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from cockpit import paths, slurm
from cockpit.base import verbs
from cockpit.base.answers import FoundRank, Meeting, RunsAnswer, SeekAnswer
from cockpit.base.events import GpuSample, NodeSample, Sample
from cockpit.config import Config
from cockpit.core.pace.measured import measured
from cockpit.core.pace.past import PastStep
from cockpit.core.run.brief import Brief
from cockpit.engine import known_runs
from cockpit.engine.briefs import brief_here, briefs
from cockpit.engine.known_runs import KnownRuns
from cockpit.engine.launch.relaunch import AGAIN
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import Pools
from cockpit.errors import CockpitError
from cockpit.slurm import QueuedJob
from cockpit.transport.login_prompts import DESK, Nobody
from cockpit.tui.compare.screen import CompareScreen
from cockpit.tui.home import looker, queue
from cockpit.tui.home.app import HomeApp
from cockpit.tui.home.preview import Preview
from cockpit.tui.home.screen import HomeScreen
from cockpit.tui.panes.dialogs import Question
from cockpit.tui.panes.login import LoginDialog
from tests.engine.knownruns import KnownRun
from tests.engine.pools import Fakes, MadeUp
from tests.tui.scenes import text_of, until

SIZE = (150, 44)


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Awaitable[None]]]:
    """What nodes do before they answer, by run; without an entry they answer at once, what is known here."""
    waits: dict[str, Callable[[], Awaitable[None]]] = {}

    async def now(folder: RunFolder, pools: Pools | None) -> Brief:
        if folder.name in waits:
            await waits[folder.name]()
        made = brief_here(folder)
        return replace(made, asked=time.time()) if made.open else made

    monkeypatch.setattr(known_runs, "brief_now", now)
    return waits


@asynccontextmanager
async def home(size: tuple[int, int] = SIZE, **more: Any) -> AsyncIterator[tuple[HomeApp, Pilot[Any]]]:
    app = HomeApp(Config(ascii=False), **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(
            pilot,
            lambda: isinstance(app.screen, HomeScreen) and app.screen.known.read_whole,
            "the runs are read",
        )
        await sees(app, pilot, "runs ")
        yield app, pilot


async def sees(app: HomeApp, pilot: Pilot[Any], *words: str) -> None:
    await until(pilot, lambda: all(word in text_of(app) for word in words), f"{words} on the screen")


def screen(app: HomeApp) -> HomeScreen:
    assert isinstance(app.screen, HomeScreen)
    return app.screen


def lists(app: HomeApp, names: list[str]) -> bool:
    """Whether exactly these runs are listed."""
    return [run.run for run in screen(app).shown] == names


def three() -> None:
    now = time.time()
    KnownRun("old-otter", now - 90_000, lasted_s=3600).write()
    KnownRun("new-lynx", now - 9000, lasted_s=600, end="failed").write()
    KnownRun("live-heron", now - 50_000, end="", nodes=("gpu07",)).write()


def test_what_goes_on_comes_first_then_the_newest() -> None:
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "live-heron", "new-lynx", "old-otter")
            assert [run.run for run in screen(app).shown] == ["live-heron", "new-lynx", "old-otter"]
            await sees(app, pilot, "3 runs", "rank 0: torch.OutOfMemoryError", "in 59 min 59 s, loss 2.8")

    asyncio.run(main())


def test_what_is_read_is_drawn_by_whoever_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tick finds no news, and a second passes before the runs are there."""
    monkeypatch.setattr(HomeScreen, "_tick", lambda self: None)
    three()

    async def play() -> None:
        app = HomeApp(Config(ascii=False))
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, lambda: "runs 3" in text_of(app), "the runs")

    asyncio.run(play())


def test_the_one_under_the_cursor_is_shown_with_its_cause() -> None:
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "new-lynx")
            await pilot.press("down")
            await sees(app, pilot, "first to fail: rank 0 on gpu01", "CUDA out of memory", "last lines")

    asyncio.run(main())


def test_what_is_read_late_is_not_shown_under_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    three()
    read, began, go_on = looker._glance, threading.Event(), threading.Event()

    def slow(run: str, enough: threading.Event) -> Any:
        if run == "old-otter":
            began.set()
            go_on.wait()
        return read(run, enough)

    monkeypatch.setattr(looker, "_glance", slow)

    async def main() -> None:
        async with home() as (app, pilot):
            try:
                await pilot.press("down")
                await sees(app, pilot, "first to fail: rank 0 on gpu01")
                await pilot.press("down")
                await until(pilot, began.is_set, "the other one is being read")
                await pilot.press("up")
                await sees(app, pilot, "first to fail: rank 0 on gpu01")
            finally:
                go_on.set()
            await until(pilot, lambda: "old-otter" in screen(app)._looker._known, "it is read")
            preview = screen(app).query_one(Preview)
            assert preview.brief is not None
            assert preview.brief.run == "new-lynx"
            assert "first to fail: rank 0 on gpu01" in text_of(app)

    asyncio.run(main())


def test_memory_and_what_was_changed_since_are_shown() -> None:
    now = time.time()
    folder = KnownRun("lynx", now - 9000, end="failed", program=("train.py", "--batch", "26")).write()
    KnownRun("otter", now - 4000, steps=400, program=("train.py", "--batch", "24")).write()
    gpu = GpuSample(3, None, 90.0, 79 << 30, 80 << 30)
    line = measured(now - 8000, "gpu01", Sample(NodeSample(1.0, 8, 1 << 30, 2 << 30), {}, (gpu,))).line()
    (folder.path / "measured.jsonl").write_bytes(line)
    step = PastStep(0, 1, now - 8000, 1, "", 0.014, 0.01, 0.01, 0.01, 1, False, True, False, False, ()).line()
    (folder.path / "pace.jsonl").write_bytes(step)

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "lynx", "otter")
            await pilot.press("down")
            await sees(
                app,
                pilot,
                "vram",
                "79.0/80.0 GiB",
                "gpu01 GPU 3, 79.0 GiB at first",
                "14 ms median of 1 step ",
            )
            await sees(app, pilot, "since then --batch 26 → 24 in otter, which succeeded")
            await pilot.press("up")
            await until(pilot, lambda: "since then" not in text_of(app), "otter ended well")
        async with home((80, 30)) as (app, pilot):
            await pilot.press("down")
            await sees(app, pilot, "79.0/80.0 GiB gpu01 GPU 3, 79.0 GiB at first")

    asyncio.run(main())


def test_a_filter_takes_names_nodes_states_and_words_of_the_cause() -> None:
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            for typed, left in (
                ("gpu07", ["live-heron"]),
                ("failed", ["new-lynx"]),
                ("memory", ["new-lynx"]),
                ("!failed o", ["live-heron", "old-otter"]),
                ("nothing-has-this", []),
            ):
                await pilot.press("slash")
                screen(app).filter_bar.query_one(Input).value = typed
                await pilot.press("enter")
                await until(pilot, partial(lists, app, left), typed)
            await sees(app, pilot, "no run matches nothing-has-this")
            await pilot.press("escape")
            await until(pilot, lambda: len(screen(app).shown) == 3, "esc clears it")

    asyncio.run(main())


def test_nobody_is_asked_to_log_in_for_what_is_asked_in_the_background() -> None:
    three()
    before = DESK.prompter

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "live-heron")
            assert isinstance(DESK.prompter, Nobody)

    asyncio.run(main())
    assert DESK.prompter is before


def test_enter_opens_what_attach_opens() -> None:
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "live-heron")
            await pilot.press("enter")
            await until(pilot, lambda: app.wish is not None, "a wish")
            assert app.wish is not None
            assert list(app.wish.words) == ["attach", "live-heron"]
            assert app.chosen == "live-heron"

    asyncio.run(main())


def test_it_comes_back_to_the_run_that_was_chosen() -> None:
    three()

    async def main() -> None:
        async with home(chosen="old-otter", said="gpu07: no route to host") as (app, pilot):
            await sees(app, pilot, "gpu07: no route to host")
            await until(pilot, lambda: screen(app).current.run == "old-otter", "the cursor is on it")

    asyncio.run(main())


@pytest.mark.parametrize("size", [(80, 24), SIZE])
@pytest.mark.parametrize(("key", "words"), [("d", ["demo"]), ("h", ["demo", "--fault", "hang"])])
def test_empty_it_says_how_to_try_it(size: tuple[int, int], key: str, words: list[str]) -> None:
    async def main() -> None:
        async with home(size) as (app, pilot):
            await sees(app, pilot, "Nothing here yet.", "cockpit demo --fault crash", "no runs yet")
            await pilot.press(key)
            await until(pilot, lambda: app.wish is not None, "a wish")
            assert app.wish is not None
            assert list(app.wish.words) == words

    asyncio.run(main())


def test_where_runs_are_known_no_key_starts_a_demo() -> None:
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            await pilot.press("d", "h", "c")
            await sees(app, pilot, "runs are known here; type: cockpit demo")
            assert app.wish is None

    asyncio.run(main())


def test_one_node_that_never_answers_holds_up_nothing(
    asked: dict[str, Callable[[], Awaitable[None]]],
) -> None:
    three()
    KnownRun("live-wren", time.time() - 40_000, end="", nodes=("gpu09",)).write()

    async def main() -> None:
        hanging = asyncio.Event()

        async def hangs() -> None:
            await hanging.wait()

        asked["live-heron"] = hangs
        async with home() as (app, pilot):
            known = screen(app).known
            await until(pilot, lambda: known.runs["live-wren"].asked, "the other one has answered")
            assert known.runs["live-heron"].asked is None
            assert known.asking == {"live-heron"}
            await sees(app, pilot, "asking nodes")
            await pilot.press("down", "down")
            await until(pilot, lambda: screen(app).current.run == "new-lynx", "keys still work")
            await pilot.press("q")
            await until(pilot, lambda: app.return_value is not None, "it can be left")

    asyncio.run(main())


def test_runs_that_others_start_and_remove_meanwhile_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    from cockpit.tui.home import screen as screens

    monkeypatch.setattr(screens, "READ_S", 0.05)
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            KnownRun("late-wren", time.time() - 60, lasted_s=30).write()
            await sees(app, pilot, "late-wren", "4 runs")
            RunFolder(paths.runs() / "late-wren").discard()
            await until(pilot, lambda: "late-wren" not in text_of(app), "it is gone")

    asyncio.run(main())


def test_a_slow_disk_does_not_hold_up_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    three()
    go_on = threading.Event()
    read = briefs

    def slow() -> Any:
        yield from list(read())[:1]
        go_on.wait()

    monkeypatch.setattr(known_runs, "briefs", slow)

    async def main() -> None:
        app = HomeApp(Config(ascii=False))
        async with app.run_test(size=SIZE) as pilot:
            try:
                await sees(app, pilot, "reading the runs", "1 run ")
            finally:
                go_on.set()

    asyncio.run(main())


def test_a_run_is_removed_by_the_verb_which_asks() -> None:
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "live-heron")
            await pilot.press("X")
            await sees(app, pilot, "remove a run that is over: still running")
            await pilot.press("down", "X")
            await until(pilot, lambda: app.wish is not None, "a wish")
            assert app.wish is not None
            assert (list(app.wish.words), app.wish.prints) == (["clean", "new-lynx"], True)
            assert (paths.runs() / "new-lynx").is_dir()

    asyncio.run(main())


def test_stopping_asks_and_names_the_nodes() -> None:
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "live-heron")
            await pilot.press("x")
            await until(pilot, lambda: isinstance(app.screen, Question) and app.screen.readable, "a question")
            await sees(app, pilot, "nodes  gpu07")
            await pilot.press("s", "enter")
            await until(pilot, lambda: app.wish is not None, "a wish")
            assert app.wish is not None
            assert list(app.wish.words) == ["stop", "live-heron"]

    asyncio.run(main())


def test_read_only_it_changes_nothing() -> None:
    three()

    async def main() -> None:
        async with home(read_only=True) as (app, pilot):
            await sees(app, pilot, "live-heron")
            for key in "x", "X", "r":
                await pilot.press(key)
                await sees(app, pilot, "read-only")
            assert isinstance(app.screen, HomeScreen)

    asyncio.run(main())


def test_running_again_shows_the_command_and_asks_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    command = ["cockpit", "run", "hosts", "--name", "x", "--env", "HF_TOKEN", "--", "train.py"]
    plans = [{"node": "gpu01", "env": {"NCCL_DEBUG": "INFO"}}]
    more = {"command": command, "plans": plans}
    KnownRun("otter", time.time() - 9000, lasted_s=600, more=more).write()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "otter")
            await pilot.press("r")
            await until(pilot, lambda: isinstance(app.screen, Question) and app.screen.readable, "a question")
            await sees(
                app, pilot, "cockpit run hosts --env HF_TOKEN -- train.py", "HF_TOKEN; cockpit prompts"
            )
            await sees(app, pilot, "NCCL_DEBUG is 'WARN' in this shell: using 'INFO'")
            await pilot.press("s", "enter")
            await until(pilot, lambda: isinstance(app.screen, LoginDialog), "the secret is asked for")
            field = app.screen.query_one(Input)
            assert field.password
            field.value = "hunter2"
            await until(pilot, lambda: app.screen.readable_since < time.time() + 1e9, "it is drawn")  # type: ignore[attr-defined]
            await pilot.press("enter")
            await until(pilot, lambda: app.wish is not None, "a wish")
            assert app.wish is not None
            assert list(app.wish.words) == ["run", "hosts", "--env", "HF_TOKEN", "--", "train.py"]
            assert app.wish.env == {"NCCL_DEBUG": "INFO", "HF_TOKEN": "hunter2", AGAIN: "otter"}
            assert app.wish.cwd == "/home/ada/job"
            assert "hunter2" not in repr(app.wish)

    asyncio.run(main())


def test_what_others_started_cannot_be_run_again() -> None:
    KnownRun("otter", time.time() - 9000, more={"command": ["cockpit", "attach", "hosts"]}).write()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "otter")
            await pilot.press("r")
            await sees(app, pilot, "the command that started it is not known here")
            assert isinstance(app.screen, HomeScreen)

    asyncio.run(main())


def test_two_runs_are_shown_side_by_side_the_older_one_first() -> None:
    three()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "live-heron")
            await pilot.press("equals_sign")
            await sees(app, pilot, "is marked")
            await pilot.press("down", "equals_sign")
            await until(pilot, lambda: isinstance(app.screen, CompareScreen), "the two of them")
            await sees(app, pilot, "before", "live-heron", "new-lynx")
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, HomeScreen), "back")

    asyncio.run(main())


def test_slurm_jobs_and_what_can_be_watched_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    three()
    jobs = [
        QueuedJob("4711", "RUNNING", "38:00", "gpu[15-16]", "2", "None", "N/A", "ablate\x1b[31m-3"),
        QueuedJob("4712", "PENDING", "0:00", "", "16", "Priority", "2026-11-21T06:10:00", "llama"),
    ]
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(slurm, "jobs_of", lambda user: jobs)

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "4711", "38:00", "gpu[15-16]", "4712", "Priority")
            assert "\x1b" not in text_of(app)
            await pilot.press("a")
            await until(pilot, lambda: app.wish is not None, "a wish")
            assert app.wish is not None
            assert list(app.wish.words) == ["attach", "--slurm", "4711"]

    asyncio.run(main())


def test_why_jobs_are_not_known_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    three()
    error = CockpitError("squeue failed: Unable to contact\x1b[31m the controller", hint="try: scontrol ping")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(queue, "EVERY_S", 0.01)
    answers: list[Any] = [error]

    def jobs(user: str) -> list[QueuedJob]:
        found = list(answers)  # it changes meanwhile
        if isinstance(found[-1], CockpitError):
            raise found[-1]
        return found

    monkeypatch.setattr(slurm, "jobs_of", jobs)

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "Your jobs are not known", "Unable to contact", "→ try: scontrol ping")
            assert "\x1b" not in text_of(app)
            assert "squeue, " not in text_of(app), "it has not answered"
            answers[:] = [QueuedJob("4711", "RUNNING", "38:00", "gpu[15-16]", "2", "None", "N/A", "ablate")]
            await sees(app, pilot, "4711", "squeue, ")
            answers.append(error)
            await sees(app, pilot, "4711", "squeue fails; as of")

    asyncio.run(main())


def test_a_controller_that_does_not_answer_is_said_and_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three()
    answer = threading.Event()
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(slurm, "jobs_of", lambda user: answer.wait() and [])

    async def main() -> None:
        async with home() as (app, pilot):
            try:
                await sees(app, pilot, "asking squeue", "live-heron")
                await pilot.press("down")
                await until(pilot, lambda: screen(app).current.run == "new-lynx", "keys work")
            finally:
                answer.set()

    asyncio.run(main())


def test_names_of_runs_and_nodes_cannot_drive_the_terminal() -> None:
    KnownRun("otter", time.time() - 900, nodes=("gpu\x1b[2J01",), program=["\x1b]0;pwned\x07.py"]).write()

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "otter", "\\x1b[2J01")
            assert "\x1b" not in text_of(app)

    asyncio.run(main())


def test_a_job_that_others_started_is_listed_when_asked_for_and_enter_watches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three()
    ranks = tuple(
        FoundRank(
            rank=number,
            world_size=2,
            local_rank=number,
            pid=70 + number,
            ticks=9,
            state="R",
            job=Meeting("n1", "29500"),
            run="",
            user="ada",
            launcher="torchrun",
            command="python pretrain.py",
            started=time.time() - 60,
        )
        for number in (0, 1)
    )

    class Node(MadeUp):
        async def call(self, request: object, **how: Any) -> object:
            if isinstance(request, verbs.Runs):
                return RunsAnswer()
            assert isinstance(request, verbs.Seek)
            return SeekAnswer(ranks)

    pool = Fakes({"n1": Node()})
    Node.hello = SimpleNamespace(host="n1", base="/tmp/cockpit-0", uid=0)
    monkeypatch.setattr(Pools, "reaching", lambda self, *way: pool)

    async def main() -> None:
        async with home() as (app, pilot):
            await sees(app, pilot, "live-heron")
            await pilot.press("o")
            await until(pilot, lambda: isinstance(app.screen, LoginDialog), "a question")
            app.screen.query_one(Input).value = "n1"
            await pilot.press("enter")
            await sees(app, pilot, "n1: 1 job that cockpit did not start", "4 runs")
            (found,) = screen(app).known.elsewhere
            await until(pilot, lambda: screen(app)._list.put_on(found), "the cursor is on it")
            await sees(app, pilot, "Nothing of it is here yet", "2 ranks of")
            await pilot.press("x")
            await sees(app, pilot, "stop the run: cockpit did not start it")
            await pilot.press("enter")
            await until(pilot, lambda: app.wish is not None, "a wish")
            assert app.wish is not None
            assert list(app.wish.words) == ["attach", "-w", "n1", "--job", found]

    asyncio.run(main())


def test_a_screenful_is_drawn_before_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_runs, "SCREENFUL", 2)
    monkeypatch.setattr(known_runs, "TAKEN_S", 600.0)
    three()

    async def main() -> None:
        known = KnownRuns()
        reads = asyncio.create_task(known.read())
        while len(known.runs) < 2:
            known.take()
            await asyncio.sleep(0.01)
        await reads
        known.take()
        assert len(known.runs) == 3

    asyncio.run(main())


def test_nobody_has_to_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_runs, "SCREENFUL", 2)
    monkeypatch.setattr(known_runs, "TAKEN_S", 0.01)
    three()

    async def main() -> None:
        known = KnownRuns()
        await known.read()
        assert known.take()
        assert len(known.runs) == 3

    asyncio.run(main())
