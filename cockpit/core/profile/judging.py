"""Who is slow in a profile, and why: the rules of pace for who, and two ways to know why, which must agree.

The parts of a step (data, compute, communication, idle) come from what ran; the phases (input, forward,
backward, update) from the training loop. Nobody is named by less than what names a rank in a run that is
watched, and by no less than what its steps differ among themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, pstdev

from cockpit.base.profile.summary import RankProfile
from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.core.masks import mask_of
from cockpit.core.pace import phases
from cockpit.core.pace.phases import Phases, Reason, bound
from cockpit.core.pace.slow import EXCESS, LOOKED_AT, NEEDED
from cockpit.core.pace.step import Step as PaceStep
from cockpit.core.profile.collection import Collection
from cockpit.core.profile.operations import operations
from cockpit.core.profile.reading import CollectiveRow, Kind, OperationRow, Parts, seconds
from cockpit.core.ranks import ranks_named, ranks_text

FLOOR_S = 0.005
"""Seconds of a step that a slow rank takes longer at least."""

NOISE = 2
"""How many times the standard deviation, from step to step, of what it takes longer: its own, and a usual
rank's."""

SURE_STEPS = 4
"""Steps from which on anything is sure."""

AGREES: Mapping[str, frozenset[str]] = {
    "data": frozenset({"input"}),
    "compute": frozenset({"forward", "backward", "update", "other"}),
    "communication": frozenset({"forward", "backward", "update", "other"}),
    "idle": frozenset({"input", "forward", "backward", "update", "other"}),
}
"""Phases in which a part of a step may be why a rank is slow. Python, or sleep, can be anywhere."""

SPENDS = {
    "data": "waits for data {} of each step",
    "compute": "computes {} of each step",
    "communication": "moves data between ranks {} of each step, waits not counted",
    "idle": "runs no operation {} of each step (Python, sleep, launching kernels)",
}

OPERATIONS = {
    "data": ("data", "python"),
    "compute": ("compute", "copy"),
    "idle": ("python", "other", "system", "sample"),
}
"""Kinds of operations in which a part of a step is spent."""

LOADER = "_SingleProcessDataLoaderIter"
"""In the name of what loads data in the training process itself."""
LOADS = 0.1
"""Part of a step that this takes from which on workers would help."""

COMMUNICATES, IDLES = 0.3, 0.5
"""Part of a step from which on a run is bound by these."""

_FRAME = re.compile(r"(?P<file>[^\s/()]*\.py)\((?P<line>\d+)\): (?P<name>\S+)")
"""A frame of Python in a trace."""


@dataclass(frozen=True)
class Case:
    """What a profile tells of the ranks that are here.

    :param parts: by rank, means over the steps that count
    :param phases: by rank, the same of its phases without its waiting, which is known where it ended; not of
        a rank whose marks do not say so
    :param steps: these as pace knows them: places are those of the ranks in order
    :param waits: whether it is known what ranks wait for each other
    :param gpus: whether these compute on GPUs: the phases are those of CPUs that run ahead
    :param missing: ranks that are not here
    """

    collection: Collection
    profiles: Mapping[int, RankProfile]
    nodes: Mapping[int, str]
    parts: Mapping[int, Parts]
    phases: Mapping[int, Phases]
    kinds: Sequence[Kind]
    steps: Sequence[PaceStep]
    waits: bool
    gpus: bool
    collectives: Sequence[CollectiveRow]
    missing: Sequence[int]

    @property
    def ranks(self) -> Sequence[int]:
        """In order."""
        return sorted(self.parts)

    def kind_of(self, rank: int) -> Kind:
        """Whom a rank is compared with."""
        return next(kind for kind in self.kinds if rank in kind.ranks)

    def others(self, rank: int) -> Parts | None:
        """The medians of those, without the rank; None: there are none."""
        others = [self.parts[one] for one in self.kind_of(rank).ranks if one != rank]
        return Parts._make(map(median, zip(*others, strict=True))) if others else None

    def excesses(self, place: int) -> tuple[list[float], list[float]]:
        """By how much the rank at a place was longer in each step than the median one of its kind, as part of
        that, and in seconds."""
        known = [step for step in self.steps if step.excess(place) is not None]
        return [step.excess(place) or 0.0 for step in known], [step.over(place) for step in known]

    @property
    def partial(self) -> bool:
        """Whether other ranks are in the same collectives: what is waited for them is not known."""
        return bool(self.missing) or any(row.ranks > row.seen for row in self.collectives)

    @property
    def noise(self) -> float:
        """By how much steps of a usual rank differ in that, seconds."""
        each = (self.excesses(place)[1] for place in range(len(self.ranks)))
        return median(pstdev(overs) for overs in each if overs)

    @property
    def step(self) -> float:
        """Seconds of a step, the median."""
        return median(one.took for one in self.parts.values())

    def seconds(self, number: float) -> str:
        """A part of a step, with as many digits as a step needs."""
        return seconds(number, self.step)


@dataclass(frozen=True)
class Named:
    """A rank that is slow.

    :param excess: by how much its own time exceeds that of the median rank: 0.5 is half as long again
    :param over: the same in seconds of a step
    :param part: why, by the parts of its steps; ``phase``: by its phases; None: they do not tell
    """

    rank: int
    excess: float
    over: float
    part: Reason | None
    phase: Reason | None

    @property
    def why(self) -> str:
        """The part that is why, if its phases do not say otherwise; empty: not known."""
        return "" if self.part is None or (self.phase and not self.agree) else self.part.phase

    @property
    def agree(self) -> bool:
        """Whether both tell, and the same."""
        if self.part is None or self.phase is None:
            return False
        return self.phase.phase in AGREES[self.part.phase]


def slow(case: Case) -> list[Named]:
    """Ranks that are slow, the slowest first."""
    phased, noise, found = any(step.phases for step in case.steps), case.noise, []
    for place, rank in enumerate(case.ranks):
        excesses, overs = case.excesses(place)
        times = sum(one >= EXCESS and over >= FLOOR_S for one, over in zip(excesses, overs, strict=True))
        if not times or times < len(overs) * NEEDED / LOOKED_AT:
            continue
        if median(overs) < NOISE * max(noise, pstdev(overs)):
            continue
        over = fmean(overs)
        part = phases.reason(case.parts[rank], case.others(rank), over)
        phase = _phase(case, rank, over) or (phases.why(place, case.steps, lambda: ()) if phased else None)
        if phase is not None and case.gpus:
            phase = replace(phase, about="~")
        one = Named(rank, median(excesses), over, part, phase)
        if case.gpus and one.why == "" and part is not None and part.phase in ("compute", "communication"):
            # Where a CPU that runs ahead waits for its GPU says nothing against what the GPU did.
            one = replace(one, phase=None)
        found.append(one)
    return sorted(found, key=lambda one: (-one.excess, one.rank))


def _phase(case: Case, rank: int, over: float) -> Reason | None:
    """Why, by phases of which it is known how long ranks waited in each of them."""
    peers = [one for one in case.kind_of(rank).ranks if one != rank]
    if case.gpus or not all(one in case.phases for one in (rank, *peers)):
        return None
    others = phases.middle_phases([case.phases[one] for one in peers])
    return phases.reason(case.phases[rank], others, over)


def finding(case: Case, found: Sequence[Named]) -> Finding:
    """The sentence that comes first, and what it is based on."""
    return _slow(case, found) if found else _unequal(case) or _even(case)


def _slow(case: Case, found: Sequence[Named]) -> Finding:
    first = found[0]
    named = sorted(one.rank for one in found)
    many = len(named) > 1
    own, others = case.parts[first.rank], case.others(first.rank) or case.parts[first.rank]
    more, step = case.seconds(first.over), case.seconds(case.step)
    # One that waits itself is not whom they wait for, slow as it is.
    alone = own.wait <= first.over / 2
    if alone and others.wait - own.wait >= (1 - phases.ALIKE) * first.over:
        what = f"{ranks_named(named)} make{'' if many else 's'} the others wait {more} of every {step} step"
    else:
        what = f"{ranks_named(named)} take{'' if many else 's'} {more} longer per step than the median rank"
    rows = _differing(case, first)
    sure = first.agree and len(case.steps) >= SURE_STEPS and all(one.why == first.why for one in found)
    return Finding(
        "slow_rank",
        what,
        ranks=mask_of(named),
        where=_where(rows),
        detail=_detail(case, first, rows),
        evidence=tuple(_evidence(case, found, rows)),
        certainty="sure" if sure else "likely",
        steps=tuple(_next(case, first, named)),
        nodes=tuple(sorted({case.nodes[rank] for rank in named})),
        severity="warning",
    )


def _detail(case: Case, first: Named, rows: Sequence[OperationRow]) -> str:
    if not first.why or first.part is None:
        if first.phase is None:
            return "no single part of its steps explains the difference"
        if first.part is not None:
            return "the reason is unclear: its operations and its phases disagree"
        took, usual = case.seconds(first.phase.took), case.seconds(first.phase.others)
        said = f"rank {first.rank} is {_in(first.phase)} {took} of each step, the others {usual}"
        return said + "; its operations don't show why"
    took, usual = case.seconds(first.part.took), case.seconds(first.part.others)
    said = f"rank {first.rank} {SPENDS[first.why].format(took)}, the others {usual}"
    if first.phase is not None and first.why != "data":
        said += f", {_in(first.phase)}"
    if first.why != "compute":
        others = case.others(first.rank)
        as_fast = others and case.parts[first.rank].compute <= others.compute * (1 + EXCESS)
        return said + ("; it computes as fast as they do" if as_fast else "")
    oftener = [row for row in rows if row.median_count is not None and row.count > row.median_count * 1.05]
    if sum(row.more or 0.0 for row in oftener) >= first.over / 2:
        row = oftener[0]
        return f"{said}; it has more to do: {row.name} {row.count:g} × per step, others {row.median_count:g}"
    return said + ("; the same calls take longer" if rows else "")


def _in(phase: Reason) -> str:
    return "outside of its phases" if phase.phase == "other" else f"in its {phase.phase}"


def _differing(case: Case, first: Named) -> list[OperationRow]:
    """Operations that make up what a rank is slow by, the longest first."""
    every = operations(case.profiles, first.rank, case.kind_of(first.rank).ranks).rows
    kinds = OPERATIONS.get(first.why, ())
    return [row for row in every if row.kind in kinds and (row.more or 0.0) >= 0.1 * first.over]


def _where(rows: Sequence[OperationRow]) -> str:
    frame = next((found for row in rows if (found := _FRAME.fullmatch(row.name))), None)
    return f"{frame['file']}:{frame['line']} {frame['name']}" if frame else ""


def _evidence(case: Case, found: Sequence[Named], rows: Sequence[OperationRow]) -> Iterator[str]:
    for one in found[:3]:
        since = case.collection.since.get(one.rank)
        yield (
            f"rank {one.rank}: {one.excess:.0%} more own time per step than the median rank"
            + (f", since step {since:,}" if since is not None else "")
            + "".join(f"; {why.text}" for why in (one.part, one.phase) if why is not None)
        )
    for row in rows[:2]:
        if row.median is not None:
            yield f"{row.name} {case.seconds(row.own)}, others {case.seconds(row.median)}"
    first = found[0].rank
    most = max(case.collectives, key=lambda one: one.wait, default=None)
    if most is not None and (times := dict(most.last).get(first, 0)) * 2 > most.of:
        yield f"last in {times} of {most.of} {most.name}, {case.seconds(most.spread)} after the first"


def _next(case: Case, first: Named, named: Sequence[int]) -> Iterator[Step]:
    run, ranks = quote(case.collection.run or "HOSTFILE"), ranks_text(named)
    if first.why == "data" and (workers := _workers(case, first.rank)):
        yield workers
    typical = case.kind_of(first.rank).typical
    if first.why in ("data", "idle") and typical != first.rank:
        both = ranks_text({first.rank, typical})
        yield Step(f"cockpit profile {run} --kind cpu --ranks {both}", "which Python lines")
    yield Step(f"cockpit stacks {run} --ranks {ranks} --samples 3", "what they are doing", "", "stacks")


def _workers(case: Case, rank: int) -> Step | None:
    """Data is loaded in the training process, and that takes much of its steps."""
    parts, names = case.parts[rank], [one.name for one in case.profiles[rank].operations]
    if parts.data < LOADS * parts.took or not any(LOADER in name for name in names):
        return None
    workers = 1 + math.ceil(parts.data / max(parts.own - parts.data, 0.1 * parts.own))
    return Step(f"num_workers={workers}", "its DataLoader loads data in the training process itself")


def _unequal(case: Case) -> Finding | None:
    """Ranks with different operations take differently long, as stages of a pipeline may."""
    longest, *others = sorted(case.kinds, key=lambda kind: -kind.parts.own)
    if not others or not case.waits:
        return None
    rest = sorted(rank for kind in others for rank in kind.ranks)
    usual = median(case.parts[rank].own for rank in rest)
    over = longest.parts.own - usual
    if over < max(EXCESS * usual, FLOOR_S):
        return None
    own, theirs = case.seconds(longest.parts.own), case.seconds(usual)
    return Finding(
        "unequal_ranks",
        f"{ranks_named(longest.ranks)} run{'' if len(longest.ranks) > 1 else 's'} different operations and "
        f"take{'' if len(longest.ranks) > 1 else 's'} longer: {own} per step, the others {theirs}",
        ranks=mask_of(longest.ranks),
        detail="as pipeline stages or experts of unequal size do: the largest sets the pace. Among ranks "
        "with the same operations none is slow",
        evidence=tuple(
            f"{ranks_named(kind.ranks)}: {case.seconds(kind.parts.own)} own time, "
            f"{case.seconds(kind.parts.wait)} waiting"
            for kind in case.kinds[:8]
        ),
        certainty="likely",
        severity="info",
    )


def _even(case: Case) -> Finding:
    found = _bound(case)
    ranks = case.ranks
    owns = [one.own for one in case.parts.values()]
    if len(ranks) == 1:
        what = f"only {ranks_named(ranks)} was profiled: nothing to compare it with"
    elif not case.waits and any(profile.backend for profile in case.profiles.values()):
        what = "can't tell who is slow: no collective is in the traces of several ranks"
    else:
        what = "no rank is slow" + (" among those profiled" if case.partial else "")
    least, most = case.seconds(min(owns)), case.seconds(max(owns))
    evidence = [f"own time {least if least == most else f'{least} to {most}'} per step"]
    single, uneven = all(len(kind.ranks) == 1 for kind in case.kinds), case.noise > EXCESS * median(owns)
    if uneven and len(ranks) > 1:
        evidence.append(f"a rank's steps vary by {case.seconds(case.noise)}: smaller differences don't show")
    sure = case.waits and not (case.partial or single or uneven) and len(case.steps) >= SURE_STEPS
    steps: tuple[Step, ...] = ()
    if found and found.startswith("input-bound"):
        each = [step for rank in ranks if (step := _workers(case, rank)) is not None]
        steps = (each[0],) if 2 * len(each) > len(ranks) else ()
    return Finding(
        "no_slow_rank",
        what + (f"; {found}" if found else ""),
        evidence=tuple(evidence),
        certainty="sure" if sure else "likely" if case.waits or len(ranks) == 1 else "unsure",
        steps=steps,
        severity="info",
    )


def _bound(case: Case) -> str:
    """What the steps of all ranks are bound by; empty: by nothing much."""
    ranks = len(case.parts)
    known = case.waits or ranks == 1
    each = [
        Phases(
            one.data,
            one.compute,
            wait=one.wait if known else math.nan,
            other=one.communication + one.idle,
        )
        for one in case.parts.values()
    ]
    found = bound(each, ranks=ranks)
    if found is not None and found.word != "compute-bound":
        return found.text
    middle = Parts._make(map(median, zip(*case.parts.values(), strict=True))).shares
    if middle.communication >= COMMUNICATES:
        return f"communication-bound: for {middle.communication:.0%} of a step nothing else runs"
    if not case.gpus:
        rows = (phases.rank_phases(place, case.steps) for place in range(ranks))
        marked = [one for one in rows if one is not None]
        if (told := bound(marked, ranks=ranks)) is not None:
            return told.text
    if found is not None:
        return f"{found.word}: operations run {found.share:.0%} of a step"
    if middle.idle >= IDLES:
        return f"no operation runs for {middle.idle:.0%} of a step (Python, sleep, launching kernels)"
    return ""
