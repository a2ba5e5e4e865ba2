"""What holds for tests of the app."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation
from textual.notifications import Notification

from tests.tui.stage import NOW


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


@pytest.fixture
def frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One moment, in one time zone: no age on the screen changes."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr("cockpit.tui.run.start.monotonic", lambda: 100.0)


@pytest.fixture
def notices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine may take longer to look than a notice is shown."""
    monkeypatch.setattr(Notification, "has_expired", False)
