"""What goes wrong while a run goes on is told by its name, once; healthy runs are silent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit import config
from cockpit.base.events import GpuSample, NodeSample, Sample
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.notices.checkpoint import SAVES
from cockpit.core.run.notices.checkpoint_words import names_one, took
from cockpit.core.run.notices.gpu import GPUS as GPUS_KNOWN
from cockpit.core.run.notices.gpu import KEPT, TOLD, Gpu
from cockpit.core.run.notices.loss import Loss
from cockpit.core.run.notices.rule import About, Rule
from cockpit.core.run.notices.watch import FLOOD, MOST, RULES, Watch
from tests.core.simulated import BEGAN, GIB, Program, World, usual_loss
from tests.happened import happened


def saves(every: int) -> Callable[[int], str]:
    """Names a checkpoint, as HF's trainer does."""
    return lambda step: f"Saving model checkpoint to out/checkpoint-{step}" if step % every == 0 else ""


def paused(every: int, seconds: float) -> Callable[[int], float]:
    return lambda step: seconds if step and step % every == 0 else 0.0


def cosine(step: int) -> float:
    """The learning rate begins anew every 700 steps: the loss is up by a third for a while."""
    return 2.0 + 5.0 / (1 + step / 100) + 0.7 * math.exp(-(step % 700) / 60)


CHECKPOINTED = Program(pause=paused(300, 40), says=saves(300))
HEALTHY = {
    "plain": World(),
    "checkpoints": World(CHECKPOINTED),
    "evaluation": World(
        Program(pause=paused(100, 90), says=lambda step: "eval loss 9.31" if step % 100 == 0 else "")
    ),
    "restarts of lr": World(Program(loss=cosine)),
    "noisy": World(Program(noise=0.3)),
    "lengths vary": World(Program(seconds=lambda step: 0.5 + step * 7919 % 100 / 60)),
    "long steps": World(Program(seconds=lambda step: 45.0, prints=1)),
    "log only": World(replace(CHECKPOINTED, probed=False)),
    "resumed": World(CHECKPOINTED, restarts_at=2500),
    "away": World(CHECKPOINTED, away=(2000, 3500)),
    "asleep": World(CHECKPOINTED, asleep=(2000, 5000)),
    "clock set": World(CHECKPOINTED, set_by=(2500, 3600)),
    "clock set back": World(CHECKPOINTED, set_by=(2500, -3600)),
    "saves at will": World(
        Program(says=lambda step: "saving checkpoint" if step in (40, 90, 700, 711) else "")
    ),
    "checkpoints on its disk": World(
        CHECKPOINTED, free=lambda second: (800 - min(5, second // 340) * 60) * GIB
    ),
    "half precision": World(
        Program(loss=lambda step: math.inf if step % 400 in (0, 5) else usual_loss(step))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_are_silent(name: str) -> None:
    # In most of them the second hour is as the first.
    late = ("resumed", "away", "clock set", "clock set back", "checkpoints on its disk")
    world = HEALTHY[name].run(1.7 if name == "asleep" else 1.2 if name in late else 0.8)
    assert [fact.what for _, fact in world.facts] == []
    assert world.found == []


@pytest.mark.slow
@settings(derandomize=True, max_examples=6, deadline=None)
@given(
    seconds=st.floats(0.4, 8),
    every=st.integers(50, 800),
    pause=st.floats(0, 120),
    noise=st.floats(0, 0.2),
    spread=st.floats(0, 1.5),
    prints=st.integers(1, 20),
    away=st.tuples(st.integers(0, 4000), st.integers(0, 2000)),
    set_by=st.tuples(st.integers(0, 5000), st.floats(-8000, 8000)),
    restarts_at=st.integers(0, 6000),
    probed=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_no_false_alarm(
    seconds: float,
    every: int,
    pause: float,
    noise: float,
    spread: float,
    prints: int,
    away: tuple[int, int],
    set_by: tuple[float, float],
    restarts_at: int,
    probed: bool,
    seed: int,
) -> None:
    program = Program(
        seconds=lambda step: seconds * (1 + spread * (step * 7919 % 101) / 101),
        pause=paused(every, pause),
        says=saves(every),
        noise=noise,
        prints=prints,
        probed=probed,
    )
    absence = (away[0], away[0] + away[1])
    world = World(program, away=absence, set_by=set_by, restarts_at=restarts_at, seed=seed).run(1)
    assert [fact.what for _, fact in world.facts] == []


def test_a_loss_that_is_no_number() -> None:
    world = World(Program(loss=lambda step: math.nan if 3000 < step < 4000 else usual_loss(step))).run(1.0)
    (found,) = world.found
    assert (found.id, found.certainty, found.severity) == ("loss", "sure", "error")
    assert found.what == "the loss is NaN since step 3,005"
    assert [step.command for step in found.steps][:2] == ["cockpit logs 'my run'", "cockpit stop 'my run'"]
    assert (found.rule, found.steps[2].text.split(" ")[0]) == ("loss-nan", "Resume")
    assert found.evidence[-1].startswith("since ")
    at, fact = world.facts[0]
    assert at < 3005 * 1.02 + 300
    assert fact.since < BEGAN + at
    assert world.news == ["the loss is NaN since step 3,005; see: cockpit logs 'my run'"]


def test_a_cockpit_that_comes_later_knows_since_when_the_loss_is_nan() -> None:
    world = World(Program(loss=lambda step: math.nan if step > 1000 else usual_loss(step))).run(0.5)
    (first,) = world.found
    told = len(world.facts)
    world.watch = Watch(About("my run"))
    world.run(0.2, begin=1800)
    (later,) = world.found
    assert later == first
    assert {fact.what for _, fact in world.facts[told:]} == {"the loss is NaN since step 1,005"}
    # What an earlier one saw the end of is no longer known.
    world.model.apply(happened(world.now, "notice", "", {"id": "loss", "of": "nan", "over": True}))
    world.watch = Watch(About("my run"))
    world.run(0.2, begin=2520)
    (last,) = world.found
    assert last.what.startswith("the loss is NaN since step 2,")


def test_a_loss_that_is_back() -> None:
    world = World(Program(loss=lambda step: math.nan if 2000 < step < 2100 else usual_loss(step))).run(1)
    assert world.news[0].startswith("the loss is NaN since step 2,005; ")
    assert world.news[1].startswith("the loss is back: 2.")
    assert world.found == []


def test_a_loss_that_jumps() -> None:
    world = World(Program(loss=lambda step: usual_loss(step) + (4 if step > 3000 else 0))).run(1)
    (found,) = world.found
    assert found.what.startswith("the loss has jumped to 6.")
    assert "since step 3,02" in found.what
    assert (found.id, found.certainty, len(world.news)) == ("loss", "likely", 1)


@pytest.mark.slow
def test_a_spike_of_the_loss_is_no_news() -> None:
    """Losses of every step: a burst of them is over within a minute."""
    world = World(Program(loss=lambda step: usual_loss(step) * (4 if step % 900 > 850 else 1), prints=1))
    assert world.run(1).facts == []


@pytest.mark.slow
def test_a_jump_that_comes_back_each_time_is_told_once() -> None:
    """As of evaluations whose losses are printed like those of training."""

    def loss(step: int) -> float:
        return (5.0 if step % 700 > 550 else 2.0) if step < 4600 else 5.0

    world = World(Program(loss=loss, prints=1)).run(1.2)
    assert [" ".join(text.split()[:4]) for text in world.news] == ["the loss has jumped", "the loss is back:"]
    world.run(0.5, begin=4320)
    assert "the loss has jumped" in world.news[-1]


@pytest.mark.slow
@pytest.mark.parametrize("probed", [True, False])
def test_throughput_that_falls_and_is_back(probed: bool) -> None:
    program = Program(seconds=lambda step: 1.6 if 4000 < step < 5200 else 1.0, probed=probed)
    world = World(program).run(2.2)
    first, last = world.news
    assert first.startswith("throughput is 3")
    assert "% below usual since step 4," in first
    (at, fact), *_, (_, end) = world.facts
    assert 4000 < at < 4000 * 1.06 + 900
    unit = "steps" if probed else "tokens"
    assert f" {unit}/s, usually " in fact.evidence[0]
    assert end.over
    assert last.startswith("throughput is back: ")


@pytest.mark.slow
def test_throughput_that_stays_lower_is_usual_in_the_end() -> None:
    world = World(Program(seconds=lambda step: 1.5 if step > 2000 else 1.0)).run(2.6)
    assert len(world.news) == 2
    assert "which now counts as usual" in world.news[1]


def test_a_disk_that_fills() -> None:
    world = World(free=lambda second: 60 * GIB - max(0, second - 3600) * 0.02 * GIB)
    world.run(1.5)
    found = next(each for each in world.found if each.nodes == ("gpu0",))
    assert found.id == "disk"
    assert found.what.startswith("the disk of the run folder on gpu0 is full in about ")
    assert found.steps[0].text == "gpu0: df -h /tmp/c/r/gpu0: what it is"
    (_, first), *_ = world.facts
    assert first.due == pytest.approx(BEGAN + 3600 + 3000, rel=0, abs=500)


@pytest.mark.slow
def test_checkpoints_that_are_removed_again_are_told_once_at_most() -> None:
    """Nine of them, and none is left: nobody can know that before the first time."""
    world = World(free=lambda second: (800 - second // 340 % 9 * 60) * GIB).run(1.8)
    assert all(at < 3400 for at, _ in world.facts)
    assert world.found == []


def test_a_disk_that_is_nearly_full_and_is_not() -> None:
    world = World(free=lambda second: (0.5 if 1000 < second < 2000 else 200) * GIB).run(0.7)
    assert "nearly full: 537 MB of 1.07 TB free" in world.news[0]
    assert "has space again" in world.news[-1]
    assert world.found == []


def test_a_checkpoint_that_takes_the_place_of_another_is_no_news() -> None:
    world = World(free=lambda second: (0.5 if second % 340 < 30 else 200) * GIB).run(0.5)
    assert (world.news, world.found) == ([], [])
    world = World(free=lambda second: (0.05 if 1000 < second < 1030 else 200) * GIB).run(0.4)
    assert "nearly full" in world.news[0]


def test_what_was_used_before_checkpoints_were_removed_may_be_used_again() -> None:
    """Older checkpoints are removed at first, so that more is free than when the run began."""

    def free(second: float) -> float:
        written = second % 1700 * 0.1 * GIB
        return (200 if second < 1700 else 300) * GIB - written

    world = World(free=free).run(1.5)
    # Until something was removed for the first time nobody can know that.
    assert all(at < 1800 for at, _ in world.facts)
    assert world.found == []


def test_a_checkpoint_that_is_overdue() -> None:
    says = saves(300)
    world = World(replace(CHECKPOINTED, says=lambda step: says(step) if step < 2500 else "")).run(1.2)
    (found,) = world.found
    assert (found.id, found.certainty) == ("checkpoint", "likely")
    assert "a checkpoint is overdue: " in found.what
    assert found.what.endswith("steps since the last, usually 300")


def test_checkpoints_that_are_slower() -> None:
    program = replace(CHECKPOINTED, pause=lambda step: paused(300, 40 if step < 2500 else 130)(step))
    world = World(program).run(1.3)
    assert world.news[0].startswith("checkpoints are slower than before: training paused 2 min")
    assert "usually 4" in world.facts[0][1].evidence[0]


def test_a_checkpoint_that_does_not_end() -> None:
    program = replace(CHECKPOINTED, pause=lambda step: paused(300, 40 if step < 2500 else 9000)(step))
    world = World(program).run(1.2)
    (found,) = world.found
    assert found.what.startswith("no step since the log mentioned a checkpoint, at ")
    assert found.what.endswith(" (unsure)")


@pytest.mark.parametrize(
    "line",
    [
        b"Saving model checkpoint to out/checkpoint-500",
        b"  saving checkpoint at iteration     500 to /ckpt in torch_dist format",
        b"[INFO] [log_dist] [Rank 0] [Torch] Saving model checkpoint: /o/mp_rank_00_model_states.pt",
        b"saving checkpoint to out",
        b"Finished saving the checkpoint in 3.21 seconds.",
        b"wrote ckpt_00500.safetensors",
        b"Saving model checkpoint to /home/will/out/checkpoint-500",
        b"Saving model checkpoint to /data/failover/checkpoint-500",
        b"ckpt saved: /mnt/interval/ckpt_5",
        b"Configuration saved in out/checkpoint-500/config.json",
        b"Checkpointing at step 500",
        b"Storing checkpoint 500",
        b"Saved model to out/model_500.pt",
        b"Saving current state to /scratch/step_100",
        b"Checkpoint saved (gradient state included)",
        b"Saved checkpoint-500; will resume at 501",
    ],
)
def test_lines_that_name_a_checkpoint(line: bytes) -> None:
    assert names_one(line)


@pytest.mark.parametrize(
    "line",
    [
        b"Loading checkpoint shards: 100%",
        b"resuming from checkpoint saved at step 500",
        b"save_checkpoint_every: 500",
        b"saving a checkpoint every 500 steps",
        b"activation checkpointing saved 3 GB",
        b"Gradient checkpointing at every layer",
        b"Checkpoints will be saved to /data/work_dirs/r50.",
        b"No checkpoint saved to /out",
        b"Saving is disabled for checkpoints",
        b"Loaded the checkpoint that was saved to /out/ckpt-5",
        b"skipped saving checkpoint 500",
        b"Saved 3 samples to model_out/x.png",
        b"Failed to save checkpoint",
        b"step 500 loss 2.1",
        b"will not save checkpoints",
    ],
)
def test_lines_that_do_not(line: bytes) -> None:
    assert not names_one(line)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (b"Saved checkpoint, took 95 s", 95.0),
        (b"Finished saving the checkpoint in 12.11 seconds.", 12.11),
        (b"Saving the checkpoint in 3.2s. Finished saving the checkpoint in 12.11 seconds.", 12.11),
        (b"saved ckpt (elapsed: 2 min)", 120.0),
        (b"saved checkpoint in 1500 ms", 1.5),
        (b"saved checkpoint in 4 shards", None),
        (b"saved checkpoint 500", None),
    ],
)
def test_how_long_a_checkpoint_took(line: bytes, seconds: float | None) -> None:
    assert took(line) == pytest.approx(seconds)


@pytest.mark.parametrize(("started", "says"), [(1, True), (2, False), (0, False)])
def test_a_program_that_waits_for_ranks_that_it_would_start_itself(started: int, says: bool) -> None:
    world = World().run(0.01)
    world.watch = Watch(About("my run", ranks=started))
    line = b"Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2\n"
    world.watch.log(world.now, "gpu0", 0, line)
    world.watch.log(world.now, "gpu1", 2, line.replace(b"MEMBER", b"NUMBER").replace(b"/2", b"/9"))
    world.run(0.01, 36)
    found = [(each.id, each.what, each.certainty) for each in world.found]
    expected = ("members", "rank 0 waits for 2 ranks, and this run has started 1", "sure")
    assert found == ([expected] if says else [])


def test_the_limit_of_a_job() -> None:
    world = World(job="12").run(0.1)
    limit = world.watch.limit
    assert limit is not None
    limit.told(world.now, 3600)
    world.see(361, world.now + 1, 361)
    assert world.found == []
    limit.told(world.now, 840)
    world.see(362, world.now + 1, 362)
    (found,) = world.found
    assert (found.what, found.certainty) == ("SLURM ends job 12, at its time limit, in about 14 min", "sure")
    # A clock that was set: nobody knows until SLURM has been asked again.
    told = len(world.news)
    world.see(363, world.now + 900, 363)
    assert world.found == []
    limit.told(world.now, 600)
    world.see(364, world.now + 1, 364)
    assert [found.id for found in world.found] == ["time_limit"]
    assert all("no longer" not in text for text in world.news[told:])
    limit.told(world.now, None)
    world.see(365, world.now + 1, 365)
    assert world.news[-1] == "the time limit of job 12 is no longer near"
    assert World().watch.limit is None


def gpus(second: float, slowed: tuple[str, ...] = (), errors: int = 7, xid: int = 0) -> tuple[GpuSample, ...]:
    looks = second % 5 == 0
    xids = (xid,) if xid and second == 700 else ()
    return (
        GpuSample(0, slowed=() if looks else None, errors=0 if looks else None),
        GpuSample(
            1,
            processes={103: 5},
            slowed=slowed if looks else None,
            errors=errors if looks else None,
            xids=xids,
        ),
    )


def test_what_a_gpus_driver_tells() -> None:
    world = World(
        gpus=lambda second: gpus(
            second, ("heat",) if 600 < second < 900 else (), 9 if second > 650 else 7, 79
        )
    ).run(0.4)
    assert sorted(world.news) == [
        "GPU 1 on gpu1 has had 2 memory errors that could not be corrected since the watch began; "
        "on gpu1: nvidia-smi -q -i 1",
        "GPU 1 on gpu1: throttled by heat; on gpu1: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
        "GPUs on gpu1 are no longer throttled",
        "the driver of GPU 1 on gpu1 reports Xid 79: it has fallen off the bus; "
        "on gpu1: dmesg -T | grep -i xid",
    ]
    assert {found.ranks for found in world.found} == {0b1000}
    assert {found.severity for found in world.found} == {"error"}
    assert {found.rule for found in world.found} == {"gpu-lost", "gpu-ecc"}


def test_a_node_that_lies_about_its_gpus_does_not_hide_what_others_say() -> None:
    """Each of 256 GPUs has each error there is."""

    def lies(second: float) -> tuple[GpuSample, ...]:
        xids = tuple(range(46, 100)) if second > 5 else ()
        return tuple(GpuSample(index, errors=int(second), xids=xids) for index in range(256))

    world = World(gpus=lies).run(0.01)
    assert len(world.news) == TOLD + 1
    assert sum("more errors of its GPUs" in text for text in world.news) == 1


def test_of_all_that_drivers_of_a_node_report_little_is_remembered() -> None:
    """It is put in order each second."""

    def lies(second: float) -> tuple[GpuSample, ...]:
        first = 100 * int(second)
        return tuple(GpuSample(index, xids=tuple(range(first, first + 64))) for index in range(256))

    world = World(gpus=lies).run(0.01)
    assert len(world.news) == TOLD + 1
    assert world.news[-1].startswith(f"gpu1 reports {KEPT - TOLD} more errors of its GPUs;")


def test_an_xid_is_told_for_an_hour() -> None:
    world = World(gpus=lambda second: gpus(second, (), 7, 63)).run(1.1)
    assert len(world.found) == 1
    world.run(0)
    for second in range(3961, 4400):
        world.see(second, BEGAN + second, second)
    assert world.found == []
    assert [text for text in world.news if "Xid 63" in text] == world.news


def test_a_node_that_has_ever_other_gpus_costs_no_memory() -> None:
    world, rule = World(), Gpu(About("run", {}, ""))
    for number in range(2000):
        many = tuple(GpuSample(number * 30 + each, slowed=("heat " * 9,) * 8) for each in range(30))
        rule.sampled(BEGAN + number, "gpu0", Sample(NodeSample(), {}, many), world.model)
    assert sum(map(len, rule._gpus.values())) <= GPUS_KNOWN


def test_a_notice_is_short_in_the_journal_too() -> None:
    """Whatever a node says holds down its clocks."""

    def lies(second: float) -> tuple[GpuSample, ...]:
        words = tuple(f"{second:.0f} {number} {'x' * 30}" for number in range(8))
        return tuple(GpuSample(index, slowed=words) for index in range(64))

    world = World(gpus=lies).run(0.01)
    assert len(world.facts) == 1
    assert len(world.facts[0][1].what) < 400


def test_a_cluster_with_one_trouble_is_not_told_node_by_node() -> None:
    world = World()
    names = [f"n{number}" for number in range(300)]
    nodes = {name: (number,) for number, name in enumerate(names)}
    world.model.apply(happened(BEGAN, "planned", "", {"nodes": nodes}))
    for number, name in enumerate(names):
        world.model.apply(happened(BEGAN, "rank_started", name, {"rank": number, "pid": 100}))
        world.model.apply(happened(BEGAN, "link", name, {"state": "ok"}))

    def see(second: float, free: int) -> None:
        for name in names:
            full = Sample(NodeSample(disk_free_bytes=free, disk_total_bytes=GIB << 10))
            world.watch.sampled(BEGAN + second, name, full, world.model)
        for fact in world.watch.look(BEGAN + second, second, world.model, world.pace):
            world.facts.append((second, fact))
            world.model.apply(witnessed(world.model, BEGAN + second, "", fact))

    for second in range(100):
        see(second, 5)
    world.now = BEGAN + 100
    assert len(world.found) == MOST + 1
    assert sum("268 more notices like these (disk)" in found.what for found in world.found) == 1
    see(101, GIB << 9)
    assert world.found == []


def test_nodes_that_lie_do_not_hide_the_first_notice_of_another() -> None:
    world = World()
    lies = tuple(GpuSample(index, xids=(48, 79)) for index in range(8))
    honest = (GpuSample(0, xids=(94,)),)
    names = [f"n{number}" for number in range(20)]
    world.model.apply(
        happened(BEGAN, "planned", "", {"nodes": {name: (at,) for at, name in enumerate(names)}})
    )
    world.model.apply(happened(BEGAN, "rank_started", "n0", {"rank": 0, "pid": 100}))
    for name in names:
        many = honest if name == "n19" else lies
        world.watch.sampled(BEGAN, name, Sample(NodeSample(), {}, many), world.model)
    told = list(world.watch.look(BEGAN, 0, world.model, world.pace))
    assert len(told) == MOST + 1
    assert any("n19 reports Xid 94" in fact.what for fact in told)


def test_a_gpu_that_is_slowed_at_times_is_not_told() -> None:
    world = World(gpus=lambda second: gpus(second, ("heat",) if second % 60 < 30 else (), 7, 45)).run(1)
    assert world.news == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_each_can_be_switched_off(rule: type[Rule]) -> None:
    assert hasattr(config.Notices(), rule.id)
    assert config.Notices(**{rule.id: False}).off == {rule.id}


def test_all_can_be_switched_off() -> None:
    broken = Program(
        loss=lambda step: math.nan if step > 500 else 2.0,
        seconds=lambda step: 2.0 if step > 1500 else 1.0,
        says=lambda step: saves(200)(step) if step < 900 else "",
    )
    off = tuple(each.id for each in RULES)
    world = World(broken, lambda second: 0.2 * GIB, lambda second: gpus(second, ("heat",)), off=off, job="12")
    assert world.run(1).facts == []
    assert world.watch.limit is None


def test_a_rule_that_fails_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise ZeroDivisionError("x\x1b[2J")

    monkeypatch.setattr(Loss, "read", fails)
    world = World(free=lambda second: 0.2 * GIB).run(0.1)
    assert "the rule loss failed: ZeroDivisionError: x\\x1b[2J" in world.news
    assert len(world.news) == 3


def test_a_rule_that_fails_at_the_end_of_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> str:
        raise KeyError("x")

    monkeypatch.setattr(Loss, "ended", fails)
    world = World(Program(loss=lambda step: math.nan if 200 < step < 300 else usual_loss(step))).run(0.3)
    assert world.news[-1] == "the rule loss failed: KeyError: 'x'"
    assert world.found == []


def test_nobody_who_watches_and_a_run_that_is_over() -> None:
    world = World(Program(loss=lambda step: math.nan if step > 1500 else usual_loss(step))).run(0.6)
    assert len(world.found) == 1
    world.now += 200
    assert world.found == []
    for node, ranks in (("gpu0", (0, 1)), ("gpu1", (2, 3))):
        for rank in ranks:
            world.model.apply(happened(world.now - 190, "rank_exited", node, {"rank": rank, "code": 0}))
        world.model.apply(happened(world.now - 190, "ended", node, {}))
    world.now += 1e6
    assert [found.what for found in world.found] == ["the loss is NaN since step 1,505 (when the run ended)"]
    commands = [step.command for step in world.found[0].steps if step.command]
    assert commands == ["cockpit logs 'my run'"], "there is nothing to stop"


GPUS = 12
"""Of a node that lies: with 64 numbers of errors each, three times what a run keeps."""


def test_whatever_a_node_says_is_bounded_and_harmless() -> None:
    world = World()
    for number in range(500):
        text = f"step {number} loss nan saving checkpoint \x1b[2J{'x' * 5000}"
        world.watch.log(BEGAN + number, "gpu0", number % 4, text.encode() + b"\n" * (number % 2))
        many = tuple(
            GpuSample(index, xids=tuple(range(number, number + 64)), slowed=("\x1b[2J",), errors=number)
            for index in range(GPUS)
        )
        world.watch.sampled(
            BEGAN + number, "gpu0", Sample(NodeSample(disk_free_bytes=0), {}, many), world.model
        )
        world.see(number, BEGAN + number, number)
    assert len(world.model.notices) <= 256
    assert 0 < len(world.watch.saves) <= SAVES
    assert all("\x1b" not in text for text in world.news)
    assert all("\x1b" not in f"{found.what}{found.evidence}{found.steps}" for found in world.found)


@pytest.mark.parametrize(
    ("printed", "heard"),
    [
        (b"saving checkpoint to out\n", 1),
        (b"x\n" * FLOOD + b"saving checkpoint to out\n", 1),
        (b"saving checkpoint to out\n" + b"x\n" * FLOOD, 0),  # all of a flood would take too long
        (b"x\n" * FLOOD + b"oint to out\n", 0),  # what was held of a line before does not go on here
    ],
)
def test_of_a_flood_rules_are_shown_the_end(printed: bytes, heard: int) -> None:
    # Heard before a look that saves are learnt from.
    world = World().run(0.01)
    world.watch.log(world.now, "gpu0", 0, b"step 1\nsaving checkp")
    world.watch.log(world.now, "gpu0", 0, printed)
    world.see(36, BEGAN + 36, 36)
    assert len(world.watch.saves) == heard
