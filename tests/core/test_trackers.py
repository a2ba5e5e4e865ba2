"""The pages that W&B and TensorBoard name in a log."""

from __future__ import annotations

import pytest

from cockpit.core.logs.trackers import LONGEST, Tracker, trackers

RUN = "https://wandb.ai/ada/gpt/runs/3k1x9s2a"


@pytest.mark.parametrize(
    "line",
    [
        f"wandb: 🚀 View run at {RUN}",
        f"wandb: 🚀 View run lively-otter-7 at: {RUN}",
        f"\x1b[34m\x1b[1mwandb\x1b[0m: 🚀 View run \x1b[33mlively\x1b[0m at: \x1b[34m\x1b[4m{RUN}\x1b[0m",
        f"[rank0]: wandb: 🚀 View run at {RUN}?apiKey=0123456789abcdef",
    ],
)
def test_wandb(line: str) -> None:
    data = f"wandb: ⭐️ View project at https://wandb.ai/ada/gpt\n{line}\nstep 1\n{line}\n".encode()
    assert trackers(data) == [Tracker("W&B", RUN)]


def test_tensorboard() -> None:
    line = b"TensorBoard 2.17.1 at http://localhost:6006/ (Press CTRL+C to quit)\r\n"
    assert trackers(line) == [Tracker("TensorBoard", "http://localhost:6006/")]
    assert trackers(b"TensorBoard 2.1.0 at http://[::1]:6006/ (Press") == [
        Tracker("TensorBoard", "http://[::1]:6006/")
    ]


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "ftp://wandb.ai/x",
        "https://",
        "https://user:secret@wandb.ai/x",
        "https://ada@wandb.ai/x",
        "https://\x1b]8;;evil",
        "https://wandb.ai/" + "x" * LONGEST,
        "https://\u202ewandb.ai",
    ],
)
def test_what_is_no_address_of_a_page(address: str) -> None:
    assert trackers(f"wandb: 🚀 View run at {address}\n".encode()) == []


def test_nothing_odd_comes_out_of_bytes_of_any_kind() -> None:
    line = b"TensorBoard 2.0 at https://h/\xff\xfe\x1b[31m\x9bm\x00\n"
    assert trackers(line) == [Tracker("TensorBoard", "https://h/")]
    assert trackers(b"TensorBoard 2.0 at " * 10_000) == []
    assert trackers(b"wandb: View run " * 10_000) == []
