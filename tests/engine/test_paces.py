"""The pace of a run on disk: written as it goes, read by whoever looks later."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.events import (
    ClockMeasured,
    Complete,
    Ended,
    NodeSample,
    Progress,
    RankSample,
    RankStarted,
    RankSteps,
    Sample,
    StepSample,
)
from cockpit.base.progress.past import UNITS, Stretch
from cockpit.core.pace import steps as kept_steps
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.past import Lasted, PastStep, past_of, recall
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.run import paces
from cockpit.engine.run.paces import FILE, SETTLED_S, PaceBook, kept
from cockpit.errors import CockpitError
from tests.waiting import until

START = 1_800_000_000.0


@pytest.fixture
def folder() -> RunFolder:
    nodes = [NodeEntry("a", "/x/a", [0, 1], host="a"), NodeEntry("b", "/x/b", [2, 3], host="b")]
    fields: dict[str, Any] = {"launcher": "command", "program": ["train.py"], "cwd": "/x"}
    return RunFolder.create(Manifest(run="20261121-0412-otter", nodes=nodes, created=START, **fields))


def train(pace: Pace, steps: range, span: float = 2.0, *, slow: int = 3) -> None:
    for step in steps:
        for rank in pace.steps.ranks:
            pace.stepped(rank, step, START + (step + 1) * span)
            pace.worked(rank, step, span * (0.9 if rank == slow else 0.5))


def again(folder: RunFolder) -> Pace:
    book = PaceBook(folder, writer=False)
    asyncio.run(book.recall())
    return book.pace


def test_what_was_seen_is_seen_again(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(60))
    book.close()
    seen = again(folder)
    assert seen.front == (59, START + 120)
    assert [(slow.rank, round(slow.excess, 2)) for slow in seen.slow()] == [(3, 0.8)]
    assert seen.apart_since(3) == 0
    assert seen.of(0).work == pytest.approx(1.0)
    assert seen.usual() == pytest.approx(2.0)


@pytest.mark.parametrize("live", [200, 64, 8])
def test_whoever_has_asked_the_nodes_first_learns_of_work_too(folder: RunFolder, live: int) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(140))
    book.close()
    seen = PaceBook(folder, writer=False)
    for step in range(200 - live, 200):
        for rank in range(4):
            seen.pace.stepped(rank, step, START + 2.0 * (step + 1) + rank / 100)
    asyncio.run(seen.recall())
    assert [(slow.rank, round(slow.excess, 2)) for slow in seen.pace.slow()] == [(3, 0.8)]
    assert [seen.pace.of(rank).work for rank in (0, 3)] == pytest.approx([1.0, 1.8])
    assert seen.pace.of(0).work_kept
    assert seen.pace.of(0).work_at == pytest.approx(START + 280, abs=0.1)
    assert seen.pace.front == (199, START + 400)
    last = seen.pace.step(199)
    assert last is not None
    assert last.end(3) == pytest.approx(START + 400.03), "what ranks noted themselves stays"
    # What is asked of recorders is exact again.
    seen.pace.worked(0, 199, 1.3)
    assert not seen.pace.of(0).work_kept


def test_what_a_rank_cost_the_others_is_kept(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(30))
    assert book.pace.of(3).cost is None
    for step in range(10, 30):
        for rank in range(4):
            book.pace.worked(rank, step, 1.8 if rank == 3 else 1.0, 0.8 if rank == 3 else 0.01 * rank)
    book.close()
    for seen in (book.pace, again(folder)):
        assert [seen.of(rank).cost for rank in range(4)] == [0.0, 0.0, 0.0, 0.8]
        early = seen.step(5)
        assert early is not None
        assert math.isnan(early.cost)
    book.pace.lag = True
    assert book.pace.of(3).cost is None


def told(folder: RunFolder, fact: Any, node: str = "a") -> PaceBook:
    book, model = PaceBook(folder, writer=True), RunModel()
    model.apply(planned(folder.manifest))
    model.apply(Event(0.0, node, ClockMeasured(5.0, 0.1)))
    train(book.pace, range(10))
    book.event(model, Event(START + 30, node, fact))
    return book


def test_the_last_steps_of_a_run_that_has_ended_count(folder: RunFolder) -> None:
    steps = tuple(StepSample(step, START + 2.0 * (step + 1) + 5, 2.0) for step in range(8, 12))
    book = told(folder, RankSteps(1, 7, "optimizer", steps))
    assert (book.pace.of(1).step, book.pace.of(0).step) == (11, 9)
    assert book.pace.of(1).at == START + 24
    assert book.pace.front == (11, START + 24)


def test_most_ranks_say_what_steps_are_counted_from(folder: RunFolder) -> None:
    book, model = PaceBook(folder, writer=True), RunModel()
    model.apply(planned(folder.manifest))
    train(book.pace, range(10))
    for rank, source, relative in (
        (0, "optimizer", True),
        (1, "deepspeed", False),
        (2, "optimizer", True),
        (3, "deepspeed", False),
        (1, "optimizer", True),
    ):
        measured = Sample(NodeSample(), {rank: RankSample(progress=Progress(source, 9, 0.5, 2.0))}, ())
        book.event(model, Event(START, folder.manifest.nodes[rank // 2].name, measured))
        assert book.pace.relative == relative
    book.close()
    assert again(folder).relative


@pytest.mark.parametrize("set_s", [0.0, -3600.0, 86400.0])
def test_a_clock_that_is_set_makes_no_step_old(folder: RunFolder, set_s: float) -> None:
    book, model = PaceBook(folder, writer=True), RunModel()
    model.apply(planned(folder.manifest))
    model.apply(Event(0.0, "a", ClockMeasured(5.0, 0.1)))
    for second in range(40):
        now = START + second
        clock = now + 5.0 + (set_s if second >= 20 else 0.0)
        steps = (StepSample(2 * second, clock - 0.7, 0.5), StepSample(2 * second + 1, clock - 0.2, 0.5))
        sample = RankSample(progress=Progress("deepspeed", 2 * second + 1, 0.2, 0.5, steps))
        book.event(model, Event(now, "a", Sample(NodeSample(), {0: sample})))
        assert book.pace.of(0).step == 2 * second + 1
        assert book.pace.of(0).at == pytest.approx(now - 0.2, abs=1e-3)
    assert book.pace.usual() == pytest.approx(0.5)
    ends = [step.typical_end for step in book.pace.steps]
    assert ends == pytest.approx([START - 0.7 + n / 2 for n in range(80)], abs=1e-3)


@pytest.mark.parametrize("rank", [2, 77])
def test_a_node_tells_last_steps_of_its_own_ranks_alone(folder: RunFolder, rank: int) -> None:
    book = told(folder, RankSteps(rank, 7, "optimizer", (StepSample(50, START + 99),)))
    assert book.pace.front == (9, START + 20)


def test_when_cpus_enqueued_stays_that(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(60))
    book.pace.lag = True
    book.close()
    seen = again(folder)
    assert seen.slow() == []
    assert [late.rank for late in seen.late()] == [3]


def test_quick_steps_that_a_log_tells_of_fill_their_time_later_too(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    for step in range(200):
        book.pace.stepped(0, step, START + step / 4, exact=False)
    book.close()
    seen = again(folder)
    assert sum(step.count * step.typical_span for step in seen.steps) == pytest.approx(50, abs=3)


def test_the_last_steps_that_a_log_tells_are_kept_though_nothing_comes_after_them(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    for step in range(400):
        # Lines arrive in portions.
        book.pace.stepped(0, step, START + 3 * (step // 13), exact=False)
        if step % 40 == 0:
            book.keep(START + 3 * (step // 13))
    book.close(over=False)
    book.close()
    book.close()
    found = list(kept(folder))
    assert found[-1].step == 399
    assert not found[-1].exact
    assert sum(step.count for step in found) == pytest.approx(400, abs=13), "of the first no time is known"
    assert again(folder).front == (399, START + 3 * (399 // 13))


def test_of_quick_steps_that_a_log_tells_the_last_ones_are_kept_too(folder: RunFolder) -> None:
    """Those of the last two seconds were not timed yet."""
    book = PaceBook(folder, writer=True)
    for step in range(1, 398):
        book.pace.stepped(0, step, START + step / 100, exact=False)
    book.close()
    assert [step.step for step in kept(folder)][-1] == 397


def test_the_ends_tell_how_long_steps_took_of_which_one_stands_for_several(folder: RunFolder) -> None:
    book, at = PaceBook(folder, writer=True), float(START)
    for step in range(1, 401):
        took = 0.03 if step % 5 else 0.08
        at += took
        for rank in range(4):
            # Ranks differ most in short steps.
            slow = 2 if rank == 3 and step % 5 else 1
            book.pace.stepped(rank, step, at, span=took * slow if step > 1 else None)
    book.close()
    found, lasted = list(kept(folder)), Lasted()
    assert len(found) < 50
    whole = sum(lasted.of(one.restarts, one.step, one.count, one.at, one.span, exact=True) for one in found)
    assert whole == pytest.approx(at - START, abs=0.01)
    assert sum(one.count for one in found) == 400
    assert sum(one.count * one.span for one in found) < 0.9 * whole, "that of one is not that of all"


def test_a_rank_that_never_finished_a_step_is_missing_in_it_later_too(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(20))
    for rank in (0, 1, 3):
        book.pace.stepped(rank, 20, START + 42)
    book.close()
    seen = again(folder)
    assert [seen.of(rank).step for rank in range(4)] == [20, 20, 19, 20]
    assert seen.of(2).behind == 1


def test_each_step_is_written_once_however_often_it_looks(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    for end in range(10, 101, 10):
        train(book.pace, range(end - 10, end))
        book.keep(START + 2.0 * end)
    book.close()
    book.close()
    assert len((folder.path / FILE).read_bytes().splitlines()) == 100
    more = PaceBook(folder, writer=True)
    asyncio.run(more.recall())
    train(more.pace, range(90, 110))
    more.close()
    assert len((folder.path / FILE).read_bytes().splitlines()) == 110


def test_a_step_is_written_when_its_work_can_no_longer_change(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(100))
    book.keep(START + 150)
    assert not (folder.path / FILE).exists(), "other nodes have not told their steps yet"
    book.keep(START + 200)
    assert len((folder.path / FILE).read_bytes().splitlines()) == int((200 - SETTLED_S) / 2)


@pytest.mark.slow
def test_a_full_file_loses_detail_where_it_is_oldest(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paces, "LIMIT", 40_000)
    book = PaceBook(folder, writer=True)
    for step in range(6000):
        train(book.pace, range(step, step + 1))
        if step == 7:
            book.pace.worked(1, step, 9.0)
        if step % 10 == 0:
            book.keep(START + 2.0 * step)
            book._file.wait()
    book.close()
    assert (folder.path / FILE).stat().st_size <= 42_000
    found = list(kept(folder))
    numbers = [step.step for step in found]
    assert numbers == sorted(numbers)
    assert sum(step.count for step in found) == 6000
    assert numbers[-200:] == list(range(5800, 6000)), "the newest are all there"
    assert found[0].count >= 8
    assert found[0].greatest == pytest.approx(9.0), "of those that became one, the worst"
    ends = {step.step: step.at for step in found}
    assert all(at == pytest.approx(START + 2.0 * (step + 1)) for step, at in ends.items()), (
        "one true point each"
    )
    assert again(folder).front == (5999, START + 12_000)


def test_steps_that_memory_cannot_hold_until_they_are_settled_are_written(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    book.pace.steps.limit = 200
    book.pace.steps.happened(START + 10)
    book.keep(START)
    for step in range(4000):
        for rank in range(4):
            book.pace.stepped(rank, step, START + step / 50, span=0.02)
        if step % 500 == 0:
            book.keep(START + step / 50)
    book.keep(START + 80)
    assert len((folder.path / FILE).read_bytes().splitlines()) > 130, "older ones than 100 s are none"
    book.close()
    found = list(kept(folder))
    assert sum(step.count for step in found) == 4000
    assert [step.step for step in found] == sorted(step.step for step in found)


def test_of_quick_steps_those_are_kept_in_which_ranks_differ(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    for step in range(1000):
        for rank in range(4):
            book.pace.stepped(rank, step, START + step / 100)
            book.pace.worked(rank, step, 0.03 if (rank, step) == (2, 777) else 0.01)
    book.close()
    data = (folder.path / FILE).read_bytes()
    assert len(data.splitlines()) <= 21
    assert b"[[2,2.0]]" in data


def test_damage_is_ignored(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(30))
    book.close()
    file: Path = folder.path / FILE
    lines = file.read_bytes().splitlines(keepends=True)
    junk = [
        b"",
        b"[1,2",
        b"[" * 5000,
        b'{"a": 1}',
        b'[0,1,1e999,1,"",1,1,1,1,1,true,true,false,[]]',
        b'[0,9007199254740993,1,1,"",1,1,1,1,1,true,true,false,[]]',
        b'[0,3,1,1,"0-99999999",1,1,1,1,1,true,true,false,[]]',
        b"\xff\xfe",
    ]
    file.write_bytes(b"".join(lines[:10] + [line + b"\n" for line in junk] + lines[10:]) + b"[0,99")
    seen = again(folder)
    assert seen.front == (29, START + 60)
    assert not math.isnan(seen.usual() or math.nan)


def test_whoever_leaves_a_run_that_goes_on_keeps_what_no_rank_can_add_to(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(100))
    book.keep(START + 150)
    book.pace.stepped(0, 100, START + 202)
    book.close(over=False)
    assert len((folder.path / FILE).read_bytes().splitlines()) == 100
    assert [step.step for step in book.after((0, 97))] == [98, 99, 100]


def test_all_steps_of_a_run_that_is_over_are_kept_though_nobody_leaves(folder: RunFolder) -> None:
    book, model = PaceBook(folder, writer=True), RunModel()
    model.apply(planned(folder.manifest))
    train(book.pace, range(100))
    for node in ("a", "b"):
        assert kept_here(folder) == 0
        for fact in (Ended(), Complete()):
            event = Event(START + 201, node, fact)
            model.apply(event)
            book.event(model, event)
    until(lambda: kept_here(folder) == 100, "all steps")
    book.close()
    assert kept_here(folder) == 100


def kept_here(folder: RunFolder) -> int:
    """How many lines the file has."""
    path = folder.path / FILE
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_steps_of_which_a_node_has_not_told_are_not_kept_as_missing(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    for step in range(50):
        book.pace.stepped(0, step, START + 2.0 * step)
    book.keep(START + 100)
    book.close(over=False)
    assert not (folder.path / FILE).exists()


def test_one_that_reads_along_writes_nothing(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=False)
    train(book.pace, range(30))
    book.close()
    assert not (folder.path / FILE).exists()


def test_a_file_that_cannot_be_written_is_said_once(folder: RunFolder) -> None:
    (folder.path / FILE).mkdir()
    book = PaceBook(folder, writer=True)
    train(book.pace, range(300))
    book.keep(START + 500)
    with pytest.raises(CockpitError, match="the run's pace could not be saved"):
        book.keep(START + 600)
    book.keep(START + 700)
    book.close()


def kept_by(rank: int, first: int, count: int, span: float = 2.0) -> Stretch:
    """As a node whose clock is 5 s ahead keeps steps that ended as those of :func:`train`."""
    end = START + (first + count) * span + 5
    return Stretch(rank, 1, first, end, count, (round(span * UNITS),) * count)


def test_what_a_node_kept_of_its_own_ranks_is_taken_in_and_written(folder: RunFolder) -> None:
    book, model = PaceBook(folder, writer=True), RunModel()
    model.apply(planned(folder.manifest))
    (a, b) = folder.manifest.nodes
    for node in (a, b):
        model.apply(Event(0.0, node.name, ClockMeasured(5.0, 0.1)))
    train(book.pace, range(10))
    assert book.known_until(a) == START + 20
    book.await_missed(["a", "b"])
    for node, stranger in ((a, 3), (b, 0)):
        rows = [kept_by(rank, 10, 300) for rank in (*node.ranks, stranger)]
        asyncio.run(book.missed(model, node, rows if node is a else [*rows, kept_by(0, 310, 5)]))
    assert book.pace.front == (309, START + 620)
    assert all(book.pace.of(rank).step == 309 for rank in range(4))
    book.close()
    assert [len(again(folder).steps), again(folder).front] == [310, (309, START + 620)]


def test_nothing_is_written_before_nodes_have_said_what_they_kept(folder: RunFolder) -> None:
    book, model = PaceBook(folder, writer=True), RunModel()
    model.apply(planned(folder.manifest))
    train(book.pace, range(10))
    book.await_missed(["a"])

    def sampled(at: float) -> None:
        book.event(model, Event(at, "b", Sample(NodeSample())))

    sampled(START + 500)
    sampled(START + 600)
    assert not (folder.path / FILE).exists()
    asyncio.run(book.missed(model, folder.manifest.nodes[0], []))
    sampled(START + 700)
    assert len((folder.path / FILE).read_bytes().splitlines()) == 10


def test_a_restart_while_nobody_watched_repeats_steps(folder: RunFolder) -> None:
    book, model = PaceBook(folder, writer=True), RunModel()
    model.apply(planned(folder.manifest))
    train(book.pace, range(10))
    for node in folder.manifest.nodes:
        for rank in node.ranks:
            book.event(model, Event(START + 1000, node.name, RankStarted(rank, attempt=1)))
    for node in folder.manifest.nodes:
        before, after = ([kept_by(rank, first, 50) for rank in node.ranks] for first in (10, 500))
        after = [replace(row, step=5) for row in after]
        asyncio.run(book.missed(model, node, [*before, *after]))
    keys = [step.key for step in book.pace.steps]
    assert keys == [*((0, step) for step in range(60)), *((1, step) for step in range(5, 55))]
    assert book.pace.front == (54, START + 1105)


def test_a_node_that_is_asked_again_is_asked_from_what_is_on_disk(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    train(book.pace, range(60))
    book.close()
    fresh = PaceBook(folder, writer=False)
    assert fresh.known_until(folder.manifest.nodes[1]) == START + 120


def known(pace: Pace) -> list[Any]:
    """All that a pace says."""
    steps = [
        (
            step.key,
            step.base,
            step.count,
            step.ends.tolist(),
            step.spans.tolist(),
            list(step.works),
            step.estimate,
        )
        for step in pace.steps
    ]
    ranks = [pace.of(rank) for rank in pace.steps.ranks]
    return [repr(steps), ranks, pace.front, pace.slow(), pace.late(), pace.usual(), pace.works, pace.relative]


def mixed(folder: RunFolder) -> list[bytes]:
    """A past of every kind: ranks that miss steps, restarts, steps that only logs told, ranks that lag."""
    book = PaceBook(folder, writer=True)
    for step in range(400):
        for rank in range(4):
            if rank == 1 and step > 300:
                continue
            book.pace.stepped(rank, step, START + 2.0 * step, exact=not 100 < step < 140)
            if step % 3 and step < 390:
                book.pace.worked(rank, step, 1.9 if rank == 3 else 1.0)
    book.pace.restarted(0, 1)
    book.pace.restarted(2, 1)
    book.pace.restarted(3, 1)
    train(book.pace, range(350, 380), span=2.5)
    book.pace.relative = True
    book.close()
    return (folder.path / FILE).read_bytes().splitlines()


def test_what_is_taken_in_at_once_is_what_is_taken_in_one_by_one(folder: RunFolder) -> None:
    lines = mixed(folder)
    single = Pace(range(4))
    for line in lines:
        recall(single, past_of(line))
    assert known(again(folder)) == known(single)


def test_of_old_steps_there_are_buckets(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = mixed(folder)
    monkeypatch.setattr(kept_steps, "CELLS", 4 * 64)
    monkeypatch.setattr(kept_steps, "FEWEST", 64)
    seen, single = again(folder), Pace(range(4))
    for line in lines:
        recall(single, past_of(line))
    assert known(seen)[1:] == known(single)[1:]
    assert len(seen.steps) == 64
    found, slowly = seen.history.buckets, single.history.buckets
    exact = [step for line in lines[:-64] if (step := past_of(line)).exact]
    assert sum(bucket.steps for bucket in found) == sum(bucket.steps for bucket in slowly) == len(exact)
    assert [(b.at, b.first, b.slowest) for b in found] == [(b.at, b.first, b.slowest) for b in slowly]
    assert [b.excess for b in found] == pytest.approx([b.excess for b in slowly], abs=0.01)
    assert [b.greatest for b in found] == pytest.approx([b.greatest for b in slowly], abs=0.01)


@pytest.mark.parametrize(
    "junk",
    [
        b"[1,2",
        b"[" * 5000,
        b'[0,3,1e999,1,"",1,1,1,1,1,true,true,false,true,[]]',
        b'[0,3,NaN,1,"",1,1,1,1,1,true,true,false,true,[]]',
        b'[0,3,"1",1,"",1,1,1,1,1,true,true,false,true,[]]',
        b'[0,3,1.0,1,"",1,[],1,1,1,true,true,false,true,[]]',
        b'[0,-3,1.0,1,"",1,1,1,1,1,true,true,false,true,[]]',
        b'[0,3,1.0,1,"",1,1,1,1,77,true,2,false,true,[]]',
        b"[0,3],[1,4,[",
    ],
)
def test_damage_in_old_steps_costs_its_line_alone(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, junk: bytes
) -> None:
    lines = mixed(folder)
    monkeypatch.setattr(kept_steps, "CELLS", 4 * 64)
    monkeypatch.setattr(kept_steps, "FEWEST", 64)
    whole = again(folder).history.buckets
    (folder.path / FILE).write_bytes(b"\n".join([*lines[:7], junk, *lines[7:], b""]))
    damaged = again(folder).history.buckets
    assert [(b.at, b.steps, b.slowest) for b in damaged] == [(b.at, b.steps, b.slowest) for b in whole]


def test_the_old_is_not_read_step_by_step(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed(folder)
    monkeypatch.setattr(kept_steps, "CELLS", 4 * 64)
    monkeypatch.setattr(kept_steps, "FEWEST", 64)
    read: list[PastStep] = []

    def reads(line: bytes) -> PastStep:
        read.append(past_of(line))
        return read[-1]

    monkeypatch.setattr("cockpit.engine.run.paces.past_of", reads)
    book = PaceBook(folder, writer=False)
    asyncio.run(book.recall(history=False))
    assert len(read) == len(book.pace.steps) == 64
    assert not book.pace.history.buckets
