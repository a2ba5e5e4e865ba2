"""The pane of pace while no step of any rank is known: when each rank went on last, as far as can be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from cockpit.core.pace.heat import Window
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.rows import Row, rows
from cockpit.core.pace.signs import RECORDER, STILL_S, Sign, differing
from cockpit.tui.look.progress import age_text, behind_text, sentences
from cockpit.tui.pace.frame import Frame
from cockpit.tui.pace.map_lines import LABELS, labelled
from cockpit.tui.panes.text_pane import Line, Piece, fold

COLUMNS = {"age": 15, "behind": 20, "by": 14}
"""The columns of the table, and how wide they are."""

NARROW = 10
"""The width of ``behind`` where there is no room for more than the number."""


def sign_lines(
    pace: Pace,
    nodes: Mapping[str, Sequence[int]],
    chosen: int | None,
    every: bool,
    now: float,
    width: int,
    height: int,
    *,
    ascii_only: bool,
) -> list[Line]:
    """The lines for a pane of this size; none if there is no sign of any rank.

    :param nodes: the ranks of each node
    :param chosen: the rank under the cursor
    :param every: a row for each rank
    :param now: unix seconds
    """
    found = {rank: pace.of(rank).sign for ranks in nodes.values() for rank in ranks}
    signs = {rank: sign for rank, sign in sorted(found.items()) if sign is not None}
    if not signs:
        return []
    said = [part for text in sentences(signs, "age") for part in fold(text, max(1, width - 2))]
    apart = dict.fromkeys(differing(signs, now), 0)
    # At least half of a low pane is for ranks: what their ages are is in the help too.
    room = max(height - 2 - len(said), height // 2, 1)
    shown = rows(nodes, apart, room, every=every)
    wanted = min(LABELS, max(8, 3 + max(cell_len(row.name) + len(row.ranks_text) for row in shown)))
    columns = _columns(width - wanted - 1)
    label = min(wanted, max(8, width - 1 - sum(columns.values())))
    frame = Frame(label, Window(now, 1.0, 1), {}, "", ascii_only=ascii_only)
    lines = [Line((Piece(" " * (frame.label + 1)), _heading(columns)))]
    for row in shown:
        name = labelled(row, chosen, label, frame)
        lines.append(Line((*name, Piece(" "), *_row(row, signs, columns, now))))
    below = [Line(), *(Line.of(f" {text}", "label") for text in said)]
    return [*lines, *below] if len(lines) + len(below) <= height else lines


def _columns(room: int) -> dict[str, int]:
    """What there is room for."""
    columns = dict(COLUMNS)
    for narrower in ({**COLUMNS, "behind": NARROW}, {"age": COLUMNS["age"], "behind": NARROW}):
        if sum(columns.values()) > room:
            columns = narrower
    return columns if sum(columns.values()) <= room else {"age": COLUMNS["age"]}


def _heading(columns: Mapping[str, int]) -> Piece:
    return Piece("".join(name.rjust(wide) for name, wide in columns.items()), "label")


def _row(row: Row, signs: Mapping[int, Sign], columns: Mapping[str, int], now: float) -> list[Piece]:
    """Of the ranks of a row, the worst in each respect."""
    own = [signs[rank] for rank in row.ranks if rank in signs]
    if not own:
        return []
    oldest, last = max(own, key=lambda one: one.age_s(now)), max(own, key=lambda one: one.behind)
    behind = behind_text(last)
    if columns.get("behind") == NARROW:
        behind = behind.partition(" ")[0]
    still = oldest.age_s(now) >= STILL_S
    texts = {
        "age": (age_text(oldest, now), "warning" if still else "label"),
        "behind": (behind, "pace-slow" if last.behind > 1 else "label"),
        "by": ("recorder" if oldest.source == RECORDER else "main thread", "label"),
    }
    return [Piece(texts[name][0].rjust(wide), texts[name][1]) for name, wide in columns.items()]
