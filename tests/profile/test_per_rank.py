"""Real nsys around each rank, and around the launcher: whatever ends something early.

docs/profiling.md has the same table; each test here is a cell of it. Without nsys:
``tests/node/test_rank_profiler.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cockpit.base.progress import ring
from cockpit.node.run import reports
from tests import needs
from tests.cli.verbs import Verbs
from tests.profile.test_matrix import small
from tests.profile.training import NODES, Training, agents, training
from tests.waiting import PATIENCE_S, gone, until

__all__ = ["small"]

pytestmark = [pytest.mark.nsys, pytest.mark.slow, pytest.mark.launch]

NODE, RANK = "node", "rank"
KINDS = (NODE, RANK)


@contextmanager
def profiled(folder: Path, around: str, *words: str, **keywords: Any) -> Iterator[Training]:
    """Ranks of two nodes that step below nsys; of the real torch, only where that is said."""
    keywords.setdefault("kind", "stub")
    if keywords["kind"] != "stub":
        needs.require_module("torch")
    if not reports.importers(needs.require("nsys")):
        needs.lacking("nsys has no importer here")
    more = ["--profile", "nsys", "--trace", "osrt", *words, *(["--per-rank"] if around == RANK else [])]
    with training(folder, more=more, **keywords) as made:
        yield made


def nsys_of(ranks: Training, rank: int) -> psutil.Process:
    """The nsys above a rank."""
    for process in psutil.Process(ranks.pid(rank)).parents():
        with contextlib.suppress(psutil.Error):
            if process.name() == "nsys":
                return process
    raise AssertionError(f"no nsys above rank {rank}")


def events(ranks: Training, rank: int, kind: str) -> list[dict[str, Any]]:
    lines = (ranks.node(rank) / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["e"] == kind]


def end_of(ranks: Training, rank: int) -> dict[str, Any]:
    """How a rank ended, as its node recorded it."""

    def found() -> list[dict[str, Any]]:
        return [one for one in events(ranks, rank, "rank_exited") if one["rank"] == rank]

    [end] = until(found, f"the end of rank {rank} is recorded")
    return end


def step_on(ranks: Training, *living: int) -> None:
    for rank in living or ranks.ranks:
        ranks.steps_on(rank)


def done(ranks: Training, *lost: int) -> None:
    """Let the ranks end; what is left of the run: reports that open, but those of some."""
    (ranks.verbs.work / "end").touch()
    over(ranks, *lost)


def over(ranks: Training, *lost: int, killed: bool = False) -> None:
    """The run ends by itself; what is left: reports that open, but those of some, and no process.

    :param lost: ranks without a report; if nsys was around the launcher, all of a node are
    :param killed: nsys was, at any moment: its raw recording may be there
    """
    for rank in ranks.ranks:
        until(partial(events, ranks, rank, "ended"), f"the node of rank {rank} has ended")
    found = ranks.verbs.call("collect", "r")
    raw = {node for node in NODES if killed and any(ranks.folder.glob(f"reports/*-{node}/*.qdstrm"))}
    lost = tuple(rank for rank in lost if ranks.host(rank) not in raw)
    assert found.code == (3 if lost else 0), found.both
    for node in set(NODES) - raw:
        expected: dict[str, set[int]] = {}
        for rank in ranks.ranks:
            if ranks.host(rank) == node and rank not in lost:
                expected.setdefault(name(ranks, rank), set()).add(ranks.pid(rank))
        for rank in lost:
            if ranks.host(rank) == node:
                said = f"rank {rank}: " if expected else "no report: "
                assert f"{node}: {said}" in found.both
        paths = {path.stem: path for path in ranks.folder.glob(f"reports/*-{node}/*.nsys-rep")}
        assert paths.keys() == expected.keys()
        others = {ranks.pid(rank) for rank in ranks.ranks}
        assert {stem: processes(path) & others for stem, path in paths.items()} == expected
    until(lambda: not any(tagged(ranks)), "nothing of it is left")


def name(ranks: Training, rank: int) -> str:
    """How the report of a rank, or of its node, is called."""
    around = (ranks.node(rank) / "around.json").exists()
    return f"r.{ranks.host(rank)}.rank-{rank}" if around else f"r-{ranks.host(rank)}"


def processes(report: Path) -> set[int]:
    """The processes in a report, which opens."""
    database = report.with_suffix(".sqlite")
    words = ["nsys", "export", "--type", "sqlite", "-f", "true", "-o", str(database), str(report)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    with contextlib.closing(sqlite3.connect(database)) as opened:
        rows = opened.execute("select distinct globalTid from OSRT_API").fetchall()
    return {(row[0] >> 24) & 0xFFFFFF for row in rows}


def tagged(ranks: Training) -> Iterator[psutil.Process]:
    """What runs of the run."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            if env.get("COCKPIT_RUN") == "r" and str(ranks.verbs.work) in env.get("COCKPIT_DIR", ""):
                yield process


@pytest.mark.parametrize("kind", KINDS)
def test_links_cockpits_ranks_wrappers_and_an_nsys_end_and_the_others_step_on(
    tmp_path: Path, kind: str
) -> None:
    """One run of three ranks a node, which leaves reports of all but the nsys that was killed.

    Without a NIC of that kind nsys records the rest, and the ranks do not notice.
    """
    with profiled(tmp_path, kind, "--node-sampler", "--nic-metrics=true", slots=3) as ranks:
        around = {rank: nsys_of(ranks, rank) for rank in ranks.ranks}
        for of_node in ((0, 1, 2), (3, 4, 5)):
            nsys = {around[rank] for rank in of_node}
            assert len(nsys) == (3 if kind == RANK else 1)
            assert sum(one.cmdline().count("--nic-metrics=true") for one in nsys) == 1
        both_links_are_cut_and_then_both_agents_killed(ranks)
        both_cockpits_leave(ranks)
        one_rank_is_killed_and_one_fails(ranks, 1, 4)
        step_on(ranks, 0, 2, 3, 5)
        wrapper_is_killed(ranks, 2)
        step_on(ranks, 0, 3, 5)
        if kind == RANK:
            # While one of its node writes a report, another one whose nsys was killed may get its own.
            until(lambda: gone(around[1]) and gone(around[2]), "their reports are written")
        around[0].kill()
        step_on(ranks, 0, 3, 5)
        (ranks.verbs.work / "fail-0").touch()
        until(partial(events, ranks, 0, "ended"), "the first node has ended")
        assert ranks.verbs.call("stop", "r").code == 0
        assert not any(psutil.pid_exists(ranks.pid(rank)) for rank in ranks.ranks)
        over(ranks, *((0,) if kind == RANK else (0, 1, 2)))


def both_links_are_cut_and_then_both_agents_killed(ranks: Training) -> None:
    cut = agents(ranks.watching.pid)
    assert len(cut) == 2
    for agent in cut:
        agent.suspend()
    step_on(ranks)
    for agent in cut:
        agent.kill()
    new = until(lambda: [one for one in agents(ranks.watching.pid) if one not in cut][1:], "links are new")
    for agent in new:
        agent.kill()
    step_on(ranks)


def both_cockpits_leave(ranks: Training) -> None:
    """One by Ctrl-C; one that came back to the run is killed."""
    ranks.watching.send_signal(signal.SIGINT)
    ranks.watching.communicate(timeout=PATIENCE_S)
    step_on(ranks)
    other = ranks.verbs.start("attach", "--plain", "r")
    until(lambda: len(agents(other.pid)) == 2, "both nodes are linked")
    other.kill()
    other.communicate()
    step_on(ranks)


def one_rank_is_killed_and_one_fails(ranks: Training, killed: int, failed: int) -> None:
    """How it ended alone, its wrapper tells."""
    os.kill(ranks.pid(killed), signal.SIGKILL)
    (ranks.verbs.work / f"fail-{failed}").touch()
    end = end_of(ranks, killed)
    assert (end["signal"], end["by"]) == (signal.SIGKILL, "wrapper")
    end = end_of(ranks, failed)
    assert (end["code"], end["by"]) == (3, "wrapper")


def wrapper_is_killed(ranks: Training, rank: int) -> None:
    told = json.loads((ranks.node(rank) / f"rank-{rank}.start.json").read_text())
    process = psutil.Process(ranks.pid(rank))
    os.kill(told["wrapper"], signal.SIGKILL)
    until(lambda: gone(process), f"rank {rank} has ended")


@pytest.mark.parametrize("kind", KINDS)
def test_stop_now(tmp_path: Path, kind: str) -> None:
    with profiled(tmp_path, kind) as ranks:
        stopped = ranks.verbs.call("stop", "r", "--now")
        assert stopped.code == 0, stopped.both
        assert not any(psutil.pid_exists(ranks.pid(rank)) for rank in (0, 1))
        over(ranks, 0, 1, killed=True)


# Each rank has an nsys of its own, and a wrapper that writes beside it: around the launcher there is less.
@pytest.mark.root
@pytest.mark.parametrize("kind", [RANK, pytest.param(NODE, marks=pytest.mark.campaign)])
def test_a_full_disk(kind: str, tmp_path: Path, small: Callable[[], None]) -> None:
    with profiled(tmp_path, kind, nodes=str(tmp_path / "nodes")) as ranks:
        small()
        step_on(ranks)
        done(ranks, 0, 1)


def test_a_sampler_that_nsys_does_not_know_is_refused(tmp_path: Path) -> None:
    """As what nsys 2023 brought for EFA is by 2022.4, before anything is started."""
    needs.require("nsys")
    verbs = Verbs(tmp_path / "state", tmp_path)
    words = verbs.words("r", "touch started\n")
    options = ["--profile", "nsys", "--node-sampler", "--unknown_metrics=efa"]
    refused = verbs.call(words[0], *options, *words[1:])
    assert refused.code == 3, refused.both
    assert "nsys there does not know --unknown_metrics" in refused.err
    assert "nsys profile --help" in refused.err
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    "launcher",
    ["command", *(pytest.param(each, marks=pytest.mark.campaign) for each in ("deepspeed", "torchrun"))],
)
def test_steps_of_ranks_that_train(tmp_path: Path, launcher: str) -> None:
    """The asked steps are in each report, and only the rank's, which answers as without nsys."""
    needs.require_module("deepspeed" if launcher == "deepspeed" else "torch")
    with profiled(tmp_path, RANK, "--profile-steps", "60-63", launcher=launcher, kind="gloo") as ranks:
        found = ranks.verbs.call("stacks", "r")
        assert "train.py" in found.out, found.both
        assert "(0-1 inspected)" in found.out, found.both
        for rank in (0, 1):
            parent = psutil.Process(ranks.pid(rank)).parent()
            assert parent is not None
            assert "inner" in parent.cmdline()
            assert os.getpgid(ranks.pid(rank)) == ranks.pid(rank)
        for rank in (0, 1):
            until(partial(_past, ranks, rank, 70), f"rank {rank} is past them")
        records = [ring.read(ranks.ring_of(rank)).steps for rank in (0, 1)]
        done(ranks)
        for rank in (0, 1):
            told_and_contained(ranks, rank, records[rank], 60, 63)


def test_steps_of_two_ranks_a_node_and_a_wrapper_that_is_killed_before(tmp_path: Path) -> None:
    """Each report has its own rank, and not that of the neighbour."""
    with profiled(tmp_path, RANK, "--profile-steps", "120-122", step_s=0.1, slots=2) as ranks:
        wrapper_is_killed(ranks, 3)
        # Nor can it be recorded in between.
        refused = ranks.profile("--kind", "nsys")
        assert refused.code == 2
        assert "it was not launched with --profile nsys-ready" in refused.err
        assert "next time: cockpit run --profile nsys-ready" in refused.err
        for rank in (0, 1, 2):
            until(partial(_past, ranks, rank, 130), f"rank {rank} is past them")
        records = [ring.read(ranks.ring_of(rank)).steps for rank in (0, 1, 2)]
        done(ranks, 3)
        for rank in (0, 1, 2):
            told_and_contained(ranks, rank, records[rank], 120, 122)


def _past(ranks: Training, rank: int, step: int) -> bool:
    return ranks.step(rank) > step


def told_and_contained(
    ranks: Training, rank: int, steps: tuple[ring.Step, ...], begin: int, end: int
) -> None:
    """It is said that a report holds these steps, and it does."""
    texts = [one["text"] for one in events(ranks, rank, "note")]
    [told] = [text for text in texts if text.startswith(f"rank {rank}: its report holds steps ")]
    first, last = (int(word) for word in told.split(" whole")[0].split("steps ")[1].split(" to "))
    assert first <= begin
    assert last >= end
    [path] = ranks.folder.glob(f"reports/*/{name(ranks, rank)}.sqlite")
    _contains(path, steps, begin, end)


def _contains(database: Path, steps: tuple[ring.Step, ...], begin: int, end: int) -> None:
    """The calls in a report span these steps, by the wall clock: a step is recorded when it ends, and the one
    call of a step, its sleep, ends before that.
    """
    wall = {step.step: step.wall_ns for step in steps}
    with contextlib.closing(sqlite3.connect(database)) as opened:
        [[zero]] = opened.execute("select utcEpochNs from TARGET_INFO_SESSION_START_TIME").fetchall()
        [[first, last]] = opened.execute("select min(start), max(end) from OSRT_API").fetchall()
    assert zero + first <= wall[begin]
    assert zero + last > wall[end - 1]
