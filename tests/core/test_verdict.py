"""Verdicts on stacks as real programs have them: torch 2.13, DeepSpeed 0.19.8, Python 3.11."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.stacks.dump import Child, Dump, Frame, Process, Thread
from cockpit.core.finding import Finding, Rule
from cockpit.core.masks import mask_of
from cockpit.core.run.watch_messages import packed, unpacked
from cockpit.core.stacks import verdict as verdicts
from cockpit.core.stacks.case import state_fact
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.core.stacks.verdict import KINDS, RULES, verdict
from tests.core.fates import end

C10D = "torch/distributed/distributed_c10d.py"
MAIN = (Frame("<module>", "./train.py", 240), Frame("main", "./train.py", 212))
LOGGED = Frame("_exception_logger.<locals>.wrapper", "torch/distributed/c10d_logger.py", 83)


def collective(name: str, line: int = 261) -> tuple[Frame, ...]:
    """A collective that the user's code calls."""
    return (*MAIN, Frame("step", "./train.py", line), LOGGED, Frame(name, C10D, 3252))


ALL_REDUCE = collective("all_reduce")
BROADCAST = collective("broadcast", 300)
DEEPSPEED = (
    *MAIN,
    Frame("step", "./train.py", 255),
    Frame("DeepSpeedEngine.backward", "deepspeed/runtime/engine.py", 3431),
    Frame("DeepSpeedZeroOptimizer.allreduce_bucket", "deepspeed/runtime/zero/stage_1_and_2.py", 2384),
    Frame("timed_op.<locals>.log_wrapper", "deepspeed/comm/comm.py", 129),
    Frame("all_reduce", "deepspeed/comm/comm.py", 710),
    Frame("TorchBackend.all_reduce", "deepspeed/comm/torch.py", 290),
    LOGGED,
    Frame("all_reduce", C10D, 3252),
)
BACKWARD = (
    *MAIN,
    Frame("step", "./train.py", 270),
    Frame("Tensor.backward", "torch/_tensor.py", 623),
    Frame("backward", "torch/autograd/__init__.py", 395),
    Frame("_engine_run_backward", "torch/autograd/graph.py", 979),
)
RENDEZVOUS = (*MAIN, LOGGED, Frame("init_process_group", C10D, 1769))
SYNC = (*MAIN, Frame("step", "./train.py", 271), Frame("synchronize", "torch/cuda/__init__.py", 1083))
USER = (*MAIN, Frame("read_shard", "./data.py", 118))
COMPUTES = (
    *MAIN,
    Frame("step", "./train.py", 249),
    Frame("Linear.forward", "torch/nn/modules/linear.py", 134),
)
QUEUE = (
    *MAIN,
    Frame("next_batch", "./train.py", 128),
    Frame("Queue.get", "python/multiprocessing/queues.py", 103),
    Frame("_ConnectionBase.recv_bytes", "python/multiprocessing/connection.py", 216),
    Frame("Connection._recv", "python/multiprocessing/connection.py", 395),
)
LOADER = (
    *MAIN,
    Frame("next_batch", "./train.py", 128),
    Frame("_BaseDataLoaderIter.__next__", "torch/utils/data/dataloader.py", 741),
    Frame("_MultiProcessingDataLoaderIter._try_get_data", "torch/utils/data/dataloader.py", 1291),
    Frame("Queue.get", "python/multiprocessing/queues.py", 113),
    Frame("_ConnectionBase.poll", "python/multiprocessing/connection.py", 257),
    Frame("_PollLikeSelector.select", "python/selectors.py", 415),
)
BUILD = (
    *MAIN,
    Frame("step", "./train.py", 250),
    Frame("load", "torch/utils/cpp_extension.py", 1681),
    Frame("FileBaton.wait", "torch/utils/file_baton.py", 57),
)
HOLDER = (
    Frame("Thread._bootstrap", "python/threading.py", 1002),
    Frame("holds_lock", "./train.py", 96),
    Frame("Condition.wait", "python/threading.py", 327),
)

Told = Callable[[int], Dump | None]
"""What a rank answers in a sample, from 0; None: nothing."""


def dump(
    look: int,
    frames: Sequence[Frame],
    *,
    moves: bool = False,
    gil: bool = False,
    active: bool = False,
    threads: Sequence[Thread] = (),
    **facts: Any,
) -> Dump:
    """A rank's answer; ``moves``: between two samples its main thread works."""
    facts = {"state": "R" if active else "S", "call": "" if active else "futex", **facts}
    main = 100.0 + (0.9 * look if moves else 0)
    switches = 50 + 300 * look * moves
    # Our own looks wake it for a moment.
    facts = {"idle_s": 0.0 if moves or active else 0.9 if look else 52.0, **facts}
    process = Process(41_000, 90_000, cpu_s=main, main_cpu_s=main, switches=switches, **facts)
    stack = (Thread("MainThread", 41_000, active, gil, tuple(frames)), *threads) if frames else ()
    return Dump(0, 1000.0 + look, process, "plain", stack)


def still(frames: Sequence[Frame], **facts: Any) -> Told:
    """It does not move."""
    return lambda look: dump(look, frames, **facts)


def mute(error: str, what: str = "", hint: str = "", **facts: Any) -> Told:
    """It has no stack, for a reason."""
    return lambda look: replace(
        dump(look, (), **facts), error=error, what=what or error, hint=hint, way="kernel"
    )


def snapshot(
    world: int,
    rest: Told,
    odd: Mapping[int, Told] | None = None,
    *,
    looks: int = 2,
    why: Mapping[int, str] | None = None,
    silent: Mapping[str, str] | None = None,
) -> Snapshot:
    """A job of two nodes in which all ranks do the same but some."""
    found = Snapshot("20261121-040441", "otter", "otter")
    for rank in range(world):
        node = f"gpu{1 + 2 * rank // world}"
        gone = (why or {}).get(rank, "")
        found.ranks[rank] = Place(node, None, 41_000 + rank, gone, end=end(gone))
    for look in range(looks):
        sample = Sample(1000.0 + look, silent=dict(silent or {}), took_s=0.4)
        for rank, place in found.ranks.items():
            answer = (odd or {}).get(rank, rest)(look)
            if answer is not None and not place.why and place.node not in sample.silent:
                assert answer.process is not None
                process = answer.process._replace(pid=41_000 + rank)
                sample.dumps[rank] = replace(answer, rank=rank, process=process)
        found.samples.append(sample)
    return found


def steps(found: Finding) -> list[str]:
    return [step.text for step in found.steps]


def named(found: Finding, kind: str, *ranks: int, certainty: str) -> str:
    """Check what a verdict comes to; return all its words."""
    words = "\n".join([found.what, found.where, found.detail, *found.evidence, *steps(found)])
    assert (found.id, found.ranks, found.certainty) == (kind, mask_of(ranks), certainty), words
    return words


WAITERS = {"all_reduce": ALL_REDUCE, "deepspeed": DEEPSPEED, "ddp": BACKWARD}


@pytest.mark.parametrize("waiters", WAITERS)
@pytest.mark.parametrize(
    ("told", "kind", "certainty", "words"),
    [
        (still(USER, call="clock_nanosleep"), "absent", "sure", "did not join"),
        (still(USER, call="read", target="/data/7.bin"), "io", "sure", "/data/7.bin"),
        (still(USER, threads=[Thread("holder", 2, False, False, HOLDER)]), "lock", "sure", "lock"),
        (still(USER, state="T", call=""), "stopped", "sure", "kill -CONT 41001"),
        (still(USER, gil=True, call="clock_nanosleep"), "gil", "sure", "GIL"),
        (
            still(USER, state="D", call="read", wchan="nfs_wait"),
            "io",
            "sure",
            "read() and cannot be interrupted",
        ),
        (
            still(QUEUE, call="read", target="pipe", children=(Child(7, "python3", "Z"),)),
            "loader",
            "sure",
            "dead",
        ),
        (
            still(LOADER, call="poll", children=(Child(7, "pt_data_worker", "T"),)),
            "loader",
            "sure",
            "stopped",
        ),
        (still(COMPUTES, active=True, gil=True, moves=True), "absent", "likely", "not reached"),
        (mute("zombie", state="Z"), "ended", "sure", "zombie"),
        (mute("denied", "permission denied"), "silent", "unsure", "permission denied"),
    ],
    ids=["sleep", "read", "lock", "stop", "gil", "disk", "queue", "loader", "loop", "zombie", "denied"],
)
def test_the_rank_that_all_others_wait_for_is_named(
    waiters: str, told: Told, kind: str, certainty: str, words: str
) -> None:
    found = verdict(snapshot(4, still(WAITERS[waiters]), {1: told}))
    assert words in named(found, kind, 1, certainty=certainty)
    assert "rank 1 " in found.what
    if waiters != "ddp":
        assert "all_reduce" in "".join([found.what, *found.evidence])


@pytest.mark.parametrize(
    ("state", "call", "beside", "words"),
    [
        ("S", "clock_nanosleep", "", "rank 0: sleeps in clock_nanosleep"),
        ("S", "clock_nanosleep", "It sleeps.", "rank 0: in clock_nanosleep"),
        ("S", "", "It sleeps.", ""),
        ("R", "", "", "rank 0: runs"),
        ("D", "read", "", "rank 0: cannot be interrupted (D), in read"),
        ("D", "read", "It is in read() on /data and cannot be interrupted: a disk.", ""),
        ("T", "", "", "rank 0: stopped (T)"),
        ("Z", "", "", "rank 0: dead, not reaped (Z)"),
    ],
)
def test_the_state_of_a_process_is_a_word_that_is_not_said_twice(
    state: str, call: str, beside: str, words: str
) -> None:
    assert state_fact(dump(0, USER, state=state, call=call), beside) == words


def test_it_is_said_where_the_rank_is_and_who_waits() -> None:
    found = verdict(snapshot(64, still(ALL_REDUCE), {13: still(USER, call="read", target="/data/7.bin")}))
    assert found.what == "rank 13 did not join all_reduce"
    assert found.where == "data.py:118 read_shard"
    assert "reads /data/7.bin" in found.detail
    assert found.evidence[0] == "63 ranks in all_reduce for 53 s, same in 2 of 2 samples, 1.0 s apart"


@pytest.mark.parametrize(
    ("odd", "named_ranks"),
    [
        ({1: still(USER), 2: still(ALL_REDUCE, moves=True)}, {1}),
        ({1: still(USER), 2: still(QUEUE, call="read")}, {1, 2}),
        ({1: still(COMPUTES, call="")}, {1}),
        ({1: still((*MAIN, Frame("synchronize", "horovod/torch/mpi_ops.py", 1)))}, {1}),
        (dict.fromkeys(range(4), still(USER)), {0, 1, 2, 3}),
    ],
    ids=[
        "a waiter moves",
        "two suspects",
        "in a library",
        "waits in a library",
        "as many suspects as waiters",
    ],
)
def test_a_doubt_leaves_it_likely(odd: dict[int, Told], named_ranks: set[int]) -> None:
    found = verdict(snapshot(8, still(ALL_REDUCE), odd))
    assert (found.ranks, found.certainty) == (mask_of(named_ranks), "likely"), found


def test_a_rank_that_is_inferred_is_never_surely_the_one() -> None:
    for inferred, certainty in ((1, "likely"), (2, "sure")):
        found = snapshot(4, still(ALL_REDUCE), {1: still(USER, call="clock_nanosleep")})
        found.ranks[inferred] = replace(found.ranks[inferred], inferred="order")
        words = named(verdict(found), "absent", 1, certainty=certainty)
        assert ("rank 1 is inferred: process 41001 on gpu1" in words) == (inferred == 1)
    # Nobody is accused, and all of them are meant.
    found = snapshot(4, lambda look: dump(look, COMPUTES, moves=True))
    named(verdict(found), "moving", certainty="sure")
    found.ranks = {rank: replace(place, inferred="pid") for rank, place in found.ranks.items()}
    assert "ranks 0-3 are numbered by pid" in named(verdict(found), "moving", certainty="likely")


def test_what_was_asked_for_is_not_told_to_be_typed_again() -> None:
    taken = snapshot(4, still(ALL_REDUCE), {1: still(USER, call="read", target="/data/7.bin")}, looks=3)
    assert "--native" in steps(verdict(taken))[0]
    taken.options = {"native": True, "children": False}
    found = verdict(taken)
    assert steps(found) == ["--samples 3: what moves"]
    assert found.evidence[0] == "3 ranks in all_reduce for 54 s, same in 3 of 3 samples, over 2.0 s"


def test_one_sample_is_never_sure() -> None:
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: still(USER)}, looks=1))
    assert "rank 1 is not in all_reduce" in named(found, "lock", 1, certainty="unsure")
    assert "--samples" in "".join(steps(found))
    everywhere = verdict(snapshot(4, still(ALL_REDUCE), looks=1))
    named(everywhere, "unknown", certainty="unsure")


@pytest.mark.parametrize(
    ("why", "kind", "certainty"),
    [
        ("killed by SIGKILL", "ended", "sure"),
        ("exited 1", "ended", "sure"),
        ("exited 0", "exited", "sure"),
        ("starting", "missing", "likely"),
        ("no process of rank 1 on the nodes asked", "missing", "likely"),
    ],
)
def test_a_rank_that_is_not_there(why: str, kind: str, certainty: str) -> None:
    found = verdict(snapshot(4, still(ALL_REDUCE), why={1: why}))
    words = named(found, kind, 1, certainty=certainty)
    assert "rank 1 " in found.what
    assert "3 ranks wait in all_reduce" in words


def test_what_is_odd_among_the_few_that_were_asked() -> None:
    odd = {1: still(USER, call="read", target="/data/7.bin")}
    elsewhere = dict.fromkeys(range(4, 16), "no process of it on the nodes asked")
    found = verdict(snapshot(16, still(ALL_REDUCE), odd, why=elsewhere))
    assert "ranks 4-15 not found" in named(found, "io", 1, certainty="likely")
    found = verdict(snapshot(16, still(ALL_REDUCE), odd, why={15: elsewhere[15]}))
    assert "rank 1: reads /data/7.bin" in named(found, "missing", 15, certainty="unsure")


def test_one_rank_alone_is_at_no_common_place_and_that_it_was_asked_alone_is_said() -> None:
    taken = replace(snapshot(1, still(USER, call="clock_nanosleep")), options={"ranks": True})
    found = verdict(taken)
    assert (found.what, found.detail) == ("rank 0 has not moved", "It sleeps.")
    assert "only rank 0 was asked; without --ranks, all are" in found.evidence
    found = verdict(snapshot(4, still(USER, call="clock_nanosleep")))
    assert (found.what, found.detail) == ("all 4 ranks are frozen at one place", "All of them sleep.")
    assert "ranks 0-3: sleep at data.py:118 read_shard" in found.evidence
    assert not any("asked" in fact for fact in found.evidence)


def test_those_that_the_launcher_ended_are_not_blamed() -> None:
    why = {0: "killed by SIGTERM", 1: "killed by SIGKILL"}
    found = verdict(snapshot(4, still(ALL_REDUCE), why=why))
    assert "rank 0 ended by SIGTERM" in named(found, "ended", 1, certainty="sure")


def test_of_several_that_ended_none_is_sure() -> None:
    found = verdict(snapshot(4, still(ALL_REDUCE), why={0: "exited 1", 1: "killed by SIGKILL"}))
    assert "which one exited first" in named(found, "ended", 0, 1, certainty="likely")


def test_ranks_that_are_through_are_no_fault() -> None:
    every = dict.fromkeys(range(4), "exited 0")
    named(verdict(snapshot(4, still(USER), why=every)), "over", certainty="sure")
    some = verdict(snapshot(4, still(COMPUTES, moves=True), why={1: "exited 0"}))
    named(some, "moving", certainty="likely")


def test_all_are_moving() -> None:
    found = verdict(
        snapshot(64, still(ALL_REDUCE, moves=True), {3: still(COMPUTES, moves=True, active=True)})
    )
    named(found, "moving", certainty="sure")
    assert found.what == "all 64 ranks are moving"
    here_and_there = lambda look: dump(look, COMPUTES if look else ALL_REDUCE)  # noqa: E731
    named(verdict(snapshot(4, here_and_there)), "moving", certainty="sure")


def test_a_handle_is_nothing_that_one_joins() -> None:
    waits = (*MAIN, Frame("wait_tensor", "torch/distributed/_functional_collectives.py", 142))
    found = verdict(snapshot(4, still(waits), {1: still(USER)}))
    assert found.what == "rank 1 did not join the others in wait_tensor"


@pytest.mark.parametrize(
    "frames", [ALL_REDUCE, BACKWARD, SYNC, RENDEZVOUS], ids=lambda frames: frames[-1].name
)
def test_when_all_wait_together_nobody_is_named(frames: tuple[Frame, ...]) -> None:
    found = verdict(snapshot(64, still(frames)))
    named(found, "together", certainty="unsure")
    assert "all 64 ranks wait" in found.what
    assert "--native" in "".join(steps(found))


def test_another_collective_than_all_others() -> None:
    found = verdict(snapshot(64, still(ALL_REDUCE), {3: still(BROADCAST)}))
    named(found, "mismatch", 3, certainty="likely")
    assert found.what == "rank 3 is in broadcast, 63 ranks in all_reduce"
    assert "rank 3 in broadcast at train.py:300 step" in found.evidence
    assert found.where == "train.py:300 step"
    elsewhere = verdict(snapshot(64, still(ALL_REDUCE), {3: still(collective("all_reduce", 300))}))
    assert "train.py:300" in named(elsewhere, "mismatch", 3, certainty="likely")
    skipped = verdict(snapshot(64, still(BACKWARD), {3: still(collective("barrier", 300))}))
    assert "have parted" in named(skipped, "mismatch", 3, certainty="likely")


def test_stages_of_a_pipeline_are_no_mismatch() -> None:
    stages = {rank: still(collective("recv", 90)) for rank in (2, 3)}
    named(verdict(snapshot(4, still(collective("send", 80)), stages)), "mismatch", certainty="unsure")
    found = verdict(snapshot(8, still(collective("send", 80)), stages))
    assert found.certainty == "unsure"
    assert "by design" in found.detail


def test_subgroups_that_wait_in_different_collectives_for_one_rank() -> None:
    odd = {rank: still(collective("all_gather", 90)) for rank in range(4)} | {7: still(USER, call="read")}
    found = verdict(snapshot(8, still(ALL_REDUCE), odd))
    named(found, "io", 7, certainty="sure")
    assert found.what == "rank 7 did not join the collective"


@pytest.mark.parametrize(
    ("rest", "certainty"), [(COMPUTES, "unsure"), (ALL_REDUCE, "likely")], ids=["computes", "all_reduce"]
)
def test_a_group_hangs_and_the_others_do_not_need_it(rest: tuple[Frame, ...], certainty: str) -> None:
    odd = dict.fromkeys((4, 5, 6), still(ALL_REDUCE)) | {7: still(USER, call="read", target="/data/7.bin")}
    found = verdict(snapshot(8, still(rest, moves=True), odd))
    named(found, "io", 7, certainty=certainty)
    assert found.what == "rank 7 did not join all_reduce, while 4 ranks make progress"
    del odd[4], odd[5]
    named(verdict(snapshot(8, still(rest, moves=True), odd)), "io", 7, certainty="unsure")
    alone = verdict(snapshot(8, still(rest, moves=True), {7: odd[7]}))
    named(alone, "moving", 7, certainty="unsure")


def test_many_at_one_place_and_a_few_in_a_collective() -> None:
    found = verdict(snapshot(8, still(USER), {0: still(collective("barrier"))}))
    # Who sleeps has not reached where somebody waits.
    assert "did not reach barrier" in named(found, "lock", *range(1, 8), certainty="likely")
    odd = {0: still(collective("barrier")), 7: still(COMPUTES, moves=True)}
    named(verdict(snapshot(8, still(USER), odd)), "lock", *range(1, 7), certainty="unsure")
    late = verdict(snapshot(8, still(COMPUTES, moves=True), {0: still(ALL_REDUCE)}))
    named(late, "moving", certainty="unsure")


def test_a_busy_wait_for_a_gpu_is_a_wait() -> None:
    def spins(look: int) -> Dump:
        process = dump(look, USER, active=True).process
        assert process is not None
        process = process._replace(cpu_s=100.0 + look, main_cpu_s=100.0 + look)
        return replace(dump(look, USER), process=process, source="total += loss.item()")

    found = verdict(snapshot(8, spins, {5: still(QUEUE, call="read")}))
    named(found, "loader", 5, certainty="likely")
    assert verdict(snapshot(8, spins)).id == "together"


def test_backward_that_computes_is_no_wait() -> None:
    def works(look: int) -> Dump:
        told = dump(look, BACKWARD)
        assert told.process is not None
        return replace(told, process=told.process._replace(cpu_s=100.0 + look))

    # Nor is it known to get on: the engine's threads are as busy where they wait for a GPU.
    assert "busy, at the same place" in named(verdict(snapshot(8, works)), "moving", certainty="unsure")
    steps = still(COMPUTES, moves=True)
    assert "ranks 0-3 busy" in named(
        verdict(snapshot(8, steps, dict.fromkeys(range(4), works))), "moving", certainty="likely"
    )


def test_every_process_that_is_stopped_can_be_let_go_on() -> None:
    found = verdict(snapshot(8, still(ALL_REDUCE), dict.fromkeys((1, 2, 7), still(USER, state="T", call=""))))
    named(found, "stopped", 1, 2, 7, certainty="sure")
    assert steps(found) == ["gpu1: kill -CONT 41001 41002", "gpu2: kill -CONT 41007"]


def test_a_wait_for_gpus_is_never_sure() -> None:
    found = verdict(snapshot(8, still(SYNC), {5: still(USER, call="read")}))
    assert "GPU" in named(found, "io", 5, certainty="likely")


def test_who_is_not_heard_of_may_be_the_one() -> None:
    odd = {1: still(USER, call="read"), 2: mute("timeout", "py-spy took longer than 10 s")}
    found = verdict(snapshot(8, still(ALL_REDUCE), odd))
    assert "no answer from rank 2" in named(found, "io", 1, certainty="likely")
    silent = verdict(snapshot(8, still(ALL_REDUCE), silent={"gpu2": "no answer within 5 s"}))
    assert "gpu2: no answer" in named(silent, "silent", 4, 5, 6, 7, certainty="unsure")


def test_a_rank_may_be_on_a_node_that_did_not_answer() -> None:
    taken = snapshot(4, still(ALL_REDUCE), {3: lambda look: None})
    missing = "not found on the nodes that were asked; gpu2 did not answer"
    taken.ranks[3] = Place("", why=missing, end=end(missing))
    assert verdict(taken).id == "missing"
    taken.samples[-1].silent["gpu2"] = "no route to it"
    found = verdict(taken)
    assert "has no process" not in found.what
    assert (found.id, found.certainty) == ("silent", "unsure")


@pytest.mark.parametrize(
    ("frames", "call", "kind"), [(QUEUE, "read", "loader"), (USER, "wait4", "io")], ids=["queue", "child"]
)
def test_processes_below_a_rank_that_waits_are_looked_at(
    frames: tuple[Frame, ...], call: str, kind: str
) -> None:
    for state, words in (("S", "--children --ranks 1"), ("T", "kill -CONT 7"), ("Z", "is dead")):
        told = still(frames, call=call, children=(Child(7, "tokenise", state),))
        found = verdict(snapshot(4, still(ALL_REDUCE), {1: told}))
        assert words in named(found, kind, 1, certainty="sure")
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: still(frames, call=call)}))
    assert "no child process" in named(found, kind, 1, certainty="sure")


def test_the_worker_that_is_held_up_is_shown_where_the_stacks_of_workers_are_here() -> None:
    begins = (*LOADER[:-3], Frame("_worker_loop", "torch/utils/data/_utils/worker.py", 250))
    idle = (*begins, Frame("Queue.get", "python/multiprocessing/queues.py", 113))
    reads = (*begins, Frame("Shards.__getitem__", "./data.py", 41))
    workers = [
        Child(70 + number, "pt_data_worker", "S", (Thread("MainThread", 70 + number, False, False, frames),))
        for number, frames in enumerate((idle, reads))
    ]
    told = still(LOADER, call="poll", children=tuple(workers))
    words = named(verdict(snapshot(4, still(ALL_REDUCE), {1: told})), "loader", 1, certainty="sure")
    assert "its process 71 (pt_data_worker) is at data.py:41 Shards.__getitem__" in words


def test_who_has_a_locked_file_is_asked() -> None:
    told = still(USER, call="flock", target="/data/my cache.lock")
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: told}))
    assert steps(found) == ["gpu1: fuser -v '/data/my cache.lock': who has it open"]


def test_data_read_without_workers_is_the_users_own_wait() -> None:
    inside = (*LOADER[:-3], Frame("Shards.__getitem__", "./data.py", 41))
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: still(inside, call="read", target="/data/7.bin")}))
    assert "reads /data/7.bin" in named(found, "io", 1, certainty="sure")


def test_what_is_seen_each_time_of_a_rank_that_moves_is_told() -> None:
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: still(USER, call="clock_nanosleep", moves=True)}))
    assert "sleeps each time" in named(found, "absent", 1, certainty="likely")


def test_who_else_may_hold_a_lock_is_asked_of_its_other_threads() -> None:
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: still(USER)}))
    assert "--threads all --ranks 1" in named(found, "lock", 1, certainty="sure")


def test_who_may_train_in_another_thread_is_not_said_to_stand_still() -> None:
    join = (*MAIN, Frame("Thread.join", "python/threading.py", 1119))
    found = verdict(snapshot(4, still(join)))
    assert (found.id, found.ranks) == ("unknown", 0)
    assert found.what == "all 4 ranks wait for another thread, none in a collective"
    assert "--threads all" in steps(found)[0]


def test_all_wait_for_their_data() -> None:
    dead = still(LOADER, call="poll", children=(Child(7, "pt_data_worker", "Z"),))
    found = verdict(snapshot(4, still(LOADER, call="poll"), {2: dead}))
    named(found, "loader", 2, certainty="likely")
    named(verdict(snapshot(4, still(LOADER, call="poll"))), "loader", 0, 1, 2, 3, certainty="unsure")


def test_a_build_lock_is_a_question_before_it_is_removed() -> None:
    sleeps = still(BUILD, call="clock_nanosleep")
    for found in (verdict(snapshot(4, sleeps)), verdict(snapshot(4, still(RENDEZVOUS), {1: sleeps}))):
        assert (found.id, found.rule) == ("build", "build-lock-stale"), found
        assert unpacked(packed(found)).meaning == found.meaning != ""
        told = steps(found)
        assert "is a build running?" in told[0]
        assert told[1].startswith("gpu1: if not: rm ")


def test_what_is_waited_for_with_the_gil_held_is_told() -> None:
    opens = still(USER, gil=True, call="openat", target="/ckpt/latest.pt")
    words = named(verdict(snapshot(4, still(ALL_REDUCE), {0: opens})), "gil", 0, certainty="sure")
    assert "opens /ckpt/latest.pt in a C function and keeps the GIL" in words


def test_the_gil_held_by_another_thread() -> None:
    holder = Thread("monitor", 77, False, True, (Frame("poll", "./watch.py", 12),))
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: still(ALL_REDUCE, threads=[holder])}))
    assert "thread monitor" in named(found, "gil", 1, certainty="sure")
    assert found.where == "watch.py:12 poll"


def test_while_answers_come_in_nothing_is_sure() -> None:
    growing = snapshot(4, still(ALL_REDUCE), {1: still(USER, call="read")})
    growing.samples[-1].took_s = None
    del growing.samples[-1].dumps[3]
    assert "no answer yet from 1 rank" in named(verdict(growing), "io", 1, certainty="likely")
    growing.samples = [Sample(1000.0)]
    assert verdict(growing).what == "no rank has answered yet"


def test_nobody_may_be_looked_at() -> None:
    hint = "on that node: sudo sysctl -w kernel.yama.ptrace_scope=0"
    found = verdict(snapshot(4, mute("denied", "permission denied", hint)))
    assert hint in named(found, "unknown", certainty="unsure").split("\n")


def _raises(case: object) -> Finding | None:
    raise ZeroDivisionError("in a rule")


def test_a_rule_that_fails_costs_certainty_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = snapshot(4, still(ALL_REDUCE), {1: still(USER, call="read")})
    whole = verdict(taken)
    assert whole.certainty == "sure"
    failing = Rule("odd", ("case",), _raises)
    monkeypatch.setattr(verdicts, "RULES", (failing, *RULES))
    found = verdict(taken)
    assert (found.id, found.what, found.certainty) == (whole.id, whole.what, "unsure")
    assert (whole.severity, found.severity) == ("error", "warning")
    assert found.evidence[0] == "the rule odd failed: ZeroDivisionError: in a rule"
    monkeypatch.setattr(verdicts, "RULES", (failing,))
    assert verdict(taken).id == "unknown"


@pytest.mark.parametrize(
    ("odd", "severity"),
    [
        (still(USER, call="read"), "error"),
        (still(COMPUTES, moves=True), "warning"),  # it may only be late
        (still(ALL_REDUCE), "warning"),
    ],
)
def test_how_bad_it_is(odd: Told, severity: str) -> None:
    found = verdict(snapshot(4, still(ALL_REDUCE), {1: odd}))
    assert found.severity == severity
    assert found.nodes == (("gpu1",) if found.ranks else ())


def test_nothing_wrong_is_a_finding_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(snapshot(4, still(COMPUTES, moves=True)))
    assert (found.severity, found.nodes) == ("info", ())
    monkeypatch.setattr(verdicts, "RULES", (Rule("odd", ("case",), _raises), *RULES))
    assert verdict(snapshot(4, still(COMPUTES, moves=True))).severity == "warning"


ANSWERS: Sequence[Told] = [
    still(ALL_REDUCE),
    still(ALL_REDUCE, moves=True),
    still(BACKWARD),
    still(SYNC),
    still(BROADCAST),
    still(USER),
    still(COMPUTES, moves=True),
    still(USER, state="T"),
    still(USER, gil=True),
    still(LOADER),
    still(BUILD),
    mute("denied"),
    mute("gone"),
    mute("zombie", state="Z"),
    lambda look: None,
    lambda look: dump(look, USER if look else ALL_REDUCE),
]


@given(
    answers=st.lists(st.sampled_from(range(len(ANSWERS))), min_size=1, max_size=8),
    looks=st.integers(0, 3),
    why=st.sampled_from(["", "", "starting", "exited 0", "killed by SIGKILL", "lost: the node is gone"]),
)
def test_every_snapshot_has_a_verdict_and_no_victim_is_sure(answers: list[int], looks: int, why: str) -> None:
    odd = {rank: ANSWERS[number] for rank, number in enumerate(answers)}
    found = verdict(snapshot(len(answers), still(ALL_REDUCE), odd, looks=looks, why={0: why}))
    assert found.id in KINDS
    assert found.what
    assert not [fact for fact in found.evidence if fact.startswith("the rule ")]
    assert not found.ranks >> len(answers)
    if found.certainty == "sure" and found.ranks:
        gone = {0} if why and why != "starting" else set()
        victims = {r for r, number in enumerate(answers) if number < 5 and r not in gone}
        assert not found.ranks & mask_of(victims)
        assert looks >= 2 or found.id == "ended"  # which was recorded


OWN_BARRIER = (*MAIN, Frame("Meeting.barrier", "./meeting.py", 38))
MEETS: dict[str, Any] = {"call": "recvfrom", "target": "socket"}


def test_who_is_not_at_a_barrier_of_the_programs_own_is_named() -> None:
    found = verdict(snapshot(4, still(OWN_BARRIER, **MEETS), {3: still(USER, call="clock_nanosleep")}))
    words = named(found, "absent", 3, certainty="likely")
    assert found.what == "rank 3 did not join the others in Meeting.barrier"
    assert found.where == "data.py:118 read_shard"
    assert "same in 2 of 2 samples" in words


def test_one_that_serves_the_others_is_not_surely_who_holds_them_up() -> None:
    serves = still(USER, call="epoll_wait")
    found = verdict(snapshot(4, still(OWN_BARRIER, **MEETS), {0: serves}))
    assert found.certainty != "sure", found.what


def test_while_one_moves_nobody_is_missing_at_a_barrier() -> None:
    going = still(COMPUTES, active=True, moves=True)
    found = verdict(snapshot(4, still(OWN_BARRIER, **MEETS), {3: going}))
    assert "did not join" not in found.what
    named(
        verdict(snapshot(4, still(OWN_BARRIER, call="futex"), {3: still(USER)})),
        "unknown",
        certainty="unsure",
    )
