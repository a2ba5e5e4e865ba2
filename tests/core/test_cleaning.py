"""Which runs go, and why one stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cockpit.core.run.cleaning import Old, Part, Wanted, state_of
from cockpit.core.run.model import RunModel
from tests.happened import happened

NODES = {"gpu01": (0,), "gpu02": (1,)}
DAY = 86400.0


def model(*events: tuple[str, str, dict[str, Any]]) -> RunModel:
    made = RunModel.of([happened(1.0, "planned", "", {"nodes": NODES})])
    for number, (kind, node, fields) in enumerate(events):
        made.apply(happened(2.0 + number, kind, node, fields))
    return made


def exited(node: str, code: int) -> tuple[str, str, dict[str, Any]]:
    return ("rank_exited", node, {"rank": NODES[node][0], "code": code, "t": 5.0})


OVER: list[tuple[str, str, dict[str, Any]]] = [("ended", "gpu01", {}), ("ended", "gpu02", {})]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "unended"),
        ([("link", "gpu01", {"state": "ok"})], "running"),
        ([exited("gpu01", 0), ("ended", "gpu01", {})], "unended"),
        ([exited("gpu01", 0), exited("gpu02", 0), *OVER], "ended"),
        ([exited("gpu01", 0), exited("gpu02", 3), *OVER], "failed"),
        ([("node_lost", "gpu01", {"why": "x"}), ("ended", "gpu02", {})], "failed"),
    ],
)
def test_states(events: list[Any], state: str) -> None:
    assert state_of(model(*events)) == state


def old(run: str = "a", **changes: Any) -> Old:
    parts = {"gpu01": Part(True, 1000, ended=True), "gpu02": Part(True, 500, ended=True)}
    return replace(Old(run, "ended", "ended", 10 * DAY, 100, parts), **changes)


def test_options_narrow_each_other_down() -> None:
    runs = [old("a", age_s=30 * DAY, state="failed"), old("b", age_s=20 * DAY), old("c", age_s=DAY)]

    def names(**wanted: Any) -> list[str]:
        return [run.run for run in Wanted(**wanted).first(runs)]

    assert names() == ["a", "b", "c"]
    assert names(older_s=2 * DAY) == ["a", "b"]
    assert names(older_s=2 * DAY, states=frozenset({"failed"})) == ["a"]
    assert names(names=frozenset({"c"}), older_s=2 * DAY) == []
    assert names(keep=1) == ["a", "b"]
    assert names(keep=3) == names(keep=10) == []
    assert not Wanted(unended=True, here=True).chosen
    assert Wanted(keep=1).chosen
    assert names(keep=0) == names() == ["a", "b", "c"]
    assert Wanted(keep=0).chosen, "none of them is kept"


def test_size_is_that_of_all_places() -> None:
    assert old().away == 1500
    assert Wanted(larger=1600).large(old())
    assert not Wanted(larger=1601).large(old())
    assert old().whole
    assert not old(parts={"gpu01": Part(True, 1, whole=False)}).whole


ALL = {"unended": True, "uncollected": True}


@pytest.mark.parametrize(
    ("changes", "allows", "why"),
    [
        ({}, {}, ""),
        ({"parts": {}}, {}, ""),
        ({"fixed": "no"}, {**ALL, "here": True}, "no"),
        ({"state": "running"}, {**ALL, "here": True}, "it is running"),
        ({"parts": {"gpu01": Part(True, alive=True, ended=True)}}, ALL, "it is running on gpu01"),
        ({"parts": {"gpu01": Part(True, alive=True)}}, {"here": True}, "it is running on gpu01"),
        ({"state": "unended"}, {}, "no recorded end; to remove it anyway: --unended"),
        ({"state": "unended", "parts": {"gpu01": Part(True)}}, ALL, ""),
        (
            {"parts": {"gpu01": Part(True, ended=True), "gpu02": Part(True)}},
            {},
            "no recorded end on gpu02; to remove it anyway: --unended",
        ),
        (
            {"parts": {"gpu01": Part(why="no answer")}},
            ALL,
            "gpu01: no answer; to remove it here alone: --here",
        ),
        ({"parts": {"gpu01": Part(why="no answer")}}, {"here": True}, ""),
        (
            {"parts": {"gpu01": Part(True, reports=2, ended=True)}},
            {"unended": True},
            "2 reports on gpu01 not collected; cockpit collect a, or --uncollected",
        ),
        ({"parts": {"gpu01": Part(True, reports=2, ended=True)}}, {"uncollected": True}, ""),
        ({"state": "damaged", "text": "damaged: x"}, ALL, "damaged: x; to remove it here alone: --here"),
        ({"state": "damaged", "text": "damaged: x"}, {"here": True}, ""),
    ],
)
def test_why_a_run_stays(changes: dict[str, Any], allows: dict[str, Any], why: str) -> None:
    assert Wanted(**allows).why_kept(old(**changes)) == why
