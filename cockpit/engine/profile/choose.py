"""What a profile is to be: its kind, its ranks and steps, what it costs; or why there can be none now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median_high, median_low

from cockpit.base.answers import RankWindow
from cockpit.base.shared_fields import PROFILE_STEPS
from cockpit.core.pace.heat import STALL
from cockpit.core.profile.collection import Collection
from cockpit.core.ranks import nodes_text, ranks_named, ranks_text
from cockpit.core.text import one_line, size
from cockpit.core.time_text import rounded_span, span_text
from cockpit.errors import CockpitError

ALL = 64
"""As many ranks are all profiled; of more, one a node, the slowest and a median one."""
STEPS = 5
SECONDS, LONGEST_S = 10.0, 3600.0
"""Of ``cpu``."""
RATE = 20
"""Times a second that ``cpu`` looks at a rank, at most: its node looks less often where a look takes long."""

AHEAD = 2
"""Steps at least before the first one: in one of them the profiler has its first start."""
TELL_S = 1.0
"""All nodes are told within this, after what a round trip takes."""

EVENTS = 5100
"""Of one step of a rank, unless a collection of the run tells: a model of some hundred layers."""
EVENT_BYTES = {"": 250, "shapes": 137, "stack": 125, "memory": 147}
"""Of an event in the trace, and how much more by option."""
ZIPPED = 13
"""A trace is compressed to one part in so many, at least."""
STOP_S = {"": (4e-6, 7e-6), "shapes": (12e-6, 18e-6), "stack": (12e-6, 18e-6)}
"""How long stopping the profiler holds a rank up, for each event: least and most."""
SPARE = 64 << 20
"""Bytes that are left free on a node."""

LEAST_S = 1e-6
"""A node that tells of shorter steps is not believed."""
APART_S = 60.0
"""So long all are waited for at most, beside what is estimated: who is further behind is not reached."""
LARGER = 3
"""As many times as large as usual the largest trace of an earlier collection may be, or a node lied."""

PAUSED_S = 2.0
"""So long without a step, at least, is a pause."""

TIMEOUT_S = {"nccl": 600.0, "gloo": 1800.0}
"""After so long torch gives a collective up, unless the program says otherwise."""
SHARE = 0.1
"""Of that is the most that a rank may be held up."""


@dataclass(frozen=True)
class Wish:
    """What a person asks for; None, or empty: what is usual.

    :param kind: ``torch``, ``cpu`` or ``nsys``
    :param ranks: these alone; of ``nsys`` all on their nodes, unless it is around each rank
    :param steps: whole steps; ``seconds``: so long, of ``torch`` as many steps as that takes
    :param rate: of ``cpu``: times a second that a rank is looked at, at most
    """

    kind: str = ""
    ranks: frozenset[int] | None = None
    steps: int | None = None
    seconds: float | None = None
    shapes: bool = True
    stack: bool = False
    memory: bool = False
    rate: int = RATE

    @property
    def options(self) -> tuple[str, ...]:
        """Those of ``torch``."""
        return tuple(name for name in ("shapes", "stack", "memory") if getattr(self, name))


@dataclass(frozen=True)
class Met:
    """What a profile would meet, as nodes say.

    :param kind: that they were asked about
    :param windows: of each rank that has a process; ``node``: where it is
    :param absent: ranks that cannot be asked, and why
    :param free: bytes where files go, by node, where they do
    :param at: when they were asked, seconds of any clock
    :param rtt_s: the longest round trip
    """

    kind: str
    windows: Mapping[int, RankWindow]
    node: Mapping[int, str]
    absent: Mapping[int, str] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    at: float = 0.0
    rtt_s: float = 0.0


@dataclass(frozen=True)
class Known:
    """What else is known of the job.

    :param stalled: that it stands still, in a sentence, as whoever watches has seen; empty: nobody has
    :param saved_s: seconds since a log named a checkpoint; None: none has
    :param slowest: the rank that others wait for; None: not known
    :param since: ranks that are slow, and from which step on
    :param timeout_s: after which its collectives are given up; None: what is usual
    :param earlier: the last collection of ``torch``, which tells how many events there are
    :param recorded: the last one of ``nsys``, which tells how large its reports are
    :param ready: the run was launched ready for nsys; ``apart``: each rank on its own
    :param command: takes stacks of the job
    """

    stalled: str = ""
    saved_s: float | None = None
    slowest: int | None = None
    since: Mapping[int, int] = field(default_factory=dict)
    timeout_s: float | None = None
    earlier: Collection | None = None
    recorded: Collection | None = None
    ready: bool = False
    apart: bool = False
    command: str = "cockpit stacks"


@dataclass(frozen=True)
class Estimate:
    """What it costs, before it begins.

    :param wait_s: until it begins; ``takes_s``: from then on
    :param raw: bytes of the largest trace before it is compressed; ``size``: after
    :param stop_s: how long stopping holds a rank up, least and most
    :param measured: by an earlier collection
    """

    wait_s: float
    takes_s: float
    raw: int = 0
    size: int = 0
    stop_s: tuple[float, float] = (0.0, 0.0)
    measured: bool = False


@dataclass(frozen=True)
class Plan:
    """A profile that can begin.

    :param ranks: those that are profiled; ``left_out``: those that were asked for too, and why they are not
    :param first: the first of ``steps`` steps; None: it is ``seconds`` long
    :param deadline_s: after which every node has ended it
    :param apart: of ``nsys``: there is a report of each rank, not of each node
    """

    kind: str
    ranks: tuple[int, ...]
    left_out: Mapping[int, str]
    first: int | None
    steps: int
    seconds: float
    rate: int
    options: tuple[str, ...]
    deadline_s: float
    estimate: Estimate
    apart: bool = False

    @property
    def text(self) -> str:
        """What will be profiled, when, and what it costs, in a sentence."""
        who = ranks_named(self.ranks)
        if self.first is None and self.kind == "nsys":
            return f"nsys: {who} for {self.seconds:g} s; {self.cost}"
        if self.first is None:
            return f"{self.kind}: {who} for {self.seconds:g} s, up to {self.rate} samples per second"
        last = self.first + self.steps - 1
        steps = f"steps {self.first:,} to {last:,}" if self.steps > 1 else f"step {last:,}"
        return f"{self.kind}: {steps} of {who}, in about {rounded_span(self.estimate.wait_s)}; {self.cost}"

    @property
    def cost(self) -> str:
        """What it costs a rank, of ``torch``, or a node, of ``nsys``."""
        if self.kind == "nsys":
            about = f" of about {size(self.estimate.size)}" if self.estimate.size else ""
            return f"a report{about} of each {'rank' if self.apart else 'node, with all of its ranks'}"
        least, most = self.estimate.stop_s
        pause = f"{least:.1f} to {most:.1f} s" if most >= 0.15 else "0.1 s or less"
        return (
            f"about {size(self.estimate.size)} per rank ({size(self.estimate.raw)} unpacked); each rank "
            f"pauses for {pause} at the end"
        )


def choose(wish: Wish, met: Met, known: Known, now: float) -> Plan:
    """What is to be done.

    :param now: by the clock of :attr:`Met.at`
    :raises CockpitError: nothing; the error says why, and what to type
    """
    unable = {rank: why for rank, one in met.windows.items() if (why := _why(met.kind, one))}
    able = {rank: window for rank, window in met.windows.items() if rank not in unable}
    step_s = middle(window.step_s for window in able.values())
    if met.kind == "torch" and step_s is not None and (wish.ranks is None or wish.ranks & set(able)):
        unable |= _apart(wish, able, step_s, now - met.at)
        able = {rank: window for rank, window in able.items() if rank not in unable}
    ranks, left_out = _ranks(wish, met, known, able, {**met.absent, **unable})
    if not ranks:
        raise nobody(met, left_out, known)
    check_moves(met, known, step_s, stacks=met.kind == "cpu")
    if met.kind == "cpu":
        seconds = _seconds(wish, step_s)
        deadline = 60 + 2 * seconds
        return Plan("cpu", ranks, left_out, None, 0, seconds, wish.rate, (), deadline, Estimate(0.0, seconds))
    if step_s is None:
        what = "only one step has ended so far, so the duration of a step is unknown"
        raise CockpitError(what, hint="try again after the next step, or: --kind cpu")
    steps = wish.steps or (STEPS if wish.seconds is None else max(1, round(wish.seconds / step_s)))
    if steps > PROFILE_STEPS:
        what = f"{steps:,} steps are too many: {PROFILE_STEPS} at most"
        raise CockpitError(what, hint=f"--steps {STEPS} is usual")
    front, ahead = front_of(able.values(), step_s, now - met.at), ahead_of(step_s, met.rtt_s)
    estimate = _estimate(wish, known, steps, wait_s=ahead * step_s, takes_s=steps * step_s)
    _check_room(met, ranks, estimate, steps)
    _check_stop(known, estimate)
    # Also where a checkpoint, or an evaluation, begins meanwhile.
    deadline = min(86400.0, APART_S + 5 * (estimate.wait_s + estimate.takes_s) + estimate.stop_s[1])
    return Plan(
        "torch", ranks, left_out, front + ahead, steps, 0.0, wish.rate, wish.options, deadline, estimate
    )


def _why(kind: str, window: RankWindow) -> str:
    """Why a rank cannot be profiled; empty: it can."""
    return window.why or ("its steps are not counted" if kind == "torch" and window.step is None else "")


def _ranks(
    wish: Wish, met: Met, known: Known, able: Mapping[int, RankWindow], unable: Mapping[int, str]
) -> tuple[tuple[int, ...], dict[int, str]]:
    """Those that are profiled, and those that were meant too, and why they are not."""
    if wish.ranks is not None:
        left_out = {rank: unable.get(rank, "no process found") for rank in wish.ranks - set(able)}
        return tuple(sorted(wish.ranks & set(able))), left_out
    if len(able) + len(unable) <= ALL:
        return tuple(sorted(able)), dict(unable)
    of_node: dict[str, int] = {}
    for rank in sorted(able):
        of_node.setdefault(met.node[rank], rank)
    chosen = set(of_node.values())
    by_time = sorted(able, key=lambda rank: (able[rank].step_s or 0.0, rank))
    if by_time:
        told = known.slowest
        slowest = by_time[-1] if told is None or told not in able else told
        chosen |= {slowest, by_time[(len(by_time) - 1) // 2]}
    return tuple(sorted(chosen)), {}


def nobody(met: Met, left_out: Mapping[int, str], known: Known) -> CockpitError:
    """That no rank can be profiled, why, and what can be done."""
    by_why: dict[str, list[int]] = {}
    for rank, why in left_out.items():
        by_why.setdefault(why, []).append(rank)
    said = "; ".join(f"{ranks_named(ranks)}: {one_line(why, limit=300)}" for why, ranks in by_why.items())
    if not met.windows:
        return CockpitError(f"no rank can be profiled: {said or 'there is none'}")
    hint = ""
    if met.kind == "torch":
        hint = "nsys can: --kind nsys" if known.ready else "py-spy works on any rank: --kind cpu"
    elif met.kind == "nsys" and not known.ready:
        hint = "next time: cockpit run --profile nsys-ready …; now: --kind torch or --kind cpu"
    return CockpitError(f"no rank can be profiled with {met.kind}: {said}", hint=hint)


def check_moves(met: Met, known: Known, step_s: float | None, *, stacks: bool) -> None:
    """See that steps go on.

    :param stacks: they need not, unless the run is stalled
    :raises CockpitError: they do not
    """
    ages = [one.age_s for one in met.windows.values() if one.step is not None and one.age_s is not None]
    still_s = min(ages, default=None)
    look = f"to see where ranks are: {known.command}"
    if still_s is None:
        if known.stalled:
            raise CockpitError(f"the run is not making steps: {known.stalled}", hint=look)
        return
    if still_s <= max(PAUSED_S, STALL * (step_s or 0.0)):
        return
    if known.stalled:
        raise CockpitError(f"the run is not making steps: {known.stalled}", hint=look)
    if stacks:
        return
    usually = "" if step_s is None else f", and one usually takes {span_text(step_s)}"
    what = f"no step for {span_text(still_s)}{usually}"
    if known.saved_s is not None and known.saved_s <= still_s + (step_s or 0.0):
        raise CockpitError(f"{what}: it is writing a checkpoint", hint="try again once steps continue")
    what += ": a checkpoint, an evaluation or a compilation may be going on"
    raise CockpitError(what, hint=f"try again once steps continue, or: --kind cpu; {look}")


def _seconds(wish: Wish, step_s: float | None) -> float:
    if wish.steps is None:
        return min(max(1.0, round(wish.seconds or SECONDS)), LONGEST_S)
    if step_s is None:
        what = "the steps of these ranks are not counted"
        raise CockpitError(what, where="--steps", hint=f"give a time: --seconds {SECONDS:g}")
    return min(LONGEST_S, max(1.0, math.ceil(wish.steps * step_s)))


def _apart(wish: Wish, able: Mapping[int, RankWindow], step_s: float, since_s: float) -> dict[int, str]:
    """Ranks that never come to the step of the others in time, or only say where they are, and why.

    :raises CockpitError: as many are elsewhere as are together
    """
    fronts = {
        rank: front_of([window], step_s, since_s)
        for rank, window in able.items()
        if wish.ranks is None or rank in wish.ranks
    }
    most = median_low(fronts.values())
    apart = {rank: front for rank, front in fronts.items() if abs(front - most) > APART_S / step_s + AHEAD}
    if 2 * len(apart) < len(fronts):
        return {rank: f"it is at step {at:,}, most ranks at {most:,}" for rank, at in apart.items()}
    one, ranks = next(iter(apart)), ranks_text(fronts.keys() - apart.keys())
    what = f"ranks are too far apart: rank {one} is at step {apart[one]:,}, ranks {ranks} at {most:,}"
    raise CockpitError(what, hint=f"choose some that are together: --ranks {ranks}")


def front_of(windows: Iterable[RankWindow], step_s: float, since_s: float) -> int:
    """The last step that any rank has ended by now, about."""
    return max(
        one.step + max(0, int(((one.age_s or 0.0) + since_s) / step_s))
        for one in windows
        if one.step is not None
    )


def ahead_of(step_s: float, rtt_s: float) -> int:
    """Steps from the front to the first one."""
    return AHEAD + math.ceil((TELL_S + 2 * rtt_s) / step_s)


def _estimate(wish: Wish, known: Known, steps: int, *, wait_s: float, takes_s: float) -> Estimate:
    before = known.earlier
    found = [] if before is None else [one.summary for one in before.results.values() if one.summary]
    found = [one for one in found if one.steps and one.events]
    measured = bool(found)
    events = round(_largest(one.events / len(one.steps) for one in found)) if measured else EVENTS
    alike = before is not None and set(before.options) == set(wish.options)
    bytes_a_step = _largest(one.size / len(one.steps) for one in found) if measured and alike else 0.0
    a_event = EVENT_BYTES[""] + sum(EVENT_BYTES[name] for name in wish.options)
    raw = steps * events * a_event
    stops = [STOP_S[name] for name in ("", *wish.options) if name in STOP_S]
    least, most = max(stops)
    return Estimate(
        wait_s,
        takes_s,
        raw,
        round(steps * bytes_a_step) or raw // ZIPPED,
        (steps * events * least, steps * events * most),
        measured,
    )


def _check_room(met: Met, ranks: Iterable[int], estimate: Estimate, steps: int) -> None:
    """See that nodes have room for the traces, which are unpacked until they are packed.

    :raises CockpitError: some have not
    """
    on: dict[str, int] = {}
    for rank in ranks:
        on[met.node[rank]] = on.get(met.node[rank], 0) + 1
    short = {
        node: many * (estimate.raw + estimate.size) + SPARE
        for node, many in on.items()
        if node in met.free and met.free[node] < many * (estimate.raw + estimate.size) + SPARE
    }
    if short:
        worst = min(short, key=lambda node: met.free[node])
        what = f"too little room for traces on {nodes_text(short)}: {size(met.free[worst])} free on {worst}"
        fewer = f"--steps {max(1, steps // 2)}, or " if steps > 1 else ""
        hint = f"free some there, or: {fewer}fewer --ranks"
        raise CockpitError(f"{what}, {size(short[worst])} needed", hint=hint)


def _check_stop(known: Known, estimate: Estimate) -> None:
    """See that nobody gives a collective up while a rank is held.

    :raises CockpitError: somebody might
    """
    backends = {
        one.summary.backend
        for one in (known.earlier.results.values() if known.earlier else ())
        if one.summary
    }
    usual = min((TIMEOUT_S[name] for name in backends if name in TIMEOUT_S), default=min(TIMEOUT_S.values()))
    timeout_s = known.timeout_s or usual
    if estimate.stop_s[1] > SHARE * timeout_s:
        what = (
            f"stopping the profiler may pause ranks for {span_text(estimate.stop_s[1])}, more than a tenth "
            f"of the {span_text(timeout_s)} after which their collectives time out"
        )
        raise CockpitError(what, hint="fewer --steps, or: --no-shapes")


def _largest(values: Iterable[float]) -> float:
    """The largest, as far as it is not one node's word against all others'."""
    known = list(values)
    return min(max(known), LARGER * median_high(known))


def middle(values: Iterable[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None and value >= LEAST_S)
    return known[len(known) // 2] if known else None
