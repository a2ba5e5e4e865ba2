"""Jobs, as the nodes tell of the ranks on them: which rank is where, and which are missing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cockpit.base.masks import mask_of
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.text import RemoteText
from cockpit.errors import CockpitError, Exit

RANK_LIMIT = 1 << 20
"""Ranks from here on are nonsense."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A rank's main process."""

    node: str
    pid: int
    ticks: int
    local_rank: int | None
    state: str
    started: float


@dataclass(frozen=True)
class Job:
    """Ranks that belong together.

    :param key: the same for the same job on every node
    :param world: how many ranks it should have
    :param problems: what does not fit together, one sentence each
    """

    key: Key
    launcher: str
    run: str
    user: str
    command: str
    world: int
    address: str
    ranks: dict[int, Found] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> list[str]:
        """The nodes it was found on."""
        return list(dict.fromkeys(found.node for found in self.ranks.values()))

    @property
    def started(self) -> float:
        """When its first rank was started, unix seconds."""
        return min(found.started for found in self.ranks.values())

    @property
    def missing(self) -> int:
        """Ranks it should have that were not found, as a mask."""
        return mask_of(range(self.world)) & ~mask_of(self.ranks)

    @property
    def title(self) -> str:
        """What people call it."""
        kind = "job" if self.launcher == "other" else f"{self.launcher} job"
        at = f" at {self.address}" if self.address else ""
        nodes = self.nodes
        number = f"{self.world} rank{'s' * (self.world != 1)} on {len(nodes)} node{'s' * (len(nodes) != 1)}"
        since = time.strftime("%H:%M", time.localtime(self.started))
        run = f"run {self.run}, " if self.run else ""
        return f"{run}{kind}{at}, {number}, since {since}"


def group(answers: Mapping[str, Mapping[str, Any]]) -> list[Job]:
    """The jobs on some nodes, the newest first.

    :raises CockpitError: a node sent what makes no sense
    """
    jobs: dict[Key, Job] = {}
    for node, answer in answers.items():
        try:
            for told in answer["ranks"]:
                _add(jobs, node, told)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"sent what makes no sense: {error!r}"
            raise CockpitError(what, where=node, code=Exit.NODE_UNFIT) from None
    return sorted(jobs.values(), key=lambda job: (-job.started, job.key))


def _add(jobs: dict[Key, Job], node: str, told: Mapping[str, Any]) -> None:
    rank, pid, ticks = int(told["rank"]), int(told["pid"]), int(told["ticks"])
    size = told["world_size"]
    if (
        not 0 <= rank < RANK_LIMIT
        or not 0 < pid < 1 << 30
        or not (size is None or 0 < int(size) <= RANK_LIMIT)
    ):
        raise ValueError(f"rank {rank} of {size}, pid {pid}")
    addr, port, step = (_shown(told["job"][name]) for name in ("addr", "port", "id"))
    run, world = _shown(told["run"]), int(size or 0)
    key = (run,) if run else (addr, port, step, str(world), _shown(told["user"]))
    job = jobs.get(key)
    if job is None:
        address = f"{addr}:{port}" if addr and port else addr or step
        job = jobs[key] = Job(
            key, _shown(told["launcher"]), run, _shown(told["user"]), _shown(told["command"]), world, address
        )
    local = told["local_rank"]
    found = Found(
        node, pid, ticks, None if local is None else int(local), _shown(told["state"]), float(told["started"])
    )
    before = job.ranks.get(rank)
    if before is None:
        job.ranks[rank] = found
    elif (before.pid, before.ticks) != (pid, ticks):
        job.problems.append(f"rank {rank} is on {before.node} and on {node}: the newer one is taken")
        if found.started > before.started:
            job.ranks[rank] = found


def _shown(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"expected text, got {type(text).__name__}")
    return RemoteText.of(text).shown(limit=200)


def choose(jobs: Sequence[Job], wanted: str = "", others: Sequence[str] = ()) -> Job:
    """The one job that is meant.

    :param wanted: its number in the list, from 1, or a part of its title; empty: the only one
    :param others: sentences about jobs of other people
    :raises CockpitError: none, or several
    """
    if not jobs:
        what = (
            "; ".join(others)
            or "no ranks found: no process of yours with RANK and WORLD_SIZE, or MPI's or SLURM's"
        )
        raise CockpitError(
            what, hint="only the owner of a job, or root, can look at it", code=Exit.NODE_UNFIT
        )
    hits = list(jobs)
    if wanted.isdigit() and 1 <= int(wanted) <= len(jobs):
        hits = [jobs[int(wanted) - 1]]
    elif wanted:
        hits = [job for job in jobs if wanted in job.title]
    if len(hits) == 1:
        return hits[0]
    lines = "".join(f"\n  --job {number}  {job.title}" for number, job in enumerate(jobs, 1))
    what = f"no job {wanted!r}" if wanted and not hits else "several jobs run there"
    raise CockpitError(f"{what}; say which:{lines}")


def missing_text(job: Job) -> str:
    """Which ranks were not found, in words; empty: all were."""
    missing = [rank for rank in range(job.world) if rank not in job.ranks]
    if not missing:
        return ""
    return f"rank {ranks_text(missing)} was not found on {nodes_text(job.nodes)}"
