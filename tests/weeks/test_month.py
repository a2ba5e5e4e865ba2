"""What a month of a node takes is bounded, and known to its end; with a thinning off it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.base import record, times
from cockpit.engine.run import paces
from tests.weeks.month import Load, attach, local_month, node_month, size

LOAD = Load(ranks=2, days=2.0, step_s=20.0, busy_s=600.0)
LIMIT = 64 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little room, for days in place of months."""
    monkeypatch.setattr(times, "LIMIT", LIMIT)
    monkeypatch.setattr(paces, "LIMIT", 1 << 20)


def too_much(top: Path) -> list[str]:
    """What does not fit, or is not known."""
    node = top / "node"
    node.mkdir()
    node_month(node, LOAD)
    folder = local_month(LOAD, node, 2)
    cost, found = attach(folder), list[str]()
    if (node / record.TIMES).stat().st_size > LIMIT + (8 << 10):
        found.append("the time index")
    if size(node) > LIMIT + LOAD.ranks * (330 << 10):
        found.append("the node")
    if size(folder.path) > 2 * LIMIT + (2 << 20):
        found.append("here")
    if cost.moments > 2 * 4000:
        found.append("moments to read")
    if cost.last < LOAD.end - 1:
        found.append("the end is not known")
    return found


@pytest.mark.slow
def test_a_month_fits(tmp_path: Path) -> None:
    assert too_much(tmp_path) == []


@pytest.mark.slow
def test_without_thinning_it_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "thinned", lambda data, limit: data)
    assert {"the time index", "the end is not known"} <= {*too_much(tmp_path)}
