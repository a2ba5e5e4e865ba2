"""One run in detail, as JSON."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from cockpit.base.progress.ring import SOURCES
from cockpit.cli.run_known import Beside, cause_of, noticed, sign_of, source_of, step_said
from cockpit.core.pace.pace import Pace, RankPace
from cockpit.core.pace.said import run_step
from cockpit.core.pace.signs import RECORDER
from cockpit.core.pace.slow import Slow
from cockpit.core.ranks import mask_text
from cockpit.core.run.failure import job_ended
from cockpit.core.run.model import Node, Rank, RunModel
from cockpit.core.run.probes import probe_state
from cockpit.engine.logs.said import tracker_json
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run import unworked


def run_json(folder: RunFolder, model: RunModel, state: str, pace: Pace, beside: Beside) -> dict[str, Any]:
    """All that is known of a run.

    :param state: in words
    """
    ahead = beside.ahead
    nodes = [asdict(node) for node in model.nodes.values()]
    slow, late = ({one.rank: one for one in some} for some in (pace.slow(), pace.late()))
    at = time.time()
    why = unworked.kept(folder.path)
    ranks = [
        _rank_json(rank, model.nodes[rank.node])
        | {"work_why": why.get(rank.rank, "")}
        | _pace_json(rank, pace.of(rank.rank), at)
        | {name: _apart_json(pace, some.get(rank.rank)) for name, some in (("slow", slow), ("late", late))}
        for rank in model.ranks.values()
    ]
    found = (job_ended(model), cause_of(folder, model), *noticed(folder, model, pace))
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
        "evidence": [
            {"path": str(one.path), "t": one.at, "why": one.snapshot.by_nodes, **one.found.as_json()}
            for one in beside.kept
        ],
    }


def _watch_json(model: RunModel) -> dict[str, Any]:
    """What whoever watches a run has said last of its steps; ``state`` is empty if nobody has."""
    watch = model.watch
    found = watch.finding
    return {**asdict(watch), "finding": found and found.as_json(), "waiting": mask_text(watch.waiting)}


def _apart_json(pace: Pace, one: Slow | None) -> dict[str, Any] | None:
    return None if one is None else {"excess": one.excess, "since_step": pace.apart_since(one.rank)}


def _pace_json(rank: Rank, pace: RankPace, at: float) -> dict[str, Any]:
    """How far a rank is; None is not known."""
    source = source_of(rank, pace)
    return {
        "step": pace.step,
        "step_age_s": None if pace.at is None else round(max(0.0, at - pace.at), 3),
        "step_estimated": pace.estimated,
        "step_source": source,
        "behind_steps": None if source is None else pace.behind,
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
