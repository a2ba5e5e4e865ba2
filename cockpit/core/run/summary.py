"""The outcome of a run, in lines: the cause first."""

from __future__ import annotations

import time

from cockpit.base.shell import quote
from cockpit.core.finding import Finding
from cockpit.core.ranks import nodes_text, ranks_named
from cockpit.core.run.failure import (
    WITHOUT_PROBE,
    blamed,
    failure,
    how,
    oom_kills,
    oom_step,
    probe_is_suspect,
)
from cockpit.core.run.model import LIVE, Rank, RankState, RunModel
from cockpit.core.text import one_line
from cockpit.errors import Exit


def summary(model: RunModel, run: str, *, logs: bool = True) -> list[str]:
    """What a person needs to know at the end, the cause first.

    :param logs: whether its logs can still be read afterwards
    """
    lines = [shown(model.job_end)] if model.job_end else []
    if model.hung:
        lines.append(f"stopped by cockpit: {shown(model.stop_reason)}")
        if model.watch.snapshot and logs:
            lines.append(f"its stacks: cockpit stacks {quote(run)}")
    first = blamed(model, model.judged)
    if first is not None:
        lines.append(f"first to fail: {first_text(model, model.judged)}")
        lines += meaning(model.judged)
        if logs:
            output = "what was fetched of its output" if model.nodes[first.node].lost else "its output"
            lines.append(f"{output}: cockpit logs {quote(run)} --rank {first.rank}")
        if kills := oom_kills(model, first):
            lines += [kills, oom_step(first).text]
        if probe_is_suspect(model, first):
            lines.append(f"to rule out cockpit's probe in it, start it again with {WITHOUT_PROBE.command}")
    ended = endings(model, without=first)
    if ended:
        lines.append(f"others: {ended}" if first else ended)
    odd = [node for node in model.nodes.values() if node.launcher_code]
    if odd and first is None and not any(rank.failed for rank in model.ranks.values()):
        words = f"{nodes_text([node.name for node in odd])}: the launcher ended with {odd[0].launcher_code}"
        lines.append(f"{words}, although its ranks exited 0; see: cockpit logs {quote(run)}")
    lost = [node.name for node in model.nodes.values() if node.lost]
    if lost:
        lines.append(f"lost: {nodes_text(lost)}: {model.nodes[lost[0]].lost}")
    return lines


def meaning(told: Finding | None) -> list[str]:
    """What a rule says of it, and what to type."""
    return [f"meaning: {told.meaning}", f"next: {told.steps[0].text}"] if told and told.meaning else []


def first_text(model: RunModel, told: Finding | None) -> str:
    """Who failed first, and how: as was judged, or else recorded."""
    first = blamed(model, told)
    assert first is not None
    if told is None or told.what == f"rank {first.rank} {how(first)}":
        return f"rank {first.rank} on {first.node}, {how(first)}{_moment(model, first)}"
    return f"{told.what} ({first.node})" if told.ranks == 1 << first.rank else told.what


JOB_OVER = "job over"
"""How a run ended whose nodes were lent, and were taken back."""


def outcome(model: RunModel, *, starting: bool = False) -> tuple[str, str]:
    """How a run is, or how it ended, in one word; and the cause of that, empty if there is none to say.

    The word is ``starting``, ``running`` or ``ending``; ``failed``, ``stopped``, ``ended`` (all exited 0),
    ``job over`` (whoever lent the nodes ended it), ``lost`` (over, and how is not known) or ``unknown``.

    :param starting: none of its ranks has got to work yet (:mod:`cockpit.core.run.starting`)
    """
    first = model.judged or failure(model, "")
    if model.job_end and first is None:
        return JOB_OVER, shown(model.job_end)
    if first is not None:
        return "failed", first.what
    if model.over:
        if model.hung:
            return "stopped", shown(model.stop_reason)
        if model.asked_to_stop:
            return "stopped", ""
        if model.unknown_end:
            return "lost", shown(model.unknown_end)
        return ("ended" if model.exit_code() is Exit.OK else "failed"), ""
    if any(node.link == "ok" and not node.over for node in model.nodes.values()) or model.alive():
        return live_word(model, starting=starting), ""
    return "unknown", "no node answers"


def state_text(model: RunModel, *, starting: bool = False) -> str:
    """A run's state in a few words, the cause of a failure among them.

    :param starting: as for :func:`outcome`
    """
    word, why = outcome(model, starting=starting)
    if word == JOB_OVER:
        return why
    if word == "lost":
        return f"over, and how it ended is not known: {why}"
    return f"{word}: {why}" if why else word


def ended_when(model: RunModel) -> float | None:
    """When its last rank ended, unix seconds on our clock; None: it goes on, or that is not known."""
    ends = [model.ended_at(rank) for rank in model.ranks.values() if rank.ended_at]
    return max(ends) if ends and model.over else None


def ended_well(model: RunModel) -> bool:
    """Whether a run came to its end by itself, and all ranks exited 0."""
    return model.over and not model.asked_to_stop and model.exit_code() is Exit.OK


LIVE_WORDS = ("starting", "running", "ending")


def live_word(model: RunModel, *, starting: bool) -> str:
    """One of :data:`LIVE_WORDS`: of a run that is not over, the same word everywhere.

    :param starting: as for :func:`outcome`
    """
    if model.alive() and not starting:
        return "running"
    return "starting" if any(rank.state in LIVE for rank in model.ranks.values()) else "ending"


def shown(sentence: str) -> str:
    """A sentence that SLURM had a part in, harmless for a terminal."""
    return one_line(sentence, limit=300)


def endings(model: RunModel, without: Rank | None = None) -> str:
    """How the ranks are, those that are alike together: ``ranks 0-3 exited 0; rank 4 killed by SIGTERM``."""
    alike: dict[str, list[int]] = {}
    for rank in model.ranks.values():
        if rank is not without:
            alike.setdefault(rank.text, []).append(rank.rank)
    return "; ".join(f"{ranks_named(numbers)} {text}" for text, numbers in sorted(alike.items()))


def _moment(model: RunModel, rank: Rank) -> str:
    if rank.state is RankState.LOST or not rank.ended_at:
        return ""
    at = model.ended_at(rank)
    return time.strftime(" at %H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03d}"
