"""Walls taken away, one at a time: a campaign that then finds nothing proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cockpit.base import gate
from cockpit.core import text
from cockpit.core.run import events


def _unbounded_whole(self: gate.Whole, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and self.least <= value:
        return value
    raise gate.Malformed("no integer")


def _unbounded_number(self: gate.Number, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise gate.Malformed("no number")


def _any_text(self: gate.Text, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise gate.Malformed("no text")


def _any_length(self: gate.ListOf, value: Any) -> tuple[Any, ...]:
    if isinstance(value, list):
        return tuple(self.kind.read(each) for each in value)
    raise gate.Malformed("no list")


BOUNDS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "most": (gate.Whole, "read", _unbounded_whole),
    "finite": (gate.Number, "read", _unbounded_number),
    "text": (gate.Text, "read", _any_text),
    "entries": (gate.ListOf, "read", _any_length),
    "own ranks": (
        events.RecordReader,
        "_own",
        lambda self, line: events.Event(line.t, self._node, line.fact),
    ),
    "sanitiser": (text, "_clean", lambda text, colour: text),
}
"""What can be taken away: who has it, its name there, and what is in its place then."""


def remove(name: str) -> None:
    """Take one bound away, for as long as this process lives."""
    owner, attribute, instead = BOUNDS[name]
    setattr(owner, attribute, instead)
