"""The roll call: which nodes have answered, which cannot, which are pending, at what stage, since when."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from cockpit.core.ranks import nodes_text
from cockpit.core.text import counted
from cockpit.errors import CockpitError
from cockpit.transport.base import ConnectStage, Progress

T = TypeVar("T")


class Roll:
    """The nodes that were asked something, and how far each has got."""

    def __init__(self, nodes: Iterable[str] = ()) -> None:
        self.remarks: dict[str, str] = {}
        """Why a node is not reached as one might expect; kept until somebody has said it."""
        self.call(nodes)

    def call(self, nodes: Iterable[str], meaning: str = "answered") -> None:
        """Start over: all these are pending.

        :param meaning: what a node has done once it has answered
        """
        self._meaning = meaning
        self.running = ""
        """What of the user's the agents run before they answer: an option."""
        self.began = time.monotonic()
        """When it was called (monotonic seconds)."""
        self.awaited: dict[str, Progress] = {node: Progress() for node in nodes}
        """Nodes that have neither answered nor failed, with how far each has got."""
        self.answered: dict[str, None] = {}
        """Nodes that have answered."""
        self.failed: dict[str, CockpitError] = {}
        """Nodes that cannot be asked, and why."""
        self._questions: Counter[str] = Counter()
        """How many questions each node has still to answer."""

    def expect(self, nodes: Iterable[str]) -> None:
        """These are pending too, whatever they have answered before."""
        for node in nodes:
            if node not in self.awaited:
                self.on_its_way(node, Progress())

    def on_its_way(self, node: str, progress: Progress) -> None:
        """A node is pending; ``progress`` says at what stage."""
        self.answered.pop(node, None)
        self.failed.pop(node, None)
        self.awaited[node] = progress

    def answer(self, node: str) -> None:
        """A node has answered."""
        self.awaited.pop(node, None)
        self.answered[node] = None

    def fail(self, node: str, error: CockpitError) -> None:
        """A node cannot be asked."""
        self.awaited.pop(node, None)
        self.failed[node] = error

    async def heard(self, node: str, asking: Awaitable[T]) -> T:
        """A node's answer to a question over a link."""
        progress = Progress()
        progress.reach(ConnectStage.ANSWER)
        self.on_its_way(node, progress)
        self._questions[node] += 1
        try:
            answer = await asking
        except CockpitError as error:
            self.fail(node, error)
            raise
        finally:
            self._questions[node] -= 1
        if not self._questions[node]:
            self.answer(node)
        return answer

    def take_remarks(self) -> list[str]:
        """Why nodes are not reached as one might expect, one line a reason; nobody else says them again."""
        found: dict[str, list[str]] = {}
        for node, remark in self.remarks.items():
            found.setdefault(remark, []).append(node)
        self.remarks.clear()
        return [f"{nodes_text(nodes)}: {remark}" for remark, nodes in found.items()]

    @property
    def total(self) -> int:
        """How many nodes there are."""
        return len(self.awaited) + len(self.answered) + len(self.failed)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the call."""
        return time.monotonic() - self.began

    def counts(self) -> str:
        """How many have, and how many cannot: ``42 of 64 nodes answered, 3 failed``."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{len(self.answered)} of {counted(self.total, 'node')} {self._meaning}{failed}"

    def silent(self) -> list[str]:
        """The pending nodes, by what they are waiting for: ``gpu[07,12] for 12 s (the connection)``."""
        groups: dict[ConnectStage, dict[str, float]] = {}
        for node, progress in self.awaited.items():
            groups.setdefault(progress.stage, {})[node] = progress.waited_s
        order = list(ConnectStage)
        return [
            f"{nodes_text(nodes)} for {max(nodes.values()):.0f} s ({stage.value})"
            for stage, nodes in sorted(groups.items(), key=lambda group: order.index(group[0]))
        ]

    def line(self) -> str:
        """All of it in one line."""
        if not self.awaited:
            return self.counts()
        if all(progress.stage is ConnectStage.ANSWER for progress in self.awaited.values()):
            waited = max(progress.waited_s for progress in self.awaited.values())
            whose = f"agent{'s' if len(self.awaited) > 1 else ''} of {nodes_text(self.awaited)}"
            runs = f" (running your {self.running})" if self.running else ""
            return f"{self.counts()}; waiting {waited:.0f} s for the {whose}{runs}"
        return f"{self.counts()}; no answer yet: {', '.join(self.silent())}"
