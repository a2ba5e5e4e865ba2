"""Verdicts on what is known beside stacks, each with the healthy job that looks like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from cockpit.base.stacks.dump import Child, Deputy, Dump, Frame, LockFile, Thread, Unanswered
from cockpit.base.stacks.kinds import of_dump
from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of
from cockpit.core.stacks.collectives import Collectives, Mismatch, Transfer, Variant, Wait
from cockpit.core.stacks.progress import Done, Progress, SlowRank
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.verdict import standstill, verdict, wanted
from tests.core.fates import end
from tests.core.test_verdict import (
    ALL_REDUCE,
    BROADCAST,
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
    mute,
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


def test_ranks_that_do_the_same_at_one_place_are_in_one_fact() -> None:
    deeper = (*USER[:1], Frame("outer", "./train.py", 20), *USER[1:])
    sleep = still(USER, call="clock_nanosleep")
    found = verdict(knowing(snapshot(4, sleep, {1: still(deeper, call="clock_nanosleep")}), 0.2))
    assert [fact for fact in found.evidence if "data.py" in fact] == [
        "ranks 0-3: sleep at data.py:118 read_shard"
    ]


def test_while_steps_go_on_nobody_hangs() -> None:
    sleeper = snapshot(4, still(ALL_REDUCE), {1: SLEEPS})
    assert named(verdict(sleeper), "absent", 1, certainty="sure")
    found = verdict(knowing(sleeper, 0.6))
    assert named(found, "moving", certainty="likely").count("step 20, 0.6 s ago") == 1
    assert found.severity == "info"
    late = verdict(knowing(sleeper, 52.0))
    assert "for 52 s" in named(late, "absent", 1, certainty="sure")
    assert late.since == 949.0


def test_a_slow_rank_is_named_with_its_work_and_never_surely() -> None:
    taken = snapshot(16, still(ALL_REDUCE), {13: SLEEPS})
    found = verdict(knowing(taken, 0.2, SlowRank(13, 1.5, 0.5, 0.66), usual_s=1.5))
    named(found, "slow", 13, certainty="likely")
    assert found.what == (
        "rank 13 is slow: work 1.5 s per step against 0.5; the others wait 66 % of the time"
    )
    assert (found.where, found.severity, found.since) == ("data.py:118 read_shard", "warning", None)
    assert found.evidence == ("step 20, 0.2 s ago", "rank 13: sleeps")
    named(verdict(knowing(taken, 0.2)), "moving", certainty="likely")
    known = SlowRank(13, 1.5, 0.5, 0.66, why="input 1.02 s, others 0.05 s")
    said = verdict(knowing(taken, 0.2, known, usual_s=1.5)).what
    assert "1.5 s per step against 0.5 (input 1.02 s, others 0.05 s); the others wait" in said
    # Once no step is made any more, it is no matter of being slow.
    named(verdict(knowing(taken, 60, SlowRank(13, 1.5, 0.5, 0.66))), "absent", 13, certainty="sure")


def test_a_slow_rank_is_where_it_was_when_the_others_waited() -> None:
    def between(look: int) -> Dump:
        return dump(look, (USER if look else COMPUTES), moves=True)

    def behind(look: int) -> Dump:
        return dump(look, (COMPUTES if look else USER), moves=True)

    def trains(look: int) -> Dump:
        return dump(look, (COMPUTES if look else ALL_REDUCE), moves=True)

    told = SlowRank(1, 1.5, 0.5, 0.66)
    for odd in (still(USER), behind):
        found = verdict(knowing(snapshot(4, trains, {1: odd}), 0.2, told, usual_s=1.5))
        assert found.where == "data.py:118 read_shard"
    # In no sample the others waited for it: where it is now.
    found = verdict(knowing(snapshot(4, still(COMPUTES), {1: between}), 0.2, told, usual_s=1.5))
    assert found.where == "data.py:118 read_shard"


def test_a_rank_that_was_slow_in_few_steps_may_be_slow() -> None:
    taken = snapshot(4, still(ALL_REDUCE), {1: SLEEPS})
    found = verdict(knowing(taken, 0.2, SlowRank(1, 3.0, 0.5, 0.8, steps=2), usual_s=0.5))
    named(found, "slow", 1, certainty="unsure")
    assert found.what.startswith("rank 1 may be slow: work 3 s per step against 0.5; ")
    assert "known for the last 2 steps only: ask again after some more" in found.evidence
    assert found.severity == "warning"


def test_one_that_is_slow_in_each_step_is_never_surely_to_blame_while_it_takes_no_longer() -> None:
    taken = snapshot(4, still(ALL_REDUCE, idle_s=2.5), {1: still(USER, call="clock_nanosleep", idle_s=2.5)})
    for age_s, longest_s, certainty in (
        (3.0, 0.5, "likely"),
        (5, 0.5, "sure"),
        (5, 4, "likely"),
        (7, 4, "sure"),
    ):
        told = knowing(taken, age_s)
        assert told.progress is not None
        told.progress = replace(told.progress, longest_s=longest_s)
        named(verdict(told), "absent", 1, certainty=certainty)


def test_a_group_that_stands_still_is_named_while_others_make_steps() -> None:
    def trains(look: int) -> Dump:
        return dump(look, ALL_REDUCE, moves=True)

    taken = knowing(snapshot(4, trains, {0: still(ALL_REDUCE), 1: SLEEPS}), 0.3)
    assert taken.progress is not None
    named(verdict(taken), "moving", certainty="likely")
    late = {rank: Done(12, 940.0) for rank in (0, 1)}
    taken.progress = replace(taken.progress, ranks={**taken.progress.ranks, **late})
    words = named(verdict(taken), "absent", 1, certainty="likely")
    assert "rank 1 did not join all_reduce, while 2 ranks make progress" in words
    assert verdict(taken).severity == "error"
    # One that has nothing to do any more keeps nobody waiting; and a step that is late may yet come.
    alone = {1: Done(12, 940.0)}
    taken.progress = replace(taken.progress, ranks={**progress(0.3).ranks, **alone})
    named(verdict(taken), "moving", certainty="likely")
    soon = {rank: Done(19, 998.5) for rank in (0, 1)}
    taken.progress = replace(taken.progress, ranks={**progress(0.3).ranks, **soon})
    named(verdict(taken), "moving", certainty="likely")


def test_where_only_logs_tell_of_steps_it_is_their_sleep_that_tells_who_is_left_behind() -> None:
    def trains(look: int) -> Dump:
        return dump(look, ALL_REDUCE, moves=True)

    def pauses(look: int) -> Dump:
        # In both samples it happens to be there.
        return dump(look, USER, call="clock_nanosleep", idle_s=0.02)

    for slept_s, kind, rest in ((12.0, "lock", trains), (3.0, "moving", trains), (12.0, "lock", pauses)):
        odd = {0: still(ALL_REDUCE, idle_s=slept_s), 1: still(USER, idle_s=slept_s)}
        taken = knowing(snapshot(4, rest, odd), 0.3)
        assert taken.progress is not None
        taken.progress = replace(taken.progress, exact=False, ranks={3: Done(20, 1000.7)})
        found = verdict(taken)
        assert (found.id, found.certainty) == (kind, "likely"), found
        assert ("rank 1 did not join all_reduce, while 2 ranks make progress" in found.what) == (
            kind == "lock"
        )


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


def woken(
    frames: Sequence[Frame], call: str, wakes: int, moved: int = 0, target: str = ""
) -> Callable[[int], Dump]:
    """It is in one call at one place, is woken so often between two looks, and moves so many bytes."""

    def told(look: int) -> Dump:
        found = dump(look, frames, call=call, target=target)
        assert found.process is not None
        switches = 50 + wakes * look
        process = found.process._replace(
            switches=switches, switches_after=switches, io_bytes=5000 + moved * look
        )
        return replace(found, process=process)

    return told


@pytest.mark.parametrize(
    ("call", "wakes", "moved", "moves"),
    [
        ("read", 4, 0, False),  # others have looked
        ("read", 40, 0, False),  # nothing has come
        ("read", 4, 100, True),
        ("recvfrom", 4, 0, False),
        ("recvfrom", 30, 0, True),  # nobody counts what comes through a socket
        ("poll", 30, 0, False),
    ],
)
def test_who_is_woken_in_a_read_moves_only_if_something_comes(
    call: str, wakes: int, moved: int, moves: bool
) -> None:
    taken = snapshot(4, still(ALL_REDUCE), {1: woken(USER, call, wakes, moved, target="pipe")})
    assert bool(standstill(taken).moving & 0b10) == moves
    named(verdict(taken), "absent" if moves else "io", 1, certainty="likely" if moves else "sure")


def test_that_some_were_woken_at_a_barrier_of_the_programs_own_makes_them_no_others() -> None:
    barrier = (*MAIN, Frame("Meeting.barrier", "./meeting.py", 38))
    waits, again = (
        still(barrier, call="recvfrom", target="socket"),
        woken(barrier, "recvfrom", 4, 0, "socket"),
    )
    for odd in ({1: again, 2: again, 3: SLEEPS}, {0: again, 3: SLEEPS}):
        named(verdict(snapshot(4, waits, odd)), "absent", 3, certainty="likely")


def test_many_at_several_places_and_one_in_a_collective_are_no_culprits_for_sure() -> None:
    paused = still((*MAIN, Frame("train", "./train.py", 99)), call="clock_nanosleep")
    reads = still(USER, call="read", target="pipe")
    found = verdict(snapshot(4, paused, {0: reads, 1: still(ALL_REDUCE)}))
    assert (found.certainty, found.severity) == ("unsure", "warning"), found


def test_of_two_halves_the_one_that_waits_for_somebody_is_not_to_blame() -> None:
    barrier = (*MAIN, Frame("Meeting.barrier", "./meeting.py", 38))
    waits = still(barrier, call="recvfrom", target="socket")
    reads = still(USER, call="openat", target="/data/7.bin")
    named(verdict(snapshot(4, waits, {1: reads, 2: reads})), "io", 1, 2, certainty="likely")
    other = still(USER, call="recvfrom", target="socket")
    assert verdict(snapshot(4, waits, {1: other, 2: other})).ranks == 0


def test_while_those_who_wait_go_on_the_one_that_is_elsewhere_is_only_late() -> None:
    def goes_on(look: int) -> Dump:
        return dump(look, ALL_REDUCE if look else collective("all_reduce", 262), moves=True)

    def comes(look: int) -> Dump:
        return dump(look, ALL_REDUCE if look else COMPUTES, moves=True)

    waits = still(ALL_REDUCE)
    named(verdict(snapshot(4, waits, {0: comes, 2: SLEEPS})), "absent", 2, certainty="likely")
    taken = snapshot(4, waits, {0: goes_on, 2: SLEEPS})
    assert "rank 0 moved between the samples" in named(verdict(taken), "absent", 2, certainty="likely")
    assert verdict(taken).severity == "warning"
    taken.collectives = recorders(wait(0b1011, 0b0100), missing=0b0100)
    named(verdict(taken), "absent", 2, certainty="sure")


def below(call: str, frames: Sequence[Frame], used_s: float, moved: int = 0) -> Told:
    """It waits for a process below it that uses so much CPU time between two looks."""

    def told(look: int) -> Dump:
        found = dump(look, frames, call=call, children=(Child(7, "tar", "S"),))
        assert found.process is not None
        process = found.process._replace(below_s=3.0 + used_s * look, below_bytes=9000 + moved * look)
        return replace(found, process=process)

    return told


def test_who_waits_for_a_process_that_works_is_not_stuck() -> None:
    packs = (*MAIN, Frame("pack", "./train.py", 30))
    pool = (*packs, Frame("ApplyResult.get", "python/multiprocessing/pool.py", 768))
    busy = (
        below("wait4", packs, 0.6),
        below("wait4", packs, 0.0, 1 << 20),
        below("wait4", packs, -2.0),
        below("futex", pool, 0.6),
    )
    for works in busy:
        found = verdict(knowing(snapshot(4, still(ALL_REDUCE), {0: works}), 52.0))
        assert (found.ranks, found.certainty, found.severity) == (1, "likely", "warning"), found
    for stuck in (below("wait4", packs, 0.01), below("futex", pool, 0.0)):
        found = verdict(knowing(snapshot(4, still(ALL_REDUCE), {0: stuck}), 52.0))
        assert (found.ranks, found.certainty, found.severity) == (1, "sure", "error"), found
    joins = (
        *packs,
        Frame("join", "python/threading.py", 1112),
        Frame("_wait_for_tstate_lock", "python/threading.py", 1132),
    )
    runs = (Frame("run", "python/threading.py", 975), Frame("Popen.wait", "python/subprocess.py", 1264))
    for beside, certainty in ((runs, "likely"), (runs[:1], "sure")):

        def compiles(look: int, beside: tuple[Frame, ...] = beside) -> Dump:
            found = below("futex", joins, 0.6)(look)
            assert found is not None
            return replace(found, threads=(*found.threads, Thread("Thread-1", 9, False, False, beside)))

        found = verdict(knowing(snapshot(4, still(ALL_REDUCE), {0: compiles}), 52.0))
        assert (found.ranks, found.certainty) == (1, certainty), found
    # Workers that prepare the next batches say nothing about a rank that waits for other ranks, or sleeps.
    waits = below("futex", ALL_REDUCE, 0.6)
    sleeps = below("clock_nanosleep", USER, 0.6)
    named(verdict(snapshot(4, waits, {2: sleeps})), "absent", 2, certainty="sure")


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
    # Its own way to build is in the script: it is the one that does not wait.
    mine = still((*MAIN, Frame("compile_ops", "./train.py", 75)), call="wait4")
    named(verdict(snapshot(4, waits, {1: mine})), "build", 1, certainty="likely")
    nobody = verdict(snapshot(4, waits))
    assert "no rank is running" in named(nobody, "build", 0, 1, 2, 3, certainty="likely")
    # One that did not answer may be it.
    unheard = verdict(snapshot(4, waits, {1: mute("timeout", "py-spy took too long")}))
    assert "no rank does" not in named(unheard, "build", certainty="unsure")
    assert any("no answer from rank 1: py-spy took too long" in fact for fact in unheard.evidence)


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


def test_a_rank_that_has_the_lock_for_which_the_others_wait_is_named() -> None:
    mine = (*MAIN, Frame("FileLock.acquire", "filelock/_api.py", 300))
    lock = LockFile("/data/vocab.lock", 60, 41_001, "python3")
    reads = still(USER, call="read", target="pipe")
    found = verdict(knowing(snapshot(4, polling(mine, lock=lock), {1: reads}), 52.0))
    words = named(found, "lock", 1, certainty="likely")
    assert "rank 1 has the lock /data/vocab.lock, for which 3 ranks wait" in words
    assert found.where == "data.py:118 read_shard"


def test_who_does_not_make_the_group_that_most_make_is_named() -> None:
    group = still((*MAIN, LOGGED, Frame("new_group", C10D, 5000)))
    taken = knowing(snapshot(4, group, {3: still(ALL_REDUCE)}), 52.0)
    taken.collectives = recorders(wait(0b1000, 0b0111), missing=0b0111)
    assert verdict(taken).ranks == 0b1000
    half = knowing(snapshot(4, group, {1: still(ALL_REDUCE), 2: still(ALL_REDUCE)}), 52.0)
    half.collectives = recorders(wait(0b0110, 0b1001), missing=0b1001)
    assert not verdict(half).ranks & 0b1001, "who makes a group waits for those that do not"
    assert not standstill(half).missing


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


EVENTS = (*MAIN, Frame("serve", "./api.py", 9), Frame("run", "uvicorn/server.py", 67))


def test_that_somebody_woke_some_of_those_at_one_place_makes_them_no_others() -> None:
    def opens(rank: int, woken: bool) -> Told:
        def told(look: int) -> Dump:
            found = dump(look, USER, call="openat", target=f"/data/index-{rank}")
            assert found.process is not None
            ran = 50 + 4 * look * woken
            return replace(found, process=found.process._replace(switches=ran, switches_after=ran))

        return told

    found = verdict(snapshot(4, opens(0, False), {rank: opens(rank, rank > 1) for rank in range(4)}))
    assert found.what == "all 4 ranks: opens /data/index-0 and 3 more like it"
    named(found, "io", 0, 1, 2, 3, certainty="likely")


def test_whoever_may_only_have_no_requests_is_never_surely_to_blame() -> None:
    """What an idle server does is what a rank does that waits for an answer which never comes."""
    queue = (*MAIN, Frame("next_request", "./api.py", 12), Frame("Queue.get", "python/queue.py", 171))
    beside = Thread("http", 5, False, False, (*MAIN, Frame("serve_forever", "python/socketserver.py", 232)))
    idle = {
        "event loop": still(EVENTS, call="epoll_wait", target="socket"),
        "a line": still(USER, call="recvfrom", target="socket"),
        "a terminal": still(USER, call="read", target="/dev/pts/3"),
        "select": still(USER, call="select", target="listening socket, socket"),
        "a queue that another thread fills": still(queue, call="futex", threads=[beside]),
    }
    for name, told in idle.items():
        found = verdict(snapshot(4, still(ALL_REDUCE), {0: told}))
        assert (found.ranks, found.certainty, found.severity) == (1, "unsure", "warning"), name
    # Who has asked itself may have asked for something that takes long.
    asks = still((*USER, Frame("begin", "python/http/client.py", 318)), call="recvfrom", target="socket")
    named(verdict(snapshot(4, still(ALL_REDUCE), {0: asks})), "io", 0, certainty="likely")
    # A job that made steps, and makes none any more, serves nobody, unless it says so.
    for name in ("event loop", "a line", "a terminal"):
        found = verdict(knowing(snapshot(4, still(ALL_REDUCE), {0: idle[name]}), 52.0))
        named(found, "io", 0, certainty="sure")
    found = verdict(knowing(snapshot(4, still(ALL_REDUCE), {0: idle["select"]}), 52.0))
    named(found, "io", 0, certainty="unsure")


def test_who_waits_for_a_disk_is_never_surely_to_blame() -> None:
    flushes = still(USER, call="fsync", state="D", target="/ckpt/model.pt")
    found = verdict(knowing(snapshot(4, still(ALL_REDUCE), {0: flushes}), 52.0))
    assert "may just be slow" in named(found, "io", 0, certainty="likely")


@pytest.mark.parametrize(
    ("call", "source", "kind"),
    [
        ("poll", "", "together"),
        ("futex", "", "together"),
        ("poll", 'return dist.distributed_c10d._get_default_store().get("roles")', "together"),
    ],
)
def test_all_at_one_place_is_an_answer_that_names_it(call: str, source: str, kind: str) -> None:
    def told(look: int) -> Dump:
        return replace(dump(look, USER, call=call, target="socket" * (call == "poll")), source=source)

    found = verdict(snapshot(4, told))
    named(found, kind, certainty="unsure")
    assert found.where == "data.py:118 read_shard"

    # Who woke up there is at the same place: it is no other than the others.
    def wakes(look: int) -> Dump:
        return replace(woken(USER, "recvfrom", 30, target="socket")(look), source=source)

    assert not verdict(snapshot(4, told, {3: wakes})).ranks & 0b111


def test_all_in_c_from_their_own_code_are_looked_at_more_closely() -> None:
    taken = snapshot(4, still(USER, call="poll", target="socket"))
    assert wanted(taken) == {0: "native"}
    store = (*USER, Frame("c10d::TCPStore::doWait(c10d::ArrayRef)", "libtorch_cpu.so", 0, True))
    taken.closer[0] = replace(dump(1, store, call="poll", target="socket"), rank=0)
    assert named(verdict(taken), "together", certainty="unsure").startswith("all 4 ranks wait in store")
    assert wanted(snapshot(4, still((*USER, Frame("x", "h5py/x.py", 1)), call="poll"))) == {}
    # A name of a collective or of a group that is further out says more than the store.
    assert of_dump(dump(0, (*ALL_REDUCE, store[-1]))).what == "all_reduce"
    assert of_dump(dump(0, (*RENDEZVOUS, store[-1]))).kind == "rendezvous"


def test_a_program_that_is_at_its_end_and_cannot_leave_says_for_what_it_waits() -> None:
    def ends(look: int) -> Dump:
        found = dump(look, (Frame("_shutdown", "python/threading.py", 1590),))
        inner = dump(look, USER, call="recvfrom", target="socket").process
        assert inner is not None
        return replace(found, deputy=Deputy("thread", Thread("upload", 7, False, False, USER), inner))

    found = verdict(knowing(snapshot(4, still(ALL_REDUCE), {1: ends}), 52.0))
    words = named(found, "io", 1, certainty="sure")
    assert found.where == "data.py:118 read_shard"
    assert "Its main thread is at its end, and waits for thread upload: receives from a socket." in words


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
    assert "has not reached" in named(verdict(moving), "absent", 2, certainty="likely")
    named(verdict(knowing(moving, 0.4)), "moving", certainty="likely")


def test_what_a_recorder_said_before_is_over_once_the_rank_waits_too() -> None:
    taken = snapshot(4, still(ALL_REDUCE))
    taken.collectives = recorders(wait(0b1011, 0b0100), missing=0b0100)
    assert verdict(taken).id == "together"
    # In something else, it is not where they are: in a receive, which gloo's recorder does not have.
    exchange = (*MAIN, Frame("exchange", "./train.py", 68))

    def handle(look: int) -> Dump:
        return replace(dump(look, exchange), source="work.wait()")

    halves = snapshot(4, still(ALL_REDUCE), {0: handle, 3: handle})
    halves.collectives = recorders(wait(0b0110, 0b1001), missing=0b1001)
    words = named(verdict(halves), "absent", 0, 3, certainty="likely")
    assert "ranks 0,3 did not join all_reduce" in words


def test_collectives_in_different_orders() -> None:
    taken = snapshot(4, still(ALL_REDUCE))
    taken.collectives = recorders(wait(0b0111, 0b1000, 20, group="a"), wait(0b1000, 0b0111, 9, group="b"))
    assert "different orders" in named(verdict(taken), "order", 3, certainty="sure")
    # Gloo does not say who is in a group that is used for the first time.
    lone = [replace(wait(1 << rank, 0, 1, group=f"g{rank}"), lone=True) for rank in (0, 3)]
    taken.collectives = recorders(wait(0b0110, 0b1001, 20), *lone)
    named(verdict(taken), "order", 0, 3, certainty="sure")
    taken.collectives = recorders(lone[0])
    assert verdict(taken).id == "together"
    # All others wait in another such group: for that one, if for anybody.
    taken.collectives = recorders(wait(0b1110, 0, 1, group="g"), lone[0])
    words = named(verdict(taken), "order", 0, certainty="likely")
    assert "rank 0 and ranks 1-3 call collectives in different orders" in words
    taken.collectives = recorders(wait(0b0110, 0, 1, group="g"), lone[0])
    assert verdict(taken).id == "together"
    # After hours the recorders of the others no longer know whether they ever entered its group.
    forgotten = replace(wait(0b1000, 0, 1), unknown=0b0111)
    taken.collectives = recorders(wait(0b0111, 0b1000, 2273, group="g"), forgotten)
    named(verdict(taken), "order", 3, certainty="sure")
    taken.collectives = recorders(wait(0b0011, 0b1000, 2273, group="g"), forgotten)
    assert verdict(taken).id != "order"  # it may well wait for rank 2
    # Groups that have nothing to do with each other.
    taken.collectives = recorders(wait(0b0001, 0b0010, 20, group="a"), wait(0b0100, 0b1000, 9, group="b"))
    assert verdict(taken).id != "order"
    taken.collectives = recorders(wait(0b0111, 0b1000, 20, group="a"), wait(0b1000, 0b0111, 9, group="b"))
    named(verdict(knowing(taken, 0.1)), "moving", certainty="likely")


def test_different_calls_under_one_number() -> None:
    taken = snapshot(4, still(ALL_REDUCE), {3: still(collective("broadcast", 300))})
    calls = (Variant(0b0111, "all_reduce of 10 Float"), Variant(0b1000, "broadcast of 10 Float"))
    taken.collectives = recorders(mismatches=(Mismatch("all ranks", 20, "operation", calls),))
    assert "number 20 of all ranks" in named(verdict(taken), "mismatch", 3, certainty="sure")
    over = replace(taken.collectives.mismatches[0], going=False)
    taken.collectives = recorders(mismatches=(over,))
    named(verdict(taken), "mismatch", 3, certainty="likely")


def test_a_rank_that_failed_as_another_one_called_something_else() -> None:
    calls = (Variant(0b0011, "all_reduce of 1,000 Float"), Variant(0b1000, "all_reduce of 1,000 Double"))
    differs = Mismatch("all ranks (group 0)", 6, "type", calls, going=False, last=True)
    taken = snapshot(4, still(ALL_REDUCE), {2: mute("gone")}, why={2: "killed by SIGABRT"})
    named(verdict(taken), "ended", 2, certainty="sure")
    taken.collectives = recorders(mismatches=(differs,), heard=0b1011)
    found = verdict(taken)
    words = named(found, "ended", 2, 3, certainty="likely")
    assert found.what == (
        "rank 2 was killed by SIGABRT: rank 3 called all_reduce of 1,000 Double, "
        "2 ranks all_reduce of 1,000 Float"
    )
    assert "number 6 of all ranks (group 0): all_reduce of 1,000 Float (ranks 0-1)" in words
    # The group got over it, or somebody else ended the rank.
    taken.collectives = recorders(mismatches=(replace(differs, last=False),), heard=0b1011)
    named(verdict(taken), "ended", 2, certainty="sure")
    killed = snapshot(4, still(ALL_REDUCE), {2: mute("gone")}, why={2: "killed by SIGKILL"})
    killed.collectives = recorders(mismatches=(differs,), heard=0b1011)
    named(verdict(killed), "ended", 2, certainty="sure")


RECV = (*MAIN, LOGGED, Frame("recv", C10D, 2000))
SEND = (*MAIN, LOGGED, Frame("send", C10D, 2000))


def with_peers(taken: Snapshot, **peers: tuple[str, int]) -> Snapshot:
    """Variables of the calls of some ranks: ``r0=("src", 1)``."""
    for key, (name, peer) in peers.items():
        rank = int(key[1:])
        frames = taken.stack(rank)
        calls = (RECV[-1], SEND[-1], BROADCAST[-1])
        names = tuple({name: str(peer)} if frame in calls else {} for frame in frames)
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
    named(verdict(taken), "mismatch", certainty="unsure")  # rank 0 and rank 2 may be as late as rank 3
    taken = snapshot(4, still(ALL_REDUCE), {3: still(RECV)})
    with_peers(taken, r3=("src", 1))
    named(verdict(taken), "mismatch", 3, certainty="likely")
    # A pipeline: everybody waits for who comes before, and that one computes.
    taken = snapshot(4, still(RECV), {0: still(COMPUTES, moves=True)})
    with_peers(taken, r1=("src", 0), r2=("src", 1), r3=("src", 2))
    assert verdict(taken).certainty != "sure"


def test_who_names_another_root_than_the_others() -> None:
    # What it waits for never comes; nor does it take what the root sends.
    taken = snapshot(4, still(ALL_REDUCE), {0: still(BROADCAST), 2: still(BROADCAST)})
    assert wanted(taken) == dict.fromkeys((0, 2), "locals")
    named(verdict(taken), "mismatch", certainty="unsure")
    with_peers(taken, r0=("src", 0), r2=("src", 3))
    words = named(verdict(taken), "mismatch", 2, certainty="unsure")
    assert "rank 2 names rank 3 as the root of broadcast, the others rank 0" in words
    taken.collectives = recorders(wait(0b0101, 0), wait(0b1010, 0b0101, 1813))
    named(verdict(taken), "mismatch", 2, certainty="likely")
    # Two that take themselves for the root: that of most, or the lowest, is right.
    with_peers(taken, r2=("src", 2))
    named(verdict(taken), "mismatch", 2, certainty="likely")
    # Two groups may well have a root each.
    taken.collectives = recorders(wait(0b0001, 0b0010), wait(0b0100, 0b1000, group="the other group"))
    assert "root" not in verdict(taken).what
    # They name the same.
    taken.collectives = None
    with_peers(taken, r2=("src", 0))
    assert "root" not in verdict(taken).what


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


def test_one_that_left_with_0_before_others_failed_is_named_and_nobody_surely() -> None:
    gone = {1: mute("gone"), 0: mute("gone")}
    taken = snapshot(4, still(ALL_REDUCE), gone, why={1: "exited 0", 0: "exited 1"})
    for rank, at in ((1, 990.0), (0, 990.4)):
        taken.ranks[rank] = replace(taken.ranks[rank], ended_at=at)
    found = verdict(taken)
    assert found.what.startswith("rank 1 exited 0: ")
    named(found, "exited", 1, certainty="likely")
    # The others see that before it is recorded.
    taken.ranks[1] = replace(taken.ranks[1], ended_at=990.9)
    named(verdict(taken), "exited", 1, certainty="likely")
    # Later it is for some other reason, and what crashed did so by itself.
    taken.ranks[1] = replace(taken.ranks[1], ended_at=995.0)
    named(verdict(taken), "ended", 0, certainty="likely")
    crashed = replace(taken.ranks[0], why="killed by SIGSEGV", end=end("killed by SIGSEGV"))
    taken.ranks.update({0: crashed, 1: replace(taken.ranks[1], ended_at=990.2)})
    named(verdict(taken), "ended", 0, certainty="likely")
    # Most are through: that one has failed.
    most = snapshot(4, mute("gone"), why={0: "exited 1", **dict.fromkeys((1, 2, 3), "exited 0")})
    named(verdict(most), "ended", 0, certainty="sure")


def test_the_first_of_several_that_ended_is_the_one() -> None:
    taken = snapshot(4, still(ALL_REDUCE), why={1: "exited 1", 2: "killed by SIGABRT"})
    named(verdict(taken), "ended", 1, 2, certainty="likely")
    for rank, at in ((1, 930.0), (2, 925.0)):
        taken.ranks[rank] = replace(taken.ranks[rank], ended_at=at)
    assert "rank 1 exited 1" in named(verdict(taken), "ended", 2, certainty="sure")
    # Of errors at once, the first one to be recorded may be what followed from the other.
    taken.ranks[2] = replace(taken.ranks[2], why="exited 1", end=end("exited 1"))
    named(verdict(taken), "ended", 2, certainty="sure")
    taken.ranks[1] = replace(taken.ranks[1], ended_at=926.0)
    named(verdict(taken), "ended", 2, certainty="likely")


def test_two_processes_with_one_rank() -> None:
    taken = snapshot(4, still(RENDEZVOUS))
    taken.twice = {2: "rank 2 is there twice: process 7 on a is taken, not process 9 on b"}
    assert "process 9 on b" in named(verdict(taken), "twice", 2, certainty="likely")
    moving = replace(snapshot(4, still(COMPUTES, moves=True)), twice=taken.twice)
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

    def asks(line: int, call: str) -> Told:
        at = (*MAIN, Frame("Meeting.join", "./train.py", line))
        polls = polling(at, loop="while not os.path.exists(path):")

        def told(look: int) -> Dump:
            found = polls(look)
            assert found is not None
            assert found.process is not None
            return replace(found, process=found.process._replace(call=call))

        return told

    # Of a loop some are at one line, and some at another.
    odd = {1: asks(76, ""), 2: still(USER, call="pselect6"), 3: asks(76, "")}
    named(verdict(snapshot(4, asks(75, "clock_nanosleep"), odd)), "io", 2, certainty="likely")
    found = verdict(snapshot(4, polls, {2: still(COMPUTES, moves=True)}))
    assert (found.severity, found.certainty) == ("warning", "likely"), found


LOST = (Unanswered("10.0.0.7", 41_234, 7),)


def losing(frames: Sequence[Frame], lost: tuple[Unanswered, ...] = LOST, **facts: object) -> Told:
    """What it sends gets no answer."""
    return lambda look: replace(dump(look, frames, **facts), unanswered=lost)  # type: ignore[arg-type]


def test_a_network_that_loses_what_is_sent_is_told_and_no_rank_is_blamed() -> None:
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: losing(ALL_REDUCE)}))
    assert (found.id, found.ranks, found.certainty, found.proof) == ("cut", 0, "likely", "")
    assert found.what == "rank 1 gets no answer from 10.0.0.7: 4 ranks wait in all_reduce"
    assert "rank 1 on gpu1: 10.0.0.7 port 41234, sent again 7 times" in found.evidence
    assert ("ping -c 3 10.0.0.7", "gpu1") in [(step.command, step.node) for step in found.steps]


def test_several_that_get_no_answer() -> None:
    other = (Unanswered("10.0.0.9", 5, 4), Unanswered("10.0.0.8", 5, 4))
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: losing(ALL_REDUCE), 3: losing(ALL_REDUCE, other)}))
    assert found.what.startswith("ranks 1,3 get no answer from 3 addresses: ")


def test_where_somebody_is_missing_the_network_is_not_it() -> None:
    """Its connection to a logging service may be lost, too."""
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: losing(USER, call="clock_nanosleep")}))
    assert (found.id, found.ranks) == ("absent", 0b0010)
    assert verdict(snapshot(4, still(COMPUTES, moves=True), {1: losing(COMPUTES, moves=True)})).id == "moving"
