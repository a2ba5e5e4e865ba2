"""Signs: no state is told by its colour alone, and a plain terminal gets nothing but ASCII."""

from __future__ import annotations

import asyncio
import locale

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from cockpit.config import Config
from cockpit.core.run.model import Rank, RankState
from cockpit.tui.look.filters import AsciiFilter, in_ascii
from cockpit.tui.look.glyphs import ASCII, STATES, UNICODE, Glyphs, choose, state_name, stopped
from tests.tui.scenes import SCENES, Scene, played, settled, strips_of, text_of, trains
from tests.tui.stage import Stage


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_every_state_has_a_sign_of_its_own(glyphs: Glyphs) -> None:
    signs = [getattr(glyphs, state) for state in STATES]
    assert len(set(signs)) == len(signs) == 7
    assert {cell_len(sign) for sign in signs} == {1}


def test_plain_signs_are_ascii() -> None:
    assert all(getattr(ASCII, state).isascii() for state in STATES)


@pytest.mark.parametrize("state", RankState)
def test_every_state_of_a_rank_has_a_name_with_a_sign(state: RankState) -> None:
    rank = Rank(0, "gpu01", state, code=0)
    assert state_name(rank) in STATES
    assert UNICODE.of(rank) == getattr(UNICODE, state_name(rank))


@pytest.mark.parametrize(
    ("setting", "charset", "term", "ascii_only"),
    [
        ("auto", "UTF-8", "xterm-256color", False),
        ("auto", "utf8", "xterm", False),
        ("auto", "ANSI_X3.4-1968", "xterm", True),
        ("auto", "ISO-8859-1", "xterm", True),
        ("auto", "UTF-8", "linux", True),
        (False, "ANSI_X3.4-1968", "linux", False),
        (True, "UTF-8", "xterm", True),
    ],
)
def test_the_terminal_decides_unless_the_settings_do(
    setting: bool | str, charset: str, term: str, ascii_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locale, "nl_langinfo", lambda key: charset)
    monkeypatch.setenv("TERM", term)
    assert choose(setting) is (ASCII if ascii_only else UNICODE)


def test_signs_become_similar_ones() -> None:
    assert in_ascii("╭─ 1 nodes 8 · ranks 64 ─╮") == "+- 1 nodes 8 . ranks 64 -+"
    assert in_ascii("▌◆ ● ✖ → …×3") == "|* o X > ~x3"


def test_what_has_no_similar_sign_is_a_question_mark_a_cell() -> None:
    assert in_ascii("naïve 訓練") == "na?ve ????"


@given(st.text())
def test_the_width_stays(text: str) -> None:
    drawn = in_ascii(text)
    assert drawn.isascii()
    assert cell_len(drawn) == cell_len(text)


def test_control_codes_pass() -> None:
    code = Segment("", None, [(1,)])  # type: ignore[list-item]
    line = AsciiFilter().apply([Segment("●"), code], Color(0, 0, 0))
    assert [segment.text for segment in line] == ["o", ""]
    assert line[1] is code


def screen(scene: str, config: Config) -> str:
    """A scene's screen as text, at a size that shows everything."""

    async def drawn() -> str:
        async with played(SCENES[scene], (140, 45), config) as (app, _, _):
            return text_of(app)

    return asyncio.run(drawn())


OF_THE_RUN = [name for name, scene in SCENES.items() if scene == Scene(keys=scene.keys)]
"""Scenes of the same run, which differ only in what is pressed."""


def foreign(text: str) -> set[str]:
    """The signs that are not ASCII."""
    return {sign for sign in text if not sign.isascii()}


@pytest.mark.few(8, "campaign")
@pytest.mark.few(4)
@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(scene, marks=[pytest.mark.slow] * (scene in ("pace-1024", "pace-half")))
        for scene in sorted(set(SCENES) - set(OF_THE_RUN))
    ],
)
def test_every_screen_is_ascii_where_it_must_be(scene: str) -> None:
    assert foreign(screen(scene, Config(ascii=True))) == set()


@pytest.mark.slow
def test_what_keys_open_is_ascii_too() -> None:
    async def drawn() -> dict[str, str]:
        texts = {}
        async with played(SCENES["running"], (140, 45), Config(ascii=True)) as (app, pilot, _):
            for name in OF_THE_RUN:
                await pilot.press(*SCENES[name].keys)
                await settled(pilot)
                texts[name] = text_of(app)
                await pilot.press(*(["p"] if name == "frozen" else ["escape", "1"]))
        return texts

    texts = asyncio.run(drawn())
    assert {name: foreign(text) for name, text in texts.items()} == {name: set() for name in OF_THE_RUN}
    assert len(set(texts.values())) == len(texts) > 5, "each is another screen"


def test_the_locale_alone_makes_it_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locale, "nl_langinfo", lambda key: "ANSI_X3.4-1968")
    assert screen("running", Config()).isascii()


def test_elsewhere_signs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locale, "nl_langinfo", lambda key: "UTF-8")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = screen("running", Config())
    assert "●●●●" in text
    assert "╭" in text


def test_output_of_a_node_is_ascii_too_and_keeps_its_place() -> None:
    def prints(stage: Stage) -> None:
        trains(stage, 2)
        stage.prints(3, "épôque 訓練 🚀 done → ok\n")

    async def drawn() -> str:
        async with played(SCENES["running"], (140, 45), Config(ascii=True)) as (app, pilot, stage):
            prints(stage)
            await settled(pilot)
            return text_of(app)

    text = asyncio.run(drawn())
    assert text.isascii()
    assert "?p?que ???? ?? done > ok" in text
    assert {len(line) for line in text.splitlines() if line.startswith(("|", "+"))} == {140}


@pytest.mark.few(1)
@pytest.mark.parametrize("scene", ["running", "failed", "stale"])
def test_states_are_told_without_colour(scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR takes every hue from the screen, and no sign."""

    async def drawn() -> tuple[str, set[str]]:
        async with played(SCENES[scene], (140, 45), Config(ascii=False)) as (app, _, _):
            assert app.no_color
            hues = set()
            for strip in strips_of(app):
                for segment in strip:
                    for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                        if colour is not None and not colour.is_default:
                            red, green, blue = colour.get_truecolor()
                            if not red == green == blue:
                                hues.add(colour.name)
            return text_of(app), hues

    monkeypatch.setenv("NO_COLOR", "1")
    text, hues = asyncio.run(drawn())
    assert hues == set()
    assert "●" in text
    assert ("✖" in text) is (scene == "failed")


def test_what_a_stop_ended_has_not_failed_by_itself() -> None:
    def ended(signal: int, **more: int) -> Rank:
        return Rank(0, "n", RankState.KILLED, signal=signal, **more)  # type: ignore[arg-type]

    assert stopped(ended(15))
    assert stopped(ended(9))
    assert not stopped(ended(9, oom_kills=1)), "the kernel has"
    assert not stopped(ended(11))
    assert not stopped(Rank(0, "n", RankState.EXITED, code=1))
