"""Of a run that failed: when the same command last worked, and what to type to see what has changed since."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from cockpit.core.report.words import GOOD, compare_command
from cockpit.engine.alike import last_good
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError
from cockpit.lang import word


def since_good(run: str, lang: str = "en") -> Iterator[str]:
    """The line that says so; nothing, if no such run is known.

    :param run: its name
    """
    with suppress(CockpitError):  # more is said of a run that cannot be read by what shows it
        good = last_good(RunFolder.find(run))
        if good is not None:
            yield word(GOOD, lang).format(good.name, compare_command(good.name, run))
