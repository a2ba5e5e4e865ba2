"""Who waits for whom, as a graph: chains, circles, groups at first use, exits."""

from __future__ import annotations

from dataclasses import replace

from cockpit.base.stacks.dump import Frame
from cockpit.core.stacks.verdict import verdict
from tests.core.test_verdict import ALL_REDUCE, USER, collective, named, snapshot, still
from tests.core.test_verdict_facts import RECV, SEND, SLEEPS, recorders, wait, with_peers

STORE = (*USER, Frame("c10d::TCPStore::doWait(c10d::ArrayRef)", "libtorch_cpu.so", 0, True))


def test_the_end_of_a_chain_is_named_and_nobody_on_the_way() -> None:
    # A pipeline: each receives from the next, and the last one is in its own code.
    taken = snapshot(4, still(RECV), {3: SLEEPS})
    with_peers(taken, r0=("src", 1), r1=("src", 2), r2=("src", 3))
    named(verdict(taken), "absent", 3, certainty="sure")
    # Two replicas of two stages: ranks 0 and 2 wait for ranks 1 and 3, and rank 1 for rank 3.
    taken = snapshot(4, still(ALL_REDUCE), {1: still(SEND), 3: SLEEPS})
    taken.collectives = recorders(
        wait(0b0001, 0b0010, 17, group="a"), wait(0b0100, 0b1000, 17, group="b"), missing=0b1010
    )
    with_peers(taken, r1=("dst", 3))
    assert "rank 3 did not join all_reduce" in named(verdict(taken), "absent", 3, certainty="sure")


def test_groups_at_first_use_are_no_circle_while_somebody_is_in_its_own_code() -> None:
    lone = [replace(wait(1 << rank, 0, 1, group=f"g{rank}"), lone=True) for rank in (0, 2, 3)]
    taken = snapshot(4, still(ALL_REDUCE), {1: SLEEPS})
    taken.collectives = recorders(*lone)
    named(verdict(taken), "absent", 1, certainty="sure")


def test_of_a_circle_in_a_mesh_the_one_in_the_rarest_call_is_named() -> None:
    barrier = still(collective("barrier", 102))
    taken = snapshot(4, still(ALL_REDUCE), {2: barrier})
    taken.collectives = recorders(
        wait(0b0010, 0b1000, 16, group="7"),
        replace(wait(0b0100, 0, 1, group="1"), lone=True),
        wait(0b1000, 0b0100, 16, group="5"),
        wait(0b0001, 0b0100, 16, group="6"),
    )
    named(verdict(taken), "order", 2, certainty="sure")


def test_who_only_waits_for_a_circle_is_not_in_it() -> None:
    taken = snapshot(4, still(RECV))
    with_peers(taken, r0=("src", 1), r1=("src", 2), r2=("src", 1), r3=("src", 2))
    # Of two that receive from each other one may be right.
    named(verdict(taken), "order", 1, 2, certainty="likely")


def test_who_exits_0_comes_after_who_is_here_and_stands_still() -> None:
    store = still(STORE)
    named(
        verdict(snapshot(4, store, {1: SLEEPS}, why={2: "exited 0", 3: "exited 0"})),
        "absent",
        1,
        certainty="likely",
    )
    # Nobody waits, and one has not left.
    found = verdict(snapshot(4, SLEEPS, why=dict.fromkeys((0, 1, 3), "exited 0")))
    assert "rank 2 has not ended: the others exited 0" in named(found, "absent", 2, certainty="likely")
    # Whose key it waits for is not known.
    found = verdict(snapshot(4, store, why=dict.fromkeys((1, 2, 3), "exited 0")))
    named(found, "exited", certainty="unsure")
    assert verdict(snapshot(2, store, why={1: "exited 0"})).ranks == 0b10
