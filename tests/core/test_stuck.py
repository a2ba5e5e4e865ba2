"""Whether a run is stuck: sure by a fact alone; what stops one: that fact, or a time that somebody names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cockpit.base.stacks.dump import Dump
from cockpit.core.finding import PROOFS, Finding
from cockpit.core.run.watch_messages import news, packed, standing, stop_reason, unpacked, watching
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.verdict import verdict
from cockpit.core.watch.watch import Terms
from tests.core.stalling import BEGAN, EVERYBODY, Run, together
from tests.core.test_verdict import (
    ALL_REDUCE,
    BACKWARD,
    COMPUTES,
    USER,
    dump,
    snapshot,
    still,
)

STUCK = Finding("stopped", "rank 3 is stopped (state T)", 0b1000, certainty="sure", proof="stop")
WAITS = Finding("io", "rank 0 did not join barrier", 0b0001, "train.py:31 upload", certainty="sure")
STOPPED = still(USER, state="T", call="")


def throttled(look: int) -> Dump:
    """It is stopped and continued in turn: stopped each time it is inspected, and has worked in between."""
    return dump(look, USER, state="T", call="", moves=True)


def far(taken: Snapshot) -> Snapshot:
    """The same, from a machine that is so busy that the second sample comes late."""
    taken.samples[-1].at += 10.0
    return taken


@pytest.mark.parametrize(
    ("taken", "proof"),
    [
        (snapshot(4, still(ALL_REDUCE), {1: STOPPED}), "stop"),
        (snapshot(4, still(ALL_REDUCE), {1: still(USER, state="T", call="", idle_s=3.0)}), ""),
        (snapshot(4, still(ALL_REDUCE), {1: STOPPED}, looks=1), ""),
        (far(snapshot(4, still(ALL_REDUCE), {1: STOPPED})), ""),
        (far(snapshot(4, still(ALL_REDUCE), why={1: "exited 0"})), ""),
        (snapshot(4, still(ALL_REDUCE), {1: STOPPED}, silent={"gpu2": "no answer"}), ""),
        (snapshot(4, still(COMPUTES, moves=True), {1: STOPPED}), ""),
        (snapshot(4, STOPPED), ""),
        (snapshot(4, still(ALL_REDUCE), {1: throttled}), ""),
        (snapshot(4, still(ALL_REDUCE), why={1: "exited 0"}), "end"),
        (snapshot(4, still(ALL_REDUCE), why={1: "killed by SIGKILL"}), "end"),
        (snapshot(4, still(BACKWARD), why={1: "exited 0"}), ""),
        (snapshot(4, still(ALL_REDUCE), {2: still(USER)}, why={1: "exited 0"}), ""),
        (snapshot(4, still(COMPUTES, moves=True), why={1: "killed by SIGKILL"}), ""),
        (snapshot(4, still(ALL_REDUCE), {1: still(USER, call="read")}), ""),
    ],
    ids=[
        "stopped, and the others wait",
        "stopped a moment ago",
        "one sample",
        "samples 11 s apart",
        "samples 11 s apart after an end",
        "a node did not answer",
        "others get on",
        "all are stopped, as of a job that is suspended",
        "stopped and continued in turn",
        "nobody is left who could come",
        "an end that was recorded",
        "the others wait for their GPUs",
        "one is at something of its own",
        "others get on after an end",
        "a blocking call",
    ],
)
def test_only_a_fact_proves_that_ranks_do_not_go_on(taken: Snapshot, proof: str) -> None:
    found = verdict(taken)
    assert found.proof == proof, found
    assert not proof or unpacked(packed(found)).proof == proof
    assert ("cannot continue by itself" in found.sureness) == bool(proof)


def test_a_rank_that_is_stopped_and_continued_in_turn_is_not_called_stopped() -> None:
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: throttled}))
    assert (found.id, found.ranks, found.certainty) == ("absent", 0b0010, "likely")


def test_a_proof_that_nobody_knows_is_none() -> None:
    assert unpacked(replace(packed(STUCK), proof="gossip")).proof == ""


def pausing(every: int, pause_s: float) -> Callable[[int], float]:
    """Seconds of steps: each so many there is a pause."""
    return lambda step: pause_s if step % every == 0 else 0.5


def asked(**more: object) -> Run:
    """A run of half an hour that stands still for good after a minute, as a look says."""
    made: dict[str, object] = {
        "ends": together(lambda step: 1e9 if step == 60 else 1.0),
        "frozen": lambda second: EVERYBODY,
        "verdict": lambda second: WAITS,
        "terms": Terms(10.0),
        **more,
    }
    return Run(**made).run(0.5)  # type: ignore[arg-type]


HEALTHY = {
    "12.5 s in one call each 40 steps": Run(
        together(pausing(40, 12.5)),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: WAITS,
        terms=Terms(10.0),
    ),
    "an upload of a minute": Run(
        together(pausing(100, 60.0)),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: WAITS,
        terms=Terms(10.0),
    ),
    "40 s between epochs": Run(
        together(pausing(50, 40.0)),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: WAITS,
        terms=Terms(10.0),
    ),
    "an evaluation that sleeps in between": Run(
        together(pausing(60, 60.0)),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: WAITS,
        terms=Terms(10.0),
    ),
    "14 s in each step": Run(
        together(lambda step: 14.0),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: WAITS,
        terms=Terms(10.0),
    ),
    "a first wait before any step": Run(
        together(lambda step: 0.5, first_s=200.0),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: WAITS,
        terms=Terms(10.0),
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_pause_stops_no_run_however_sure_it_is_for_whom_the_others_wait(name: str) -> None:
    run = HEALTHY[name].run(0.5)
    assert run.looks or name.startswith("14 s"), "it is looked at"
    assert run.proven == []
    assert run.overstayed == []


def test_what_is_proven_is_stopped_and_what_only_lasts_is_not() -> None:
    run = asked(verdict=lambda second: STUCK)
    assert run.proven
    assert run.overstayed == []
    assert stop_reason(run.model.watch, None).endswith("; proof: a signal has stopped it")
    assert asked().proven == []


def test_a_time_that_a_person_names_stops_a_run_in_which_nothing_moves() -> None:
    run = asked(terms=Terms(10.0, stop_after_s=300.0))
    assert run.proven == []
    last = 60 + 8 - 2
    assert last + 300 < run.overstayed[0] < last + 300 + 10, "a look is taken at that time, and counts"
    assert any(last + 300 <= look < run.overstayed[0] for look in run.looks), "evidence first"
    reason = stop_reason(run.model.watch, 301.0)
    assert reason.startswith(
        "no step and no movement for 5 min 01 s, longer than --stop-after allows: rank 0"
    )


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "more",
    [
        {"frozen": lambda second: 0b0111},
        {"frozen": lambda second: EVERYBODY if second < 350 else 0b0111},
        {"away": {"gpu1": (80.0, 1e9)}},
        {"look_s": 0.0},
        {"ends": together(lambda step: 280.0 if step % 60 == 0 else 1.0)},
        {"terms": Terms(10.0)},
    ],
    ids=[
        "one moves",
        "one moves in the end",
        "a node is away",
        "no look ends",
        "it goes on before",
        "not asked",
    ],
)
def test_before_that_or_without_evidence_it_goes_on(more: dict[str, object]) -> None:
    assert asked(**{"terms": Terms(10.0, stop_after_s=300.0), **more}).overstayed == []


def test_whether_it_is_stuck_is_told_beside_who_it_waits_for() -> None:
    once = asked(ends=together(lambda step: {20: 40.0, 60: 1e9}.get(step, 1.0)))
    told = [fact for _, fact in once.facts if fact.state == "stalled"]
    words = [news(watching(fact, BEGAN))[0] for fact in told]
    assert (told[0].stuck, words[0].split(" s, ")[1]) == (
        "likely",
        f"longer than ever in this run: {WAITS.what}",
    )
    waits = next(number for number, fact in enumerate(told) if fact.stuck == "waiting")
    assert words[waits].startswith("no step for ")
    assert words[waits].endswith(f", as at step 20, which took 40 s: {WAITS.what}")
    assert watching(told[waits], BEGAN).alarm is None, "nobody is called for what it did before"
    assert watching(told[0], BEGAN).alarm == once.model.watch.alarm == WAITS
    again = next(fact for fact in told[waits:] if fact.stuck != "waiting")
    assert again.stuck == "likely"
    assert 2 * 40 < again.still_s < 2 * 40 + 5, "it is looked at then"
    assert again.found is not None
    assert again.found.certainty == "sure", "for whom the others wait is another question"
    assert ", longer than ever in this run (seen " in standing(once.model, BEGAN + 1800)
    proven = asked(verdict=lambda second: STUCK)
    assert proven.model.watch.stuck == "sure"
    assert news(proven.model.watch)[0].endswith("; proof: a signal has stopped it")


def test_what_an_earlier_version_said_of_a_stall_reads_as_it_did() -> None:
    told = next(fact for _, fact in asked().facts if fact.state == "stalled")
    words, _ = news(watching(replace(told, stuck=""), BEGAN))
    assert words.endswith(f" s: {WAITS.what}")


def test_movement_makes_the_time_begin_anew() -> None:
    def frozen(second: float) -> int:
        return 0b0111 if second < 150 else EVERYBODY

    run = asked(frozen=frozen, terms=Terms(10.0, stop_after_s=300.0))
    moved = max(look for look in run.looks if look < 150)
    assert run.overstayed[0] > moved + 300


def test_each_proof_has_its_words() -> None:
    for proof, words in PROOFS.items():
        assert proof.isidentifier()
        assert words
