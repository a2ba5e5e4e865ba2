"""The watch: silent over healthy runs, however uneven; and a stall is named in time, once, and taken back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cockpit.base.stillness import AFTER_S as HANG_AFTER_S
from cockpit.base.stillness import BACKOFF_S, FIRST
from cockpit.core.finding import Finding
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.watch_messages import MOVES, head, news, packed, unpacked
from cockpit.core.watch.judge import NOT_ENTERED, Inspection, judge
from cockpit.core.watch.watch import Terms
from tests.core.stalling import BEGAN, EVERYBODY, Run, steps, together, uneven
from tests.happened import happened

HUNG = Finding(
    "io", "rank 3 waits for a file", 0b1000, "data.py:118 read_shard", certainty="sure", evidence=("state D",)
)
STUCK = replace(HUNG, proof="child")
LATE = Finding("absent", "rank 0 has not reached barrier yet", 0b0001, "save.py:9 save", certainty="unsure")
SILENT = Finding("silent", "ranks 2,3 did not answer: 2 ranks wait in all_reduce", 0b1100, certainty="unsure")
TOGETHER = Finding("together", "all wait in the same place")
IDLE = Finding("io", "rank 0 did not join broadcast", 0b0001, certainty="unsure", severity="warning")
STALL = 1000
"""The step at which runs stall here, and, as steps take a second, the second."""


def every(steps: int, pause: float, usual: float = 1.0) -> Callable[[int], float]:
    """Seconds of steps of which some take long."""
    return lambda step: pause if step % steps == 0 else usual


def stops(at: int = STALL, back_after: float = 1e9) -> Callable[[int], float]:
    """Seconds of steps that stop."""
    return lambda step: back_after if step == at else 1.0


def bubbles(rank: int) -> Iterator[float]:
    """Stages of a pipeline: they end the same step one after the other."""
    return (end + 4.0 * (rank // 2) for end in steps(rank, lambda step: 20.0))


HEALTHY = {
    "long first steps": Run(together(lambda step: 240.0 if step < 4 else 1.0, first_s=500.0)),
    "a first step that others wait for": Run(
        together(lambda step: 1.0, first_s=900.0),
        frozen=lambda second: 0b1110,
        verdict=lambda second: LATE,
        cpu=lambda rank, second: 99.0 if rank == 0 else 0.5,
    ),
    "compiling again": Run(
        together(every(700, 180.0)), frozen=lambda second: 0b1110, verdict=lambda second: LATE
    ),
    "checkpoints on one rank": Run(
        together(every(200, 90.0)), frozen=lambda second: 0b1110, verdict=lambda second: LATE
    ),
    "checkpoints that the recorder sees": Run(
        together(every(200, 90.0)), frozen=lambda second: 0b1110, missing=lambda second: 0b0001
    ),
    "evaluation": Run(together(every(500, 400.0))),
    "a paused node": Run(
        together(stops(back_after=300.0)),
        away={"gpu1": (STALL + 15.0, STALL + 280.0)},
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: SILENT,
    ),
    "logs only, with evaluation": Run(together(every(500, 300.0)), probed=False, logs=10.0),
    "steps of ten minutes": Run(
        together(lambda step: 600.0, first_s=700.0),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: TOGETHER,
    ),
    "steps of ten minutes that only the log tells": Run(
        together(lambda step: 600.0, first_s=700.0),
        probed=False,
        logs=1.0,
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: TOGETHER,
    ),
    "no step and no log": Run(together(lambda step: 1.0), probed=False),
    "an idle server": Run(
        together(lambda step: 1e9, first_s=1e9),
        probed=False,
        cpu=lambda rank, second: 99.0 if second < 60 else 0.3,
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: TOGETHER,
    ),
}
"""Healthy runs that may be looked at, and must not be called stalled."""

QUIET = {
    "uneven loading": Run(together(uneven(1, 1.0, 0.8)), frozen=lambda second: EVERYBODY),
    "long steps that are uneven": Run(together(uneven(2, 40.0, 0.35))),
    "accumulation": Run(together(lambda step: 45.0)),
    "bubbles": Run(bubbles),
    "evaluation of half a minute": Run(together(every(300, 28.0))),
    "a log with few lines": Run(together(lambda step: 1.0), probed=False, logs=100.0),
    "a cockpit that slept": Run(together(lambda step: 1.0), asleep=(900.0, 4500.0)),
    "a clock that was set": Run(together(lambda step: 1.0), set_by=(900.0, 3600.0)),
    "a clock that was set back": Run(together(lambda step: 1.0), set_by=(900.0, -3600.0)),
    "lost links": Run(together(lambda step: 1.0), away={"gpu0": (600.0, 1500.0), "gpu1": (600.0, 1500.0)}),
    "one lost link": Run(together(lambda step: 1.0), away={"gpu1": (600.0, 2200.0)}),
    "a late look": Run(together(lambda step: 1.0), joined=2000.0),
}
"""Healthy runs that need no look at all."""


LONG = {
    "steps of ten minutes": 1.3,
    "steps of ten minutes that only the log tells": 1.3,
    "uneven loading": 2.0,
    "long steps that are uneven": 2.0,
    "a cockpit that slept": 1.5,
}
"""Hours after which those have shown what others show in less than one."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*HEALTHY, *QUIET])
def test_hours_without_a_false_alarm(name: str) -> None:
    run = {**HEALTHY, **QUIET}[name].run(LONG.get(name, 0.8))
    assert "stalled" not in run.states, run.news
    assert not any("stalled" in text for text in run.news)
    if name in QUIET:
        assert run.looks == []
        assert run.states in (["going"], ["blind"])
        assert run.news == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compiling again", "checkpoints on one rank", "evaluation"])
def test_what_may_be_looked_at_is_and_goes_on_by_itself(name: str) -> None:
    made = HEALTHY[name]
    run = made if made.facts else made.run(1.0)
    assert run.looks
    assert set(run.states) == {"going", "quiet"}
    assert run.states.count("going") > 1


def stalled(**more: object) -> Run:
    """A run in which rank 3 hangs, and the others wait for it."""
    made: dict[str, object] = {
        "ends": together(stops()),
        "frozen": lambda second: EVERYBODY if second >= STALL else 0,
        "verdict": lambda second: HUNG,
        "waiting": lambda second: 0b0111,
        **more,
    }
    return Run(**made)  # type: ignore[arg-type]


def test_a_stall_is_named_within_the_threshold_and_what_a_look_takes() -> None:
    run = stalled().run(0.5)
    last = STALL + 8 - 2  # the first step ended at 8 s
    assert run.states == ["going", "quiet", "stalled"]
    assert HANG_AFTER_S < run.first("quiet") - last <= HANG_AFTER_S + 1
    assert run.first("stalled") - last <= HANG_AFTER_S + 5
    seen = run.model.watch
    assert seen.stalled
    assert seen.step == STALL - 1
    assert seen.finding is not None
    assert (seen.finding.what, seen.finding.certainty) == (HUNG.what, "sure")
    assert (seen.culprits, seen.waiting, seen.snapshot) == (0b1000, 0b0111, "20261121-045802")
    assert seen.since == pytest.approx(1_700_000_000 + last, abs=1.5)
    assert [text for text in run.news if "stalled" in text] == [
        "stalled 35 s, longer than ever in this run: rank 3 waits for a file"
    ]
    assert head(seen, 48.0) == "stalled 48 s"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "more",
    [
        {"asleep": (300.0, 900.0)},
        {"set_by": (400.0, 3600.0)},
        {"set_by": (STALL + 5.0, 3600.0)},
        {"set_by": (STALL + 5.0, -3600.0)},
        {"joined": 400.0},
        {"away": {"gpu0": (300.0, 500.0)}},
    ],
)
def test_what_happened_to_clocks_and_links_does_not_hide_a_stall(more: dict[str, object]) -> None:
    run = stalled(**more).run(0.5)
    assert STALL + HANG_AFTER_S < run.first("stalled") < STALL + HANG_AFTER_S + 20


def test_whoever_comes_to_a_stalled_run_is_told_at_once() -> None:
    run = stalled(joined=1500.0).run(0.5)
    assert run.first("stalled") < 1500 + 15
    assert run.model.watch.since == pytest.approx(1_700_000_000 + STALL + 6, abs=2)


def test_a_stall_that_resolves_itself_is_taken_back() -> None:
    run = stalled(ends=together(stops(back_after=200.0))).run(0.5)
    assert run.states == ["going", "quiet", "stalled", "going"]
    assert run.model.watch.finding is None
    assert run.news[-1] == "steps continue, after 3 min 20 s without one"


def pausing(*pauses: float, every: int = 100) -> Callable[[int], float]:
    """Seconds of steps: each so many there is a pause, and after these no step any more."""

    def seconds(step: int) -> float:
        if step % every:
            return 1.0
        return pauses[step // every - 1] if step // every <= len(pauses) else 1e9

    return seconds


def still(run: Run, second: float) -> float:
    """For how long there has been no step."""
    return second - max((end for end in run.done[0] if end <= second), default=0.0)


def certain(run: Run) -> list[float]:
    """How long each of the standstills was that were called stalled for certain."""
    return [fact.still_s for _, fact in run.facts if fact.stuck == "sure"]


def test_a_look_under_way_when_steps_go_on_says_nothing_of_a_later_standstill() -> None:
    # The look at the first pause ends in the second one, of which it has seen nothing.
    run = stalled(ends=together(pausing(38.0, 60.0, every=41)), frozen=lambda s: EVERYBODY, look_s=95.0)
    run.run(0.06)
    assert run.states == ["going", "quiet", "going", "quiet", "going"]
    first, second = run.looks
    assert second == first + 95, "its own look begins as soon as the other one has ended"
    assert [fact.looks for _, fact in run.facts if fact.state == "quiet"] == [0, 0]


@pytest.mark.parametrize("ended", [None, Inspection(HUNG, still=EVERYBODY, snapshot="old")])
def test_an_old_look_changes_nothing(ended: Inspection | None) -> None:
    run = Run(together(pausing(40.0, every=100)), frozen=lambda second: EVERYBODY, look_s=0.0).run(0.06)
    assert run.states == ["going", "quiet", "going"]
    assert len(run.looks) == 1
    at, ticks = BEGAN + 216, 216.0
    assert list(run.watch.looked(at, ticks, ended)) == []
    assert not run.watch.due
    assert not run.watch.proven
    run.run(0.05, begin=217)
    first, second = run.looks
    assert still(run, second) == still(run, first), (
        "the next standstill is looked at as if there were no other"
    )
    assert run.states == ["going", "quiet", "going", "quiet"]
    assert [fact.looks for _, fact in run.facts if fact.state == "quiet"] == [0, 0]


def test_what_a_run_has_come_out_of_nine_times_is_not_sure_the_tenth_time() -> None:
    run = stalled(
        ends=together(pausing(*[50.0] * 10)),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: STUCK,
    ).run(0.7)
    assert run.states.count("stalled") == 11, "what a look has seen is said"
    assert len(certain(run)) > 1
    first, *later = certain(run)
    assert first < 50, "of the first one nobody knows better"
    assert all(each > 2 * 50 for each in later), "the last one is no pause"
    assert all(still(run, second) > 2 * 50 for second in run.proven if second > 200)
    assert run.proven[-1]
    modest = next(fact for _, fact in run.facts if fact.stuck == "waiting")
    assert modest.found is not None
    assert modest.found.certainty == "sure", "who holds up the others is another question"
    assert modest.before_s == pytest.approx(50, abs=1)


@pytest.mark.parametrize("probed", [True, False])
def test_a_pause_half_as_long_that_ended_by_itself_keeps_a_run_from_being_stopped(probed: bool) -> None:
    more = {"probed": probed, "logs": 1.0, "frozen": lambda s: EVERYBODY, "verdict": lambda second: STUCK}
    run = stalled(ends=together(pausing(25.0)), **more).run(0.2)
    assert run.proven
    assert still(run, run.proven[0]) > 2 * 25
    plain = stalled(ends=together(pausing()), **more).run(0.2)
    assert still(plain, plain.proven[0]) < 2 * 25


def test_pauses_are_remembered_by_whoever_comes_later() -> None:
    before = stalled(ends=together(pausing(60.0)), frozen=lambda second: EVERYBODY).run(0.06)
    assert before.model.longest.seconds == pytest.approx(60, abs=2)
    after = stalled(
        joined=215.0,
        ends=together(pausing(60.0)),
        frozen=lambda second: EVERYBODY,
        verdict=lambda second: STUCK,
    )
    for _, fact in before.facts:
        after.model.apply(witnessed(after.model, BEGAN, "", fact))
    assert after.model.longest.seconds == before.model.longest.seconds
    after.run(0.13)
    assert after.proven
    assert still(after, after.proven[0]) > 2 * 60
    told, kept = Run(together(lambda step: 1.0)).model, "20261121-045802-stall.evidence"
    told.apply(happened(BEGAN, "evidence", "gpu0", {"why": "stall", "file": kept, "since": BEGAN}))
    told.apply(happened(BEGAN, "evidence", "gpu0", {"why": "stall", "file": kept, "over_s": 312.0}))
    assert told.longest.seconds == 312.0


def test_ranks_that_are_started_again_have_not_gone_on_by_themselves() -> None:
    run = stalled().run(0.32)
    assert run.states[-1] == "stalled"
    (gone,) = run.watch.restarted(BEGAN + 1200, 1200.0)
    assert (gone.state, gone.still_s) == ("going", 0.0)
    run.model.apply(witnessed(run.model, BEGAN, "", gone))
    assert run.model.longest.seconds == 0.0
    assert news(run.model.watch) == ("its ranks were started again", "info")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "more",
    [
        {"away": {"gpu1": (STALL + 20.0, 1e9)}},
        {"verdict": lambda second: HUNG},
        {"frozen": lambda second: 0b0111},
        {"look_s": 0.0},
    ],
)
def test_what_is_not_certain_by_the_newest_look_and_all_nodes_stops_nothing(more: dict[str, object]) -> None:
    assert stalled(verdict=lambda second: STUCK).run(0.5).proven
    assert stalled(**{"verdict": lambda second: STUCK, **more}).run(0.5).proven == []


def test_a_newest_look_that_nobody_answers_proves_nothing() -> None:
    run = stalled(verdict=lambda second: STUCK).run(0.32)
    assert run.proven[-1] == int(0.32 * 3600) - 1
    list(run.watch.begin(BEGAN + 1152, 1152.0))
    list(run.watch.looked(BEGAN + 1153, 1153.0, None))
    run.run(0.0)
    for second in (1154, 1155, 1156):
        seen = replace(run.watch._seen, heard_at=BEGAN + second)
        list(run.watch.tick(BEGAN + second, float(second), seen))
        assert not run.watch.proven


def test_after_a_sleep_what_a_look_saw_before_it_counts_for_nothing() -> None:
    # Steps stop, a look begins, the cockpit sleeps; when it wakes, steps have long gone on and stopped again.
    run = stalled(
        ends=together(pausing(100.0, every=1000)),
        frozen=lambda second: EVERYBODY,
        asleep=(STALL + 38.0, STALL + 300.0),
        look_s=4.0,
    ).run(0.4)
    assert run.looks[0] < STALL + 38
    assert "stalled" not in run.states
    assert run.proven == []


def test_a_stall_in_which_ranks_begin_to_move_is_taken_back() -> None:
    run = stalled(frozen=lambda second: EVERYBODY if second < STALL + 60 else 0b0111).run(0.5)
    assert run.states == ["going", "quiet", "stalled", "quiet"]
    assert run.model.watch.culprits == 0
    assert head(run.model.watch, 90.0) == "no step for 90 s · in data.py:118"


@pytest.mark.slow
def test_looks_back_off() -> None:
    run = stalled().run(1.6)
    gaps = [round(later - sooner) for sooner, later in zip(run.looks, run.looks[1:], strict=False)]
    assert gaps[:4] == pytest.approx([wait + 4 for wait in BACKOFF_S], abs=2)
    assert len([text for text in run.news if "stalled" in text]) == 1, "the same is said once"
    last = run.model.watch
    assert last.looks == last.total == len(run.looks)
    assert last.next_at == pytest.approx((last.looked or 0.0) + BACKOFF_S[-1], abs=2)


@pytest.mark.slow
def test_a_job_of_others_is_looked_at_twice_and_no_more() -> None:
    run = stalled(
        ends=together(lambda step: 200.0 if step % 1000 == 0 else 1.0), terms=Terms(most=2), probed=True
    ).run(1.1)
    assert len(run.looks) == 2
    assert run.states.count("quiet") >= 2, "that no step is made is said all the same"
    assert any("limit of 2 automatic inspections" in fact.why for _, fact in run.facts)


def test_a_link_that_is_lost_while_stalled_changes_nothing_and_a_look_says_who_did_not_answer() -> None:
    run = stalled(away={"gpu0": (STALL + 60.0, STALL + 400.0)}).run(0.5)
    assert run.states == ["going", "quiet", "stalled"]
    whys = {fact.why for second, fact in run.facts if STALL + 60 < second < STALL + 400}
    assert "a node did not answer" in whys


def test_no_link_at_all_is_no_stall_and_no_look() -> None:
    both = (STALL + 5.0, STALL + 600.0)
    run = stalled(away={"gpu0": both, "gpu1": both}).run(0.5)
    assert run.first("quiet") > both[1], "what was so meanwhile is not known"
    assert run.first("stalled") < both[1] + 30


def test_a_look_that_never_answers_leaves_it_at_quiet() -> None:
    run = stalled(look_s=0.0).run(0.5)
    assert run.states == ["going", "quiet"]
    assert len(run.looks) == 1


def test_a_rank_without_its_first_step_long_after_the_others() -> None:
    def ends(rank: int) -> Iterator[float]:
        return iter(()) if rank == 3 else steps(rank, lambda step: 1.0)

    run = Run(ends, frozen=lambda second: 0b1000, verdict=lambda second: HUNG).run(0.5)
    assert run.states == ["going", "stalled"]
    assert 60 < run.first("stalled") < 90
    assert run.model.watch.finding is not None
    assert run.model.watch.finding.certainty == "likely", "others go on"
    calm = Run(ends, frozen=lambda second: 0).run(0.5)
    assert calm.states == ["going"]
    assert len(calm.looks) <= 6


def test_a_rank_that_stops_while_others_go_on_and_comes_back() -> None:
    def ends(rank: int) -> Iterator[float]:
        return steps(rank, stops(300, back_after=400.0) if rank == 3 else lambda step: 1.0)

    run = Run(ends, frozen=lambda second: 0b1000, verdict=lambda second: HUNG).run(0.5)
    assert run.states == ["going", "stalled", "going"]
    assert run.model.watch.finding is None


def test_a_node_that_makes_up_steps_hides_no_stall_of_the_others_and_makes_none() -> None:
    run = stalled(
        lies=lambda rank, second: (int(second) * 1000, -1e9) if rank > 1 else None,
        frozen=lambda second: 0b0011,
        verdict=lambda second: Finding("io", "rank 1 waits for a file", 0b0010, certainty="sure"),
    ).run(0.5)
    assert run.states == ["going", "stalled"]
    assert run.model.watch.finding is not None
    assert run.model.watch.finding.certainty == "likely"
    idle = Run(together(lambda step: 1.0), lies=lambda rank, second: (7, 1e9) if rank > 1 else None).run(0.5)
    assert idle.states == ["going"]


def test_a_stall_that_only_the_log_tells_of() -> None:
    run = stalled(probed=False, logs=5.0, ends=together(stops())).run(0.5)
    assert run.states == ["going", "quiet", "stalled"]
    assert run.first("quiet") - STALL <= 6 * 5 + 15


def test_a_job_that_stands_still_within_its_first_seconds_is_looked_at_although_only_its_log_tells() -> None:
    quick = steps(0, lambda step: 0.1 if step < 20 else 1e9, first_s=8.0)
    ends = list(itertools.takewhile(lambda end: end < 1e8, quick))
    run = stalled(probed=False, logs=1.0, ends=lambda rank: iter(ends)).run(0.1)
    assert run.first("quiet") < ends[-1] + 2 * HANG_AFTER_S


def test_after_the_last_step_it_is_ending() -> None:
    run = stalled(ends=together(stops()), logs=1.0, total=STALL - 1).run(0.5)
    assert any(text.startswith("ending for 31 s") for text in run.news), run.news
    assert any(text.startswith("stalled 35 s while ending") for text in run.news), run.news
    assert not any("no step" in text for text in run.news)


def test_ranks_that_leave_one_after_the_other_are_no_steps() -> None:
    exits = {STALL + 60: (0,), STALL + 90: (1,), STALL + 200: (2,)}
    run = stalled(ends=together(stops()), exits=exits).run(0.5)
    assert run.states == ["going", "quiet", "stalled"]


def test_a_job_that_falls_asleep_is_stalled_only_if_somebody_is_accused() -> None:
    def cpu(rank: int, second: float) -> float:
        return 90.0 if second < STALL else 0.2

    run = stalled(probed=False, cpu=cpu).run(0.6)
    assert run.states == ["blind", "quiet", "stalled"]
    idle = stalled(probed=False, cpu=cpu, verdict=lambda second: TOGETHER).run(0.6)
    assert idle.states == ["blind", "quiet"]


def test_ranks_that_hardly_worked_before_they_fell_asleep_are_looked_at_late() -> None:
    def cpu(rank: int, second: float) -> float:
        return 90.0 if rank == 1 and 20 <= second < 23 else 0.2

    run = stalled(probed=False, cpu=cpu, frozen=lambda second: EVERYBODY, verdict=lambda second: HUNG).run(
        0.3
    )
    assert run.states == ["blind", "quiet", "stalled"]
    assert run.first("quiet") == pytest.approx(22 + FIRST * HANG_AFTER_S, abs=3)
    # Whoever comes later has seen nothing of them before.
    late = stalled(probed=False, cpu=cpu, joined=1000.0).run(0.6)
    assert late.first("quiet") == pytest.approx(1000 + FIRST * HANG_AFTER_S, abs=3)


def test_that_nothing_tells_progress_is_said() -> None:
    run = Run(together(lambda step: 1.0), probed=False).run(0.5)
    assert run.states == ["blind"]
    assert "can't track steps" in run.model.watch.why
    assert news(run.model.watch)[0] == run.model.watch.why


def test_a_start_without_a_step_is_looked_at_late() -> None:
    run = stalled(ends=together(lambda step: 1e9, first_s=1e9), frozen=lambda second: EVERYBODY).run(0.5)
    assert run.states == ["quiet", "stalled"]
    assert 10 * HANG_AFTER_S < run.first("quiet") < 10 * HANG_AFTER_S + 30
    assert news(run.model.watch)[0].startswith("stalled")


def test_ranks_that_wait_for_one_that_never_starts() -> None:
    missing = Finding("missing", "rank 3 has not started: 3 ranks wait", 0b1000, certainty="likely")
    run = Run(
        together(lambda step: 1e9, first_s=1e9),
        never=3,
        frozen=lambda second: 0b0111,
        verdict=lambda second: missing,
    ).run(0.3)
    assert run.states == ["quiet", "stalled"]
    assert run.model.watch.culprits == 0b1000


@pytest.mark.parametrize(
    ("looked", "steps_known", "front", "expected"),
    [
        (Inspection(HUNG, still=EVERYBODY), True, True, ("stalled", "io", "sure")),
        (Inspection(HUNG, still=0b0111, moving=0b1000), True, True, ("quiet", "io", "likely")),
        (Inspection(HUNG, still=0b0111), True, True, ("quiet", "io", "likely")),
        (Inspection(HUNG, still=EVERYBODY), True, False, ("stalled", "io", "likely")),
        # Where nothing tells of steps, an idle server looks like this.
        (Inspection(IDLE, still=EVERYBODY), False, True, ("quiet", "io", "unsure")),
        (Inspection(IDLE, still=EVERYBODY), True, True, ("stalled", "io", "unsure")),
        (Inspection(TOGETHER, still=EVERYBODY), True, True, ("stalled", "together", "unsure")),
        (Inspection(TOGETHER, still=EVERYBODY), False, True, ("quiet", "together", "unsure")),
        (Inspection(TOGETHER, still=EVERYBODY, missing=4), True, True, ("stalled", NOT_ENTERED, "likely")),
        (Inspection(TOGETHER, still=0b1011, moving=4, missing=4), True, True, ("quiet", MOVES, "likely")),
        (Inspection(Finding("moving", "m"), moving=EVERYBODY), True, True, ("quiet", MOVES, "likely")),
        (Inspection(SILENT, still=0b0011), True, True, ("quiet", "silent", "unsure")),
        (
            Inspection(Finding("ended", "rank 1 was killed", 2, certainty="sure"), still=0b1101),
            True,
            True,
            ("stalled", "ended", "sure"),
        ),
        (
            Inspection(Finding("moving", "steps go on"), still=EVERYBODY),
            True,
            True,
            ("quiet", "moving", "unsure"),
        ),
        (Inspection(Finding("over", "all ended", 0), still=0), True, True, ("quiet", "over", "unsure")),
    ],
)
def test_what_a_look_amounts_to(
    looked: Inspection, steps_known: bool, front: bool, expected: tuple[str, str, str]
) -> None:
    state, found = judge(looked, steps=steps_known, front=front)
    assert (state, found.id, found.certainty) == expected


def test_a_finding_comes_back_from_its_event_harmless() -> None:
    assert unpacked(packed(HUNG)) == HUNG
    odd = Finding("io", "rank 3 \x1b[2J waits", 8, "\x07x.py", evidence=("a\nb",))
    back = unpacked(packed(odd))
    assert "\x1b" not in back.what + back.where
    assert "\n" not in back.evidence[0]
