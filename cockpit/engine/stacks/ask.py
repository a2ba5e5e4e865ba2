"""What is asked of ranks, and of whose: the job, its nodes and its processes."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cockpit.core.stacks.snapshot import Place
from cockpit.engine.links.link import Link

OPTION_WORDS = {
    "native": "C frames",
    "locals": "local variables",
    "children": "child processes",
}
"""What a rank can be asked for besides its plain stack, in words."""


def option_words(options: Iterable[str]) -> str:
    """Some of these: ``C frames and local variables``."""
    return " and ".join(OPTION_WORDS[option] for option in options)


@dataclass(frozen=True)
class Ask:
    """What is asked of every rank.

    :param native: C and C++ frames too; a rank is held for up to half a second the first time
    :param locals: local variables, without secrets
    :param children: the stacks of the ranks' Python children too (data loaders)
    :param timeout_s: seconds one py-spy may take
    :param ranks: only these, as a mask; None: all
    """

    native: bool = False
    locals: bool = False
    children: bool = False
    timeout_s: float = 10.0
    ranks: int | None = None

    def wants(self, rank: int) -> bool:
        """Whether a rank is asked."""
        return self.ranks is None or bool(self.ranks >> rank & 1)

    @property
    def options(self) -> dict[str, bool]:
        """What is asked for besides the plain stacks."""
        return {"native": self.native, "locals": self.locals, "children": self.children}

    @property
    def silence_s(self) -> float:
        """Seconds without an answer after which a node counts as silent: enough for every way of dumping."""
        return 4 * self.timeout_s + 5

    def whole_s(self, ranks: int) -> float:
        """Seconds after which this many ranks of one node are done: it looks at two at once, or more."""
        return self.silence_s * max(1, (ranks + 1) // 2)


@dataclass(frozen=True)
class RankProcess:
    """A rank's process on a node."""

    rank: int
    pid: int
    ticks: int
    local_rank: int | None = None
    ns_pid: int | None = None
    inferred: str = ""

    def on(self, node: str) -> Place:
        """Where it is."""
        return Place(node, self.local_rank, self.pid, "", self.ns_pid, self.inferred)


class Party(Protocol):
    """The nodes of one job, and how to reach them."""

    @property
    def title(self) -> str:
        """The job's name for people."""

    @property
    def run(self) -> str:
        """The run's name; empty for a job that cockpit did not start."""

    @property
    def command(self) -> str:
        """The shell command that takes the same stacks."""

    @property
    def nodes(self) -> Sequence[str]:
        """Every node that is asked."""

    def places(self) -> dict[int, Place]:
        """Every rank the job should have, with what is known about it now."""

    @property
    def twice(self) -> Mapping[int, str]:
        """Ranks that two processes have, with a sentence about them."""

    async def refresh(self) -> None:
        """Take in what was recorded meanwhile, such as how ranks have ended.

        :raises CockpitError: nobody answers
        """

    def folder(self, node: str) -> str:
        """The run folder on a node, whose supervisor may trace the ranks; empty if there is none."""

    def link(self, node: str, /) -> Awaitable[Link]:
        """An open link.

        :raises CockpitError: there is none
        """

    async def targets(self, node: str, link: Link) -> list[RankProcess]:
        """The job's processes on this node now.

        :raises CockpitError: the node cannot say
        """
