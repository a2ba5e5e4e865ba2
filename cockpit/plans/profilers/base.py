"""What a profiler is, to those who launch and collect."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import ClassVar, Protocol

from cockpit.core.finding import Finding


class Profiler(Protocol):
    """A profiler around the launcher, with the options of one run; it leaves one report a node."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    """What names of its files end in, those of a report first; nothing else is fetched."""
    warning: ClassVar[str]
    """What a person must know who passes a report on."""
    room: ClassVar[int]
    """Free bytes that a node must have."""
    files: ClassVar[Mapping[str, str]]
    """What it needs in the run folder, by name."""

    @staticmethod
    def add_options(group: argparse._ArgumentGroup) -> None:
        """Add its options to a parser."""

    @classmethod
    def of(cls, args: argparse.Namespace) -> Profiler:
        """The one that these options ask for.

        :raises CockpitError: they make no sense
        """

    @property
    def places(self) -> tuple[str, ...]:
        """Where it may be on a node, the best first: a name to look for on PATH, or a pattern of paths."""

    @property
    def missing(self) -> Finding:
        """What to say where it is in none of these places, and what would help."""

    def argv(self, tool: str, folder: str, report: str) -> tuple[str, ...]:
        """The words before the launcher's.

        :param tool: its path on the node
        :param folder: the run folder there
        :param report: the report's path in it, without suffix
        :raises CockpitError: the options make no sense
        """

    def script(self, command: str) -> str:
        """Shell text that runs the whole command, and ends as the launcher does."""
