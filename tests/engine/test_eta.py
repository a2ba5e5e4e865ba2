"""How much of a run is left, without asking anybody."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.events import RankExited, StopRequested, Watched
from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.pace import Pace
from cockpit.core.profile.gain import Ahead
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.profile.known import ahead_of
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import planned
from cockpit.engine.run.eta import left
from cockpit.engine.run.front import said_here
from tests.engine.books import CREATED, Writer, run_folder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run whose rank 0 has printed 100 of 400 steps, one each 2 s."""
    folder = run_folder(tmp_path / "a-run", {"gpu1": [0, 1]})
    writer = Writer(folder)
    writer.tick(CREATED)
    writer.write("gpu1", 0, b"begins\n")
    writer.tick(CREATED + 1)
    for step in range(1, 101):
        writer.write("gpu1", 0, b"step %d/400 loss %.4f\n" % (step, 3 / step))
        writer.tick(CREATED + 2 * step)
    writer.close()
    return folder


def test_a_log_says_how_many_tokens_a_second(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a-run", {"gpu1": [0, 1]})
    writer = Writer(folder)
    for step in range(1, 101):
        writer.write("gpu1", 0, b"step %d/400 loss 2.1 tokens/s: %d\n" % (step, 1000 + step))
        writer.tick(time.time() - 202 + 2 * step)
    writer.close()
    ahead = ahead_of(folder)
    assert ahead.tokens_s == 1100
    assert ahead.left_s == pytest.approx(600, abs=30)
    ended = run_folder(tmp_path / "ended", {"gpu1": [0]})
    assert ahead_of(ended) == Ahead()


def found(
    folder: RunFolder, pace: Pace, now: float, state: str = "", *facts: Any
) -> tuple[int, int, int | None] | None:
    model = RunModel()
    model.apply(planned(folder.manifest))
    if state:
        model.apply(Event(now, "", Watched(state, since=now - 5)))
    for fact in facts:
        model.apply(Event(now, "gpu1", fact))
    with closing(SpooledLogs(folder)) as logs:
        seen = left(folder, model, logs, pace, now)
    if seen is None:
        return None
    return (seen.step, seen.total, None if seen.seconds is None else round(seen.seconds))


@pytest.mark.parametrize("newer", [0, 1, 30])
def test_a_step_counts_whose_line_the_time_index_already_has(folder: RunFolder, newer: int) -> None:
    writer = Writer(folder)
    size = folder.spool_dir(folder.manifest.nodes[0]).joinpath("rank-0.log").stat().st_size
    writer.written["gpu1", 0] = bytes(size)
    for step in range(101, 101 + newer):
        writer.write("gpu1", 0, b"step %d/400 loss 0.1\n" % step)  # an index has its size later
    writer.close()
    model = RunModel()
    model.apply(planned(folder.manifest))
    assert said_here(folder, model) == (100, CREATED + 200)


def paced(first: int, last: int, begin: float) -> Pace:
    pace = Pace(range(2))
    for step in range(first, last + 1):
        for rank in range(2):
            pace.stepped(rank, step, begin + 2.0 * (step - first + 1), span=2.0)
    return pace


def test_a_log_alone_says_it(folder: RunFolder) -> None:
    assert found(folder, Pace(range(2)), CREATED + 201) == (100, 400, 599)
    assert found(folder, Pace(range(2)), CREATED + 600) == (100, 400, None)


def test_steps_that_have_become_longer_count_as_in_the_app(folder: RunFolder) -> None:
    metrics = Metrics()
    metrics.feed(0, b"step 100/400 loss 0.03\n", CREATED + 200)
    writer = Writer(folder)
    size = folder.spool_dir(folder.manifest.nodes[0]).joinpath("rank-0.log").stat().st_size
    writer.written["gpu1", 0] = bytes(size)
    for step in range(101, 121):
        line = b"step %d/400 loss %.4f\n" % (step, 3 / step)
        writer.write("gpu1", 0, line)
        writer.tick(CREATED + 200 + 3 * (step - 100))
        metrics.feed(0, line, CREATED + 200 + 3 * (step - 100))
    writer.close()
    app = metrics.time_left(CREATED + 261)
    assert app is not None
    assert found(folder, Pace(range(2)), CREATED + 261) == (120, 400, round(app)) == (120, 400, 839)
    pace = paced(1, 100, CREATED)
    for step in range(101, 121):
        pace.stepped(0, step, CREATED + 200 + 3 * (step - 100), span=3.0 if step > 111 else 2.0)
    assert found(folder, pace, CREATED + 261) == (120, 400, round(app))


def test_ranks_are_further_than_the_log_that_is_here(folder: RunFolder) -> None:
    pace = paced(1, 250, CREATED)
    assert found(folder, pace, CREATED + 501) == (250, 400, 299)


def test_a_run_that_stands_still_has_no_time_left(folder: RunFolder) -> None:
    assert found(folder, paced(1, 250, CREATED), CREATED + 505, "going") == (250, 400, 295)
    assert found(folder, paced(1, 250, CREATED), CREATED + 505, "stalled") == (250, 400, None)
    assert found(folder, Pace(range(2)), CREATED + 205, "stalled") == (100, 400, None)


@pytest.mark.parametrize("fact", [RankExited(1, code=1), StopRequested("enough", "ada")])
def test_a_run_that_will_not_get_there_has_no_time_left(folder: RunFolder, fact: Any) -> None:
    assert found(folder, paced(1, 250, CREATED), CREATED + 505, "", fact) == (250, 400, None)


def test_a_run_that_should_be_through_and_is_not_has_no_time_left(folder: RunFolder) -> None:
    late = paced(1, 395, CREATED)
    assert found(folder, late, CREATED + 793) == (395, 400, 7)
    assert found(folder, late, CREATED + 810) == (395, 400, None)
    assert found(folder, paced(1, 400, CREATED), CREATED + 810) == (400, 400, 0)


def test_ranks_that_count_something_else_do_not_count(folder: RunFolder) -> None:
    # Since the start of the program: the log went on from step 80.
    pace = paced(1, 20, CREATED + 160)
    assert found(folder, pace, CREATED + 201) == (100, 400, 599)
