"""What nsys is to record of a run that was launched ready for it: whole nodes, for some steps or seconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from cockpit.base.shared_fields import PROFILE_STEPS
from cockpit.core.profile.collection import Collection
from cockpit.core.ranks import nodes_text
from cockpit.core.text import size
from cockpit.engine.profile import choose as usual
from cockpit.engine.profile.choose import APART_S, LONGEST_S, SPARE, STEPS, Estimate, Known, Met, Plan, Wish
from cockpit.errors import CockpitError
from cockpit.plans.profilers.nsys import ROOM

START_S = 4.0
"""All nodes record within this, after what a round trip takes: 0.5 s on an idle node."""
SECONDS = 5.0
"""Where no steps are counted."""
LARGER = 3
"""As many times as large as its report is what nsys writes first, at least."""


def choose(wish: Wish, met: Met, known: Known, now: float) -> Plan:
    """See :func:`cockpit.engine.profile.choose.choose`, which it is for what others than nsys are to do."""
    if met.kind != "nsys":
        return usual.choose(wish, met, known, now)
    unable = {**met.absent, **{rank: one.why for rank, one in met.windows.items() if one.why}}
    left_out = {rank: why for rank, why in unable.items() if wish.ranks is None or rank in wish.ranks}
    alone = wish.ranks if known.apart else None
    able = {
        rank: one for rank, one in met.windows.items() if not one.why and (alone is None or rank in alone)
    }
    if not able:
        raise usual.nobody(met, left_out, known)
    step_s = usual.middle(window.step_s for window in able.values())
    by_time = wish.seconds is not None or (wish.steps is None and step_s is None)
    usual.check_moves(met, known, step_s, stacks=by_time)
    if by_time:
        first, steps, takes_s = None, 0, min(max(1.0, wish.seconds or SECONDS), LONGEST_S)
        wait_s = 0.0
    else:
        steps = _steps(wish, step_s)
        assert step_s is not None
        # One step is under way; those that begin while nsys starts are not whole in it.
        ahead = 1 + math.ceil((START_S + 2 * met.rtt_s) / step_s)
        first = usual.front_of(able.values(), step_s, now - met.at) + 1 + ahead
        wait_s, takes_s = ahead * step_s, steps * step_s
    estimate = Estimate(wait_s, takes_s, size=_size(known.recorded, takes_s + wait_s))
    _check_room(met, able, estimate, steps, apart=known.apart)
    deadline = min(86400.0, 2 * APART_S + 5 * (wait_s + takes_s))
    seconds = takes_s if first is None else 0.0
    ranks = tuple(sorted(able))
    return Plan(
        "nsys", ranks, left_out, first, steps, seconds, wish.rate, (), deadline, estimate, known.apart
    )


def _steps(wish: Wish, step_s: float | None) -> int:
    steps = wish.steps or STEPS
    if step_s is None:
        what = "the steps of these ranks are not counted"
        raise CockpitError(what, where="--steps", hint=f"give a time: --seconds {SECONDS:g}")
    if steps > PROFILE_STEPS:
        what = f"{steps:,} steps are too many: {PROFILE_STEPS} at most"
        raise CockpitError(what, hint=f"--steps {STEPS} is usual, or give a time: --seconds S")
    return steps


def _size(before: Collection | None, takes_s: float) -> int:
    """Bytes of a report, by those of an earlier collection; 0: there is none to go by."""
    if before is None:
        return 0
    step_s = before.during or before.before
    lasted = before.seconds if before.first is None else step_s and before.steps * step_s + START_S
    largest = max((one.size for one in before.results.values()), default=0)
    return round(largest * max(1.0, takes_s / lasted)) if lasted else largest


def _check_room(met: Met, ranks: Iterable[int], estimate: Estimate, steps: int, *, apart: bool) -> None:
    """See that nodes have room for what nsys writes before it is a report.

    :raises CockpitError: some have not
    """
    written = LARGER * estimate.size + SPARE
    needed = max(ROOM, written)
    reports = Counter(met.node[rank] for rank in ranks)
    needed *= max(reports.values()) if apart else 1
    short = sorted(node for node in reports if met.free.get(node, needed) < needed)
    if short:
        worst = min(short, key=lambda node: met.free[node])
        what = f"too little room for reports on {nodes_text(short)}: {size(met.free[worst])} free on {worst}"
        fewer = f", or: --steps {max(1, steps // 2)}" if steps > 1 and written > ROOM else ""
        hint = f"free some there, in the run folder and in its temporary folder{fewer}"
        raise CockpitError(f"{what}, {size(needed)} needed", hint=hint)
