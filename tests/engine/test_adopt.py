"""Making runs known that only their nodes know: a node names no folder of ours, and no other node's ranks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit import paths
from cockpit.base import verbs
from cockpit.base.answers import RunsAnswer
from cockpit.base.gate import read
from cockpit.engine.records.folder import list_runs
from cockpit.engine.run.join import Errors, adopt
from tests.engine.pools import Fakes, MadeUp

BASE = "/tmp/cockpit-0"


def run(name: str = "run-a", node: str = "n1", **changes: Any) -> dict[str, Any]:
    """A run folder as its node lists it."""
    record = {
        "run": name,
        "node": node,
        "ranks": [0],
        "supervisor": {"pid": 1, "ticks": 1},
        "boot_id": "b",
        "t": 100.0,
        "format": 1,
        "index": 0,
        "launcher": "command",
        "profile": None,
    }
    return {"dir": f"{BASE}/{name}/{node}", "record": {**record, **changes}, "alive": True}


class Node(MadeUp):
    """A node that lists what a test gives it, through the gate."""

    more = 0

    def __init__(self, runs: list[Any]) -> None:
        self.hello = SimpleNamespace(host="h", uid=0, base=BASE)
        self._runs = runs

    async def call(self, request: object) -> RunsAnswer:
        assert isinstance(request, verbs.Runs)
        return read(RunsAnswer, {"runs": self._runs, "more": self.more})


def adopted(nodes: dict[str, list[Any]]) -> tuple[list[str], Errors]:
    """The runs known afterwards, and what was wrong."""
    made = {name: Node(listed) for name, listed in nodes.items()}
    errors = asyncio.run(adopt(Fakes(made), nodes, ""))
    return [folder.name for folder in list_runs()], errors


def test_a_run_is_made_known() -> None:
    two = run(node="n2", ranks=[1], index=1)
    names, errors = adopted({"n1": [run()], "n2": [two]})
    assert (names, errors) == (["run-a"], {})
    (folder,) = list_runs()
    assert [(entry.name, entry.ranks) for entry in folder.manifest.nodes] == [("n1", (0,)), ("n2", (1,))]


def test_runs_that_there_was_no_room_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "more", 7)
    names, errors = adopted({"n1": [run()]})
    assert names == ["run-a"]
    assert str(errors["n1"]) == f"n1: 7 older runs are not listed; remove old runs below {BASE} there"


@pytest.mark.parametrize(
    "name",
    ["../../..", "..", "/etc/cron.d", "a/b", "../escaped", "", ".hidden", "-rf", "a\n", "a" * 65, None, 5],
)
def test_a_run_with_a_name_that_is_none_is_passed_over(name: Any, tmp_path: Path) -> None:
    names, errors = adopted({"n1": [run(name), run()]})
    assert (names, errors) == (["run-a"], {})
    assert [path.name for path in tmp_path.iterdir()] == ["xdg"]
    assert [path.name for path in paths.state().iterdir()] == ["runs"]


@pytest.mark.parametrize(
    "where", ["/etc", f"{BASE}/run-a/../../../etc", f"{BASE}/run-a/..", f"{BASE}/other/n1", "relative", "/"]
)
def test_a_run_folder_elsewhere_is_passed_over(where: str) -> None:
    assert adopted({"n1": [{**run(), "dir": where}]}) == ([], {})


def test_a_node_speaks_for_itself_only() -> None:
    assert adopted({"n1": [run(node="n2")]}) == ([], {})


def test_two_nodes_that_claim_one_rank_are_named() -> None:
    names, errors = adopted({"n1": [run(), run("fine", "n1")], "n2": [run(node="n2", index=1)]})
    assert names == ["fine"]
    assert str(errors["run-a"]) == "run-a: n1 and n2 both claim rank 0"


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": [-1]},
        {"ranks": [1 << 40]},
        {"ranks": "0"},
        {"ranks": list(range(5000))},
        {"t": 1e300},
        {"t": "now"},
        {"index": 10**400},
        {"supervisor": None},
        {"profile": []},
    ],
)
def test_a_record_that_makes_no_sense_hides_no_other(changes: dict[str, Any]) -> None:
    assert adopted({"n1": [run("bad", **changes), run()]}) == (["run-a"], {})
