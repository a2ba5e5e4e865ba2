"""Every key of the table does what the help says, in the real app on a made-up run."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import pytest
from textual.binding import Binding
from textual.widgets import OptionList

from cockpit import paths
from cockpit.config import Config
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.engine.stacks.saved import new_folder, save
from cockpit.errors import CockpitError
from cockpit.tui.app import CockpitApp
from cockpit.tui.commands import BY_ID, Id, in_scope, keymap
from cockpit.tui.commands import shown as written
from cockpit.tui.logs.view import LogView
from cockpit.tui.panes.dialogs import Question
from cockpit.tui.panes.finder import Finder
from cockpit.tui.panes.key_bar import KeyBar
from cockpit.tui.profile import help as profile_help
from cockpit.tui.profile.form import ProfileForm
from cockpit.tui.run import help as run_help
from cockpit.tui.run.command_list import CommandList
from cockpit.tui.run.doctor_screen import DoctorScreen
from cockpit.tui.run.event_list import EventList
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.stacks import help as stacks_help
from cockpit.tui.stacks.evidence_screen import EvidenceScreen
from cockpit.tui.stacks.screen import StackScreen
from tests.tui.scenes import (
    Scene,
    chosen,
    ends,
    everyone_trains,
    fails,
    healthy,
    notes,
    played,
    settled,
    stands_still,
    text_of,
    trains,
    until,
)
from tests.tui.stage import Stage

SIZE = (140, 45)
BINDINGS = list(Binding.make_bindings(RunScreen.BINDINGS))
RUN = "20261121-0412-otter"
SEARCH = ("2", "slash", *"needle", "enter", "escape", "2")


def profiled() -> Stage:
    """A run under a profiler."""
    return healthy(profile={"nsys": "nsys", "report": "report"})


def stalls(stage: Stage) -> None:
    """It stands still, and the look that was taken is on the disk."""
    stands_still(stage)
    taken = Snapshot(stage.model.watch.snapshot, "otter", RUN)
    taken.ranks[13] = Place("gpu02", None, 41_013, "")
    taken.samples.append(Sample(time.time() - 20, took_s=0.4))
    save(taken, new_folder(stage.folder.path / "stacks", taken))


def noisy(stage: Stage) -> None:
    """Output with errors, warnings and matches, more than a screen of it."""
    trains(stage)
    for rank in range(64):
        stage.prints(rank, f"WARNING: rank {rank} waits\nERROR: rank {rank} is unwell\nneedle {rank}\n")
    for step in range(100):
        stage.prints(1, f"step {step} of rank 1\n")


def screen(app: CockpitApp) -> RunScreen:
    """The run's screen, whatever is above it."""
    return next(each for each in app.screen_stack if isinstance(each, RunScreen))


def log(app: CockpitApp) -> LogView:
    return screen(app).query_one(LogView)


def grid(app: CockpitApp) -> RankGrid:
    return screen(app).query_one(RankGrid)


def shown(app: CockpitApp) -> str:
    """Which pane is on the right."""
    return screen(app).on_the_right


def row(app: CockpitApp) -> str:
    """The line under the log's cursor."""
    found = log(app).current_row()
    return found.text.decode() if found else ""


def asks(app: CockpitApp) -> bool:
    """Whether a question can be read and answered."""
    return isinstance(app.screen, Question) and app.screen.readable


def said(app: CockpitApp, text: str) -> int:
    """How many notes have the text."""
    return sum(text in note.message for note in notes(app))


Check = Callable[[CockpitApp], object]

# One run of the app each: the commands below that name it are pressed in it, one after the other.
RUNS: dict[str, Scene] = {
    "grid": Scene(),
    "panes": Scene(),
    "above": Scene(),
    "running": Scene(),
    "profiled": Scene(profiled),
    "failed": Scene(play=fails),
    "noisy": Scene(play=noisy),
    "searched": Scene(play=noisy),
    "stacks": Scene(),
    "stalled": Scene(play=stalls),
    "kept": Scene(play=stalls),
    "doctor": Scene(),
    "profile": Scene(),
}

# Per command: the run, keys before it, and what must be true afterwards but is not before.
EFFECTS: dict[Id, tuple[str, tuple[str, ...], Check]] = {
    "down": ("grid", ("down",), lambda app: grid(app).selected == ("gpu02", None)),
    "up": ("grid", (), lambda app: grid(app).selected == ("gpu01", None)),
    "page_down": ("grid", (), lambda app: grid(app).selected == ("gpu08", None)),
    "page_up": ("grid", (), lambda app: grid(app).selected == ("gpu01", None)),
    "last": ("grid", (), lambda app: grid(app).selected == ("gpu08", None)),
    "first": ("grid", (), lambda app: grid(app).selected == ("gpu01", None)),
    "back": ("grid", (), lambda app: chosen(app) is None),
    "mark": ("grid", ("down", "up"), lambda app: grid(app).marks == {("gpu01", None)}),
    "detail": ("panes", (), lambda app: shown(app) == "detail"),
    "previous_view": ("panes", (), lambda app: shown(app) == "log"),
    "events": ("panes", (), lambda app: shown(app) == "events"),
    "log": ("panes", (), lambda app: shown(app) == "log" and app.focused is log(app)),
    "commands": ("panes", (), lambda app: shown(app) == "commands"),
    "pace": ("panes", (), lambda app: shown(app) == "pace"),
    "longer": ("panes", (), lambda app: "whole run" in text_of(app)),
    "shorter": ("panes", (), lambda app: "whole run" not in text_of(app)),
    "nodes": ("panes", ("2",), lambda app: app.focused is grid(app)),
    "previous_pane": ("panes", (), lambda app: app.focused is not None and app.focused.id == "log"),
    "next_pane": ("panes", ("1",), lambda app: app.focused is not None and app.focused.id == "glance"),
    "open": ("panes", ("1", "down", "right", "3", "1"), lambda app: shown(app) == "log"),
    "stop": ("above", (), lambda app: isinstance(app.screen, Question)),
    "palette": ("above", ("escape",), lambda app: isinstance(app.screen, Finder)),
    "help": ("above", ("escape",), lambda app: isinstance(app.screen, Finder)),
    "help_here": ("above", ("escape",), lambda app: isinstance(app.screen, Question)),
    "filter": ("above", ("escape",), lambda app: screen(app).filter_bar.display),
    "interrupt": ("above", ("escape",), lambda app: isinstance(app.screen, Question)),
    "stacks": ("stacks", (), lambda app: isinstance(app.screen, StackScreen)),
    "stall_stacks": ("stalled", (), lambda app: isinstance(app.screen, StackScreen)),
    "runs": ("grid", ("1",), lambda app: said(app, "no other run is known here")),
    "compare": ("grid", ("1",), lambda app: said(app, "no other run to compare with")),
    "evidence": ("kept", (), lambda app: isinstance(app.screen, EvidenceScreen)),
    "doctor": ("doctor", (), lambda app: isinstance(app.screen, DoctorScreen)),
    "profile": ("profile", (), lambda app: isinstance(app.screen, ProfileForm)),
    "pager": ("running", (), lambda app: screen(app).paged),  # type: ignore[attr-defined]
    "previous_rank": ("running", (), lambda app: chosen(app) == ("gpu08", 63)),
    "next_rank": ("running", (), lambda app: chosen(app) == ("gpu01", 0)),
    "copy_command": ("running", (), lambda app: app.clipboard == f"cockpit logs {RUN} --rank 0 --time"),
    "screenshot": ("running", (), lambda app: list(paths.screenshots().glob("*.txt"))),
    "zoom": ("running", (), lambda app: not screen(app).query_one("#right").display),
    "freeze": ("running", ("z",), lambda app: "FROZEN" in text_of(app)),
    "units": ("running", (), lambda app: app.units == "decimal"),
    "bell": ("running", (), lambda app: not app.rings),
    "remember": ("running", ("b",), lambda app: paths.config().exists()),
    "retry": ("running", ("p",), lambda app: screen(app).deeds.trouble is None),
    "leave": ("running", (), lambda app: app.return_code is not None),
    "collect": ("profiled", (), lambda app: screen(app).deeds.ran[-1].title == "collect"),
    "keep": ("failed", (), lambda app: isinstance(app.screen, Question)),
    "failed_log": ("failed", ("escape",), lambda app: chosen(app) == ("gpu02", 13)),
    "follow": ("noisy", (), lambda app: not log(app).following),
    "wrap": ("noisy", ("f",), lambda app: log(app).wrapped),
    "timestamps": ("noisy", ("v",), lambda app: not log(app).timestamps),
    "copy": ("noisy", ("2", "end", "up"), lambda app: "step 98 of rank 1" in app.clipboard),
    "previous_error": ("noisy", ("end",), lambda app: "ERROR" in row(app)),
    "previous_warning": ("noisy", ("end",), lambda app: "WARNING" in row(app)),
    "next_error": ("noisy", ("home",), lambda app: "ERROR" in row(app)),
    "next_warning": ("noisy", ("home",), lambda app: "WARNING" in row(app)),
    "fold": ("noisy", (), lambda app: not log(app).folds),
    "previous_match": ("searched", SEARCH, lambda app: "needle" in row(app)),
    "next_match": ("searched", ("home",), lambda app: "needle" in row(app)),
}


def test_no_command_is_left_out() -> None:
    assert set(EFFECTS) == {command.id for command in in_scope("run")}


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, _, _):
            assert set(screen(app).handlers) == {command.id for command in in_scope("run")}

    asyncio.run(main())


@pytest.mark.few(3)
@pytest.mark.parametrize("run", RUNS)
def test_the_key_does_it(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _watch_pager(monkeypatch)

    async def main() -> None:
        async with played(RUNS[run], SIZE) as (app, pilot, _):
            for name, (_, before, done) in [item for item in EFFECTS.items() if item[1][0] == run]:
                for each in before:
                    await pilot.press(each)
                await settled(pilot)
                if name == "retry":
                    screen(app).deeds.trouble = CockpitError("the disk is full")
                for key in BY_ID[name].keys:
                    bound = [each.action for each in BINDINGS if each.key == key]
                    assert bound == [f"command('{name}')"]
                assert not done(app), f"{name}: true before the key was pressed: the test cannot fail"
                await pilot.press(BY_ID[name].keys[0])
                await until(pilot, lambda done=done: done(app), name)  # type: ignore[misc]

    asyncio.run(main())


def _watch_pager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can be given up for a moment, and a pager that notes what it was started with."""
    monkeypatch.setattr(RunScreen, "paged", "", raising=False)
    monkeypatch.setattr(CockpitApp, "suspend", lambda app: nullcontext())

    class Pager:
        async def wait(self) -> int:
            return 0

    async def run(*words: str) -> Pager:
        assert f"logs {RUN} --" in words[-1]
        assert " | " in words[-1]
        RunScreen.paged = words[-1]  # type: ignore[attr-defined]
        return Pager()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", run)


WHY_NOT = {
    "c": "the run was not profiled",
    "K": "nothing is about to be stopped",
    "n": "no filter yet",
    "F": "no rank has failed",
    "minus": "no view before this one",
    "r": "nothing went wrong here",
}


def test_a_key_that_cannot_work_says_why() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            for key, says in WHY_NOT.items():
                assert not said(app, says)
                await pilot.press(key)
                await until(pilot, lambda says=says: said(app, says), says)  # type: ignore[misc]

    asyncio.run(main())


def test_escape_with_nothing_to_go_back_to_says_nothing() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            await pilot.press("down", "escape", "escape", "escape")
            await settled(pilot)
            assert chosen(app) is None
            assert not notes(app)

    asyncio.run(main())


def test_a_note_that_is_shown_is_not_shown_twice() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            await pilot.press("F", "F", "K")
            await settled(pilot)
            assert said(app, "no rank has failed") == 1
            assert said(app, "nothing is about to be stopped") == 1

    asyncio.run(main())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("pane", "heading", "first"),
    [
        ("1", "Here: nodes and ranks", "mark"),
        ("2", "Here: log", "pace"),
        ("3", "Here: detail", "down"),
        ("6", "Here: pace", "longer"),
    ],
)
def test_all_keys_begin_with_those_of_the_pane_in_use(pane: str, heading: str, first: str) -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            await pilot.press(pane, "question_mark")
            await settled(pilot)
            assert isinstance(app.screen, Finder)
            lines = text_of(app).split("\n")
            at = next(number for number, line in enumerate(lines) if heading in line)
            assert BY_ID[first].title in lines[at + 1]
            options = app.screen.query_one(OptionList).options
            listed = [str(option.prompt) for option in options if not option.disabled]
            assert len(listed) == len(in_scope("run"))
            for command in in_scope("run"):
                assert any(command.title in line for line in listed), "each is there"

    asyncio.run(main())


def offered(app: CockpitApp) -> dict[str, str]:
    """Commands in the last line, and how each is called there."""
    names = {written(command.keys[0]): command.id for command in in_scope("run") if command.keys}
    line = text_of(app).splitlines()[app.screen.query_one(KeyBar).region.y]
    words = [each.partition(" ") for each in re.split("  +", line.strip())]
    return {names[key]: short for key, _, short in words if key in names}


@pytest.mark.slow
def test_a_key_that_is_offered_does_something_in_the_pane_it_is_offered_in() -> None:
    """And enter, where it is not offered, says why."""

    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):

            async def press(*keys: str) -> None:
                await pilot.press(*keys)
                await settled(pilot)

            await press("1", "down")
            assert {"open", "filter"} <= set(offered(app))
            await press("enter")
            assert app.focused is log(app)
            assert {"open", "filter"} <= set(offered(app))
            await press("enter")
            assert chosen(app) == ("gpu01", 0), "the rank of the newest line"
            assert "open" not in offered(app), "there is nothing to narrow any more"
            await press("enter")
            assert said(app, "shows only this rank")
            await press("3")
            assert not {"open", "filter"} & set(offered(app))
            await press("enter")
            assert said(app, "all of it is shown here")
            await press("4", "g")
            assert "filter" in offered(app)
            await press("5")
            assert offered(app)["open"] == "copy"
            assert "filter" not in offered(app)
            await press("enter")
            assert app.clipboard.startswith(screen(app).query_one(CommandList).copy_text()[:20])
            await press("slash")
            assert screen(app).filter_bar.has_focus_within
            assert offered(app) == {}, "each key is a letter of the filter now"

    asyncio.run(main())


def test_a_launchers_line_opens_the_log_of_its_node() -> None:
    def launched(stage: Stage) -> None:
        stage.prints(None, "gloo: connected\n", node="gpu03")

    async def main() -> None:
        async with played(Scene(play=launched), SIZE) as (app, pilot, _):
            await pilot.press("2", "G", "enter")
            await settled(pilot)
            assert chosen(app) == ("gpu03", None)

    asyncio.run(main())


def test_read_only_forbids_what_changes_the_run() -> None:
    async def main() -> None:
        async with played(Scene(play=fails), SIZE, Config(ascii=False, read_only=True)) as (
            app,
            pilot,
            stage,
        ):
            for key in "xK":
                await pilot.press(key)
                await until(pilot, lambda: said(app, "read-only"), key)
                app.clear_notifications()
                assert isinstance(app.screen, RunScreen)
                assert stage.stops_at is not None
            assert " x stop" not in text_of(app)

    asyncio.run(main())


def test_stop_asks_and_the_safe_answer_is_the_first() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, stage):
            await pilot.press("x")
            words = (RUN, "gpu[01-08]", "0-63")
            await until(pilot, lambda: all(each in text_of(app) for each in words), "what would be stopped")
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "the question is gone")
            assert stage.stops == []
            await pilot.press("x")
            await until(pilot, lambda: asks(app), "the question")
            await pilot.press("s", "enter")
            await until(pilot, lambda: stage.stops == [False], "asked to stop")
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "the question is gone")
            await pilot.press("x")
            await until(pilot, lambda: asks(app) and "kill it now" in text_of(app), "a harder way is offered")
            await pilot.press("k", "enter")
            await until(pilot, lambda: stage.stops == [False, True], "killed")

    asyncio.run(main())


def test_nothing_is_stopped_once_the_run_has_ended() -> None:
    async def main() -> None:
        async with played(Scene(play=ends), SIZE) as (app, pilot, stage):
            await pilot.press("x")
            await until(pilot, lambda: said(app, "has ended"), "why not")
            assert stage.stops == []

    asyncio.run(main())


def test_the_log_narrows_to_what_is_chosen_and_esc_widens_it() -> None:
    async def main() -> None:
        async with played(Scene(play=noisy), SIZE) as (app, pilot, _):
            await pilot.press("down", "right", "right")
            await until(pilot, lambda: log(app).wanted.ranks == {1}, "rank 1 alone")
            await pilot.press("escape")
            await until(pilot, lambda: not log(app).wanted.narrows, "everyone")
            await pilot.press("down", "space", "space")
            await settled(pilot)
            assert log(app).wanted.nodes == {"gpu01", "gpu02"}

    asyncio.run(main())


@pytest.mark.slow
def test_events_are_filtered_like_lines_and_open_what_was_kept() -> None:
    def kept(stage: Stage) -> None:
        fails(stage)
        stage.happens(
            "gpu02",
            kind="evidence",
            why="failure",
            file="20261121-040440-failure.evidence",
            stacks=[13],
            recorders=[],
        )

    async def main() -> None:
        async with played(Scene(play=kept, keys=("4",)), SIZE) as (app, pilot, _):
            assert "a rank failed; saved: stacks of rank 13 · enter opens it" in text_of(app)
            await pilot.press("slash", *"@gpu02 failed", "enter")
            events = app.screen.query_one("#events", EventList)
            await until(pilot, lambda: len(events.items) == 1, "one event")
            assert "/@gpu02 failed/" in text_of(app)
            assert not log(app).filter, "the log is as it was"
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, EvidenceScreen), "evidence")
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "back")
            await pilot.press("slash", *"no such", "enter")
            await until(pilot, lambda: "no event matches /@gpu02 failedno such/" in text_of(app), "none")
            await pilot.press("escape")
            await until(pilot, lambda: len(events.items) > 1, "all events")

    asyncio.run(main())


@pytest.mark.slow
def test_the_copied_command_prints_what_the_log_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    _watch_pager(monkeypatch)

    async def main() -> None:
        scene = Scene(lambda: healthy(command=["cockpit", "run", "hosts", "--", "it's.py"]), noisy)
        async with played(scene, SIZE) as (app, pilot, _):

            async def copied(*keys: str) -> str:
                await pilot.press(*keys, "Y")
                await settled(pilot)
                return app.clipboard

            assert await copied("t") == f"cockpit logs {RUN}"
            assert await copied("down", "space", "space") == f"cockpit logs {RUN} --node 'gpu[01-02]'"
            # Consoles belong to nodes: a rank among the marks leaves them out.
            assert await copied("right", "space") == f"cockpit logs {RUN} --rank 0-16"
            await pilot.press("2", "slash", *"@0,13-15", "space", *"it", "space", *"is", "enter")
            await settled(pilot)
            assert await copied() == f"cockpit logs {RUN} --rank 0,13-15 --grep 'it is'"
            await pilot.press("o", "5", "G")
            await settled(pilot)
            assert [ran.text for ran in screen(app).deeds.ran][:1] == ["cockpit run hosts -- 'it'\\''s.py'"]
            assert screen(app).deeds.ran[-1].text == app.clipboard

    asyncio.run(main())


def test_own_keys_replace_the_shipped_ones() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE, Config(ascii=False, keys={"stop": "X", "freeze": "x"})) as (
            app,
            pilot,
            _,
        ):
            await pilot.press("x")
            await until(pilot, lambda: "FROZEN" in text_of(app), "frozen")
            await pilot.press("5")
            await until(pilot, lambda: "X stop" in text_of(app), "the key that stops")
            await pilot.press("X")
            await until(pilot, lambda: isinstance(app.screen, Question), "the question")

    asyncio.run(main())


def test_texts_name_the_keys_in_force() -> None:
    keys = {"stop": "X", "freeze": "x", "detail": "8", "nodes": "9", "follow": "U", "mark": ""}

    async def main() -> None:
        async with played(Scene(), SIZE, Config(ascii=False, keys=keys)) as (app, pilot, _):
            assert "9 nodes" in text_of(app)
            assert "8 detail" in text_of(app)
            for pane, says in (("9", ":mark marks"), ("2", "G or U follows again")):
                await pilot.press(pane, "f1")
                await until(pilot, lambda says=says: says in text_of(app), says)  # type: ignore[misc]
                await pilot.press("escape")
            await pilot.press("x")
            await until(pilot, lambda: "x resumes" in text_of(app), "frozen")

    asyncio.run(main())


@pytest.mark.parametrize("screen", [run_help.ABOUT, stacks_help.ABOUT, profile_help.ABOUT])
def test_help_names_commands_that_there_are(screen: Mapping[str, tuple[str, Sequence[str]]]) -> None:
    keys: dict[str, str] = dict.fromkeys(BY_ID, "KEY")
    told = [line.format_map(keys) for _, lines in screen.values() for line in lines]
    assert "KEY" in "".join(told)


@pytest.mark.parametrize("key", ["+", "X", "é", "ctrl+shift+f12", "alt+comma", "←", "plus", "euro_sign"])
def test_a_key_by_any_name_is_one(key: str) -> None:
    assert keymap({"stop": key})["stop"].keys


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"stop": "c"}, "'c' is for"),
        ({"stopp": "c"}, "did you mean 'stop'"),
        ({"stop": "nosuchkey"}, "no key 'nosuchkey', for 'stop'; see: cockpit help keys"),
        ({"stop": "pagdown"}, "did you mean 'pagedown'"),
        ({"stop": "ctl+x"}, r"no key 'ctl\+x'"),
    ],
)
def test_bad_keys_are_refused(keys: dict[str, str], says: str) -> None:
    with pytest.raises(CockpitError, match=says):
        keymap(keys, "config.toml")


@pytest.mark.parametrize(
    ("leaving", "over", "title", "short"),
    [
        ("", False, "leave; the run continues", "leave"),
        ("the demo ends and stops its run", False, "quit; stops this run", "quit & stop"),
        ("the demo ends and stops its run", True, "close", "close"),
    ],
)
def test_what_leaving_does_is_said_alike_in_the_help_and_in_the_last_line(
    leaving: str, over: bool, title: str, short: str
) -> None:
    def plays(stage: Stage) -> None:
        stage.leaving = leaving
        if over:
            ends(stage)

    async def main() -> None:
        async with played(Scene(play=plays), SIZE) as (app, pilot, _):
            assert text_of(app).rstrip().splitlines()[-1].split("q ")[-1].startswith(short)
            await pilot.press("question_mark", "q")
            await settled(pilot)
            assert re.search(rf"q +{title}", text_of(app))

    asyncio.run(main())


def test_enter_in_the_small_detail_opens_the_tab() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            await pilot.press("tab")
            assert screen(app).pane.id == "glance"
            await pilot.press("enter")
            assert shown(app) == "detail"

    asyncio.run(main())


def test_help_and_palette_list_every_command() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            titles = {command.title for command in in_scope("run")}
            assert {item.title for item in screen(app).items()} == titles
            await pilot.press("question_mark", *"freeze")
            await settled(pilot)
            assert "freeze or resume the display" in text_of(app)
            assert "stop the run" not in text_of(app)
            await pilot.press("enter")
            await until(pilot, lambda: "FROZEN" in text_of(app), "run from help")

    asyncio.run(main())


def test_enter_opens_what_is_told_as_one_and_escape_folds_it_again() -> None:
    async def main() -> None:
        async with played(Scene(play=everyone_trains, keys=("2", "up")), SIZE) as (app, pilot, _):
            told = text_of(app)
            assert "[rank8]:" not in told
            await pilot.press("enter")
            await settled(pilot)
            assert "[rank8]:" in text_of(app)
            await pilot.press("enter")
            await settled(pilot)
            assert chosen(app) == ("gpu02", 8)
            await pilot.press("escape", "enter")
            await settled(pilot)
            await pilot.press("escape")
            await settled(pilot)
            assert not log(app).unfolded
            assert "[rank8]:" not in text_of(app)

    asyncio.run(main())
