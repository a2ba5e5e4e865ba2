"""What ranks of the run on the screen say of their NCCL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from cockpit.core.finding import Finding
from cockpit.core.nccl.findings import found
from cockpit.core.nccl.table import NOTHING, Table
from cockpit.core.nccl_tests.findings import findings
from cockpit.core.rules.explanation import translated
from cockpit.engine.nccl import NcclReader
from cockpit.engine.nccl_results import results
from cockpit.engine.run.session import Session

AGAIN_S, REST = 2.0, 20
"""Seconds between two looks; and so many times as long as one takes."""
SELDOM_S = 8.0
"""Seconds more where only the banner wants it: communicators are made early."""


class NcclSaid:
    """What is known here: read beside the screen, more often while a detail is shown.

    :param lang: the language to explain in
    """

    def __init__(self, session: Session, lang: str) -> None:
        self._session = session
        self._heard = NcclReader(session.folder)
        self._lang = lang
        self._again = time.monotonic()
        self._busy = False
        self.table: Table = NOTHING
        self.wrong: Sequence[Finding] = ()
        """What is wrong by that."""
        self.tests: Sequence[Finding] = ()
        """What is wrong with what programs of nccl-tests measured."""

    def due(self, *, seldom: bool = False) -> bool:
        """Whether to :meth:`read`."""
        return not self._busy and time.monotonic() >= self._again + SELDOM_S * seldom

    @property
    def notable(self) -> Sequence[Finding]:
        """What is worth saying of the run unasked."""
        return [one for one in self.wrong if one.severity != "info"]

    async def read(self) -> None:
        """Read what is new; the screen is not held up."""
        if self._busy:
            return
        self._busy = True
        began = time.monotonic()
        try:
            self.table, self.wrong, self.tests = await asyncio.to_thread(self._read)
        finally:
            self._busy = False
            now = time.monotonic()
            self._again = now + max(AGAIN_S, REST * (now - began))

    def _read(self) -> tuple[Table, Sequence[Finding], Sequence[Finding]]:
        grown, folder, model = self._heard.read(), self._session.folder, self._session.model
        tests = findings(results(folder, model, self._heard))  # whether a table is whole, its nodes say later
        if not grown:
            return self.table, self.wrong, tests
        table = self._heard.table()
        table.differences()  # kept: they are drawn each time
        return table, [translated(one, self._lang) for one in found(table)], tests
