"""Tables as text of a given width, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cockpit.core.cutting import SIGN, cut_middle
from cockpit.core.text import columns, markdown


class Table(NamedTuple):
    """What is shown as columns.

    :param left: so many of the first columns are text, and the last of these is cut if need be
    :param more: rows that are left out
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int
    more: int = 0


def drawn(table: Table, width: int) -> list[str]:
    """Title and rows, in columns."""
    cells = [table.head, *table.rows]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    widths[table.left - 1] -= max(0, sum(widths) + 2 * (len(widths) - 1) - width)
    lines = [cut_middle(table.title, width)]
    for row in cells:
        shown = [
            padded(cut_middle(cell, room), room, left=place < table.left)
            for place, (cell, room) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(shown).rstrip())
    return [*lines, *([f"  {SIGN} and {table.more:,} more"] if table.more > 0 else [])]


def padded(text: str, width: int, *, left: bool = True) -> str:
    """A cell of so many columns; ``left``: blanks follow it, else they precede it."""
    blank = " " * (width - columns(text))
    return text + blank if left else blank + text


def markdown_table(table: Table, room: int) -> list[str]:
    """A blank line, the title, another one, and the table; nothing if there is no room.

    :param room: rows at most
    """
    if room <= 0:
        return []
    lines = ["", f"**{markdown(table.title)}**", "", _row(table.head)]
    lines += ["|" + "---|" * table.left + "---:|" * (len(table.head) - table.left)]
    lines += map(_row, table.rows[:room])
    left = max(0, table.more) + max(0, len(table.rows) - room)
    return [*lines, *(["", f"{SIGN} and {left:,} more"] if left > 0 else [])]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(markdown(cell.strip()) for cell in cells)} |"
