"""The real launchers above the wrapper: exact ends, and one SIGTERM a rank."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from cockpit.base import record
from tests.needs import require_module
from tests.node.conftest import Launch
from tests.node.runs import Run, alive, clean_environment
from tests.ports import free_port

pytestmark = pytest.mark.launch

RANK = """
import json, os, signal, sys, time
rank, end = int(os.environ["RANK"]), sys.argv[-1]
def place(name, number):
    return os.path.join(os.environ["COCKPIT_DIR"], "%s-%d" % (name, number))
def meet(name, others):
    open(place(name, rank), "w").close()
    while not all(os.path.exists(place(name, other)) for other in others):
        time.sleep(0.02)
def told(number, frame):
    print("got", number, flush=True)
    if end == "wait":
        # Together: a launcher signals the others again once the first one has failed.
        meet("told", (0, 1))
    sys.exit(0)
def heard(number, frame):
    print("got", number, flush=True)
signal.signal(signal.SIGTERM, heard if end == "stubborn" else told)
print(json.dumps(sys.argv[1:]), flush=True)
if end == "fail" and rank:
    # Together, and whatever the launcher does about the first of them.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    meet("fails", (1, 2, 3))
    if rank == 1:
        sys.exit(3)
    os.kill(os.getpid(), {2: signal.SIGABRT, 3: signal.SIGKILL}[rank])
while True:
    time.sleep(0.02)
"""
SLOTS = {"fail": 4}
"""Ranks of an end, if they are not 2."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread a process, no accelerator."""
    for name, value in clean_environment().items():
        monkeypatch.setenv(name, value)


def script(folder: Path, launcher: str, end: str) -> str:
    """A launch script as a plan makes it."""
    (folder / "rank.py").write_text(RANK)
    python, wrapped = sys.executable, f'"$COCKPIT_DIR"/rankwrap 3 {sys.executable} -u {folder}/rank.py {end}'
    address = "127.0.0.1"
    if launcher == "deepspeed":
        require_module("deepspeed")
        return (
            f"cd {folder}; exec {os.path.dirname(python)}/deepspeed --hostfile=$COCKPIT_DIR/hostfile --no_ssh"
            f" --node_rank 0 --master_addr {address} --master_port {free_port()} --no_python {wrapped}"
        )
    require_module("torch")
    return (
        f"cd {folder}; exec {python} -m torch.distributed.run --nnodes 1 --node-rank 0"
        f" --nproc-per-node {SLOTS.get(end, 2)} --master-addr {address} --master-port {free_port()}"
        f" --no-python {wrapped}"
    )


def begin(launch: Launch, folder: Path, launcher: str, end: str, **facts: object) -> Run:
    text, slots = script(folder, launcher, end), SLOTS.get(end, 2)
    more = {"ranks": list(range(slots)), "files": {"hostfile": f"localhost slots={slots}\n"}}
    return launch(text, launcher=launcher, **more, **facts)


def ready(run: Run, count: int = 2) -> None:
    for rank in range(count):
        run.says(rank, "]\n")


@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun"])
def test_one_sigterm_for_each_rank(launch: Launch, tmp_path: Path, launcher: str) -> None:
    run = begin(launch, tmp_path, launcher, "wait")
    ready(run)
    run.stop()
    run.ended()
    for rank in (0, 1):
        expected = ["wait"] if launcher == "torchrun" else [f"--local_rank={rank}", "wait"]
        first, *rest = run.log(rank).splitlines()
        assert json.loads(first) == expected
        assert rest == ["got 15"]
        exited = run.event("rank_exited", rank=rank)
        assert (exited["code"], exited["signal"], exited["by"]) == (0, None, "wrapper")
    assert len(run.events("rank_started")) == 2


ENDS = {1: (3, None), 2: (None, signal.SIGABRT), 3: (None, signal.SIGKILL)}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun"])
def test_ends_are_exact(launch: Launch, tmp_path: Path, launcher: str) -> None:
    run = begin(launch, tmp_path, launcher, "fail")
    run.ended()
    for rank, (code, number) in ENDS.items():
        exited = run.event("rank_exited", rank=rank)
        assert (exited["code"], exited["signal"], exited["by"]) == (code, number, "wrapper"), rank
    assert run.event("rank_exited", rank=0)
    assert run.event("launcher_exited")["code"] != 0


@pytest.mark.slow
def test_deepspeed_rank_that_ignores_sigterm(launch: Launch, tmp_path: Path) -> None:
    run = begin(launch, tmp_path, "deepspeed", "stubborn", grace_s=8)
    ready(run)
    run.stop()
    run.ended()
    for rank in (0, 1):
        exited = run.event("rank_exited", rank=rank)
        assert (exited["code"], exited["signal"]) == (None, 9)
        assert "got 15" in run.log(rank)


@pytest.mark.slow
def test_deepspeed_launcher_killed(launch: Launch, tmp_path: Path) -> None:
    run = begin(launch, tmp_path, "deepspeed", "wait")
    ready(run)
    # launch.py; the deepspeed runner above it then ends by itself, with status 0.
    os.kill(run.event("rank_started")["parent"], signal.SIGKILL)
    run.event("launcher_exited")
    run.event("note")
    pids = [event["pid"] for event in run.events("rank_started")]
    assert all(alive(pid) for pid in pids)
    run.stop()
    run.ended()
    for rank in (0, 1):
        assert run.event("rank_exited", rank=rank)["code"] == 0
        assert run.log(rank).count("got 15") == 1


def test_stop_while_deepspeed_is_still_importing(launch: Launch, tmp_path: Path) -> None:
    run = begin(launch, tmp_path, "deepspeed", "wait")
    run.event("launcher_started")
    run.stop()
    events = run.ended()
    assert [event["e"] for event in events if event["e"].startswith("rank_")] == []
    assert not (run.folder / record.rank_log(0)).exists()
