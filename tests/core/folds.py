"""Looking into folded lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from cockpit.core.logs.folding import Folded
from cockpit.core.logs.sources import Source


def said(item: Folded) -> Iterator[tuple[Source, bytes]]:
    """Who printed what."""
    return zip(item.sources, item.originals or repeat(item.text), strict=False)
