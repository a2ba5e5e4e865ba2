"""A run that is replayed is as it was on the screen when it went on."""

from __future__ import annotations

import asyncio

import pytest

from cockpit.engine.records.folder import RunFolder
from cockpit.engine.replay.recorded import Recorded
from cockpit.engine.replay.replay import Replay
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from tests.engine.pools import Fakes
from tests.replay.lived import NODES, Lived, Seen, eventful, lines_of, watched


async def reopened(folder: RunFolder) -> tuple[Replay, Board, Session]:
    """The run, looked at from what is here."""
    folder = RunFolder(folder.path)
    board = Board(folder)
    session = Session(folder, board, pool=Fakes({}), writer=False)
    await session.rejoin()
    await board.recall()
    await board.load()
    return Replay(await Recorded.read(folder), board), board, session


async def compare(replay: Replay, board: Board, seen: Seen, step_s: float) -> None:
    """Whether a moment is as it was seen."""
    replay.player.seek(seen.at)
    replay.show()
    await replay.settle()
    model, pace = board.model, board.pace
    assert {number: rank.text for number, rank in model.ranks.items()} == seen.states
    assert {name: node.link for name, node in model.nodes.items()} == seen.links
    # Steps that end within half a second are one line of the file; the median rank says when it ended.
    for rank, step in seen.steps.items():
        told = pace.of(rank).step
        near = 1.5 / step_s + 2
        assert step is None or (told is None and step <= near) or abs(step - (told or 0)) <= near, (
            rank,
            step,
            told,
        )
    if seen.front is not None and seen.front > 5:
        assert pace.front is not None
        assert abs(pace.front[0] - seen.front) <= 1.5 / step_s + 2
    for rank, rss in seen.rss.items():
        sample = model.ranks[rank].sample
        # One measurement each quarter of a minute is kept; of a process that has ended it stays.
        assert rss is None or sample is None or abs((sample.rss_bytes or 0) - rss) <= 16_000
    for rank, count in seen.lines.items():
        assert abs(lines_of(board.book, rank) - count) <= 1 + replay.distance_s


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [{}, {"gpu2": 3600.0}])
def test_fifty_random_moments_are_as_they_were(
    ahead: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> Lived:
        async with watched(monkeypatch, NODES, ahead) as lived:
            await eventful(lived, 240, looks=50)
            await lived.ends()
        return lived

    lived = asyncio.run(story())

    async def replayed() -> None:
        replay, board, session = await reopened(lived.folder)
        # Not one after the other: also back.
        for seen in sorted(lived.seen, key=lambda one: (one.at * 7919) % 101):
            await compare(replay, board, seen, lived.step_s)
            assert {name: node.offset_s for name, node in board.model.nodes.items()} == {
                name: ahead.get(name, 0.0) for name in NODES
            }
        await session.close()
        board.close()

    assert len(lived.seen) == 50
    asyncio.run(replayed())
