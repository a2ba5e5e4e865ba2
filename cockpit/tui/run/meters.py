"""Meters of nodes: which are drawn beside their ranks, and what one line below says of them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cockpit.base.events import NodeSample
from cockpit.core.run.model import Node
from cockpit.tui.panes.text_pane import Piece
from cockpit.tui.run.detail_paper import STALE_S

CELLS = 6
WIDE = 1 + CELLS + len(" 100 %")
"""Columns of a meter: a gap, its cells, and the number."""

MEASURES = ("gpu", "mem", "cpu")
"""The mean utilisation of a node's GPUs, its memory in use, its load over its cores; those to draw first."""

APART = {"gpu": 0.05, "mem": 0.1, "cpu": 0.1}
"""A node differs whose share is so far from the median node's: what comes and goes in one second is less."""

SCARCE = 0.95
"""From this share of a node's memory or cores in use, that is high; so is memory near its limit."""

LASTS_S = 60.0
"""Seconds for which a meter stays that is not needed any more: columns that come and go cannot be read."""

NOTHING = NodeSample()


@dataclass(frozen=True)
class Measured:
    """One measure of all nodes.

    :param middle: the share of the median node, 0 to 1
    :param odd: the node furthest from it, if it differs, and its share
    :param more: how many others differ
    :param high: whether a node has little left of it
    """

    name: str
    middle: float
    odd: tuple[str, float] | None = None
    more: int = 0
    high: bool = False

    @property
    def text(self) -> str:
        """``gpu 96 %``; ``gpu 96 %, gpu06 65 %``."""
        text = f"{self.name} {_percent(self.middle)}"
        if self.odd is not None:
            text += f", {self.odd[0]} {_percent(self.odd[1])}"
        return f"{text} +{self.more:,} more" if self.more else text


def measured(nodes: Sequence[Node], names: Mapping[str, str], now: float) -> list[Measured]:
    """What is known of the nodes that live, those measures first in which they differ or that are high.

    :param names: what nodes are called here
    :param now: unix seconds
    """
    live = [node for node in nodes if not old(node, now)]
    found = []
    for name in MEASURES:
        shares = {node.name: each for node in live if (each := share(node, name)) is not None}
        if not shares:
            continue
        middle = median(shares.values())
        far = [each for each in shares if abs(shares[each] - middle) >= APART[name]]
        odd = max(far, key=lambda each: abs(shares[each] - middle), default=None)
        high = any(is_high(node, name, shares.get(node.name)) for node in live)
        told = None if odd is None else (names.get(odd, odd), shares[odd])
        found.append(Measured(name, middle, told, max(0, len(far) - 1), high))
    return sorted(found, key=lambda one: not (one.odd or one.high))


def old(node: Node, now: float) -> bool:
    """Whether its last measurement says nothing of it now."""
    return node.over or node.link in ("stale", "gone") or now - (node.sampled_at or 0.0) > STALE_S


def share(node: Node, name: str) -> float | None:
    """A measure of a node, 0 to 1; None: not known."""
    sample = node.sample or NOTHING
    if name == "cpu":
        return _part(sample.load, sample.cores)
    if name == "mem":
        return _part(sample.memory_bytes, sample.memory_total_bytes)
    found = [_part(gpu.utilisation_percent, 100) for gpu in node.gpus]
    known = [each for each in found if each is not None]
    return sum(known) / len(known) if known else None


def is_high(node: Node, name: str, share: float | None) -> bool:
    """Whether there is little left of it; a busy GPU is as it should be."""
    filling = name == "mem" and bool(node.filling)
    return filling or (name != "gpu" and share is not None and share >= SCARCE)


def meter(node: Node, name: str, now: float, *, ascii_only: bool) -> Iterator[Piece]:
    """One meter; blank if nothing is known."""
    found = share(node, name)
    if found is None:
        yield Piece(" " * WIDE)
        return
    full, empty = "#." if ascii_only else "▰▱"
    cells = min(CELLS, round(found * CELLS))
    high = is_high(node, name, found)
    role = "stale" if old(node, now) else "scarce" if high else "gpu" if name == "gpu" else "bar"
    yield Piece(f" {full * cells}", role)
    yield Piece(empty * (CELLS - cells), "number")
    yield Piece(f"{_percent(found):>{WIDE - 1 - CELLS}}", role if role in ("stale", "scarce") else "number")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _part(part: float | None, whole: float | None) -> float | None:
    """A part of a whole, 0 to 1; None if either is unknown."""
    return None if part is None or not whole else min(1.0, part / whole)
