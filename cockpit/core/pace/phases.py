"""Where the time of steps goes: the phases of each rank, why one is slow, and what the run is bound by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple, Protocol

from cockpit.core.pace.medians import known_of, middle

NAMES = ("input", "forward", "backward", "update", "wait", "other")
"""Of the fields of :class:`Phases`, in their order."""
MARKED = 4
"""So many of these ranks mark. *wait* is known where recorders were looked at, *other* is the rest."""

_WHOLE, _UNKNOWN = 254, 255
NOTHING = 0xFFFFFFFF
"""The word of a step whose phases are not known."""

LOOKED_AT = 10
"""Steps of which the median is taken."""
MOST_RANKS = 256
"""Ranks that the median, or the least, of all is taken of."""

SOME_RANKS = 16
"""Ranks that the median of one step is taken of."""

ALIKE = 0.3
"""A phase is why a rank is slow if it differs by what the whole differs by, up to this part of that."""
SHOWS = (0.4, 1.6)
"""The same before any waiting is taken out, from and up to this part, if it makes up all but a part *ALIKE*
of what is longer."""
LEAST, MOST = 0.5, 4.0
"""How long a backward pass takes, in forward passes: usually two, or three if it makes activations anew."""
HINTS = 0.2
"""Longer by this part of it, before any waiting is taken out, a phase speaks against any other."""
BOUND: Mapping[str, tuple[Sequence[str], float, str]] = {
    "input-bound": (("input",), 0.25, "ranks wait {:.0f} % of a step for data"),
    "wait-bound": (("wait",), 0.3, "ranks wait {:.0f} % of a step for each other"),
    "update-bound": (("update",), 0.3, "the optimizer takes {:.0f} % of a step"),
    "compute-bound": (("forward", "backward"), 0.6, "{:.0f} % forward and backward"),
}
"""What a run can be bound by: phases, the share of a step from which on it is, and what is said of it. The
first that holds counts."""


class Phases(NamedTuple):
    """Seconds of a step that a rank was in each phase; NaN: not known."""

    input: float = math.nan
    forward: float = math.nan
    backward: float = math.nan
    update: float = math.nan
    wait: float = math.nan
    other: float = math.nan

    @property
    def total(self) -> float:
        """Seconds of all that are known."""
        return sum(known_of(self))


class Step(Protocol):
    """What is read of a :class:`cockpit.core.pace.step.Step`."""

    @property
    def phases(self) -> Sequence[int]:
        """See there, as for all others."""

    @property
    def spans(self) -> Sequence[float]: ...
    @property
    def works(self) -> Sequence[float]: ...
    @property
    def by_work(self) -> bool: ...
    @property
    def stages(self) -> Sequence[int]: ...
    @property
    def quickest(self) -> Sequence[float]: ...
    def over(self, place: int) -> float: ...


def packed(phases: Sequence[float | None], span: float) -> int:
    """The word of a step in the store: a byte a phase, its share of the step.

    :param phases: seconds of those that ranks mark; None: not known
    :param span: of the step, seconds
    """
    word = 0
    left = _WHOLE
    for place, took in enumerate(phases[:MARKED]):
        share = _UNKNOWN
        if took is not None and span > 0:
            share = min(left, round(_WHOLE * max(0.0, took) / span))
            left -= share
        word |= share << 8 * place
    return word | NOTHING & ~((1 << 8 * min(MARKED, len(phases))) - 1)


def phases_of(step: Step, place: int) -> Phases | None:
    """The phases of one rank, without its waiting if that is known; None: the rank marked none.

    Waiting is taken out of the phases in which the rank was longer than the quickest one: there it waited.
    """
    found, span = gross_of(step, place), step.spans[place]
    wait = span - step.works[place] if step.by_work else math.nan
    if found is None or math.isnan(wait):
        return found
    wait = min(max(0.0, wait), span)
    net = _without(found[:MARKED], wait, step.quickest, span)
    return Phases._make([*net, wait, max(0.0, span - wait - sum(known_of(net)))])


def gross_of(step: Step, place: int) -> Phases | None:
    """The phases of one rank as it marked them, waiting included; None: it marked none."""
    word = step.phases[place] if step.phases else NOTHING
    span = step.spans[place]
    if word == NOTHING or not span > 0:
        return None
    gross = _unpacked(word, span)
    return Phases._make([*gross, math.nan, max(0.0, span - sum(known_of(gross)))])


def quickest(step: Step) -> Sequence[float]:
    """The least seconds that any of many ranks was in each phase; NaN: not known."""
    found = [math.inf] * MARKED
    every = max(1, len(step.phases) // MOST_RANKS)
    for word, span in zip(step.phases[::every], step.spans[::every], strict=True):
        if word == NOTHING or not span > 0:
            continue
        for place, took in enumerate(_unpacked(word, span)):
            if took < found[place]:
                found[place] = took
    return [math.nan if math.isinf(one) else one for one in found]


def _unpacked(word: int, span: float) -> list[float]:
    shares = (word >> 8 * place & 0xFF for place in range(MARKED))
    return [math.nan if share == _UNKNOWN else span * share / _WHOLE for share in shares]


def _without(gross: Sequence[float], wait: float, least: Sequence[float], span: float) -> list[float]:
    pairs = zip(gross, least, strict=True)
    longer = [one - low if one > low else 0.0 for one, low in pairs]  # not so of what is not known
    part = min(1.0, wait / sum(longer)) if any(longer) else 0.0
    net = [one - part * more for one, more in zip(gross, longer, strict=True)]
    # The rest shows in no phase, as where a rank is slow in the very phase in which all others wait for it,
    # or has no phases: it is taken from those that are long enough for all of it.
    more = sum(known_of(net)) - (span - wait)
    if more <= 0:
        return net
    holds = [one >= more and _plausible(net, place, more) for place, one in enumerate(net)]
    room = sum(one for one, here in zip(net, holds, strict=True) if here) or sum(known_of(net))
    part = more / room
    return [one - part * one if here or not any(holds) else one for one, here in zip(net, holds, strict=True)]


def _plausible(net: Sequence[float], place: int, more: float) -> bool:
    """Whether forward and backward go together if so much is taken from one of the phases."""
    left = [one - more * (at == place) for at, one in enumerate(net)]
    forward, backward = left[1:3]
    return place not in (1, 2) or not (backward < LEAST * forward or backward > MOST * forward)


def typical(step: Step) -> Phases | None:
    """Those of the median rank; of many ranks some speak for all."""
    if not step.phases:
        return None
    places = range(0, len(step.phases), max(1, len(step.phases) // SOME_RANKS))
    return middle_phases([one for place in places if (one := phases_of(step, place)) is not None])


# What is made of them


def rank_phases(
    place: int, newest: Sequence[Step], phases: Callable[[Step, int], Phases | None] = phases_of
) -> Phases | None:
    """The median of some steps of the rank at a place; None: nothing is known."""
    return middle_phases([one for step in newest if (one := phases(step, place)) is not None])


def middle_ranks(
    places: Sequence[int], newest: Sequence[Step], phases: Callable[[Step, int], Phases | None] = phases_of
) -> Phases | None:
    """The median of some ranks; None: nothing is known."""
    each = (rank_phases(place, newest, phases) for place in places)
    return middle_phases([one for one in each if one is not None])


def middle_phases(some: Sequence[Phases]) -> Phases | None:
    """The median of each phase; None: there is none."""
    if not some:
        return None
    columns = ([one for one in column if one == one] for column in zip(*some, strict=True))
    return Phases._make(median(column) if column else math.nan for column in columns)


@dataclass(frozen=True)
class Reason:
    """Why a rank takes longer than the others.

    :param phase: of :data:`NAMES`, or another part of a step
    :param took: seconds that it is in that phase
    :param others: seconds that the median of the others is
    :param whose: ``others``, or ``before``: these are its own, before it was slow
    :param about: ``~`` before times of CPUs that run ahead of GPUs
    """

    phase: str
    took: float
    others: float
    whose: str = "others"
    about: str = ""

    @property
    def text(self) -> str:
        """``input 1.02 s, others 0.05 s``; of a run ``input 1.02 s, before 0.05 s``."""
        name = "outside of its phases" if self.phase == "other" else self.phase
        digits = 2 if max(self.took, self.others) >= 1 else 3
        took, others = (f"{self.about}{each:.{digits}f} s" for each in (self.took, self.others))
        return f"{name} {took}, {self.whose} {others}"


def why(place: int, newest: Sequence[Step], before: Callable[[], Sequence[Step]]) -> Reason | None:
    """Which phase of the slow rank at a place differs by what it is slow by; None: none does.

    :param before: steps before it was slow
    """
    over = middle([step.over(place) for step in newest])
    if math.isnan(over):
        return None
    stages = newest[0].stages or [0] * len(newest[0].spans)
    peers = [other for other, stage in enumerate(stages) if stage == stages[place] and other != place]
    peers = peers[:: max(1, len(peers) // MOST_RANKS)]
    own, others = rank_phases(place, newest, gross_of), middle_ranks(peers, newest, gross_of)
    if (shown := reason_shown(own, others, over)) is not None:
        return shown
    if (shown := reason_shown(own, rank_phases(place, before(), gross_of), over)) is not None:
        return replace(shown, whose="before")
    found = reason(rank_phases(place, newest), middle_ranks(peers, newest), over)
    return None if found is None or speaks_against(own, others, over, found) else found


def reason(own: NamedTuple | None, others: NamedTuple | None, over: float) -> Reason | None:
    """The phase, or other part of a step, that differs by what a rank is slow by; None: none does.

    :param own: without waiting
    :param over: seconds that the rank works longer in a step
    """
    name, more, _ = _longest(own, others)
    return _reason(name, own, others) if over > 0 and abs(more - over) <= ALIKE * over else None


def reason_shown(own: NamedTuple | None, others: NamedTuple | None, over: float) -> Reason | None:
    """The same of phases with their waiting, of which nothing is guessed.

    A rank that is slow where nobody waits for it is longer there than the others, and shorter where they
    wait. Where they wait while it is slow, it is longer than it was before. How much longer it works is known
    by how long they wait, and so only roughly: work may go on beside a collective.

    :param others: or itself, before it was slow
    """
    name, more, most = _longest(own, others)
    alone = more >= (1 - ALIKE) * most
    return _reason(name, own, others) if over > 0 and alone and SHOWS[0] <= more / over <= SHOWS[1] else None


def speaks_against(own: NamedTuple | None, others: NamedTuple | None, over: float, found: Reason) -> bool:
    """Whether, with the waiting in them, another phase is longer than that which was found."""
    name, more, _ = _longest(own, others)
    return name != found.phase and more >= HINTS * over


def _reason(name: str, own: NamedTuple | None, others: NamedTuple | None) -> Reason | None:
    return Reason(name, getattr(own, name), getattr(others, name)) if name else None


def _longest(own: NamedTuple | None, others: NamedTuple | None) -> tuple[str, float, float]:
    """The phase that is longer by most, by how much, and by how much all those are that are longer."""
    if own is None or others is None:
        return "", 0.0, 0.0
    differ = {
        name: mine - theirs
        for name, mine, theirs in zip(own._fields, own, others, strict=True)
        if name != "wait" and not math.isnan(mine - theirs)
    }
    name = max(differ, key=differ.__getitem__, default="")
    return name, differ.get(name, 0.0), sum(more for more in differ.values() if more > 0)


@dataclass(frozen=True)
class Bound:
    """What the steps of a run are bound by.

    :param word: ``input-bound``, ``compute-bound``, …
    :param share: of a step: 0.41
    :param text: the sentence that says it
    :param sure: on GPUs nothing is: CPUs run ahead of them
    """

    word: str
    share: float
    text: str
    sure: bool = True


def bound(each: Sequence[Phases], *, ranks: int, gpus: bool = False) -> Bound | None:
    """What takes most of a step, of most ranks and of the median one, if that is much of it.

    :param each: of those ranks of which they are known
    :param ranks: how many the run has: of several it has to be known how long they wait for each other, since
        they do so in the middle of their phases
    :param gpus: whether these are times of CPUs that run ahead of GPUs
    """
    of = middle_phases(each)
    if of is None:
        return None
    waits = ranks == 1 or not math.isnan(of.wait)
    for word, (names, least, said) in BOUND.items():
        share = _share(of, names)
        many = sum(_share(one, names) >= least for one in each)
        if share >= least and 2 * many > len(each) and (waits or word == "input-bound"):
            doubt = "on its CPUs probably " if gpus else ""
            return Bound(word, share, f"{doubt}{word}: {said.format(100 * share)}", not gpus)
    return None


def _share(of: Phases, names: Sequence[str]) -> float:
    """How much of a step some phases take, 0 to 1."""
    took = sum(known_of([getattr(of, name) for name in names]))
    return took / of.total if of.total > 0 else 0.0
