"""One run in detail: its nodes with links and measurements, its ranks with state and process."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Any

from cockpit.base.events import GpuSample
from cockpit.cli.awaiting import telling
from cockpit.cli.output import out, out_json, table
from cockpit.cli.unfinished_starts import start_state
from cockpit.core.finding import Finding
from cockpit.core.run.failure import TAIL, failure, job_ended
from cockpit.core.run.model import Node, Rank, RunModel
from cockpit.core.run.summary import state_text
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.board import source_of
from cockpit.engine.run.join import Pools, model_now
from cockpit.errors import Exit


def show(folder: RunFolder, model: RunModel, state: str, *, as_json: bool) -> int:
    """Print a run's nodes and ranks; a node that does not answer is listed with the reason.

    :param model: as :func:`now` found it
    :param state: in words
    """
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


async def now(folder: RunFolder, pools: Pools, *, connect: bool) -> tuple[RunModel, str]:
    """A run and its state in words, as its nodes report them now if it has not ended.

    :param connect: whether nodes may be asked
    """
    model = folder.model()
    state = ""
    if not model.over:
        pool = pools.of(folder.manifest)
        async with telling(lambda: pool.roll, failures=False):
            state, _ = await start_state(folder, pool, connect=connect)
            if connect and not state:
                model, _ = await model_now(pool, folder.manifest, measure=True)
    return model, state or state_text(model)


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
    found = (job_ended(model), _failure(folder, model))
    findings = [each.as_json() for each in found if each is not None]
    return {"run": folder.name, "state": state, "nodes": nodes, "ranks": ranks, "findings": findings}


def _failure(folder: RunFolder, model: RunModel) -> Finding | None:
    first = model.first_failure()
    with closing(SpooledLogs(folder)) as logs:
        # Without a byte of it here, its log says neither what the cause is nor that there is none.
        foreign = folder.manifest.foreign is not None
        log = None if first is None else logs.tail(source_of(logs, first, foreign=foreign), TAIL) or None
    return failure(model, folder.name, log)
