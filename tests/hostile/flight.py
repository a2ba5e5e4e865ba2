"""The app against a hostile node: it lives, takes keys, and shows nothing but text."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from textual.pilot import Pilot

from cockpit.config import Config
from cockpit.engine.records.folder import RunFolder
from cockpit.tui.app import CockpitApp
from cockpit.tui.run.purpose import Joining
from cockpit.tui.run.screen import RunScreen
from tests.hostile.values import odd_characters
from tests.tui.scenes import notes, text_of

LOOK_S = 10.0
"""Longest look at a node that says that it goes on."""
KEYS = (*"12345jkewFvtpz", "right", "left", "enter", "home", "end")
PROFILE_KEYS = ("1", "2", "3", "4", "z", "down", "enter", "question_mark", "c")
LEAVE_S = 15.0
"""For a profile that is under way to end."""
DIALOGS = ("question_mark", "colon", "x", "slash")


async def _look(run: str, seed: str) -> str:
    rng = random.Random(seed)
    app = CockpitApp(Joining(RunFolder.find(run)), Config(ascii=False))
    until = time.monotonic() + LOOK_S
    async with app.run_test(size=(140, 45)) as pilot:
        while not isinstance(app.screen, RunScreen):
            assert time.monotonic() < until + 20, "the run's screen never came"
            await pilot.pause(0.05)
        while not _done(app) and time.monotonic() < until:
            await _press(pilot, rng)
        for key in ("3", "4", "2", "1"):
            await pilot.press(key)
            await pilot.pause(0.05)
            _see(app)
        done = _done(app)
    return "done" if done else "left"


def _done(app: CockpitApp) -> bool:
    return app.session is not None and app.session.model.done


async def _press(pilot: Pilot[Any], rng: random.Random) -> None:
    draw = rng.random()
    if draw < 0.05:
        await _profile(pilot, rng)
    elif draw < 0.15:
        await pilot.press(rng.choice(DIALOGS))
        await pilot.pause(0.05)
        _see(pilot.app)
        await pilot.press("escape")
    else:
        await pilot.press(rng.choice(KEYS))
    await pilot.pause(0.1)
    _see(pilot.app)


async def _profile(pilot: Pilot[Any], rng: random.Random) -> None:
    """Ask for one, or for an earlier one, look at it for a while, and leave it."""
    await pilot.press("P")
    for key in (
        *rng.choices(("down", "enter", "enter"), k=3),
        *rng.choices(PROFILE_KEYS, k=rng.randrange(8)),
    ):
        await pilot.pause(0.2)
        _see(pilot.app)
        await pilot.press(key)
    _see(pilot.app)
    left = time.monotonic() + LEAVE_S
    while not isinstance(pilot.app.screen, RunScreen):
        assert time.monotonic() < left, "escape does not lead back"
        await pilot.press("escape")
        await pilot.pause(0.2)
        _see(pilot.app)


def _see(app: Any) -> None:
    assert app.is_running
    assert app._exception is None
    shown = text_of(app) + "\n".join(note.message for note in notes(app))
    odd = odd_characters(shown)
    assert not odd, f"on the screen: {odd}"
    assert "internal error" not in shown, shown


def main(run: str, seed: str) -> int:
    """Watch a run in the app, and press keys, until it is over; 0, or an exception."""
    print(asyncio.run(_look(run, seed)))
    return 0
