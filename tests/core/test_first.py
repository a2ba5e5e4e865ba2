"""Which rank broke first: words decide who broke and who waited, time decides among those who broke."""

from __future__ import annotations

import pytest

from cockpit.base import events
from cockpit.core.finding import Finding
from cockpit.core.logs.cause_words import Weight
from cockpit.core.logs.causes import BLOCK, TAIL, Cause, search
from cockpit.core.masks import mask_of
from cockpit.core.run.events import Event
from cockpit.core.run.first import LINGERS_S, First, LoggedEnd, first_of
from cockpit.core.run.model import Rank, RunModel

OWN, VICTIM, CHILD = Weight.OWN, Weight.VICTIM, Weight.CHILD
STOPPED = 500.0


class Play:
    """Four ranks; what each says, and how it ends."""

    def __init__(self) -> None:
        self.said: dict[int, LoggedEnd] = {}
        self.model = RunModel()
        self.model.apply(Event(0.0, "", events.Planned({"n": (0, 1, 2, 3)})))
        for rank in range(4):
            self.model.apply(Event(0.0, "n", events.RankStarted(rank, pid=10 + rank)))

    def ends(self, rank: int, at: float, code: int | None = 1, signal: int | None = None) -> Play:
        told = None if signal else code
        self.model.apply(Event(at, "n", events.RankExited(rank, code=told, signal=signal)))
        return self

    def says(
        self,
        rank: int,
        at: float | None,
        weight: Weight,
        *,
        blames: int = 0,
        call: tuple[int, str] | None = None,
    ) -> Play:
        self.said[rank] = LoggedEnd(Cause(weight, Finding("cause", f"words of {rank}"), 0, blames, call), at)
        return self

    def stopped(self, *ranks: int) -> Play:
        """Cockpit ends those that are left."""
        self.model.apply(Event(STOPPED, "n", events.StopRequested("a rank failed", "cockpit", 3.0)))
        for rank in ranks:
            self.ends(rank, STOPPED + 1, signal=15)
        self.model.apply(Event(STOPPED + 2, "n", events.LauncherExited(code=1)))
        return self

    @property
    def first(self) -> First | None:
        def listen(rank: Rank) -> LoggedEnd | None:
            return self.said.get(rank.rank)

        return first_of(self.model, listen)


def who(play: Play) -> tuple[str, int]:
    found = play.first
    assert found is not None
    return found.how, found.ranks


def test_nobody_while_none_has_failed() -> None:
    assert Play().first is None
    assert Play().says(1, 9.0, OWN).ends(0, 10.0, 0).first is None


def test_words_decide_who_waited_and_who_broke() -> None:
    play = Play().says(0, 10.0, VICTIM).ends(0, 10.1).says(2, 10.0, OWN).ends(2, 10.9).stopped(1, 3)
    assert who(play) == ("broke", 1 << 2)
    assert play.first is not None
    assert play.first.cause is not None
    assert play.first.cause.found.what == "words of 2"


def test_time_decides_among_those_who_broke_and_words_come_before_ends() -> None:
    play = Play().says(1, 20.0, OWN).ends(1, 20.1).says(3, 12.0, CHILD).ends(3, 80.0).stopped(0, 2)
    assert who(play) == ("broke", 1 << 3)


def test_one_that_raised_and_never_ended_counts() -> None:
    play = Play().says(0, 40.0, VICTIM).ends(0, 40.5).says(2, 10.0, OWN).stopped(1, 2, 3)
    assert who(play) == ("broke", 1 << 2)


def test_what_a_rank_printed_that_exited_0_was_handled() -> None:
    play = Play().says(0, 5.0, OWN).ends(0, 30.0, 0).says(1, 20.0, OWN).ends(1, 20.1).stopped(2, 3)
    assert who(play) == ("broke", 1 << 1)


@pytest.mark.parametrize(
    ("signal", "later_s", "first"),
    [(11, 0.5, 3), (11, 90.0, 3), (9, 1.5, 3), (9, LINGERS_S + 1, 0), (None, 1.5, 3), (15, 0.5, 0)],
    ids=["crash", "a long core dump", "kill", "a launcher's", "silent exit", "ended by others"],
)
def test_an_end_without_words(signal: int | None, later_s: float, first: int) -> None:
    play = Play().says(0, 10.0, VICTIM).ends(0, 10.2).ends(3, 10.0 + later_s, 1, signal).stopped(1, 2)
    found = play.first
    assert found is not None
    assert found.ranks == 1 << first
    assert found.how == "broke"


def test_a_silent_exit_right_before_a_rank_that_broke_is_its_consequence() -> None:
    assert who(Play().ends(0, 9.5).says(1, 10.0, OWN).ends(1, 10.1).stopped(2, 3)) == ("broke", 1 << 1)
    assert who(Play().ends(0, 7.5).says(1, 10.0, OWN).ends(1, 10.1).stopped(2, 3)) == ("broke", 1)
    assert who(Play().ends(0, 9.5, signal=9).says(1, 10.0, OWN).ends(1, 10.1).stopped(2, 3)) == ("broke", 1)


def test_whom_others_name() -> None:
    play = Play().says(0, 10.0, VICTIM, blames=1 << 3).ends(0, 10.1).stopped(1, 2, 3)
    assert who(play) == ("absent", 1 << 3)
    # One that waited itself, or that is not of this run, is not believed of.
    play = Play().says(0, 10.0, VICTIM, blames=1 << 1).ends(0, 10.1).says(1, 10.0, VICTIM).ends(1, 10.1)
    assert who(play.stopped(2, 3))[0] == "unknown"
    play = Play().says(0, 10.0, VICTIM, blames=1 << 9).ends(0, 10.1)
    assert who(play.stopped(1, 2, 3)) == ("broke", 1)


def test_few_that_left_with_0() -> None:
    play = Play().ends(2, 9.0, 0).says(0, 10.0, VICTIM).ends(0, 10.1).says(1, 10.0, VICTIM).ends(1, 10.2)
    assert who(play.stopped(3)) == ("left", 1 << 2)


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([(40, "ALLREDUCE")] * 3 + [(39, "ALLREDUCE")], ("absent", 1 << 3)),
        ([(40, "ALLREDUCE")] * 3 + [(40, "BROADCAST")], ("absent", 1 << 3)),
        ([(40, "ALLREDUCE"), (41, "ALLREDUCE"), None, None], ("absent", 1)),
        ([(40, "ALLREDUCE")] * 2 + [(40, "BROADCAST")] * 2, ("unknown", 0b1111)),
        ([(40, "ALLREDUCE"), (41, "ALLREDUCE"), (42, "ALLREDUCE"), None], ("absent", 1 << 3)),
        ([(40, "ALLREDUCE")] * 3 + [None], ("absent", 1 << 3)),
        ([(40, "ALLREDUCE")] * 4, ("unknown", 0b1111)),
    ],
)
def test_calls_that_watchdogs_waited_in(calls: list[tuple[int, str] | None], found: tuple[str, int]) -> None:
    play = Play()
    for rank, call in enumerate(calls):
        if call is not None:
            play.says(rank, 10.0, VICTIM, call=call).ends(rank, 10.5, signal=6)
    play.stopped(*(rank for rank, call in enumerate(calls) if call is None))
    assert who(play) == found


def test_what_the_watch_saw_is_believed_where_words_do_not_tell() -> None:
    play = Play()
    for rank in (0, 1):
        play.says(rank, 10.0, VICTIM).ends(rank, 10.5)
    stall = events.Watched(state="stalled", found=events.SavedFinding("missing", "x", (3,)))
    play.stopped(2, 3).model.apply(Event(9.0, "", stall))
    assert who(play) == ("absent", 1 << 3)


def test_one_alone_that_saw_another_end_is_named_with_its_words() -> None:
    assert who(Play().says(0, 10.0, VICTIM).ends(0, 10.1).stopped(1, 2, 3)) == ("broke", 1)


def test_candidates_are_named_if_nobody_can_be_told_from_them() -> None:
    play = Play()
    for rank in range(4):
        play.says(rank, 10.0 + rank / 10, VICTIM).ends(rank, 11.0)
    found = play.stopped().first
    assert found is not None
    assert (found.how, found.ranks) == ("unknown", mask_of(range(4)))
    assert found.cause is not None
    assert found.cause.found.what == "words of 0"


RAISED = b'Traceback (most recent call last):\n  File "/w/train.py", line 7, in main\nValueError: bad\n'


@pytest.mark.parametrize("after", [0, TAIL, 3 * BLOCK + 17])
def test_a_cause_is_found_however_much_is_printed_after_it(after: int) -> None:
    line = b"NCCL INFO comm destroyed\n"
    log = b"step 1 loss 2\n" * 5000 + RAISED + line * (after // len(line))
    found = search(lambda at, length: log[at : at + length], len(log))
    assert found is not None
    assert found.found.what == "ValueError: bad"
    assert log[found.at :].startswith(b"Traceback")


def test_what_training_has_survived_is_no_cause() -> None:
    log = RAISED + b"".join(b" step %d | loss 2.0 | lr 0.1\n" % step for step in range(30_000))
    read = []

    def piece(at: int, length: int) -> bytes:
        read.append(length)
        return log[at : at + length]

    assert search(piece, len(log)) is None
    assert sum(read) <= 2 * TAIL, "and what is before it is not looked at"
