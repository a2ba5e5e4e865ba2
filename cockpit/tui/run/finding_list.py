"""Findings, each with its nodes, what it is based on, and what to type next."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import ClassVar

from cockpit.core.doctor.diagnosis import line
from cockpit.core.finding import Finding
from cockpit.core.text import one_line
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging

EVIDENCE = 8
"""Lines of evidence of one finding."""


class FindingList(ListPane[Finding]):
    """Findings, the worst first."""

    SIGNS: ClassVar[dict[str, tuple[str, str]]] = {
        "error": ("✖", "X"),
        "warning": ("!", "!"),
        "info": ("·", "-"),
    }
    """By severity, for terminals with and without Unicode: never colour alone."""

    EMPTY_ROLE = ""

    def key_of(self, item: Finding) -> Hashable:
        """What it is, and about whom."""
        return item.id, item.nodes

    def item_lines(self, item: Finding, before: Finding | None, width: int) -> Iterator[Line]:
        """Nodes and what is so; below it evidence and steps."""
        if before is not None:
            yield Line(heading=True)
        sign = self.SIGNS.get(item.severity, ("?", "?"))[self.ascii_only]
        role = item.severity if item.severity in ("error", "warning") else "label"
        yield from hanging((Piece(f"{sign} ", role),), _shown(line(item)), width, "title")
        more = len(item.evidence) - EVIDENCE
        below = [*([item.detail] if item.detail else []), *item.evidence[:EVIDENCE]]
        below += [f"and {more} more"] if more > 0 else []
        for text in below:
            yield from hanging((Piece("    "),), _shown(text), width, "label")
        arrow = "->" if self.ascii_only else "→"
        for step in item.steps:
            yield from hanging((Piece(f"  {arrow} ", "label"),), _shown(step.text), width)

    def copy_text(self) -> str:
        """What to type first against the finding under the cursor."""
        item = self.current
        return item.steps[0].command if item and item.steps else super().copy_text()


def _shown(text: str) -> str:
    return one_line(text, limit=2000)
