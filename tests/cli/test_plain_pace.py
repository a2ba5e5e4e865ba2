"""Watched in text, a run's pace is known from its logs as well as in the app."""

from __future__ import annotations

import pytest

from cockpit.base.events import Notice, Saved
from cockpit.cli.live import Live
from cockpit.cli.merged import Missed
from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned

MANIFEST = Manifest(
    run="otter",
    nodes=[NodeEntry("a", "/x/a", [0])],
    created=1.0,
    launcher="command",
    program=["t"],
    cwd="/",
)


@pytest.mark.parametrize("missed", [False, True])
def test_steps_of_logs_are_taken_in(missed: bool) -> None:
    live = Live(MANIFEST)
    listener = Missed(RunFolder.create(MANIFEST), live) if missed else live
    pace = Pace((0,))
    listener.joined(RunModel(), pace)
    listener.log("a", 0, 0, b"step 7/100 loss 2.5\n")
    listener.log("a", None, 0, b"step 99/100 loss 2.5\n")
    assert pace.front is not None
    assert (pace.of(0).step, pace.of(0).estimated) == (7, True)


def test_a_rank_that_becomes_slow_is_one_line_on_stderr_and_one_that_it_no_longer_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    live, model = Live(MANIFEST), RunModel()
    model.apply(planned(MANIFEST))
    live.joined(model, Pace((0,)))
    what = "rank 0 slow since step 1,170: 2.95 s, others 1.98 s"
    slow = Notice("slow", "0", what, 5.0, certainty="sure", nodes=("a",), ranks=(0,))
    for fact in (
        slow,
        slow,
        Saved(1200, 11.0),
        Notice("slow", "0", "rank 0 is no longer slow", 5.0, over=True),
    ):
        event = Event(9.0, "", fact)
        live.event(event, model.apply(event))
    assert capsys.readouterr().err.splitlines() == [
        f"cockpit: {what}",
        "cockpit: step 1,200: checkpoint, 11 s",
        "cockpit: rank 0 is no longer slow",
    ]
