"""What Detail says of the NCCL of a rank, or of a node's ranks: what differs from the others first."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.core.nccl.table import Difference, Group, Row
from cockpit.core.ranks import ranks_named
from cockpit.tui.panes.text_pane import Line
from cockpit.tui.run.detail_paper import About, Paper

_ROWS = {
    "version": "version",
    "network": "network",
    "bootstrap": "bootstrap",
    "interfaces": "interfaces",
    "devices": "devices",
    "plugin": "plugin",
    "gdr": "GDR",
    "across": "to nodes",
    "inside": "within",
    "algorithms": "connected",
    "channels": "channels",
}
"""What is shown, and its name in so many columns as there are."""


def nccl_lines(sight: About, ranks: int, paper: Paper) -> Iterator[Line]:
    """Nothing where nothing is known.

    :param ranks: a mask
    """
    mine = sight.nccl.of(ranks)
    wrong = [found for found in sight.nccl_wrong if found.ranks & ranks]
    if not mine and not wrong:
        return
    yield from paper.heading("NCCL", "as reported by NCCL")
    for one in sight.nccl.differences():
        yield from _apart(one, ranks, paper)
    for found in wrong:
        yield from paper.text(found.what, "error" if found.severity == "error" else "warning")
        yield from paper.text(found.meaning or found.detail, "label")
    groups = mine.alike()
    for group in groups:
        if len(groups) > 1:
            yield from paper.text(
                ranks_named(number for row in group.rows for number in row.numbers), "label"
            )
        yield from _values(group.rows[0], paper)


def _apart(one: Difference, ranks: int, paper: Paper) -> Iterator[Line]:
    """Where some of these ranks do not say what most do."""
    usual, *others = one.groups
    for group in others:
        if group.ranks & ranks:
            who = _who(group, ranks)
            yield from paper.text(f"{one.name}: {who}{group.value}, most others {usual.value}", "warning")


def _who(group: Group, ranks: int) -> str:
    """Whom of several it is about."""
    if not ranks & (ranks - 1):
        return ""
    numbers = sorted(number for row in group.rows for number in row.numbers if ranks >> number & 1)
    return f"{ranks_named(numbers)} "


def _values(row: Row, paper: Paper) -> Iterator[Line]:
    kit = f", {row.toolkit}" if row.toolkit else ""
    driver = f", driver for CUDA {row.driver}" if row.driver else ""
    for column, name in _ROWS.items():
        value = row.value(column)
        if column == "version" and (value or kit or driver):
            value = f"{value or 'version unknown'}{kit}{driver}"
        if column == "bootstrap" and row.interfaces == (value,):
            value = ""
        if column == "network" and row.provider:
            value = f"{value} ({row.provider})"
        yield from paper.row(name, value)
