"""The ranks of a snapshot on disk: where each is, and what became of it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from cockpit.base import gate
from cockpit.base.events import CODE, SIGNAL
from cockpit.base.gate import Definition, FieldKind, Maybe, Of, Text, Whole, bound, maybe
from cockpit.core.stacks.fate import End, Fate
from cockpit.core.stacks.snapshot import Place
from cockpit.core.text import one_line

_MOST = Text(100_000)


class _Words(FieldKind):
    """Text, made harmless."""

    def read(self, value: Any) -> str:
        return one_line(_MOST.read(value))


WORDS = _Words()
"""Such text."""


class _End(Definition):
    fate: str = bound(Text(20, "|".join(each.value for each in Fate)))
    code: int | None = maybe(CODE)
    signal: int | None = maybe(SIGNAL)
    why: str = bound(WORDS, "")


class PlaceJson(Definition):
    """A rank in ``snapshot.json``."""

    node: str = bound(WORDS)
    local_rank: int | None = bound(Maybe(Whole(0, gate.RANK_LIMIT)))
    pid: int | None = bound(Maybe(gate.PID))
    why: str = bound(WORDS)
    ns_pid: int | None = maybe(gate.PID)
    inferred: str = bound(WORDS, "")
    ended_at: float | None = maybe(gate.TIME)
    end: _End | None = maybe(Of(_End))

    @property
    def place(self) -> Place:
        """It, with the fact that an older file has as a sentence only."""
        told = self.end
        end = _end_of(self.why) if told is None else End(Fate(told.fate), told.code, told.signal, told.why)
        return Place(**{**vars(self), "end": end})


def place_json(place: Place) -> dict[str, Any]:
    """As it is written."""
    end = place.end
    return {**asdict(place), "end": end and {**end._asdict(), "fate": end.fate.value}}


# Files that have it only as the sentences of those who wrote them.

_EXITED = re.compile(r"exited (-?\d{1,9})")
_KILLED = re.compile(r"killed by (?:(SIG\w{1,20})|signal (\d{1,3}))")
_LOST = re.compile(r"lost(?:: (.*))?", re.DOTALL)
_TWICE = re.compile(r"rank (\d{1,6}) is there twice")
_STATES = {"waiting": Fate.UNSTARTED, "starting": Fate.UNSTARTED}


def _end_of(why: str) -> End | None:
    """The same from an older file, which has it in words; None: it is there."""
    if not why:
        return None
    if found := _EXITED.match(why):
        return End(Fate.EXITED, code=int(found.group(1)))
    if found := _KILLED.match(why):
        name, number = found.groups()
        known = signal.Signals.__members__.get(name or "")
        return End(Fate.KILLED, signal=int(number) if number else known)
    if found := _LOST.match(why):
        return End(Fate.LOST, why=found.group(1) or "")
    return End(_STATES.get(why, Fate.GONE if why.startswith("gone") else Fate.UNSEEN))


def twice_of(problems: Iterable[str]) -> dict[int, str]:
    """The same from an older file, which has only the sentences."""
    return {int(found.group(1)): text for text in problems if (found := _TWICE.match(text))}
