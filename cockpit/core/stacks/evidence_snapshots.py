"""What nodes kept of their ranks while nobody watched, as snapshots of the whole job. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from cockpit.base.stacks.dump import Dump
from cockpit.core.ranks import nodes_text, ranks_named
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Recorded, look
from cockpit.core.run.model import LIVE, RunModel
from cockpit.core.stacks.collectives import of_look
from cockpit.core.stacks.fate import of_rank
from cockpit.core.stacks.progress import Done, Progress
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot

ONE_MOMENT_S = 60.0
"""What nodes kept within so long belongs together: each notices by itself that its ranks stand still."""

SAME_S = 2.0
"""Two times that differ by less are the same one."""

ENDED_S = 0.5
"""Exits that were recorded so shortly after still belong to the moment: a wrapper records one and waits."""


@dataclass(frozen=True)
class Testimony:
    """What one node kept at one time. Times are unix seconds on our clock.

    :param why: ``stall``, ``failure`` or ``asked``
    :param since: since when its ranks had stood still; None: that was not the reason
    :param failed: ranks whose end was the reason
    :param trouble: what is missing, and why
    :param steps: the last step of each rank; ``usual_s``: how long one takes
    """

    node: str
    at: float
    why: str
    since: float | None = None
    failed: tuple[int, ...] = ()
    boot_id: str = ""
    trouble: tuple[str, ...] = ()
    took_s: float = 0.0
    steps: Mapping[int, Done] = field(default_factory=dict)
    usual_s: float | None = None
    dumps: Mapping[int, Dump] = field(default_factory=dict)
    recorded: Mapping[int, Recorded] = field(default_factory=dict)


Round = list[Testimony]
"""What all nodes kept in one moment, the earliest first."""


def moments(all_of_them: Iterable[Testimony]) -> list[list[Round]]:
    """What belongs together, the earliest first: rounds in which nothing had moved since the one before."""
    rounds: list[Round] = []
    for one in sorted(all_of_them, key=lambda one: (one.at, one.node)):
        last = rounds[-1] if rounds else None
        # What was kept before a failure tells nothing of it; what comes after may be its consequence.
        news = last is None or (one.failed and not _failed(last))
        if (
            last is not None
            and not news
            and one.at - last[0].at <= ONE_MOMENT_S
            and not _has_looked(last, one)
        ):
            last.append(one)
        else:
            rounds.append([one])
    found: list[list[Round]] = []
    for each in rounds:
        if found and not _failed(each) - _failed(found[-1][-1]) and _same_stall(found[-1][-1], each):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _same_stall(before: Round, after: Round) -> bool:
    """Whether the ranks of a node had stood still all the time between."""
    then = {one.node: one.since for one in before if one.since is not None}
    return any(
        one.since is not None and one.node in then and abs(then[one.node] - one.since) < SAME_S
        for one in after
    )


def _failed(round_: Round) -> set[int]:
    return {rank for one in round_ for rank in one.failed}


def _has_looked(round_: Round, again: Testimony) -> bool:
    """Whether a node looks again at what it has looked at in this round."""
    return any(one.node == again.node and _same_stall([one], [again]) for one in round_)


def snapshot(rounds: Sequence[Round], model: RunModel, run: str) -> Snapshot:
    """One snapshot of what was kept in one moment, or of the first and the last of several.

    :param model: what is known of the run by now
    """
    rounds = [rounds[0], *_last(rounds)]
    samples = [_sample(each, model) for each in rounds]
    newest = rounds[-1]
    at = newest[0].at
    dumps = {rank: dump for sample in samples for rank, dump in sample.dumps.items()}
    name = time.strftime("%Y%m%d-%H%M%S", time.localtime(rounds[0][0].at))
    failed = _failed(newest)
    places = {
        number: _place(model, number, at, dumps.get(number), failed=number in failed)
        for number in sorted(model.ranks)
    }
    options = {"native": False, "locals": False, "children": False}
    made = Snapshot(name, run, run, places, samples, options, by_nodes=reason(newest))
    made.progress = _progress(newest)
    recorded = {rank: found for one in newest for rank, found in one.recorded.items()}
    if recorded:
        world = 1 + max([*places, *recorded])
        silent = {rank: place.why or "nobody saved it" for rank, place in places.items()}
        silent = {rank: why for rank, why in silent.items() if rank not in recorded}
        made.collectives = of_look(look(recorded, Memberships(world)), silent, at)
    made.problems = tuple(dict.fromkeys(f"{one.node}: {text}" for one in newest for text in one.trouble))[
        :100
    ]
    return made


def _last(rounds: Sequence[Round]) -> list[Round]:
    """The last round after the first one; of one that has just begun, not all nodes may be here yet."""
    nodes, begun = {one.node for one in rounds[0]}, rounds[0][0].at
    whole = (
        each
        for each in reversed(rounds[1:])
        if nodes <= {one.node for one in each} or each[0].at - begun > ONE_MOMENT_S
    )
    return [each for each in (next(whole, None),) if each is not None]


def reason(newest: Round) -> str:
    """Why it was kept, in words."""
    failed = sorted(_failed(newest))
    if failed:
        return f"{ranks_named(failed)} failed"
    since = [one.at - one.since for one in newest if one.since is not None]
    if since:
        nodes = nodes_text(sorted({one.node for one in newest if one.since is not None}))
        return f"the ranks of {nodes} had made no progress for {max(since):,.0f} s"
    return "a cockpit asked for it"


def _sample(several: Round, model: RunModel) -> Sample:
    dumps: dict[int, Dump] = {}
    for one in several:
        for rank, dump in one.dumps.items():
            # The first look was closest to what was the reason; a later one may see more.
            if rank not in dumps or (dump.threads and not dumps[rank].threads):
                dumps[rank] = dump
    heard = {one.node for one in several}
    silent = {}
    for name, node in model.nodes.items():
        if name not in heard:
            silent[name] = f"saved no evidence then: {node.lost}" if node.lost else "saved no evidence then"
    took_s = max(one.at + one.took_s for one in several) - several[0].at
    return Sample(several[0].at, dumps, silent, took_s)


def _place(model: RunModel, number: int, at: float, dump: Dump | None, *, failed: bool) -> Place:
    rank = model.ranks[number]
    ended = None if rank.state in LIVE else model.ended_at(rank)
    over = ended is not None and (failed or ended <= at + ENDED_S)
    pid = dump.process.pid if dump is not None and dump.process is not None else rank.pid
    if over and not (dump is not None and dump.threads):
        return Place(rank.node, None, pid, rank.text, ended_at=ended, end=of_rank(rank))
    return Place(rank.node, None, pid)


def _progress(newest: Round) -> Progress | None:
    steps = {rank: done for one in newest for rank, done in one.steps.items()}
    usual = [one.usual_s for one in newest if one.usual_s is not None]
    at = max(one.at for one in newest)
    return Progress(at, median(usual) if usual else None, True, steps) if steps else None
