"""What logs told before anybody watched is drawn at the time when it was printed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cockpit.core.pace.pace import Pace
from cockpit.core.run.model import RunModel
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import planned
from cockpit.engine.run import past_metrics
from cockpit.engine.run.board import Board
from tests.engine.books import CREATED, Writer, run_folder

STEPS = 300


def printed(tmp_path: Path) -> RunFolder:
    """A run whose rank 0 told a loss every two seconds."""
    folder = run_folder(tmp_path / "a-run", {"gpu1": [0, 1]})
    writer = Writer(folder)
    for step in range(1, STEPS + 1):
        writer.write(
            "gpu1",
            0,
            f"step {step}/900 loss {3 - step / 200:.3f} lr 1e-4 tokens/s {40_000 + step}\n".encode(),
        )
        writer.write("gpu1", 1, b"nothing of interest\n")
        writer.tick(CREATED + 2.0 * step)
    writer.close()
    return folder


async def attached(folder: RunFolder) -> Board:
    board, model = Board(folder), RunModel()
    model.apply(planned(folder.manifest))
    board.joined(model, Pace(range(2)))
    await board.load()
    return board


def test_the_curve_of_a_run_that_is_attached_to_has_the_times_of_its_lines(tmp_path: Path) -> None:
    async def main() -> tuple[Board, list[float]]:
        board = await attached(printed(tmp_path))
        board.log("gpu1", 0, 1 << 20, b"step 301/900 loss 1.4 lr 1e-4 tokens/s 41000\n")
        stamped = [at for at, _ in board.metrics.series("loss")]
        await board.recall_numbers()
        return board, stamped

    board, stamped = asyncio.run(main())
    assert min(stamped) > time.time() - 60, "the end of a log that is read here says nothing of its times"
    for name, last in (("loss", 1.4), ("tokens_s", 41_000.0)):
        *past, live = board.metrics.series(name)
        assert len(past) == STEPS
        assert (past[0][0], past[-1][0]) == (CREATED + 2.0, CREATED + 2.0 * STEPS)
        assert live[1] == last
        assert live[0] > time.time() - 60
    assert board.metrics.series("loss")[99][1] == pytest.approx(2.5)
    board.close()


def test_of_a_long_log_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_metrics, "MOST", 2000)

    async def main() -> Board:
        board = await attached(printed(tmp_path))
        await board.recall_numbers()
        return board

    board = asyncio.run(main())
    times = [at for at, _ in board.metrics.series("loss")]
    assert times[-1] == CREATED + 2.0 * STEPS
    assert 30 < len(times) < 60
    board.close()


def test_without_numbers_there_is_nothing_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_folder(tmp_path / "a-run", {"gpu1": [0, 1]})

    async def never(*_: object) -> dict[str, object]:
        raise AssertionError

    monkeypatch.setattr("cockpit.engine.run.board.told_before", never)

    async def main() -> None:
        board = await attached(folder)
        await board.recall_numbers()
        board.close()

    asyncio.run(main())
