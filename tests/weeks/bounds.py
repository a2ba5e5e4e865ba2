"""What must hold once the weeks are over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from cockpit.base import times
from cockpit.base.events import Gap
from cockpit.base.record import STEPS, TIMES, rank_log
from cockpit.engine.run import paces
from cockpit.node.run.past import STEPS_BYTES
from tests.weeks import month
from tests.weeks.story import FAILED, HUNG, SLOTS, STEP_S, Story

WAIT_S, SLACK_S = 30.0, 10.0
"""The failure policy waits so long; and what telling may take beyond what is waited for."""
HANG_AFTER_S = 6 * STEP_S
GROWTH = 96 << 20
"""Bytes of memory that may be added after the first third of the time."""
JOURNAL = 2 << 20
"""Bytes that what we note ourselves may take."""


def broken(story: Story) -> Iterator[str]:
    """What does not hold, in sentences."""
    yield from _told(story)
    yield from _copies(story)
    yield from _sizes(story)
    third = len(story.resident) // 3
    grown = story.resident[-1] - story.resident[third]
    if grown > GROWTH:
        yield f"memory grew by {grown >> 20} MB after the first third of the time"
    cost = month.attach(story.folder)
    if cost.cpu_s > month.CPU_S:
        yield f"to attach costs {cost.cpu_s:.1f} s of CPU"


def _told(story: Story) -> Iterator[str]:
    told = story.told
    early = [watched for at, watched in told.stalls if at < story.hung_at and watched.state == "stalled"]
    if early:
        yield f"{len(early)} pauses were called stalls, first: {early[0].found}"
    since = [(at - story.hung_at, watched) for at, watched in told.stalls if at >= story.hung_at]
    quiet = min((after for after, _ in since), default=None)
    if quiet is None or quiet > HANG_AFTER_S + SLACK_S:
        yield f"the hang was told after {quiet} s"
    named = [after for after, watched in since if watched.found and watched.found.ranks == (HUNG,)]
    if not named or named[0] > HANG_AFTER_S + 2 * SLACK_S:
        yield f"the rank that hangs was named after {named[:1]} s"
    stops = [(at - story.failed_at, asked) for at, asked in told.stops]
    if [asked.by for _, asked in stops] != ["the failure policy"]:
        yield f"the run was stopped by {[asked.by for _, asked in stops]}"
    elif not WAIT_S <= stops[0][0] <= WAIT_S + SLACK_S or f"rank {FAILED} " not in stops[0][1].reason:
        yield f"the run was stopped {stops[0][0]:.1f} s after the failure: {stops[0][1].reason}"
    if told.lost:
        yield f"nodes were called lost: {told.lost[0]}"


def _copies(story: Story) -> Iterator[str]:
    gaps: dict[tuple[str, str], list[Gap]] = {}
    for event in story.folder.journal():
        if isinstance(event.fact, Gap):
            gaps.setdefault((event.node, event.fact.file), []).append(event.fact)
    for entry in story.folder.manifest.nodes:
        for rank, truth in story.nodes[entry.name].truths.items():
            file = rank_log(rank)
            copy = (story.folder.spool_dir(entry) / file).read_bytes()
            if what := truth.wrong(copy, gaps.get((entry.name, file), [])):
                yield f"{entry.name}: {file}: {what}"


def _sizes(story: Story) -> Iterator[str]:
    limits = {TIMES: times.LIMIT + (64 << 10), STEPS: STEPS_BYTES * SLOTS + (64 << 10)}
    for node in story.nodes.values():
        yield from _too_large(node.folder, limits)
        if month.size(node.folder) > month.ROOM:
            yield f"{node.name} keeps {month.size(node.folder) >> 20} MB"
    yield from _too_large(story.folder.path, {"journal.jsonl": JOURNAL, paces.FILE: 2 * paces.LIMIT})


def _too_large(folder: Path, limits: Mapping[str, int]) -> Iterator[str]:
    for name, limit in limits.items():
        path = folder / name
        if path.exists() and path.stat().st_size > limit:
            yield f"{path} has {path.stat().st_size:,} bytes, more than {limit:,}"
