"""Runs that earlier versions recorded, or have still running, are to this one what they were to those."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cockpit.engine.links import payload
from cockpit.node import procfs
from tests.golden import folders
from tests.golden.folders import (
    FORMATS,
    NODES,
    SCENARIOS,
    cockpit,
    differences,
    environment,
    fill,
    local_folder,
    node_folder,
    shown,
    states,
)
from tests.needs import lacking
from tests.stderr_lines import messages
from tests.waiting import PATIENCE_S, until

REWORDED = {
    "its supervisor was killed: exits of ranks may go unrecorded": (
        "supervisor was killed; rank exits may not be recorded"
    ),
}
"""Sentences that are said in other words since then."""


@pytest.fixture(autouse=True)
def quick(quick_cockpit: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "COCKPIT", quick_cockpit)


formats = pytest.mark.parametrize("recorded", FORMATS, ids=lambda path: path.name)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_all_is_spooled(top: Path, run: str) -> None:
    """What is here is byte for byte what the nodes have."""
    spools = sorted((local_folder(top, run) / "spool").iterdir())
    assert [path.name for path in spools] == [f"{number:04d}-{name}" for number, name in enumerate(NODES)]
    for node, spool in zip(NODES, spools, strict=True):
        there = files(node_folder(top, run, node))
        followed = [name for name in there if name.endswith((".log", ".jsonl")) and there[name]]
        followed = [name for name in followed if name != "supervisor.log"]
        assert len(followed) >= 4
        here = files(spool)
        for name in followed:
            assert here[name] == there[name], name


def test_there_is_something_recorded() -> None:
    assert [path.name for path in FORMATS][:1] == ["format1"]


@formats
def test_what_is_recorded_tells_nothing_of_a_machine(recorded: Path) -> None:
    # Paths of persons and of temporary files, boot ids, names of hosts and of persons.
    told = re.compile(
        rb"/(?:home|root|tmp)\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
        rb'|"(?:host|by)": "(?!@|wrapper"|the failure policy")'
    )
    for name, data in files(recorded).items():
        assert name == "node.pyz" or not told.search(data), name


@pytest.mark.few(1)
@formats
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_run_of_then_is_shown_as_it_was_then(recorded: Path, scenario: str, tmp_path: Path) -> None:
    run = fill(recorded, scenario, tmp_path)
    on_nodes = {node: files(node_folder(tmp_path, run, node)) for node in NODES}
    text = (recorded / scenario / "shown.json").read_text()
    for old, new in REWORDED.items():
        text = text.replace(old, new)
    then = json.loads(text)
    if scenario == "left":
        # What tells an end has copied what goes with it.
        then["before"]["run"]["nodes"] = [{**one, "complete": True} for one in then["before"]["run"]["nodes"]]
    assert differences(then, shown(tmp_path, run)) == []
    assert_all_is_spooled(tmp_path, run)
    for node in NODES:
        assert files(node_folder(tmp_path, run, node)) == on_nodes[node]
    reports = {path.name: path.read_bytes() for path in local_folder(tmp_path, run).rglob("*.nsys-rep")}
    wanted = [b"report of gpu01\n", b"report of gpu02\n"] if scenario == "profiled" else []
    assert sorted(reports.values()) == wanted


@pytest.mark.slow
@formats
@pytest.mark.parametrize("scenario", ["healthy", "failed", "stopped"])
def test_a_run_of_then_is_found_on_its_nodes(recorded: Path, scenario: str, tmp_path: Path) -> None:
    run = fill(recorded, scenario, tmp_path)
    local_folder(tmp_path, run).rename(tmp_path / "away")
    where = ("--hostfile", "hostfile", "--transport", "local", "--node-dir", str(tmp_path / "nodes"))
    (row,) = json.loads(cockpit(tmp_path, "ps", "--json", *where).stdout)
    then = json.loads((recorded / scenario / "shown.json").read_text())["after"]["row"]
    assert (row["run"], row["state"], row["nodes"]) == (run, then["state"], then["nodes"])
    attached = cockpit(tmp_path, "attach", run, "--plain")
    assert attached.returncode == {"healthy": 0, "failed": 1, "stopped": 1}[scenario]
    assert_all_is_spooled(tmp_path, run)


@formats
def test_a_run_of_a_later_format_is_refused_with_one_line(recorded: Path, tmp_path: Path) -> None:
    """As this version will be to runs of the next one: nothing is changed, nothing need be moved."""
    run = fill(recorded, "healthy", tmp_path)
    _later(local_folder(tmp_path, run) / "manifest.json", nodes="another shape")
    before = files(tmp_path / "state")
    (row,) = json.loads(cockpit(tmp_path, "ps", "--json").stdout)
    assert (row["run"], row["state"][:19]) == (run, "made by cockpit 9.1")
    for words in (["ps"], ["attach", "--plain"], ["logs"], ["stop"], ["collect"], ["stacks"]):
        done = cockpit(tmp_path, *words, run)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"cockpit: {run}: made by cockpit 9.1, which is newer than this one (")
        assert line.endswith("); use that version, or upgrade this one")
    assert files(tmp_path / "state") == before


@formats
def test_nodes_of_a_later_format_refuse_with_a_line_each(recorded: Path, tmp_path: Path) -> None:
    run = fill(recorded, "left", tmp_path)
    for node in NODES:
        _later(node_folder(tmp_path, run, node) / "record.json")
    done = cockpit(tmp_path, "stop", run)
    assert (done.returncode, done.stdout) == (3, "")
    *lines, last = messages(done.stderr)
    assert sorted(lines) == [
        f"cockpit: {node}: the run was started by a newer cockpit; use that version, or upgrade this one"
        for node in NODES
    ]
    assert last == f"cockpit: not stopped: gpu[01-02]; to try again: cockpit stop {run}"
    assert "newer cockpit" in cockpit(tmp_path, "attach", run, "--plain", "--give-up", "1").stderr


def _later(file: Path, **changes: Any) -> None:
    told = {**json.loads(file.read_text()), "format": 9, "version": "9.1", **changes}
    file.write_text(json.dumps(told))


# -- runs that began under the version of then and go on under this one

_START = """
import json, sys
sys.path.insert(0, sys.argv[1])
from cockpit.node import supervisor
with open(sys.argv[1], "rb") as file:
    json.dump(supervisor.start(json.load(sys.stdin), sys.executable, file.read()), sys.stdout)
"""
"""Starts a supervisor as the agent of then did, with the code of then alone."""


@dataclass
class Live:
    """A run of four ranks that wait, under supervisors and wrappers of then."""

    top: Path
    run: str
    supervisors: list[tuple[int, int]]

    def pids(self) -> dict[int, int]:
        """The processes of the ranks."""
        starts = [
            path for node in NODES for path in node_folder(self.top, self.run, node).glob("rank-?.start.json")
        ]
        return {start["rank"]: start["pid"] for start in map(json.loads, map(Path.read_text, starts))}

    def cockpit(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a verb of now."""
        return cockpit(self.top, *words)

    def go_on(self) -> None:
        """Let the ranks come to their end."""
        (self.top / "work/wait.over").touch()

    def states(self) -> Any:
        """The run's line in the list of runs, and all that is shown of it."""
        return states(self.top, self.run)

    def here(self) -> int:
        """Bytes of all logs here."""
        return sum(path.stat().st_size for path in local_folder(self.top, self.run).rglob("*.log"))


@pytest.fixture
def live(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Live]:
    recorded: Path = request.param
    run = fill(recorded, "left", tmp_path)
    supervisors = []
    for node in NODES:
        folder = node_folder(tmp_path, run, node)
        record = json.loads((folder / "record.json").read_text())
        names = ["run", "node", "index", "dir", "ranks", "launcher", "profile", "grace_s", "finalise_s"]
        spec = {
            "format": record["format"],
            "script": (folder / "launch.sh").read_text(),
            "files": {"slots.sh": (folder / "slots.sh").read_text()},
            "env": {},
            **{name: record[name] for name in names},
        }
        folder.rename(tmp_path / f"recorded-{node}")
        line = [str(tmp_path / "bin/python3"), "-I", "-S", "-c", _START, str(recorded / "node.pyz")]
        started = subprocess.run(line, input=json.dumps(spec).encode(), capture_output=True, check=True)
        supervisors.append((json.loads(started.stdout)["pid"], json.loads(started.stdout)["ticks"]))
    made = Live(tmp_path, run, supervisors)
    try:
        logs = [
            node_folder(tmp_path, run, node) / f"rank-{rank}.log"
            for rank, node in enumerate(NODES[i // 2] for i in range(4))
        ]
        ready = (b"0.3333\n", b"no text\n", b"0.3333\n", b"without an end")
        until(
            lambda: all(
                log.exists() and log.read_bytes().endswith(end) for log, end in zip(logs, ready, strict=True)
            ),
            "four waiting ranks",
        )
        _spool_half(made)
        yield made
    finally:
        made.go_on()
        for node in NODES:
            folder = node_folder(tmp_path, run, node)
            (folder / "stop.json").write_text('{"reason": "test", "by": "test", "hard": true}')
        until(lambda: not any(procfs.alive(*one) for one in supervisors), "the end of the supervisors")
        until(lambda: not any(procfs.stat(pid) for pid in made.pids().values()), "the end of the ranks")


def _spool_half(live: Live) -> None:
    """What the cockpit of then had fetched when it was left: of every file the first half."""
    for spool, node in zip(
        sorted((local_folder(live.top, live.run) / "spool").iterdir()), NODES, strict=True
    ):
        for path in spool.iterdir():
            data = (node_folder(live.top, live.run, node) / path.name).read_bytes()
            path.write_bytes(data[: len(data) // 2])


live_runs = pytest.mark.parametrize("live", FORMATS, indirect=True, ids=lambda path: path.name)


@pytest.mark.slow
@live_runs
def test_a_live_run_is_watched_to_its_end(live: Live) -> None:
    shown_now = live.states()
    assert (shown_now["row"]["state"], shown_now["row"]["running"]) == ("running", 4)
    assert {rank["rank"]: rank["pid"] for rank in shown_now["run"]["ranks"]} == live.pids()
    assert all(rank["sample"]["rss_bytes"] for rank in shown_now["run"]["ranks"])
    assert "step 2 of rank 2" in live.cockpit("logs", live.run, "--rank", "2").stdout
    attach = subprocess.Popen(
        [*folders.COCKPIT, "attach", live.run, "--json"],
        cwd=live.top / "work",
        env=environment(live.top),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: live.here() > 350, "what was printed before")
        live.go_on()
        out, err = attach.communicate(timeout=PATIENCE_S)
    finally:
        attach.kill()
        attach.wait()
    assert (attach.returncode, b"Traceback" in err) == (0, False), err
    events = [json.loads(line) for line in out.splitlines()]
    last = {event["rank"]: event["text"] for event in events if event["event"] == "log"}
    assert set(last) == {0, 1, 2, 3}
    assert all(text.endswith("went on to the end") for text in last.values())
    assert events[-1]["exit"] == 0
    assert live.states()["row"]["state"] == "ended"
    assert_all_is_spooled(live.top, live.run)


@live_runs
def test_a_live_run_gives_its_stacks(live: Live) -> None:
    if payload.spy() is None:
        lacking("py-spy is not installed")
    taken = live.cockpit("stacks", live.run, "--json", "--samples", "1")
    if taken.returncode == 3 and "ermission" in taken.stderr:
        lacking("processes may not be traced here")
    assert taken.returncode == 0, taken.stderr
    answer = json.loads(taken.stdout)
    assert "<module>" in taken.stdout
    assert len(answer["ranks"]) == 4


@live_runs
def test_a_live_run_is_stopped(live: Live) -> None:
    stopped = live.cockpit("stop", live.run, "--json")
    assert stopped.returncode == 0, stopped.stderr
    answer = json.loads(stopped.stdout)
    assert answer["ranks"] == {str(rank): "killed by SIGTERM" for rank in range(4)}
    assert (answer["survivors"], answer["not_asked"]) == ({}, [])
    # It ends right after it has written that the run has ended, for which the stop waits.
    until(lambda: not any(procfs.alive(*one) for one in live.supervisors), "the end of the supervisors")
    assert live.states()["row"]["state"] == "stopped"
    assert live.cockpit("attach", live.run, "--plain").returncode == 1
    assert_all_is_spooled(live.top, live.run)


@pytest.mark.slow
@live_runs
def test_a_live_run_is_stopped_after_a_failure(live: Live) -> None:
    path = local_folder(live.top, live.run) / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["on_failure"] == "stop"
    path.write_text(json.dumps({**manifest, "failure_wait_s": 0.1}))
    os.kill(live.pids()[2], signal.SIGKILL)
    attached = live.cockpit("attach", live.run, "--json")
    assert attached.returncode == 1, attached.stderr
    over = json.loads(attached.stdout.splitlines()[-1])
    assert over["first_failure"] == {"rank": 2, "node": "gpu02", "how": "killed by SIGKILL"}
    ranks = {rank["rank"]: rank["text"] for rank in live.states()["run"]["ranks"]}
    assert ranks == {rank: f"killed by {'SIGKILL' if rank == 2 else 'SIGTERM'}" for rank in range(4)}
    assert_all_is_spooled(live.top, live.run)


def _forget_ranks(folder: Path) -> None:
    """What its supervisor would have recorded, had it died before it saw its ranks start."""
    record = folder / "events.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(line for line in lines if json.loads(line)["e"] != "rank_started"))


@pytest.mark.slow
@live_runs
def test_what_dead_supervisors_left_running_is_stopped(live: Live) -> None:
    for pid, _ in live.supervisors:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(procfs.alive(*one) for one in live.supervisors), "dead supervisors")
    _forget_ranks(node_folder(live.top, live.run, NODES[1]))
    assert live.states()["row"]["running"] == 4
    os.kill(live.pids()[3], signal.SIGKILL)
    until(lambda: live.states()["row"]["running"] == 3, "the end of a rank that nobody recorded")
    stopped = live.cockpit("stop", live.run, "--json")
    assert stopped.returncode == 0, stopped.stderr
    assert json.loads(stopped.stdout)["survivors"] == {}
    until(lambda: not any(procfs.stat(pid) for pid in live.pids().values()), "the end of the ranks")
