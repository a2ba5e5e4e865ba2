"""What feeds the rules of notices: their switches, and the question for the time that is left to a job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields
from types import SimpleNamespace
from typing import cast

import pytest

from cockpit import slurm
from cockpit.base.events import Fact, MemorySample, NodeSample, Notice, Sample, Saved
from cockpit.config import Notices
from cockpit.core.pace.pace import Pace
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.limit import TimeLimit
from cockpit.engine.launch.start import allocation
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run import noticing
from cockpit.engine.run.noticing import Noticing
from cockpit.errors import CockpitError
from tests.happened import happened
from tests.waiting import PATIENCE_S, soon


def made(
    switches: Notices,
    told: list[Fact],
    *,
    step: bool = True,
    allocation: str = "",
    pace: Pace | None = None,
) -> Noticing:
    """Of a run of one rank in job 12.

    :param step: in a step of it
    """
    node = SimpleNamespace(name="gpu0", dir="/tmp/c/r/gpu0")
    manifest = SimpleNamespace(
        profile=None, foreign=None, nodes=[node], allocation=allocation, launcher="command", world=[0]
    )
    folder = SimpleNamespace(manifest=manifest, slurm_job="12" if step else "", name="otter")
    model = RunModel()
    model.apply(happened(time.time(), "planned", "", {"nodes": {"gpu0": (0,)}}))
    model.apply(happened(time.time(), "rank_started", "gpu0", {"rank": 0, "pid": 7}))
    model.apply(happened(time.time(), "link", "gpu0", {"state": "ok"}))
    return Noticing(
        cast(RunFolder, folder), model, pace or Pace(range(1)), lambda _, fact: told.append(fact), switches
    )


@asynccontextmanager
async def looks(notices: Noticing) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """What lets it look once more at what may be wrong, without a pause; it asks nobody."""
    look, *others = notices.works()
    for other in others:
        other.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noticing, "_LOOK_S", 0.0)
        task = asyncio.create_task(look)
        await asyncio.sleep(0)
        yield lambda: asyncio.sleep(0)
        task.cancel()


def asked(notices: Noticing, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs whose time limit is asked for."""
    jobs: list[str] = []
    monkeypatch.setattr(noticing, "_LIMIT_FIRST_S", 0.0)
    monkeypatch.setattr(slurm, "time_left", jobs.append)

    async def main() -> None:
        look, *others = notices.works()
        look.close()
        tasks = [asyncio.create_task(other) for other in others]
        await soon(lambda: len(jobs) >= len(tasks))
        for task in tasks:
            task.cancel()

    asyncio.run(main())
    return jobs


def told(switches: Notices) -> set[str]:
    """Which rules speak where all losses are NaN and a disk and a memory are full."""
    facts: list[Fact] = []
    notices = made(switches, facts)
    for step in range(3):
        notices.log("gpu0", 0, b"step %d loss nan\n" % step)
    notices.sampled("gpu0", Sample(NodeSample(disk_free_bytes=0), {}, (), (MemorySample("", 95, 100),)))
    assert (notices.memory is None) == (not switches.memory)

    async def main() -> None:
        async with looks(notices) as look:
            for _ in range(3):
                await look()

    asyncio.run(main())
    return {fact.id for fact in facts if isinstance(fact, Notice)}


def test_what_is_switched_off_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [each.name for each in fields(Notices)]
    assert told(Notices()) == {"loss", "disk"}
    assert told(Notices(disk=False)) == {"loss"}
    assert told(Notices(**dict.fromkeys(names, False))) == set()
    assert asked(made(Notices(), []), monkeypatch) == ["12"]
    assert asked(made(Notices(time_limit=False), []), monkeypatch) == []


def test_a_checkpoint_is_told_once_with_its_step_and_how_long_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts: list[Fact] = []
    began = time.time()
    now = [began]
    monkeypatch.setattr(noticing, "time", SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0]))
    pace = Pace(range(1))
    notices = made(Notices(), facts, pace=pace)

    async def main() -> None:
        step, end = 0, began + 2.0
        async with looks(notices) as look:
            for second in range(200):
                now[0] = began + second
                if second == 81:
                    notices.log("gpu0", 0, b"saving checkpoint to out\n")
                if now[0] >= end:
                    pace.stepped(0, step, end, span=13.0 if step in (40, 60) else 2.0)
                    step += 1
                    end += 13.0 if step in (40, 60) else 2.0
                await look()

    asyncio.run(main())
    saved = [fact for fact in facts if isinstance(fact, Saved)]
    assert saved == [Saved(40, 11.0)], "of what went on before step 60 nobody said that it was one"


def test_where_slurm_does_not_answer_what_it_said_before_is_as_true(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LIMIT_FIRST_S", "_LIMIT_S", "_LIMIT_NEAR_S"):
        monkeypatch.setattr(noticing, name, 0.001)
    answers: Iterator[float | CockpitError | None] = iter(
        [600.0, CockpitError("no answer"), CockpitError("no answer"), None]
    )

    def time_left(job: str) -> float | None:
        assert job == "12"
        answer = next(answers, None)
        if isinstance(answer, CockpitError):
            raise answer
        return answer

    said: list[float | None] = []

    async def ask_twice() -> None:
        twice = asyncio.Event()

        def hear(self: TimeLimit, at: float, left_s: float | None) -> None:
            said.append(left_s)
            if len(said) == 2:
                twice.set()

        monkeypatch.setattr(slurm, "time_left", time_left)
        monkeypatch.setattr(TimeLimit, "told", hear)
        look, ask = made(Notices(), []).works()
        look.close()
        work = asyncio.create_task(ask)
        await asyncio.wait_for(twice.wait(), PATIENCE_S)
        work.cancel()

    asyncio.run(ask_twice())
    assert said[:2] == [600.0, None]


def test_a_run_over_ssh_on_nodes_of_a_job_has_its_time_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(made(Notices(), [], step=False, allocation="12"), monkeypatch) == ["12"]
    assert asked(made(Notices(), [], step=False), monkeypatch) == []


@pytest.mark.parametrize(
    ("variables", "hosts", "job"),
    [
        ({}, ["gpu01"], ""),
        ({"SLURM_JOB_ID": "12"}, ["gpu01"], "12"),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "gpu[01-04]"}, ["gpu03.cluster"], "12"),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "gpu[01-04]"}, ["gpu07", "gpu08"], ""),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "gpu[01"}, ["gpu07"], "12"),
    ],
)
def test_a_run_is_in_the_job_of_the_shell_if_it_is_on_its_nodes(
    variables: dict[str, str], hosts: list[str], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert allocation(hosts) == job
