"""Since when ranks have stood still, by an earlier look; every reason why it cannot tell has its case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cockpit.base.stacks.dump import Dump
from cockpit.core.stacks.earlier import stood_since
from cockpit.core.stacks.snapshot import Sample, Snapshot
from cockpit.core.stacks.verdict import verdict
from tests.core.test_verdict import ALL_REDUCE, COMPUTES, USER, Told, named, snapshot, still


def looked(at: float, rest: Told, odd: Told | None = None, *, slept: float, switches: int = 50) -> Snapshot:
    """Two samples of four ranks, a second apart; each wakes a rank that then sleeps once more."""
    taken = snapshot(4, rest, None if odd is None else {1: odd})
    for look, sample in enumerate(taken.samples):
        sample.at = at + look
        for rank, dump in sample.dumps.items():
            assert dump.process is not None
            process = dump.process._replace(
                idle_s=1.0 if look else slept,
                switches=switches + look,
                switches_after=switches + look + 1,
            )
            sample.dumps[rank] = replace(dump, at=at + look, process=process)
    return taken


def before() -> Snapshot:
    return looked(1000.0, still(ALL_REDUCE), still(USER), slept=2.0)


def later(at: float = 1009.0) -> Snapshot:
    """Seconds later, with no switch but those of the two looks before."""
    return looked(at, still(ALL_REDUCE), still(USER), slept=at - 1001.0, switches=52)


def changed(taken: Snapshot, change: Callable[[Dump], Dump], look: int = 0) -> Snapshot:
    """The same with that change of rank 0 in one sample."""
    dumps = taken.samples[look].dumps
    dumps[0] = change(dumps[0])
    return taken


def process(**facts: object) -> Callable[[Dump], Dump]:
    """Other facts of the kernel."""

    def change(dump: Dump) -> Dump:
        assert dump.process is not None
        return replace(dump, process=dump.process._replace(**facts))  # type: ignore[arg-type]

    return change


def test_who_has_not_run_has_stood_since_the_look_before() -> None:
    assert stood_since(before(), later()) == dict.fromkeys(range(4), 998.0)


def test_a_look_makes_the_verdict_surer() -> None:
    now = later()
    found = verdict(now)
    assert "a step may just be slow" in named(found, "lock", 1, certainty="likely")
    now.stood = stood_since(before(), now)
    found = verdict(now)
    named(found, "lock", 1, certainty="sure")
    assert found.since == 998.0


def test_one_look_after_the_other_goes_back_to_the_first() -> None:
    first = before()
    second = later(1004.0)
    second.stood = stood_since(first, second)
    third = looked(1012.0, still(ALL_REDUCE), still(USER), slept=7.0, switches=54)
    assert stood_since(second, third) == dict.fromkeys(range(4), 998.0)
    # Of a rank that ran between its two samples, only the last one counts.
    changed(second, process(switches=99, switches_after=54), look=1)
    assert stood_since(second, third)[0] == 1004.0
    assert stood_since(second, third)[2] == 998.0


@pytest.mark.parametrize(
    "change",
    [
        process(switches=53),
        process(switches=51),
        process(pid=1),
        process(ticks=1),
        process(main_cpu_s=100.5),
        lambda dump: replace(dump, process=None),
        lambda dump: replace(dump, threads=()),
        lambda dump: replace(dump, at=900.0),
        lambda dump: replace(dump, threads=(dump.threads[0]._replace(frames=COMPUTES),)),
    ],
    ids=["woken", "fewer", "pid", "ticks", "cpu", "gone", "no stack", "clock set back", "elsewhere"],
)
def test_who_may_have_run_in_between_is_not_known(change: Callable[[Dump], Dump]) -> None:
    found = stood_since(before(), changed(later(), change))
    assert found == dict.fromkeys((1, 2, 3), 998.0)


def test_a_node_that_does_not_say_how_often_a_rank_slept_afterwards() -> None:
    assert 0 not in stood_since(changed(before(), process(switches_after=-1), look=1), later())


def test_a_clock_that_was_set_forward_makes_nothing_longer() -> None:
    now = later()
    for sample in now.samples:
        sample.dumps = {rank: replace(dump, at=dump.at + 86_400) for rank, dump in sample.dumps.items()}
    assert stood_since(before(), now) == dict.fromkeys(range(4), 998.0)


def test_a_rank_on_another_node_or_new_or_without_a_look() -> None:
    now = later()
    now.ranks[0] = replace(now.ranks[0], node="gpu9")
    was = before()
    del was.ranks[3]
    for sample in was.samples:
        del sample.dumps[3]
    assert stood_since(was, now) == {1: 998.0, 2: 998.0}
    assert stood_since(Snapshot("none", ""), now) == {}
    assert stood_since(was, replace(now, samples=[Sample(1009.0)])) == {}


def test_the_closer_look_of_the_one_before_is_no_run_of_the_rank() -> None:
    was = before()
    was.closer[0] = process(switches=52, switches_after=53)(was.samples[-1].dumps[0])
    found = stood_since(was, changed(later(), process(switches=53)))
    assert found == dict.fromkeys(range(4), 998.0)


def test_who_moves_now_has_not_stood_whatever_was_before() -> None:
    now = later()
    changed(now, process(main_cpu_s=100.9, switches=90), look=1)
    for rank in (2, 3):
        now.samples[1].dumps[rank] = process(main_cpu_s=100.9, switches=90)(now.samples[1].dumps[rank])
    now.stood = stood_since(before(), now)
    assert verdict(now).certainty != "sure"
