"""The failure policy leaves time to decide from the moment on that a person could have seen the failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cockpit.core.run.model import RunModel
from cockpit.engine.run import failures
from cockpit.engine.run.failures import FailurePolicy
from tests.happened import happened

WAIT_S = 30.0
BEGAN = 1_700_000_000.0


class Machine:
    """A policy over a run of two ranks on a machine whose clocks the test moves."""

    def __init__(self) -> None:
        self.at, self.ticks = BEGAN, 500.0
        self.model = RunModel()
        self.model.apply(happened(BEGAN, "planned", "", {"nodes": {"a": [0], "b": [1]}}))
        self.stops: list[str] = []
        self.policy = FailurePolicy(
            self.model,
            WAIT_S,
            stop=self._stop,
            stopping=lambda: bool(self.stops),
            clock=lambda: (self.at, self.ticks),
        )

    async def _stop(self, reason: str) -> None:
        self.stops.append(reason)

    def fails(self, at: float) -> None:
        """The record of a rank's failure arrives, which was at this moment."""
        self.model.apply(happened(at, "rank_exited", "a", {"rank": 0, "code": 1, "pid": 9}))

    async def passes(self, seconds: float) -> None:
        """Time passes, and this machine is awake."""
        for _ in range(int(seconds)):
            self.at, self.ticks = self.at + 1, self.ticks + 1
            await looked()

    async def sleeps(self, seconds: float, *, ticks: float) -> None:
        """It does not look for so long, in which its other clock counts so many seconds."""
        self.at, self.ticks = self.at + seconds, self.ticks + ticks
        await looked()


async def looked() -> None:
    """Let the policy look."""
    for _ in range(5):
        await asyncio.sleep(0)


def minded(test: Callable[[Machine], object], monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine that a test has done something with, and that minds the policy."""
    monkeypatch.setattr(failures, "_LOOK_S", 0.0)
    machine = Machine()

    async def main() -> None:
        minding = asyncio.create_task(machine.policy.mind())
        await looked()
        await test(machine)  # type: ignore[misc]
        minding.cancel()
        await asyncio.gather(minding, return_exceptions=True)

    asyncio.run(main())
    return machine


@pytest.mark.parametrize("ticks", [180.0, 0.0])
@pytest.mark.parametrize("before", [True, False])
def test_after_a_sleep_there_is_all_the_time_to_decide(
    monkeypatch: pytest.MonkeyPatch, ticks: float, before: bool
) -> None:
    async def slept(machine: Machine) -> None:
        if before:
            machine.fails(machine.at)
            await machine.passes(WAIT_S - 5)
        at = machine.at + 20
        await machine.sleeps(180.0, ticks=ticks)
        if not before:
            machine.fails(at)
            await looked()
        assert machine.policy.stops_at == pytest.approx(machine.at + WAIT_S)
        await machine.passes(WAIT_S - 1)
        assert not machine.stops
        await machine.passes(2)

    assert minded(slept, monkeypatch).stops == ["rank 0 on a exited 1"]


def test_news_that_arrive_late_leave_as_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(machine: Machine) -> None:
        await machine.passes(600)
        machine.fails(machine.at - 500)  # its link was lost
        await machine.passes(WAIT_S - 1)
        assert not machine.stops
        await machine.passes(2)

    assert minded(late, monkeypatch).stops == ["rank 0 on a exited 1"]


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_a_clock_that_is_set_takes_no_time(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    async def set_(machine: Machine) -> None:
        machine.fails(machine.at)
        await machine.passes(5)
        machine.at += by
        await machine.passes(WAIT_S - 1)
        assert not machine.stops
        await machine.passes(2)

    assert minded(set_, monkeypatch).stops == ["rank 0 on a exited 1"]


def test_what_is_kept_is_not_stopped_after_a_sleep_either(monkeypatch: pytest.MonkeyPatch) -> None:
    async def kept(machine: Machine) -> None:
        machine.fails(machine.at)
        await machine.passes(5)
        machine.model.apply(happened(machine.at, "rest_kept", "", {}))
        await machine.sleeps(180.0, ticks=180.0)
        await machine.passes(2 * WAIT_S)

    machine = minded(kept, monkeypatch)
    assert not machine.stops
    assert machine.policy.stops_at is None
