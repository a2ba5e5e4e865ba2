"""Reads what the preview shows, of the run under the cursor alone, beside the app's own loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from cockpit import paths
from cockpit.core.run.brief import Brief
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen
from cockpit.tui.home.preview import Preview

if TYPE_CHECKING:
    from cockpit.engine.report.glance import Glance

NOTHING = "Nothing of it is here yet. Opening it gives it a name here, and what it prints from then on."

STAY_S = 0.15
"""Seconds that the cursor is on a run before it is read: whoever passes over many wants none of them."""

KEPT = 50
"""Runs of which what was read is kept."""


class Looker:
    """One run at a time.

    :param screen: has the preview, and holds the worker
    """

    def __init__(self, screen: CommandScreen) -> None:
        self._screen = screen
        self._wanted: Brief | None = None
        self._enough = threading.Event()
        self._known: dict[str, tuple[object, Glance | None, str]] = {}

    def look(self, brief: Brief | None, *, here: bool = True) -> None:
        """Show this run, and read it if that was not done yet, or it has changed.

        :param here: whether it has a folder on this machine
        """
        if brief is not None and not here:
            self._screen.query_one(Preview).show(brief, None, NOTHING)
            return
        if brief is None:
            self._screen.query_one(Preview).show(None, None)
            return
        of, glance, trouble = self._known.get(brief.run, (None, None, ""))
        self._screen.query_one(Preview).show(brief, glance, trouble)
        if of != _of(brief) and (self._wanted is None or _of(self._wanted) != _of(brief)):
            self._enough.set()
            self._wanted, self._enough = brief, threading.Event()
            self._screen.run_worker(self._read(brief, self._enough), group="glance", exclusive=True)

    def close(self) -> None:
        """Nobody looks any more."""
        self._enough.set()

    async def _read(self, brief: Brief, enough: threading.Event) -> None:
        await asyncio.sleep(STAY_S)
        found, trouble = None, ""
        try:
            found = await asyncio.to_thread(_glance, brief.run, enough)
        except CockpitError as error:
            trouble = str(error)
        if not enough.is_set() and self._screen.app.holds(self._screen):
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[brief.run] = _of(brief), found, trouble
            self._wanted = None
            preview = self._screen.query_one(Preview)
            # The cursor may have gone back to a run that needs no reading.
            if preview.brief is not None and preview.brief.run == brief.run:
                preview.show(brief, found, trouble)


def _of(brief: Brief) -> tuple[object, ...]:
    """What has to change before a run is read again."""
    return brief.run, brief.word, brief.step, brief.seen, brief.cause


def _glance(run: str, enough: threading.Event) -> Glance:
    from cockpit.engine.report.glance import (
        glance,  # what explains and draws a run comes after the first frame
    )

    return glance(RunFolder(paths.runs() / run), enough)
