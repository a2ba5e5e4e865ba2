"""The last calls that ranks noted of which there is no stack: where they were before they fell silent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cockpit.base.answers import NotedCall, RankCalls
from cockpit.core.text import one_line
from cockpit.core.time_text import rounded_span

SHOWN = 12
"""Of one rank, in text."""


def harmless(told: RankCalls) -> RankCalls:
    """The same for a terminal."""
    return replace(told, why=one_line(told.why, limit=200), calls=tuple(map(_harmless, told.calls)))


def _harmless(call: NotedCall) -> NotedCall:
    return replace(call, name=one_line(call.name, limit=200), file=one_line(call.file, limit=200))


def lines(told: Mapping[int, RankCalls]) -> Iterator[str]:
    """What there is to say of each rank; nothing: none notes its calls."""
    for rank, one in sorted(told.items()):
        yield ""
        if one.calls:
            yield f"last calls of rank {rank} (pid {one.pid}), the newest first:"
        if one.why:
            yield f"  rank {rank} notes no calls: {one.why}"
        for call in one.calls[:SHOWN]:
            thread = "" if call.main else "  (another thread)"
            yield f"  {_age(call):>10}  {call.name}  {_place(call)}{thread}"
        if len(one.calls) > SHOWN:
            yield f"  … {len(one.calls) - SHOWN} more with --json"


def _age(call: NotedCall) -> str:
    if call.age_s < 100:
        return f"{call.age_s:.3f} s"
    return rounded_span(call.age_s)


def _place(call: NotedCall) -> str:
    return f"{call.file}:{call.line}" if call.file else ""
