"""A run before its first step: whether it is starting, and what each rank does, as far as that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cockpit.core.ranks import ranks_named
from cockpit.core.run.probes import is_importing, probe_state
from cockpit.core.run.states import LIVE, Rank, RankState, Run
from cockpit.core.time_text import rounded_span

SETTLED_S = 60.0
"""Seconds after its last rank began from which a run that prints, and tells no step, counts as running."""

MOST = 6
"""Groups of ranks that are said; of more it is said how many there are."""

IN_RENDEZVOUS = "in rendezvous"


def is_starting(run: Run, now: float, *, stepped: bool, printed: bool | None) -> bool:
    """Whether ranks are there or to come, and none of them is known to have got to work.

    :param now: unix seconds
    :param stepped: whether a step of any rank is known
    :param printed: whether a rank has printed anything; None: nobody can know, nor what its steps are
    """
    if run.over or stepped or not any(rank.state in LIVE for rank in run.ranks.values()):
        return False
    began = [age for rank in run.ranks.values() if (age := _age(run, rank, now)) is not None]
    if printed is None or not began:
        return not began
    return not printed or min(began) < SETTLED_S


def doing(
    run: Run,
    now: float,
    *,
    builds: Mapping[int, str] | None = None,
    entered: Callable[[int], int | None] = lambda rank: None,
    printed: Callable[[int], bool] = lambda rank: True,
) -> list[str]:
    """What ranks do, those that do the same in one line: ``ranks 0-7: started 12 s ago, no output yet``.

    :param now: unix seconds
    :param builds: ranks that compile an extension, and which
    :param entered: how many collectives a rank has entered; None: not known
    :param printed: whether a rank has printed anything
    """
    groups: dict[tuple[str, ...], list[Rank]] = {}
    for rank in run.ranks.values():
        groups.setdefault(tuple(_does(run, rank, builds or {}, entered, printed)), []).append(rank)
    lines = []
    for texts, ranks in groups.items():
        ages = [age for rank in ranks if (age := _age(run, rank, now)) is not None]
        since = [f"started {rounded_span(min(ages))} ago"] if ages else []
        if IN_RENDEZVOUS in texts:
            span = rounded_span(max(_met_for(run, rank, now) for rank in ranks))
            texts = tuple(f"{text} for {span}" if text == IN_RENDEZVOUS else text for text in texts)
        lines.append(f"{ranks_named([rank.rank for rank in ranks])}: {', '.join([*since, *texts])}")
    more = len(lines) - MOST
    return [*lines[:MOST], f"and {more:,} more groups of ranks"] if more > 0 else lines


def _does(
    run: Run,
    rank: Rank,
    builds: Mapping[int, str],
    entered: Callable[[int], int | None],
    printed: Callable[[int], bool],
) -> Iterator[str]:
    node = run.nodes[rank.node]
    if rank.state is RankState.WAITING:
        yield "not launched yet"
        return
    if rank.state is RankState.STARTING:
        yield "waiting for the launcher"
        return
    if rank.state is not RankState.RUNNING:
        yield rank.text
        return
    if rank.rank in builds:
        yield f"building op {builds[rank.rank]}"
    if entered(rank.rank):
        yield "in collectives, no step yet"
    elif is_importing(rank):
        yield "importing torch"
    elif rank.probe is not None:
        began, joined = rank.probe.rendezvous_at, rank.probe.group_at
        if began is not None and (joined is None or joined < began):
            yield IN_RENDEZVOUS
        else:
            yield f"{'torch imported' if joined is None else 'process group initialized'}, no step yet"
    elif probe_state(node, rank)[0] == "waiting":
        yield "torch not imported"  # a program without torch never does
    if not printed(rank.rank):
        yield "no output yet"


def _met_for(run: Run, rank: Rank, now: float) -> float:
    """Seconds that its rendezvous has taken so far."""
    began = rank.probe.rendezvous_at if rank.probe is not None else None
    return 0.0 if began is None else max(0.0, now - began + run.nodes[rank.node].offset_s)


def _age(run: Run, rank: Rank, now: float) -> float | None:
    """Seconds that its process has run; None: it does not."""
    if rank.state is not RankState.RUNNING or rank.started_at is None:
        return None
    return max(0.0, now - rank.started_at + run.nodes[rank.node].offset_s)
