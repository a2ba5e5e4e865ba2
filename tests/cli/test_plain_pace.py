"""Watched in text, a run's pace is known from its logs as well as in the app."""

from __future__ import annotations

import pytest

from cockpit.cli.merged import Missed
from cockpit.cli.plain import Live, Output
from cockpit.core.pace.pace import Pace
from cockpit.core.run.model import RunModel
from cockpit.engine.records.folder import Manifest, NodeEntry, RunFolder


@pytest.mark.parametrize("missed", [False, True])
def test_steps_of_logs_are_taken_in(missed: bool) -> None:
    manifest = Manifest(
        run="otter",
        nodes=[NodeEntry("a", "/x/a", [0])],
        created=1.0,
        launcher="command",
        program=["t"],
        cwd="/",
    )
    live = Live(manifest, Output())
    listener = Missed(RunFolder.create(manifest), live) if missed else live
    pace = Pace((0,))
    listener.joined(RunModel(), pace)
    listener.log("a", 0, 0, b"step 7/100 loss 2.5\n")
    listener.log("a", None, 0, b"step 99/100 loss 2.5\n")
    assert pace.front is not None
    assert (pace.of(0).step, pace.of(0).estimated) == (7, True)
