"""Snapshots that were taken on single nodes, as one of the whole job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cockpit.core.finding import Finding
from cockpit.core.ranks import ranks_named
from cockpit.core.stacks import collectives, ras
from cockpit.core.stacks.facts import APART_S
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.core.text import counted
from cockpit.errors import CockpitError


@dataclass(frozen=True)
class Merged:
    """Several snapshots as one.

    :param notes: what a person has to know of it
    :param doubts: why a verdict over all of them is not sure; empty: it may be
    """

    snapshot: Snapshot
    notes: tuple[str, ...]
    doubts: tuple[str, ...]

    def judged(self, found: Finding) -> Finding:
        """A verdict over all of them, no surer than that allows."""
        if not self.doubts:
            return found
        certainty = "likely" if found.certainty == "sure" else found.certainty
        return replace(found, certainty=certainty, evidence=(*found.evidence, *self.doubts))


def merged(parts: Mapping[str, Snapshot]) -> Merged:
    """One snapshot of several, by the names they are known by; of a rank in two of them the newer one counts.

    :raises CockpitError: they are not of one job, or one has no stacks
    """
    first, *others = parts
    whole = parts[first]
    for name, one in parts.items():
        if not one.samples:
            raise CockpitError("it contains no stacks", where=name)
        if one.ranks.keys() != whole.ranks.keys():
            these, those = (ranks_named(sorted(each.ranks)) for each in (one, whole))
            what = f"has {these}, but {first} has {those}"
            raise CockpitError(what, where=name, hint="give snapshots of one job")
        if whole.run and one.run and one.run != whole.run:
            what = f"belongs to run {one.run}, but {first} to run {whole.run}"
            raise CockpitError(what, where=name, hint="give snapshots of one run")
    # The newest last: it has the last word on its ranks.
    by_age = sorted(parts, key=lambda name: parts[name].samples[0].at)
    notes, doubts = _of_one_job(parts)
    ranks: dict[int, Place] = dict(whole.ranks)
    source: dict[int, str] = {}
    for name in by_age:
        told = {rank for sample in parts[name].samples for rank in sample.dumps}
        twice: dict[str, list[int]] = {}
        for rank in sorted(told & source.keys()):
            twice.setdefault(source[rank], []).append(rank)
        for older, both in twice.items():
            notes.append(f"{ranks_named(both)}: in {older} and in {name}, which is newer and is used")
        source.update(dict.fromkeys(told, name))
        places = parts[name].ranks.items()
        ranks |= {rank: one for rank, one in places if rank in told or (one.node and rank not in source)}
    depth = min(len(one.samples) for one in parts.values())
    samples = [_sample(parts, source, place - depth) for place in range(depth)]
    begun = [one.samples[0].at for one in parts.values()]
    apart = max(begun) - min(begun)
    if apart >= APART_S:
        notes.append(f"taken {apart:.0f} s apart: what waited for whom may have changed in between")
        doubts.append(f"these snapshots were taken {apart:.0f} s apart")
    options = {name: all(one.options.get(name) for one in parts.values()) for name in whole.options}
    run = next((one.run for one in parts.values() if one.run), "")
    title = run or f"{whole.title} (and {counted(len(others), 'other snapshot')})"
    known = [one.progress for one in parts.values() if one.progress is not None]
    snapshot = Snapshot(
        whole.name,
        title,
        run,
        ranks,
        samples,
        options,
        max(known, key=lambda one: one.at, default=None),
        collectives.merged(one.collectives for one in parts.values()),
        tuple(dict.fromkeys(text for one in parts.values() for text in one.problems)),
        {rank: text for one in parts.values() for rank, text in one.twice.items()},
        {
            rank: one
            for name in by_age
            for rank, one in parts[name].closer.items()
            if source.get(rank) == name
        },
        stood={
            rank: since
            for name in by_age
            for rank, since in parts[name].stood.items()
            if source.get(rank) == name
        },
        ras=ras.merged(one.ras for one in parts.values()),
    )
    return Merged(snapshot, tuple(notes), tuple(doubts))


def _of_one_job(parts: Mapping[str, Snapshot]) -> tuple[list[str], list[str]]:
    """What to say, and to doubt, where jobs have different names: a restart may have taken a new port."""
    called: dict[str, str] = {}
    for name, one in parts.items():
        called.setdefault(one.run or one.title.partition(",")[0], name)
    if len(called) < 2:
        return [], []
    said = "; ".join(f"{name} belongs to {job}" for job, name in called.items())
    return [f"{said}: merged as if they were one job"], ["these snapshots may be of different jobs"]


def _sample(parts: Mapping[str, Snapshot], source: Mapping[int, str], place: int) -> Sample:
    """The samples at one place, counted from the end, as one."""
    several = {name: one.samples[place] for name, one in parts.items()}
    dumps = {rank: several[name].dumps[rank] for rank, name in source.items() if rank in several[name].dumps}
    heard = {parts[source[rank]].ranks[rank].node for rank in dumps if rank in parts[source[rank]].ranks}
    silent = {node: why for one in several.values() for node, why in one.silent.items() if node not in heard}
    return Sample(
        min(one.at for one in several.values()),
        dumps,
        silent,
        max((one.took_s or 0.0) for one in several.values()),
    )
