"""The last run of the same command that ended well: what a run that failed is held against."""

from __future__ import annotations

from contextlib import suppress

from cockpit.core.compare.command import Started, same_command
from cockpit.core.run.model import RunModel
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.errors import CockpitError, Exit

LOOKED_AT, IN_PASSING = 20, 5
"""Runs of the same command whose end is looked up, the newest before this one: of each all is read. And if it
is not what a person asked for."""


def last_good(folder: RunFolder, most: int = LOOKED_AT) -> RunFolder | None:
    """The newest run of the same command before this one whose ranks all exited 0; None: there is none.

    :param most: so many runs are looked at
    :raises CockpitError: the folder of runs, or the manifest of this one, cannot be read
    """
    started, looked = _started(folder), 0
    for each in reversed(list_runs()):
        with suppress(CockpitError):  # one that is damaged is no help, and hides no other
            before = each.name != folder.name and each.created <= folder.created
            if not before or not same_command(_started(each), started):
                continue
            looked += 1
            if ended_well(each.model()):
                return each
        if looked >= most:
            break
    return None


def ended_well(model: RunModel) -> bool:
    """Whether a run came to its end by itself, and all ranks exited 0."""
    stopped = any(node.stop_requested_at for node in model.nodes.values())
    return model.over and not stopped and model.exit_code() is Exit.OK


def _started(folder: RunFolder) -> Started:
    manifest = folder.manifest
    return Started(manifest.launcher, manifest.cwd, tuple(manifest.program))
