"""The demo runs for real, tells what became of it, and leaves nothing behind however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from cockpit.base import openfiles
from cockpit.cli.main import main
from cockpit.demo import ending, training
from cockpit.demo.cluster import cluster
from cockpit.demo.keepsakes import saved_by_hand
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, Exit
from cockpit.plans.launchers.registry import LAUNCHERS
from tests.needs import require_module
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]


class Demos:
    """Demos whose files go into one folder, by which their processes are known too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder.parent / "output"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A ``cockpit demo`` in the background; it prints to :attr:`output`."""
        with self.output.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "cockpit", "demo", *words],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        return process

    def run(self, *words: str) -> int:
        """A whole ``cockpit demo``; its exit code. DeepSpeed's takes minutes on busy cores."""
        return self.start(*words).wait(3 * PATIENCE_S)

    def text(self) -> str:
        """What the demo has printed so far."""
        return self.output.read_text()

    def trains(self) -> bool:
        """Whether every rank has printed a step."""
        return all(f"{label} " in self.text() for label in ("node1:0", "node1:1", "node2:2", "node2:3"))

    def processes(self) -> dict[int, str]:
        """Everything that has the folder in its environment: cockpit, servers, agents, ranks."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environment = Path("/proc", pid, "environ").read_bytes()
                command = Path("/proc", pid, "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(self.folder) in environment and command:
                found[int(pid)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def assert_nothing_left(self) -> None:
        """No process, no file."""
        assert self.processes() == {}
        assert list(self.folder.iterdir()) == []


def test_more_nodes_than_files_may_be_open_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openfiles, "theirs", lambda: 1024)
    with pytest.raises(CockpitError) as refused, cluster(600, 1):
        pass
    assert str(refused.value) == (
        "600 nodes on one machine need 3,024 open files, and the limit here is 1,024; "
        "give --nodes 200, or first: ulimit -n 3024"
    )


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[Demos]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    made = Demos(folder)
    yield made
    for process in made.started:
        process.kill()
        process.wait()
    for left in folder.iterdir():
        ending.end(left)


FAST = ("--launcher", "command", "--steps", "4", "--step-time", "0.05", "--headless")
LONG = ("--launcher", "command", "--headless")


def test_a_healthy_demo(demos: Demos) -> None:
    assert demos.run(*FAST) == Exit.OK, demos.text()
    assert "step 4/4 loss" in demos.text()
    assert "no real training: train_plain.py simulates it" in demos.text()
    assert "ranks 0-3 exited 0" in demos.text()
    demos.assert_nothing_left()
    assert list_runs() == []


def test_a_crash_is_the_last_ranks(demos: Demos) -> None:
    code = demos.run(*FAST, "--nodes", "3", "--slots", "1", "--fault", "crash", "--json")
    events = [json.loads(line) for line in demos.text().splitlines() if line.startswith("{")]
    assert code == Exit.RANK_FAILED
    assert events[-1]["first_failure"] == {"rank": 2, "node": "node3", "how": "exited 1"}
    said = [event["text"] for event in events if event["event"] == "log" and event["rank"] == 2]
    assert said[-1] == "RuntimeError: injected fault: rank 2 crashes at step 2"
    demos.assert_nothing_left()


@pytest.mark.slow
def test_what_is_kept_if_that_was_wanted_and_that_without_torch_no_rank_is_called_slow(demos: Demos) -> None:
    assert demos.run(*FAST, "--fault", "slow", "--keep", "--report") == Exit.OK, demos.text()
    assert "without torch no rank is called slow" in demos.text()
    demos.assert_nothing_left()
    (kept,) = list_runs()
    assert kept.model().done
    assert f"the recorded run is saved: cockpit logs {kept.name}" in demos.text()
    assert (kept.path / "report.html").is_file()


@pytest.mark.slow
def test_another_shell_knows_the_run_and_what_it_saves_outlives_leaving(
    demos: Demos, capsys: pytest.CaptureFixture[str]
) -> None:
    process = demos.start(*LONG)
    until(demos.trains, "steps of all ranks")
    # Another shell knows it.
    (living,) = list_runs()
    assert f"cockpit ps {living.name}" in demos.text()
    assert main(["ps", living.name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [rank["state"] for rank in told["ranks"]] == ["running"] * len(told["ranks"])
    assert main(["logs", "last", "--rank", "0", "--tail", "1"]) == 0
    assert "step" in capsys.readouterr().out
    assert main(["stacks", "last"]) == 0
    # Leaving stops it, and says so.
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == Exit.LEFT, demos.text()
    assert "leaving the demo stops its run" in demos.text()
    demos.assert_nothing_left()
    # What the other shell saved is there, and so is the run as it ended.
    (kept,) = list_runs()
    (stacks,) = (kept.path / "stacks").iterdir()
    assert f"its run is kept with the stacks and files taken in it: {stacks}\n" in demos.text()
    capsys.readouterr()
    assert main(["stacks", str(stacks)]) == 0
    assert "train_plain.py" in capsys.readouterr().out
    model = kept.model()
    assert model.done
    ends = {rank.text for rank in model.ranks.values()}
    # One that is asked to end a moment later may have noticed that another one is gone.
    assert "killed by SIGTERM" in ends
    assert ends <= {"killed by SIGTERM", "exited 1"}


@pytest.mark.slow
def test_a_stop_in_another_shell_says_what_became_of_its_ranks(
    demos: Demos, capsys: pytest.CaptureFixture[str]
) -> None:
    process = demos.start(*LONG)
    until(demos.trains, "steps of all ranks")
    capsys.readouterr()
    assert main(["stop", "last", "--json"]) == Exit.OK, capsys.readouterr().err
    told = json.loads(capsys.readouterr().out)
    assert (sorted(told["ranks"]), told["survivors"], told["not_asked"]) == (["0", "1", "2", "3"], {}, [])
    # One that is asked to end a moment later may have noticed that another one is gone.
    assert set(told["ranks"].values()) <= {"killed by SIGTERM", "exited 1"}
    process.wait(PATIENCE_S)
    demos.assert_nothing_left()
    assert list_runs() == []


@pytest.mark.slow
def test_a_hang_tells_by_itself_without_torch_and_kill_9_leaves_nothing(demos: Demos) -> None:
    process = demos.start(*LONG, "--fault", "hang", "--hang-after", "2", "--step-time", "0.2", "--json")
    until(lambda: "hangs at step" in demos.text(), "the fault")

    def stalled() -> list[dict[str, Any]]:
        after = demos.text().partition("hangs at step")[2]
        watched = [json.loads(line) for line in after.splitlines() if line.startswith('{"event": "watch"')]
        return [event for event in watched if event["state"] == "stalled"]

    found = until(stalled, "the stall")[-1]["found"]
    assert found["ranks"] == [3]
    assert found["what"] == "rank 3 did not join the others in Meeting.barrier"
    assert found["where"].endswith(" hang")
    (living,) = list_runs()
    # What the watch took is nothing that somebody saved.
    until(lambda: any((living.path / "stacks").glob("*/snapshot.json")), "the stacks of the stall")
    until(lambda: living.model().watch.snapshot, "the stall is reported")
    assert list(saved_by_hand(living)) == []
    assert len(demos.processes()) > 10
    process.kill()
    process.wait()
    until(lambda: not demos.processes(), "all processes gone")
    demos.assert_nothing_left()


def test_collected_files_and_profiles_are_kept_too() -> None:
    nodes = [NodeEntry("node1", "/nowhere", [0])]
    folder = RunFolder.create(Manifest("otter", 1.0, nodes, "command", ["train.py"], "/"))
    assert list(saved_by_hand(folder)) == []
    (folder.path / "files" / "node1").mkdir(parents=True)
    (folder.path / "profiles" / "1").mkdir(parents=True)
    assert list(saved_by_hand(folder)) == [folder.path / "files", folder.path / "profiles"]
    folder.discard()


@pytest.mark.slow
def test_kill_9_during_the_start_leaves_nothing(demos: Demos) -> None:
    process = demos.start(*LONG)
    until(lambda: any("supervise" in command for command in demos.processes().values()), "a supervisor")
    process.kill()
    process.wait()
    until(lambda: not demos.processes(), "all processes gone")
    demos.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.launch
def test_deepspeed_trains(demos: Demos) -> None:
    require_module("deepspeed")
    code = demos.run("--slots", "1", "--steps", "3", "--step-time", "0.1", "--fault", "crash", "--headless")
    assert code == Exit.RANK_FAILED, demos.text()
    assert "DeepSpeed of" in demos.text()
    assert "RuntimeError: injected fault: rank 1 crashes at step 1" in demos.text()
    assert "first to fail: rank 1 on node2" in demos.text()
    demos.assert_nothing_left()


def test_servers_let_in_nobody_else() -> None:
    async def come(folder: Path, **other: object) -> int:
        config = [str(folder / "ssh_config")]
        async with asyncssh.connect("node1", config=config, **other) as connection:
            done = await connection.run("exit 7", check=False)
            return done.exit_status or 0

    stranger = asyncssh.generate_private_key("ssh-ed25519")
    with cluster(1, 1) as made:
        assert made.folder.stat().st_mode & 0o777 == 0o700
        assert (made.folder / "id").stat().st_mode & 0o777 == 0o600
        assert asyncio.run(come(made.folder)) == 7
        with pytest.raises(asyncssh.PermissionDenied):
            asyncio.run(come(made.folder, client_keys=[stranger]))
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            asyncio.run(come(made.folder, known_hosts=b"# none\n"))
    assert not made.folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_what_got_away_is_ended(tmp_path: Path, killed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stray(folder: Path) -> None:
        config = [str(folder / "ssh_config")]
        async with asyncssh.connect("node1", config=config) as connection:
            ignores = "trap '' TERM HUP; while :; do sleep 0.1; done"
            await connection.run(f'setsid /bin/sh -c "{ignores}" >&- 2>&- <&- &')

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with cluster(1, 1) as made:
        asyncio.run(stray(made.folder))
        until(lambda: ending.carriers(made.folder), "the stray process")
        if killed:
            servers = [pid for pid, words in Demos(tmp_path).processes().items() if ".demo.server" in words]
            os.kill(servers[0], signal.SIGKILL)
    assert ending.carriers(made.folder) == []
    assert list(tmp_path.glob("cockpit-demo-*")) == []


def test_servers_that_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CockpitError, match="ssh servers do not start"), cluster(1, 1):
        pass


def python(folder: Path, name: str, *modules: str) -> str:
    """A Python that has these modules, made of a script that says so."""
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{json.dumps(modules)}'\n")
    file.chmod(0o700)
    return str(file)


def test_the_best_example_that_a_python_can_run(tmp_path: Path) -> None:
    bare, torch, both = (
        python(tmp_path, "bare"),
        python(tmp_path, "torch", "torch"),
        python(tmp_path, "both", "deepspeed", "torch"),
    )
    best = training.choose("auto", [bare, torch, both])
    assert (best.launcher, best.python, best.script) == ("deepspeed", both, "train_deepspeed.py")
    second = training.choose("auto", [bare, torch])
    assert (second.launcher, second.python) == ("torchrun", torch)
    assert second.why.endswith(f"because {bare} and {torch} have no deepspeed")
    last = training.choose("auto", [bare, "/bin/false"])
    assert (last.launcher, last.python) == ("command", bare)
    assert training.choose("torchrun", [both]).launcher == "torchrun"
    with pytest.raises(CockpitError, match="none of these has deepspeed and torch"):
        training.choose("deepspeed", [bare, torch])


def test_a_launcher_without_an_example_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for launcher in LAUNCHERS.keys() - set(training.LAUNCHERS):
        with pytest.raises(SystemExit):
            main(["demo", "--launcher", launcher])
        assert f"invalid choice: '{launcher}'" in capsys.readouterr().err


def test_active_environments_are_looked_at_and_cockpits_own_first(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    active = python(tmp_path / "bin", "python")
    found = training.pythons({"VIRTUAL_ENV": str(tmp_path), "CONDA_PREFIX": str(tmp_path), "PATH": ""})
    assert found == [sys.executable, active]


def test_faults_are_the_last_ranks_and_come_early_enough() -> None:
    torch = training.Training("torchrun", "python", "")
    assert training.flags(torch, "none", 600, 0.5, 4) == ["--steps", "600", "--step-time", "0.5"]
    assert training.flags(torch, "hang", 600, 0.5, 4)[4:] == ["--hang", f"3@{training.FAULT_STEP}"]
    assert training.flags(torch, "crash", 1, 0, 2)[4:] == ["--crash", "1@1"]
    plain = training.Training("command", "python", "")
    assert training.flags(plain, "hang", 600, 0.5, 4)[4] == "--together"


def test_every_example_is_there() -> None:
    names = {path.name for path in training.examples().iterdir()}
    scripts = {training.Training(launcher, "python", "").script for launcher in ("deepspeed", "torchrun")}
    assert scripts | {"train_plain.py", "batches.py", "faults.py", "meeting.py"} <= names
