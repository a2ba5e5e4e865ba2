"""Phases of steps: from marks as programs make them, and from any marks at all."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cockpit.base.progress.phases import (
    BACKWARD,
    BACKWARD_END,
    INPUT,
    INPUT_END,
    ITERATOR,
    SHUT,
    UNKNOWN,
    UPDATE_END,
    Mark,
    Phases,
    Reader,
)

MS = 1_000_000


class Program:
    """Makes the marks of a program, and the steps; times are milliseconds."""

    def __init__(self) -> None:
        self.now = 0
        self.marks: list[Mark] = []
        self.ends = [0]

    def mark(self, kind: int, loader: int = 0) -> None:
        self.now += 1  # nanoseconds: no two at once
        self.marks.append(Mark(kind, loader, self.now))

    def busy(self, ms: float) -> None:
        self.now += int(ms * MS)

    def batch(self, ms: float, loader: int = 0) -> None:
        self.mark(INPUT, loader)
        self.busy(ms)
        self.mark(INPUT_END, loader)

    def iterator(self, loader: int = 0) -> None:
        self.mark(ITERATOR, loader)

    def no_more(self, loader: int = 0) -> None:
        self.mark(INPUT, loader)

    def shut(self, ms: float, loader: int = 0) -> None:
        """No more, and its workers end."""
        self.no_more(loader)
        self.busy(ms)
        self.mark(SHUT, loader)

    def backward(self, ms: float) -> None:
        self.mark(BACKWARD)
        self.busy(ms)
        self.mark(BACKWARD_END)

    def update(self, ms: float, leads: bool = True) -> None:
        self.busy(ms)
        self.mark(UPDATE_END)
        if leads:
            self.end()

    def end(self) -> None:
        self.now += 1
        self.ends.append(self.now)

    def plain(self, loader: int = 0) -> None:
        """One step as most are."""
        self.batch(40, loader)
        self.busy(30)
        self.backward(20)
        self.update(10)

    def evaluate(self, loader: int, batches: int = 3, ends: bool = True) -> None:
        self.iterator(loader)
        for _ in range(batches):
            self.batch(5, loader)
            self.busy(7)
        if ends:
            self.no_more(loader)

    @property
    def spans(self) -> list[tuple[int, int] | None]:
        return list(zip(self.ends, self.ends[1:], strict=False))

    def phases(self) -> list[tuple[int | None, ...]]:
        """Of all steps, milliseconds."""
        found = Reader().read(self.spans, self.marks)
        return [tuple(None if one is None else round(one / MS) for one in each) for each in found]


PLAIN = (40, 30, 20, 10)
NOTHING = (None, None, None, None)


def test_a_plain_loop() -> None:
    made = Program()
    for _ in range(3):
        made.plain()
        made.busy(50)  # logging, a checkpoint
    assert made.phases() == [PLAIN] * 3


def test_what_comes_in_two_readings_is_as_in_one() -> None:
    made = Program()
    for at in range(6):
        if at % 2 == 0:
            made.plain()
        else:  # on the batch of the step before
            made.busy(5)
            made.backward(2)
            made.update(1)
    one, parts = Reader(), Reader()
    whole = one.read(made.spans, made.marks)
    for cut in range(7):
        parts = Reader()
        assert parts.read(made.spans[:cut], made.marks) + parts.read(made.spans[cut:], made.marks) == whole


def test_without_a_loader_input_and_forward_are_not_known() -> None:
    made = Program()
    for _ in range(2):
        made.busy(70)
        made.backward(20)
        made.update(10)
    assert made.phases() == [(None, None, 20, 10)] * 2


def test_loaders_that_are_zipped_add_up() -> None:
    made = Program()
    for _ in range(2):
        made.batch(15, 1)
        made.batch(25, 2)
        made.busy(30)
        made.backward(20)
        made.update(10)
    assert made.phases() == [PLAIN] * 2


@pytest.mark.parametrize("inner", [3, 4])
def test_a_loader_that_uses_others_is_counted_once(inner: int) -> None:
    """Even if the two have one number."""
    made = Program()
    for _ in range(2):
        made.mark(INPUT, 4)
        made.busy(5)
        for _ in range(3):
            made.batch(10, inner)
        made.busy(5)
        made.mark(INPUT_END, 4)
        made.busy(30)
        made.backward(20)
        made.update(10)
    assert made.phases() == [PLAIN] * 2


def test_the_start_of_workers_is_input() -> None:
    made = Program()
    for _ in range(2):
        made.no_more()
        made.busy(5)
        made.iterator()
        made.busy(15)
        made.iterator()
        made.batch(25)
        made.busy(30)
        made.backward(20)
        made.update(10)
    assert made.phases() == [PLAIN] * 2


@pytest.mark.parametrize("anew", [0, 1])
def test_the_end_of_workers_is_input(anew: int) -> None:
    """Whether or not the next iterator is where the last one was."""
    made = Program()
    for at in range(3):
        made.shut(10, anew * at)
        made.iterator(anew * (at + 1))
        made.batch(30, anew * (at + 1))
        made.busy(30)
        made.backward(20)
        made.update(10)
    assert made.phases() == [PLAIN] * 3


def test_a_loader_that_starts_and_ends_workers_for_an_evaluation() -> None:
    made = Program()
    for _ in range(2):
        made.plain()
        made.iterator(1)
        made.busy(15)
        made.evaluate(1, ends=False)
        made.shut(15, 1)
    assert made.phases() == [PLAIN] * 2


def test_workers_that_end_as_their_iterator_goes_are_not_input() -> None:
    """As of one that was left before its end."""
    made = Program()
    for _ in range(2):
        made.plain()
        made.busy(5)
        made.mark(SHUT)
    assert made.phases() == [PLAIN] * 2


def test_batches_that_accumulate_add_up() -> None:
    made = Program()
    for _ in range(2):
        for _ in range(4):
            made.batch(10)
            made.busy(7.5)
            made.backward(5)
        made.update(10)
    assert made.phases() == [PLAIN] * 2


@pytest.mark.parametrize("between", [0, 5])
def test_batches_that_are_taken_together_add_up(between: float) -> None:
    """However long it takes to move each to its device."""
    made = Program()
    for _ in range(2):
        for _ in range(4):
            made.batch(10)
            made.busy(between)
        for _ in range(4):
            made.busy(7.5)
            made.backward(5)
        made.update(10)
    assert made.phases() == [(40, 30 + between, 20, 10)] * 2


def test_batches_that_are_taken_together_from_an_iterator_of_the_number_of_the_last() -> None:
    made = Program()
    for _ in range(3):
        made.no_more()
        made.iterator()
        for _ in range(4):
            made.batch(10)
            made.busy(5)
        for _ in range(4):
            made.busy(7.5)
            made.backward(5)
        made.update(10)
    assert made.phases() == [(40, 35, 20, 10)] * 3


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("batches", [2, 5])
def test_an_evaluation_is_none_of_them(batches: int, ends: bool) -> None:
    made = Program()
    for at in range(4):
        made.plain(1)
        if at % 2:
            made.evaluate(2, batches, ends)
    assert made.phases() == [PLAIN] * 4


def test_an_evaluation_of_one_batch_is_none_of_them() -> None:
    made = Program()
    made.plain(1)
    made.evaluate(2, 1)
    made.plain(1)
    assert made.phases() == [PLAIN] * 2


@pytest.mark.parametrize("ends", [True, False])
def test_an_evaluation_by_an_iterator_of_the_same_number_is_none_of_them(ends: bool) -> None:
    """The next epoch's iterator is often where that of the evaluation was."""
    made = Program()
    for _ in range(3):
        made.iterator()
        made.plain()
        made.plain()
        made.no_more()
        made.evaluate(0, ends=ends)
    assert made.phases() == [PLAIN] * 6


def test_an_evaluation_between_backward_and_the_end_of_the_step_is_none_of_them() -> None:
    made = Program()
    for _ in range(2):
        made.batch(40)
        made.busy(30)
        made.backward(20)
        made.update(10, leads=False)
        made.evaluate(2)
        made.end()
    assert made.phases() == [PLAIN] * 2


def test_an_evaluation_before_the_last_batch_that_was_taken_ahead() -> None:
    made = Program()
    made.batch(40)
    made.plain()
    made.evaluate(2)
    made.no_more()
    made.busy(30)
    made.backward(20)
    made.update(10)
    assert made.phases() == [(80, 30, 20, 10), (None, None, 20, 10)]


def test_a_training_without_a_loader_that_evaluates_with_one() -> None:
    made = Program()
    for _ in range(2):
        made.busy(70)
        made.backward(20)
        made.update(10)
        made.evaluate(2, ends=False)
    made.busy(70)
    made.backward(20)
    made.update(10)
    assert made.phases() == [(None, None, 20, 10)] * 3


def test_a_batch_that_is_taken_ahead_counts_where_it_was_taken() -> None:
    made = Program()
    made.batch(40)
    for _ in range(3):
        made.plain()
    made.no_more()
    made.busy(30)
    made.backward(20)
    made.update(10)
    assert made.phases() == [(80, 30, 20, 10), PLAIN, PLAIN, (0, 30, 20, 10)]


def test_a_batch_that_is_taken_ahead_of_the_update() -> None:
    made = Program()
    made.batch(40)
    for _ in range(3):
        made.busy(30)
        made.backward(20)
        made.batch(40)
        made.update(10)
    assert made.phases() == [(80, 30, 20, 10), PLAIN, PLAIN]


def test_a_step_with_a_closure_updates_after_its_last_backward() -> None:
    made = Program()
    for _ in range(2):
        made.batch(40)
        for _ in range(3):
            made.busy(10)
            made.backward(20)
        made.update(10)
    assert made.phases() == [(40, 30, 60, 10)] * 2


def test_backwards_in_a_backward_are_one() -> None:
    made = Program()
    for _ in range(2):
        made.batch(40)
        made.busy(30)
        made.mark(BACKWARD)
        for _ in range(3):
            made.busy(2)
            made.mark(BACKWARD)
            made.backward(3)
            made.busy(2)
            made.mark(BACKWARD_END)
        made.mark(BACKWARD_END)
        made.update(10)
    assert made.phases() == [(40, 30, 21, 10)] * 2


def test_a_second_optimizer_beside_the_first() -> None:
    """Two losses and two updates in a step, on one batch: all of both counts."""
    made = Program()
    for _ in range(3):
        made.batch(40)
        made.busy(30)
        made.backward(20)
        made.update(10, leads=False)
        made.busy(3)
        made.backward(2)
        made.update(1)
    assert made.phases() == [(40, 33, 22, 11)] * 3


def test_the_step_of_an_optimizer_that_leads_ends_it_for_the_others() -> None:
    """What the second does after that is in the next step, as is its time."""
    made = Program()
    for _ in range(3):
        made.batch(40)
        made.busy(30)
        made.backward(20)
        made.update(10)
        made.busy(3)
        made.backward(2)
        made.update(1, leads=False)
    assert made.phases() == [PLAIN, (40, 33, 22, 11), (40, 33, 22, 11)]


def test_several_steps_on_one_batch() -> None:
    made = Program()
    made.batch(40)
    for _ in range(3):
        made.busy(30)
        made.backward(20)
        made.update(10)
    assert made.phases() == [PLAIN, (0, 30, 20, 10), (0, 30, 20, 10)]


def test_a_step_that_ends_in_a_backward_is_not_known_nor_is_the_next() -> None:
    """An optimizer for each parameter, stepping as soon as its gradient is there."""
    made = Program()
    made.plain()
    made.batch(40)
    made.busy(30)
    made.mark(BACKWARD)
    for _ in range(3):
        made.busy(5)
        made.mark(UPDATE_END)
    made.end()
    made.busy(5)
    made.mark(BACKWARD_END)
    made.plain()
    made.plain()
    assert made.phases() == [PLAIN, NOTHING, NOTHING, PLAIN]


def test_a_step_without_a_backward_is_not_known() -> None:
    made = Program()
    made.plain()
    made.batch(40)
    made.update(10)
    made.update(10)
    made.plain()
    assert made.phases() == [PLAIN, NOTHING, NOTHING, PLAIN]


def test_a_step_that_begins_or_ends_in_a_loader() -> None:
    """What trains may be a thread, and the marks those of another."""
    made = Program()
    made.mark(INPUT)
    made.end()
    made.mark(INPUT_END)
    made.plain()
    made.plain()
    assert made.phases()[2] == PLAIN
    assert made.phases()[0] == NOTHING


def test_a_step_whose_marks_were_overwritten_is_not_known() -> None:
    made = Program()
    for _ in range(4):
        made.plain()
    since = made.marks[8].mono_ns
    assert made.spans[1] is not None
    assert made.spans[1][0] < since
    found = Reader().read(made.spans, [mark for mark in made.marks if mark.mono_ns >= since], since)
    assert found[:2] == [UNKNOWN, UNKNOWN]
    assert None not in found[2] + found[3]


def test_a_step_whose_time_is_not_known_has_no_phases() -> None:
    made = Program()
    for _ in range(3):
        made.plain()
    spans = made.spans
    spans[1] = None
    found = Reader().read(spans, made.marks)
    assert found[1] == UNKNOWN
    assert None not in found[0] + found[2]


def test_a_kind_of_mark_that_nobody_knows_means_nothing() -> None:
    made = Program()
    for _ in range(2):
        made.batch(40)
        made.mark(0)
        made.busy(30)
        made.backward(20)
        made.mark(7)
        made.busy(5)
        made.mark(7)
        made.update(5)
        made.mark(7)
    assert made.phases() == [PLAIN] * 2


# A few times and whole backwards, or hardly any has phases.
KINDS = st.sampled_from([*([kind] for kind in range(8)), [BACKWARD, BACKWARD_END]])
MARKS = st.lists(
    st.tuples(KINDS, st.integers(0, 1), st.sampled_from([0, 1, MS, 5 * MS])).map(
        lambda drawn: [(kind, *drawn[1:]) for kind in drawn[0]]
    ),
    max_size=30,
).map(lambda groups: [mark for group in groups for mark in group])


def bounded(spans: Sequence[tuple[int, int] | None], found: Sequence[Phases]) -> None:
    assert len(found) == len(spans)
    for span, phases in zip(spans, found, strict=True):
        known = [one for one in phases if one is not None]
        assert all(one >= 0 for one in known)
        assert not known if span is None else sum(known) <= span[1] - span[0]


@given(MARKS, st.lists(st.tuples(st.integers(0, 5 * MS), st.booleans()), max_size=10), st.integers(0, 9 * MS))
def test_whatever_the_marks_are_a_step_has_no_more_than_its_time(
    marks: list[tuple[int, int, int]], steps: list[tuple[int, bool]], since: int
) -> None:
    at, made = 0, []
    for kind, loader, after in marks:
        at += after
        made.append(Mark(kind, loader, at))
    at, spans = 0, []
    for took, known in steps:
        spans.append((at, at + took) if known else None)
        at += took
    reader = Reader()
    bounded(spans, reader.read(spans, made, since))
    bounded(spans, reader.read(spans, made))


@pytest.mark.slow
@hypothesis.settings(max_examples=300)
@given(MARKS)
@example([(BACKWARD, 0, 0), (BACKWARD_END, 0, 0), (INPUT, 0, 0), (UPDATE_END, 0, 5), (INPUT_END, 0, 5)])
@example([(INPUT, 0, 0), (UPDATE_END, 0, 5), (INPUT_END, 0, 5), (BACKWARD, 0, 0), (BACKWARD_END, 0, 0)])
@example([(BACKWARD, 0, 0), (INPUT, 0, 0), (BACKWARD_END, 0, 5), (INPUT_END, 0, 5)])
def test_marks_of_one_long_step_are_within_it(marks: list[tuple[int, int, int]]) -> None:
    at, made = 0, []
    for kind, loader, after in marks:
        at += after
        made.append(Mark(kind, loader, at))
    spans = [(0, at)]
    bounded(spans, Reader().read(spans, made))


@given(MARKS, st.lists(st.sampled_from(["plain", "evaluate", "accumulate", "closure", "again"]), max_size=12))
def test_garbage_spoils_no_step_after_it(marks: list[tuple[int, int, int]], kinds: list[str]) -> None:
    made = Program()
    for kind, loader, after in marks:
        made.now += after
        made.mark(kind, loader)
    made.end()
    made.plain()
    for what in kinds:
        if what == "evaluate":
            made.evaluate(2)
        for _ in range(3 if what == "accumulate" else 1):
            if what != "again":
                made.batch(40)
            made.busy(30)
            made.backward(20)
        if what == "closure":
            made.busy(30)
            made.backward(20)
        made.update(10)
    expected = {
        "plain": PLAIN,
        "evaluate": PLAIN,
        "accumulate": (120, 90, 60, 10),
        "closure": (40, 60, 40, 10),
        "again": (0, 30, 20, 10),
    }
    assert made.phases()[1:] == [PLAIN, *(expected[what] for what in kinds)]
