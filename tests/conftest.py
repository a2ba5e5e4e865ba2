"""What holds for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from cockpit import slurm
from tests.warm import Warm, warm

pytest_plugins = ["tests.lab.fixtures"]

LONG = ("test_foreign.py", "test_plan.py", "test_spine.py", "test_stacks.py")
"""Files of the lab with tests of half a minute and more."""

# No timed asserts: a busy machine must not fail a property.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def warmed() -> Iterator[Warm]:
    """Python and launchers that have imported torch."""
    with warm("torch") as made:
        yield made


@pytest.fixture(scope="session")
def quick_cockpit() -> Iterator[tuple[str, ...]]:
    """The words that start a cockpit which has imported itself: for verbs that run to their end."""
    with warm("cockpit") as made:
        yield made.python, "-m", "cockpit"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "internal_errors: the test makes the app raise what nobody foresaw")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what waits longest, while other workers compute: else all wait at the end.

    Workers with nothing to do take over what comes last, until each has one test left: none of those is long.
    """

    def turn(item: pytest.Item) -> int:
        if item.get_closest_marker("lab") is None:
            return 3
        if "slurm" in item.path.name:
            return 0
        return 1 if item.path.name in LONG else 2

    items.sort(key=turn)


@pytest.fixture(autouse=True)
def private_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Keep the user's own runs and configuration out of every test, and what SLURM told another one.

    The app survives its own bugs: a test must not.
    """
    for name in ("STATE", "CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "xdg" / name.lower()))
    slurm.forget()
    yield
    if request.node.get_closest_marker("internal_errors") is None:
        details = [path.read_text() for path in (tmp_path / "xdg/state/cockpit/errors").glob("*.txt")]
        assert not details, "internal errors of the app:\n" + "\n".join(details)
