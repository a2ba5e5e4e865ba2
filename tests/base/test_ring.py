"""The ring of a rank's steps: what the hook writes is what is read, and nothing in it is believed."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.progress import phases, ring
from cockpit.node.probe import hooks
from cockpit.node.probe import marks as writing

WORD = struct.Struct("=Q")


def written(folder: Path, *steps: int) -> bytes:
    made = hooks.Ring(str(folder / "3.7.ring"), 3, 99)
    for step in steps:
        made.add(step)
    return (folder / "3.7.ring").read_bytes()


def changed(data: bytes, word: int, value: int) -> bytes:
    return data[: 8 * word] + WORD.pack(value) + data[8 * word + 8 :]


LAYOUT = ["MAGIC", "VERSION", "HEADER_WORDS", "RECORD_WORDS", "CAPACITY", "MARKS", "SIZE"]
KINDS = ["INPUT", "INPUT_END", "BACKWARD", "BACKWARD_END", "UPDATE_END", "ITERATOR", "SHUT"]
OLD_SIZE = 8 * (ring.HEADER_WORDS + ring.RECORD_WORDS * ring.CAPACITY)
"""Of a file of version 1."""
FIRST_MARK = OLD_SIZE // 8 + 1


@pytest.mark.parametrize("name", LAYOUT)
def test_both_sides_know_one_layout(name: str) -> None:
    sides: list[ModuleType] = [ring, hooks]
    assert len({getattr(side, name) for side in sides}) == 1
    assert (ring.SOURCES[hooks.OPTIMIZER], ring.SOURCES[hooks.DEEPSPEED]) == ("optimizer", "deepspeed")


def test_both_sides_know_one_layout_of_marks() -> None:
    assert [getattr(writing, name) for name in KINDS] == [getattr(phases, name) for name in KINDS]
    assert (writing.FIRST, writing.MARKS, writing.LOADERS) == (FIRST_MARK - 1, ring.MARKS, ring.LOADERS)
    assert hooks.UPDATE_END == phases.UPDATE_END
    assert max(getattr(phases, name) for name in KINDS) < 8


def test_what_was_written_is_read(tmp_path: Path) -> None:
    before = time.time_ns(), time.monotonic_ns()
    found = ring.read(written(tmp_path, 5, 6))
    assert (found.rank, found.ticks, found.source, found.broken) == (3, 99, "", "")
    assert [step.step for step in found.steps] == [5, 6]
    assert before <= found.steps[0][1:] <= found.steps[1][1:] <= (time.time_ns(), time.monotonic_ns())
    assert ring.read((tmp_path / "3.7.ring").read_bytes(), found.steps[0].mono_ns).steps == found.steps[1:]


def test_only_the_last_ones_stay(tmp_path: Path) -> None:
    steps = range(1, 2 * ring.CAPACITY + 8)
    found = ring.read(written(tmp_path, *steps))
    assert [step.step for step in found.steps] == list(steps[-ring.CAPACITY :])


def test_half_a_record_is_passed_over(tmp_path: Path) -> None:
    data = written(tmp_path, 1, 2, 3)
    for word in range(ring.RECORD_WORDS):
        at = ring.HEADER_WORDS + 2 * ring.RECORD_WORDS + word
        torn = changed(data, at, WORD.unpack_from(data, 8 * at)[0] ^ 1 << 40)
        assert [step.step for step in ring.read(torn).steps] == [1, 2]


def test_a_hook_that_gave_up_says_why(tmp_path: Path) -> None:
    made = hooks.Ring(str(tmp_path / "a.ring"), 0, 1)
    made.broke(ValueError("ü" * 100))
    told = ring.read((tmp_path / "a.ring").read_bytes()).broken
    assert told.startswith("ValueError: üüü")
    assert len(told) < 64
    assert ring.read(changed(written(tmp_path), 7, 1)).broken == "it does not say why"


@pytest.mark.parametrize(("word", "value"), [(0, 0), (1, 0), (1, 1), (1, 2), (1, 4), (5, 3)])
def test_another_header_is_refused(tmp_path: Path, word: int, value: int) -> None:
    with pytest.raises(ring.Malformed):
        ring.read(changed(written(tmp_path, 1), word, value))


def test_a_ring_of_version_1_has_steps_and_no_marks(tmp_path: Path) -> None:
    """A run that was launched by an older cockpit goes on."""
    old = changed(written(tmp_path, 5, 6), 1, 1)[:OLD_SIZE]
    found = ring.read(old)
    assert [step.step for step in found.steps] == [5, 6]
    assert (found.rank, found.marks, found.marks_since_ns) == (3, (), 0)
    for version in (2, 3):
        with pytest.raises(ring.Malformed):
            ring.read(changed(old, 1, version))


def test_a_ring_of_version_2_has_no_page_for_orders(tmp_path: Path) -> None:
    made, _ = marked(tmp_path, (1, 0), (2, 0))
    made.add(5)
    data = (tmp_path / "m.ring").read_bytes()
    found = ring.read(changed(data, 1, 2)[: ring.ORDER])
    assert found == ring.read(data)
    assert (len(found.steps), len(found.marks)) == (1, 2)
    with pytest.raises(ring.Malformed):
        ring.read(data[: ring.ORDER])


@pytest.mark.parametrize("of", [OLD_SIZE, ring.ORDER, ring.SIZE])
@pytest.mark.parametrize("more", [-8, -1, 1, 8, 4104])
def test_another_size_is_refused(tmp_path: Path, of: int, more: int) -> None:
    data = written(tmp_path, 1).ljust(ring.SIZE + 8192, b"\0")
    for version in (1, 2, 3):
        with pytest.raises(ring.Malformed):
            ring.read(changed(data, 1, version)[: of + more])


PLACES = [object() for _ in range(ring.LOADERS + 1)]


def marked(folder: Path, *marks: tuple[int, int]) -> tuple[hooks.Ring, writing.Marks]:
    """With a loader for each number."""
    made = hooks.Ring(str(folder / "m.ring"), 3, 99)
    writes = writing.Marks(made.words, made.broke)
    for kind, loader in marks:
        writes.add(kind, PLACES[loader])
    return made, writes


def test_marks_that_were_written_are_read(tmp_path: Path) -> None:
    expected = [(1, 0), (2, 1), (3, 0), (4, 2), (5, 1)]
    before = time.monotonic_ns()
    marked(tmp_path, *expected)
    found = ring.read((tmp_path / "m.ring").read_bytes())
    assert [mark[:2] for mark in found.marks] == expected
    times = [mark.mono_ns for mark in found.marks]
    around = [before, *times, time.monotonic_ns()]
    assert around == sorted(around)
    assert found.marks_since_ns == 0
    later = ring.read((tmp_path / "m.ring").read_bytes(), times[2])
    assert (later.marks, later.marks_since_ns) == (found.marks[2:], 0)


def test_only_the_last_marks_stay_and_it_says_since_when(tmp_path: Path) -> None:
    kinds = [(1 + at % 5, at % ring.LOADERS) for at in range(2 * ring.MARKS + 7)]
    made, _ = marked(tmp_path, *kinds)
    made.add(1)
    data = (tmp_path / "m.ring").read_bytes()
    found = ring.read(data)
    assert [mark[:2] for mark in found.marks] == kinds[-ring.MARKS :]
    assert found.marks_since_ns == found.marks[0].mono_ns > 0
    assert [step.step for step in found.steps] == [1]
    later = ring.read(data, found.marks[0].mono_ns + 1)
    assert later.marks_since_ns == 0


def test_a_loader_in_use_keeps_its_number(tmp_path: Path) -> None:
    numbers = range(ring.LOADERS)
    _, writes = marked(tmp_path, *((1, number) for number in numbers), (1, 0), (1, 16), (1, 0), (1, 1))
    writes.add(3)
    found = [mark.loader for mark in ring.read((tmp_path / "m.ring").read_bytes()).marks]
    assert found == [*numbers, 0, 1, 0, 2, 0]


def test_marks_are_those_of_the_thread_that_trains(tmp_path: Path) -> None:
    _, writes = marked(tmp_path)
    thread = threading.Thread(target=writes.add, args=(1,))
    thread.start()
    thread.join()
    writes.add(3)
    assert [mark.kind for mark in ring.read((tmp_path / "m.ring").read_bytes()).marks] == [3]


def test_an_error_of_a_mark_ends_marks_for_good(tmp_path: Path) -> None:
    made, writes = marked(tmp_path, (1, 0))
    writes.add("two")  # type: ignore[arg-type]
    assert not writes.armed
    writes.add(3)
    made.add(7)
    found = ring.read((tmp_path / "m.ring").read_bytes())
    assert found.broken.startswith("TypeError: ")
    assert [mark.kind for mark in found.marks] == [1]
    assert [step.step for step in found.steps] == [7]


@given(
    st.lists(st.integers(0, (1 << 64) - 1), max_size=40),
    st.one_of(st.integers(0, 50), st.integers(0, (1 << 64) - 1)),
    st.one_of(st.just(0), st.integers(0, (1 << 64) - 1)),
    st.booleans(),
)
def test_whatever_marks_the_program_writes_stay_within_bounds(
    words: list[int], count: int, since: int, ordered: bool
) -> None:
    """In the order of their times, and in any."""
    words = sorted(words) if ordered else words
    header = [ring.MAGIC, ring.VERSION, *(FIRST_MARK - 3) * [0], count]
    data = b"".join(map(WORD.pack, header + words))
    found = ring.read(data.ljust(ring.SIZE, b"\0"), since)
    assert len(found.marks) <= min(count, ring.MARKS)
    assert all(mark.kind < 8 and mark.loader < ring.LOADERS for mark in found.marks)
    times = [mark.mono_ns for mark in found.marks]
    assert times == sorted(times)
    assert all(since <= time < 1 << 57 for time in times)
    assert 0 <= found.marks_since_ns <= ring.MOST_NS
    if ordered and since == 0 and count == len(words):
        assert [mark.mono_ns for mark in found.marks] == [word >> 7 for word in words]


@given(st.binary(max_size=100))
def test_no_ring_is_refused(data: bytes) -> None:
    with pytest.raises(ring.Malformed):
        ring.read(data)


@given(
    st.lists(st.integers(0, (1 << 64) - 1), min_size=40, max_size=40),
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
)
def test_whatever_the_program_writes_stays_within_bounds(words: list[int], since: int, sealed: bool) -> None:
    """With records that pass the check, and with such as do not."""
    words[0], words[1], words[5] = ring.MAGIC, ring.VERSION, words[5] % len(ring.SOURCES)
    for at in range(ring.HEADER_WORDS, len(words), ring.RECORD_WORDS) if sealed else ():
        words[at + 3] = words[at] ^ words[at + 1] ^ words[at + 2] ^ ring.MAGIC
    data = b"".join(map(WORD.pack, words))
    found = ring.read(data + bytes(ring.SIZE - len(data)), since)
    assert len(found.steps) <= ring.CAPACITY
    assert len(found.broken) < 100
    times = [step.mono_ns for step in found.steps]
    assert times == sorted(times)
    for step in found.steps:
        assert step.step <= ring.MOST_STEP
        assert step.wall_ns <= 1 << 62
        assert since < step.mono_ns <= 1 << 62


def optimizers(folder: Path, *names: object) -> list[int]:
    """The steps that are counted when these optimizers step, in this order."""
    made = hooks.Ring(str(folder / "o.ring"), 0, 1)
    steps = hooks.Steps(made)
    for name in names:
        steps.optimizer(name)
    return [step.step for step in ring.read((folder / "o.ring").read_bytes()).steps]


def test_several_optimizers_make_one_step(tmp_path: Path) -> None:
    a, b, *many = [object() for _ in range(50)]
    assert optimizers(tmp_path, a, a, a) == [1, 2, 3]
    (tmp_path / "o.ring").unlink()
    assert optimizers(tmp_path, a, b, a, b, a, b) == [1, 2, 3]
    (tmp_path / "o.ring").unlink()
    # A discriminator that steps five times for each step of the generator.
    assert optimizers(tmp_path, a, a, a, a, a, b, a) == [1, 2, 3, 4, 5, 6]
    (tmp_path / "o.ring").unlink()
    # One for each parameter, stepping in the backward pass.
    assert optimizers(tmp_path, *many, *many) == [1, 2]


class Engine:
    """Counts as DeepSpeed's does."""

    def __init__(self, name: str = "") -> None:
        self.global_steps = 0


def test_an_engine_says_its_steps_and_reads_as_without_us(tmp_path: Path) -> None:
    made = hooks.Ring(str(tmp_path / "e.ring"), 0, 1)
    steps = hooks.Steps(made)
    stepped = object()
    steps.optimizer(stepped)
    kind = type("Seen", (Engine,), {"global_steps": hooks.GlobalSteps(steps)})
    first, second = kind(), kind()
    for engine in (first, second):
        for _ in range(2):
            engine.global_steps += 1
            steps.optimizer(stepped)
    first.global_steps = 1000  # a checkpoint
    second.global_steps = 7  # its own engine is not there yet
    first.global_steps = 500  # an older one
    found = ring.read((tmp_path / "e.ring").read_bytes())
    assert found.source == "deepspeed"
    assert [step.step for step in found.steps] == [1, 1, 2, 1000, 500]
    assert vars(first) == {"global_steps": 500}
    del first.global_steps
    assert vars(first) == {}
    with pytest.raises(AttributeError):
        del first.global_steps


def test_one_error_ends_it_for_good(tmp_path: Path) -> None:
    made = hooks.Ring(str(tmp_path / "b.ring"), 0, 1)
    steps = hooks.Steps(made)
    engine = object()
    steps.engine(engine, 1)
    steps.engine(engine, "two")  # type: ignore[arg-type]
    steps.engine(engine, 3)
    steps.optimizer(engine)
    found = ring.read((tmp_path / "b.ring").read_bytes())
    assert [step.step for step in found.steps] == [1]
    assert found.broken.startswith("TypeError: ")
