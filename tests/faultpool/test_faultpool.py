"""A short piece of the pool, and its rules: who is to be named, and what is said for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.faultpool.cases import Case, cases
from tests.faultpool.running import tried
from tests.faultpool.scoring import Outcome, judged, page
from tests.faultpool.script import script
from tests.faultpool.unasked import NOTHING


def case(name: str, seed: int = 1) -> Case:
    return next(each for each in cases(seed) if each.name == name)


def said(ranks: str = "", certainty: str = "sure", id: str = "io", where: str = "") -> dict[str, Any]:
    return {"id": id, "ranks": ranks, "certainty": certainty, "where": where, "severity": "error", "what": ""}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stopped-1", pytest.param("killed-1", marks=pytest.mark.campaign)])
def test_whom_the_others_wait_for_is_named(quick_cockpit: tuple[str, ...], name: str) -> None:
    bare = replace(case(name), bare=True, launcher="command", nodes=2, waits="files", site="data")
    facts = tried(bare, "on", quick_cockpit)
    assert not facts["trouble"]
    assert not facts["left"]
    for how in ("s", "unattended"):
        found = Outcome(bare, facts).judged(how)
        assert found is not None, how
        assert found.rank == "right", facts[how]


def test_a_seed_says_all_that_is_tried() -> None:
    assert cases(7) == cases(7) != cases(8)
    tried = cases(7)
    assert len({each.name for each in tried}) == len(tried)
    assert sum(each.fault for each in tried) >= 140
    assert sum(not each.fault for each in tried) >= 20
    launchers = Counter(each.launcher for each in tried)
    assert min(launchers[name] for name in ("command", "torchrun", "deepspeed", "accelerate")) >= 8
    assert {each.nodes for each in tried} == {1, 2}
    for each in tried:
        text = script(each, "/nowhere")
        compile(text, each.name, "exec")
        assert each.kind.called in text


def test_only_exactly_the_right_ranks_are_right() -> None:
    one = replace(case("fifo-open-1"), ranks=(2,))
    place = "train.py:31 read_shard"
    assert judged(one, "on", said("2", where=place)).right
    assert judged(one, "on", said("2", where="train.py:9 other")).place == "wrong"
    assert judged(one, "on", said("2-3")).rank == "wrong"
    assert judged(one, "on", said("1")).certainty == "over"
    assert judged(one, "off", said("", "unsure", "unknown")).rank == "blind"
    assert not judged(one, "off", said("", "sure", "moving")).right
    assert judged(one, "off", said("2", "unsure", "moving", place)).rank == "blind"


def test_nobody_may_be_named_where_only_the_recorder_knows() -> None:
    one = case("crossed-alike-1")
    silent = said("", "unsure", "together")
    assert judged(one, "off", silent).rank == "silent"
    assert judged(one, "on", silent).rank == "blind"


def test_all_ranks_at_one_place_are_an_answer() -> None:
    one = case("stale-all-1")
    assert judged(one, "on", said("", "likely", "lock", "train.py:5 wait_for_lock")).right
    assert judged(one, "on", said("0-3", "sure", "lock", "train.py:5 wait_for_lock")).right
    assert not judged(one, "on", said("", "sure", "moving", "train.py:5 wait_for_lock")).right
    assert not judged(one, "on", said("2", "likely", "lock")).right
    assert judged(one, "on", said("", "unsure", "unknown", "train.py:5 wait_for_lock")).rank == "blind"


def test_the_healthy_are_not_accused_and_the_slow_never_as_sure() -> None:
    healthy, slow = case("checkpoint-1"), replace(case("slow-data-1"), ranks=(1,), bare=False)
    assert judged(healthy, "on", said("", "unsure", "moving")).right
    assert not judged(healthy, "on", said("0", "likely")).right
    assert judged(healthy, "on", {**said("0"), "stuck": "sure"}).certainty == "over"
    assert judged(case("upload-1"), "on", said("0")).right, "it cannot be told from a hang"
    assert not judged(case("upload-1"), "on", {**said("0"), "proof": "stop"}).right
    assert judged(case("upload-1"), "on", {**said("0"), "stuck": "sure"}).certainty == "over"
    assert judged(slow, "on", said("1", "likely", "slow")).right
    assert not judged(slow, "on", said("1", "sure", "absent")).right
    assert judged(slow, "off", said("", "unsure", "moving")).right
    assert judged(slow, "on", said("", "unsure", "moving")).rank == "blind"
    # By itself it calls nobody slow so soon, and nobody stalled.
    for told, rank in ((NOTHING, "silent"), (said("1", "sure", "absent"), "right"), (said("2"), "accused")):
        found = Outcome(slow, {"probe": "on", "unattended": told}).judged("unattended")
        assert found is not None
        assert (found.rank, found.right) == (rank, told is NOTHING)


def test_the_score_has_what_was_wrong_and_what_was_not_tried() -> None:
    one = replace(case("fifo-open-1"), ranks=(2,))
    facts = {"probe": "on", "load": 3.0, "s": said("1"), "unattended": None, "why": "not yet"}
    text = page([Outcome(one, facts)], 7, 1)
    assert "1 runs, 7 not tried" in text
    assert "| **all** | 0 of 1, 0% |" in text
    assert "wrong/wrong/over" in text.replace("wrong/-/over", "wrong/wrong/over")
    assert "not yet" in text
