"""Following the logs of a run: fairly, and without a pause while anything is left."""

from __future__ import annotations

from pathlib import Path

from cockpit.node.calls import Call
from cockpit.node.follow import BULK, _Reader, follow


def test_one_rank_far_behind_is_not_held_up_by_chatty_ones(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_bytes(b"x" * (3 * BULK))
    for rank in range(1, 8):
        (tmp_path / f"rank-{rank}.log").write_bytes(b"one line\n")
    reader = _Reader(str(tmp_path), {})
    try:
        first, data = reader.batch(BULK)
        assert len(first) == 8
        got = len(data)
        batches = 1
        while reader.behind:
            got += len(reader.batch(BULK)[1])
            batches += 1
        assert got == 3 * BULK + 7 * len(b"one line\n")
        assert batches <= 5
    finally:
        reader.close()


def test_it_pauses_only_when_nothing_is_left(tmp_path: Path) -> None:
    for rank in range(8):
        (tmp_path / f"rank-{rank}.log").write_bytes(b"x" * (BULK if rank == 0 else 10))
    got = 0
    calls: list[Call] = []

    class Watched(Call):
        def pause(self, seconds: float) -> bool:
            assert got == BULK + 70, "paused with bytes left"
            return False

    def send(header: dict[str, object], payload: bytes) -> None:
        nonlocal got
        got += len(payload)

    calls.append(Watched({"id": 1, "dir": str(tmp_path), "credit": 10 * BULK}, b"", send))
    follow(calls[0])
    assert got == BULK + 70
