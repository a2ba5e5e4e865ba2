"""Where the stack screen's stacks come from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from cockpit.base.stacks.dump import Dump
from cockpit.core.stacks.snapshot import Sample, Snapshot


class Source(Protocol):
    """Where stacks come from: ranks that run, or a snapshot on disk."""

    @property
    def snapshot(self) -> Snapshot:
        """What has arrived so far; it grows while a sample is taken."""

    @property
    def busy(self) -> bool:
        """Whether a sample is being taken."""

    @property
    def asked(self) -> int:
        """How many ranks are asked."""

    @property
    def command(self) -> str:
        """The shell command that takes the same stacks."""

    @property
    def trouble(self) -> str:
        """Why the snapshot could not be kept on disk; empty while it can."""

    @property
    def recorded(self) -> bool:
        """Whether it was opened from disk: nobody can be asked any more."""

    async def take(self) -> Sample:
        """One more sample of all ranks.

        :raises CockpitError: nobody can be asked
        """

    async def look(
        self, rank: int, *, native: bool = False, locals: bool = False, children: bool = False
    ) -> Dump:
        """One rank alone, with more than every rank is asked for.

        :raises CockpitError: it cannot be asked
        """

    def cancel(self) -> None:
        """End the sample under way; what has come stays."""

    def save(self) -> Path:
        """Write the snapshot's folder and return it.

        :raises CockpitError: it cannot be written
        """
