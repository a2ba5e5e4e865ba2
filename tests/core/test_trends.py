"""Trends: the last points of every measurement, whatever a node sends."""

from __future__ import annotations

from typing import Any

from cockpit.core.run.trends import LIMIT, Trends
from tests.happened import happened


def trends(*samples: tuple[str, dict[str, Any]]) -> Trends:
    """Of ranks 0, 1 on a and 2 on b, after these samples (node, data)."""
    made = Trends()
    made.take(happened(0.0, "planned", "", {"nodes": {"a": [0, 1], "b": [2]}}))
    for at, (node, data) in enumerate(samples):
        made.take(happened(float(at), "sample", node, data))
    return made


def sample(cpu: object = 50.0, rank: str = "0") -> dict[str, Any]:
    return {
        "sample": {"load": 1.5, "memory_bytes": 2 << 30, "disk_free_bytes": 7},
        "ranks": {rank: {"cpu_percent": cpu, "rss_bytes": 1 << 30, "threads": 3}},
        "gpus": [{"index": 0, "utilisation_percent": 97, "memory_bytes": 40 << 30}],
    }


def test_what_was_measured_newest_last() -> None:
    seen = trends(("a", sample(10)), ("a", sample(20.5)))
    assert seen.rank(0, "cpu_percent") == (10, 20.5)
    assert seen.rank(0, "rss_bytes") == (1 << 30, 1 << 30)
    assert seen.node("a", "load") == (1.5, 1.5)
    assert seen.node("a", "memory_bytes")[-1] == 2 << 30
    assert seen.gpu("a", 0, "utilisation_percent") == (97, 97)
    assert seen.gpu("a", 0, "memory_bytes")[-1] == 40 << 30


def test_nothing_known_is_empty() -> None:
    seen = trends()
    assert not seen.rank(0, "cpu_percent")
    assert not seen.rank(99, "cpu_percent")
    assert not seen.node("nowhere", "load")
    assert not seen.gpu("a", 3, "memory_bytes")


def test_the_oldest_go_first() -> None:
    seen = trends(*(("a", sample(number)) for number in range(LIMIT + 5)))
    assert seen.rank(0, "cpu_percent") == tuple(range(5, LIMIT + 5))


def test_a_node_speaks_for_its_own_ranks_only() -> None:
    seen = trends(("a", sample(10)), ("b", sample(99)), ("nobody", sample(99)))
    seen.take(happened(5.0, "rank_started", "b", {"rank": 0}))
    assert seen.rank(0, "cpu_percent") == (10,)
    assert not seen.node("nobody", "load")


def test_another_attempt_begins_anew() -> None:
    seen = trends(("a", sample(10)))
    seen.take(happened(5.0, "rank_started", "a", {"rank": 0, "attempt": 1}))
    assert not seen.rank(0, "cpu_percent")
    assert seen.node("a", "load") == (1.5,)
