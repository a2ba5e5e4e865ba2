"""Nodes and ranks of a run at a moment, as lines of a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from cockpit.base.events import GpuSample
from cockpit.base.progress.ring import SOURCES
from cockpit.cli.run_known import sign_of, source_of
from cockpit.core.pace.pace import Pace, RankPace
from cockpit.core.pace.phases import NAMES, Phases
from cockpit.core.pace.signs import RECORDER
from cockpit.core.pace.slow import Slow
from cockpit.core.run.model import LIVE, Node, Rank, RunModel
from cockpit.core.run.probes import probe_state
from cockpit.core.time_text import span_text
from cockpit.tui.look.progress import age_text, behind_text

NODES = ("NODE", "LINK", "CLOCK", "LOAD", "MEMORY", "DISK FREE", "GPU")
"""The head of a table of nodes."""


def node_row(node: Node) -> tuple[str, ...]:
    """The line of a node, for :data:`NODES`."""
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


def rank_rows(model: RunModel, pace: Pace, at: float) -> Iterator[tuple[str, ...]]:
    """The lines of a table of ranks, its head first.

    :param at: what ages are counted from, unix seconds
    """
    compared = ("ENQUEUE LAG", "LATE") if pace.lags else ("WORK", "SLOW")
    steps = ("STEP", "AGE", "BEHIND", "STEP TIME", *compared)
    yield ("RANK", "NODE", "STATE", "PID", *steps, "CPU", "RSS", "THREADS", "CHILDREN")
    apart = {one.rank: one for one in (*pace.slow(), *pace.late())}
    for number, rank in sorted(model.ranks.items()):
        yield _rank(rank, _steps(rank, pace.of(number), apart.get(number), at))


def _steps(rank: Rank, pace: RankPace, named: Slow | None, at: float) -> tuple[str, ...]:
    """How far a rank is; ``~``: as its log says, as the median rank did, or by a sign of progress."""
    if pace.step is None or pace.at is None:
        sign = sign_of(rank, pace)
        return ("",) * 6 if sign is None else ("", age_text(sign, at), behind_text(sign), "", "", "")
    about = "" if source_of(rank, pace) in SOURCES else "~"
    age = about + span_text(max(0.0, at - pace.at)) if rank.state in LIVE else ""
    known = "~" if pace.estimated else ""
    behind = ""  # of a rank that has ended: the others leave it behind, and it is not late for that
    if pace.behind and rank.state in LIVE:
        behind = f"{known}{pace.behind:,} step{'s' if pace.behind > 1 else ''}"
    elif pace.behind_s is not None and not pace.behind and not about:
        behind = f"{pace.behind_s:.2f} s"
    span = "" if pace.span is None else about + span_text(pace.span)
    work = "" if pace.work is None else span_text(pace.work)
    if pace.lag is not None:
        work = f"+{max(0.0, pace.lag):.2f} s"
    if work and (about or pace.work_kept):
        work = "~" + work
    return (f"{known}{pace.step:,}", age, behind, span, work, f"+{100 * named.excess:.0f} %" if named else "")


def _rank(rank: Rank, steps: tuple[str, ...]) -> tuple[str, ...]:
    sample = rank.sample
    head = (str(rank.rank), rank.node, rank.text, str(rank.pid or ""), *steps)
    if sample is None:
        return (*head, "", "", "", "")
    cpu = "?" if sample.cpu_percent is None else f"{sample.cpu_percent:.0f} %"
    rss = "?" if sample.rss_bytes is None else f"{sample.rss_bytes / 1e6:.0f} MB"
    return (*head, cpu, rss, *("?" if n is None else str(n) for n in (sample.threads, sample.children)))


def ranks_json(model: RunModel, pace: Pace, why: Mapping[int, str], at: float) -> list[dict[str, Any]]:
    """All that is known of each rank.

    :param why: why the work of ranks is not known
    :param at: what ages are counted from, unix seconds
    """
    slow, late = ({one.rank: one for one in some} for some in (pace.slow(), pace.late()))
    return [
        _rank_json(rank, model.nodes[rank.node])
        | {"work_why": why.get(rank.rank, "")}
        | _pace_json(rank, pace.of(rank.rank), at)
        | {"phases": phases_json(pace.phases_of(rank.rank))}
        | {name: _apart_json(pace, some.get(rank.rank)) for name, some in (("slow", slow), ("late", late))}
        for rank in model.ranks.values()
    ]


def _rank_json(rank: Rank, node: Node) -> dict[str, Any]:
    """A rank's fields, and what its probe can do."""
    state, why = probe_state(node, rank)
    handlers = rank.probe.handlers if rank.probe else ()
    return {
        **asdict(rank),
        "state": rank.state.value,
        "text": rank.text,
        "probe": {"state": state, "why": why, "handlers": handlers, "torch": rank.probe and rank.probe.torch},
    }


def _pace_json(rank: Rank, pace: RankPace, at: float) -> dict[str, Any]:
    """How far a rank is; None is not known."""
    source = source_of(rank, pace)
    return {
        "step": pace.step,
        "step_age_s": None if pace.at is None else round(max(0.0, at - pace.at), 3),
        "step_estimated": pace.estimated,
        "step_source": source,
        "behind_steps": None if source is None or rank.state not in LIVE else pace.behind,
        "behind_s": pace.behind_s if source in SOURCES else None,
        "step_s": pace.span,
        "work_s": pace.work,
        "enqueue_lag_s": pace.lag,
        "cost_s": None if pace.cost is None else round(pace.cost, 6),
        "work_age_s": None if pace.work_at is None else round(max(0.0, at - pace.work_at), 3),
        "progress": _progress_json(rank, pace, source, at),
    }


def _progress_json(rank: Rank, pace: RankPace, source: str | None, at: float) -> dict[str, Any]:
    """The best that is known of a rank's progress; ``age_s``: since its last step, or a sign of progress."""
    sign = sign_of(rank, pace)
    if sign is None:
        age = None if pace.at is None else max(0.0, at - pace.at)
        told: dict[str, Any] = {"source": source, "age_s": age, "as_of": None if source is None else at}
        return told | {"at_least": False, "collectives": None, "behind_collectives": None}
    known = sign.collectives is not None
    return {
        "source": sign.source,
        "age_s": sign.age_s(at),
        "as_of": sign.seen_at if sign.source == RECORDER else at,
        "at_least": sign.least,
        "collectives": sign.collectives,
        "behind_collectives": sign.behind if known else None,
    }


def _apart_json(pace: Pace, one: Slow | None) -> dict[str, Any] | None:
    if one is None:
        return None
    why = pace.why(one)
    reason = why and {
        "phase": why.phase,
        "took_s": round(why.took, 6),
        "others_s": round(why.others, 6),
        "others": why.whose,
    }
    return {"excess": one.excess, "since_step": pace.apart_since(one.rank), "reason": reason}


def phases_json(found: Phases | None) -> dict[str, float | None] | None:
    """Seconds of each; None is not known."""
    if found is None:
        return None
    pairs = zip(NAMES, found, strict=True)
    return {f"{name}_s": None if took != took else round(took, 6) for name, took in pairs}
