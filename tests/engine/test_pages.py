"""Addresses of pages about a run, wherever in its logs they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cockpit.core.logs.causes import TAIL
from cockpit.core.logs.trackers import HEAD
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import Pages, pages
from cockpit.engine.records.folder import RunFolder
from tests.engine.books import Writer, run_folder

WANDB = "https://wandb.ai/ada/gpt/runs/late"
LINE = f"wandb: 🚀 View run late-otter-7 at: {WANDB}\n".encode()
FILLER = b"NCCL INFO gpu channel\n"


def logged(path: Path, data: bytes) -> RunFolder:
    folder = run_folder(path / "a-run", {"gpu1": [0, 1]})
    writer = Writer(folder)
    writer.write("gpu1", 0, data)
    writer.close()
    return folder


def urls(folder: RunFolder) -> list[str]:
    with closing(SpooledLogs(folder)) as logs:
        return [page.url for _, page in pages(logs)]


@pytest.mark.parametrize(
    "before", [0, HEAD - 10, HEAD, HEAD + 100_000, (1 << 20) + HEAD - 2048 - 20, 3 << 20]
)
def test_one_anywhere_in_a_log_is_found(tmp_path: Path, before: int) -> None:
    filler = (FILLER * (before // len(FILLER) + 1))[:before]
    after = FILLER * (2 * TAIL // len(FILLER))
    assert urls(logged(tmp_path, filler + b"\n" + LINE + after)) == [WANDB]


def test_there_is_a_limit_to_how_long_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []
    monkeypatch.setattr(Pages, "look", lambda self, source, lines: looked.append(lines))
    folder = logged(tmp_path, FILLER * (8 << 20 >> 4))
    with closing(SpooledLogs(folder)) as logs:
        pages(logs, 0.0)
    assert len(looked) == 3 * 2 + 1, "of each log its beginning and its end, and one piece more"


def cuts() -> Iterator[int]:
    return iter(range(1, len(LINE)))


def test_one_may_arrive_in_two_pieces() -> None:
    for cut in cuts():
        found = Pages()
        found.read(("gpu1", 0), FILLER + LINE[:cut])
        assert not found.named, "half an address leads elsewhere"
        found.read(("gpu1", 1), FILLER)
        found.read(("gpu1", 0), LINE[cut:])
        assert [page.url for _, page in found.named] == [WANDB]


def test_a_piece_that_does_not_follow_is_not_put_together() -> None:
    found = Pages()
    found.read(("gpu1", 0), LINE[:40])
    found.read(("gpu1", 0), LINE[40:], follows=False)
    assert not found.named


def test_endless_lines_are_not_kept() -> None:
    found = Pages()
    for _ in range(100):
        found.read(("gpu1", 0), b"wandb: View run " * 1000)
    assert sum(map(len, found._rest.values())) <= 2048
