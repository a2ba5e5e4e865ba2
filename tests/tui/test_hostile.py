"""Nothing that a node sends breaks a screen or reaches the terminal as anything but text."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterator

import pytest

from cockpit.core import text as text_module
from cockpit.errors import CockpitError
from tests.tui.scenes import Scene, healthy, played, settled, text_of
from tests.tui.stage import Stage
from tests.tui.test_keys import screen

EVIL = (
    "[/x]",
    "[@click=app.quit]gone[/]",
    "[bold red]loud",
    "\x1b[2J\x1b[H\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1bPq\x1b\\",
    "\u202egnp.exe",
    "\u200b\u2028\x00\x08\x7f\x9b31m",
    "e" + "\u0301" * 200,
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
)


def everywhere(stage: Stage) -> None:
    """Every field that a node fills with text is hostile, as far as the gate lets it through."""
    for rank, evil in enumerate(EVIL):
        stage.prints(rank, evil + "\n")
        stage.happens("gpu01", kind="note", text=evil)
        stage.happens("gpu02", kind="report", name=evil, state=evil[:99], text=evil, size=1)
        stage.happens("gpu03", kind="stage", stage=evil[:99])
    stage.prints(5, b"x" * (1 << 20) + b"\n")
    stage.prints(None, "".join(EVIL) + "\n", node="gpu04")
    stage.prints(6, f"Building extension module {EVIL[1]}\nloss 1{EVIL[3]} step 3\n")
    stage.fails_first(13, cause="".join(EVIL))
    stage.happens("gpu05", kind="link", state="stale", why=EVIL[3])
    stage.happens("gpu06", kind="node_lost", why=EVIL[4])
    left = [{"name": evil, "pid": 7, "state": evil[:99]} for evil in EVIL]
    stage.happens("gpu07", kind="survivors", procs=left)
    stage.happens("gpu08", kind="sample", sample={}, ranks={}, gpus=[{"name": EVIL[1]}])
    stage.trouble = CockpitError("".join(EVIL), where=EVIL[3])


def bad_characters(shown: str) -> Iterator[str]:
    """Controls, bidi and invisible characters that a screen's text must not have."""
    for char in shown:
        if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            yield f"U+{ord(char):04X}"


async def every_pane() -> str:
    """The text of all panes with hostile content in them."""
    texts = []
    async with played(Scene(healthy, everywhere), (140, 45)) as (app, pilot, _):
        for keys in ("2", "home", "3", "4", "5", "F", "v", "question_mark"):
            await pilot.press(keys)
            await settled(pilot)
            texts.append(text_of(app))
        assert app.is_running
        assert screen(app).is_attached
    return "".join(texts)


@pytest.mark.usefixtures("without_the_last_wall")
def test_no_remote_text_is_anything_but_text() -> None:
    shown = asyncio.run(every_pane())
    assert list(bad_characters(shown)) == []
    assert "[@click=app.quit]gone[/]" in shown, "markup is shown as it was written"
    assert "\\x1b]52;c;cm0gLXJm\\x07" in shown


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_last_wall")
def test_without_the_sanitiser_it_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_clean", lambda text, colour: text)
    assert list(bad_characters(asyncio.run(every_pane())))
