"""A snapshot: what all ranks of a job were doing, in one sample or several, and who did not answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cockpit.base.answers import RankCalls
from cockpit.base.stacks.dump import Dump, Frame
from cockpit.core.inferred import sentences
from cockpit.core.masks import mask_of
from cockpit.core.stacks.collectives import Collectives
from cockpit.core.stacks.fate import End
from cockpit.core.stacks.progress import Progress
from cockpit.core.stacks.ras import Ras
from cockpit.core.stacks.tree import StackTree


@dataclass(frozen=True)
class Place:
    """Where a rank is.

    :param node: name of its node; empty if no node of the hostfile has it
    :param why: why there is no process to look at, in words ("killed by SIGKILL", "no process with RANK 3");
        empty while there is one
    :param ns_pid: its pid in its own pid namespace, if it is in a container
    :param inferred: how its rank was found if its environment does not say it, a word of
        :data:`cockpit.core.inferred.WORDS`
    :param ended_at: when its process ended, unix seconds on our clock, where that was recorded
    :param end: why there is none, as a fact; None while there is one
    """

    node: str
    local_rank: int | None = None
    pid: int | None = None
    why: str = ""
    ns_pid: int | None = None
    inferred: str = ""
    ended_at: float | None = None
    end: End | None = None

    @property
    def pid_text(self) -> str:
        """Its pid, and the one that its container knows it by; empty if there is no process."""
        inner = f" ({self.ns_pid} in its container)" if self.ns_pid and self.ns_pid != self.pid else ""
        return f"{self.pid}{inner}" if self.pid else ""


@dataclass
class Sample:
    """One look at every rank. Dumps arrive while it is being taken.

    :param at: when it was begun, unix seconds on our clock
    """

    at: float
    dumps: dict[int, Dump] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    """Nodes that did not answer, and why."""
    took_s: float | None = None
    """Seconds until the last answer; None while some are still to come."""

    @property
    def answered(self) -> int:
        """The ranks whose Python stacks are here, as a mask."""
        return mask_of(rank for rank, dump in self.dumps.items() if dump.threads)

    def as_json(self) -> dict[str, Any]:
        """What there is to say about it besides its dumps."""
        return {"at": self.at, "took_s": self.took_s, "silent": self.silent}

    def tree(self) -> StackTree:
        """The main stacks of all ranks that have one, merged."""
        tree = StackTree()
        for rank, dump in sorted(self.dumps.items()):
            tree.add(rank, dump.frames)
        return tree


@dataclass
class Snapshot:
    """Samples of one job.

    :param name: the snapshot's own name, ``<date>-<time>``
    :param title: the run's name, or the job's address and launcher if cockpit did not start it
    :param run: the run's name; empty for a job that cockpit did not start
    :param ranks: every rank the job should have
    """

    name: str
    title: str
    run: str = ""
    ranks: dict[int, Place] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    options: Mapping[str, object] = field(default_factory=dict)
    """What was asked for: ``native``, ``locals``, ``children``; ``ranks``: of some of the job's only."""
    progress: Progress | None = None
    """How far the ranks were; None: nobody knows."""
    collectives: Collectives | None = None
    """What their recorders said; None: they were not asked, or have none."""
    problems: tuple[str, ...] = ()
    """What does not fit together or could not be asked, a sentence each."""
    twice: Mapping[int, str] = field(default_factory=dict)
    """Ranks that two processes have, with a sentence about them."""
    closer: dict[int, Dump] = field(default_factory=dict)
    """More about single ranks than all were asked for: native frames, or variables that say whom they wait
    for."""

    stood: Mapping[int, float] = field(default_factory=dict)
    """Since when ranks had not run at the first sample, by an earlier look: unix seconds on our clock."""

    by_nodes: str = ""
    """Why the nodes took it by themselves, when nobody asked for it; empty: a cockpit took it."""

    ras: Ras | None = None
    """What NCCL's RAS said; None: it was not asked, or no rank has it."""

    calls: Mapping[int, RankCalls] = field(default_factory=dict)
    """The last calls of ranks without a stack, of those that note them; harmless for a terminal."""

    asking: bool = False
    """Whether steps, recorders and recorded ends are being asked for, to explain the newest sample."""

    def copy(self) -> Snapshot:
        """This snapshot as it is now: what arrives later is not in the copy."""
        samples = [replace(one, dumps=dict(one.dumps), silent=dict(one.silent)) for one in self.samples]
        return replace(self, ranks=dict(self.ranks), samples=samples, closer=dict(self.closer))

    @property
    def world(self) -> int:
        """Every rank the job should have, as a mask."""
        return mask_of(self.ranks)

    @property
    def inferred(self) -> int:
        """Ranks whose environment does not say which they are, as a mask."""
        return mask_of(rank for rank, place in self.ranks.items() if place.inferred)

    def notes(self) -> list[str]:
        """What holds for some of its ranks and must be known to read it: which of them are inferred."""
        return sentences({rank: place.inferred for rank, place in self.ranks.items()})

    def dumps(self, rank: int) -> list[Dump]:
        """A rank's dumps, oldest first."""
        return [sample.dumps[rank] for sample in self.samples if rank in sample.dumps]

    def stack(self, rank: int) -> tuple[Frame, ...]:
        """A rank's newest main stack; empty if there is none."""
        dumps = self.dumps(rank)
        return dumps[-1].frames if dumps else ()

    def missing(self) -> dict[int, str]:
        """Ranks without Python stacks in the newest sample, and why, lowest rank first."""
        return dict(self._missing())

    def _missing(self) -> Iterator[tuple[int, str]]:
        sample = self.samples[-1] if self.samples else Sample(0.0)
        for rank, place in sorted(self.ranks.items()):
            dump = sample.dumps.get(rank)
            if dump is not None and dump.threads:
                continue
            if dump is not None and dump.what:
                yield rank, dump.what
            elif place.why:
                yield rank, place.why
            elif place.node in sample.silent:
                yield rank, f"{place.node}: {sample.silent[place.node]}"
            else:
                yield rank, "no answer yet" if sample.took_s is None else "no answer"
