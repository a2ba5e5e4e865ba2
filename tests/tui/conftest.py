"""What holds for tests of the app."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation
from textual.notifications import Notification
from textual.pilot import Pilot

from cockpit.tui import base_app
from tests.tui.scenes import quiet
from tests.tui.stage import NOW

_TIME = time.time


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Every app has the same styles: each is parsed once for a theme, not once an app."""
    known: dict[tuple[object, ...], list[RuleSet]] = {}
    parse = Stylesheet._parse_rules

    def parsed(
        self: Stylesheet,
        css: str,
        read_from: CSSLocation,
        is_default_rules: bool = False,
        tie_breaker: int = 0,
        scope: str = "",
    ) -> list[RuleSet]:
        words = (css, read_from, is_default_rules, tie_breaker, scope)
        if words not in self._parse_cache:
            key = (frozenset(self._variables.items()), *words)
            if key not in known:
                known[key] = parse(self, *words)
            self._parse_cache[words] = known[key]
        return self._parse_cache[words]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parsed)
        yield


@pytest.fixture(autouse=True)
def a_pilot_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot goes on once the app has handled and drawn everything.

    Textual's goes on once the process uses little of a processor, as it does wherever others use it.
    """
    pause, press = Pilot.pause, Pilot.press

    async def paused(self: Pilot[Any], delay: float | None = None) -> None:
        await pause(self, delay)
        if delay is None:
            await quiet(self.app)

    async def pressed(self: Pilot[Any], *keys: str) -> None:
        for key in keys:
            await press(self, key)
            await quiet(self.app)

    monkeypatch.setattr(Pilot, "pause", paused)
    monkeypatch.setattr(Pilot, "press", pressed)


@pytest.fixture(autouse=True)
def frozen_clock(monkeypatch: pytest.MonkeyPatch, utc: None) -> None:
    """One moment, in one time zone: no age on the screen changes, so that a screen comes to rest."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr("cockpit.tui.run.start.monotonic", lambda: 100.0)


@pytest.fixture
def moving_clock(frozen_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes on the screen too."""
    monkeypatch.setattr(time, "time", _TIME)
    monkeypatch.setattr("cockpit.tui.run.start.monotonic", time.monotonic)


@pytest.fixture(autouse=True)
def notices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine may take longer to look than a notice is shown."""
    monkeypatch.setattr(Notification, "time_left", 1e6)
    monkeypatch.setattr(base_app, "READ_S", 1e6)  # nor does a key remove it


@pytest.fixture
def without_the_last_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place sanitises what it shows: the wall is for the one that was forgotten."""
    monkeypatch.setattr("cockpit.tui.error_reporting._harmless", lambda strip: strip)
