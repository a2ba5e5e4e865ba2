"""What the probe of a rank can do, in words."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.base.events import RankProbe
from cockpit.core.run.probes import probe_text
from cockpit.core.run.states import Node, Rank, RankState


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({}, "on"),
        ({"server": "no room"}, "on: no recorder: no room"),
        ({"server": "no room", "steps": "closed"}, "off: no recorder: no room; no steps: closed"),
        ({"phases": "no sign of its input"}, "on: no phases: no sign of its input"),
        ({"steps": "closed", "phases": "no steps are noted"}, "on: no steps: closed"),
    ],
)
def test_what_is_missing_is_said(said: dict[str, Any], text: str) -> None:
    probe = RankProbe(0, 1, "2.13.0", **said)
    rank = Rank(0, "a", RankState.RUNNING, probe=probe)
    assert probe_text(Node("a", (0,), probe="auto"), rank) == text
