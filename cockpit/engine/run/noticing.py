"""What may be wrong while a run goes on: feeds the rules of notices and the forecast of memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

from cockpit import config, slurm
from cockpit.base.events import Fact, Sample, Saved
from cockpit.core.logs.sources import Nccl, Writer
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.pauses import LATE_S, pauses
from cockpit.core.run.memory import Watch as MemoryWatch
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.limit import NEAR_S, TimeLimit
from cockpit.core.run.notices.rule import About
from cockpit.core.run.notices.watch import Watch
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError
from cockpit.plans.launch import PER_NODE

_LOOK_S = 1.0
"""Between two looks at what may be wrong."""

_LIMIT_FIRST_S = 12.0
"""Nobody has to wait for its turn then, who has just asked SLURM to start the run."""

_LIMIT_S, _LIMIT_NEAR_S = 600.0, 120.0
"""Between two questions for the time that is left to a job: it may be changed."""


class Noticing:
    """Notices what may be wrong with a run.

    :param note: takes what we ourselves see of a node; without a name, of the run
    :param switches: which notices are wanted
    """

    def __init__(
        self,
        folder: RunFolder,
        model: RunModel,
        pace: Pace,
        note: Callable[[str, Fact], None],
        switches: config.Notices,
    ) -> None:
        self._model = model
        self._pace = pace
        self._note = note
        self.memory = MemoryWatch() if switches.memory else None
        """The forecast of memory; None: nobody wants it."""
        manifest = folder.manifest
        job = manifest.foreign.slurm if manifest.foreign else folder.slurm_job or manifest.allocation
        places = {entry.name: entry.dir for entry in manifest.nodes}
        self._saved_until = time.time()
        own = not manifest.foreign and manifest.launcher != PER_NODE
        ranks = len(manifest.world) if own else 0
        about = About(folder.name, places, job, ranks, manifest.profile or {})
        self._rules = Watch(about, switches.off)

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What goes on for as long as the run is watched."""
        yield self._look()
        if self._rules.limit is not None:
            yield self._ask_limit(self._rules.limit)

    def sampled(self, node: str, sample: Sample) -> None:
        """A node was measured."""
        now = time.time()
        if self.memory is not None:
            for fact in self.memory.take(now, node, sample, self._model):
                self._note(node, fact)
        self._rules.sampled(now, node, sample, self._model)

    def log(self, node: str, writer: Writer, data: bytes) -> None:
        """These bytes were added to a log."""
        if not isinstance(writer, Nccl):
            self._rules.log(time.time(), node, writer, data)

    @property
    def said_step(self) -> tuple[int, float, bool] | None:
        """The last step in a log, its time (unix seconds), and whether it is the final one."""
        return self._rules.said_step

    @property
    def saves(self) -> Sequence[float]:
        """When logs named a checkpoint, unix seconds."""
        return self._rules.saves

    async def _look(self) -> None:
        while not self._model.over:
            await asyncio.sleep(_LOOK_S)
            for fact in self._rules.look(time.time(), time.monotonic(), self._model, self._pace):
                self._note("", fact)
            self._tell_saved(time.time())

    def _tell_saved(self, now: float) -> None:
        """Each pause for a checkpoint once, as soon as the line that names it must be here."""
        until = now - LATE_S - _LOOK_S
        found = list(pauses(self._pace, self.saves, self._saved_until)) if self.saves else []
        self._saved_until = max(self._saved_until, until)
        for pause in reversed(found):
            if pause.saved and pause.ended <= until:
                self._note("", Saved(pause.step, round(pause.seconds, 3)))

    async def _ask_limit(self, limit: TimeLimit) -> None:
        """Ask SLURM for the time that is left, seldom."""
        await asyncio.sleep(_LIMIT_FIRST_S)
        left_s: float | None = None
        while not self._model.over:
            # Where SLURM does not answer, what it said before is as true.
            with suppress(CockpitError):
                left_s = await asyncio.to_thread(slurm.time_left, limit.about.job)
                limit.told(time.time(), left_s)
            near = left_s is not None and left_s < 2 * NEAR_S
            await asyncio.sleep(_LIMIT_NEAR_S if near else _LIMIT_S)
