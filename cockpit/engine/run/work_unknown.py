"""Why the work of ranks is not known, kept beside a run by who watches it: others do not ask recorders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cockpit.base.gate import RANK_LIMIT, Malformed, MapOf, Text
from cockpit.core.text import one_line
from cockpit.engine.files import read_small, replace
from cockpit.errors import CockpitError

NAME = "unworked.json"
"""In the folder of the run: reasons by rank."""

_REASONS = MapOf(Text(6, r"\d+"), Text(1000, cut=True), RANK_LIMIT)


def keep(folder: Path, reasons: Mapping[int, str]) -> None:
    """Write them down; on a full disk nobody else is told.

    Does I/O: not for the event loop.
    """
    with suppress(CockpitError):
        replace(folder / NAME, json.dumps({str(rank): why for rank, why in sorted(reasons.items())}).encode())


def kept(folder: Path) -> dict[int, str]:
    """What was written last; nothing if it cannot be read."""
    try:
        told = _REASONS.read(json.loads(read_small(folder / NAME)))
    except (OSError, ValueError, RecursionError, Malformed):
        return {}
    return {int(rank): one_line(why, limit=200) for rank, why in told.items()}
