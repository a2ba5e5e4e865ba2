"""Reports collected in the real app on a made-up run: over the links of its session; a lost link is told."""

from __future__ import annotations

import asyncio

from tests.engine.pools import Fakes
from tests.engine.test_collect import Node
from tests.tui.scenes import Scene, healthy, notes, played, trains, until


def test_collecting_borrows_the_links_of_the_session_and_tells_of_one_that_is_lost() -> None:
    async def main() -> None:
        async with played(
            Scene(lambda: healthy(profile={"nsys": "nsys"}), trains), (120, 40), notices=True
        ) as (app, pilot, stage):
            nodes = {name: Node({"a.nsys-rep": bytes(5000)}) for name in stage.nodes}
            nodes[stage.nodes[1]].cut_after = 2
            stage.pool = pool = Fakes(nodes)
            for name in stage.nodes:
                await pool.lend(name)

            def told(text: str) -> bool:
                return any(text in note.message for note in notes(app))

            await pilot.press("c")
            await until(pilot, lambda: told(f"{len(nodes)} reports, 0.0 MB, verified"), "all are collected")
            assert told("connection lost while collecting (cut); reconnecting")
            assert told(f"to resume later: cockpit collect {stage.name}")
            assert pool.opened == stage.nodes
            assert not any(node.lost.done() for node in nodes.values())

    asyncio.run(main())
