"""Who writes and acts for a run: of the cockpits attached to it one; when that one goes, another takes over.

The lock decides (:mod:`cockpit.engine.records.lock`). Who may not take it says so once nobody has it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from cockpit.base.shell import quote
from cockpit.engine.links.pool import InternalError
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError

LOOK_S = 1.0
"""Seconds between two looks at whether the one that writes is still there."""
VACANT_S = 4.0
"""Seconds for which nobody has written, or could, before that is said: somebody else may be about to."""


class Succession:
    """Waits beside the cockpit that writes, until it is gone.

    :param folder: the run's
    :param may: whether this cockpit is to take over: it was not opened to read only
    :param over: whether all of the run is here: nobody needs to act any more
    :param remark: says something to whoever watches here
    :param take_over: makes this cockpit the one that writes, and acts, once it has the lock
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        may: bool,
        over: Callable[[], bool],
        remark: Callable[[str], None],
        take_over: Callable[[str], Awaitable[None]],
    ) -> None:
        self._folder = folder
        self._may = may
        self._over = over
        self._remark = remark
        self._take_over = take_over
        self._said = ""
        self._absent_at = math.inf
        self.alone = ""
        """That nobody acts for the run, and what to type; empty: somebody does."""

    async def mind(self) -> None:
        """Look until this cockpit has taken over, or the run is over; cancel it to end it."""
        writer = self._folder.writer
        may = self._may and not writer.barred
        before = writer.holder
        while not self._over():
            try:
                if may:
                    writer.attend()
                if may and writer.take():
                    who = f" ({before})" if before else ""
                    try:
                        # It has left, or gave way: `cockpit logs -f` does, and continues.
                        await self._take_over(f"the cockpit that controlled it{who} has left")
                        return
                    except BaseException as error:
                        writer.give_up()  # whoever else is here may fare better
                        may = isinstance(error, CockpitError)  # a mistake of ours is made again
                        raise
                # Who may not act does not, also where it writes.
                self._tell(not may and (writer.taken or writer.vacant()), before)
                before = writer.holder or before
            except CockpitError as error:
                self._say(f"cannot take over this run if the cockpit that controls it leaves: {error}")
            except Exception as error:
                self._say(str(InternalError(error, where="taking over")))
            await asyncio.sleep(LOOK_S)
        self.alone = ""

    def _tell(self, vacant: bool, before: str) -> None:
        writer = self._folder.writer
        suspended = writer.suspended()
        absent = vacant or bool(suspended)
        self._absent_at = min(self._absent_at, time.monotonic()) if absent else math.inf
        if not absent and (self.alone or (before and writer.holder not in ("", before))):
            who = f" ({writer.holder})" if writer.holder else ""
            self._say(f"another cockpit{who} now controls this run")
        elif time.monotonic() >= self._absent_at + VACANT_S:
            who = f"only {writer.owner} can" if writer.owner else writer.barred or "without --read-only"
            remedy = suspended or f"{who}: cockpit attach {quote(self._folder.name)}"
            lacks = "" if writer.taken else " and no evidence fetched"
            self.alone = f"no cockpit controls this run: nothing is stopped automatically{lacks};  {remedy}"
            self._say(self.alone)
        self.alone = self.alone if absent else ""

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._remark(text)
