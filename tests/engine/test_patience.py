"""Nodes are given up once none has got on for a while, and not for what is elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from cockpit.engine.links.patience import Late, Patience
from cockpit.engine.links.roll import Roll
from cockpit.transport.base import ConnectStage

LIMIT_S = 0.6


async def given_up(roll: Roll, patience: Patience, node: str, work: asyncio.Future[None]) -> str:
    """The stage at which a node was given up; empty: it answered."""
    try:
        await patience.of(node, work)
    except Late as late:
        return late.progress.stage.name
    roll.answer(node)
    return ""


async def outcome(stages: dict[str, ConnectStage], **answers: float) -> dict[str, str]:
    """How it ends for nodes that stay at these stages, but for those that answer after so many seconds."""
    roll = Roll(stages)
    for node, stage in stages.items():
        roll.awaited[node].reach(stage)
    async with Patience(roll, LIMIT_S) as patience:
        work = {
            node: asyncio.ensure_future(
                asyncio.sleep(answers[node]) if node in answers else asyncio.Event().wait()
            )
            for node in stages
        }
        asked = (given_up(roll, patience, node, each) for node, each in work.items())  # type: ignore[arg-type]
        return dict(zip(stages, await asyncio.gather(*asked), strict=True))


@pytest.mark.slow
def test_a_silent_node_is_given_up_once_nobody_gets_on_any_more() -> None:
    stages = {"dead": ConnectStage.DIALING, **{f"n{i}": ConnectStage.AGENT for i in range(5)}}
    slow = {f"n{i}": 0.4 * (i + 1) for i in range(5)}
    assert asyncio.run(outcome(stages, **slow)) == {"dead": "DIALING", **dict.fromkeys(slow, "")}


@pytest.mark.slow
@pytest.mark.parametrize("stage", [ConnectStage.JUMP, ConnectStage.PERSON])
def test_a_jump_host_and_a_person_may_take_longer(stage: ConnectStage) -> None:
    assert asyncio.run(outcome({"a": stage, "dead": ConnectStage.LOGIN}, a=3 * LIMIT_S)) == {
        "a": "",
        "dead": "LOGIN",
    }


def test_a_turn_that_never_comes() -> None:
    stages = {"dead": ConnectStage.DIALING, "behind": ConnectStage.QUEUED}
    assert asyncio.run(outcome(stages)) == {"dead": "DIALING", "behind": "QUEUED"}


def test_an_error_is_passed_on() -> None:
    async def fails() -> None:
        raise ValueError("why")

    async def main() -> None:
        async with Patience(Roll(["a"]), LIMIT_S) as patience:
            with pytest.raises(ValueError, match="why"):
                await patience.of("a", fails())

    asyncio.run(main())
