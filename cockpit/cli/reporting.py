"""The report that a run gets by itself when whoever watched it is through."""

from __future__ import annotations

from cockpit.cli.output import complain, say
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError


async def at_end(folder: RunFolder, *, asked: bool) -> None:
    """Write it, if the run has ended and somebody wants it: now, at its launch, or by the settings.

    What keeps it from being written is said, and changes nothing about how the run ended.
    """
    from cockpit import config

    try:
        if not (asked or folder.manifest.report or config.load().report):
            return
        from cockpit.engine.report.keep import keep_report  # most runs get none

        path = await keep_report(folder)
    except CockpitError as error:
        complain(error)
        return
    if path is not None:
        say(f"report: {path}")
