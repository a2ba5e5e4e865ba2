"""Which running SLURM job of this person's holds a node: asked where no sshd lets us in."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

from cockpit import slurm
from cockpit.core.ranks import read_nodes
from cockpit.errors import CockpitError
from cockpit.transport.base import NotBySsh

_SQUEUE = ("squeue", "--me", "--noheader", "--states=RUNNING", "--format=%A %i %N")
"""Number of each running job, what it is called, its nodes."""

KEPT_S = 60.0
"""Seconds that an answer counts: a lost link is tried far more often."""


class Jobs:
    """The running jobs of this person, asked for once for many nodes."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._asked = -KEPT_S
        self._found: Mapping[str, list[str]] = {}

    async def holding(self, node: str, error: NotBySsh) -> str:
        """The number of the one job that holds a node.

        :param error: why it cannot be reached by ssh
        :raises NotBySsh: there is none, or they are several
        """
        if node in own_nodes(os.environ):
            return os.environ["SLURM_JOB_ID"]
        async with self._turn:
            if time.monotonic() > self._asked + KEPT_S:
                self._found = await asyncio.to_thread(_ask)
                self._asked = time.monotonic()
        jobs = self._found.get(node, [])
        if not jobs:
            raise error
        if len(jobs) > 1:
            what, hint = f"your SLURM jobs {', '.join(jobs)} hold it", f"say which one: --slurm {jobs[0]}"
        elif "+" in jobs[0]:
            what, hint = f"SLURM job {jobs[0]} holds it: heterogeneous jobs are not supported", error.hint
        else:
            return jobs[0]
        raise NotBySsh(f"{error.what}; {what}", where=node, hint=hint, retry=False, about=error.about)


def own_nodes(environ: Mapping[str, str]) -> frozenset[str]:
    """The nodes of the job that this shell is in: of ``salloc``, a batch script, a step."""
    if not environ.get("SLURM_JOB_ID", "").isdigit() or "SLURM_HET_SIZE" in environ:
        return frozenset()
    return _nodes(environ.get("SLURM_JOB_NODELIST", ""))


def held(text: str) -> dict[str, list[str]]:
    """The jobs on each node, as :data:`_SQUEUE` prints them; components of heterogeneous jobs as ``7+1``."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(" ")
        called, _, nodes = rest.partition(" ")
        if number.isascii() and number.isdigit() and len(number) <= 10:
            job = called if "+" in called else number
            for node in _nodes(nodes.strip()):
                found.setdefault(node, []).append(job)
    return found


def _ask() -> dict[str, list[str]]:
    try:
        answer = slurm.ask(_SQUEUE)
    except CockpitError:  # SLURM is not here, or ill: what is wrong with ssh is said
        return {}
    return held(answer.out)


def _nodes(text: str) -> frozenset[str]:
    try:
        return read_nodes(text)
    except CockpitError:
        return frozenset()
