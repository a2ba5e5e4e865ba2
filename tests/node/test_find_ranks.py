"""Which processes are ranks: real ones, with everything around them that only looks like a rank."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cockpit.base import gate, record
from cockpit.base.answers import SeekAnswer
from cockpit.core.run.jobs import group
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.stacks import find_ranks, kernel, named
from tests.needs import require, require_module
from tests.node import runs, spies
from tests.node.conftest import Launch
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

RANK = """
import json, multiprocessing, os, sys, time

def work():
    time.sleep(1000)

if __name__ == "__main__":
    told = {"main": os.getpid(), "workers": []}
    for method in sys.argv[2:]:
        worker = multiprocessing.get_context(method).Process(target=work)
        worker.start()
        told["workers"].append(worker.pid)
    path = os.path.join(sys.argv[1], "told-%s-%d" % (os.environ.get("RANK", "none"), os.getpid()))
    with open(path + ".tmp", "w") as file:
        json.dump(told, file)
    os.rename(path + ".tmp", path)
    time.sleep(1000)
"""
"""A rank with processes below it. It tells who they are."""

LOADING = """
import json, os, sys, time
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return index

if __name__ == "__main__":
    method = sys.argv[int(os.environ["RANK"]) - 2]
    batches = iter(DataLoader(Numbers(), num_workers=1, multiprocessing_context=method))
    next(batches)
    path = os.path.join(os.environ["TOLD"], "told-%s-%d" % (os.environ["RANK"], os.getpid()))
    with open(path + ".tmp", "w") as file:
        json.dump({"main": os.getpid(), "workers": []}, file)
    os.rename(path + ".tmp", path)
    time.sleep(1000)
"""
"""A rank with the worker of a real data loader, which is started otherwise in each rank."""


def ranks_found(run: str = "", node: str = "", folder: str = "") -> list[dict[str, Any]]:
    """The main process of each rank on this machine, lowest rank first; only those with these tags."""
    wanted = {record.ENV_RUN: run, record.ENV_NODE: node, record.ENV_DIR: folder}
    return find_ranks._ranks(find_ranks._scan(wanted).processes)


class Stage:
    """Processes of one job that can be told from whatever else runs on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tag = uuid4().hex
        self.addr = f"seek-{self._tag}"
        self.program = folder / "rank.py"
        self.program.write_text(RANK)
        self._started: list[subprocess.Popen[bytes]] = []

    def env(self, rank: int, world: int = 2, **more: object) -> dict[str, str]:
        """What a launcher gives to a rank."""
        facts = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, **more}
        told = {"MASTER_ADDR": self.addr, "MASTER_PORT": "1", **{name: str(facts[name]) for name in facts}}
        return {name: value for name, value in told.items() if value != "None"}

    def start(self, words: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, which ends with the test."""
        env = {"PATH": os.environ["PATH"], "SEEK_TEST": self._tag, **env}
        process = subprocess.Popen(words, env=env, start_new_session=True)
        self._started.append(process)
        return process

    def python(self, *methods: str) -> list[str]:
        """The words of a rank that starts a worker for each of these methods."""
        return [sys.executable, str(self.program), str(self.folder), *methods]

    def shell(self, text: str, *words: str) -> list[str]:
        """The words of a shell that stays above what it runs."""
        return ["/bin/sh", "-c", f"{text}; exit 1", "sh", *words]

    def told(self, number: int, timeout: float = PATIENCE_S) -> dict[int, dict[str, Any]]:
        """What this many ranks have told, by the pid of each."""
        found: list[Path] = []

        def all_told() -> bool:
            found[:] = self.folder.glob("told-*[0-9]")
            return len(found) >= number

        until(all_told, f"{number} ranks have told", timeout)
        return {told["main"]: told for told in (json.loads(path.read_text()) for path in found)}

    def found(self) -> list[dict[str, Any]]:
        """The ranks of this job."""
        return [rank for rank in ranks_found() if rank["job"]["addr"] == self.addr]

    def pids(self) -> list[tuple[int, int]]:
        return [(rank["rank"], rank["pid"]) for rank in self.found()]

    def clean(self) -> None:
        """End all of it: torchrun's ranks are in sessions of their own."""
        for process in self._started:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        for pid in pids:
            with contextlib.suppress(OSError):
                if os.fsencode(f"SEEK_TEST={self._tag}") in Path(f"/proc/{pid}/environ").read_bytes().split(
                    b"\0"
                ):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.clean()


@pytest.mark.parametrize(
    "above",
    [
        "{}",
        "exec {}",
        "sh -c '{}; exit 1'",
        "python3 -c pass; {}",
    ],
)
def test_one_process_a_rank_whatever_is_above_and_below_it(stage: Stage, above: str) -> None:
    line = above.format(shlex.join(stage.python("fork", "spawn", "forkserver")))
    for rank in (1, 0):
        stage.start(stage.shell(line), stage.env(rank))
    told = stage.told(2)
    assert sorted(pid for _, pid in stage.pids()) == sorted(told)
    assert [rank["rank"] for rank in stage.found()] == [0, 1]


def test_what_is_told_of_a_rank(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_ranks, "COMMAND_LIMIT", 10_000)  # the temporary folder may have a long name
    words = stage.python("fork")
    process = stage.start(words, stage.env(1, world=8, LOCAL_RANK=3, CROSS_RANK=0, CROSS_SIZE=1))
    stage.told(1)
    spies.in_state(process.pid, "S")
    (rank,) = stage.found()
    assert rank == {
        "rank": 1,
        "local_rank": 3,
        "local_size": None,
        "world_size": 8,
        "attempt": 0,
        "pid": process.pid,
        "ticks": procfs.stat(process.pid).ticks,  # type: ignore[union-attr]
        "state": "S",
        "job": {"addr": stage.addr, "port": "1", "id": ""},
        "net": os.readlink("/proc/self/ns/net"),
        "step": "",
        "launcher": "deepspeed",
        "run": "",
        "node": "",
        "user": rank["user"],
        "python": sys.executable,
        "started": rank["started"],
        "command": " ".join(words),
        "above": rank["above"],
        "started_by": rank["started_by"],
        "container": rank["container"],
        "ns_pid": process.pid,
    }
    assert rank["above"][0] == os.getpid()
    assert rank["started_by"].split()[0] == procfs.arguments(os.getpid())[0].decode()
    assert abs(rank["started"] - time.time()) < 100
    assert rank["user"]


def test_numbers_that_no_job_has_are_no_rank(stage: Stage) -> None:
    for rank, more in ((200_000, {}), (1, {"WORLD_SIZE": 500_000}), (0, {})):
        stage.start(stage.python("fork"), stage.env(rank, **more))
    stage.told(3)
    assert [rank for rank, _ in stage.pids()] == [0]
    answer = find_ranks.seek(Call({"id": 1, "do": "seek"}, b"", lambda head, data: None))
    told = gate.read(SeekAnswer, json.loads(json.dumps(answer)))
    assert [one.rank for one in told.ranks if one.job.addr == stage.addr] == [0]


def test_secrets_of_a_command_line_stay_on_the_node(stage: Stage) -> None:
    program = "import time; time.sleep(1000)"
    secrets = ["--api-key", "hunter2", "--hub_token=hunter2", "WANDB_API_KEY=hunter2", "http://me:hunter2@x/"]
    stage.start([sys.executable, "-c", program, *secrets, "--lr", "0.1"], stage.env(0))
    (rank,) = until(stage.found, "the rank")
    assert "hunter2" not in rank["command"]
    assert rank["command"].endswith("--lr 0.1")


@pytest.mark.parametrize(
    ("env", "launcher", "name", "step"),
    [
        ({"TORCHELASTIC_RUN_ID": "none"}, "torchrun", "", ""),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7"}, "torchrun", "", "7."),
        ({"TORCHELASTIC_RUN_ID": "xyz", "ACCELERATE_MIXED_PRECISION": "no"}, "accelerate", "xyz", ""),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"},
            "slurm",
            "7.0",
            "7.0",
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "PMIX_NAMESPACE": "n",
                "SLURM_JOB_ID": "7",
            },
            "mpi",
            "n",
            "7.",
        ),
        ({}, "other", "", ""),
    ],
)
def test_launchers(stage: Stage, env: dict[str, str], launcher: str, name: str, step: str) -> None:
    stage.start(stage.python(), {**stage.env(1), **env})
    stage.told(1)
    (rank,) = stage.found()
    assert rank["step"] == step
    assert (rank["launcher"], rank["job"]["id"], rank["world_size"]) == (launcher, name, 2)


@pytest.mark.parametrize(
    ("env", "launcher"),
    [
        (
            {
                "SLURM_PROCID": "3",
                "SLURM_STEP_ID": "0",
                "SLURM_JOB_ID": "7",
                "SLURM_STEP_NUM_TASKS": "4",
                "SLURM_NTASKS": "9",
                "SLURM_LOCALID": "1",
                "PMI_RANK": "3",
                "PMI_SIZE": "4",
            },
            "slurm",
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "PMIX_RANK": "3",
            },
            "mpi",
        ),
        ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}, "mpi"),
    ],
)
def test_ranks_without_rank(stage: Stage, env: dict[str, str], launcher: str) -> None:
    stage.start(stage.shell(shlex.join(stage.python("fork"))), {"MASTER_ADDR": stage.addr, **env})
    (pid,) = stage.told(1)
    (rank,) = stage.found()
    assert (rank["rank"], rank["local_rank"], rank["world_size"], rank["pid"]) == (3, 1, 4, pid)
    assert rank["launcher"] == launcher


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_PROCID": "0", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"},  # a batch script
        {"RANK": "3"},
        {"RANK": "general", "WORLD_SIZE": "2"},
        {"RANK": "٣", "WORLD_SIZE": "4"},
        {"LOCAL_RANK": "0", "WORLD_SIZE": "2"},
    ],
)
def test_what_is_no_rank(stage: Stage, env: dict[str, str]) -> None:
    address = {} if env == {"RANK": "3"} else {"MASTER_ADDR": stage.addr}
    stage.start(stage.python(), {**address, **env})
    (pid,) = stage.told(1)
    assert pid not in [rank["pid"] for rank in ranks_found()]


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "1"},
        # Kubernetes gives the numbers of its pods to torchrun.
        {"RANK": "0", "WORLD_SIZE": "2"},
    ],
)
def test_a_launcher_that_was_started_as_a_rank_is_none(stage: Stage, env: dict[str, str]) -> None:
    launcher = (
        "import subprocess, sys, os\n"
        "env = [{**os.environ, 'RANK': rank, 'LOCAL_RANK': rank, 'WORLD_SIZE': '2'} for rank in '01']\n"
        "[subprocess.Popen(sys.argv[1:], env=one) for one in env][0].wait()"
    )
    words = [sys.executable, "-c", launcher, *stage.python("spawn")]
    stage.start(words, {"MASTER_ADDR": stage.addr, "MASTER_PORT": "1", **env})
    told = stage.told(2)
    assert sorted(pid for _, pid in stage.pids()) == sorted(told)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("shell", [False, True])
def test_a_wrapper_in_python_is_looked_through(stage: Stage, levels: int, shell: bool) -> None:
    words = stage.python("fork", "spawn")
    for _ in range(levels):
        what = f"{shlex.join(words)}; exit 1" if shell else words
        words = [sys.executable, "-c", f"import subprocess; subprocess.run({what!r}, shell={shell})"]
    stage.start(words, stage.env(0))
    (pid,) = stage.told(1)
    assert stage.pids() == [(0, pid)]


def test_a_rank_that_has_started_another_python_is_no_wrapper(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = f"import subprocess, time; child = subprocess.Popen({stage.python()!r}); "
    ranks = [
        stage.start([sys.executable, "-c", start + end], stage.env(rank))
        for rank, end in enumerate(("time.sleep(1000)", "child.wait()"))
    ]
    stage.told(2)
    # The second one waits for it, as a wrapper does; but it has loaded torch.
    monkeypatch.setattr(kernel, "has_torch", lambda pid: pid == ranks[1].pid)
    assert stage.pids() == [(0, ranks[0].pid), (1, ranks[1].pid)]
    # A wrapper may do other things than wait: what has torch is the rank.
    monkeypatch.setattr(kernel, "has_torch", lambda pid: pid not in [rank.pid for rank in ranks])
    assert not {pid for _, pid in stage.pids()} & {rank.pid for rank in ranks}


@pytest.mark.parametrize("more", [{}, {"LOCAL_RANK": "1"}])
def test_a_rank_that_tells_what_it_starts_more_than_it_was_told(stage: Stage, more: dict[str, str]) -> None:
    env = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": stage.addr, "MASTER_PORT": "7", **more}
    text = "import json, os, subprocess, sys, time; os.environ.update(json.loads(sys.argv[1]));"
    text += "subprocess.Popen(sys.argv[2:]); time.sleep(1000)"
    service = stage.python("spawn")
    step = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "MASTER_ADDR": stage.addr}
    process = stage.start([sys.executable, "-c", text, json.dumps(env), *service], step)
    stage.told(1)
    assert stage.pids() == [(1, process.pid)]


def test_a_launcher_that_mpirun_has_in_a_step_of_slurm_is_none(stage: Stage) -> None:
    text = "import os, subprocess, sys\nfor rank in '01': env = {**os.environ, 'OMPI_COMM_WORLD_RANK': rank,"
    text += " 'OMPI_COMM_WORLD_SIZE': '2'}; last = subprocess.Popen(sys.argv[1:], env=env)\nlast.wait()"
    step = {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "MASTER_ADDR": stage.addr}
    stage.start([sys.executable, "-c", text, *stage.python()], step)
    told = stage.told(2)
    assert sorted(pid for _, pid in stage.pids()) == sorted(told)
    assert [rank["launcher"] for rank in stage.found()] == ["mpi", "mpi"]


@pytest.mark.parametrize(
    ("words", "env", "name"),
    [
        (
            ["hydra_pmi_proxy", "--control-port", "head:4711"],
            {"PMI_RANK": "0"},
            "head:4711",
        ),
        (["other_proxy"], {"PMI_RANK": "0"}, ""),
        (["torchrun"], {"RANK": "0", "MASTER_PORT": "0", "TORCHELASTIC_RUN_ID": "none"}, "pid {}"),
        (["sh"], {"RANK": "0"}, ""),
    ],
)
def test_the_process_above_names_a_job_whose_environment_does_not(
    stage: Stage, words: list[str], env: dict[str, str], name: str
) -> None:
    launcher = "import subprocess, sys, os; end = sys.argv.index('--', 2)\n"
    launcher += "subprocess.run(sys.argv[end + 1:], env={**os.environ, **eval(sys.argv[1])})"
    above = [sys.executable, "-c", launcher, str({"MASTER_ADDR": stage.addr, **env}), *words, "--"]
    process = stage.start([*above, *stage.python()], {})
    stage.told(1)
    (rank,) = stage.found()
    assert rank["job"] == {"addr": stage.addr, "port": "", "id": name.format(process.pid)}


def test_what_a_dead_rank_leaves_behind_is_no_rank(stage: Stage) -> None:
    stage.start(stage.python("fork", "spawn"), stage.env(0))
    ((pid, told),) = stage.told(1).items()
    assert [found for _, found in stage.pids()] == [pid]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not runs.alive(pid), "the rank ended")
    assert all(runs.alive(worker) for worker in told["workers"])
    assert stage.found() == []


def test_only_the_newest_attempt_counts(stage: Stage) -> None:
    for attempt, port in ((0, "1"), (1, "2")):
        env = stage.env(0, TORCHELASTIC_RUN_ID="x", TORCHELASTIC_RESTART_COUNT=attempt, MASTER_PORT=port)
        process = stage.start(stage.python(), env)
    stage.told(2)
    assert [(rank["pid"], rank["attempt"]) for rank in stage.found()] == [(process.pid, 1)]


def test_two_processes_for_one_rank_are_both_told(stage: Stage) -> None:
    processes = [stage.start(stage.python(), stage.env(0)) for _ in range(2)]
    stage.told(2)
    assert sorted(stage.pids()) == sorted((0, process.pid) for process in processes)
    (job,) = group({"here": gate.read(SeekAnswer, {"ranks": stage.found()})})
    assert "two processes claim rank 0" in job.problems[0]


def test_a_wrapper_that_has_not_come_to_python(stage: Stage) -> None:
    process = stage.start(stage.shell("sleep 1000"), stage.env(0))
    (rank,) = until(stage.found, "the wrapper")
    assert (rank["pid"], rank["python"]) == (process.pid, "")
    # Slurm and MPI start programs in other languages too.
    other = stage.env(1, SLURM_PROCID=1, SLURM_STEP_ID=0, SLURM_NTASKS=2, RANK=None)
    stage.start(stage.shell("sleep 1001"), other)
    assert [pid for _, pid in stage.pids()] == [process.pid]
    # Beside a rank that is Python it is something else.
    rank_0 = stage.start(stage.python(), stage.env(0))
    stage.told(1)
    assert stage.pids() == [(0, rank_0.pid)]


def test_a_helper_below_a_rank_that_has_written_over_its_environment(stage: Stage) -> None:
    helper = "from multiprocessing.spawn import spawn_main; import time; time.sleep(1000)"
    process = stage.start([sys.executable, "-c", helper], stage.env(0))
    until(lambda: b"spawn_main" in procfs.contents(f"/proc/{process.pid}/cmdline"), "it runs")
    assert stage.found() == []


def test_the_one_who_looks_is_no_rank(stage: Stage) -> None:
    program = (
        f"import sys; sys.path[:0] = {sys.path}; from tests.node.test_find_ranks import ranks_found; "
        + (f"print([rank for rank in ranks_found() if rank['job']['addr'] == '{stage.addr}'])")
    )
    # As in a shell that Slurm has opened on a node.
    env = {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "MASTER_ADDR": stage.addr}
    said = subprocess.run(
        ["/bin/sh", "-c", f"{shlex.join([sys.executable, '-c', program])}; exit 0"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert said.stdout == "[]\n", said.stderr


def test_the_ranks_of_a_run_of_ours(stage: Stage, launch: Launch) -> None:
    nested = {**stage.env(0), "WORLD_SIZE": "1"}
    exports = " ".join(f"{name}={value}" for name, value in nested.items())
    text = f"env {exports} {shlex.join(stage.python())} &\n{shlex.join(stage.python('spawn'))}\n"
    program = runs.program(stage.folder / "program", text)
    run = launch(runs.command(2, program))
    told = stage.told(4)
    ranks = ranks_found(run.run, run.node, str(run.folder))
    assert [(rank["rank"], rank["local_rank"], rank["world_size"]) for rank in ranks] == [
        (0, 0, 2),
        (1, 1, 2),
    ]
    starts = [json.loads((run.folder / f"rank-{number}.start.json").read_text()) for number in (0, 1)]
    for rank, start in zip(ranks, starts, strict=True):
        above = procfs.stat(rank["pid"])
        assert above is not None
        assert above.parent == start["pid"]  # the shell that the wrapper runs
        assert told[rank["pid"]]["workers"]
        assert rank["run"] == run.run
    assert ranks_found(run.run, "another node") == []
    assert ranks_found(run.run, run.node, "/another/folder") == [], "of a run with the same name"


def test_a_process_that_cannot_be_read_holds_nobody_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = [stage.start(stage.python(), stage.env(rank, world=3)) for rank in range(3)]
    stage.told(3)
    read, never = procfs.read, threading.Event()

    def stuck(path: str) -> bytes:
        if path == f"/proc/{processes[1].pid}/environ":
            never.wait(60)
        return read(path)

    monkeypatch.setattr(procfs, "read", stuck)
    try:
        answer = find_ranks.seek(Call({"id": 1, "do": "seek"}, b"", lambda header, payload: None))
    finally:
        never.set()
    mine = [rank for rank in answer["ranks"] if rank["job"]["addr"] == stage.addr]
    assert [rank["rank"] for rank in mine] == [0, 2]
    assert [one["pid"] for one in answer["stuck"]] == [processes[1].pid]
    (job,) = group({"here": gate.read(SeekAnswer, {**answer, "ranks": mine})})
    assert f"process {processes[1].pid} " in job.problems[-1]


@pytest.mark.root
def test_a_rank_in_another_pid_namespace(stage: Stage) -> None:
    words = [require("unshare"), "--pid", "--fork", "--mount-proc", "--kill-child"]
    stage.start([*words, *stage.python("fork")], stage.env(0))
    (inner,) = stage.told(1)
    (rank,) = stage.found()
    assert inner == rank["ns_pid"] == 1
    assert rank["container"]
    assert rank["pid"] != 1
    assert os.path.samefile(f"/proc/{rank['pid']}/exe", sys.executable)


@pytest.mark.root
def test_a_job_of_somebody_else_is_named_and_not_looked_at(stage: Stage) -> None:
    words = [require("setpriv"), "--reuid", "58123", "--clear-groups", "/bin/sh", "-c", "sleep 1000; exit 1"]
    process = stage.start([*words, "train", "--local_rank=0", "--token", "hunter2"], stage.env(0))
    until(lambda: os.stat(f"/proc/{process.pid}").st_uid == 58123, "the user has changed")
    assert [pid for _, pid in stage.pids()] == [process.pid]  # root may
    call = Call({"id": 1, "do": "seek"}, b"", lambda header, payload: None)
    answer = as_user(58124, lambda: find_ranks.seek(call))
    assert [rank for rank in answer["ranks"] if rank["job"]["addr"] == stage.addr] == []
    (other,) = [one for one in answer["others"] if one["user"] == "uid 58123"]
    assert (other["pid"], other["count"]) == (process.pid, 1)
    assert other["command"] == "/bin/sh -c sleep 1000; exit 1 train --local_rank=0 --token (secret)"


@pytest.mark.root
def test_the_job_of_somebody_else_is_told_by_what_started_it(stage: Stage) -> None:
    daemon = stage.folder / "orted"
    daemon.symlink_to("/bin/sh")
    python = f"exec -a python3 {require('sleep')} 1001"
    inner = [require("setpriv"), "--reuid", "58125", "--clear-groups", require("bash"), "-c", python]
    call = Call({"id": 1, "do": "seek"}, b"", lambda header, payload: None)

    def told(kind: str = "others") -> list[dict[str, Any]]:
        answer = as_user(58126, lambda: find_ranks.seek(call))
        return [one for one in answer[kind] if one["user"] == "uid 58125"]

    alone = stage.start(inner, stage.env(0))
    until(lambda: is_called_python(alone.pid), "it runs")
    helps = "exec -a python3 sh -c 'sleep 1000; exit 1' 'from multiprocessing.spawn import x'"
    helper = stage.start([*inner[:-1], helps], {})
    daemon_of_the_machine = stage.start([*inner[:2], "989", *inner[3:]], {})
    for pid in (helper.pid, daemon_of_the_machine.pid):
        until(functools.partial(is_called_python, pid), "it runs")
    assert told() == []
    (other,) = told("pythons")
    assert (other["pid"], other["count"], other["command"]) == (alone.pid, 1, "python3 1001")
    stage.start([str(daemon), "-c", f"{shlex.join(inner)}; exit 1"], stage.env(1))
    (other,) = until(told, "the job")
    assert (other["count"], other["command"]) == (1, "python3 1001")


def is_called_python(pid: int) -> bool:
    return procfs.arguments(pid)[:1] == [b"python3"]


def as_user(uid: int, question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a function answers when that user asks it."""
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            os.write(sink, json.dumps(question()).encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as file:
        answer: dict[str, Any] = json.loads(file.read())
    os.waitpid(pid, 0)
    return answer


@pytest.mark.slow
@pytest.mark.launch
def test_a_real_launcher_and_data_loaders(stage: Stage) -> None:
    """DeepSpeed's; jobs of torchrun are found in the lab."""
    require_module("torch")
    require_module("deepspeed")
    stage.program.write_text(LOADING)
    hostfile = stage.folder / "hostfile"
    hostfile.write_text("localhost slots=2\n")
    # Its port tells it from other jobs: all of them have this address.
    stage.addr, port = "127.0.0.1", str(free_port())
    words = [f"{os.path.dirname(sys.executable)}/deepspeed", "--hostfile", str(hostfile), "--no_ssh"]
    words += ["--node_rank", "0", "--master_addr", stage.addr, "--master_port", port]
    env = {**runs.clean_environment(), "TOLD": str(stage.folder)}
    stage.start([*words, str(stage.program), "fork", "spawn"], env)
    told = stage.told(2, timeout=PATIENCE_S)
    ranks = [rank for rank in stage.found() if rank["job"]["port"] == port]
    assert [(rank["rank"], rank["local_rank"], rank["launcher"]) for rank in ranks] == [
        (0, 0, "deepspeed"),
        (1, 1, "deepspeed"),
    ]
    assert sorted(rank["pid"] for rank in ranks) == sorted(told)


def test_words_of_a_command_line_are_looked_for_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {1: "python train.py", 2: "a" * 60 + "!", 3: "python -m train\udc80"}
    assert named._matching(r"train(\.py)?", lines) == [1, 3]
    with pytest.raises(ValueError, match="not a regular expression: missing"):
        named._matching("(", lines)
    monkeypatch.setattr(named, "MATCH_S", 1)
    with pytest.raises(ValueError, match="takes too long"):
        named._matching("(a+)+$", lines)
