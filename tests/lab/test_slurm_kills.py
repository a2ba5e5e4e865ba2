"""kill -9 of every process that a run in a SLURM job rests on, in turn: what is said, and what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.lab import Process
from tests.lab.slurm import Slurm, without_sshd
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TRAINS = "import time\nfor step in range(1, 100000):\n    print('step', step)\n    time.sleep(0.1)\n"


@pytest.fixture(params=["linuxproc", "cgroup"])
def slurm(request: pytest.FixtureRequest) -> Iterator[Slurm]:
    """Two nodes without sshd."""
    with without_sshd(request.param) as cluster:
        yield cluster


def words(process: Process) -> str:
    return " ".join(process.cmdline)


def is_holder(process: Process) -> bool:
    return "--job-name=cockpit" in process.cmdline


def is_step_to(node: str) -> Callable[[Process], bool]:
    """Whether a process is the srun of the step by which the cockpit reaches a node."""
    return lambda process: "--unbuffered" in process.cmdline and node in process.cmdline


def is_agent(process: Process) -> bool:
    return "def receive" in words(process)


def is_supervisor(process: Process) -> bool:
    return "--held" in process.cmdline


def is_wrapper(process: Process) -> bool:
    return "wrap" in process.cmdline and not is_supervisor(process)


def is_rank(process: Process) -> bool:
    return process.cmdline[1:3] == ("-u", "-c") and "print('step'" in words(process)


def is_slurmd(process: Process) -> bool:
    return bool(process.cmdline) and process.cmdline[0].endswith("/slurmd")


def is_of(name: str, job: str) -> Callable[[Process], bool]:
    """Whether a process is of the run of that name, which is the only one in that job."""
    return lambda process: (
        process.environ.get("COCKPIT_RUN") == name
        or f"--jobid={job}" in process.cmdline
        or any(f"/{name}/" in word for word in process.cmdline)
    )


def kill(slurm: Slurm, node: str | None, which: Callable[[Process], bool]) -> int:
    """Kill the oldest process of a kind on a node (None: the login node); returns its number."""
    pid = min(process.pid for process in slurm.lab.processes(node) if which(process))
    os.kill(pid, signal.SIGKILL)
    return pid


def held_step(slurm: Slurm, job: str) -> str:
    listed = slurm.run("squeue", "-h", "-s", "-o", "%i %j", "-j", job).splitlines()
    return next(line.split()[0] for line in listed if line.endswith(" cockpit"))


class Fatal(NamedTuple):
    """A process whose death ends the run, or a part of it.

    :param node: where it is; None: the login node
    :param said: what people are told
    """

    node: str | None
    which: Callable[[Process], bool]
    said: str


FATAL = {
    "srun": Fatal(None, is_holder, "the srun that held the run was killed (pid {pid} on login)"),
    "supervisor": Fatal("node1", is_supervisor, "node1: its supervisor was killed"),
    "wrapper": Fatal("node1", is_wrapper, "on node1, killed by SIGKILL"),
    "rank": Fatal("node1", is_rank, "on node1, killed by SIGKILL"),
}
ALIKE = ("wrapper", "rank")
"""Nothing about them differs from one way of tracking to another: the strictest one is enough."""


def begun(cockpits: Cockpits, job: str) -> subprocess.Popen[str]:
    options = ["--slurm", job, "--launcher", "command", "--headless", "--failure-wait", "0"]
    program = ["/usr/bin/python3", "-u", "-c", TRAINS]
    return cockpits.begin(*options, program=program, stderr=subprocess.PIPE)


def wait_for_training(cockpits: Cockpits) -> None:
    cockpits.wait_for_start()
    until(lambda: trains(cockpits), "all ranks train")


def trains(cockpits: Cockpits) -> list[int]:
    """How far each node's ranks are together; empty: not all have begun."""
    steps = [data.count(b"step") for node in cockpits.lab.nodes for data in rank_logs(cockpits, node)]
    return steps if len(steps) == 4 and all(steps) else []


def rank_logs(cockpits: Cockpits, node: str) -> list[bytes]:
    return [data for name, data in cockpits.logs(node).items() if name.startswith("rank-")]


def goes_on(cockpits: Cockpits, what: str) -> None:
    before = trains(cockpits)
    until(
        lambda: all(new > old for new, old in zip(trains(cockpits), before, strict=True)), f"{what}: goes on"
    )


def is_seen_to_be_gone(cockpits: Cockpits) -> None:
    journal = cockpits.folder / "journal.jsonl"
    until(lambda: "supervisor_gone" in journal.read_text(), "it is seen that a supervisor is gone")


def test_what_each_death_ends_and_what_is_said_of_it(slurm: Slurm) -> None:
    """Each in a job of its own, side by side: most of what they take is waiting."""
    strictest = slurm.tracking == Slurm.strictest()
    fatal = {name: one for name, one in FATAL.items() if strictest or name not in ALIKE}
    jobs = {name: slurm.allocate("-N2") for name in (*fatal, "stepd")}
    runs = {name: Cockpits(slurm.lab, name, slurm.env) for name in jobs}
    processes = {name: begun(run, jobs[name]) for name, run in runs.items()}
    for run in runs.values():
        wait_for_training(run)
    pids = {name: kill_of_run(slurm, one, name, jobs[name]) for name, one in fatal.items()}
    step = held_step(slurm, jobs["stepd"])
    kill(slurm, "node1", lambda each: words(each).startswith(f"slurmstepd: [{step}]"))
    for name, one in fatal.items():
        if name == "supervisor":
            without_supervisor(slurm, runs[name])
        _, said = processes[name].communicate(timeout=PATIENCE_S)
        assert processes[name].returncode == 1, f"{name}: {said}"
        assert one.said.format(pid=pids[name]) in said, f"{name}: {said}"
        nothing_is_left(runs[name])
        runs[name].assert_spools_equal()
        assert slurm.state(jobs[name]) == "RUNNING", "the job is not ours to end"
    without_the_step_of_a_node(slurm, runs["stepd"], processes["stepd"], jobs["stepd"])
    if strictest:
        nothing_else_matters(slurm, jobs["srun"])


def kill_of_run(slurm: Slurm, fatal: Fatal, name: str, job: str) -> int:
    """Kill what is fatal to that run; returns its number."""
    ours = is_of(name, job)
    return kill(slurm, fatal.node, lambda each: fatal.which(each) and ours(each))


def without_supervisor(slurm: Slurm, cockpits: Cockpits) -> None:
    if slurm.tracking != "cgroup":
        goes_on(cockpits, "there, what has detached itself outlives it")
    # Nobody has recorded how its ranks ended: that alone stops no others.
    is_seen_to_be_gone(cockpits)
    assert cockpits.cockpit("stop", cockpits.name).returncode == 0


def without_the_step_of_a_node(
    slurm: Slurm, cockpits: Cockpits, process: subprocess.Popen[str], job: str
) -> None:
    """Without its slurmstepd nothing would end a run with its job: it ends by itself, also on other nodes."""
    _, said = process.communicate(timeout=PATIENCE_S)
    assert "the slurmstepd that held it has ended" in said, said
    nothing_is_left(cockpits)
    assert all(cockpits.count(node, "ended") == 1 for node in slurm.lab.nodes)
    cockpits.assert_spools_equal()
    slurm.run("scancel", job)
    until(lambda: slurm.state(job) == "", "the job has ended")


def nothing_is_left(cockpits: Cockpits) -> None:
    until(lambda: not cockpits.left_over(), f"{cockpits.name}: nothing is left")


def nothing_else_matters(slurm: Slurm, job: str) -> None:
    """A run outlives everything that only looks at it, and SLURM's own daemon."""
    cockpits = Cockpits(slurm.lab, "goes-on", slurm.env)
    process = begun(cockpits, job)
    wait_for_training(cockpits)
    kill(slurm, "node1", is_agent)
    goes_on(cockpits, "an agent is killed")
    kill(slurm, None, is_step_to("node2"))
    goes_on(cockpits, "the srun of a link is killed")
    kill(slurm, "node1", is_slurmd)
    goes_on(cockpits, "slurmd is killed")
    slurm.start_node("node1")
    process.kill()
    process.communicate()
    goes_on(cockpits, "the cockpit is killed")
    shown = json.loads(cockpits.cockpit("ps", cockpits.name, "--json").stdout)
    assert {rank["state"] for rank in shown["ranks"]} == {"running"}
    stopped = cockpits.cockpit("stop", "--slurm", held_step(slurm, job))
    assert stopped.returncode == 0, stopped.stderr
    assert not cockpits.left_over()
    assert all(cockpits.count(node, "ended") == 1 for node in slurm.lab.nodes)
