"""Following the logs of a run: fairly, without a pause while anything is left, with few files open."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.node.calls import Call, NodeError
from cockpit.node.run.follow import BULK, _Reader, follow
from tests.node import folders


def test_one_rank_far_behind_is_not_held_up_by_chatty_ones(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_bytes(b"x" * (3 * BULK))
    for rank in range(1, 8):
        (tmp_path / f"rank-{rank}.log").write_bytes(b"one line\n")
    folders.make(tmp_path, range(8))
    reader = _Reader(str(tmp_path), range(8), {})
    first, data = reader.batch(BULK)
    assert len(first) == 8
    got = len(data)
    batches = 1
    while reader.behind:
        got += len(reader.batch(BULK)[1])
        batches += 1
    assert got == 3 * BULK + 7 * len(b"one line\n")
    assert batches <= 5


def test_it_pauses_only_when_nothing_is_left(tmp_path: Path) -> None:
    for rank in range(8):
        (tmp_path / f"rank-{rank}.log").write_bytes(b"x" * (BULK if rank == 0 else 10))
    folders.make(tmp_path, range(8))
    got = 0
    calls: list[Call] = []

    class Watched(Call):
        def pause(self, seconds: float) -> bool:
            assert got == BULK + 70, "paused with bytes left"
            return False

    def send(header: dict[str, object], payload: bytes) -> None:
        nonlocal got
        got += len(payload)

    calls.append(Watched({"id": 1, "dir": str(tmp_path)}, b"", send))
    calls[0].add_credit(10 * BULK)
    follow(calls[0])
    assert got == BULK + 70


@pytest.fixture
def few_files() -> Iterator[None]:
    """This process may have no more than 256 files open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_2048_logs_under_256_files(tmp_path: Path) -> None:
    ranks = range(2048)
    folders.make(tmp_path, ranks)
    want = {}
    for rank in ranks:
        want[record.rank_log(rank)] = text = b"line of rank %d\n" % rank
        (tmp_path / record.rank_log(rank)).write_bytes(text)
    assert followed(tmp_path, 2048) == want


def followed(folder: Path, files: int, **fields: Any) -> dict[str, bytes]:
    """Follow until so many logs have come; what came of each."""
    got: dict[str, bytes] = {}

    def send(header: dict[str, Any], payload: bytes) -> None:
        for name, _, length in header["item"]["parts"]:
            got[name], payload = got.get(name, b"") + payload[:length], payload[length:]
        if len(got) >= files:
            call.cancel()

    call = Call({"id": 1, "dir": str(folder), **fields}, b"", send)
    call.add_credit(64 << 20)
    follow(call)
    return got


def test_only_regular_files_of_own_ranks_are_followed(tmp_path: Path) -> None:
    folders.make(tmp_path, [0, 1, 2, 3])
    (tmp_path / "rank-0.log").write_bytes(b"mine\n")
    os.mkfifo(tmp_path / "rank-1.log")
    (tmp_path / "secret").write_bytes(b"somebody else's\n")
    (tmp_path / "rank-2.log").symlink_to(tmp_path / "secret")
    (tmp_path / "rank-3.log").mkdir()
    for name in ("rank-4.log", "rank-" + "1" * 240 + ".log", "rank-\N{ARABIC-INDIC DIGIT ONE}.log"):
        (tmp_path / name).write_bytes(b"no rank of this node\n")
    assert followed(tmp_path, 1) == {"rank-0.log": b"mine\n"}


def test_a_file_that_was_cut_is_said(tmp_path: Path) -> None:
    folders.make(tmp_path, [0])
    (tmp_path / "rank-0.log").write_bytes(b"new\n")
    with pytest.raises(NodeError, match=r"rank-0\.log was cut from 100 to 4 bytes"):
        followed(tmp_path, 1, offsets={"rank-0.log": 100})
