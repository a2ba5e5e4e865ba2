"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest

from cockpit import slurm
from tests.dealing import dealt
from tests.needs import lacking
from tests.warm import Warm, warm

pytest_plugins = ["tests.few", "tests.lab.fixtures"]

WAITING = {
    "cli/test_collectives.py": 40,
    "cli/test_headless_end.py": 40,
    "cli/test_interrupted.py": 25,
    "demo/test_demo.py": 80,
    "engine/test_evidence.py": 30,
    "engine/test_memory.py": 25,
    "gpu/test_gpu.py": 25,
    "hostile/test_hostile.py": 35,
    "hostile/test_ssh.py": 30,
    "lab/test_collect.py": 40,
    "lab/test_doctor.py": 100,
    "lab/test_foreign.py": 75,
    "lab/test_foreign_launchers.py": 130,
    "lab/test_inferred.py": 25,
    "lab/test_many.py": 25,
    "lab/test_openssh.py": 80,
    "lab/test_password.py": 60,
    "lab/test_profile.py": 80,
    "lab/test_slurm.py": 90,
    "lab/test_slurm_auto.py": 55,
    "lab/test_slurm_ends.py": 120,
    "lab/test_slurm_kills.py": 45,
    "lab/test_slurm_nsys.py": 40,
    "lab/test_spine.py": 160,
    "lab/test_stacks.py": 110,
    "probe/test_phases.py": 30,
    "probe/test_programs.py": 30,
    "probe/test_real_torch.py": 30,
    "profile/test_matrix.py": 130,
    "profile/test_twice.py": 60,
    "recorder/test_waits.py": 30,
    "replay/test_live.py": 35,
    "report/test_twenty_runs.py": 120,
    "slowpool/test_slowpool.py": 40,
    "watch/test_watch.py": 130,
    "whypool/test_whypool.py": 50,
}
"""Files whose tests take long, nearly all of it waiting, and for about how many seconds."""

WAITING_S = 20
"""About as long do other files of the lab wait, and those that launch something."""

LEFT_OUT: list[int] = []
"""How many tests were left out, each time that some were."""

# No timed asserts: a busy machine must not fail a property. And whoever runs the tests of a tree twice gets
# the same answer: `make properties` is the search for what nobody has tried.
_UNTIMED = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("same", _UNTIMED, derandomize=True, database=None)
hypothesis.settings.register_profile("random", _UNTIMED)
hypothesis.settings.load_profile("same")


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


@pytest.fixture
def utc() -> Iterator[None]:
    """Moments are written as in UTC, and later in this machine's zone again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-slow", action="store_true", help="leave out the tests that are marked slow")
    parser.addoption("--campaigns", action="store_true", help="run the campaigns, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "internal_errors: the test makes the app raise what nobody foresaw")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Only root runs what is marked so."""
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        lacking("only root can make what it needs")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow, if asked to, and campaigns, if not; with workers, each begins with some of the
    tests that wait.
    """
    without = ["slow"] * config.getoption("--no-slow") + ["campaign"] * (not config.getoption("--campaigns"))
    left_out = [item for item in items if any(map(item.get_closest_marker, without))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not any(map(item.get_closest_marker, without))]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    files: dict[str, list[pytest.Item]] = {}
    waits: dict[str, float] = {}
    for item in items:
        name = item.path.relative_to(Path(__file__).parent).as_posix()
        files.setdefault(name, []).append(item)
        if name in WAITING or any(item.iter_markers("lab")) or any(item.iter_markers("launch")):
            waits[name] = WAITING.get(name, WAITING_S)
    items[:] = dealt(files, waits, workers)


def pytest_deselected(items: Sequence[object]) -> None:
    """In a worker: count them for who started it."""
    LEFT_OUT.append(len(items))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = sum(LEFT_OUT)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The closing line counts what the workers left out: xdist forgets it, and all leave out the same."""
    count = getattr(node, "workeroutput", {}).get("left out", 0)
    if not LEFT_OUT and count:
        node.config.hook.pytest_deselected(items=[SimpleNamespace()] * count)


def pytest_collection_finish() -> None:
    """Look through what is there for good no more, and for garbage less often.

    Each app that is tested leaves so much that Python would look through all modules and tests once an app: a
    third of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 5, 4)


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
