"""Verdicts on what is known beside stacks, each with the healthy job that looks like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cockpit.base.stacks.dump import Deputy, Dump, Frame, LockFile, Thread
from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of
from cockpit.core.stacks.collectives import Collectives, Mismatch, Transfer, Variant, Wait
from cockpit.core.stacks.progress import Done, Progress, SlowRank
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.verdict import standstill, verdict, wanted
from tests.core.test_verdict import (
    ALL_REDUCE,
    BUILD,
    C10D,
    COMPUTES,
    LOGGED,
    MAIN,
    RENDEZVOUS,
    USER,
    Told,
    collective,
    dump,
    named,
    snapshot,
    steps,
    still,
)

SLEEPS = still(USER, call="clock_nanosleep")
BUILDS = (
    *MAIN,
    Frame("load", "torch/utils/cpp_extension.py", 1681),
    Frame("_run_ninja_build", "torch/utils/cpp_extension.py", 2000),
    Frame("run", "python/subprocess.py", 500),
)


def progress(age_s: float, *slow: SlowRank, usual_s: float | None = 0.5, world: int = 4) -> Progress:
    """Every rank made its 20th step so many seconds before the last sample."""
    ranks = {rank: Done(20, 1001.0 - age_s) for rank in range(world)}
    return Progress(1001.0, usual_s, True, ranks, slow)


def knowing(taken: Snapshot, age_s: float, *slow: SlowRank, usual_s: float | None = 0.5) -> Snapshot:
    """The same where steps are known."""
    return replace(taken, progress=progress(age_s, *slow, usual_s=usual_s, world=len(taken.ranks)))


def recorders(*waits: Wait, missing: int = 0, heard: int = 0b1111, **more: object) -> Collectives:
    """What the recorders of four ranks say."""
    return Collectives(1001.0, heard, missing, waits, **more)  # type: ignore[arg-type]


def wait(going: int, absent: int, number: int = 1812, *, group: str = "all ranks (group 0)") -> Wait:
    """A collective that some wait in."""
    return Wait(group, group, number, "all_reduce", "all_reduce of 8 Float", going, absent, 0, 52.0)


def polling(frames: Sequence[Frame], **facts: object) -> Told:
    """It is at the same place, wakes up ten times a second and does nothing."""

    def told(look: int) -> Dump:
        found = dump(look, frames, call="clock_nanosleep", idle_s=0.05)
        assert found.process is not None
        process = found.process._replace(switches=50 + 10 * look, switches_after=50 + 10 * look)
        return replace(found, process=process, **facts)  # type: ignore[arg-type]

    return told


# Steps


def test_while_steps_go_on_nobody_hangs() -> None:
    sleeper = snapshot(4, still(ALL_REDUCE), {1: SLEEPS})
    assert named(verdict(sleeper), "absent", 1, certainty="sure")
    found = verdict(knowing(sleeper, 0.6))
    assert "steps go on: step 20, 0.6 s ago" in named(found, "moving", certainty="sure")
    assert found.severity == "info"
    late = verdict(knowing(sleeper, 52.0))
    assert "for 52 s" in named(late, "absent", 1, certainty="sure")
    assert late.since == 949.0


def test_a_slow_rank_is_named_with_its_work_and_never_surely() -> None:
    taken = snapshot(16, still(ALL_REDUCE), {13: SLEEPS})
    found = verdict(knowing(taken, 0.2, SlowRank(13, 1.5, 0.5, 0.66), usual_s=1.5))
    named(found, "slow", 13, certainty="likely")
    assert found.what == ("rank 13 is slow: work 1.5 s a step against 0.5; the others wait 66% of the time")
    assert (found.where, found.severity, found.since) == ("data.py:118 read_shard", "warning", None)
    named(verdict(knowing(taken, 0.2)), "moving", certainty="sure")
    # Once no step is made any more, it is no matter of being slow.
    named(verdict(knowing(taken, 60, SlowRank(13, 1.5, 0.5, 0.66))), "absent", 13, certainty="sure")


def test_where_nobody_knows_of_steps_a_short_wait_is_never_sure() -> None:
    taken = snapshot(4, still(ALL_REDUCE, idle_s=1.5), {1: still(USER, idle_s=1.5)})
    assert "a step may just be slow" in named(verdict(taken), "lock", 1, certainty="likely")
    # Nor where the kernel does not say how long they have slept.
    unknown = snapshot(4, still(ALL_REDUCE, idle_s=-1.0), {1: still(USER, idle_s=-1.0)})
    named(verdict(unknown), "lock", 1, certainty="likely")
    taken.collectives = recorders(wait(0b1101, 0b0010), missing=0b0010)
    named(verdict(taken), "lock", 1, certainty="sure")


def test_a_stopped_rank_is_that_even_if_a_step_was_just_made() -> None:
    taken = snapshot(4, still(ALL_REDUCE), {1: still(USER, state="T", call="")})
    named(verdict(knowing(taken, 0.1)), "stopped", 1, certainty="likely")


def test_all_ranks_in_one_loop() -> None:
    def loops(look: int) -> Dump:
        return replace(
            dump(look, (*MAIN, Frame("spin", "./train.py", 40 + look)), moves=True, active=True),
            loop="while not ready:",
        )

    taken = snapshot(4, loops)
    found = verdict(knowing(taken, 52.0))
    words = named(found, "loop", 0, 1, 2, 3, certainty="likely")
    assert "while not ready:" in words
    assert "spin" in found.where
    named(verdict(knowing(taken, 0.5)), "moving", certainty="sure")
    named(verdict(taken), "moving", certainty="sure")


# Movement


def test_polling_is_waiting() -> None:
    frames = (*MAIN, Frame("wait_for", "./train.py", 90))
    loop = {"loop": "while not work.is_completed():"}
    asks = polling(frames, **loop)
    found = verdict(knowing(snapshot(4, asks, {2: SLEEPS}), 52.0))
    assert "Work.is_completed" in named(found, "absent", 2, certainty="sure")
    # One that polls is held up by itself, as one that is frozen.
    found = verdict(knowing(snapshot(4, still(ALL_REDUCE), {2: polling(frames)}), 52.0))
    named(found, "absent", 2, certainty="sure")
    moving = verdict(knowing(snapshot(4, still(ALL_REDUCE), {2: still(frames, moves=True)}), 52.0))
    named(moving, "absent", 2, certainty="likely")


def test_whether_a_job_stands_still() -> None:
    frames = (*MAIN, Frame("wait_for", "./train.py", 90))
    found = standstill(snapshot(4, still(ALL_REDUCE), {2: polling(frames)}))
    assert (found.frozen, found.polling, found.moving, found.proven) == (0b1011, 0b0100, 0, True)
    assert found.since == 948.0
    moves = snapshot(4, still(ALL_REDUCE), {2: still(COMPUTES, moves=True)})
    assert (standstill(moves).moving, standstill(moves).proven) == (0b0100, False)
    named_by_recorder = replace(moves, collectives=recorders(wait(0b1011, 0b0100), missing=0b0100))
    assert (standstill(named_by_recorder).missing, standstill(named_by_recorder).proven) == (0b0100, True)
    assert not standstill(knowing(named_by_recorder, 0.5)).proven
    assert not standstill(snapshot(4, still(ALL_REDUCE), looks=1)).proven


def test_what_works_for_the_main_thread_is_judged() -> None:
    def delegates(frames: Sequence[Frame], call: str) -> Told:
        def told(look: int) -> Dump:
            join = (*MAIN, Frame("Thread.join", "python/threading.py", 1119))
            found, inner = dump(look, join), dump(look, frames, call=call).process
            assert inner is not None
            thread = Thread("trainer", 7, False, False, tuple(frames))
            return replace(found, deputy=Deputy("thread", thread, inner))

        return told

    waits, sleeps = delegates(ALL_REDUCE, "futex"), delegates(USER, "clock_nanosleep")
    named(verdict(snapshot(4, waits, {2: sleeps})), "absent", 2, certainty="sure")
    assert verdict(snapshot(4, waits)).id == "together"


# Builds and locks


def test_who_builds_is_told_from_who_waits_for_that() -> None:
    waits, builds = polling(BUILD), still(BUILDS, call="poll")
    found = verdict(snapshot(4, waits, {2: builds}))
    assert "rank 2 builds an extension, 3 ranks wait for it" in named(found, "build", 2, certainty="likely")
    nobody = verdict(snapshot(4, waits))
    assert "no rank does" in named(nobody, "build", 0, 1, 2, 3, certainty="likely")


@pytest.mark.parametrize(("holder", "certainty"), [(0, "sure"), (77, "likely")])
def test_a_lock_that_nobody_holds_is_named_with_what_to_type(holder: int, certainty: str) -> None:
    lock = LockFile("/home/me/.cache/x/lock", 10_000, holder, "python3" * bool(holder))
    found = verdict(knowing(snapshot(4, polling(BUILD, lock=lock)), 52.0))
    assert found.id == "build"
    removes = [step for step in steps(found) if "rm /home/me/.cache/x/lock" in step]
    assert bool(removes) == (not holder)
    mine = (*MAIN, Frame("FileLock.acquire", "filelock/_api.py", 300))
    found = verdict(knowing(snapshot(4, polling(mine, lock=lock)), 52.0))
    words = named(found, "lock", 0, 1, 2, 3, certainty=certainty)
    assert ("nobody holds" in words) == (not holder)
    assert ("process 77 (python3)" in words) == bool(holder)


# All at one place


def test_all_in_one_file_is_an_answer_and_a_server_that_nobody_asks_is_not() -> None:
    reads = still(USER, call="read", target="/data/7.bin")
    found = verdict(snapshot(4, reads))
    assert "reads /data/7.bin" in named(found, "io", 0, 1, 2, 3, certainty="likely")
    events = (*MAIN, Frame("run", "python/asyncio/runners.py", 1), Frame("select", "python/selectors.py", 1))
    for idle in (still(events, call="epoll_wait"), still(USER, call="accept4", target="listening socket")):
        accused = verdict(snapshot(4, still(ALL_REDUCE), {0: idle}))
        assert (accused.certainty, accused.severity) == ("unsure", "warning"), accused
        served = verdict(snapshot(4, idle))
        assert (served.id, served.ranks) == ("unknown", 0), served


def test_most_in_one_wait_of_a_library_that_no_rule_knows() -> None:
    library = (*MAIN, Frame("synchronize", "horovod/torch/mpi_ops.py", 1))
    taken = snapshot(4, still(library), {2: SLEEPS})
    named(verdict(taken), "absent", 2, certainty="likely")
    assert wanted(taken) == {0: "native"}
    native = (*library, Frame("c10d::ProcessGroupNCCL::allreduce", "libtorch.so", 0, True))
    taken.closer[0] = replace(dump(1, native), rank=0)
    assert wanted(taken) == {}
    assert "all_reduce" in named(verdict(taken), "absent", 2, certainty="sure")
    # What it does elsewhere by then says nothing about the samples.
    taken.closer[0] = replace(dump(1, (*MAIN, *native[1:])), rank=0)
    named(verdict(taken), "absent", 2, certainty="likely")
    assert wanted(snapshot(4, still(library, moves=True), {2: SLEEPS})) == {}


# Recorders


def test_the_recorder_names_who_is_missing_in_what() -> None:
    taken = snapshot(4, still(ALL_REDUCE), {2: SLEEPS, 3: still(RENDEZVOUS)})
    taken.collectives = recorders(wait(0b0011, 0b1100), wait(0b1000, 0b0100, 9, group="g"), missing=0b0100)
    found = verdict(taken)
    words = named(found, "absent", 2, certainty="sure")
    assert found.what == "rank 2 did not join all_reduce"
    assert "all_reduce number 1,812 of all ranks (group 0): ranks 0-1 have waited 52.0 s" in words
    moving = snapshot(4, still(ALL_REDUCE), {2: still(COMPUTES, moves=True)})
    moving.collectives = recorders(wait(0b1011, 0b0100), missing=0b0100)
    assert "has not come to" in named(verdict(moving), "absent", 2, certainty="likely")
    named(verdict(knowing(moving, 0.4)), "moving", certainty="sure")


def test_what_a_recorder_said_before_is_over_once_the_rank_waits_too() -> None:
    taken = snapshot(4, still(ALL_REDUCE))
    taken.collectives = recorders(wait(0b1011, 0b0100), missing=0b0100)
    assert verdict(taken).id == "together"


def test_collectives_in_different_orders() -> None:
    taken = snapshot(4, still(ALL_REDUCE))
    taken.collectives = recorders(wait(0b0111, 0b1000, 20, group="a"), wait(0b1000, 0b0111, 9, group="b"))
    assert "different orders" in named(verdict(taken), "order", 3, certainty="sure")
    # Groups that have nothing to do with each other.
    taken.collectives = recorders(wait(0b0001, 0b0010, 20, group="a"), wait(0b0100, 0b1000, 9, group="b"))
    assert verdict(taken).id != "order"
    taken.collectives = recorders(wait(0b0111, 0b1000, 20, group="a"), wait(0b1000, 0b0111, 9, group="b"))
    named(verdict(knowing(taken, 0.1)), "moving", certainty="sure")


def test_different_calls_under_one_number() -> None:
    taken = snapshot(4, still(ALL_REDUCE), {3: still(collective("broadcast", 300))})
    calls = (Variant(0b0111, "all_reduce of 10 Float"), Variant(0b1000, "broadcast of 10 Float"))
    taken.collectives = recorders(mismatches=(Mismatch("all ranks", 20, "operation", calls),))
    assert "number 20 of all ranks" in named(verdict(taken), "mismatch", 3, certainty="sure")
    over = replace(taken.collectives.mismatches[0], going=False)
    taken.collectives = recorders(mismatches=(over,))
    named(verdict(taken), "mismatch", 3, certainty="likely")


RECV = (*MAIN, LOGGED, Frame("recv", C10D, 2000))
SEND = (*MAIN, LOGGED, Frame("send", C10D, 2000))


def with_peers(taken: Snapshot, **peers: tuple[str, int]) -> Snapshot:
    """Variables of the calls of some ranks: ``r0=("src", 1)``."""
    for key, (name, peer) in peers.items():
        rank = int(key[1:])
        frames = taken.stack(rank)
        names = tuple({name: str(peer)} if frame in (RECV[-1], SEND[-1]) else {} for frame in frames)
        thread = Thread("MainThread", 1, False, False, frames, names)
        taken.closer[rank] = Dump(rank, 1001.0, threads=(thread,))
    return taken


def test_receives_in_a_circle() -> None:
    taken = snapshot(4, still(RECV))
    assert wanted(taken) == dict.fromkeys(range(4), "locals")
    with_peers(taken, r0=("src", 1), r1=("src", 2), r2=("src", 3), r3=("src", 0))
    assert "0 receives from 1" in named(verdict(taken), "order", 0, 1, 2, 3, certainty="sure")
    taken.closer.clear()
    taken.collectives = recorders(transfers=tuple(Transfer(r, (r + 1) % 4, False) for r in range(4)))
    assert wanted(taken) == {}
    named(verdict(taken), "order", 0, 1, 2, 3, certainty="sure")


def test_a_wrong_source() -> None:
    taken = snapshot(4, still(RECV), {0: still(SEND), 1: still(SEND)})
    with_peers(taken, r0=("dst", 2), r1=("dst", 3), r2=("src", 0), r3=("src", 0))
    found = verdict(taken)
    assert "rank 3 receives from rank 0, which sends to rank 2" in named(
        found, "mismatch", 3, certainty="likely"
    )
    # A pipeline: everybody waits for who comes before, and that one computes.
    taken = snapshot(4, still(RECV), {0: still(COMPUTES, moves=True)})
    with_peers(taken, r1=("src", 0), r2=("src", 1), r3=("src", 2))
    assert verdict(taken).certainty != "sure"


# Ends


def test_a_recorded_exit_beats_that_others_have_not_moved() -> None:
    store = still(USER, call="poll", target="socket")
    found = verdict(snapshot(4, store, why={1: "exited 0"}))
    named(found, "exited", 1, certainty="likely")
    named(
        verdict(snapshot(4, still(COMPUTES, moves=True), why={1: "exited 0"})), "moving", certainty="likely"
    )
    found = verdict(snapshot(4, store, why={1: "exited 3"}))
    named(found, "ended", 1, certainty="sure")


def test_the_first_of_several_that_ended_is_the_one() -> None:
    taken = snapshot(4, still(ALL_REDUCE), why={1: "exited 1", 2: "killed by SIGABRT"})
    named(verdict(taken), "ended", 1, 2, certainty="likely")
    for rank, at in ((1, 930.0), (2, 925.0)):
        taken.ranks[rank] = replace(taken.ranks[rank], ended_at=at)
    assert "rank 1 exited 1" in named(verdict(taken), "ended", 2, certainty="sure")


def test_two_processes_with_one_rank() -> None:
    taken = snapshot(4, still(RENDEZVOUS))
    taken.problems = ("rank 2 is there twice: process 7 on a is taken, not process 9 on b",)
    assert "process 9 on b" in named(verdict(taken), "twice", 2, certainty="likely")
    moving = replace(snapshot(4, still(COMPUTES, moves=True)), problems=taken.problems)
    found = verdict(moving)
    assert (found.id, found.ranks, found.certainty) == ("moving", 0, "likely")


# The names of waits


def waits_in(frames: Sequence[Frame], **facts: object) -> Finding:
    """All but rank 1 are there, and it sleeps."""
    call = facts.pop("call", "futex")

    def told(look: int) -> Dump:
        return replace(dump(look, frames, call=call), **facts)  # type: ignore[arg-type]

    return verdict(snapshot(4, told, {1: SLEEPS}))


ZERO = "deepspeed/runtime/zero/"


@pytest.mark.parametrize(
    ("frames", "facts", "what"),
    [
        (
            (*MAIN, Frame("AllGatherCoalescedHandle.wait", f"{ZERO}partition_parameters.py", 100)),
            {},
            "fetch_sub_module",
        ),
        (
            (*MAIN, Frame("X.fetch_sub_module", f"{ZERO}partitioned_param_coordinator.py", 300)),
            {},
            "fetch_sub_module",
        ),
        ((*MAIN, LOGGED, Frame("new_group", C10D, 5000)), {}, "new_group"),
        ((*MAIN, Frame("f", "./train.py", 7)), {"call": "poll", "source": "store.get('x')"}, "store.get"),
        (
            (*MAIN, Frame("f", "./train.py", 7)),
            {"call": "clock_nanosleep", "loop": "while not work.is_completed():"},
            "Work.is_completed",
        ),
    ],
)
def test_waits_for_others_have_names(frames: tuple[Frame, ...], facts: dict[str, object], what: str) -> None:
    found = waits_in(frames, **facts)
    assert (found.id, found.ranks) == ("absent", mask_of([1]))
    assert f"3 ranks in {what}" in found.evidence[0]


def test_who_computes_with_fetched_parameters_does_not_wait() -> None:
    inside = (*MAIN, Frame("X.fetch_sub_module", f"{ZERO}partitioned_param_coordinator.py", 300))
    found = verdict(snapshot(4, still(inside, moves=True, active=True)))
    named(found, "moving", certainty="sure")


def test_the_one_that_differs_from_equal_others_is_named() -> None:
    joins = (*MAIN, Frame("Meeting.join", "./train.py", 75))
    receives = still(joins, call="recvfrom", target="socket")
    polls = polling(joins)
    for waits in (receives, polls):
        found = verdict(snapshot(4, waits, {2: SLEEPS}))
        assert "Meeting.join" in named(found, "absent", 2, certainty="likely")
        alone = verdict(snapshot(4, waits))
        assert (alone.ranks, alone.certainty) == (0, "unsure"), alone
    found = verdict(snapshot(4, polls, {2: still(COMPUTES, moves=True)}))
    assert (found.severity, found.certainty) == ("warning", "likely"), found
