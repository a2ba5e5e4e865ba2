"""Where the wall time of a run went: each moment of it counts once, so that the parts add up to the whole."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from cockpit.base.events import Saved, Watched
from cockpit.core.run.events import Event

PARTS = ("steps", "start", "checkpoint", "evaluation", "stalled", "lost", "between", "other")
"""In the order in which they are told."""

MEANINGS = {
    "steps": "steps that count",
    "start": "until the first step, also after a restart",
    "checkpoint": "pauses in which a log named a checkpoint",
    "evaluation": "pauses in which a log named an evaluation",
    "stalled": "ranks stood still",
    "lost": "steps since the last checkpoint that a restart did again, or would have to",
    "between": "between two runs of a series",
    "other": "between steps, and after the last one",
}

_FIRST = ("stalled", "checkpoint", "evaluation", "lost", "steps", "start", "between")
"""Of what a moment may be, the first of these counts."""

Span = tuple[float, float]
"""From when to when, unix seconds on our clock."""


class Stretch(NamedTuple):
    """Steps that followed each other.

    :param step: the number of the last one; None: not known, or not comparable after a restart
    :param many: how many they are
    :param begin, end: unix seconds on our clock
    """

    step: int | None
    many: int
    begin: float
    end: float

    def after(self, step: float) -> Span | None:
        """The part of it that comes after a step; None: nothing does."""
        if self.step is None or self.step <= step:
            return None
        share = min(1.0, (self.step - step) / self.many)
        return self.end - share * (self.end - self.begin), self.end


class Goodput(NamedTuple):
    """Wall time, split.

    :param wall_s: all of it
    :param parts: seconds of each of :data:`PARTS` that is not nothing; their sum is ``wall_s``
    :param estimated: those that rest on times of log lines, or on what is usual
    :param lost_steps: how many steps are in ``lost``; None: there may be more, no checkpoint is known
    """

    wall_s: float
    parts: Mapping[str, float]
    estimated: tuple[str, ...] = ()
    lost_steps: int | None = 0

    @property
    def share(self) -> float:
        """How much of it were steps that count, 0 to 1."""
        return self.parts.get("steps", 0.0) / self.wall_s if self.wall_s > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "wall_s": self.wall_s,
            "share": self.share,
            "parts": {name: self.parts.get(name, 0.0) for name in PARTS},
            "estimated": list(self.estimated),
            "lost_steps": self.lost_steps,
        }


class Facts(NamedTuple):
    """What is on record of one run.

    :param ended: when it ended, or until when it is looked at
    :param failed: whether it ended, and not as it should
    :param steps: all its steps, by time
    :param exact: whether ranks noted their times themselves
    :param restarts: when its ranks were started anew
    :param events: of the journal: pauses for checkpoints, stalls
    :param evaluations: pauses in which a log named an evaluation
    :param named: those in which it named a checkpoint, also where nobody watched
    """

    began: float
    ended: float
    failed: bool
    steps: Sequence[Stretch]
    exact: bool
    restarts: Sequence[float] = ()
    events: Sequence[Event] = ()
    evaluations: Sequence[Span] = ()
    named: Sequence[Span] = ()


def goodput(facts: Facts, resumed: int | None = None) -> Goodput | None:
    """Split the wall time of a run; None: no step of it is known.

    :param resumed: the first step of the run that continued it; None: none did, or that is not known
    """
    if not facts.steps:
        return None
    usual = median((step.end - step.begin) / step.many for step in facts.steps)
    saves, saved, unsure = _saves(facts, usual)
    lost, lost_steps, guessed = _lost(facts, saved, resumed)
    spans = {
        "stalled": list(_stalls(facts)),
        "lost": [span for span, _ in lost],
        "checkpoint": saves,
        "evaluation": list(facts.evaluations),
        "steps": [(step.begin, step.end) for step in facts.steps],
        "start": list(_starts(facts)),
    }
    parts = _swept(spans, facts.began, facts.ended)
    loose = set() if facts.exact else {"steps", "start", "lost", "other"}
    loose |= {"evaluation"} | ({"checkpoint"} if unsure or not facts.exact else set())
    loose |= {"lost"} if guessed else set()
    return Goodput(
        max(0.0, facts.ended - facts.began),
        parts,
        tuple(name for name in PARTS if name in loose and name in parts),
        lost_steps,
    )


def together(members: Sequence[tuple[float, float, Goodput | None]]) -> Goodput | None:
    """That of a series of runs; time of a run whose steps are not known is ``other``.

    :param members: begin and end of each, by time
    """
    if not any(found for _, _, found in members):
        return None
    parts: dict[str, float] = {}
    loose: set[str] = set()
    lost: int | None = 0
    until = members[0][0]
    for began, ended, found in members:
        wall = max(0.0, ended - max(began, until))
        _add(parts, "between", max(0.0, began - until))
        # Two that overlap, by clocks or by mistake: no moment counts twice.
        whole = 0.0 if found is None else found.wall_s
        for name, took in ({"other": wall} if found is None or not whole else found.parts).items():
            _add(parts, name, took * wall / whole if whole and found is not None else took)
        loose |= set() if found is None else set(found.estimated)
        one = None if found is None else found.lost_steps
        lost = None if lost is None or one is None else lost + one
        until = max(until, ended)
    return Goodput(
        max(0.0, until - members[0][0]), parts, tuple(name for name in PARTS if name in loose), lost
    )


def _add(parts: dict[str, float], name: str, took: float) -> None:
    if took > 0:
        parts[name] = parts.get(name, 0.0) + took


def _saves(facts: Facts, usual: float) -> tuple[list[Span], list[tuple[float, int]], bool]:
    """Pauses for checkpoints; when each was over, and the last step in it; whether that is not sure."""
    spans, saved, unsure = [], [], False
    ends = [step.end for step in facts.steps]
    for event in facts.events:
        fact = event.fact
        if not isinstance(fact, Saved):
            continue
        place = bisect_left(ends, event.at)
        found = next((step for step in reversed(facts.steps[: place + 1]) if _holds(step, fact.step)), None)
        until = event.at if found is None else found.end - usual
        unsure |= found is None or found.many > 1
        if found is not None and found.many > 1 and found.step is not None:
            until -= (found.step - fact.step) * (found.end - found.begin) / found.many
        spans.append((until - fact.seconds, until))
        saved.append((until, fact.step - 1))
    for begin, end in facts.named:
        if not any(begin < until and since < end for since, until in spans):
            spans.append((begin, end))
            unsure = True
            before = [step.step for step in facts.steps[: bisect_left(ends, begin + 1e-3)]]
            if before and before[-1] is not None:
                saved.append((end, before[-1]))
    return spans, sorted(saved), unsure


def _holds(stretch: Stretch, step: int) -> bool:
    return stretch.step is not None and stretch.step - stretch.many < step <= stretch.step


def _stalls(facts: Facts) -> Iterable[Span]:
    """When ranks stood still, as whoever watched has found."""
    since: float | None = None
    for event in facts.events:
        fact = event.fact
        if not isinstance(fact, Watched):
            continue
        if fact.state == "stalled":
            since = fact.since if since is None else since
        elif fact.state == "going" and since is not None:
            yield since, (since + fact.still_s if fact.still_s > 0 else event.at)
            since = None
    if since is not None:
        yield since, facts.ended


def _attempts(facts: Facts) -> list[list[Stretch]]:
    """The steps between two starts of the ranks; a start without a step has none."""
    found: list[list[Stretch]] = [[]]
    starts = list(facts.restarts)
    for step in facts.steps:
        while starts and starts[0] <= step.begin:
            found.append([])
            starts.pop(0)
        found[-1].append(step)
    return found + [[] for _ in starts]


def _starts(facts: Facts) -> Iterable[Span]:
    """From each start of the ranks, or from the end of the last step before it, until the first step."""
    since = facts.began
    for steps in _attempts(facts):
        yield since, (steps[0].begin if steps else facts.ended)
        since = steps[-1].end if steps else since


def _lost(
    facts: Facts, saved: Sequence[tuple[float, int]], resumed: int | None
) -> tuple[list[tuple[Span, int]], int | None, bool]:
    """Steps that were, or have to be, done again: when, and how many; the sum; whether it is a guess."""
    found: list[tuple[Span, int]] = []
    known, guessed = True, False
    attempts = [steps for steps in _attempts(facts) if steps]
    goes_on = [*((a, _first(b)) for a, b in pairwise(attempts))]
    if facts.failed or resumed is not None:
        goes_on.append((attempts[-1], resumed))
    for steps, first in goes_on:
        last: float | None = None if first is None else first - 1
        if last is None:
            before = [step for until, step in saved if until <= steps[-1].end]
            last, guessed = (before[-1] if before else None), True
        if last is None:
            known = False
            continue
        found += [
            (span, min(step.many, int(step.step - last)))
            for step in steps
            if step.step is not None and (span := step.after(last)) is not None
        ]
    return found, (sum(count for _, count in found) if known else None), guessed and bool(found)


def _first(steps: Sequence[Stretch]) -> int | None:
    first = steps[0]
    return None if first.step is None else first.step - first.many + 1


def _swept(spans: Mapping[str, Iterable[Span]], began: float, ended: float) -> dict[str, float]:
    """Seconds of each part: every moment from begin to end counts for the first part that has it."""
    edges: list[tuple[float, int, int]] = []
    for place, name in enumerate(_FIRST):
        for begin, end in spans.get(name, ()):
            begin, end = max(began, begin), min(ended, end)
            if end > begin:
                edges += [(begin, place, 1), (end, place, -1)]
    edges.sort()
    open_now = [0] * len(_FIRST)
    parts: dict[str, float] = {}
    at = began
    for when, place, change in [*edges, (ended, -1, 0)]:
        if when > at:
            name = next((each for each, number in zip(_FIRST, open_now, strict=True) if number > 0), "other")
            parts[name] = parts.get(name, 0.0) + when - at
            at = when
        if place >= 0:
            open_now[place] += change
    return parts
