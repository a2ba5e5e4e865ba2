"""From a collection to what it says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median, median_low

from cockpit.base.profile.summary import RankProfile, StepTimes
from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of
from cockpit.core.pace.phases import MARKED, Phases, packed
from cockpit.core.pace.step import Step
from cockpit.core.pace.steps import Steps
from cockpit.core.profile import operations as beside
from cockpit.core.profile.collection import DONE, Collection
from cockpit.core.profile.folded import least_shown, odd_ranks, parsed
from cockpit.core.profile.joined import Join, join, rows
from cockpit.core.profile.judging import Case, Named, finding, slow
from cockpit.core.profile.kinds import kinds
from cockpit.core.profile.reading import Cost, FileRow, Kind, Operations, Parts, Reading, Row
from cockpit.core.ranks import ranks_named, ranks_text
from cockpit.core.text import counted, one_line

_NS = 1_000_000_000

LONG = 1.5
"""A step that takes all ranks so many times the usual one has something else in it."""

ALIKE = 0.03
"""Ranks of a node share a row if their own time differs by no more than this part of it."""

SHOWN = 0.3
"""Part of a rank's time: samples that show no smaller difference do not prove that there is none."""

PLACED = 0.01
"""Part of a step by which the waiting in a phase may be longer than that: marks and traces differ a bit."""

CLOCK_S = 0.02
"""How far apart the ends of a collective may be on our clock before it is said."""

_Table = Mapping[int, Mapping[int, StepTimes]]
"""By rank and step."""


def read(collection: Collection) -> Reading:
    """What a collection says; of one without summaries, what is missing."""
    profiles = _profiles(collection)
    table = {rank: _by_step(profile) for rank, profile in profiles.items()}
    many = Counter(step for steps in table.values() for step in steps)
    common = sorted(step for step, ranks in many.items() if 2 * ranks > len(table))
    left_out = _left_out(common, table, profiles)
    counted_steps = [step for step in common if step not in left_out]
    table = {
        rank: {step: steps[step] for step in counted_steps if step in steps} for rank, steps in table.items()
    }
    here = {rank: profiles[rank] for rank, steps in table.items() if steps}
    if not here:
        return _nothing(collection)
    nodes = {rank: one_line(collection.results[rank].node) for rank in here}
    found = join(here, nodes, {one_line(node): ahead for node, ahead in collection.offsets.items()})
    parts = {rank: {step: _parts(found, rank, one) for step, one in table[rank].items()} for rank in here}
    means = {rank: _over(fmean, list(each.values())) for rank, each in parts.items()}
    alike = [_kind(ranks, means) for ranks in kinds(here)]
    inside = [one for one in found.collectives if one.step in set(counted_steps)]
    waits = any(len(one.calls) > 1 for one in inside)
    listed, arrivals = rows(inside, nodes, len(counted_steps))
    case = Case(
        collection,
        here,
        nodes,
        means,
        _phases(found, table),
        alike,
        _paced(parts, table, alike, waits=waits),
        waits,
        any(profile.device == "gpu" for profile in here.values()),
        listed,
        sorted(collection.results.keys() - here.keys()),
    )
    named = slow(case)
    middle = _over(median, list(means.values()))
    of = named[0].rank if named else max(means, key=lambda rank: (means[rank].own, -rank))
    return Reading(
        finding(case, named),
        asked=len(collection.results),
        steps=tuple(counted_steps),
        left_out=left_out,
        parts=middle,
        kept_up=_kept_up(case, named, middle),
        kinds=tuple(alike),
        rows=(*_rows(case, named), *_missing(collection, case.missing)),
        ranks=means,
        waits=waits,
        operations=beside.operations(here, of, case.kind_of(of).ranks),
        collectives=tuple(listed),
        arrivals=arrivals,
        files=_files(collection),
        cost=_cost(collection, here, middle.took),
        notes=tuple(_notes(case, left_out, found)),
        offsets=found.offsets,
        clock=found.clock,
        apart=collection.apart_s,
    )


def operations(collection: Collection, reading: Reading, rank: int) -> Operations | None:
    """Those of one rank beside the others of its kind; None: nothing of it is here."""
    profiles = {one: profile for one, profile in _profiles(collection).items() if one in reading.ranks}
    kind = next((kind for kind in reading.kinds if rank in kind.ranks), None)
    return None if kind is None else beside.operations(profiles, rank, kind.ranks)


def _profiles(collection: Collection) -> dict[int, RankProfile]:
    return {
        rank: one.summary
        for rank, one in sorted(collection.results.items())
        if one.state == DONE and one.summary is not None
    }


def _by_step(profile: RankProfile) -> dict[int, StepTimes]:
    return {one.step: one for one in reversed(profile.steps) if one.took > 0}


def _left_out(common: Sequence[int], table: _Table, profiles: Mapping[int, RankProfile]) -> dict[int, str]:
    """Steps that do not count, and why."""
    found = {}
    lasts = [
        max((one.step for one in profile.collectives), default=0)
        for profile in profiles.values()
        if profile.collectives_all > len(profile.collectives)
    ]
    if lasts and min(lasts) > min(common, default=0):
        why = "too many collectives for a summary"
        found = {step: why for step in common if step >= min(lasts)}
    took = {
        step: median(steps[step].took for steps in table.values() if step in steps)
        for step in common
        if step not in found
    }
    usual = median_low(took.values()) if took else 0.0
    for step, longer in took.items():
        if longer > LONG * usual:
            what = _more(step, [other for other in took if took[other] <= LONG * usual], table)
            found[step] = (
                f"it took {longer / usual:.1f} times as long as the others{what}, "
                "perhaps for an evaluation or a checkpoint"
            )
    return found


def _more(step: int, others: Sequence[int], table: _Table) -> str:
    """What a long step has more of."""
    names = ("data", "compute", "communication", "idle")
    more = {}
    for name in names:
        usual = [getattr(steps[one], name) for steps in table.values() for one in others if one in steps]
        more[name] = median(getattr(steps[step], name) for steps in table.values() if step in steps)
        more[name] -= median(usual)
    name = max(more, key=more.__getitem__)
    return f" ({name} {more[name] / _NS:+.2f} s)"


def _parts(found: Join, rank: int, step: StepTimes) -> Parts:
    """A step of a rank; what a node says is cut so that the parts are the step."""
    data = min(step.data, step.took)
    compute = min(step.compute, step.took - data)
    exposed = min(step.communication, step.took - data - compute)
    wait = min(sum(found.waits.get((rank, step.step), {}).values()), exposed)
    idle = step.took - data - compute - exposed
    return Parts(data / _NS, compute / _NS, (exposed - wait) / _NS, wait / _NS, idle / _NS)


def _phases(found: Join, table: _Table) -> dict[int, Phases]:
    """Those of ranks of which all is known in every step, without their waiting: means over the steps."""
    known = {
        rank: [
            _net(step.phases, step.took, found.waits.get((rank, step.step), {})) for step in steps.values()
        ]
        for rank, steps in table.items()
    }
    return {
        rank: Phases._make(map(fmean, zip(*some, strict=True)))
        for rank, each in known.items()
        if (some := [one for one in each if one is not None]) and len(some) == len(each)
    }


def _net(marked: Sequence[int], took: int, waits: Mapping[int, int]) -> Phases | None:
    """The phases of a step without the waiting in each; None: these do not go together, or are not known."""
    if len(marked) != MARKED:
        return None
    gross = [*marked, max(0, took - sum(max(0, one) for one in marked))]
    net = [one if one < 0 else one - waits.get(place, 0) for place, one in enumerate(gross[:-1])]
    unplaced = sum(wait for place, wait in waits.items() if not 0 <= place < len(marked) or marked[place] < 0)
    net.append(gross[-1] - unplaced)
    if any(less < -PLACED * took for one, less in zip(gross, net, strict=True) if one >= 0):
        return None
    *four, other = (math.nan if one < 0 else max(0, less) / _NS for one, less in zip(gross, net, strict=True))
    return Phases._make([*four, sum(waits.values()) / _NS, other])


def _over(what: Callable[[Iterable[float]], float], some: Sequence[Parts]) -> Parts:
    return Parts._make(map(what, zip(*some, strict=True)))


def _kind(ranks: Sequence[int], means: Mapping[int, Parts]) -> Kind:
    slowest = sorted(ranks, key=lambda rank: (means[rank].own, rank))
    return Kind(tuple(ranks), _over(median, [means[rank] for rank in ranks]), slowest[(len(ranks) - 1) // 2])


def _paced(
    parts: Mapping[int, Mapping[int, Parts]], table: _Table, alike: Sequence[Kind], *, waits: bool
) -> list[Step]:
    """The steps as they are known of a run that is watched: its rules say who is slow."""
    found = Steps(list(parts))
    for rank, each in parts.items():
        for step, one in each.items():
            marked = [None if took < 0 else took / _NS for took in table[rank][step].phases]
            word = packed(marked, one.took)
            # The same step ends at once everywhere: hooks count them, and clocks are not asked.
            found.finish(rank, (0, step), float(step), one.took, exact=True, count=1, phases=word)
    for rank, each in parts.items() if waits else ():
        for step, one in each.items():
            found.work(rank, (0, step), one.own)
    found.staged({rank: stage for stage, kind in enumerate(alike) for rank in kind.ranks})
    return list(found)


def _kept_up(case: Case, named: Sequence[Named], middle: Parts) -> float | None:
    slowest = {one.rank for one in named}
    others = [one.own for rank, one in case.parts.items() if rank not in slowest]
    if not named or not others or not case.waits:
        return None
    return middle.took - max(0.0, case.parts[named[0].rank].own - max(others))


def _rows(case: Case, named: Sequence[Named]) -> Iterator[Row]:
    """Ranks of one node that are alike are one row; who is slow comes first, then who has most of its own."""
    why = {one.rank: one.why for one in named}
    found: list[tuple[Row, float]] = []
    for place, kind in enumerate(case.kinds):
        apart = sorted(
            kind.ranks,
            key=lambda rank: (case.nodes[rank], why.get(rank, "-"), -case.parts[rank].own, rank),
        )
        ranks: list[int] = []
        for rank, after in zip(apart, [*apart[1:], None], strict=True):
            ranks.append(rank)
            first = ranks[0]
            if after is not None and (case.nodes[after], why.get(after)) == (case.nodes[rank], why.get(rank)):
                own, most = case.parts[after].own, case.parts[first].own
                if most - own <= ALIKE * most:
                    continue
            mean = _over(fmean, [case.parts[one] for one in ranks])
            row = Row(tuple(sorted(ranks)), case.nodes[rank], mean, place, rank in why, why.get(rank, ""))
            found.append((row, mean.own))
            ranks = []
    found.sort(key=lambda one: (not one[0].slow, -one[1], one[0].ranks))
    return (row for row, _ in found)


def _missing(collection: Collection, ranks: Sequence[int]) -> list[Row]:
    """Ranks of which nothing is here, those of one node and with one reason in a row."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for rank in ranks:
        one = collection.results[rank]
        why = one.why
        if one.state == DONE and not why and (collection.kind == "torch" or one.summary):
            steps = ranks_text(step.step for step in one.summary.steps) if one.summary else ""
            why = f"it profiled other steps: {steps}" if steps else "no step is in its profile"
        alike.setdefault((one_line(one.node), one_line(one.state), one_line(why)), []).append(rank)
    return [Row(tuple(some), node, state=state, why=why) for (node, state, why), some in alike.items()]


def _files(collection: Collection) -> tuple[FileRow, ...]:
    # A report of nsys is of all ranks of a node.
    found: dict[tuple[str, str], FileRow] = {}
    for rank, one in sorted(collection.results.items()):
        if one.file:
            row = FileRow(rank, one_line(one.node), one_line(one.file), one.size)
            found.setdefault((row.node, row.name), row)
    return tuple(found.values())


def _cost(collection: Collection, profiles: Mapping[int, RankProfile], during: float) -> Cost:
    known = [profile.before for profile in profiles.values() if profile.before is not None]
    before = collection.before
    return Cost(
        (median(known) if known else None) if before is None else before,
        during if collection.during is None else collection.during,
        collection.after,
        max(profile.stop_s for profile in profiles.values()),
        max(profile.warm_s for profile in profiles.values()),
    )


def _ended(collection: Collection) -> Iterator[str]:
    if collection.cancelled:
        yield f"ended early: {one_line(collection.cancelled)}"


def _notes(case: Case, left_out: Mapping[int, str], found: Join) -> Iterator[str]:
    yield from _ended(case.collection)
    yield from (f"step {step:,} is left out: {why}" for step, why in left_out.items())
    if case.missing:
        alone = ": time all others waited for them counts as communication" if case.waits else ""
        yield f"{ranks_named(case.missing)} missing{alone}"
    elif case.partial:
        yield "waiting for ranks that were not profiled counts as communication"
    if len(case.kinds) > 1:
        some = "; ".join(ranks_named(kind.ranks) for kind in case.kinds[:8])
        more = f"; {len(case.kinds) - 8} more" if len(case.kinds) > 8 else ""
        yield f"ranks are compared only with those that run the same operations: {some}{more}"
    if not case.waits and len(case.parts) > 1:
        yield "how long ranks waited for each other is unknown: it counts as communication"
    if found.clock is not None and found.clock > CLOCK_S:
        yield f"clocks agree only within {found.clock:.2f} s, so arrivals are no better known"
    cut = {rank: one for rank, one in case.profiles.items() if one.collectives_all > len(one.collectives)}
    if cut:
        yield f"{ranks_named(cut)}: only the first collectives are known"
    said: dict[str, list[int]] = {}
    for rank, profile in case.profiles.items():
        for note in profile.notes:
            said.setdefault(one_line(note), []).append(rank)
    yield from (f"{ranks_named(ranks)}: {note}" for note, ranks in list(said.items())[:8])


def _sampled(collection: Collection, ranks: Sequence[int]) -> Finding:
    """What stacks say of who is where for longer than the others."""
    odd = odd_ranks({rank: parsed(collection.results[rank].folded) for rank in ranks})
    many = sum(collection.results[rank].samples for rank in ranks)
    about = f"{counted(many, 'sample')} of {ranks_named(ranks)}"
    if len(ranks) == 1:
        what = f"only {ranks_named(ranks)} was sampled: nothing to compare it with"
        return Finding("same_stacks", what, evidence=(about,), certainty="likely", severity="info")
    if not odd:
        what = "no rank spends clearly more time in any frame than the others"
        shows = least_shown(min(collection.results[rank].samples for rank in ranks))
        few = f"{about}: enough to show differences of {shows:.0%} of a rank's time or more"
        sure = "likely" if shows <= SHOWN else "unsure"
        return Finding("same_stacks", what, evidence=(few,), certainty=sure, severity="info")
    (first, some), others = next(iter(odd.items())), list(odd)[1:]
    what = (
        f"rank {first} spends {some[0].share:.0%} of its time in {some[0].frame}, others {some[0].others:.0%}"
    )
    detail = f"{ranks_named(others)} differ{'s' * (len(others) == 1)} too" if others else ""
    return Finding(
        "other_stacks",
        what,
        ranks=mask_of([first]),
        detail=detail,
        evidence=(about,),
        certainty="likely",
        nodes=(collection.results[first].node,),
        severity="warning",
    )


def _recorded(collection: Collection, ranks: Sequence[int]) -> Finding:
    """That there are reports of nsys, and how far apart they began."""
    nodes = dict.fromkeys(one_line(collection.results[rank].node) for rank in ranks)
    what = f"nsys recorded {ranks_named(ranks)} on {counted(len(nodes), 'node')}"
    apart = collection.apart_s
    about = () if apart is None or len(nodes) < 2 else (f"its starts were {apart:.2f} s apart",)
    return Finding("recorded", what, evidence=about, certainty="sure", severity="info", nodes=tuple(nodes))


def _nothing(collection: Collection) -> Reading:
    """Of a collection without a summary."""
    sampled = [rank for rank, one in collection.results.items() if one.state == DONE]
    if collection.kind == "cpu" and sampled:
        found = _sampled(collection, sampled)
    elif collection.kind == "nsys" and sampled:
        found = _recorded(collection, sampled)
    else:
        found = Finding("no_profile", "no rank has sent a profile", certainty="sure")
    steps = range(collection.first or 0, (collection.first or 0) + collection.steps)
    return Reading(
        found,
        asked=len(collection.results),
        steps=tuple(steps) if collection.kind == "nsys" else (),
        rows=tuple(_missing(collection, sorted(collection.results))),
        files=_files(collection),
        cost=Cost(collection.before, collection.during, collection.after),
        notes=tuple(_ended(collection)),
        apart=collection.apart_s,
    )
