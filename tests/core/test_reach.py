"""A node that stays away while others go on is told, once it does; our own network is not blamed on nodes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cockpit.core.pace.pace import Pace
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.reach import AWAY_S, Reach
from cockpit.core.run.notices.rule import About, Condition
from tests.happened import happened

BEGAN = 1_700_000_000.0


def run(*events: Any) -> RunModel:
    """Two nodes with a rank each that runs, and what happened then."""
    made = RunModel()
    made.apply(happened(BEGAN, "planned", "", {"nodes": {"a": (0,), "b": (1,)}}))
    for rank, node in enumerate("ab"):
        made.apply(happened(BEGAN, "link", node, {"state": "ok"}))
        made.apply(happened(BEGAN, "rank_started", node, {"rank": rank, "pid": 5}))
    for at, kind, node, fields in events:
        made.apply(happened(BEGAN + at, kind, node, fields))
    return made


def seen(model: RunModel, after: float) -> list[Condition]:
    return list(Reach(About("run")).look(BEGAN + after, model, Pace(range(2))))


@pytest.mark.parametrize("state", ["stale", "gone"])
def test_a_node_that_stays_away_is_told(state: str) -> None:
    away = run((10, "link", "a", {"state": state, "why": "no answer"}))
    assert seen(away, 10 + AWAY_S - 1) == []
    (one,) = seen(away, 10 + AWAY_S)
    assert (one.nodes, one.evidence, one.since) == (("a",), ("no answer",), BEGAN + 10)
    assert "its ranks may still be running" in one.what


def test_since_which_day_is_said_unless_it_is_today() -> None:
    away = run((10, "link", "a", {"state": "gone"}))
    since = time.strftime("%H:%M:%S", time.localtime(BEGAN + 10))
    (today,), (later,) = seen(away, 10 + AWAY_S), seen(away, 2 * 86_400)
    assert f"not reachable since {since};" in today.what
    assert f"not reachable since 2023-11-{time.localtime(BEGAN + 10).tm_mday} {since};" in later.what


def test_where_no_node_answers_it_is_our_network() -> None:
    both = run(*((10, "link", node, {"state": "stale"}) for node in "ab"))
    assert seen(both, 9000) == []


def test_a_lost_node_is_told_unless_the_ends_of_its_ranks_were_recorded() -> None:
    (one,) = seen(run((10, "node_lost", "a", {"why": "its folder is gone"})), 11)
    assert (one.what, one.evidence) == (
        "a is lost; the ranks on other nodes keep running",
        ("its folder is gone",),
    )
    assert seen(run((10, "node_lost", "a", {"why": "rebooted", "booted": True})), 11) == []
    exited = (5, "rank_exited", "a", {"rank": 0, "code": 0})
    assert seen(run(exited, (10, "node_lost", "a", {"why": "its folder is gone"})), 11) == []


def test_once_the_others_have_ended_there_is_nobody_to_tell() -> None:
    ended: Any = ((20, "rank_exited", "b", {"rank": 1, "code": 0}), (21, "ended", "b", {}))
    assert seen(run((10, "link", "a", {"state": "gone"}), *ended), 9000) == []
