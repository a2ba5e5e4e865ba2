"""One run in detail: its nodes with links and measurements, its ranks with state and process."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import asdict
from typing import Any

from cockpit.base.events import GpuSample
from cockpit.cli.awaiting import telling
from cockpit.cli.output import out, out_json, table
from cockpit.cli.unfinished_starts import PATIENCE_S, start_state
from cockpit.core.finding import Finding
from cockpit.core.run.failure import TAIL, failure
from cockpit.core.run.model import Node, Rank, RunModel
from cockpit.core.run.summary import state_text
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.board import source_of
from cockpit.engine.run.join import model_now, pool_for
from cockpit.errors import Exit


def show(folder: RunFolder, *, connect: bool, as_json: bool) -> int:
    """Print a run's nodes and ranks; a node that does not answer is listed with the reason."""
    model = folder.model()
    state = ""
    if not model.over:
        model, state = asyncio.run(_now(folder, model, connect=connect))
    state = state or state_text(model)
    if as_json:
        out_json(_json(folder, model, state))
        return Exit.OK
    out(f"{folder.name}: {state}")
    out()
    table(
        [("NODE", "LINK", "CLOCK", "LOAD", "MEMORY", "DISK FREE", "GPU"), *map(_node, model.nodes.values())]
    )
    out()
    header = ("RANK", "NODE", "STATE", "PID", "CPU", "RSS", "THREADS", "CHILDREN")
    table([header, *(_rank(model.ranks[number]) for number in sorted(model.ranks))])
    if folder.damaged:
        lines = f"{folder.damaged} damaged line{'s are' if folder.damaged > 1 else ' is'} ignored"
        out()
        out(f"{folder.path / 'journal.jsonl'}: {lines}")
    for node in model.nodes.values():
        for note in node.remarks:
            out()
            out(f"{node.name}: {note}")
    return Exit.OK


async def _now(folder: RunFolder, known: RunModel, *, connect: bool) -> tuple[RunModel, str]:
    pool = pool_for(folder.manifest, patience_s=PATIENCE_S)
    async with pool, telling(lambda: pool.roll, failures=False):
        state, _ = await start_state(folder, pool, connect=connect)
        if state or not connect:
            return known, state
        model, _ = await model_now(pool, folder.manifest, measure=True)
        return model, ""


def _node(node: Node) -> tuple[str, ...]:
    sample = node.sample
    link = "ended" if node.ended else f"{node.link}: {node.link_why}" if node.link_why else node.link
    clock = "" if node.rtt_s is None else f"{node.offset_s:+.3f} s"
    if sample is None:
        return (node.name, link, clock, "", "", "", "")
    memory = f"{_giga(sample.memory_bytes)}/{_giga(sample.memory_total_bytes)} GB"
    gpus = " ".join(_gpu(gpu) for gpu in node.gpus) or "none"
    free = f"{_giga(sample.disk_free_bytes)} GB"
    load = "?" if sample.load is None else f"{sample.load:.2f}"
    return (node.name, link, clock, load, memory, free, gpus)


def _giga(size: int | None) -> str:
    return "?" if size is None else f"{size / 1e9:.1f}"


def _gpu(gpu: GpuSample) -> str:
    share = gpu.utilisation_percent
    return f"{'?' if share is None else f'{share:.0f}'}%/{_giga(gpu.memory_bytes)}GB"


def _rank(rank: Rank) -> tuple[str, ...]:
    sample = rank.sample
    head = (str(rank.rank), rank.node, rank.text, str(rank.pid or ""))
    if sample is None:
        return (*head, "", "", "", "")
    cpu = "?" if sample.cpu_percent is None else f"{sample.cpu_percent:.0f} %"
    rss = "?" if sample.rss_bytes is None else f"{sample.rss_bytes / 1e6:.0f} MB"
    return (*head, cpu, rss, *("?" if n is None else str(n) for n in (sample.threads, sample.children)))


def _json(folder: RunFolder, model: RunModel, state: str) -> dict[str, Any]:
    nodes = [asdict(node) for node in model.nodes.values()]
    ranks = [{**asdict(rank), "state": rank.state.value, "text": rank.text} for rank in model.ranks.values()]
    found = _failure(folder, model)
    findings = [] if found is None else [found.as_json()]
    return {"run": folder.name, "state": state, "nodes": nodes, "ranks": ranks, "findings": findings}


def _failure(folder: RunFolder, model: RunModel) -> Finding | None:
    first = model.first_failure()
    with closing(SpooledLogs(folder)) as logs:
        # Without a byte of it here, its log says neither what the cause is nor that there is none.
        foreign = folder.manifest.foreign is not None
        log = None if first is None else logs.tail(source_of(logs, first, foreign=foreign), TAIL) or None
    return failure(model, folder.name, log)
