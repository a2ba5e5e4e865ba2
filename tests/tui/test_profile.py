"""The profile screen: asking for one, how far it is, what it says, and what opens its files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.profile.summary import RankProfile
from cockpit.config import Config, Quotas
from cockpit.core.profile.collection import DONE, Collection
from cockpit.core.profile.gain import Ahead
from cockpit.core.profile.reading import Parts, Row
from cockpit.core.profile.words import VIEWER
from cockpit.core.run.events import Event
from cockpit.engine.collect import Collected, Fetched, report_path
from cockpit.engine.profile.choose import SECONDS, Wish
from cockpit.engine.profile.known import store_of
from cockpit.engine.profile.taking import fact_of
from cockpit.errors import CockpitError
from cockpit.tui.base_app import BaseApp
from cockpit.tui.commands import PROFILE, in_scope
from cockpit.tui.panes.dialogs import Question
from cockpit.tui.profile.details import CollectivePane
from cockpit.tui.profile.files import FileList, how_to_open
from cockpit.tui.profile.form import ProfileForm
from cockpit.tui.profile.head import FindingBanner
from cockpit.tui.profile.help import ABOUT
from cockpit.tui.profile.job import about, steps_text, words_of
from cockpit.tui.profile.ranks import bar
from cockpit.tui.profile.screen import PANES, ProfileScreen
from cockpit.tui.profile.view_model import Progress
from tests.tui import profile_scenes
from tests.tui.pictures import LARGE, PICTURES, SMALL, as_designed
from tests.tui.profile_scenes import (
    RUN,
    SCENES,
    App,
    Played,
    ProfileScene,
    at_rest,
    goes_on,
    partial,
    profiled,
    reads,
    sampled,
    shown,
    usual,
)
from tests.tui.scenes import Scene, notes, played, settled, text_of, until
from tests.tui.stage import NOW, Stage
from tests.tui.test_hostile import EVIL, bad_characters


async def drawn(name: str, size: tuple[int, int]) -> str:
    async with profiled(SCENES[name], size) as (app, _):
        return text_of(app)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in SCENES if name in PICTURES])
def test_it_looks_as_designed(name: str) -> None:
    as_designed(name, asyncio.run(drawn(name, PICTURES[name])))


def test_while_nodes_are_asked_nothing_can_begin() -> None:
    async def main() -> None:
        async with profiled(SCENES["profile-form-asking"], SMALL) as (app, pilot):
            assert "asking the nodes" in text_of(app)
            await pilot.press("enter")
            assert isinstance(app.screen, ProfileForm)
            await pilot.press("escape")
            assert not isinstance(app.screen, ProfileForm)

    asyncio.run(main())


def screen(app: App) -> ProfileScreen:
    """The profile screen, whatever is above it."""
    return next(each for each in app.screen_stack if isinstance(each, ProfileScreen))


def played_with(
    test: Callable[[App, Any], Any], make: Callable[[], App], size: tuple[int, int] = LARGE
) -> None:
    """Run a test in the app."""

    async def main() -> None:
        async with profiled(ProfileScene(make), size) as (app, pilot):
            await test(app, pilot)

    asyncio.run(main())


def focused(app: BaseApp) -> str | None:
    """The pane in use."""
    return app.focused.id if app.focused is not None else None


def said(app: BaseApp, text: str) -> bool:
    """Whether a note has the text."""
    return any(text in note.message for note in notes(app))


# Asking


def test_what_is_chosen_is_asked_for() -> None:
    async def test(app: App, pilot: Any) -> None:
        assert app.wishes == [Wish()], "what can be had, as usual"
        await pilot.press("down", "down", "right", "down", "right")
        await at_rest(pilot)
        assert app.wishes[-1] == Wish(steps=10, stack=True)
        await pilot.press("up", "up", "up", "right")
        await at_rest(pilot)
        assert app.wishes[-1] == Wish("cpu", seconds=SECONDS)
        assert "by py-spy, 20 samples a second" in text_of(app)
        assert "Python stacks" not in text_of(app), "of torch alone"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen), "it begins")
        taking = screen(app).taking
        assert isinstance(taking, Played)
        assert taking.begun

    played_with(test, lambda: App(64, lambda: None, (), profile_scenes.planned))


def test_nsys_is_asked_for_as_steps() -> None:
    async def test(app: App, pilot: Any) -> None:
        await pilot.press("right", "right")
        await at_rest(pilot)
        # As many steps as are usual, or seconds where none are counted.
        assert app.wishes[-1] == Wish("nsys")
        await pilot.press("down", "down", "right")
        await at_rest(pilot)
        assert app.wishes[-1] == Wish("nsys", steps=10)
        text = text_of(app).replace("\u00a0", " ")
        assert "[nsys]" in text
        assert "by nsys, starting in about 3 s" in text
        assert "a report of about" in text
        assert "Python stacks" not in text, "of torch alone"
        assert words_of(app.wishes[-1]) == ["--kind", "nsys", "--steps", "10"]

    played_with(test, lambda: App(64, lambda: None, (), profile_scenes.planned))


def test_reports_of_nsys_are_files_and_no_more() -> None:
    async def test(app: App, pilot: Any) -> None:
        text = text_of(app)
        assert "nsys recorded ranks 0-3 on 2 nodes" in text
        assert "its starts were 0.10 s apart" in text
        assert "steps 1212 to 1216 are in it" in text
        await pilot.press("4")
        await at_rest(pilot)
        files = app.screen.query_one("#files", FileList).items
        assert [(file.program, file.node) for file in files] == [("nsys-ui", "gpu01"), ("nsys-ui", "gpu02")]
        assert "fetches it" in how_to_open(files[0], "c")
        assert "secrets included" in how_to_open(files[0]._replace(path="/x"), "c")
        await pilot.press("3")
        assert said(app, "reports of nsys are not summed up")

    played_with(test, lambda: App(4, lambda: profile_scenes.recorded(4)))


def test_bytes_that_nsys_has_written_are_shown() -> None:
    async def test(app: App, pilot: Any) -> None:
        assert "writing 48.2 MB" in text_of(app)

    played_with(test, lambda: App(4, lambda: profile_scenes.writes(4)))


def test_without_a_probe_it_is_stacks() -> None:
    async def test(app: App, pilot: Any) -> None:
        assert "[cpu]" in text_of(app)
        assert "[10 s]" in text_of(app)

    played_with(test, lambda: App(4, lambda: None, (), lambda wish: Played(sampled(4, 3))), SMALL)


def test_a_refusal_says_why_and_can_be_tried_again() -> None:
    async def test(app: App, pilot: Any) -> None:
        await pilot.press("down", "right")
        await at_rest(pilot)
        asked = len(app.wishes)
        assert "it is writing a checkpoint" in " ".join(text_of(app).replace("│", " ").split())
        await pilot.press("enter")
        await at_rest(pilot)
        assert len(app.wishes) == asked + 1
        assert isinstance(app.screen, ProfileForm)

    played_with(test, lambda: App(64, lambda: None, (), profile_scenes.planned), SMALL)


def test_ranks_that_are_left_out_are_named() -> None:
    def without(wish: Wish) -> Played:
        taking = Played(shown(4, usual))
        assert taking.plan is not None
        taking.plan = replace(taking.plan, left_out={7: "gone: it has ended", 8: "gone: it has ended"})
        return taking

    async def test(app: App, pilot: Any) -> None:
        assert "not included: ranks 7-8: gone: it has ended" in text_of(app)

    played_with(test, lambda: App(4, lambda: None, (), without), SMALL)


def test_an_earlier_profile_is_shown_instead() -> None:
    async def test(app: App, pilot: Any) -> None:
        await pilot.press("up", "right", "enter")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen), "the earlier one")
        await at_rest(pilot)
        assert "profile 1" in text_of(app)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "profile 2" in text_of(app), "the next one")
        await at_rest(pilot)
        assert "read_shard" in text_of(app)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "profile 1" in text_of(app), "the one before")

    earlier = [shown(64, usual), sampled(64, 13)]
    played_with(test, lambda: App(64, lambda: None, earlier, profile_scenes.planned))


def test_once_the_run_is_over_only_earlier_ones_are_offered() -> None:
    async def test(app: App, pilot: Any) -> None:
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, ProfileForm), "the question")
        await at_rest(pilot)
        assert "no new profile: the run has ended" in text_of(app)
        assert "how long" not in text_of(app)
        assert app.wishes == []
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen), "an earlier one")

    played_with(test, lambda: App(4, lambda: shown(4, usual), why_not="the run has ended"))


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(), []),
        (Wish("torch", frozenset({3, 7}), 10), ["--kind", "torch", "--ranks", "3,7", "--steps", "10"]),
        (Wish("cpu", seconds=30.0), ["--kind", "cpu", "--seconds", "30"]),
        (Wish(shapes=False, stack=True), ["--stack", "--no-shapes"]),
    ],
)
def test_the_command_line_takes_the_same(wish: Wish, words: Sequence[str]) -> None:
    assert words_of(wish) == words


@pytest.mark.slow
def test_the_run_offers_marked_ranks_and_finds_earlier_profiles_by_name() -> None:
    def known(stage: Stage) -> None:
        store = store_of(stage.folder)
        store.save(replace(shown(64, reads(13)), number=store.begin(Quotas())))
        stage.told(Event(NOW, "", fact_of(shown(64, reads(13)))))

    async def main() -> None:
        async with played(Scene(play=known), LARGE) as (app, pilot, _):
            await pilot.press("space", "P")
            await settled(pilot)
            assert isinstance(app.screen, ProfileForm)
            assert "marked ranks 0-7" in text_of(app)
            assert "[profile 1 (04:03, steps 1,212-1,216)]" in text_of(app)
            await pilot.press("escape", "colon", *"profile 1")
            await settled(pilot)
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, ProfileScreen), "the profile")
            await until(pilot, lambda: "rank 13 makes the others wait" in text_of(app), "what it says")

    asyncio.run(main())


def test_where_nothing_may_be_changed_earlier_ones_can_be_read_still() -> None:
    async def main() -> None:
        config = Config(ascii=False, read_only=True)
        async with played(Scene(), LARGE, config) as (app, pilot, stage):
            await pilot.press("P")
            await until(pilot, lambda: said(app, "read-only"), "why not")
            store = store_of(stage.folder)
            store.save(replace(shown(64, usual), number=store.begin(Quotas())))
            await pilot.press("P")
            await until(pilot, lambda: isinstance(app.screen, ProfileForm), "the question")
            assert "no new profile: read-only" in text_of(app)

    asyncio.run(main())


# While it is taken


def test_what_is_here_is_shown_while_others_write_and_the_strip_goes_when_all_is() -> None:
    async def test(app: App, pilot: Any) -> None:
        taking = screen(app).taking
        assert isinstance(taking, Played)
        assert "rank 13 makes the others wait" in text_of(app)
        assert "esc cancel" in text_of(app)
        assert "56-63" in text_of(app)
        assert "8 to come" in text_of(app)
        whole = shown(64, reads(13))
        taking.results = dict(whole.results)
        await at_rest(pilot)
        assert "64/64" in text_of(app)
        assert "writing" not in text_of(app)
        taking.over_.set()
        await until(pilot, lambda: screen(app).taking is None, "it is over")
        await at_rest(pilot)
        assert "summed up" not in text_of(app)
        assert "  64 ranks\n" in text_of(app)

    played_with(test, lambda: App(64, lambda: goes_on(64)))


def test_escape_cancels_first_and_what_is_here_stays() -> None:
    async def test(app: App, pilot: Any) -> None:
        taking = screen(app).taking
        assert isinstance(taking, Played)
        await pilot.press("escape")
        await at_rest(pilot)
        assert taking.cancelled == "cancelled in the cockpit"
        assert "cancelling on all nodes" in text_of(app)
        assert isinstance(app.screen, ProfileScreen)
        taking.over_.set()
        await until(pilot, lambda: screen(app).taking is None, "it is over")
        await at_rest(pilot)
        assert "rank 13 makes the others wait" in text_of(app)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ProfileScreen), "back")

    played_with(test, lambda: App(64, lambda: goes_on(64)))


def test_ctrl_c_cancels_too() -> None:
    async def test(app: App, pilot: Any) -> None:
        taking = screen(app).taking
        assert taking is not None
        await pilot.press("ctrl+c")
        await until(pilot, lambda: taking.cancelled, "cancelled")
        assert isinstance(app.screen, ProfileScreen)

    played_with(test, lambda: App(4, lambda: goes_on(4)))


def test_leaving_while_it_is_taken_ends_it() -> None:
    """The request ends with the screen, so nothing is left running on nodes."""

    class Ends(Played):
        ended = False

        async def take(self) -> Collection:
            try:
                return await super().take()
            finally:
                self.ended = True

    made: list[Ends] = []

    def begin() -> Ends:
        made.append(Ends(partial(4, {3: ("writing", "")})))
        return made[0]

    async def test(app: App, pilot: Any) -> None:
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not isinstance(app.screen, ProfileScreen), "back")
        await until(pilot, lambda: made[0].ended, "ended")

    played_with(test, lambda: App(4, begin))


def test_one_that_is_refused_at_the_last_moment_says_why() -> None:
    def begin() -> Played:
        taking = Played(partial(4, dict.fromkeys(range(4), ("", ""))))
        taking.results = {}
        taking.fails = CockpitError("no step for 9.0 s", hint="try again once steps continue")
        return taking

    async def test(app: App, pilot: Any) -> None:
        await until(pilot, lambda: "no profile: no step for 9.0 s" in text_of(app), "why")
        assert "try again once steps continue" in text_of(app)

    played_with(test, lambda: App(4, begin))


def test_how_long_what_is_left_takes_is_known_from_those_that_are_through() -> None:
    now = 100.0
    taking = Played(partial(4, dict.fromkeys(range(4), ("writing", ""))))
    progress = Progress(taking, lambda: now)
    row = Row((2, 3), "gpu02", state="writing")
    assert progress.look()
    assert not progress.look(), "nothing has changed"
    assert progress.left_s(row) is None
    now += 6
    taking.results[0] = replace(taking.results[0], state="written")
    assert progress.look()
    assert progress.left_s(row) == 1.0, "as long as it took the other one"
    now -= 2
    assert progress.left_s(row) == 2.0
    now += 4
    taking.results[0] = replace(taking.results[0], state="reading")
    progress.look()
    now += 3
    taking.results[0] = replace(taking.results[0], state=DONE)
    progress.look()
    for rank in (2, 3):
        taking.results[rank] = replace(taking.results[rank], state="written")
    progress.look()
    assert progress.left_s(Row((2, 3), "gpu02", state="written")) == 6.0, "one after the other"


# What it says


def test_enter_shows_the_operations_of_the_row_under_the_cursor() -> None:
    async def test(app: App, pilot: Any) -> None:
        assert "2 rank 13 operations" in text_of(app)
        await pilot.press("down")
        await at_rest(pilot)
        assert "2 rank 13 operations" not in text_of(app)
        assert focused(app) == "ranks"
        await pilot.press("enter")
        await at_rest(pilot)
        assert focused(app) == "operations"

    played_with(test, lambda: App(64, lambda: shown(64, reads(13))))


def test_every_command_has_a_handler_and_each_pane_its_key_and_its_help() -> None:
    async def test(app: App, pilot: Any) -> None:
        assert set(screen(app).handlers) == {command.id for command in in_scope(PROFILE)}
        assert set(ABOUT) == set(PANES)
        for key, name in zip("2341", (*PANES[1:], PANES[0]), strict=True):
            await pilot.press(key)
            await at_rest(pilot)
            assert focused(app) == name
            assert [each.id for each in screen(app).query(".pane") if each.display] == [name]
            await pilot.press("f1")
            await until(pilot, lambda: isinstance(app.screen, Question), "help")
            await pilot.press("escape")
        await pilot.press("tab")
        await at_rest(pilot)
        assert focused(app) == "operations"
        await pilot.press("shift+tab", "shift+tab")
        await at_rest(pilot)
        assert focused(app) == "files"

    played_with(test, lambda: App(4, lambda: shown(4, reads(3))), SMALL)


def test_z_shows_one_pane_alone_where_there_is_room_for_all() -> None:
    async def test(app: App, pilot: Any) -> None:
        await pilot.press("3", "z")
        await at_rest(pilot)
        panes = screen(app).query(".pane")
        assert [each.id for each in panes if each.display] == ["collectives"]
        await pilot.press("escape")
        await at_rest(pilot)
        assert all(each.display for each in panes)

    played_with(test, lambda: App(4, lambda: shown(4, reads(3))))


@pytest.mark.parametrize("ahead", [Ahead(7200.0, 1000.0), Ahead()])
def test_how_fast_the_run_would_be_without_who_is_slow(ahead: Ahead) -> None:
    async def test(app: App, pilot: Any) -> None:
        await until(pilot, lambda: "if rank 3 kept up" in text_of(app), "it is shown")
        told = "without it: ~0.58 steps/s, ~1,500 tokens/s, ETA ~1 h 18 min" in text_of(app)
        assert told == (ahead != Ahead())

    def make() -> App:
        app = App(4, lambda: replace(shown(4, reads(3)), before=2.6))
        app.job = replace(app.job, ahead=lambda: ahead)
        return app

    played_with(test, make)


def test_stacks_have_no_collectives() -> None:
    async def test(app: App, pilot: Any) -> None:
        await pilot.press("3")
        await until(pilot, lambda: said(app, "no collectives"), "why")
        assert not screen(app).query_one(CollectivePane).display
        await pilot.press("down")
        await at_rest(pilot)
        assert "is nowhere for longer" in text_of(app) or "in this function" in text_of(app)

    played_with(test, lambda: App(4, lambda: sampled(4, 3)))


def test_without_colours_bars_are_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def test(app: App, pilot: Any) -> None:
        assert "ddddcccc" in text_of(app)
        assert "cwwwww" in text_of(app).replace("m", "")
        assert "! 13" in text_of(app)
        assert "d data  c compute  m comm  w waiting" in text_of(app)

    played_with(test, lambda: App(64, lambda: shown(64, reads(13))))


@pytest.mark.parametrize("width", [1, 7, 30, 61])
def test_a_bar_is_as_wide_as_it_is_to_be(width: int) -> None:
    for parts in (Parts(1, 2, 3, 4, 5), Parts(0, 0, 0, 0, 1), Parts(0.1, 9, 0, 0, 0), Parts(0, 0, 0, 0, 0)):
        drawn = "".join(piece.text for piece in bar(parts, width, max(parts.took, 1.0), letters=True))
        assert len(drawn) == width
        assert (
            len("".join(piece.text for piece in bar(parts, width, 30.0, letters=True)).rstrip())
            <= width / 2 + 1
        )


def test_steps_are_named_in_short() -> None:
    assert steps_text([1212, 1213, 1214]) == "steps 1,212-1,214"
    assert steps_text([700, 702]) == "steps 700,702"
    assert steps_text([5]) == "step 5"
    assert about(shown(4, usual)) == "profile 1 (04:03, steps 1,212-1,216)"
    assert about(sampled(4, 3)) == "profile 1 (04:03, cpu, 10 s)"


def test_a_profile_that_cannot_be_read_says_why() -> None:
    async def test(app: App, pilot: Any) -> None:
        (app.store.folder(1) / "collection.json").write_text("{")
        app.answered(1)
        await until(pilot, lambda: "no profile: is damaged" in text_of(app), "why")

    played_with(test, lambda: App(4, lambda: shown(4, usual)))


# Files


def test_what_opens_a_file_is_said_and_copied() -> None:
    async def test(app: App, pilot: Any) -> None:
        await pilot.press("4", "o")
        tar = f"cockpit profile show {RUN} 1 --fetch --perfetto profile-1.tar"
        await until(pilot, lambda: app.clipboard == tar, "the command of all")
        assert any(VIEWER in note.message and "nothing is uploaded" in note.message for note in notes(app))
        await pilot.press("down", "o")
        await until(pilot, lambda: said(app, "c fetches it"), "not here")
        await pilot.press("1", "Y")
        await until(pilot, lambda: app.clipboard == f"cockpit profile show {RUN} 1", "the view")

    played_with(test, lambda: App(4, lambda: shown(4, reads(3))))


def test_stacks_are_opened_by_commands_that_make_their_files() -> None:
    async def test(app: App, pilot: Any) -> None:
        await pilot.press("4", "enter")
        html = f"cockpit profile show {RUN} 1 --html profile-1.html"
        await until(pilot, lambda: app.clipboard == html, "the flame graph")
        await pilot.press("c")
        await until(pilot, lambda: said(app, "there is no file"), "why not")

    played_with(test, lambda: App(4, lambda: sampled(4, 3)))


def test_traces_are_fetched_one_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[frozenset[str]] = []

    async def collect(folder: Any, pool: Any, target: Path, tell: Any, _: Any, **more: Any) -> Collected:
        only = more["only"]
        asked.append(only)
        done = Collected(target, [Fetched("gpu01", name, 16 << 20, state="collected") for name in only])
        tell(done)
        for result in shown(4, reads(3)).results.values():
            path = report_path(folder, result.node, result.file)
            if result.file in only and path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x")
        return done

    monkeypatch.setattr("cockpit.tui.profile.screen.collect", collect)
    whole = shown(4, reads(3)).results

    async def test(app: App, pilot: Any) -> None:
        await pilot.press("4", "down", "c")
        await until(pilot, lambda: "1 of 4 files here" in text_of(app), "one is here")
        assert asked == [frozenset({whole[3].file})]
        await pilot.press("o")
        await until(pilot, lambda: app.clipboard.endswith(".trace.json.gz"), "its path")
        assert said(app, "nothing is uploaded")
        await pilot.press("1", "c")
        await until(pilot, lambda: "4 of 4 files here" in text_of(app), "all are here")
        assert asked[1] == frozenset(whole[rank].file for rank in range(3))
        await pilot.press("c")
        await until(pilot, lambda: said(app, "all files are here"), "why not")

    played_with(test, lambda: App(4, lambda: shown(4, reads(3))))


def test_fetching_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def collect(*_: Any, **__: Any) -> Collected:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("cockpit.tui.profile.screen.collect", collect)

    async def test(app: App, pilot: Any) -> None:
        await pilot.press("c")
        await pilot.press("c")
        await until(pilot, lambda: said(app, "was cancelled"), "cancelled")

    played_with(test, lambda: App(4, lambda: shown(4, reads(3))))


# What nodes say


def hostile() -> Collection:
    """Every name is hostile, as far as the gate and the store let it through."""
    evil = "".join(EVIL)
    whole = shown(4, reads(3))

    def changed(summary: RankProfile) -> RankProfile:
        return replace(
            summary,
            operations=tuple(
                replace(one, name=f"{EVIL[at % len(EVIL)]} {at}"[:200])
                for at, one in enumerate(summary.operations)
            ),
            collectives=tuple(replace(one, name=evil[:90], group=evil[:90]) for one in summary.collectives),
            notes=(evil[:200],),
        )

    results = {
        rank: replace(one, summary=changed(one.summary), file=evil[:99]) if one.summary is not None else one
        for rank, one in whole.results.items()
    }
    results[0] = replace(results[0], state="refused", why=evil[:200], summary=None)
    return replace(whole, results=results, cancelled=evil[:200])


@pytest.mark.usefixtures("without_the_last_wall")
@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_no_name_is_anything_but_text(size: tuple[int, int]) -> None:
    texts: list[str] = []

    async def test(app: App, pilot: Any) -> None:
        for key in "2341":
            await pilot.press(key)
            await at_rest(pilot)
            texts.append(text_of(app))

    played_with(test, lambda: App(4, lambda: Played(hostile())), size)
    assert list(bad_characters("".join(texts))) == []
    assert "[@click=app.quit]" in "".join(texts), "markup is shown as it was written"


@pytest.mark.parametrize("name", ["profile-64", "profile-cancelled", "profile-cpu"])
def test_the_banner_is_three_lines_at_most(name: str) -> None:
    async def test(app: App, pilot: Any) -> None:
        assert 1 <= len(screen(app).query_one(FindingBanner).lines) <= 3

    played_with(test, SCENES[name].make)


@pytest.mark.parametrize("name", ["profile-ascii", "profile-collectives-ascii"])
def test_in_ascii_all_is_ascii(name: str) -> None:
    assert asyncio.run(drawn(name, LARGE)).isascii()
