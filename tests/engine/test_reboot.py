"""A machine that was booted anew, and a pod's place that has another container."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.run.reboot import booted, rebooted, why_lost

NOW = time.time()


def seen(
    boot_id: str, age: float | None, transport: str = "ssh", offset: float = 0.0
) -> tuple[Any, Any, Any]:
    """A link to a node whose first process is so old, a run of a minute ago, the node in its manifest."""
    hello = SimpleNamespace(boot_id=boot_id, booted=None if age is None else NOW - age + offset)
    link = SimpleNamespace(hello=hello, clock=SimpleNamespace(offset_s=offset))
    entry = NodeEntry(name="a", dir="/tmp/c/run/a", ranks=[0], transport=transport, facts={"boot_id": "old"})
    return link, SimpleNamespace(created=NOW - 60), entry


@pytest.mark.parametrize(
    ("boot_id", "age", "sure", "words"),
    [
        ("old", 900, False, ""),
        ("new", 30, True, "a was rebooted at "),
        ("new", 9000, False, "a is a different machine now, which was booted at "),
        ("new", None, False, "a was rebooted since the run was started, or is a different machine now"),
    ],
)
def test_a_machine_is_booted_anew(boot_id: str, age: float | None, sure: bool, words: str) -> None:
    found = seen(boot_id, age)
    assert booted(*found) is sure
    assert rebooted(*found).startswith(words)
    assert bool(rebooted(*found)) is bool(words)


@pytest.mark.parametrize("boot_id", ["old", "new"])
def test_another_container_is_named_and_proves_nothing_of_the_first(boot_id: str) -> None:
    """It is on the same machine or another; that of before may run on, if its pod was deleted by force."""
    found = seen(boot_id, 30, "kubectl", offset=500.0)
    assert not booted(*found)
    said = why_lost(*found, "no run record in /tmp/c/run/a: No such file or directory")
    clock = time.strftime("%H:%M:%S", time.localtime(NOW - 30))
    assert said == f"a is a new container, started at {clock}; its run folder in /tmp is gone"


@pytest.mark.parametrize("age", [None, 61])
def test_where_it_is_the_same_container_or_unknown_the_node_is_quoted(age: float | None) -> None:
    """Such as in a pod whose containers share their processes: the first of them outlives a restart."""
    found = seen("new", age, "kubectl")
    assert why_lost(*found, "no run record") == "no run record"
