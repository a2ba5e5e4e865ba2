"""Runs known here that were started alike, as the index of runs has them, and the last that ended well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from cockpit import paths
from cockpit.core.compare.command import Started, same_command
from cockpit.core.compare.since import good_before, started
from cockpit.core.run.brief import Brief
from cockpit.engine.briefs import briefs
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError


def alike(folder: RunFolder, same: Callable[[Started, Started], bool]) -> Iterator[Brief]:
    """Runs known here that were started like one of them, itself among them, in no order.

    :param same: :func:`same_program` or :func:`cockpit.core.compare.command.same_command`
    :raises CockpitError: the folder of runs, or the manifest of this one, cannot be read
    """
    mine = started(folder.manifest)

    def wanted(other: RunFolder) -> bool:
        with suppress(CockpitError):  # one that is damaged is no help, and hides no other
            return same(started(other.manifest), mine)
        return False

    return (brief for brief in briefs(wanted) if same(started(brief), mine))


def same_program(one: Started, other: Started) -> bool:
    """Whether two runs are of the same program, with the same arguments, in the same folder."""
    return one[1:] == other[1:]


def last_good(folder: RunFolder) -> RunFolder | None:
    """The newest run of the same command before this one that ended well; None: there is none.

    It is what a run that failed is held against.

    :raises CockpitError: the folder of runs, or the manifest of this one, cannot be read
    """
    newest = good_before(folder.name, folder.created, alike(folder, same_command))
    return None if newest is None else RunFolder(paths.runs() / newest.run)
