"""What verbs say about a run whose start nobody saw end."""

from __future__ import annotations

from cockpit.engine.launch.all_or_none import remains, unfinished
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError

PATIENCE_S = 15.0
"""A node without progress for this long is listed as not answering: a table is a quick look."""


async def start_state(folder: RunFolder, pool: LinkPool | None) -> tuple[str, list[str]]:
    """What to say about a run not known to have been launched, and who could not be asked; or nothing.

    :param pool: lends links to its nodes; None: they are not asked
    """
    if not unfinished(folder):
        return "", []
    if pool is None:
        return "never launched, as far as is known here", []
    try:
        launched, errors = await remains(folder, pool)
    except CockpitError:
        return "starting", []
    if launched:
        return "", []
    return ("start was cut off", list(errors)) if errors else ("never started", [])
