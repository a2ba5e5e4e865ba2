"""Where the time of steps goes: what is kept, what is waiting, why a rank is slow, what bounds a run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.events import Progress
from cockpit.base.gate import Malformed, read
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.past import past, past_of, recall_all
from cockpit.core.pace.phases import NOTHING, Phases, bound, packed, phases_of, reason
from cockpit.core.pace.slow import Slow

START = 1_700_000_000.0
USUAL = (0.05, 0.3, 0.5, 0.1)


Own = Mapping[int, tuple[float | None, ...]]
"""By rank, phases of those that differ."""


def played(steps: int, own: Own, *, works: dict[int, float] | None = None, ranks: int = 4) -> Pace:
    """A run with steps of 1 s.

    :param works: seconds of work by rank
    """
    pace = Pace(range(ranks))
    play(pace, range(1, steps + 1), own, works)
    return pace


def play(pace: Pace, steps: range, own: Own, works: dict[int, float] | None = None) -> None:
    """More steps."""
    for step in steps:
        for rank in pace.steps.ranks:
            phases = own.get(rank, USUAL)
            pace.stepped(rank, step, START + step, span=1.0, phases=phases)
        for rank, took in (works or {}).items():
            pace.worked(rank, step, took)


def near(found: Phases | None, wanted: tuple[float, ...]) -> None:
    assert found is not None
    assert list(found) == pytest.approx(list(wanted), abs=0.004, nan_ok=True)


def test_shares_of_a_step_are_kept_and_the_rest_is_other() -> None:
    pace = played(12, {})
    near(pace.phases_of(2), (*USUAL, math.nan, 0.05))
    near(pace.phases(), (*USUAL, math.nan, 0.05))


def test_a_phase_that_is_not_known_stays_blank() -> None:
    pace = played(12, {1: (None, None, 0.5, 0.1)})
    near(pace.phases_of(1), (math.nan, math.nan, 0.5, 0.1, math.nan, 0.4))


def test_a_rank_without_marks_has_none_and_is_no_part_of_the_median() -> None:
    pace = played(12, {3: ()})
    assert pace.phases_of(3) is None
    near(pace.phases(), (*USUAL, math.nan, 0.05))
    assert played(12, dict.fromkeys(range(4), ())).phases() is None


def test_waiting_is_taken_out_of_the_phase_it_falls_in() -> None:
    """Rank 1 has its input late, so the others are longer in their backward, where they wait for it."""
    pace = played(12, {1: (0.35, 0.3, 0.2, 0.1)}, works={0: 0.7, 1: 1.0, 2: 0.7, 3: 0.7})
    near(pace.phases_of(0), (0.05, 0.3, 0.2, 0.1, 0.3, 0.05))
    near(pace.phases_of(1), (0.35, 0.3, 0.2, 0.1, 0.0, 0.05))


def test_why_a_rank_is_slow_is_the_phase_that_differs_by_as_much() -> None:
    pace = played(12, {1: (0.35, 0.3, 0.2, 0.1)}, works={0: 0.7, 1: 1.0, 2: 0.7, 3: 0.7})
    (slow,) = pace.slow()
    found = pace.why(slow)
    assert found is not None
    assert found.phase == "input"
    assert (found.took, found.others) == pytest.approx((0.35, 0.05), abs=0.005)


def test_of_two_ranks_the_other_one_is_what_a_slow_rank_is_compared_with() -> None:
    pace = played(12, {1: (0.35, 0.3, 0.2, 0.1)}, works={0: 0.7, 1: 1.0}, ranks=2)
    (slow,) = pace.slow()
    found = pace.why(slow)
    assert found is not None
    assert found.phase == "input"
    assert found.others == pytest.approx(0.05, abs=0.005)


def test_a_phase_that_shows_is_named_though_waiting_is_known_roughly() -> None:
    """Others are said to wait twice as long as rank 1 is at its input."""
    pace = played(12, {1: (0.2, 0.3, 0.35, 0.1)}, works={0: 0.7, 1: 1.0, 2: 0.7, 3: 0.7})
    (slow,) = pace.slow()
    found = pace.why(slow)
    assert found is not None
    assert found.phase == "input"


ALL_WAIT = {"forward": (0.0, 0.4, 0.4, 0.2), "backward": (0.0, 0.2, 0.6, 0.2), "update": (0.0, 0.2, 0.4, 0.4)}
"""By the phase in which rank 1 is slow, while all others wait for it in that phase: phases of all ranks."""


@pytest.mark.parametrize("name", ALL_WAIT)
def test_where_all_wait_in_the_phase_that_is_slow_it_is_longer_than_before(name: str) -> None:
    before = dict.fromkeys(range(4), (0.0, 0.25, 0.5, 0.25))
    after = dict.fromkeys(range(4), ALL_WAIT[name])
    pace = Pace(range(4))
    play(pace, range(1, 13), before, dict.fromkeys(range(4), 1.0))
    play(pace, range(13, 25), after, {0: 0.85, 1: 1.0, 2: 0.85, 3: 0.85})
    (slow,) = pace.slow()
    found = pace.why(slow)
    assert found is not None
    assert found.phase == name


def test_where_all_wait_and_were_never_quicker_the_only_phase_with_room_for_it_is_named() -> None:
    works = {0: 0.4, 1: 1.0, 2: 0.4, 3: 0.4}
    pace = played(12, dict.fromkeys(range(4), (0.0, 0.1, 0.8, 0.1)), works=works)
    (slow,) = pace.slow()
    found = pace.why(slow)
    assert found is not None
    assert found.phase == "backward"
    assert found.others == pytest.approx(0.2, abs=0.01)
    alike = played(12, dict.fromkeys(range(4), (0.0, 0.3, 0.35, 0.35)), works=works)
    assert alike.why(slow) is None


def test_a_forward_pass_that_would_be_left_with_next_to_nothing_is_not_where_others_wait() -> None:
    works = {0: 0.75, 1: 1.0, 2: 0.75, 3: 0.75}
    pace = played(12, dict.fromkeys(range(4), (0.0, 0.3, 0.6, 0.1)), works=works)
    (slow,) = pace.slow()
    found = pace.why(slow)
    assert found is not None
    assert found.phase == "backward"
    assert found.others == pytest.approx(0.35, abs=0.01)


def test_no_phase_is_named_where_several_differ_a_little() -> None:
    own = Phases(0.1, 0.4, 0.6, 0.2, 0.0, 0.0)
    others = Phases(0.05, 0.3, 0.5, 0.1, 0.35, 0.0)
    assert reason(own, others, 0.35) is None
    assert reason(None, others, 0.35) is None
    assert reason(own, others, 0.0) is None


def test_nothing_is_said_of_a_rank_without_phases() -> None:
    pace = played(12, {1: ()}, works={0: 0.7, 1: 1.0, 2: 0.7, 3: 0.7})
    assert pace.why(Slow(1, 0.4)) is None


@pytest.mark.parametrize(
    ("phases", "word"),
    [
        (Phases(0.41, 0.2, 0.3, 0.05, 0.0, 0.04), "input-bound"),
        (Phases(0.02, 0.3, 0.5, 0.05, 0.1, 0.03), "compute-bound"),
        (Phases(0.02, 0.2, 0.3, 0.05, 0.4, 0.03), "wait-bound"),
        (Phases(0.02, 0.2, 0.2, 0.4, 0.1, 0.08), "update-bound"),
        (Phases(0.2, 0.2, 0.2, 0.2, 0.1, 0.1), None),
        (Phases(), None),
        (None, None),
    ],
)
def test_what_a_run_is_bound_by(phases: Phases | None, word: str | None) -> None:
    found = bound([phases] if phases else [], ranks=4)
    assert (found and found.word) == word


def test_what_one_of_two_ranks_waits_for_bounds_the_other_no_less_but_not_by_itself() -> None:
    fed = Phases(0.02, 0.3, 0.2, 0.05, 0.4, 0.03)
    starved = Phases(0.52, 0.2, 0.2, 0.05, 0.0, 0.03)
    assert bound([fed, starved], ranks=2) is None, "neither rules both"
    found = bound([fed, fed, starved], ranks=3)
    assert found is not None
    assert found.word == "wait-bound"


def test_what_several_ranks_are_bound_by_takes_to_know_how_they_wait() -> None:
    computes = Phases(0.02, 0.4, 0.5, 0.05, math.nan, 0.03)
    assert bound([computes], ranks=4) is None
    alone = bound([computes], ranks=1)
    assert alone is not None
    assert alone.word == "compute-bound"
    fed = bound([computes._replace(input=0.5)], ranks=4)
    assert fed is not None
    assert fed.word == "input-bound"


def test_what_a_run_is_bound_by_is_said_with_its_share() -> None:
    found = bound([Phases(0.41, 0.2, 0.3, 0.05, 0.0, 0.04)], ranks=4)
    assert found is not None
    assert (found.text, found.sure) == ("input-bound: ranks wait 41 % of a step for data", True)
    found = bound([Phases(0.41, 0.2, 0.3, 0.05, 0.0, 0.04)], ranks=4, gpus=True)
    assert found is not None
    assert not found.sure
    assert found.text.startswith("on its CPUs probably input-bound")


@given(
    span=st.floats(1e-6, 1e6),
    shares=st.lists(st.none() | st.floats(-1.0, 3.0), min_size=4, max_size=4),
    work=st.floats(-1.0, 3.0) | st.none(),
)
def test_shares_never_exceed_the_step(span: float, shares: list[float | None], work: float | None) -> None:
    pace = Pace(range(2))
    phases = [None if one is None else one * span for one in shares]
    for rank in range(2):
        pace.stepped(rank, 1, START + span, span=span, phases=phases)
    if work is not None:
        pace.worked(0, 1, work * span)
    for step in pace.steps:
        found = phases_of(step, 0)
        if found is not None:
            known = [one for one in found if not math.isnan(one)]
            assert all(one >= 0 for one in known)
            assert sum(known) <= step.spans[0] * 1.001


def test_a_word_holds_nothing_where_nothing_is_known() -> None:
    assert packed((None, None, None, None), 1.0) == NOTHING
    assert packed((), 1.0) == NOTHING
    assert packed((0.5,), 0.0) == NOTHING


def test_what_is_kept_of_a_step_has_the_phases_of_the_median_rank() -> None:
    pace = played(3, {1: (0.35, 0.3, 0.2, 0.1)}, works={0: 0.7, 1: 1.0, 2: 0.7, 3: 0.7})
    step = list(pace.steps)[-1]
    kept = past(step, pace.steps.ranks)
    assert kept is not None
    assert kept.phases == pytest.approx((50, 300, 200, 100, 300, 50), abs=4)
    assert past_of(kept.line()).phases == kept.phases
    later = Pace(range(4))
    recall_all(later, [kept])
    near(next(iter(later.steps)).typical_phases, (0.05, 0.3, 0.2, 0.1, 0.3, 0.05))
    assert later.phases_of(1) is None, "of a rank by itself nothing is kept"


def test_lines_of_before_are_read_and_a_step_without_phases_is_kept_as_before() -> None:
    pace = played(3, dict.fromkeys(range(4), ()))
    kept = past(list(pace.steps)[-1], pace.steps.ranks)
    assert kept is not None
    assert kept.phases == ()
    assert kept.line().endswith(b",[]]\n")
    assert past_of(kept.line()) == kept


@pytest.mark.parametrize(
    "phases", [b"[1,2]", b"[1,2,3,4,5,1001]", b"[1,2,3,4,5,-2]", b"{}", b'["a",1,1,1,1,1]']
)
def test_kept_phases_that_cannot_be_are_refused(phases: bytes) -> None:
    pace = played(3, {}, works=dict.fromkeys(range(4), 0.9))
    kept = past(list(pace.steps)[-1], pace.steps.ranks)
    assert kept is not None
    line = kept.line()
    bad = line[: line.rindex(b"[")] + phases + b"]\n"
    with pytest.raises(Malformed):
        past_of(bad)


@pytest.mark.parametrize(
    "phases",
    [[[1, 2, 3, 4]], [[1, 2, 3]] * 2, [[-1, 2, 3, 4]] * 2, [["a", 2, 3, 4]] * 2, [[1 << 60, 2, 3, 4]] * 2, 7],
)
def test_phases_from_a_node_that_cannot_be_are_refused(phases: object) -> None:
    told = {"source": "optimizer", "step": 2, "age_s": 0.1, "steps": [[1, 1.0, None], [2, 2.0, 1.0]]}
    assert read(Progress, told).phases == ()
    fits = read(Progress, {**told, "phases": [[None, 1, 2, 3], [4, 5, 6, 7]]})
    assert fits.phases[0].seconds == (None, 1e-6, 2e-6, 3e-6)
    with pytest.raises(Malformed):
        read(Progress, {**told, "phases": phases})


def test_what_makes_steps_longer_since_a_moment() -> None:
    pace = Pace(range(2))
    for step in range(1, 61):
        late = 0.4 if step > 30 else 0.0
        span = 1.0 + late
        at = START + min(step, 30) + max(0, step - 30) * 1.4
        for rank in range(2):
            pace.stepped(rank, step, at, span=span, phases=(0.05 + late, 0.3, 0.5, 0.1))
    found = pace.changed(START + 30.5)
    assert found is not None
    assert found.text == "input 0.452 s, before 0.051 s"
    assert pace.changed(START + 65) is None, "steps are as long as before"
    assert pace.changed(START - 10) is None, "nothing is known of before"
