"""The evidence on the screen: each moment with its verdict; a key opens the stacks, one leads back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from cockpit.config import Config
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.listed import Listed, listed
from cockpit.tui.base_app import BaseApp
from cockpit.tui.commands import KEPT, in_scope
from cockpit.tui.stacks import evidence_screen
from cockpit.tui.stacks.evidence_screen import EvidenceScreen
from cockpit.tui.stacks.screen import StackScreen
from tests.tui.scenes import text_of, until
from tests.tui.stack_scenes import reads, waits
from tests.tui.stage import NOW

NIGHT = NOW - 3600


class App(BaseApp):
    """The screen, above another one."""

    def __init__(self, root: Path, run: str = "otter", config: Config | None = None) -> None:
        super().__init__(config or Config())
        self.kept = EvidenceScreen(
            run, root, lambda: "no evidence from gpu03 (gpu03 was rebooted at 03:14:05)"
        )

    def on_mount(self) -> None:
        """Show it."""
        self.push_screen(self.kept)


def keep(root: Path, at: float, by_nodes: str) -> None:
    """A snapshot of four ranks, of which one reads, and the others wait for it."""
    places = {rank: Place(f"gpu0{1 + rank // 2}", rank % 2, 100 + rank) for rank in range(4)}
    samples = [
        Sample(when, {rank: (reads if rank == 3 else waits)(rank, when) for rank in places}, {}, 0.1)
        for when in (at, at + 600)
    ]
    options = {"native": False, "locals": False, "children": False}
    made = Snapshot(str(int(at)), "otter", "otter", places, samples, options, by_nodes=by_nodes)
    saved.save(made, saved.new_folder(root, made))


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
def test_moments_the_newest_first(tmp_path: Path, size: tuple[int, int]) -> None:
    root = tmp_path / "stacks"
    keep(root, NIGHT, "the ranks of gpu[01-02] had made no progress for 45 s")
    (root / "damaged").mkdir()
    (root / "damaged" / "snapshot.json").write_text("{")

    async def main() -> None:
        app = App(root)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "evidence: 1 snapshot" in text_of(app), "it was read")
            assert "saved by the nodes: the ranks of gpu[01-02]" in text_of(app)
            assert f"{evidence_screen.moment(NIGHT + 600)}  saved" in text_of(app), "of its last sample"
            assert "rank 3 " in text_of(app)
            assert "read_shard" in text_of(app)
            keep(root, NIGHT + 1800, "")
            await until(pilot, lambda: "evidence: 2 snapshots" in text_of(app), "one more was read")
            shown = text_of(app)
            assert shown.index("taken by a cockpit") < shown.index("saved by the nodes")
            assert set(app.kept.handlers) == {command.id for command in in_scope(KEPT)}
            await pilot.press("down", "enter")
            await until(pilot, lambda: isinstance(app.screen, StackScreen), "its stacks")
            await until(pilot, lambda: "RECORDED SNAPSHOT" in text_of(app), "they are drawn")
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is app.kept, "one step back")
            await pilot.press("Y")
            assert app.clipboard == f"cockpit stacks {root / str(int(NIGHT))}"
            await pilot.press("escape")
            await until(pilot, lambda: app.kept not in app.screen_stack, "and one more")

    asyncio.run(main())


def test_where_there_is_none(tmp_path: Path) -> None:
    async def main() -> None:
        app = App(tmp_path / "stacks")
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "nothing was saved" in text_of(app), "it was read")
            assert "no evidence from gpu03 (gpu03 was rebooted at 03:14:05)" in text_of(app)
            await pilot.press("enter")
            assert app.screen is app.kept

    asyncio.run(main())


def test_a_disk_that_is_slower_than_the_looks_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed_slowly(root: Path) -> Sequence[Listed]:
        time.sleep(0.1)  # not a wait: reading takes that long
        return listed(root)

    root = tmp_path / "stacks"
    keep(root, NIGHT, "")
    monkeypatch.setattr(evidence_screen, "LOOK_S", 0.01)
    monkeypatch.setattr(evidence_screen, "listed", listed_slowly)

    async def main() -> None:
        app = App(root)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "evidence: 1 snapshot" in text_of(app), "it was read")

    asyncio.run(main())
