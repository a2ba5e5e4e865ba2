"""The end of a SLURM job that lent the nodes: why they were taken back, in the words of whoever did it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from cockpit import slurm
from cockpit.base.events import Fact, NodeLost
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder

_LOOK_S = 0.5
"""Between two looks at what SLURM has said of the step that holds the run."""

_REPORTS_S = 5.0
"""For nodes without a link to come back, once their job was ended."""

_OVER_S = 1.0
"""From the last step of a job to its state."""

KNOWN_WITHIN_S = _OVER_S + slurm.PERIOD_S
"""From the end of the run to the reason, at most, unless SLURM itself is slow."""


class JobEnd:
    """Finds out why the job that a run is in was ended.

    :param pool: gives up the job's steps of ours once nothing more comes from the nodes
    :param note: takes what we ourselves see of a node
    :param emit: takes an event
    """

    def __init__(
        self,
        folder: RunFolder,
        model: RunModel,
        pool: LinkPool,
        note: Callable[[str, Fact], None],
        emit: Callable[[Event], None],
    ) -> None:
        self._folder = folder
        self._model = model
        self._pool = pool
        self._note = note
        self._emit = emit

    async def mind(self) -> None:
        """Watch until the run is over; then, unless it has ended by itself, ask SLURM for the reason."""
        since = 0.0
        while not self._model.over:
            await asyncio.sleep(_LOOK_S)
            known = self._folder.job_ended()
            since = (since or time.monotonic()) if known else 0.0
            # A node with a link still records how its ranks end; of the others nothing more will come.
            if known and time.monotonic() - since > _REPORTS_S:
                for name, node in self._model.nodes.items():
                    if not node.over and node.link != "ok":
                        self._note(name, NodeLost("its job has ended", taken=True))
        if not self._model.ended_by_itself:
            while not self._model.done:  # noqa: ASYNC110 (its last logs are on their way)
                await asyncio.sleep(_LOOK_S)
            # A job is over once no step of ours is in it either, and its srun's last words take a moment.
            await self._pool.let_go()
            await asyncio.sleep(_OVER_S)
            vanished = any(node.supervisor_gone for node in self._model.nodes.values())
            told: Fact | None = None
            while not self._model.job_end_final:
                for event in await asyncio.to_thread(self._folder.job_ended, ask=True, vanished=vanished):
                    if event.fact != told:
                        told = event.fact
                        self._emit(event)
                if not told:
                    return
                # Its answer is not final: SLURM is asked again, at most once in its period.
                await asyncio.sleep(_LOOK_S)
