"""The table of events: whose clock the time of each kind is on, what it changes in the model, what it says.

Definitions with their bounds are in :mod:`cockpit.base.events`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from cockpit.base import events
from cockpit.base.events import Fact
from cockpit.base.record import SIZES
from cockpit.base.stillness import Pause
from cockpit.core.logs.sources import Source
from cockpit.core.ranks import ranks_named
from cockpit.core.rules.rows.memory import LARGEST
from cockpit.core.run import memory, watch_messages
from cockpit.core.run.events import Event
from cockpit.core.run.failure import how
from cockpit.core.run.notices import words
from cockpit.core.run.states import HUNG, LIVE, PROFILES, Node, Rank, RankState, Run, renewed
from cockpit.core.text import one_line
from cockpit.core.time_text import rounded_span, span_text

NOTES = 200
"""Notes kept per node; further ones are only counted."""

REPORTS = 1000
"""Reports kept per node."""

EVIDENCE = 200
"""Times that evidence was kept that are remembered of a node."""

NOTICES = 256
"""Notices kept at a time; further ones are only told."""

ALIKE = 32
"""How many warnings of filling memory are printed one by one: a whole cluster may fill up at once."""

STAGES = {
    "term": "sent SIGTERM to its ranks",
    "finalising": "its ranks have ended; the profiler writes its report",
    "kill": "killing what is left (SIGKILL)",
    "sweep": "ending processes that the run left behind",
}

STAGES_OF_MANY = {
    "term": "sent SIGTERM to their ranks",
    "finalising": "their ranks have ended; the profiler writes its report",
}
"""The same of several nodes, where that differs."""

UNRECORDED = "supervisor was killed; rank exits may not be recorded"
"""The note of a node whose supervisor is gone."""


class WhoseClock(Enum):
    """Whose clock a time is on."""

    NODE = "node"
    OURS = "ours"


@dataclass(frozen=True)
class Entry:
    """One thing that happened.

    :param at: unix seconds on our clock
    :param text: one sentence, harmless for a terminal
    :param level: ``info``, ``warning`` or ``error``
    :param node: the node it is about; empty for the whole run
    :param rank: the rank it is about, if it is one
    :param aside: left out if only news is wanted; the start of a rank, for example
    :param common: the sentence without its subject, as it is said of several that do it at once
    :param sources: the nodes or ranks that one entry for several is about
    :param see: a command that shows more
    :param evidence: it is about evidence that was kept
    """

    at: float
    text: str
    level: str = "info"
    node: str = ""
    rank: int | None = None
    aside: bool = False
    common: str = ""
    sources: tuple[Source, ...] = ()
    see: str = ""
    evidence: bool = False


Reduce = Callable[[Run, Node, float, Any], Iterable[Node | Rank]]
"""From the run as it was, the event's node, time and fact: the nodes and ranks that differ after it."""

Tell = Callable[[Run, set[str], str, float, Any], Entry | None]
"""From the run after the event, the node's name, the time on our clock and the fact: the entry if it is news.

The set is for what is news only once: what was told of this run before.
"""


class EventKind(NamedTuple):
    """A row of the table.

    :param clock: whose clock its time is on
    :param reduce: what it changes in the model; None: nothing
    :param tell: what it says to a person; None: nothing
    :param whole: it is about the whole run, not one node
    """

    clock: WhoseClock
    reduce: Reduce | None
    tell: Tell | None
    whole: bool = False


def our_time(run: Run, event: Event) -> float:
    """When an event happened, on our clock (unix seconds)."""
    return event.at - _ahead(run, event.node, event.fact)


def witnessed(run: Run, at: float, node: str, fact: Fact) -> Event:
    """What we ourselves saw of a node, as an event on the clock of its kind.

    :param at: unix seconds on our clock
    """
    return Event(at + _ahead(run, node, fact), node, fact)


def _ahead(run: Run, node: str, fact: Fact) -> float:
    known = run.nodes.get(node)
    return known.offset_s if known is not None and TABLE[type(fact)].clock is NODE else 0.0


# What they change.


def _node(change: Callable[[Node, float, Any], Node]) -> Reduce:
    """Change nothing but the node, as made of it, the time and the fact."""
    return lambda run, node, at, fact: (change(node, at, fact),)


def _planned(run: Run, node: Node, at: float, fact: events.Planned) -> Iterator[Node | Rank]:
    for name, ranks in fact.nodes.items():
        yield Node(name, ranks)
        yield from (Rank(rank, name) for rank in ranks)


def _launched(run: Run, node: Node, at: float, fact: Fact) -> Iterator[Node | Rank]:
    yield replace(node, launched=True)
    yield from _each_rank(run, node, {RankState.WAITING}, state=RankState.STARTING)


def _supervised(run: Run, node: Node, at: float, fact: events.SupervisorStarted) -> Iterator[Node | Rank]:
    yield replace(node, launched=True, probe=fact.probe)
    yield from _each_rank(run, node, {RankState.WAITING}, state=RankState.STARTING)


def _probed(run: Run, node: Node, at: float, fact: events.RankProbe) -> Iterator[Rank]:
    rank = _rank(run, node, fact.rank)
    if rank is not None:
        yield replace(rank, probe=fact)


def _each_rank(run: Run, node: Node, before: Iterable[RankState], **changes: Any) -> Iterator[Rank]:
    return (replace(rank, **changes) for rank in run.on(node.name) if rank.state in before)


def _sample(run: Run, node: Node, at: float, fact: events.Sample) -> Iterator[Node | Rank]:
    yield renewed(node, sample=fact.sample, gpus=fact.gpus, sampled_at=at)
    for number, sample in fact.ranks.items():
        rank = _rank(run, node, number)
        if rank is not None and rank.state in LIVE:
            yield renewed(rank, sample=sample)


def _filling(run: Run, node: Node, at: float, fact: events.Filling) -> Iterator[Node]:
    others = {of: seen for of, seen in node.filling.items() if of != fact.of}
    if fact.full_at is None:
        yield replace(node, filling=others)
    elif len(others) < memory.LIMITS:
        yield replace(node, filling={**others, fact.of: (at, fact)})


def _noticed(run: Run, node: Node, at: float, fact: events.Notice) -> tuple[()]:
    key = fact.id, fact.of
    if fact.over:
        run.notices.pop(key, None)
    elif key in run.notices or len(run.notices) < NOTICES:
        run.notices[key] = at, fact
    return ()


def _rank(run: Run, node: Node, number: int) -> Rank | None:
    rank = run.ranks.get(number)
    return rank if rank is not None and rank.node == node.name else None


_AboutRank = events.RankStarted | events.RankExited | events.RankLost | events.RankGone


def _rank_of(run: Run, node: Node, fact: _AboutRank) -> Rank | None:
    """The rank a fact is about; None if a later attempt at it is already known.

    The end of an attempt may be recorded after the start of the next one.
    """
    rank = _rank(run, node, fact.rank)
    return None if rank is None or fact.attempt < rank.attempt else rank


def _rank_started(run: Run, node: Node, at: float, fact: events.RankStarted) -> Iterator[Rank]:
    rank = _rank_of(run, node, fact)
    if rank is None:
        return
    # Our journal, read before the node's record, may already have the end of this very attempt.
    ended = rank.state not in LIVE and rank.attempt == fact.attempt
    yield replace(
        rank if ended else Rank(rank.rank, node.name, RankState.RUNNING),
        pid=fact.pid,
        ticks=fact.ticks,
        attempt=fact.attempt,
        max_restarts=fact.max_restarts,
        started_at=at,
    )


def _rank_exited(run: Run, node: Node, at: float, fact: events.RankExited) -> Iterator[Rank]:
    rank = _rank_of(run, node, fact)
    if rank is not None:
        state = RankState.EXITED if fact.signal is None else RankState.KILLED
        ended = replace(rank, state=state, code=fact.code, signal=fact.signal, ended_at=at, why="")
        yield replace(ended, oom_kills=fact.oom_kills, recorded=fact.by != "launcher")


def _rank_gone(run: Run, node: Node, at: float, fact: events.RankGone) -> Iterator[Rank]:
    rank = _rank_of(run, node, fact)
    if rank is not None:
        # Times of a rank are on its node's clock.
        yield replace(rank, state=RankState.GONE, ended_at=at + node.offset_s, why=fact.why)


def _rank_lost(run: Run, node: Node, at: float, fact: events.RankLost) -> Iterator[Rank]:
    rank = _rank_of(run, node, fact)
    if rank is not None and rank.state in LIVE:
        recorded = fact.by in ("supervisor", "boot")
        yield replace(rank, state=RankState.LOST, ended_at=at, why=fact.why, recorded=recorded)


def _stop_asked(run: Run, node: Node, at: float, fact: events.StopAsked) -> tuple[()]:
    run.hung = run.hung or (fact.by == HUNG and not run.stop_reason)
    run.stop_reason = run.stop_reason or fact.reason
    run.stop_asked_at = at if run.stop_asked_at is None else run.stop_asked_at
    return ()


def _rest_kept(run: Run, node: Node, at: float, fact: events.RestKept) -> tuple[()]:
    run.rest_kept = True
    return ()


def _watched(run: Run, node: Node, at: float, fact: events.Watched) -> tuple[()]:
    run.watch = watch_messages.watching(fact, at)
    if fact.state == "going":
        run.longest = run.longest.or_longer(Pause(fact.still_s, fact.step))
    return ()


def _profiled(run: Run, node: Node, at: float, fact: events.Profiled) -> tuple[()]:
    run.profiles[fact.number] = at, fact
    for number in sorted(run.profiles)[:-PROFILES]:
        del run.profiles[number]
    return ()


def _job_ended(run: Run, node: Node, at: float, fact: events.JobEnded) -> tuple[()]:
    run.take_job_end(fact.why, at, final=fact.final)
    return ()


def _report(run: Run, node: Node, at: float, fact: events.Report) -> Iterator[Node]:
    if fact.name in node.reports or len(node.reports) < REPORTS:
        yield replace(node, reports={**node.reports, fact.name: fact})


def _evidence(run: Run, node: Node, at: float, fact: events.EvidenceKept) -> Iterator[Node]:
    if not fact.file:
        return
    before = {one.file: (when, one) for when, one in node.evidence}
    if fact.over_s is not None:
        if fact.file in before:
            when, one = before[fact.file]
            before[fact.file] = when, replace(one, over_s=fact.over_s)
        run.longest = run.longest.or_longer(Pause(fact.over_s))
    elif fact.file in before or len(before) < EVIDENCE:
        before[fact.file] = at, fact
    yield replace(node, evidence=tuple(before.values()))


def _tells(node: Node, at: float, fact: events.Note) -> Node:
    return _noted(node, fact.text, fact.about)


def _noted(node: Node, text: str, about: str = "") -> Node:
    if about == events.SAMPLES and text:
        node = replace(node, unmeasured=text)
    if len(node.notes) < NOTES:
        return replace(node, notes=(*node.notes, text))
    return replace(node, notes_dropped=node.notes_dropped + 1)


def _ended(run: Run, node: Node, at: float, fact: events.Ended) -> Iterator[Node | Rank]:
    yield replace(node, ended=True, stage="")
    never = {"why": "the launcher ended before it started", "recorded": True}
    yield from _each_rank(run, node, {RankState.STARTING}, state=RankState.LOST, ended_at=at, **never)


def _node_lost(run: Run, node: Node, at: float, fact: events.NodeLost) -> Iterator[Node | Rank]:
    why = fact.why or "gone"
    if node.ended:
        # How its ranks ended is on record: only what they printed last may be missing.
        yield replace(_noted(node, f"its last output may be missing here: {why}"), complete=True)
        return
    yield replace(node, lost=why)
    # The end of a rank is on its node's clock.
    ended = at + node.offset_s
    state = RankState.GONE if fact.taken else RankState.LOST
    how = {"ended_at": ended, "why": fact.why, "recorded": fact.booted}
    yield from _each_rank(run, node, LIVE, state=state, **how)


# What they say.


def _says(words: Callable[[Any], str], level: str = "info", *, aside: bool = False) -> Tell:
    """Say the same of every node, in words made of the fact."""
    return lambda run, said, node, at, fact: _of_node(at, node, words(fact), level, aside=aside)


def _of_node(at: float, node: str, sentence: str, level: str = "info", *, aside: bool = False) -> Entry:
    return Entry(at, f"{node}: {sentence}", level, node, aside=aside, common=sentence)


def _tell_stage(run: Run, said: set[str], node: str, at: float, fact: events.Stage) -> Entry:
    entry = _of_node(at, node, STAGES.get(fact.stage, fact.stage))
    return replace(entry, common=STAGES_OF_MANY.get(fact.stage, entry.common))


def _linked(node: Node, at: float, fact: events.LinkChanged) -> Node:
    since = node.link_since if node.link == fact.state else at
    return replace(node, link=fact.state, link_since=since, link_why=fact.why)


def _tell_link(run: Run, said: set[str], node: str, at: float, fact: events.LinkChanged) -> Entry:
    first = _first(said, f"link {node}")
    if fact.state == "ok":
        return _of_node(at, node, "link is up" if first else "link is back", aside=first)
    if fact.here:
        what = "not followed"
    elif fact.state == "gone":
        what = "not followed (the run continues); trying again each minute"
    else:
        how = "login required again" if fact.asks else "reconnecting"
        what = f"connection lost (the run continues); {how}"
    return _of_node(at, node, f"{what} ({fact.why})", "warning")


def _first(said: set[str], what: str) -> bool:
    """Whether this was not said before; it is from here on."""
    first = what not in said
    said.add(what)
    return first


def _tell_started(run: Run, said: set[str], node: str, at: float, fact: events.RankStarted) -> Entry | None:
    if fact.attempt:
        text = f"rank {fact.rank} on {node} started again, attempt {fact.attempt + 1}"
        return Entry(at, text, "warning", node)
    alive, total = run.alive(), len(run.ranks)
    if alive < total:
        said.discard("all running")
    elif _first(said, "all running"):
        return Entry(at, f"{alive}/{total} ranks running", aside=True)
    return None


def _tell_ended(
    run: Run,
    said: set[str],
    node: str,
    at: float,
    fact: events.RankExited | events.RankLost | events.RankGone,
) -> Entry | None:
    rank = run.ranks.get(fact.rank)
    if rank is None or rank.state in LIVE:
        return None
    # Clocks settle its place in time: records of earlier failures may still arrive.
    if run.first_failure() is rank:
        first = f"rank {rank.rank} on {rank.node} {how(rank)}"
        return Entry(at, f"{first}: first failure so far", "error", rank.node, rank.rank)
    level = "warning" if rank.failed else "info"
    text = f"rank {rank.rank} on {rank.node} {rank.text}"
    return Entry(at, text, level, rank.node, rank.rank, aside=True, common=rank.text)


def _tell_stop_requested(
    run: Run, said: set[str], node: str, at: float, fact: events.StopRequested
) -> Entry | None:
    if run.stop_reason:
        return None
    return _of_node(at, node, f"asked to stop by {fact.by}: {fact.reason}", "warning")


def _tell_report(run: Run, said: set[str], node: str, at: float, fact: events.Report) -> Entry:
    ready = fact.state == "ready"
    text = f"{node}: report {fact.name}: {_report_text(fact)}"
    return Entry(at, text, "info", node, aside=ready, common="reports are ready" if ready else "")


def _report_text(fact: events.Report) -> str:
    if fact.state == "writing":
        return f"being written, {fact.size / 1e6:.1f} MB so far"
    return f"{fact.state}: {fact.text}" if fact.text else fact.state


def _tell_evidence(run: Run, said: set[str], node: str, at: float, fact: events.EvidenceKept) -> Entry:
    if fact.over_s is not None:
        return _of_node(at, node, f"ranks resumed after {fact.over_s:,.0f} s")
    known = run.nodes.get(node)
    why = {"failure": "a rank failed", "stall": "ranks stalled"}.get(fact.why, "snapshot requested")
    if fact.why == "stall" and fact.since is not None:
        span_s = max(0.0, at - fact.since + (known.offset_s if known is not None else 0.0))
        why = f"ranks made no progress for {span_text(span_s)}"
    if not fact.file:
        return _of_node(at, node, f"{why}; no evidence could be saved: {fact.text}", "warning")
    own = frozenset(known.ranks if known is not None else ())
    kept = [("stacks", fact.stacks)] if fact.stacks else []
    kept += [("recorders", fact.recorders)] if fact.recorders else []
    whole = all(own == frozenset(ranks) for _, ranks in kept)
    parts = [what if whole else f"{what} of {ranks_named(ranks)}" for what, ranks in kept]
    more = f" ({fact.text})" if fact.text else ""
    text = f"{why}; saved: {', '.join(parts) or 'what the kernel says'}{more}"
    # Of several nodes, numbers of ranks would be told as one range.
    return replace(_of_node(at, node, text), evidence=True, common=text if whole else "")


def known(run: Run, event: Event) -> bool:
    """Whether a model has the start or the end of a rank already, by another way."""
    fact = event.fact
    if not isinstance(fact, events.RankStarted | events.RankExited | events.RankLost):
        return False
    rank = run.ranks.get(fact.rank)
    if rank is None or rank.pid is None:
        return False
    same = rank.attempt == fact.attempt and (isinstance(fact, events.RankStarted) or rank.state not in LIVE)
    return same or rank.attempt > fact.attempt


def missing(gap: events.Gap) -> str:
    """What is missing of a file, in a sentence."""
    how = f"{gap.of or gap.file} was truncated or replaced on its node; reading it again from the start"
    if gap.lost is None:
        return f"{how}: unknown number of bytes missing"
    return f"{how}: at least {gap.lost:,} bytes missing" if gap.lost else f"{how}: no known loss"


def _tell_gap(run: Run, said: set[str], node: str, at: float, fact: events.Gap) -> Entry | None:
    # Without some of its time index, a log is in another order at most.
    return None if fact.file == SIZES else _of_node(at, node, missing(fact), "warning")


def _tell_survivors(run: Run, said: set[str], node: str, at: float, fact: events.Survivors) -> Entry | None:
    found = [survivor_text(node, process) for process in fact.procs]
    return Entry(at, "; ".join(found), "error", node) if found else None


def survivor_text(node: str, process: events.Survivor) -> str:
    """One line about a process that no signal ended."""
    return f"{node}: survivor: {process.name} (pid {process.pid}, state {process.state})"


def _tell_note(run: Run, said: set[str], node: str, at: float, fact: events.Note) -> Entry | None:
    known = run.nodes.get(node)
    if known is not None and known.notes_dropped:
        # A node may write endless notes: say once that they are no longer shown.
        text = f"{node}: more than {NOTES} notes; the others are not shown"
        return Entry(at, text, "warning", node) if known.notes_dropped == 1 else None
    if not node:
        return Entry(at, fact.text, "warning", see=fact.see, evidence=bool(fact.see))
    return _of_node(at, node, fact.text, "warning")


def _tell_filling(run: Run, said: set[str], node: str, at: float, fact: events.Filling) -> Entry | None:
    text = memory.sentence(node, fact, at)
    before = f"filling {node} {fact.of} "
    told = {each.rpartition(" ")[0] for each in said if each.startswith("filling ")}
    if fact.full_at is not None and len(told) >= ALIKE and before[:-1] not in told:
        more = "memory of more nodes is approaching its limit; cockpit ps with the run's name lists them all"
        return Entry(at, more, "warning") if _first(said, "more filling") else None
    if fact.full_at is None:
        known = {each for each in said if each.startswith(before)}
        said -= known
        return Entry(at, text, "info", node) if known else None
    # Again when a quarter of the time is left.
    left = _quarters(fact.full_at - at)
    if not fact.of.startswith(memory.GPU):
        text = one_line(f"{text}; on {node}: {LARGEST.command}", limit=600)
    return Entry(at, text, "warning", node) if _first(said, f"{before}{left}") else None


def _tell_notice(run: Run, said: set[str], node: str, at: float, fact: events.Notice) -> Entry | None:
    before = f"notice {fact.id} {fact.of} "
    name = fact.nodes[0] if len(fact.nodes) == 1 else ""
    rank = fact.ranks[0] if name and len(fact.ranks) == 1 else None
    if fact.over:
        known = {each for each in said if each.startswith(before)}
        said -= known
        return Entry(at, fact.what, "info", name, rank) if known and fact.what else None
    left = "" if fact.due is None else _quarters(fact.due - at)
    if not _first(said, f"{before}{left}"):
        return None
    text = words.sentence(fact, at)
    if fact.steps:
        first = fact.steps[0]
        text = one_line(f"{text}; {f'on {first.node}' if first.node else 'see'}: {first.command}", limit=600)
    return Entry(at, text, fact.severity, name, rank)


def _tell_saved(run: Run, said: set[str], node: str, at: float, fact: events.Saved) -> Entry:
    return Entry(at, f"step {fact.step:,}: checkpoint, {rounded_span(fact.seconds)}")


def _tell_watched(run: Run, said: set[str], node: str, at: float, fact: events.Watched) -> Entry | None:
    text, level = watch_messages.news(run.watch)
    known = {each for each in said if each.startswith("watch ")}
    if fact.state == "going":
        said -= known
        return Entry(at, text, level) if known - {"watch blind "} else None
    where = "" if run.watch.finding is None else run.watch.finding.what
    if not _first(said, f"watch {fact.state} {where}"):
        return None
    return Entry(at, text, level, aside=fact.state == "blind")


def profile_said(fact: events.Profiled) -> str:
    """A profile in a sentence: ``profile 3: torch, steps 812-816, ranks 0-3``."""
    parts = [fact.profiler]
    if fact.first is not None:
        last = fact.first + fact.steps - 1
        parts.append(f"steps {fact.first:,}-{last:,}" if fact.steps > 1 else f"step {last:,}")
    else:
        parts.append(f"{fact.seconds or 0.0:g} s")
    parts.append(ranks_named(fact.ranks) if fact.ranks else "no rank")
    text = f"profile {fact.number}: {', '.join(parts)}"
    if fact.missing:
        text += f"; missing: {ranks_named(fact.missing)}"
    return f"{text}; {fact.cancelled}" if fact.cancelled else text


def _tell_profiled(run: Run, said: set[str], node: str, at: float, fact: events.Profiled) -> Entry:
    return Entry(at, profile_said(fact), "warning" if fact.missing else "info")


def _quarters(left_s: float) -> int:
    """Falls by one each time three quarters of the time left have passed: a warning is then repeated."""
    return int(math.log(max(60.0, left_s) / 60, 4))


def _tell_damaged(run: Run, said: set[str], node: str, at: float, fact: events.Damaged) -> Entry | None:
    if not _first(said, f"damaged {node}"):
        return None
    return _of_node(at, node, "its run record has invalid lines; they are ignored", "warning")


NODE, OURS = WhoseClock

TABLE: dict[type[Fact], EventKind] = {
    events.SupervisorStarted: EventKind(NODE, _supervised, None),
    events.LauncherStarted: EventKind(NODE, None, None),
    events.RankStarted: EventKind(NODE, _rank_started, _tell_started),
    events.RankExited: EventKind(NODE, _rank_exited, _tell_ended),
    events.RankLost: EventKind(NODE, _rank_lost, _tell_ended),
    events.RankProbe: EventKind(NODE, _probed, None),
    events.EvidenceKept: EventKind(NODE, _evidence, _tell_evidence),
    events.RankSteps: EventKind(NODE, None, None),
    events.LauncherExited: EventKind(
        NODE,
        _node(
            lambda node, at, fact: replace(
                node, launcher_ended=True, launcher_code=fact.code, launcher_signal=fact.signal
            )
        ),
        None,
    ),
    events.StopRequested: EventKind(
        NODE,
        _node(
            lambda node, at, fact: replace(
                node, stop_requested_at=node.stop_requested_at or at, stop_by=node.stop_by or fact.by
            )
        ),
        _tell_stop_requested,
    ),
    events.Stage: EventKind(
        NODE,
        _node(lambda node, at, fact: replace(node, stage=fact.stage)),
        _tell_stage,
    ),
    events.Report: EventKind(NODE, _report, _tell_report),
    events.Survivors: EventKind(
        NODE, _node(lambda node, at, fact: replace(node, survivors=fact.procs)), _tell_survivors
    ),
    events.Note: EventKind(NODE, _node(_tells), _tell_note),
    events.Ended: EventKind(NODE, _ended, _says(lambda fact: "ended", aside=True)),
    events.Planned: EventKind(OURS, _planned, None, whole=True),
    events.Launched: EventKind(OURS, _launched, _says(lambda fact: "launched", aside=True)),
    events.LinkChanged: EventKind(
        OURS,
        _node(_linked),
        _tell_link,
    ),
    events.ClockMeasured: EventKind(
        OURS, _node(lambda node, at, fact: replace(node, offset_s=fact.offset_s, rtt_s=fact.rtt_s)), None
    ),
    events.Sample: EventKind(OURS, _sample, None),
    events.Filling: EventKind(OURS, _filling, _tell_filling),
    events.Notice: EventKind(OURS, _noticed, _tell_notice, whole=True),
    events.Saved: EventKind(OURS, None, _tell_saved, whole=True),
    events.Watched: EventKind(OURS, _watched, _tell_watched, whole=True),
    events.Profiled: EventKind(OURS, _profiled, _tell_profiled, whole=True),
    events.SupervisorGone: EventKind(
        OURS,
        _node(
            lambda node, at, fact: (
                node if node.ended else replace(_noted(node, UNRECORDED), supervisor_gone=True)
            )
        ),
        _says(lambda fact: "its supervisor was killed", "warning"),
    ),
    events.NodeLost: EventKind(OURS, _node_lost, _says(lambda fact: fact.why, "warning")),
    events.Gap: EventKind(
        OURS,
        _node(lambda node, at, fact: replace(node, gaps={**node.gaps, fact.file: fact})),
        _tell_gap,
    ),
    events.Damaged: EventKind(
        OURS, _node(lambda node, at, fact: replace(node, damaged=fact.lines)), _tell_damaged
    ),
    events.RankGone: EventKind(OURS, _rank_gone, _tell_ended),
    events.StopAsked: EventKind(
        OURS,
        _stop_asked,
        lambda run, said, node, at, fact: Entry(at, f"stopping: {fact.reason}", "warning"),
        whole=True,
    ),
    events.RestKept: EventKind(
        OURS,
        _rest_kept,
        lambda run, said, node, at, fact: Entry(at, "the other ranks keep running: requested in a cockpit"),
        whole=True,
    ),
    events.JobEnded: EventKind(
        OURS,
        _job_ended,
        lambda run, said, node, at, fact: Entry(at, fact.why, "error", aside=True),
        whole=True,
    ),
    events.Complete: EventKind(OURS, _node(lambda node, at, fact: replace(node, complete=True)), None),
    events.Left: EventKind(
        OURS,
        None,
        lambda run, said, node, at, fact: Entry(at, "a cockpit left; the run continues", aside=True),
        whole=True,
    ),
}
"""Every kind of event; its name and fields are in its definition."""
