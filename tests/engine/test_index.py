"""The index answers the same whether its records are in memory or in a file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from struct import Struct

import pytest

from cockpit.core.logs.batches import Segment
from cockpit.engine.logs import index as indexes
from cockpit.engine.logs.index import Block, Index, Table


def test_a_table_gives_back_what_was_put_in(tmp_path: Path) -> None:
    table = Table(tmp_path, Struct("<QI"))
    records = [(number * number, number % 7) for number in range(30_000)]
    for record in records:
        table.append(*record)
    assert len(table) == len(records)
    assert table.read(0, len(table)) == records
    # Around what is written by now, and what still waits.
    for start in range(0, 30_000, 997):
        assert table.read(start, start + 10) == records[start : start + 10]
    assert list(tmp_path.iterdir()) == []
    table.close()


def test_on_a_full_disk_a_table_stays_in_memory_until_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    really = os.pwrite

    def pwrite(file: int, data: bytes, offset: int) -> int:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(file, data[: len(data) // 2 + 1], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    table = Table(tmp_path, Struct("<Q"))
    for number in range(40_000):
        full = number < 20_000
        table.append(number)
    assert table.read(0, 40_000) == [(number,) for number in range(40_000)]
    assert len(table._tail) < 2 * indexes._SPILL
    table.close()


def test_blocks_sum_up_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "BLOCK_BATCHES", 3)
    index = Index(tmp_path)
    batches = [[Segment(n % 2, 10 * (n // 2), 10, 2), Segment(2, 5 * n, 5, 1)] for n in range(8)]
    for number, batch in enumerate(batches):
        index.add(100.0 + number, batch)
    assert [index.segments(number) for number in range(index.batches)] == batches
    assert (index.lines, index.size_bytes) == (24, 120)
    assert [index.block_of(number) for number in (0, 2, 3, 5, 6, 7)] == [
        Block(0, 0, 3),
        Block(0, 0, 3),
        Block(1, 3, 6),
        Block(1, 3, 6),
        None,
        None,
    ]
    assert index.block_segments(Block(1, 3, 6)) == [
        Segment(0, 20, 10, 2),
        Segment(1, 10, 20, 4),
        Segment(2, 15, 15, 3),
    ]
    assert [index.batch_of_line(line) for line in (0, 2, 3, 23)] == [0, 0, 1, 7]
    assert [index.batch_at(at) for at in (5.0, 100.0, 103.5, 900.0)] == [0, 0, 4, 8]
    index.close()
