"""A real hang: four ranks with torch and gloo, one of which does not enter a collective."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.cli.verbs import HERE, Verbs
from tests.lab.lab import REPO
from tests.waiting import until
from tests.warm import Warm

TOY = str(REPO / "tests/recorder/toy.py")


@pytest.mark.slow
@pytest.mark.launch
def test_the_rank_that_is_missing_is_named(
    warmed: Warm, quick_cockpit: tuple[str, ...], tmp_path: Path
) -> None:
    needs.require_module("torch")
    verbs = Verbs(tmp_path / "state", tmp_path, quick_cockpit)
    (tmp_path / "hosts").write_text("localhost slots=4\n")
    where = ["--cwd", str(tmp_path), "--node-dir", str(tmp_path / "nodes"), "--name", "hung"]
    words = ["run", "--headless", *HERE, *where, str(tmp_path / "hosts"), "--", warmed.python, TOY, "missing"]
    process = verbs.begin(*words, env={"OMP_NUM_THREADS": "1"})
    try:
        until(lambda: "hangs" in _printed(tmp_path, 3), "rank 3 hangs")
        told = until(lambda: _waiting(verbs), "the others wait")
        assert told["missing"] == "3"
        waits = {(one["group"], one["number"]): one for one in told["waits"]}
        bucket, world = waits["4", 50], waits["0", 13]
        assert (bucket["op"], bucket["inputs"], bucket["members_sure"]) == ("all_reduce", 2000, False)
        assert (bucket["waiting"], bucket["absent"]) == ("1", "3")
        assert (world["waiting"], world["absent"], world["members"]) == ("0,2", "1,3", "0-3")
    finally:
        verbs.call("stop", "hung", "--now")
        process.kill()
        process.communicate()


def _waiting(verbs: Verbs) -> dict[str, Any]:
    done = verbs.call("stacks", "hung", "--samples", "1", "--json")
    told: dict[str, Any] = json.loads(done.out)["collectives"]
    waits = {one["group"]: one["waiting"] for one in told["waits"]}
    # Until all three are in the call in which they hang, the answer is about fewer of them.
    return told if (told["missing"], waits) == ("3", {"4": "1", "0": "0,2"}) else {}


def _printed(folder: Path, rank: int) -> str:
    return "".join(log.read_text() for log in folder.glob(f"nodes/*/hung/*/rank-{rank}.log"))
