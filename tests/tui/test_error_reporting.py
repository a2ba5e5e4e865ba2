"""One door for errors in the app: whatever raises becomes a notice with what to do; the app goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from cockpit import paths
from cockpit.config import Config
from cockpit.engine import traces
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.tui import base_app, error_reporting
from cockpit.tui.app import CockpitApp
from cockpit.tui.command_screen import Handler
from cockpit.tui.error_reporting import Door, explained, notice
from cockpit.tui.logs.view import LogView
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.finder import Finder
from cockpit.tui.panes.key_bar import KeyBar
from cockpit.tui.run.detail import Detail
from cockpit.tui.run.drawing import Drawing
from cockpit.tui.run.event_list import EventList
from cockpit.tui.run.failure_banner import FailureBanner
from cockpit.tui.run.notices import Notice
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.run.top_bar import TopBar
from tests.tui.scenes import Scene, choose, healthy, notes, played, text_of, trains, until
from tests.tui.scenes import fails as fails_first
from tests.tui.stage import Stage
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.internal_errors

SIZE = (140, 45)
EVIL = "boom \x1b]0;title\x07\x1b[2J[@click=app.quit]\u202e"
HARMLESS = "boom \\x1b]0;title\\x07\\x1b[2J[@click=app.quit]<U+202E>"


@pytest.fixture(autouse=True)
def keys_remove_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine there was time to read it before the next key."""
    monkeypatch.setattr(base_app, "READ_ERROR_S", 1e6)


@pytest.fixture
def the_same_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a slow machine takes."""
    monkeypatch.setattr(error_reporting, "QUIET_S", 1e6)


def screen(app: CockpitApp) -> RunScreen:
    """The run's screen, whatever is above it."""
    return next(each for each in app.screen_stack if isinstance(each, RunScreen))


def notices(app: CockpitApp) -> list[str]:
    """What the notices on the screen say."""
    return [note.message for note in notes(app)]


def details() -> list[Path]:
    """The files with details of internal errors."""
    return sorted(paths.errors().glob("*.txt"))


async def keys_work(app: CockpitApp, pilot: Pilot[Any]) -> None:
    """The app lives: keys do what they do, and the screen is drawn."""
    assert app.is_running
    assert app.return_code is None
    await pilot.press("4")
    await until(pilot, lambda: screen(app).on_the_right == "events", "a key works")
    await pilot.press("2")
    await until(pilot, lambda: screen(app).on_the_right == "log", "another key works")
    assert "20261121-0412-otter" in text_of(app)


def boom(*_: object, **__: object) -> Any:
    """What a bug does."""
    raise ValueError(EVIL)


async def async_boom(*_: object, **__: object) -> Any:
    boom()


def once_it_can_be_read(app: CockpitApp, *keys: str) -> None:
    """Answer a question: what is typed before it is there does nothing."""

    left = list(keys)

    def look() -> None:
        # A timer that is stopped may call once more: what is typed twice would answer the run's screen.
        if isinstance(app.screen, Question) and app.screen.readable:
            looking.stop()
            while left:
                app.simulate_key(left.pop(0))

    looking = app.set_interval(0.02, look)


# Each makes something of the app raise, and the app is what it is made in.

Inject = Callable[[CockpitApp, pytest.MonkeyPatch], object]


def in_a_worker(app: CockpitApp, _: pytest.MonkeyPatch) -> None:
    screen(app).run_worker(async_boom)


def in_a_worker_of_a_widget(app: CockpitApp, _: pytest.MonkeyPatch) -> None:
    screen(app).query_one(LogView).run_worker(async_boom)


def in_a_thread(app: CockpitApp, _: pytest.MonkeyPatch) -> None:
    screen(app).run_worker(boom, thread=True)


def in_a_timer(app: CockpitApp, _: pytest.MonkeyPatch) -> None:
    screen(app).set_timer(0.01, boom)


def in_an_action(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(screen(app).handlers, "zoom", Handler(boom))
    app.simulate_key("z")


def in_the_palette(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunScreen, "places", boom)
    app.simulate_key("colon")


def in_a_handler(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen(app), "_show_view", boom)
    grid = screen(app).query_one(RankGrid)
    grid.post_message(RankGrid.Selected("gpu01", None))


def in_a_handler_of_a_widget(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogView, "on_resize", boom, raising=False)
    screen(app).query_one(LogView).call_later(boom)


def in_a_handler_of_the_app(app: CockpitApp, _: pytest.MonkeyPatch) -> None:
    app.call_later(boom)


def after_a_refresh(app: CockpitApp, _: pytest.MonkeyPatch) -> None:
    screen(app).call_after_refresh(boom)


def in_a_callback_of_a_question(app: CockpitApp, _: pytest.MonkeyPatch) -> None:
    app.push_screen(Question("well?", ["…"], [Answer("ok", "close", "q")]), boom)
    once_it_can_be_read(app, "q")


def in_a_modal(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Question, "action_choose", boom)
    app.push_screen(Question("well?", ["…"], [Answer("ok", "close", "q")]))
    once_it_can_be_read(app, "left", "q")


def in_composing_a_modal(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Question, "compose", boom)
    screen(app).action_command("stop")


def in_mounting_a_modal(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Finder, "on_mount", boom, raising=False)
    screen(app).action_command("help")


def in_building_a_modal(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Question, "__init__", boom)
    app.simulate_key("x")


def in_a_tick(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drawing, "measure_lag", boom)


def in_the_grid(app: CockpitApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RankGrid, "update_model", boom)


PLACES: list[Inject] = [
    in_a_worker,
    in_a_worker_of_a_widget,
    in_a_thread,
    in_a_timer,
    in_an_action,
    in_the_palette,
    in_a_handler,
    in_a_handler_of_a_widget,
    in_a_handler_of_the_app,
    after_a_refresh,
    in_a_callback_of_a_question,
    in_a_modal,
    in_composing_a_modal,
    in_mounting_a_modal,
    in_building_a_modal,
    in_a_tick,
    in_the_grid,
]


@pytest.mark.slow
@pytest.mark.usefixtures("the_same_is_said_once")
def test_it_is_a_notice_and_the_app_goes_on() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            for inject in PLACES:
                with pytest.MonkeyPatch.context() as patch:
                    inject(app, patch)
                    await until(pilot, lambda: notices(app), f"{inject.__name__}: a notice")
                back = f"{inject.__name__}: back on the run's screen"
                await until(pilot, lambda: app.screen is screen(app), back)
                await keys_work(app, pilot)
                check(app, inject.__name__)
                # All of them raise at the same place: the same problem, were it not forgotten.
                app._door = Door()
                app.clear_notifications()
                await until(pilot, lambda: not notices(app), "no notice")

    asyncio.run(main())


def check(app: CockpitApp, name: str) -> None:
    """There is one notice, of what :func:`boom` raised, with its details in a file, which is removed."""
    (said,) = notices(app)
    assert "internal error in" in said, name
    assert f"ValueError: {HARMLESS}" in said, name
    (file,) = details()
    assert said.endswith(f"→ details: {file}"), name
    text = file.read_text()
    assert "Traceback (most recent call last)" in text, name
    assert "in boom" in text, name
    assert HARMLESS in text, name
    assert "\x1b" not in text, name
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.unlink()


# Drawing

DRAWN = [
    (TopBar, "render_line"),
    (RankGrid, "render_line"),
    (LogView, "render_line"),
    (EventList, "render_line"),
    (Detail, "render_line"),
    (KeyBar, "render_line"),
    (FailureBanner, "get_content_height"),
    (RankGrid, "get_content_height"),
    (Static, "render"),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("kind", "name"), DRAWN, ids=lambda each: getattr(each, "__name__", each))
def test_what_cannot_be_drawn_says_so_in_its_place(
    kind: type[Widget], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = False
    frames = 0
    original = getattr(kind, name)

    def fails(*given: object, **more: object) -> Any:
        nonlocal frames
        if not broken:
            return original(*given, **more)
        frames += 1
        raise KeyError(EVIL)

    async def main() -> None:
        nonlocal broken
        async with played(Scene(play=fails_first), SIZE) as (app, pilot, stage):
            if kind is Static:
                stage.trouble = CockpitError("the disk is full")  # a Static that is drawn
                await until(pilot, lambda: "the disk is full" in text_of(app), "trouble")
            broken = True
            for _ in range(5):
                before = frames
                redraw(app, kind)
                await until(pilot, lambda before=before: frames > before, "drawn again")  # type: ignore[misc]
            await until(pilot, lambda: notices(app), "a notice")
            shown = text_of(app)
            if name != "get_content_height":
                assert "cannot be drawn: KeyError: " in shown
            assert "\x1b" not in shown
            assert "20261121-0412-otter" in shown or kind is TopBar
            assert "gpu01" in shown or kind is RankGrid, "the others are drawn"
            assert app.is_running
            assert app.return_code is None
            assert len(notices(app)) == 1, f"said once, not {notices(app)}"
            assert len(details()) == 1
            broken = False
            redraw(app, kind)
            await until(pilot, lambda: "cannot be drawn" not in text_of(app), "drawn again")

    monkeypatch.setattr(kind, name, fails)
    asyncio.run(main())


def redraw(app: CockpitApp, kind: type[Widget]) -> None:
    """Have widgets measured and drawn again."""
    for widget in app.screen.query(kind):
        widget.refresh(layout=True)


# Words

HINTED = CockpitError("no room in \x1b[2Jtmp", where="gpu03", hint="free some: rm /tmp/[@click=app.quit]")


def test_an_error_with_a_hint_shows_it() -> None:
    async def fails() -> None:
        raise HINTED

    async def main() -> None:
        async with played(Scene(), SIZE, notices=True) as (app, pilot, _):
            screen(app).run_worker(fails())
            await until(pilot, lambda: app.screen.query("Toast"), "a notice")
            assert notices(app) == ["gpu03: no room in \\x1b[2Jtmp\n→ free some: rm /tmp/[@click=app.quit]"]
            await keys_work(app, pilot)
            (toast,) = app.screen.query("Toast")
            region = toast.content_region
            rows = [line[region.x : region.right] for line in text_of(app).splitlines()]
            assert any("→ free some: rm /tmp/[@click=app.quit]" in row for row in rows)
            assert details() == []

    asyncio.run(main())


def test_many_errors_are_one_notice() -> None:
    errors = [CockpitError("refused", where=f"gpu{number:02d}", hint="look there") for number in range(9)]
    assert notice(ManyErrors(errors)).splitlines()[:2] == ["gpu00: refused", "→ look there"]
    assert notice(ManyErrors(errors)).splitlines()[-1] == "and 5 more"


def test_a_problem_that_goes_on_is_said_once() -> None:
    clock = [0.0]
    gate = Door(lambda: clock[0])
    error = CockpitError("the disk is full")
    assert gate.take(error) is error
    for _ in range(100):
        clock[0] += error_reporting.QUIET_S - 0.1
        assert gate.take(CockpitError("the disk is full")) is None
    assert gate.take(CockpitError("something else")) is not None
    clock[0] += error_reporting.QUIET_S
    assert gate.take(error) is error, "it was over, and is back"
    clock[0] += 10 * error_reporting.QUIET_S
    assert gate.take(error, once=True) is None


def test_the_same_place_is_the_same_problem_whatever_it_says() -> None:
    gate = Door(lambda: 0.0)
    told = []
    for number in range(3):
        try:
            raise KeyError(number)
        except KeyError as error:
            told.append(gate.take(error))
    assert [one is None for one in told] == [False, True, True]
    assert len(details()) == 1


def test_so_many_files_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "KEPT", 3)
    said = [explained(KeyError(number)).hint for number in range(6)]
    assert [f"details: {path}" for path in details()] == said[-3:]


def test_details_hold_no_values_and_are_not_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "LINES", 100)

    def deep(number: int, api_key: str) -> None:
        if number == 0:
            raise ValueError("too deep")
        # By turns: Python itself folds frames that are the same.
        other(number - 1, api_key)

    def other(number: int, api_key: str) -> None:
        deep(number, api_key)

    try:
        deep(400, "sesame" * 3)
    except ValueError as error:
        explained(error)
    (file,) = details()
    text = file.read_text()
    assert "too deep" in text
    assert "sesamesesame" not in text
    assert len(text.splitlines()) <= 100 + 2


def test_a_full_disk_has_no_details_and_says_so() -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", full)
        error = explained(KeyError("x"))
    assert error.what.endswith("KeyError: 'x'")
    assert "could not be saved" in error.hint
    assert "No space left on device" in error.hint


# The end

ENDS = [(RunScreen, "compose"), (RunScreen, "on_mount"), (CockpitApp, "on_mount")]


@pytest.mark.parametrize(("kind", "name"), ENDS, ids=lambda each: getattr(each, "__name__", each))
def test_without_a_screen_it_ends_with_one_line(
    kind: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, boom)
    stage = Stage(["gpu01"], 2)
    stage.runs()
    app = CockpitApp(stage, terminal_config())

    asyncio.run(asyncio.wait_for(app.run_async(headless=True, size=SIZE), PATIENCE_S))
    assert app.error is not None
    assert len(str(app.error).splitlines()) == 1
    assert "app exited: internal error in" in str(app.error)
    assert f"details: {details()[-1]}" in str(app.error)
    assert app.error.code is Exit.USAGE
    assert stage.stops == []


@pytest.mark.usefixtures("the_same_is_said_once")
def test_an_app_that_does_nothing_but_fail_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_reporting, "STORM_S", 1e9)

    async def main() -> CockpitApp:
        async with played(Scene(), SIZE) as (app, pilot, stage):

            def again() -> None:
                app.call_later(again)
                boom()

            app.call_later(again)
            await until(pilot, lambda: app.return_code is not None, "it ends")
            assert len(notices(app)) == 1
            assert stage.stops == []
        return app

    app = asyncio.run(main())
    assert app.error is not None
    assert "app exited" in str(app.error)


def test_what_is_read_to_its_end_while_the_screen_is_removed_is_not_drawn() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, _, _):
            removed, log = screen(app), screen(app).query_one(LogView)
            await app._prune(removed)
            # Their tasks are ended last, after all that they draw on.
            removed._loaded()
            log._draw()

    asyncio.run(main())
    assert details() == []


def test_nothing_keeps_anybody_who_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> CockpitApp:
        async with played(Scene(), SIZE) as (app, pilot, stage):
            stage.trouble = None
            monkeypatch.setattr(stage, "close", async_boom)
            await pilot.press("q")
            await until(pilot, lambda: app.return_code is not None, "left")
        return app

    app = asyncio.run(main())
    assert app.return_value == Exit.LEFT
    assert "internal error in" in str(app.error)


def terminal_config() -> Config:
    """Settings as shipped, in Unicode."""
    return Config(ascii=False)


# The watch


@pytest.mark.slow
def test_a_watch_that_fails_pauses_and_says_so_until_it_goes_on() -> None:
    """Whatever it fails with: a failing disk here, or what nobody foresaw."""

    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, stage):
            for trouble, says in (
                (CockpitError("cannot write the spool: Input/output error"), "Input/output"),
                (KeyError("rank"), "KeyError: 'rank'"),
            ):
                stage.trouble = trouble  # type: ignore[assignment]
                await until(pilot, lambda: "watching paused: " in text_of(app), "it is said")
                shown = " ".join(text_of(app).split())
                assert says in shown
                assert "r tries again" in shown
                assert notices(app) == [], "once: in the line that stays"
                await keys_work(app, pilot)
                await pilot.press("r")
                await until(pilot, lambda: "watching paused" not in text_of(app), "it goes on")

    asyncio.run(main())


def test_a_log_that_cannot_be_read_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            book = screen(app).board.book
            read = book.logs.read

            def unreadable(number: int, start: int, length: int) -> bytes:
                if book.logs.files[number].source == ("gpu01", 0):
                    raise CockpitError("cannot read the spool: Input/output error", where="rank-0.log")
                return read(number, start, length)

            monkeypatch.setattr(book.logs, "read", unreadable)
            choose(app, "gpu01", 0)
            await until(pilot, lambda: "cannot read the spool" in text_of(app), "the pane says it")
            choose(app, "gpu01", 1)
            await until(pilot, lambda: "cannot read the spool" not in text_of(app), "another log is read")
            assert "step=1216" in text_of(app)
            await keys_work(app, pilot)
            assert notices(app) == []

    asyncio.run(main())


@pytest.mark.usefixtures("moving_clock")
def test_a_reader_with_a_bug_is_not_busy_for_ever() -> None:
    async def main() -> None:
        async with played(Scene(play=trains), SIZE) as (app, pilot, stage):
            log = screen(app).query_one(LogView)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(screen(app).board.book.logs, "read", boom)
                choose(app, "gpu01", 0)
                await until(pilot, lambda: notices(app), "a notice")
                assert not log.searching
            stage.prints(0, "it goes on\n")
            await until(pilot, lambda: "it goes on" in text_of(app), "new lines are read")

    asyncio.run(main())


# Of the walls themselves


def test_what_acts_on_a_terminal_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever forgot the sanitiser; a line keeps its width."""
    said = "a\x1b]0;t\x07b\x9b31m\x85c\u202ed\u200be\ufefff\udc9b|"

    async def main() -> None:
        async with played(Scene(healthy), SIZE) as (app, pilot, _):
            monkeypatch.setattr(Notice, "text", lambda *_, **__: said)
            await until(pilot, lambda: "]0;tb31mcdef|" in text_of(app), "a notice")
            monkeypatch.setattr(TopBar, "render_line", lambda *_: Strip([Segment(said)], 40))
            bar = app.screen.query_one(TopBar)
            bar.refresh()
            await until(pilot, lambda: text_of(app).count("]0;tb31mcdef|") == 2, "a line")
            assert not set(text_of(app)) & set(said) - set("a]0;tb31mcdef|")
            (line,) = bar.render_lines(bar.size.region)[:1]
            assert line.cell_length == sum(map(cell_len, line.text)) == bar.size.width

    asyncio.run(main())


def test_every_widget_has_walls() -> None:
    async def main() -> None:
        async with played(Scene(healthy), SIZE) as (app, _, __):
            bare = [each for each in app._registry if "render_lines" not in vars(each)]
            assert bare == []
            assert any(isinstance(each, ModalScreen | RunScreen) for each in app._registry)

    asyncio.run(main())
