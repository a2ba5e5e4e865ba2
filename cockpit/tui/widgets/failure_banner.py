"""Who failed first, why, what came of it, and what will happen: the answer before the question."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from rich.segment import Segment
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from cockpit.core.causes import Cause
from cockpit.core.model import Rank, RankState, RunModel
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.tui.units import span_text
from cockpit.tui.widgets.line import Part, fit


class FailureBanner(Widget):
    """Up to three lines; none while nothing has failed.

    :param keys: the key of a command, by its id
    """

    DEFAULT_CSS = """
    FailureBanner {
        height: 0; display: none; background: $notice; color: $foreground;
        &.-shown { display: block; height: auto; }
        & > .failure-banner--bad { color: $rank-failed; text-style: bold; }
        & > .failure-banner--strong { text-style: bold; }
        & > .failure-banner--warn { color: $link-stale; }
        & > .failure-banner--dim { color: $foreground 70%; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"failure-banner--{name}" for name in ("bad", "strong", "warn", "dim")
    }

    class Pressed(Message):
        """It was clicked: a person wants to see the rank's log."""

    def __init__(self, *, keys: Callable[[str], str] = lambda name: name, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys = keys
        self.lines: list[list[Part]] = []

    def show(self, model: RunModel, cause: Cause | None, stops_at: float | None, now: float) -> None:
        """Draw what is known.

        :param stops_at: when the failure policy stops the rest, unix seconds
        """
        lines = self._lines(model, cause, stops_at, now)
        if lines == self.lines:
            return
        taller = len(lines) != len(self.lines)
        self.lines = lines
        self.set_class(bool(lines), "-shown")
        self.refresh(layout=taller)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as there are."""
        return len(self.lines)

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y >= len(self.lines):
            return Strip.blank(width, base)
        segments = [Segment("▌ ", self.get_component_rich_style("failure-banner--bad"))]
        for text, style in fit(self.lines[y], width - 3):
            rich = self.get_component_rich_style(f"failure-banner--{style}") if style else None
            segments.append(Segment(text, rich))
        return Strip(segments).adjust_cell_length(width, base).apply_style(base)

    def on_click(self) -> None:
        self.post_message(self.Pressed())

    def _lines(
        self, model: RunModel, cause: Cause | None, stops_at: float | None, now: float
    ) -> list[list[Part]]:
        first = model.first_failure()
        if first is None:
            return []
        lines = [self._who(model, first), self._why(first, cause)]
        rest = self._rest(model, stops_at, now)
        return [*lines, rest] if rest else lines

    def _who(self, model: RunModel, first: Rank) -> list[Part]:
        place = model.nodes[first.node].ranks.index(first.rank)
        at = model.ended_at(first)
        moment = (
            time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 10)}" if first.ended_at else ""
        )
        when = f" at {moment}" if moment else ""
        parts = [
            Part(((f"rank {first.rank} failed first", "bad"),), 0),
            Part(((f"{first.node}, local rank {place} · {first.text}{when}", ""),), 1),
        ]
        others = [model.ended_at(rank) for rank in model.failures()[1:] if rank.ended_at]
        if others and first.ended_at:
            parts.append(Part(((f"{span_text(max(0.0, min(others) - at))} before any other", "dim"),), 2))
        return parts

    def _why(self, first: Rank, cause: Cause | None) -> list[Part]:
        if cause is None:
            text = (
                "no traceback in its output"
                if first.state is not RankState.KILLED
                else "it was killed from outside"
            )
            parts = [Part(((text, "strong"),), 0)]
        else:
            parts = [Part(((cause.summary.shown(limit=300), "strong"),), 0)]
            frames = [frame.shown(limit=120) for frame in cause.frames]
            # Where there is little room, the innermost frame is the one to keep.
            parts += [Part(((f"{frame} →", ""),), 3) for frame in frames[:-1]]
            parts += [Part(((frame, ""),), 1) for frame in frames[-1:]]
        parts.append(Part(((f"{self._keys('failed_log')}: its log", "dim"),), 2))
        return parts

    def _rest(self, model: RunModel, stops_at: float | None, now: float) -> list[Part]:
        parts = []
        ended: dict[str, list[Rank]] = {}
        for rank in model.failures()[1:]:
            ended.setdefault(rank.text, []).append(rank)
        if ended:
            words = [
                _ended_text(text, ranks) for text, ranks in sorted(ended.items(), key=lambda e: -len(e[1]))
            ]
            parts.append(Part((("then ", "dim"), ("; ".join(words[:3]), "")), 1))
        if stops_at is not None:
            left = max(0.0, stops_at - now)
            keys = f"{self._keys('stop')} now · {self._keys('keep')} keep them running"
            parts.append(Part(((f"the other ranks stop in {left:.0f} s · {keys}", "warn"),), 0))
        elif model.stop_reason and not model.over:
            parts.append(Part((("stopping the other ranks", "warn"),), 0))
        return parts


def _ended_text(text: str, ranks: Iterable[Rank]) -> str:
    ranks = list(ranks)
    nodes = nodes_text(dict.fromkeys(rank.node for rank in ranks))
    count = f"{len(ranks)} rank{'s' * (len(ranks) > 1)}"
    return f"{count} ({ranks_text([rank.rank for rank in ranks])}) on {nodes} {text}"
