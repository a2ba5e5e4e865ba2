"""What a person has taken or collected in a demo's run, and may want to have when the demo is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cockpit.engine.records.folder import RunFolder
from cockpit.engine.stacks import saved
from cockpit.errors import CockpitError


def saved_by_hand(folder: RunFolder) -> Iterator[Path]:
    """Collected files, profiles, and stacks that somebody asked for: not those of a watch or a node."""
    for name in ("reports", "files", "profiles"):
        if any((folder.path / name).glob("*")):
            yield folder.path / name
    told = {getattr(event.fact, "snapshot", "") for event in folder.journal()}
    for path in sorted((folder.path / "stacks").glob(f"*/{saved.MAIN}")):
        with suppress(CockpitError):  # one that cannot be read is nothing to keep
            if path.parent.name not in told and not saved.load(path.parent).by_nodes:
                yield path.parent
