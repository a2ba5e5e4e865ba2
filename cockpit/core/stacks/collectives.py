"""What the recorders of all ranks said when a snapshot was taken, reduced to what a verdict needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cockpit.base.gate import (
    COUNT,
    FLAG,
    RANK,
    TIME,
    FieldKind,
    ListOf,
    Malformed,
    MapOf,
    Maybe,
    Number,
    Of,
    Text,
    bound,
    plain,
)
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.ranks import mask_text, read_ranks
from cockpit.core.recorder.merge import Collective, Look
from cockpit.core.recorder.report import call_text, group_title
from cockpit.core.text import one_line
from cockpit.errors import CockpitError

SHORT_US = 1_000_000
"""A wait shorter than this is how training goes."""

WAITS = 500
"""Waits, and pairs, that are kept, the longest first."""

DIFFERENCES = 50


class _Mask(FieldKind):
    """Ranks, as text: ``0-5,7``."""

    def read(self, value: Any) -> int:
        text = _RANKS.read(value)
        try:
            return mask_of(read_ranks(text)) if text else 0
        except CockpitError as error:
            raise Malformed(error.what) from None


class _Words(FieldKind):
    """Text, made harmless."""

    def read(self, value: Any) -> str:
        return one_line(_TEXT.read(value), limit=500)


_RANKS = Text(1 << 20)
_TEXT = Text(6000, cut=True)
_MASK = _Mask()
_WORDS = _Words()
_SECONDS = Number(0, 1 << 36)


@dataclass(frozen=True)
class Wait:
    """A collective that some have entered and that is not over.

    :param group: its group, as people call it: ``all ranks (group 0)``
    :param key: its group, for programs
    :param op: ``all_reduce``
    :param call: that with its size: ``all_reduce of 2,000 Float``
    :param going: ranks that wait in it
    :param absent: members that have not entered it
    :param unknown: members of which that is not known
    :param waited_s: for how long that has certainly been so
    :param lone: whether one rank waits in it, and who else is in this group is not known
    :param source: the line at which most of those that wait called it, where dumps have stacks
    """

    group: str = bound(_WORDS)
    key: str = bound(_WORDS)
    number: int = bound(COUNT)
    op: str = bound(_WORDS)
    call: str = bound(_WORDS)
    going: int = bound(_MASK)
    absent: int = bound(_MASK)
    unknown: int = bound(_MASK, 0)
    waited_s: float = bound(_SECONDS, 0.0)
    lone: bool = bound(FLAG, False)
    source: str = bound(_WORDS, "")

    @property
    def name(self) -> str:
        """``all_reduce number 20 of all ranks (group 0)``."""
        return f"{self.op} number {self.number:,} of {self.group}"


@dataclass(frozen=True)
class Variant:
    """What some ranks call, in words."""

    ranks: int = bound(_MASK)
    call: str = bound(_WORDS)


@dataclass(frozen=True)
class Mismatch:
    """Ranks that call something else under one number.

    :param what: ``operation``, ``size`` or ``type``
    :param calls: most ranks first
    :param going: whether somebody waits in it
    :param last: whether no later one of its group is over: then it may be what ranks failed of
    """

    group: str = bound(_WORDS)
    number: int = bound(COUNT)
    what: str = bound(_WORDS)
    calls: tuple[Variant, ...] = bound(ListOf(Of(Variant), 1000))
    going: bool = bound(FLAG, True)
    last: bool = bound(FLAG, False)

    @property
    def odd(self) -> int:
        """The ranks that call something else than most, as a mask; of two halves both."""
        most, *rest = self.calls
        few = mask_of(rank for one in rest for rank in ranks_of(one.ranks))
        return few | most.ranks if few.bit_count() >= most.ranks.bit_count() else few


@dataclass(frozen=True)
class Transfer:
    """A send or receive that is not through.

    :param peer: the other rank; None: not known
    :param send: whether the rank sends
    :param alone: whether the other rank has called nothing that would meet it
    :param waited_s: for how long it has certainly been so
    :param group: its group, as people call it
    """

    rank: int = bound(RANK)
    peer: int | None = bound(Maybe(RANK))
    send: bool = bound(FLAG)
    number: int = bound(COUNT, 0)
    alone: bool = bound(FLAG, False)
    waited_s: float = bound(_SECONDS, 0.0)
    group: str = bound(_WORDS, "")


@dataclass(frozen=True)
class Collectives:
    """What the recorders said.

    :param at: when they were asked, unix seconds on our clock
    :param heard: the ranks whose recorders answered
    :param silent: why others did not
    :param missing: ranks that others wait for, and that wait for nobody
    """

    at: float = bound(TIME)
    heard: int = bound(_MASK)
    missing: int = bound(_MASK, 0)
    waits: tuple[Wait, ...] = bound(ListOf(Of(Wait), WAITS), ())
    mismatches: tuple[Mismatch, ...] = bound(ListOf(Of(Mismatch), DIFFERENCES), ())
    transfers: tuple[Transfer, ...] = bound(ListOf(Of(Transfer), WAITS), ())
    silent: dict[str, str] = bound(MapOf(_WORDS, _WORDS, 1000), {})
    """By reason, as text: the ranks."""

    @property
    def going(self) -> int:
        """Ranks that wait for others."""
        return mask_of(rank for one in self.waits for rank in ranks_of(one.going)) | mask_of(
            one.rank for one in self.transfers
        )

    @property
    def since_s(self) -> float:
        """For how long somebody has waited."""
        told = [one.waited_s for one in self.transfers if one.alone]
        return max((*(one.waited_s for one in self.waits), *told), default=0.0)

    def of(self, ranks: int) -> Wait | None:
        """What others wait in for one of these, the longest wait first; of one group the first number."""
        found = [one for one in self.waits if one.absent & ranks]
        first = min(found, key=lambda one: (-(one.absent & ranks).bit_count(), -one.waited_s), default=None)
        if first is None:
            return self._transfer_of(ranks)
        return min((one for one in found if one.key == first.key), key=lambda one: one.number)

    def _transfer_of(self, ranks: int) -> Wait | None:
        """Which send or receive others wait in for one of these, the longest first."""
        found = [
            one for one in self.transfers if one.alone and one.peer is not None and ranks >> one.peer & 1
        ]
        first = max(found, key=lambda one: one.waited_s, default=None)
        if first is None or first.peer is None:
            return None
        op = f"the {'send' if first.send else 'receive'} of rank {first.rank}"
        going, absent = 1 << first.rank, 1 << first.peer
        return Wait(first.group, "", first.number, op, op, going, absent, 0, first.waited_s)

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values; :func:`cockpit.base.gate.read` is the reverse."""
        return {
            "at": self.at,
            "heard": mask_text(self.heard),
            "missing": mask_text(self.missing),
            "waits": [
                {
                    **plain(one),
                    "going": mask_text(one.going),
                    "absent": mask_text(one.absent),
                    "unknown": mask_text(one.unknown),
                }
                for one in self.waits
            ],
            "mismatches": [
                {
                    **plain(one),
                    "calls": [{"ranks": mask_text(each.ranks), "call": each.call} for each in one.calls],
                }
                for one in self.mismatches
            ],
            "transfers": plain(self.transfers),
            "silent": dict(self.silent),
        }


def of_look(look: Look, silent: Mapping[int, str], at: float) -> Collectives:
    """What a look at the recorders found.

    :param silent: why recorders say nothing, by rank
    :param at: when they were asked, unix seconds on our clock
    """
    reasons: dict[str, int] = {}
    for rank, why in silent.items():
        reasons[why] = reasons.get(why, 0) | 1 << rank
    differences = look.differences()
    over: dict[Any, int] = {}
    for one in look.collectives:
        if one.complete and not one.going and one.difference is None:
            over[one.group] = max(over.get(one.group, 0), one.number)
    lasting = sorted(look.pairs, key=lambda pair: (not pair.alone, -pair.waited_us))
    return Collectives(
        at,
        look.heard,
        look.missing(SHORT_US),
        tuple(map(_wait, look.open(SHORT_US)[:WAITS])),
        tuple(
            Mismatch(
                group_title(found.group),
                found.number,
                difference.what,
                tuple(Variant(mask, call_text(call)) for mask, call in difference.calls[:1000]),
                bool(found.going),
                found.number > over.get(found.group, 0),
            )
            for found, difference in differences[-DIFFERENCES:]
        ),
        tuple(
            Transfer(
                pair.rank,
                pair.peer,
                pair.entry.call.op == "send",
                pair.entry.number,
                pair.alone,
                pair.waited_us / 1e6,
                group_title(pair.entry.call.group),
            )
            for pair in lasting[:WAITS]
        ),
        {why: mask_text(mask) for why, mask in list(reasons.items())[:1000]},
    )


def _wait(found: Collective) -> Wait:
    return Wait(
        group_title(found.group),
        f"{found.group.backend}:{found.group.name}",
        found.number,
        found.call.op,
        call_text(found.call),
        found.going,
        found.absent,
        found.unknown,
        found.waited_us / 1e6,
        not found.sure and found.going == found.members and found.going.bit_count() == 1,
        next((place for place, _ in found.places(found.going)), ""),
    )


def merged(several: Iterable[Collectives | None]) -> Collectives | None:
    """Of several the one with the most recorders: what one node alone heard says little about the others."""
    known = [one for one in several if one is not None]
    return max(known, key=lambda one: (one.heard.bit_count(), one.at), default=None)
