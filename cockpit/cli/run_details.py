"""One run in detail, for people or as JSON: its nodes with links and measurements, its ranks with state."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from cockpit.base.events import Filling, Notice, Watched
from cockpit.base.gate import plain
from cockpit.base.shell import quote
from cockpit.cli.awaiting import may_ask, telling
from cockpit.cli.nccl_tests import as_json as tests_json
from cockpit.cli.nccl_tests import paragraphs
from cockpit.cli.output import out, out_json, out_lines, say, table
from cockpit.cli.rank_details import NODES, node_row, phases_json, rank_rows, ranks_json
from cockpit.cli.run_known import Beside, sign_of, step_said
from cockpit.core.nccl_tests.findings import findings
from cockpit.core.nccl_tests.table import program_name
from cockpit.core.pace.log_steps import run_step
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.phases import NAMES
from cockpit.core.pace.signs import Sign
from cockpit.core.ranks import mask_text, ranks_named
from cockpit.core.run.event_table import profile_said
from cockpit.core.run.failure import job_ended
from cockpit.core.run.model import LIVE, RunModel
from cockpit.core.run.starting import doing
from cockpit.core.run.summary import state_text
from cockpit.core.run.watch_messages import standing
from cockpit.core.time_text import span_text
from cockpit.engine.briefs import start_state
from cockpit.engine.logs.last_words import last_cause
from cockpit.engine.logs.step_log import tracker_json
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run import work_unknown
from cockpit.engine.run.current_state import keep, model_now
from cockpit.engine.run.eta import Left
from cockpit.engine.run.front import estimate, starting_here
from cockpit.engine.run.join import Pools
from cockpit.engine.run.noticed import noticed
from cockpit.engine.run.paces import PaceBook
from cockpit.engine.stacks.evidence import Shown, amiss, gather, lacking
from cockpit.engine.stacks.targets import RunParty
from cockpit.engine.work_sampler import glance, glance_at_work, untold, unworked
from cockpit.errors import CockpitError, Exit
from cockpit.transport.registry import TRANSPORTS
from cockpit.tui.look.progress import sentences

FAILED = 8
"""Nodes with failed ranks whose logs are copied before it is said why."""
REASONS = 3
"""Slow ranks of which it is said why, at most."""
EVIDENCE = 3
"""Moments of kept evidence that are shown, at most."""

PROFILES = 3
"""The same of profiles."""


def show(
    folder: RunFolder, model: RunModel, state: str, pace: Pace, kept: Sequence[Shown], *, as_json: bool
) -> int:
    """Print a run's nodes and ranks; a node that does not answer is listed with the reason.

    :param model: as :func:`now` found it
    :param state: in words
    :param kept: what its nodes kept while nobody watched
    """
    more = Beside.read(folder, model, pace, kept)
    if as_json:
        out_json(run_json(folder, model, state, pace, more))
        return Exit.OK
    starting = starting_here(folder, model, stepped=pace.front is not None)
    out(f"{folder.name}: {'starting' if starting and state == 'running' else state}")
    out()
    if starting:
        out_lines(doing(model, time.time()))
        out()
    table([NODES, *map(node_row, model.nodes.values())])
    out()
    table(list(rank_rows(model, pace, time.time())))
    for lines in (*_about_steps(folder, model, pace, more), *_about_trouble(folder, model, pace, more)):
        out()
        out_lines(lines)
    return Exit.OK


def _about_steps(folder: RunFolder, model: RunModel, pace: Pace, more: Beside) -> Iterator[Sequence[str]]:
    """How far the run is, paragraph by paragraph, and what tells more."""
    yield from ([text] for text in sentences(_signs(model, pace), "AGE"))
    if more.ahead is not None:
        yield [_ahead(more.ahead)]
    further = step_said(folder, model, pace)
    if further is not None:
        yield [f"its log says that the run is at step {further:,}; ranks count steps from program start"]
    if unknown := list(_unworked(folder, model, pace)):
        yield unknown
    if where := list(_phases(pace)):
        yield where
    if model.profiles:
        shown = [profile_said(fact) for _, fact in model.profiles.values()][-PROFILES:]
        yield [*shown, f"  cockpit profile show {quote(folder.name)}: what the newest says"]
    yield from paragraphs(more.tests)
    if more.pages:
        yield ["found in its logs:", *(f"  {page.name}: {page.url}" for _, page in more.pages)]


def _phases(pace: Pace) -> Iterator[str]:
    """Where the time of steps goes, and why ranks are slow."""
    found = pace.phases()
    if found is None or not found.total > 0:
        return
    about = pace.about
    shares = (
        f"{name} {about}{100 * took / found.total:.0f} %"
        for name, took in zip(NAMES, found, strict=True)
        if took == took
    )
    yield f"a step of the median rank: {', '.join(shares)}"
    if (by := pace.bound()) is not None:
        yield f"  {by.text}"
    for one in pace.slow()[:REASONS]:
        if (why := pace.why(one)) is not None:
            yield f"  rank {one.rank} +{100 * one.excess:.0f} %: {why.text}"


def _about_trouble(folder: RunFolder, model: RunModel, pace: Pace, more: Beside) -> Iterator[Sequence[str]]:
    """What is wrong, paragraph by paragraph."""
    if folder.damaged:
        lines = f"{folder.damaged} damaged line{'s are' if folder.damaged > 1 else ' is'} ignored"
        yield [f"{folder.path / 'journal.jsonl'}: {lines}"]
    cause = model.judged
    if cause is not None and cause.detail:
        where = f"at {cause.where}" if cause.where else ""
        head = f"{cause.what}: {cause.detail}"
        yield _indented(head, where, cause.meaning, *(step.text for step in cause.steps))
    for one in more.kept[-EVIDENCE:]:
        yield _indented(one.sentence, *one.found.evidence, f"{one.command}: all stacks")
    if said := standing(model, time.time()):
        yield [said]
    for found in (*noticed(folder.name, model, pace), *more.nccl, *findings(more.tests)):
        steps = (step.text for step in found.steps)
        yield _indented(found.what, found.detail, found.meaning, *found.evidence, *steps)
    for node in model.nodes.values():
        yield from ([f"{node.name}: {note}"] for note in node.remarks)
    if said := _unattended(folder, model):
        yield [said]
    kind = TRANSPORTS.get(folder.manifest.transport)
    if kind is not None and kind.caution and not model.over and folder.manifest.foreign is None:
        yield [kind.caution]


def _unattended(folder: RunFolder, model: RunModel) -> str:
    """That the cockpit which fetches its output is suspended; empty: it is not known to be."""
    if model.over:
        return ""
    with suppress(CockpitError):
        folder.writer.vacant()
    said = folder.writer.suspended()
    return f"{said}; steps found in its log may be old" if said else ""


def _indented(head: str, *more: str) -> list[str]:
    return [head, *(f"  {text}" for text in more if text)]


def _signs(model: RunModel, pace: Pace) -> dict[int, Sign]:
    """The signs of progress of ranks that live, where their steps are not known."""
    found = {number: sign_of(rank, pace.of(number)) for number, rank in sorted(model.ranks.items())}
    return {number: sign for number, sign in found.items() if sign is not None}


def _ahead(ahead: Left) -> str:
    eta = "" if ahead.seconds is None else f", ETA {span_text(ahead.seconds)}"
    return f"step {ahead.step:,} of {ahead.total:,}{eta}"


async def evidence(folder: RunFolder, model: RunModel, pools: Pools, *, connect: bool) -> list[Shown]:
    """What the nodes of a run kept while nobody watched; says what it cannot fetch. See :func:`now`."""
    if folder.manifest.closed:
        return []
    names = lacking(folder, model) if connect else []
    try:
        shown, errors = await gather(folder, model, pools.of(folder.manifest).lend, names)
    except CockpitError as error:  # such as a full disk here
        say(f"can't save the evidence of its nodes: {error}")
        return []
    for text in amiss(folder, model, names, errors):
        say(text)
    return shown


async def now(folder: RunFolder, pools: Pools, *, connect: bool) -> tuple[RunModel, str, Pace]:
    """A run, its state in words, and its pace, as its nodes report them now if it has not ended.

    :param connect: whether nodes may be asked
    """
    model = folder.model()
    connect = connect and may_ask(folder)
    book = PaceBook(folder, writer=False)
    try:
        await book.recall(history=False)
    except CockpitError as error:
        say(str(error))  # the rest is as true without it
    state = ""
    if not model.over:
        pool = pools.of(folder.manifest) if connect else None
        async with telling(lambda: pools.roll, failures=False):
            state, _ = await start_state(folder, pool)
            if pool is not None and not state:
                model, _ = await model_now(pool, folder.manifest, measure=True, paces=book)
                for event in folder.journal():
                    if isinstance(event.fact, Filling | Notice | Watched):  # what whoever watches it has seen
                        model.apply(event)
    behind = {rank.node: None for rank in model.failures() if not model.nodes[rank.node].done}
    names = list(behind)[:FAILED]
    if program_name(folder.manifest.program):  # what it measured is in its logs
        names = [node.name for node in model.nodes.values() if not node.done]
    if connect and names and folder.manifest.foreign is None:
        # Its log says why, and may be longer there.
        links = pools.of(folder.manifest)
        async with telling(lambda: pools.roll, failures=False):
            for node, why in (await keep(folder, links, names)).items():
                say(f"{node}: {why}; the cause below is based on local data")
    estimate(folder, model, book.pace)
    works = not model.over and folder.manifest.foreign is None and unworked(model, book.pace)
    if connect and (works or untold(model, book.pace)):
        pool = pools.of(folder.manifest)
        async with telling(lambda: pool.roll, failures=False):
            look = glance_at_work if works else glance
            await look(RunParty(folder.manifest, model, pool.lend), book.pace)
    last_cause(model, folder)
    return model, state or state_text(model), book.pace


def _why(folder: RunFolder, pace: Pace) -> dict[int, str]:
    """Why the work of ranks is not known: as recorders say now, else as whoever watches the run has noted."""
    return work_unknown.kept(folder.path) | pace.unworked


def _unworked(folder: RunFolder, model: RunModel, pace: Pace) -> Iterator[str]:
    """Of which ranks that run it is not known how long they worked, and why."""
    ranks: dict[str, list[int]] = {}
    for rank, why in sorted(_why(folder, pace).items()):
        if rank in model.ranks and model.ranks[rank].state in LIVE and pace.of(rank).work is None:
            ranks.setdefault(why, []).append(rank)
    for why, some in ranks.items():
        yield f"work of {ranks_named(some)} is not known: {why}"


def run_json(folder: RunFolder, model: RunModel, state: str, pace: Pace, beside: Beside) -> dict[str, Any]:
    """All that is known of a run.

    :param state: in words
    """
    ahead = beside.ahead
    nodes = [asdict(node) for node in model.nodes.values()]
    ranks = ranks_json(model, pace, _why(folder, pace), time.time())
    found = (job_ended(model), model.judged, *noticed(folder.name, model, pace), *beside.nccl)
    found += tuple(findings(beside.tests))
    said = step_said(folder, model, pace)
    return {
        "run": folder.name,
        "state": state,
        "step": run_step(pace, said),
        "steps_since_start": said is not None,
        "nodes": nodes,
        "ranks": ranks,
        "findings": [each.as_json() for each in found if each is not None],
        "watch": _watch_json(model),
        "pages": [tracker_json(*each) for each in beside.pages],
        "total_steps": ahead and ahead.total,
        "eta_s": ahead and ahead.seconds,
        "phases": phases_json(pace.phases()),
        "bound": _bound_json(pace),
        "evidence": [
            {"path": str(one.path), "t": one.at, "why": one.snapshot.by_nodes, **one.found.as_json()}
            for one in beside.kept
        ],
        "nccl_tests": tests_json(beside.tests),
        "profiles": [{"t": at, **plain(fact)} for at, fact in model.profiles.values()],
    }


def _watch_json(model: RunModel) -> dict[str, Any]:
    """What whoever watches a run has said last of its steps; ``state`` is empty if nobody has."""
    watch = model.watch
    found = watch.finding
    told = {"finding": found and found.as_json(), "waiting": mask_text(watch.waiting)}
    return {**asdict(watch), **told, "before": watch.before._asdict()}


def _bound_json(pace: Pace) -> dict[str, Any] | None:
    found = pace.bound()
    if found is None:
        return None
    by = found.word.removesuffix("-bound")
    return {"by": by, "share": round(found.share, 3), "sure": found.sure}
