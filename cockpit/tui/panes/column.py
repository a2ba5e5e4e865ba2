"""Panes one below the other: each has the rows that it fills, and gets those that the others do not need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.containers import Vertical
from textual.geometry import Region, Size
from textual.layout import Layout, WidgetPlacement
from textual.widget import Widget

from cockpit.tui.panes.text_pane import TextPane


def shared_out(needs: Sequence[int], parts: Sequence[float], room: int) -> list[int]:
    """So many rows for each; where there are too few, who needs less than its part leaves the rest to others.

    :param needs: how many each would fill
    :param parts: the part of all that each has at least, if it needs that many
    """
    rows = list(needs)
    short = set(range(len(rows)))
    while short and sum(rows) > room:
        left = room - sum(rows[at] for at in range(len(rows)) if at not in short)
        whole = sum(parts[at] for at in short)
        fair = {at: int(left * parts[at] / whole) for at in short}
        content = {at for at in short if needs[at] <= fair[at]}
        if not content:
            rest = left - sum(fair.values())
            for place, at in enumerate(sorted(short)):
                rows[at] = fair[at] + (place < rest)
            break
        short -= content
    return rows


class _Shares(Layout):
    """What none fills goes to what is cut, and then to the last one whose height is a fraction."""

    name = "vertical"

    def __init__(self, parts: Mapping[str, float]) -> None:
        self._parts = parts

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> list[WidgetPlacement]:
        parent.pre_layout(self)
        viewport = parent.app.size
        needs: list[int] = []
        for child in children:
            gutter = child.styles.gutter
            rows = child.get_content_height(size, viewport, size.width - gutter.width)
            needs.append(rows + gutter.height)
        parts = [self._parts.get(child.id or "", 1.0) for child in children]
        tall = shared_out(needs, parts, size.height) if size.height else needs
        spare = max(0, size.height - sum(tall))
        for at, child in enumerate(children):
            if spare and isinstance(child, TextPane):
                more = min(spare, child.rows_cut(size.width - child.styles.gutter.width))
                tall[at] += more
                spare -= more
        stretched = [at for at, child in enumerate(children) if _is_fraction(child)]
        if greedy and stretched:
            tall[stretched[-1]] += spare
        placed: list[WidgetPlacement] = []
        y = 0
        for child, height in zip(children, tall, strict=True):
            region = Region(0, y, size.width, height)
            offset = child.styles.offset.resolve(size, viewport)
            placed.append(WidgetPlacement(region, offset, child.styles.margin, child))
            y += height
        return placed


def _is_fraction(child: Widget) -> bool:
    height = child.styles.height
    return height is not None and height.is_fraction


class Column(Vertical):
    """A column of panes.

    :param parts: of each pane by its id, the part of the rows that it has at least where there are too few
    """

    def __init__(self, parts: Mapping[str, float], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shares = _Shares(parts)

    @property
    def layout(self) -> Layout:
        """Ours."""
        return self._shares
