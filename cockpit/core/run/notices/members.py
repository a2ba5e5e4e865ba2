"""A program that waits for more ranks than were started: it starts them itself where nobody calls it one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cockpit.base.events import NoticeStep
from cockpit.core.pace.pace import Pace
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import Run

_HINT = b", MEMBER: "
_SAYS = re.compile(rb"\bGLOBAL_RANK: [0-9]{1,6}, MEMBER: [0-9]{1,6}/([0-9]{1,6})\b")


class Members(Rule):
    """Goes by what a rank prints of its job."""

    id = "members"
    source = "Lightning 2.6, fabric/utilities/distributed.py"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._said: tuple[float, int, int] | None = None

    def printed(self, at: float, node: str, rank: int | None, data: bytes) -> None:
        """See :class:`Rule`."""
        if rank is None or _HINT not in data:
            return
        for found in _SAYS.finditer(data):
            if (wanted := int(found[1])) > self.about.ranks > 0:
                self._said = self._said or (at, rank, wanted)

    def restarted(self) -> None:
        """See :class:`Rule`."""
        self._said = None

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        if self._said is None:
            return
        since, rank, wanted = self._said
        has = self.about.ranks
        what = f"rank {rank} waits for {wanted} ranks, and this run has started {has}"
        steps = (
            NoticeStep("--launcher per-node", "restart with this, if it starts its own ranks (Lightning)"),
            NoticeStep(f"{wanted} slots in the hostfile", "or with this, if each slot should be one of them"),
        )
        evidence = (f"rank {rank} printed this; since LOCAL_RANK is set, it starts no other ranks",)
        yield Condition("members", what, since, None, evidence, "sure", ranks=(rank,), steps=steps)
