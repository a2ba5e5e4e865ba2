"""The snapshots of a run that are here, each with the verdict on it, those that its nodes took included."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit.base.shell import quote
from cockpit.core.finding import Finding
from cockpit.core.stacks.verdict import verdict
from cockpit.engine.stacks import saved
from cockpit.errors import CockpitError


@dataclass(frozen=True)
class Listed:
    """One snapshot, with the verdict on it."""

    path: Path
    head: saved.Summary
    found: Finding

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "path": str(self.path),
            "t": self.head.at,
            "ranks": self.head.ranks,
            "samples": self.head.samples,
            "by_nodes": self.head.by_nodes,
            "verdict": saved.verdict_json(self.found),
        }


def listed(root: Path) -> list[Listed]:
    """All below a folder, the oldest first. Does much reading: not for the event loop."""
    found = []
    for file in sorted(root.glob(f"*/{saved.MAIN}")):
        # One that is damaged hides no other.
        with suppress(CockpitError):
            head = saved.head(file.parent)
            snapshot = saved.load(file.parent)
            command = f"cockpit stacks {quote(snapshot.run)}" if snapshot.run else ""
            found.append(Listed(file.parent, head, verdict(snapshot).completed(command)))
    return sorted(found, key=lambda one: (one.head.until or 0.0, one.path.name))
