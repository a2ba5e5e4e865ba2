"""A run whose folder was removed while it ran: what runs is found by its tags, told and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.run import launch as launching
from cockpit.node.run import leftovers, status
from cockpit.node.run.follow import follow
from tests.node.conftest import Launch
from tests.node.runs import Run, alive, command, program
from tests.waiting import until, until_removed

RANK = """trap 'exit 0' TERM
echo ready
sleep 1000 &
wait
"""


@pytest.fixture
def run(launch: Launch, tmp_path: Path) -> Iterator[Run]:
    """Two ranks that run; what they need is elsewhere, and whatever is left of them is ended."""
    run = launch(command(2, program(tmp_path / "rank", RANK)))
    for rank in (0, 1):
        run.says(rank, "ready")
        run.event("rank_started", rank=rank)
        until((run.folder / record.rank_environ(rank)).exists, "all that is written at a start")
    yield run
    ended(run)


def ended(run: Run) -> None:
    """End what is left of a run, without any of our own code that ends runs."""
    while left := procfs.tagged(run.run, run.node):
        for one in left:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
    until(lambda: not alive(run.started["pid"]), "the supervisor ended")


def identities(run: Run) -> list[dict[str, int]]:
    """The processes of the ranks, as their wrappers told."""
    starts = sorted(run.events("rank_started"), key=lambda start: int(start["rank"]))
    return [{name: start[name] for name in ("rank", "pid", "ticks")} for start in starts]


def test_a_child_that_is_gone_by_now_is_no_rank(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that recorded an environment when the children were listed may have ended since."""
    want = identities(run)
    first = run.event("rank_started", rank=0)["wrapper"]
    with subprocess.Popen(["sleep", "1000"]) as passing:
        gone = procfs.stat(passing.pid)
        passing.kill()
    found = procfs.children()
    monkeypatch.setattr(procfs, "children", lambda: {**found, first: [*found[first], gone]})
    assert leftovers.find(str(run.folder), run.run, run.node).told("")["ranks"] == want


def test_a_recorder_that_is_ending_is_no_rank(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments are gone before it is: it looks like anybody's child then."""
    want = identities(run)
    first = run.event("rank_started", rank=0)["wrapper"]
    with subprocess.Popen(["sleep", "1000"]) as ending:
        younger = procfs.stat(ending.pid)
        found = procfs.children()
        monkeypatch.setattr(procfs, "children", lambda: {**found, first: [*found[first], younger]})
        assert leftovers.find(str(run.folder), run.run, run.node).told("")["ranks"] == want
        ending.kill()


def call(run: Run, /, **fields: Any) -> tuple[Call, list[dict[str, Any]]]:
    """A request about the run that is cancelled after its first item, and the items."""
    items: list[dict[str, Any]] = []

    def send(header: dict[str, Any], payload: bytes) -> None:
        items.append(header["item"])
        made.cancel()

    made = Call({"id": 1, "dir": str(run.folder), "run": run.run, "node": run.node, **fields}, b"", send)
    return made, items


def wipe(run: Run, *, supervisor: bool = True) -> None:
    """Remove the run folder and all above it; with ``supervisor`` that lives on."""
    if not supervisor:
        os.kill(run.started["pid"], signal.SIGKILL)
        until(lambda: not alive(run.started["pid"]), "the supervisor is gone")
    until_removed(run.folder.parents[1])


@pytest.mark.parametrize("supervisor", [True, False])
def test_ranks_that_run_are_told(run: Run, supervisor: bool) -> None:
    want = identities(run)
    wipe(run, supervisor=supervisor)
    answer = status.status(call(run)[0])
    assert (answer["record"], answer["events"], answer["alive"]) == (None, [], supervisor)
    assert answer["gone"]["ranks"] == want
    assert {one["pid"] for one in want} <= {one["pid"] for one in answer["gone"]["processes"]}
    assert f"no run record in {run.folder}" in answer["gone"]["why"]
    made, items = call(run, offsets={}, credit=0)
    follow(made)
    assert (items[0]["parts"], items[0]["sizes"], items[0]["alive"]) == ([], {}, supervisor)
    assert items[0]["gone"]["ranks"] == answer["gone"]["ranks"]


def test_who_follows_is_told_at_once_that_the_folder_is_gone(run: Run) -> None:
    want = identities(run)
    items: list[dict[str, Any]] = []

    def send(header: dict[str, Any], payload: bytes) -> None:
        items.append(header["item"])
        if len(items) == 1:
            wipe(run)
        elif "gone" in header["item"]:
            made.cancel()

    made = Call({"id": 1, "dir": str(run.folder), "run": run.run, "node": run.node}, b"", send)
    made.add_credit(1 << 20)
    follow(made)
    assert {one["pid"] for one in items[-1]["gone"]["ranks"]} == {one["pid"] for one in want}


def test_who_records_an_environment_is_no_rank(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapper's own child looks like a wrapper, which is what stands in for one here."""
    want = identities(run)
    first, second = (run.event("rank_started", rank=rank)["wrapper"] for rank in (0, 1))
    other = procfs.stat(second)
    found = procfs.children()
    monkeypatch.setattr(procfs, "children", lambda: {**found, first: [*found[first], other]})
    assert leftovers.find(str(run.folder), run.run, run.node).told("")["ranks"] == want


def test_a_rank_that_ended_is_no_longer_told(run: Run) -> None:
    first, second = identities(run)
    wipe(run)
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: not alive(first["pid"]), "the rank ended")
    assert status.status(call(run)[0])["gone"]["ranks"] == [second]


@pytest.mark.few(1)
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("supervisor", [True, False])
def test_stop_ends_them(run: Run, supervisor: bool, hard: bool) -> None:
    pids = [one["pid"] for one in identities(run)]
    wipe(run, supervisor=supervisor)
    answer = launching.stop(call(run, reason="test", by="me", hard=hard)[0])
    sent = ("KILL" if hard else "TERM") if supervisor else ""
    assert answer == {"alive": supervisor, "survivors": [], "sent": sent}
    until(lambda: not any(map(alive, pids)), "the ranks ended")
    until(lambda: not alive(run.started["pid"]), "the supervisor ended")
    assert not procfs.tagged(run.run, run.node)
    # Nothing is left: there is nothing to tell, and nothing to stop.
    with pytest.raises(NodeError, match="no run record in"):
        status.status(call(run)[0])
    with pytest.raises(NodeError, match="no run record in"):
        follow(call(run)[0])
    assert launching.stop(call(run)[0]) == {"alive": False, "survivors": [], "sent": ""}


def test_survivors_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wipe(run, supervisor=False)
    # What SIGKILL does not end waits in the kernel, which no test can bring about.
    monkeypatch.setattr(procfs, "send", lambda pid, ticks, number: True)
    monkeypatch.setattr("cockpit.node.run.stopping.SWEEP_S", 0.05)
    monkeypatch.setattr("cockpit.node.run.stopping.SLOW_S", 0.05)
    answer = launching.stop(call(run)[0])
    assert answer["alive"] is False
    left = {one.pid for one in procfs.tagged(run.run, run.node)}
    assert left
    assert {one["pid"] for one in answer["survivors"]} == left
    assert all(one["name"] and one["state"] for one in answer["survivors"])


def test_a_cockpit_that_names_no_run_is_told_that_the_folder_is_gone(run: Run) -> None:
    wipe(run)
    for verb in (status.status, launching.stop, follow):
        with pytest.raises(NodeError) as caught:
            verb(call(run, run="", node="")[0])
        assert caught.value.kind == "gone"
    assert status.status(call(run)[0])["alive"] is True


def test_other_runs_and_nodes_are_left_alone(run: Run, launch: Launch, tmp_path: Path) -> None:
    script = command(1, tmp_path / "rank")
    elsewhere = {"run": run.run, "node": "node2", "dir": str(tmp_path / "other/b/node2")}
    others = [launch(script, dir=str(tmp_path / "other/a/node1")), launch(script, **elsewhere)]
    for other in others:
        other.says(0, "ready")
    wipe(run, supervisor=False)
    launching.stop(call(run, hard=True)[0])
    assert not procfs.tagged(run.run, run.node)
    for other in others:
        assert alive(other.started["pid"])
        assert leftovers.find(str(other.folder), other.run, other.node).ranks


def test_a_process_that_only_looks_like_a_supervisor_of_somebody_else(tmp_path: Path) -> None:
    folder = str(tmp_path / "run" / "node1")
    words = ["/x/node.pyz", "supervise", folder]
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()", *words], stdin=subprocess.PIPE)
    try:
        # Not at the place where ours has it.
        assert leftovers.find(folder, "no-such-run", "node1").supervisor is None
    finally:
        process.communicate(b"\n")
    assert record.NODE_PYZ == "node.pyz"
