"""Events for tests, by the names of their kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.base.events import OWN, RECORD, read_line
from cockpit.core.run.events import Event


def happened(at: float, kind: str, node: str, fields: Mapping[str, Any]) -> Event:
    """An event of any kind.

    :raises AssertionError: there is no such kind
    :raises Malformed: a field is not what it should be
    """
    line = read_line({**fields, "t": at, "e": kind}, {**RECORD, **OWN})
    assert line is not None, f"no kind of event: {kind}"
    return Event(line.t, node, line.fact)
