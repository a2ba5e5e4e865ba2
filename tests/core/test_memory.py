"""Memory that is approaching its limit is told in time; what only looks like it never is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base.events import Filling, GpuSample, MemorySample, NodeSample, RankSample, Sample
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.memory import FRESH_S, Watch, findings, limit_name
from cockpit.core.run.model import RunModel
from cockpit.core.run.timeline import Timeline
from tests.happened import happened

GB = 1_000_000_000
LIMIT = 100 * GB
HOUR = 3600.0
BEGAN = 1_700_000_000.0

Level = Callable[[float], float]
"""Bytes in use so many seconds after the ranks were started."""


def model(nodes: int = 1) -> RunModel:
    """Two ranks a node, all of them running."""
    made = RunModel()
    names = {f"gpu{number}": (2 * number, 2 * number + 1) for number in range(nodes)}
    made.apply(happened(BEGAN, "planned", "", {"nodes": names}))
    for name, ranks in names.items():
        for rank in ranks:
            made.apply(happened(BEGAN, "rank_started", name, {"rank": rank, "pid": 100 + rank}))
    return made


def watched(level: Level, hours: float, share: float = 1.0, of: str = "/slurm/job_7/step_0") -> Told:
    """What is told while memory has these levels, half of them the growth of rank 1 at that share."""
    told = Told()
    for second in range(0, int(hours * HOUR), 5):
        used = int(level(second))
        ranks = {0: 10 * GB, 1: int(share * used)}
        told.see(BEGAN + second, MemorySample(of, used, LIMIT, (0, 1)), ranks)
        if used >= LIMIT:
            break
    return told


class Told:
    """A watched run, and what was told of it."""

    def __init__(self) -> None:
        self.model = model()
        self.watch = Watch()
        self.facts: list[tuple[float, Filling]] = []
        self.timeline = Timeline(self.model)
        self.news: list[str] = []

    def see(self, at: float, memory: MemorySample, ranks: dict[int, int]) -> None:
        held = {rank: RankSample(held_bytes=size) for rank, size in ranks.items()}
        sample = Sample(NodeSample(), held, (), (memory,))
        for fact in self.watch.take(at, "gpu0", sample, self.model):
            self.facts.append((at - BEGAN, fact))
            event = witnessed(self.model, at, "gpu0", fact)
            self.model.apply(event)
            entry = self.timeline.tell(event)
            self.news += [entry.text] if entry else []

    @property
    def first(self) -> tuple[float, Filling]:
        return self.facts[0]


def leak(begins: float, rate: float, base: float = 40 * GB) -> Level:
    """Bytes a second from a moment on."""
    return lambda second: base + max(0.0, second - begins) * rate


def loaded(second: float) -> float:
    """A model of 60 GB, read in four minutes; optimizer states after another one."""
    return min(60.0, 2 + second / 4) * GB + (10 * GB if second > 300 else 0)


def teeth(height: float, period: float, base: float = 45 * GB) -> Level:
    """What a loader gathers and lets go."""
    return lambda second: base + height * (second % period) / period


def evaluated(second: float) -> float:
    """Every half hour two minutes of evaluation, and every 20 minutes a checkpoint in memory."""
    level: float = 50 * GB
    level += 25 * GB * min(1.0, (second % 1800) / 60) if 600 < second % 1800 < 720 else 0
    return level + (35 * GB if second % 1200 > 1180 else 0)


def filled(second: float) -> float:
    """A buffer that is filled for a quarter of an hour from the start, and stays full."""
    return 20 * GB + 55 * GB * min(1.0, second / 900)


def settled(second: float) -> float:
    """Caches that grow ever more slowly."""
    return 85 * GB - 45 * GB * math.exp(-second / 1500)


def evened(second: float) -> float:
    """Nearly full for hours, and never fuller."""
    return 97 * GB + 0.3 * GB * math.sin(second / 300)


@pytest.mark.parametrize(
    "level",
    [
        loaded,
        teeth(40 * GB, 120),
        teeth(20 * GB, 45, 70 * GB),
        evaluated,
        filled,
        settled,
        evened,
        lambda second: 40 * GB if second < 4000 else 90 * GB,
        lambda second: (40 + 12 * (second // 1500)) * GB if second < 6000 else 88 * GB,
        leak(0, 2e6),
    ],
    ids=["load", "teeth", "narrow", "evaluation", "buffer", "cache", "full", "step", "steps", "slow"],
)
def test_what_only_looks_like_it_is_not_told(level: Level) -> None:
    """Four hours; the last is a growth that would fill it in eight."""
    assert watched(level, 4).facts == []


@pytest.mark.parametrize("shape", ["plain", "noise", "teeth", "evaluation"])
@pytest.mark.parametrize("minutes", [6, 30, 120])
def test_what_fills_it_is_told_in_time(shape: str, minutes: int) -> None:
    """60 GB in so many minutes, from one hour after the start on."""
    rng = random.Random(minutes)
    plain = leak(HOUR, 60 * GB / (60 * minutes))
    more: dict[str, Level] = {
        "plain": lambda second: 0.0,
        "noise": lambda second: rng.uniform(-0.3, 0.3) * GB,
        "teeth": lambda second: 2 * GB * (second % 40) / 40,
        "evaluation": lambda second: 8 * GB if 100 < second % 900 < 160 else 0,
    }
    told = watched(lambda second: plain(second) + more[shape](second), 4)
    full = HOUR + 60 * minutes
    at, fact = told.first
    left = full - at
    assert fact.full_at is not None
    assert at > HOUR
    assert left > (30 if minutes == 6 else 240)
    assert fact.full_at - BEGAN - at == pytest.approx(left, rel=0.35)
    assert list(fact.ranks) == [1]
    assert fact.ranks[1] == pytest.approx(GB / minutes, rel=0.3)
    assert told.facts[-1][1].full_at is not None
    assert 1 <= len(told.news) <= 5


def test_a_tooth_that_was_seen_to_fall_is_known() -> None:
    """Teeth of an hour: the first may be told as it nears the limit, the others are not."""
    told = watched(teeth(38 * GB, HOUR, 45 * GB), 9)
    assert all(at < 1.1 * HOUR for at, _ in told.facts)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(
    base=st.floats(5, 60),
    height=st.floats(1, 35),
    period=st.integers(20, 280),
    jitter=st.floats(0, 1),
    steps=st.lists(st.tuples(st.integers(0, 7200), st.floats(-20, 20)), max_size=3),
    seed=st.integers(0, 1 << 30),
)
def test_no_false_alarm(
    base: float, height: float, period: int, jitter: float, steps: list[tuple[int, float]], seed: int
) -> None:
    """Saw-teeth, jumps up and down, and noise, none of which goes on rising."""
    rng = random.Random(seed)

    def level(second: float) -> float:
        jumps = sum(by for at, by in steps if second >= at)
        tooth = height * (second % period) / period
        return max(0.0, min(98.0, base + jumps + tooth + rng.uniform(-jitter, jitter))) * GB

    assert watched(level, 2).facts == []


@pytest.mark.parametrize(
    ("base", "height", "period", "steps"),
    [
        (21.93, 20.65, 155, ((3827, 15.4), (337, 11.7), (7041, -16.3))),
        (36.95, 19.34, 166, ((4420, 1.4), (6637, 16.8), (2253, 12.0))),
    ],
)
def test_a_step_and_a_tooth_together_are_no_trend(
    base: float, height: float, period: int, steps: tuple[tuple[int, float], ...]
) -> None:
    """For a moment they look like one that is minutes old."""
    rng = random.Random(period)

    def level(second: float) -> float:
        jumps = sum(by for at, by in steps if second >= at)
        return (base + jumps + height * (second % period) / period + rng.uniform(-0.2, 0.2)) * GB

    assert watched(level, 2).facts == []


@settings(derandomize=True, max_examples=20, deadline=None)
@given(
    base=st.floats(5, 60),
    minutes=st.floats(20, 100),
    height=st.floats(0, 5),
    period=st.integers(10, 60),
    seed=st.integers(0, 1 << 30),
)
def test_no_missed_alarm(base: float, minutes: float, height: float, period: int, seed: int) -> None:
    """Whatever rises all the time until it is full is told minutes before."""
    rng = random.Random(seed)
    rate = (100 - base) * GB / (60 * minutes)

    def level(second: float) -> float:
        noise = rng.uniform(-0.2, 0.2) * GB
        return base * GB + max(0.0, second - HOUR) * rate + height * GB * (second % period) / period + noise

    told = watched(level, 3.5)
    assert told.facts
    full = HOUR + 60 * minutes
    assert 120 < full - told.first[0] < 0.85 * 60 * minutes


def test_what_is_said() -> None:
    told = watched(leak(HOUR, 60 * GB / 3000, 40 * GB), 1.5)
    at = told.facts[-1][0] + BEGAN
    (found,) = findings(told.model, "my run", at)
    assert found.id == "memory_filling"
    assert (found.severity, found.certainty) == ("warning", "likely")
    assert found.what.startswith("memory of gpu0 is full in about 2")
    assert found.what.endswith("min (limit of SLURM step 7.0: 100 GB)")
    assert (found.nodes, found.ranks) == (("gpu0",), 0b10)
    assert "in use, the limit of SLURM step 7.0; 1.2 GB more per minute, for" in found.evidence[0]
    assert found.evidence[1] == "rank 1 grows by 1.2 GB per minute"
    assert [step.node for step in found.steps] == ["", "gpu0", ""]
    assert found.rule == "memory-low"
    assert found.steps[0].command == "cockpit ps 'my run'"
    assert findings(told.model, "my run", at + FRESH_S + 1) == []


def test_growth_that_is_no_ranks_own() -> None:
    told = watched(leak(HOUR, 60 * GB / 1800), 1.4, share=0.0)
    (found,) = findings(told.model, "r", BEGAN + told.facts[-1][0])
    assert found.ranks == 0
    assert "/dev/shm" in found.evidence[1]


def test_it_is_told_again_later_and_taken_back() -> None:
    rising = leak(HOUR, 60 * GB / 3600)
    top = rising(HOUR + 3000)
    told = watched(lambda second: min(top, rising(second)), 3)
    minutes = [text.partition("about ")[2].partition(" min")[0] for text in told.news[:-1]]
    assert [int(text) for text in minutes] == sorted(map(int, minutes), reverse=True)
    assert len(minutes) == len(set(minutes)) > 1
    assert told.news[-1] == "memory of gpu0 is no longer approaching its limit"
    assert told.facts[-1][1].full_at is None
    assert told.model.nodes["gpu0"].filling == {}


def test_the_first_minutes_count_only_near_the_limit() -> None:
    """A load that goes on for 19 minutes fills nothing, unless it does."""
    assert watched(lambda second: (10 + 60 * min(1.0, second / 1140)) * GB, 1).facts == []
    at, _ = watched(lambda second: (10 + second / 12) * GB, 1).first
    assert 950 < at < 1080


def test_memory_of_a_gpu() -> None:
    watch, made = Watch(), model()
    facts: list[Filling] = []
    for second in range(0, 7200, 5):
        used = int((30 + max(0, second - 3600) / 60) * GB)
        gpu = GpuSample(3, "H100", 50.0, used, 80 * GB, {101: used})
        sample = Sample(NodeSample(), {}, (gpu,), (MemorySample("", GB, LIMIT),))
        facts += watch.take(BEGAN + second, "gpu0", sample, made)
        for fact in facts[-1:]:
            made.apply(witnessed(made, BEGAN + second, "gpu0", fact))
        if used >= 79 * GB:
            break
    (found,) = findings(made, "r", BEGAN + second)
    assert found.id == "gpu_memory_filling"
    assert found.certainty == "unsure"
    assert found.what.startswith("memory of GPU 3 on gpu0 is full in ")
    assert found.ranks == 0b10


def hostile() -> Iterator[Sample]:
    """A node may say anything that the gate lets pass, another thing each time."""
    rng = random.Random(1)
    for number in range(400):
        rooms = tuple(
            MemorySample(
                f"/{number % 7}{each}\x1b[2J", rng.randrange(1 << 62), rng.randrange(1, 1 << 62), (0, 99)
            )
            for each in range(rng.randrange(64))
        )
        yield Sample(NodeSample(), {0: RankSample(held_bytes=rng.randrange(1 << 62))}, (), rooms)


def test_whatever_a_node_says_it_is_bounded_and_harmless() -> None:
    watch, made = Watch(), model()
    for number, sample in enumerate(hostile()):
        for fact in watch.take(BEGAN + 5 * number, "gpu0", sample, made):
            made.apply(witnessed(made, BEGAN + 5 * number, "gpu0", fact))
    assert all("\x1b" not in found.what for found in findings(made, "r", BEGAN + 2000))


def test_a_clock_that_is_set_back_begins_anew() -> None:
    told = Told()
    for second in (*range(7200, 9000, 5), *range(0, 3600, 5)):
        told.see(BEGAN + second, MemorySample("", int(second / 120 * GB), LIMIT), {})
    assert all(fact.full_at is None or fact.full_at > BEGAN for _, fact in told.facts)


@pytest.mark.parametrize(
    ("of", "name"),
    [
        ("", "the machine"),
        ("/", "the container"),
        ("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "SLURM step 7.0"),
        ("/slurm/uid_1000/job_7/step_batch", "SLURM step 7.batch"),
        ("/slurm/uid_1000/job_7", "SLURM job 7"),
        ("/user.slice/user-1000.slice", "cgroup /user.slice/user-1000.slice"),
        ("GPU 3", "the GPU"),
    ],
)
def test_whose_limit_it_is(of: str, name: str) -> None:
    assert limit_name(of) == name
