"""Run models that a test makes up, and an app around one widget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from textual.app import App, ComposeResult
from textual.widget import Widget

from cockpit.core.run.model import RunModel
from cockpit.tui.look import themes
from tests.happened import happened

NOW = 1_795_233_881.0

W = TypeVar("W", bound=Widget)


def happens(model: RunModel, node: str, kind: str, at: float = NOW, **data: Any) -> set[str | int]:
    """One event."""
    return model.apply(happened(at, kind, node, data))


def running(nodes: int | Sequence[str], slots: int) -> RunModel:
    """Every rank of the nodes runs; the links stand, and the nodes have told how they are."""
    names = [f"gpu{number:02d}" for number in range(1, nodes + 1)] if isinstance(nodes, int) else list(nodes)
    model = RunModel()
    ranks = {name: list(range(i * slots, (i + 1) * slots)) for i, name in enumerate(names)}
    happens(model, "", "planned", nodes=ranks)
    for name in names:
        happens(model, name, "launched", NOW - 700)
        happens(model, name, "link", NOW - 700, state="ok")
        happens(model, name, "clock", NOW - 700, offset_s=0.0, rtt_s=0.016)
        for rank in ranks[name]:
            happens(model, name, "rank_started", NOW - 697, rank=rank, pid=41_000 + rank)
        measured(model, name)
    return model


def measured(model: RunModel, node: str, **other: Any) -> set[str | int]:
    """One measurement of a node."""
    sample = {"load": 8.0, "cores": 16, "memory_bytes": 256 << 30, "memory_total_bytes": 512 << 30}
    data = {"sample": sample, "ranks": {}, "gpus": [{"utilisation_percent": 100}], **other}
    return happens(model, node, "sample", **data)


def exits(
    model: RunModel, rank: int, code: int | None = 1, signal: int | None = None, ago: float = 0.0
) -> set[str | int]:
    """A rank ends."""
    node = model.ranks[rank].node
    return happens(model, node, "rank_exited", NOW - ago, rank=rank, code=code, signal=signal)


class Around(App[None], Generic[W]):
    """An app that shows one widget, and keeps what the widget tells.

    :param size: columns and rows of the widget; None: as it likes
    """

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, widget: W, size: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.widget = widget
        self.told: list[Any] = []
        if size is not None:
            widget.styles.width, widget.styles.max_height = size

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.defaults()

    def compose(self) -> ComposeResult:
        yield self.widget

    def on_mount(self) -> None:
        self.widget.focus()

    def lines(self) -> list[str]:
        """What the widget shows, without colours."""
        return [
            "".join(segment.text for segment in self.widget.render_line(y)).rstrip()
            for y in range(self.widget.size.height)
        ]
