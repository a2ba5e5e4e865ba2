"""The time that is left is that of the run, also where a log counts the steps of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cockpit.core.logs.metrics import Metrics

Said = Callable[[int, int], str]


def read(lines: Iterator[str]) -> tuple[Metrics, float]:
    """A log of a line each second."""
    metrics, at = Metrics(), 0.0
    for line in lines:
        at += 1
        metrics.feed(0, line.encode() + b"\n", at)
    return metrics, at


def trained(said: Said, epochs: int, *, first: int = 1, last: int = 20, steps: int = 100) -> Iterator[str]:
    """Epochs of a hundred steps, the last of them up to a step."""
    for epoch in range(first, first + epochs):
        for step in range(1, (last if epoch == first + epochs - 1 else steps) + 1):
            yield said(epoch, step)


WORDED: dict[str, Said] = {
    "words": lambda epoch, step: f"Epoch {epoch}/10 step {step}/100 loss {1 / (epoch * 100 + step):.5f}",
    "boxes": lambda epoch, step: f"Epoch: [{epoch}/10][{step}/100] Loss {1 / (epoch * 100 + step):.5f}",
    "eta of the epoch": lambda epoch, step: (
        f"Epoch {epoch}/10 step {step}/100 loss {1 / (epoch * 100 + step):.5f} eta: 0:{100 - step:02d}"
    ),
    "heading": lambda epoch, step: (
        f"Epoch {epoch}/10\n{step}/100 [====>.........] - loss: {1 / (epoch * 100 + step):.5f}"
    ),
}


@pytest.mark.parametrize("name", WORDED)
@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_epochs_to_come_count(name: str, epochs: int) -> None:
    metrics, at = read(trained(WORDED[name], epochs))
    assert metrics.place == ((epochs - 1) * 100 + 20, 1000)
    assert metrics.time_left(at) == 1000 - (epochs - 1) * 100 - 20


def test_epochs_may_count_from_0() -> None:
    metrics, at = read(trained(WORDED["words"], 3, first=0))
    assert metrics.time_left(at) == 1000 - 220


def test_a_bar_of_lightning_says_nothing_of_the_run() -> None:
    def bar(epoch: int, step: int) -> str:
        left = f"{(100 - step) // 60:02d}:{(100 - step) % 60:02d}"
        times = f"00:{step % 60:02d}<{left}, 1.00it/s"
        return f"Epoch {epoch}: {step}%|##| {step}/100 [{times}, train_loss={3 - step / 99:.3f}]"

    for epochs in (1, 2):
        metrics, at = read(trained(bar, epochs, first=0))
        assert metrics.latest.step == 20
        assert metrics.time_left(at) is None


def test_a_program_that_says_what_is_left_of_the_run_is_believed() -> None:
    def line(epoch: int, step: int) -> str:
        return f"Epoch(train) [{epoch}][{step}/100]  lr: 1e-4  eta: 1:00:00  time: 1.0  loss: {1 / step:.4f}"

    metrics, at = read(trained(line, 2))
    assert metrics.time_left(at) == 3600


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {epoch}/10 step {step}/1000 loss {loss:.5f}",
        "epoch {epoch} | step {step}/1000 | loss {loss:.5f}",
        "step {step}/1000 epoch {part:.3f} loss {loss:.5f}",
    ],
)
def test_steps_of_the_run_stay_those(line: str) -> None:
    def said() -> Iterator[str]:
        for step in range(1, 221):
            yield line.format(epoch=1 + (step - 1) // 100, step=step, loss=9 / step, part=step / 100)

    metrics, at = read(said())
    assert metrics.time_left(at) == 1000 - 220
