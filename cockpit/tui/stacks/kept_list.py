"""Snapshots of a run, each with when and why it was taken, and the verdict on it."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator

from rich.cells import cell_len

from cockpit.core.text import one_line
from cockpit.engine.stacks.listed import Listed
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging

EVIDENCE = 3
"""Lines of evidence of one verdict."""

_INDENT = " " * 2
_DAY_S = 20 * 3600


class KeptList(ListPane[Listed]):
    """Snapshots, the newest first."""

    EMPTY_ROLE = ""

    def key_of(self, item: Listed) -> Hashable:
        """Where it is."""
        return item.path

    def item_lines(self, item: Listed, before: Listed | None, width: int) -> Iterator[Line]:
        """When and why it was taken; who holds up the others, where, and on what evidence."""
        if before is not None:
            yield Line(heading=True)
        found, head = item.found, item.head
        sure = "" if found.certainty == "unsure" and not found.evidence else found.certainty
        when = f"{moment(head.at)}  "
        by = f"kept by the nodes: {head.by_nodes}" if head.by_nodes else "taken by a cockpit"
        samples = f" · {head.samples} samples" if head.samples > 1 else ""
        room = max(1, width - cell_len(when) - len(sure) - 2)
        by = one_line(by + samples, limit=2000)
        if cell_len(by) > room:
            by = by[: room - 1] + ("~" if self.ascii_only else "…")
        gap = " " * max(2, width - cell_len(when) - cell_len(by) - len(sure))
        certainty = {"sure": "running", "likely": "spark"}.get(sure, "warning")
        pieces = [Piece(when, "time"), Piece(by, "label")]
        yield Line((*pieces, Piece(gap), Piece(sure, certainty)) if sure else tuple(pieces))
        odd = "odd" if found.ranks and found.severity != "info" else "title"
        yield from hanging((Piece(_INDENT),), one_line(found.what, limit=2000), width, odd)
        if found.where:
            yield from hanging((Piece(f"{_INDENT}at ", "label"),), one_line(found.where, limit=500), width)
        for text in found.evidence[:EVIDENCE]:
            yield from hanging((Piece(_INDENT),), one_line(text, limit=500), width, "label")


def moment(at: float | None) -> str:
    """The time of day; with its date where that is not today's."""
    if at is None:
        return "--:--:--"
    shape = "%H:%M:%S" if abs(time.time() - at) < _DAY_S else "%m-%d %H:%M:%S"
    return time.strftime(shape, time.localtime(at))
