"""Events in order, the model at any moment, the clock of a replay, and what people type to go somewhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from cockpit.base.events import (
    ClockMeasured,
    LinkChanged,
    Planned,
    RankExited,
    RankStarted,
    Stage,
    StopAsked,
    StopRequested,
)
from cockpit.core.replay.marks import FAILURE, STALL, Mark, Marks, beside, gravest
from cockpit.core.replay.moments import EVERY, Moments
from cockpit.core.replay.order import Timed, clocks_of, rebased, written
from cockpit.core.replay.places import Place, place_of
from cockpit.core.replay.player import SPEEDS, Player
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.errors import CockpitError
from tests.happened import happened

BEGIN = 1_795_233_881.0


def planned(ranks: int = 4) -> RunModel:
    return RunModel.of([Event(BEGIN, "", Planned({"a": tuple(range(ranks))}))])


def started(at: float, rank: int, attempt: int = 0) -> Event:
    return Event(at, "a", RankStarted(rank, pid=7, attempt=attempt, max_restarts=1 << 20))


def exited(at: float, rank: int, code: int = 1) -> Event:
    return Event(at, "a", RankExited(rank, code=code, signal=None))


def lives(count: int, seed: int = 1) -> list[Timed]:
    """Ranks that start and end, again and again."""
    chance, told = random.Random(seed), []
    for number in range(count):
        at, rank = BEGIN + number, chance.randrange(4)
        told.append((at, started(at, rank, number) if number % 2 else exited(at, rank)))
    return told


def states(model: RunModel) -> list[str]:
    return [f"{rank.text} {rank.attempt}" for rank in model.ranks.values()]


def test_any_moment_is_as_if_all_events_before_it_were_applied() -> None:
    told = lives(3 * EVERY + 17)
    moments, chance = Moments(planned(), told), random.Random(2)
    for count in [len(told), *(chance.randrange(len(told)) for _ in range(30)), 0, len(told)]:
        moments.show(count)
        wanted = planned()
        for _, event in told[:count]:
            wanted.apply(event)
        assert states(moments.model) == states(wanted)
        assert moments.done == count


def test_going_somewhere_applies_few_events_once_all_were_seen() -> None:
    told, applied = lives(20 * EVERY), 0
    moments = Moments(planned(), told)
    moments.show(len(told))

    def tell(event: Event, changed: set[str | int]) -> None:
        nonlocal applied
        applied += 1

    for count in (15 * EVERY + 3, 15 * EVERY + 9, 2 * EVERY - 1, 19 * EVERY):
        applied = 0
        moments.show(count, tell)
        assert applied < EVERY


def test_keyframes_of_many_ranks_are_few() -> None:
    told = lives(10 * EVERY)
    moments = Moments(planned(4 * EVERY), told)
    moments.show(len(told))
    assert len(moments._frames) <= 3


def test_what_is_done_to_the_model_does_not_change_a_keyframe() -> None:
    moments = Moments(planned(), lives(10))
    before = states(moments.model)
    moments.model.apply(exited(BEGIN, 0, 99))
    moments.show(0)
    moments.show(10)
    moments.show(0)
    assert states(moments.model) == before


# Order


def on_a_clock(ahead: Sequence[tuple[float, float]], record: Sequence[float]) -> list[float]:
    """Where lines of a record are put.

    :param ahead: when a clock was measured, and how far ahead it was; seconds after the beginning
    :param record: the times of its lines on that clock
    """
    journal = [Event(BEGIN + at, "a", ClockMeasured(offset)) for at, offset in ahead]
    events = [started(BEGIN + at, 0) for at in record]
    return [at - BEGIN for at, _ in clocks_of(journal).placed("a", events)]


@pytest.mark.parametrize(
    ("ahead", "record", "placed"),
    [
        ([], [1, 2, 3], [1, 2, 3]),
        ([(0, 3600)], [3601, 3602], [1, 2]),
        # Set ahead at 10: measured at 11.
        ([(0, 0), (11, 3600)], [5, 3612, 3620], [5, 12, 20]),
        # Set back at 10.
        ([(0, 0), (11, -3600)], [5, 9, -3588, -3580], [5, 9, 12, 20]),
        # A clock that nobody measured again: the order of the record counts.
        ([(0, 0)], [5, 9, -3588, 11], [5, 9, 9, 11]),
    ],
)
def test_a_record_keeps_its_order_whatever_its_clock_does(
    ahead: list[tuple[float, float]], record: list[float], placed: list[float]
) -> None:
    assert on_a_clock(ahead, record) == pytest.approx(placed)


def test_events_of_ours_keep_their_order_when_our_clock_is_set_back() -> None:
    told = [Event(BEGIN + at, "a", LinkChanged("ok")) for at in (1, 100, 2, 3)]
    assert [at - BEGIN for at, _ in written(told)] == [1, 100, 100, 100]


def test_times_are_rebased_on_the_last_measurement() -> None:
    clocks = clocks_of([Event(BEGIN, "a", ClockMeasured(5.0)), Event(BEGIN + 9, "a", ClockMeasured(7.0))])
    found = list(rebased(clocks.placed("a", [started(BEGIN + 6, 0), started(BEGIN + 20, 1)]), clocks))
    assert [(at - BEGIN, event.at - BEGIN) for at, event in found] == [(1, 8), (13, 20)]


@pytest.mark.parametrize(
    ("asked", "said", "placed"),
    [
        (10.0, 9.996, [10.0, 10.0]),  # a clock that is some milliseconds off
        (10.0, 10.2, [10.2, 10.2]),
        (10.0, 5.0, [5.0, 5.1]),  # another cockpit asked for it, long before
    ],
)
def test_a_node_is_not_stopped_before_it_was_asked(asked: float, said: float, placed: list[float]) -> None:
    cause = (BEGIN + asked, Event(BEGIN + asked, "", StopAsked("rank 3 exited 1", "the failure policy")))
    other = (BEGIN + 10.3, Event(BEGIN + 10.3, "", StopAsked("asked again", "a person")))
    record = [
        Event(BEGIN + said, "a", StopRequested("rank 3 exited 1", "the failure policy")),
        Event(BEGIN + said + (0.002 if said > 9 else 0.1), "a", Stage("term")),
    ]
    found = [at - BEGIN for at, _ in clocks_of([]).placed("a", record, [cause, other])]
    assert found == pytest.approx(placed, abs=0.003)
    assert found[0] == pytest.approx(placed[0], abs=1e-6)


# Marks


def test_what_follows_a_stop_is_no_failure() -> None:
    model = planned()
    marks = Marks(model)
    told = [
        started(BEGIN, 0),
        started(BEGIN, 1),
        exited(BEGIN + 5, 0),
        happened(BEGIN + 6, "stop_requested", "a", {"reason": "", "by": "a person", "hard": False}),
        exited(BEGIN + 12, 1, 143),
    ]
    for event in told:
        model.apply(event)
        marks.take(event.at, event)
    assert marks.all == [Mark(BEGIN + 5, FAILURE)]


def test_a_stall_is_marked_once_for_as_long_as_it_lasts() -> None:
    model = planned()
    marks = Marks(model)
    for at, state in enumerate(["going", "quiet", "stalled", "stalled", "going", "stalled"]):
        event = happened(BEGIN + 10 * at, "watch", "", {"state": state})
        model.apply(event)
        marks.take(event.at, event)
    assert marks.all == [Mark(BEGIN + 20, STALL), Mark(BEGIN + 50, STALL)]


def test_marks_are_found_on_both_sides_and_the_gravest_first() -> None:
    marks = [Mark(1.0, STALL), Mark(5.0, FAILURE)]
    assert beside(marks, 1.0, 1) == marks[1]
    assert beside(marks, 5.0, -1) == marks[0]
    assert beside(marks, 5.0, 1) is None
    assert beside(marks, 1.0, -1) is None
    assert gravest(marks) == marks[1]
    assert gravest([]) is None


# The player


def test_it_plays_as_fast_as_was_asked_and_stands_at_the_end() -> None:
    player = Player(100.0, 200.0)
    player.play(1000.0)
    player.tick(1002.0)
    assert player.at == 102.0
    player.faster(1)
    player.faster(1)
    assert player.speed == 5
    player.tick(1004.0)
    assert player.at == 112.0
    player.tick(1003.0)  # a clock that goes back takes nothing back
    assert player.at == 112.0
    player.tick(1100.0)
    assert (player.at, player.plays, player.at_end) == (200.0, False, True)
    player.play(2000.0)
    assert player.at == 100.0


def test_time_in_which_it_is_held_does_not_count() -> None:
    player = Player(100.0, 200.0)
    player.play(0.0)
    player.hold(50.0)
    player.tick(51.0)
    assert player.at == 101.0


def test_speeds_end_somewhere() -> None:
    player = Player(0.0, 1.0)
    assert player.faster(-1) == SPEEDS[0]
    for _ in range(20):
        player.faster(1)
    assert player.speed == SPEEDS[-1]
    player.speed = 7  # any that somebody has typed
    assert player.faster(-1) == 5


def test_a_run_without_length_has_one_moment() -> None:
    player = Player(5.0, 5.0)
    player.seek(99.0)
    assert player.at == 5.0
    player.play(0.0)
    player.tick(1.0)
    assert not player.plays


# Places


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("start", 0),
        ("end", 90_000),
        ("+10m", 700),
        ("-30s", 70),
        ("2h", 7200),
        ("04:10:00", 319),
        ("04:04", -41),
        ("03:00", 82_519),
        ("2026-11-21 05:04:41", 3600),
    ],
)
def test_places(text: str, after: float) -> None:
    found = place_of(text, BEGIN, BEGIN + 100, BEGIN + 90_000)
    assert found.at is not None
    assert found.at - BEGIN == after


def test_a_step_is_a_place() -> None:
    assert place_of(" Step 1200 ", 0.0, 0.0, 1.0) == Place(step=1200)


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "noon",
        "25:00",
        "12:99",
        "step",
        "step -1",
        "1e9s",
        "+1y",
        "2026-13-01 10:00",
        "12:00",
        "9" * 50,
        "\x1b[2J",
    ],
)
def test_what_is_no_place_says_what_is(text: str) -> None:
    with pytest.raises(CockpitError) as raised:
        place_of(text, BEGIN, BEGIN, BEGIN + 600)
    assert raised.value.hint


def test_moments_rise() -> None:
    moments = Moments(planned(), lives(50))
    assert all(one <= other for one, other in pairwise(moments.times))
    assert moments.count(BEGIN - 1) == 0
    assert moments.count(BEGIN + 10) == 11
