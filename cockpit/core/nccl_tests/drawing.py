"""A table as text: bus bandwidth by size of message."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.core.nccl_tests.table import Table

WIDTH = 40
BLOCKS = " ▏▎▍▌▋▊▉█"
ROWS = 64
"""Lines that are drawn; of more, evenly chosen ones."""


def size_text(size: int) -> str:
    """``1 GiB``, ``1.5 MiB``, ``8 B``: as these programs take sizes, by powers of 1024."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return (
                f"{size / 1024**power:.3g} {unit}"
                if size < 1000 * 1024**power
                else f"{size >> 10 * power} {unit}"
            )
    return f"{size} B"


def drawn(table: Table) -> Iterator[str]:
    """A bar for each line of the table, in their order."""
    known = [(row, row.busbw) for row in table.rows]
    rows = known if len(known) <= ROWS else [known[at * (len(known) - 1) // (ROWS - 1)] for at in range(ROWS)]
    most = max((busbw for _, busbw in rows if busbw is not None), default=0.0)
    types = {(row.what.type, row.what.redop, row.what.root) for row, _ in rows}
    for row, busbw in rows:
        also = "" if len(types) == 1 else f"  {row.what.type} {row.what.redop}".rstrip()
        value = "?" if busbw is None else f"{busbw:.2f}"
        bar = "" if busbw is None or not most > 0 else _bar(busbw / most)
        wrong = f"  {row.wrong:.15g} WRONG" if row.wrong else ""
        yield f"{size_text(row.what.size):>9}  {value:>8}  {bar}{also}{wrong}".rstrip()


def _bar(part: float) -> str:
    eighths = round(max(0.0, min(1.0, part)) * WIDTH * 8)
    return "█" * (eighths // 8) + BLOCKS[eighths % 8].strip()
