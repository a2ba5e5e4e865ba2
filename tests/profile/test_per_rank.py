"""Real nsys around each rank, and around the launcher: whatever ends something early.

docs/profiling.md has the same table; each test here is a cell of it. Without nsys:
``tests/node/test_around.py``.
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
from tests.profile.training import NODES, Training, agents, gone, training
from tests.waiting import PATIENCE_S, until

__all__ = ["small"]

pytestmark = [pytest.mark.nsys, pytest.mark.slow, pytest.mark.launch]

NODE, RANK = "node", "rank"
KINDS = (NODE, RANK)


@contextmanager
def profiled(folder: Path, around: str, *words: str, **keywords: Any) -> Iterator[Training]:
    """Two ranks that step below nsys; of the real torch, only where that is said."""
    keywords.setdefault("kind", "stub")
    if keywords["kind"] != "stub":
        needs.require_module("torch")
    if not reports.importers(needs.require("nsys")):
        needs.lacking("nsys has no importer here")
    more = ["--profile", "nsys", "--trace", "osrt", *words, *(["--per-rank"] if around == RANK else [])]
    with training(folder, more=more, **keywords) as made:
        yield made


# Around the launcher is what every run with a profiler has: other tests have it, too.
@pytest.fixture(params=[pytest.param(NODE, marks=pytest.mark.long), RANK])
def ranks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Training]:
    """For each kind."""
    with profiled(tmp_path, request.param) as made:
        yield made


def per_rank(ranks: Training) -> bool:
    return (ranks.node(0) / "around.json").exists()


def name(ranks: Training, rank: int) -> str:
    """How the report of a rank, or of its node, is called."""
    return f"r.{NODES[rank]}.rank-{rank}" if per_rank(ranks) else f"r-{NODES[rank]}"


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


def done(ranks: Training, *lost: int) -> None:
    """Let the ranks end; what is left of the run: reports that open, but those of some."""
    (ranks.verbs.work / "end").touch()
    over(ranks, *lost)


def over(ranks: Training, *lost: int) -> None:
    """The run ends by itself; what is left: reports that open, but those of some, and no process."""
    for rank in (0, 1):
        until(partial(events, ranks, rank, "ended"), f"node {rank} has ended")
    found = ranks.verbs.call("collect", "r")
    assert found.code == (3 if lost else 0), found.both
    for rank in (0, 1):
        paths = list(ranks.folder.glob(f"reports/*-{NODES[rank]}/*.nsys-rep"))
        if rank in lost:
            assert paths == []
            assert f"{NODES[rank]}: no report: " in found.both
            continue
        assert [path.stem for path in paths] == [name(ranks, rank)]
        pids = processes(paths[0])
        assert ranks.pid(rank) in pids
        assert ranks.pid(1 - rank) not in pids
    until(lambda: not any(tagged(ranks)), "nothing of it is left")


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


def test_ctrl_c(ranks: Training) -> None:
    ranks.watching.send_signal(signal.SIGINT)
    ranks.watching.communicate(timeout=PATIENCE_S)
    for rank in (0, 1):
        ranks.steps_on(rank)
    done(ranks)


@pytest.mark.long
def test_kill_9_of_cockpit(ranks: Training) -> None:
    ranks.watching.kill()
    ranks.watching.communicate()
    for rank in (0, 1):
        ranks.steps_on(rank)
    done(ranks)


@pytest.mark.long
def test_kill_9_of_an_agent(ranks: Training) -> None:
    for agent in agents(ranks.watching.pid):
        agent.kill()
    for rank in (0, 1):
        ranks.steps_on(rank)
    done(ranks)


@pytest.mark.long
def test_a_cut_link(ranks: Training) -> None:
    cut = agents(ranks.watching.pid)
    for agent in cut:
        agent.suspend()
    for rank in (0, 1):
        ranks.steps_on(rank)
    for agent in cut:
        agent.kill()
    done(ranks)


@pytest.mark.long
def test_a_profiled_rank_is_killed(ranks: Training) -> None:
    os.kill(ranks.pid(1), signal.SIGKILL)
    until(lambda: events(ranks, 1, "rank_exited"), "its end is recorded")
    [end] = events(ranks, 1, "rank_exited")
    assert (end["signal"], end["by"]) == (signal.SIGKILL, "wrapper")
    ranks.steps_on(0)
    done(ranks)


@pytest.mark.long
def test_a_rank_fails(ranks: Training) -> None:
    (ranks.verbs.work / "fail-1").touch()
    until(lambda: events(ranks, 1, "rank_exited"), "its end is recorded")
    [end] = events(ranks, 1, "rank_exited")
    assert (end["code"], end["by"]) == (3, "wrapper")
    ranks.steps_on(0)
    done(ranks)


@pytest.mark.long
def test_kill_9_of_nsys(ranks: Training) -> None:
    nsys_of(ranks, 1).kill()
    for rank in (0, 1):
        ranks.steps_on(rank)
    done(ranks, 1)


@pytest.mark.long
def test_stop(ranks: Training) -> None:
    assert ranks.verbs.call("stop", "r").code == 0
    assert not any(psutil.pid_exists(ranks.pid(rank)) for rank in (0, 1))
    over(ranks)


@pytest.mark.long
def test_stop_now(ranks: Training) -> None:
    stopped = ranks.verbs.call("stop", "r", "--now")
    assert stopped.code == 0, stopped.both
    assert not any(psutil.pid_exists(ranks.pid(rank)) for rank in (0, 1))
    over(ranks, 0, 1)


@pytest.mark.few(1, "long")
@pytest.mark.root
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk(kind: str, tmp_path: Path, small: Callable[[], None]) -> None:
    with profiled(tmp_path, kind, nodes=str(tmp_path / "nodes")) as ranks:
        small()
        for rank in (0, 1):
            ranks.steps_on(rank)
        done(ranks, 0, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "words"),
    [(NODE, ()), (RANK, ()), (RANK, ("--profile-steps", "100000-100001"))],
    ids=["node", "whole", "steps"],
)
def test_a_wrapper_takes_its_rank_with_it(tmp_path: Path, kind: str, words: tuple[str, ...]) -> None:
    with profiled(tmp_path, kind, *words) as ranks:
        told = json.loads((ranks.node(1) / "rank-1.start.json").read_text())
        rank = psutil.Process(ranks.pid(1))
        os.kill(told["wrapper"], signal.SIGKILL)
        until(lambda: gone(rank), "the rank has ended")
        ranks.steps_on(0)
        done(ranks, *((0, 1) if words else ()))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_what_nsys_knows_of_nics_is_in_one_report_of_a_node(tmp_path: Path, kind: str) -> None:
    """Without such a NIC nsys records the rest, and the ranks do not notice."""
    with profiled(tmp_path, kind, "--node-sampler", "--nic-metrics=true") as ranks:
        for rank in (0, 1):
            assert nsys_of(ranks, rank).cmdline().count("--nic-metrics=true") == 1
            ranks.steps_on(rank)
        done(ranks)


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


@pytest.mark.long
def test_a_rank_answers_as_without_nsys(tmp_path: Path) -> None:
    # Of the real torch: its server answers, too.
    with profiled(tmp_path, RANK, kind="alone") as ranks:
        found = ranks.verbs.call("stacks", "r")
        assert "train.py" in found.out, found.both
        assert "(0-1 inspected)" in found.out, found.both
        for rank in (0, 1):
            parent = psutil.Process(ranks.pid(rank)).parent()
            assert parent is not None
            assert "inner" in parent.cmdline()
            assert os.getpgid(ranks.pid(rank)) == ranks.pid(rank)
        done(ranks)


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_steps(tmp_path: Path, launcher: str) -> None:
    """The asked steps are in each report, and only the rank's."""
    needs.require_module(launcher.replace("torchrun", "torch"))
    with profiled(tmp_path, RANK, "--profile-steps", "60-63", launcher=launcher, kind="gloo") as ranks:
        for rank in (0, 1):
            until(partial(_past, ranks, rank), f"rank {rank} is past them")
        records = [ring.read(ranks.ring_of(rank)).steps for rank in (0, 1)]
        done(ranks)
        for rank in (0, 1):
            [told] = [one["text"] for one in events(ranks, rank, "note") if "holds steps" in one["text"]]
            assert f"rank {rank}: its report holds steps " in told
            first, last = (int(word) for word in told.split(" whole")[0].split("steps ")[1].split(" to "))
            assert first <= 60
            assert last >= 63
            [path] = ranks.folder.glob(f"reports/*-{NODES[rank]}/*.sqlite")
            _contains(path, records[rank], 60, 63)


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("--profile-steps", "20-22")], ids=["whole", "steps"])
def test_two_ranks_a_node(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Each report has its own rank, and not that of the neighbour."""
    needs.require_module("torch")
    how = {"launcher": "torchrun", "step_s": 0.2, "slots": 2}
    with profiled(tmp_path, RANK, *words, **how) as ranks:
        until(lambda: all(ranks.step(rank) > 25 for rank in ranks.ranks), "all are past them")
        pids = {rank: ranks.pid(rank) for rank in ranks.ranks}
        records = {rank: ring.read(ranks.ring_of(rank)).steps for rank in ranks.ranks}
        (ranks.verbs.work / "end").touch()
        for rank in ranks.ranks:
            until(partial(events, ranks, rank, "ended"), "its node has ended")
        assert ranks.verbs.call("collect", "r").code == 0
        for rank, pid in pids.items():
            stem = f"r.{ranks.host(rank)}.rank-{rank}"
            [path] = ranks.folder.glob(f"reports/*-{ranks.host(rank)}/{stem}.nsys-rep")
            assert processes(path) & set(pids.values()) == {pid}
            if words:
                _contains(path.with_suffix(".sqlite"), records[rank], 20, 22)
        until(lambda: not any(tagged(ranks)), "nothing of it is left")


def _past(ranks: Training, rank: int) -> bool:
    return ranks.step(rank) > 70


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
