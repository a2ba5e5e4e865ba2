"""What holds for all tests."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["tests.lab.fixtures"]

# No timed asserts: a busy machine must not fail a property.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's own runs and configuration out of every test."""
    for name in ("STATE", "CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "xdg" / name.lower()))
