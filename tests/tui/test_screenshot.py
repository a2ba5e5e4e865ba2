"""A screenshot: a picture and a text of what is on the screen, for this user alone, and its path is said."""

from __future__ import annotations

import asyncio
import json

import pytest

from cockpit import paths
from cockpit.cli.verbs import where
from tests.tui.scenes import Scene, notes, played, settled, text_of, trains, until

SIZE = (140, 45)


def test_two_files_with_what_is_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with played(Scene(play=trains), SIZE) as (app, pilot, _):
            shown = text_of(app)
            await pilot.press("C")
            await until(pilot, lambda: notes(app), "a note")
            picture = paths.screenshots() / "20261121-040441.svg"
            text = picture.with_suffix(".txt")
            assert str(picture) in notes(app)[0].message
            assert text.read_text() == shown
            assert picture.read_text().startswith("<svg")
            assert "gpu08" in picture.read_text()
            assert {path.stat().st_mode & 0o777 for path in (picture, text)} == {0o600}
            assert picture.parent.stat().st_mode & 0o777 == 0o700
            await pilot.press("C")
            await settled(pilot)
            assert text.read_text() == shown, "the first one was written over"
            assert (picture.parent / "20261121-040441-2.svg").exists()

    asyncio.run(main())
    assert where.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["screenshots"] == str(paths.screenshots())


def test_a_folder_that_cannot_be_made_is_said() -> None:
    async def main() -> None:
        async with played(Scene(), SIZE) as (app, pilot, _):
            paths.screenshots().write_text("a file is in the way")
            await pilot.press("C")
            await until(pilot, lambda: notes(app), "a note")
            (note,) = notes(app)
            assert "no screenshot" in note.message
            assert note.severity == "error"

    asyncio.run(main())
