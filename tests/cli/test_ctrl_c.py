"""Signals while a run is started, watched, and between the two."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from cockpit.cli.ctrl_c import Asks, interruptible
from cockpit.errors import CockpitError


def said() -> CockpitError:
    return CockpitError("it was interrupted")


async def turns() -> None:
    """Some of the loop, in which it takes note of a signal."""
    for _ in range(20):
        await asyncio.sleep(0)


async def wished() -> str:
    """What a watch that begins now is asked for."""
    asks = Asks(person=False, term="stop")
    asks.install()
    try:
        await turns()
        return asks.take()
    finally:
        asks.remove()


@pytest.mark.parametrize(
    ("number", "wish"), [(signal.SIGHUP, "leave"), (signal.SIGTERM, "stop"), (signal.SIGINT, "leave")]
)
def test_what_comes_between_the_start_and_the_watch_is_for_the_watch(
    number: signal.Signals, wish: str
) -> None:
    async def come() -> str:
        with interruptible(said):
            await turns()
        os.kill(os.getpid(), number)
        await turns()
        return await wished()

    assert asyncio.run(come()) == wish


def test_an_interrupted_start_is_told_and_nothing_is_held() -> None:
    async def start() -> None:
        with interruptible(said):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)

    async def come() -> str:
        with pytest.raises(CockpitError, match="it was interrupted"):
            await start()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        return await wished()

    assert asyncio.run(come()) == ""
