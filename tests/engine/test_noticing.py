"""What feeds the rules of notices: their switches, and the question for the time that is left to a job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import cast

import pytest

from cockpit import slurm
from cockpit.base.events import Fact, MemorySample, NodeSample, Sample, Saved
from cockpit.config import Notices
from cockpit.core.pace.pace import Pace
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.checkpoint import Checkpoint
from cockpit.core.run.notices.limit import TimeLimit
from cockpit.engine.launch.start import allocation
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run import noticing
from cockpit.engine.run.noticing import Noticing
from cockpit.errors import CockpitError
from tests.happened import happened


def made(switches: Notices, told: list[Fact], *, step: bool = True, allocation: str = "") -> Noticing:
    """Of a run of one rank in job 12.

    :param step: in a step of it
    """
    node = SimpleNamespace(name="gpu0", dir="/tmp/c/r/gpu0")
    manifest = SimpleNamespace(
        foreign=None, nodes=[node], allocation=allocation, launcher="command", world=[0]
    )
    folder = SimpleNamespace(manifest=manifest, slurm_job="12" if step else "", name="otter")
    model = RunModel()
    model.apply(happened(time.time(), "planned", "", {"nodes": {"gpu0": (0,)}}))
    model.apply(happened(time.time(), "rank_started", "gpu0", {"rank": 0, "pid": 7}))
    model.apply(happened(time.time(), "link", "gpu0", {"state": "ok"}))
    return Noticing(
        cast(RunFolder, folder), model, Pace(range(1)), lambda _, fact: told.append(fact), switches
    )


def told(switches: Notices) -> set[str]:
    """Which rules speak where all losses are NaN and a disk and a memory are full."""
    notices = made(switches, [])
    for step in range(3):
        notices.log("gpu0", 0, b"step %d loss nan\n" % step)
    notices.sampled("gpu0", Sample(NodeSample(disk_free_bytes=0), {}, (), (MemorySample("", 95, 100),)))
    assert (notices.memory is None) == (not switches.memory)
    return {fact.id for fact in notices._rules.look(time.time(), 1.0, notices._model, notices._pace)}


def test_what_is_switched_off_is_not_looked_at() -> None:
    names = [each.name for each in fields(Notices)]
    assert told(Notices()) == {"loss", "disk"}
    assert told(Notices(disk=False)) == {"loss"}
    assert told(Notices(**dict.fromkeys(names, False))) == set()
    assert made(Notices(time_limit=False), [])._rules.limit is None


def test_a_checkpoint_is_told_once_with_its_step_and_how_long_it_took() -> None:
    facts: list[Fact] = []
    notices, now = made(Notices(), facts), time.time()
    notices._saved_until = now - 1000
    (rule,) = (rule for rule in notices._rules._rules if isinstance(rule, Checkpoint))
    at = now - 200
    for step in range(80):
        span = 2.0 + (11.0 if step in (40, 60) else 0.0)
        at += span
        notices._pace.stepped(0, step, at, span=span)
        if step == 39:
            rule.saves.append(at + 1)
    for ago in (10, 5, 0):
        notices._tell_saved(now - ago)
    assert facts == [Saved(40, 11.0)], "of what went on before step 60 nobody said that it was one"


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

    async def asked() -> None:
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
        await asyncio.wait_for(twice.wait(), 60)
        work.cancel()

    asyncio.run(asked())
    assert said[:2] == [600.0, None]


def test_a_run_over_ssh_on_nodes_of_a_job_has_its_time_limit_too() -> None:
    inside, outside = (made(Notices(), [], step=False, allocation=job)._rules.limit for job in ("12", ""))
    assert inside is not None
    assert inside.about.job == "12"
    assert outside is None


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
