"""What holds for tests of the app."""

from __future__ import annotations

import time

import pytest

from tests.tui.stage import NOW


@pytest.fixture
def frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One moment, in one time zone: no age on the screen changes."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr("cockpit.tui.run.start.monotonic", lambda: 100.0)
