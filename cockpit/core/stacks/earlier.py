"""Since when ranks have stood still, by an earlier look at the same processes. Pure.

A look wakes a rank for a moment, so the time for which it has slept, by the kernel, begins anew with each.
But the kernel also counts how often a thread goes to sleep: if that has not changed since py-spy let it go,
it has not run in between, and what the earlier look found still holds.
"""

from __future__ import annotations

from cockpit.base.stacks.dump import Dump
from cockpit.core.stacks.classes import places
from cockpit.core.stacks.snapshot import Snapshot

CPU_S = 0.015
"""CPU time is counted in hundredths of a second: a single one is what the look itself took."""


def stood_since(before: Snapshot, now: Snapshot) -> dict[int, float]:
    """For each rank that has not run since an earlier look: since when, unix seconds on our clock.

    :param now: a look that has its first sample
    """
    sample = now.samples[0]
    found = {}
    for rank, dump in sample.dumps.items():
        looks = before.dumps(rank)
        if rank in before.closer:
            looks.append(before.closer[rank])
        if not looks or before.ranks[rank].node != now.ranks[rank].node:
            continue
        first, reached = dump, len(looks)
        while reached and _stood(looks[reached - 1], first):
            reached -= 1
            first = looks[reached]
        if first is dump or first.main is None:
            continue
        # By the node's clock, and by ours: either may have been set in between.
        ours_s = max(0.0, sample.at - before.samples[0].at) if before.samples else 0.0
        elapsed_s = min(dump.at - first.at, ours_s)
        since = sample.at - elapsed_s - max(0.0, first.main.idle_s)
        found[rank] = min(since, before.stood.get(rank, since)) if reached == 0 else since
    return found


def _stood(before: Dump, after: Dump) -> bool:
    """Whether the thread that works has not run between two looks, but for what they themselves caused."""
    first, last = before.main, after.main
    if first is None or last is None or not before.threads or not after.threads:
        return False
    return (
        (first.pid, first.ticks) == (last.pid, last.ticks)
        and places(before) == places(after)
        and 0 <= first.switches_after == last.switches
        and last.main_cpu_s - first.main_cpu_s <= CPU_S
        and before.at <= after.at
    )
