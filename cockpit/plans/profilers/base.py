"""What a profiler is, to those who launch and collect."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import ClassVar, Protocol

from cockpit.core.finding import Finding


class Profiler(Protocol):
    """A profiler around the launcher or around each rank, with the options of one run."""

    name: ClassVar[str]
    tool: ClassVar[str]
    """The program's name."""
    ready: ClassVar[bool]
    """It records only what it is told to while the run goes on, so that a run may leave no report."""
    help: ClassVar[tuple[str, ...]]
    """Its name, and the words that make it print its options."""
    suffixes: ClassVar[tuple[str, ...]]
    """What names of its files end in, those of a report first; nothing else is fetched."""
    warning: ClassVar[str]
    """What a person must know who passes a report on."""

    @staticmethod
    def add_options(group: argparse._ArgumentGroup) -> None:
        """Add its options to a parser."""

    @classmethod
    def of(cls, args: argparse.Namespace) -> Profiler:
        """The one that these options ask for.

        :raises CockpitError: they make no sense
        """

    @property
    def waits_for(self) -> str:
        """What begins its window, unless time does; empty: time."""

    @property
    def until_s(self) -> float:
        """Seconds after its start when its window is over; 0: time does not end it."""

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last step that it records; None: it does not go by steps."""

    @property
    def per_rank(self) -> bool:
        """Whether it is around each rank, instead of the launcher."""

    @property
    def ranks(self) -> frozenset[int] | None:
        """Those that are profiled, each on its own; None: all."""

    @property
    def places(self) -> tuple[str, ...]:
        """Where it may be on a node, the best first: a name to look for on PATH, or a pattern of paths."""

    @property
    def missing(self) -> Finding:
        """What to say where it is in none of these places, and what would help."""

    def room(self, ranks: int) -> int:
        """Free bytes that a node with so many ranks must have."""

    def files(self) -> dict[str, str]:
        """What it needs in the run folder, by name."""

    def named(self, report: str) -> str:
        """The path of a node's report as the user's own options name it.

        :param report: what it is without them, without suffix
        """

    def argv(self, tool: str, folder: str, report: str, switches: Collection[str]) -> tuple[str, ...]:
        """The words before the launcher's; none: it is around each rank.

        :param tool: its path on the node
        :param folder: the run folder there
        :param report: the report's path in it, without suffix
        :param switches: the options it knows there; none: not known
        :raises CockpitError: the options make no sense
        """

    def around(
        self, tool: str, report: str, ranks: Collection[int], switches: Collection[str]
    ) -> dict[str, object]:
        """What :mod:`cockpit.node.run.rank_profiler` reads: the words before those of a rank, ``before`` and,
        of the ranks in ``samplers``, ``sampler``; ``report``, how a rank's report is called.

        :param ranks: ranks of the node that are profiled
        """

    def lacking(self, switches: Collection[str]) -> tuple[Finding | None, tuple[str, ...]]:
        """What the user asked for that it does not know, and what of ours is left out.

        :param switches: the options it knows on a node; none: not known
        """

    def script(self, command: str) -> str:
        """Shell text that runs the whole command, and ends as the launcher does."""
