"""How SLURM ends the job that a run is in, and what is said of it: the reason by its name, everywhere."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.slurm import CPUS, Slurm, without_sshd
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TRAINS = (
    "import signal, time\n"
    "signal.signal(signal.SIGUSR1, lambda *_: print('told by USR1'))\n"
    "for step in range(1, 100000):\n"
    "    print('step', step)\n"
    "    time.sleep(0.1)\n"
)
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{TRAINS}"


@pytest.fixture(params=["linuxproc", "cgroup"])
def slurm(request: pytest.FixtureRequest) -> Iterator[Slurm]:
    """Two nodes without sshd; jobs of ``urgent`` take those of all other partitions but ``steady``."""
    more = [
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "PartitionName=cheap Nodes=ALL PriorityTier=1 PreemptMode=CANCEL State=UP",
        "PartitionName=again Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE State=UP",
        "PartitionName=urgent Nodes=ALL PriorityTier=10 State=UP",
        "PartitionName=steady Nodes=ALL PriorityTier=1 PreemptMode=OFF State=UP",
    ]
    with without_sshd(request.param, more="\n".join(more)) as cluster:
        yield cluster


class End(NamedTuple):
    """A way in which a job ends.

    :param job: makes the job
    :param fault: ends it
    :param said: the sentence about that, with {job} for its number
    :param trains: what its ranks run
    """

    job: Callable[[Slurm], str]
    fault: Callable[[Slurm, str], object]
    said: str
    trains: str = TRAINS


def allocated(*options: str) -> Callable[[Slurm], str]:
    return lambda slurm: slurm.allocate("-N2", *options)


def batch(script: str, *options: str) -> Callable[[Slurm], str]:
    """A job of a script, running."""

    def make(slurm: Slurm) -> str:
        path = slurm.lab.home() / "job.sh"
        slurm.lab.write(None, path, f"#!/bin/sh\n{script}\n")
        job = slurm.run("sbatch", "--parsable", "-N2", "--output=/dev/null", *options, str(path)).strip()
        until(lambda: slurm.state(job) == "RUNNING", "the job runs")
        return job

    return make


def as_root(*words: str) -> Callable[[Slurm, str], object]:
    """What an administrator types, with {job} for the job."""
    return lambda slurm, job: slurm.lab.run(
        [word.format(job=job) for word in words], user="root", env=slurm.env, check=True
    )


def preempt(slurm: Slurm, job: str, cpus: int = CPUS - 1) -> None:
    """Take so many processors of each node for a moment."""
    slurm.run("scancel", slurm.allocate("-N2", f"--ntasks-per-node={cpus}", "-p", "urgent"))


def node_fails(slurm: Slurm, job: str) -> None:
    """A slurmd is killed, and an administrator does not wait until the controller sees that."""
    slurm.kill_node("node2")
    as_root("scontrol", "update", "nodename=node2", "state=down", "reason=killed")(slurm, job)


def cancel(slurm: Slurm, job: str) -> None:
    slurm.run("scancel", job)


def cancel_step(slurm: Slurm, job: str) -> None:
    slurm.run("scancel", held_step(slurm, job))


def held_step(slurm: Slurm, job: str) -> str:
    """The step that holds the supervisors."""
    steps = dict(
        line.split()[::-1] for line in slurm.run("squeue", "-h", "-s", "-o", "%i %j", "-j", job).splitlines()
    )
    return str(steps["cockpit"])


LEAST = ("scancel", "ignores", "node")
"""Ends that are tried however processes are tracked."""

SLEEPS = "exec sleep 600"
ENDS = {
    "scancel": End(allocated(), cancel, "SLURM job {job} was cancelled"),
    "ignores": End(allocated(), cancel, "SLURM job {job} was cancelled", STUBBORN),
    "script": End(
        batch("until [ -e $HOME/go ]; do sleep 0.1; done"),
        lambda slurm, job: slurm.lab.write(None, slurm.lab.home() / "go", ""),
        "SLURM job {job} is over: its script, or the salloc that made it, has ended",
    ),
    "limit": End(
        allocated("-t", "10"),
        as_root("scontrol", "update", "jobid={job}", "EndTime=now+1"),
        "SLURM ended job {job} at its time limit (00:",
    ),
    "preempted": End(allocated("-p", "cheap"), preempt, "SLURM preempted job {job} for another one"),
    "queued-again": End(
        batch(SLEEPS, "-p", "again", "--requeue"),
        preempt,
        "SLURM preempted job {job} for another one, and queued it again",
    ),
    "requeue": End(
        batch(SLEEPS, "--requeue"),
        as_root("scontrol", "requeue", "{job}"),
        "SLURM ended job {job} to queue it again (requeue)",
    ),
    "step": End(allocated(), cancel_step, "which held the run, was cancelled; SLURM job {job} continues"),
    "node": End(allocated("-p", "steady"), node_fails, "SLURM ended job {job}: node2 failed"),
}


TOGETHER = (
    ("scancel", "ignores", "script", "limit", "requeue", "step"),
    ("preempted", "queued-again"),
    ("node",),
)
"""Ends that come at the same time."""


def test_every_end_of_a_job_is_called_by_its_name(slurm: Slurm) -> None:
    """The jobs begin side by side: most of what each takes is waiting for SLURM."""
    assert sorted(ENDS) == sorted(name for names in TOGETHER for name in names)
    # The words are the same, however processes are tracked.
    strictest = slurm.tracking == Slurm.strictest()
    chosen = [[name for name in names if strictest or name in LEAST] for names in TOGETHER]
    jobs = {name: ENDS[name].job(slurm) for names in chosen for name in names}
    unwatched = slurm.allocate("-N2", "-t", "10") if strictest else ""
    cockpits = {name: Cockpits(slurm.lab, name, slurm.env) for name in jobs}
    runs = {name: begun(run, jobs[name], ENDS[name].trains) for name, run in cockpits.items()}
    if unwatched:
        unwatched_run(slurm, unwatched)
    for run in cockpits.values():
        run.wait_for_start()
        all_train(run)
    told_by_a_signal(slurm, cockpits["scancel"], jobs["scancel"])
    for names in chosen:
        for name in names:
            ENDS[name].fault(slurm, jobs[name])
        for name in names:
            ends_as_it_should(slurm, name, jobs[name], runs[name])
    if unwatched:
        known_later(slurm, unwatched)


def ends_as_it_should(slurm: Slurm, name: str, job: str, process: subprocess.Popen[str]) -> None:
    cockpits = Cockpits(slurm.lab, name, slurm.env)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    if name == "node":
        slurm.start_node("node2")  # a slurmd that comes back ends what is left of jobs that are over
    sentence = ENDS[name].said.format(job=job)
    assert sentence in said, f"{name}: {said}"
    assert "first to fail" not in said, "what SLURM ended has not failed"
    if name == "step":
        slurm.cancel(job)
    else:
        recorded(cockpits, {signal.SIGTERM, signal.SIGKILL} if name == "ignores" else {signal.SIGTERM})
        slurm.run("scancel", job, check=False)  # it may be queued again
        over(slurm, job)
    assert not cockpits.left_over(), name
    if name in ("node", "step"):
        shown_afterwards(cockpits, sentence)


def begun(cockpits: Cockpits, job: str, trains: str = TRAINS) -> subprocess.Popen[str]:
    """A run in a job, that has yet to train."""
    words = ["--slurm", job, "--launcher", "command", "--headless"]
    return cockpits.begin(*words, program=["/usr/bin/python3", "-u", "-c", trains], stderr=subprocess.PIPE)


def all_train(cockpits: Cockpits) -> None:
    """Wait until all ranks do: from then on they take signals as they should."""

    def trains(node: str) -> bool:
        return sum(b"step 2\n" in log for log in cockpits.logs(node).values()) == 2

    for node in cockpits.lab.nodes:
        until(partial(trains, node), f"all ranks of {cockpits.name} train")


def told_by_a_signal(slurm: Slurm, cockpits: Cockpits, job: str) -> None:
    """What ``--signal=USR1`` does some time before the end: each rank is told, once, and all goes on."""

    def lines(node: str) -> list[bytes]:
        return [line for log in cockpits.logs(node).values() for line in log.splitlines()]

    def told(node: str) -> bool:
        return lines(node).count(b"told by USR1") >= 2

    slurm.run("scancel", "-s", "USR1", job)
    for node in slurm.lab.nodes:
        until(partial(told, node), "each rank was told")
    before = {node: len(lines(node)) for node in slurm.lab.nodes}
    until(lambda: all(len(lines(node)) > before[node] + 4 for node in slurm.lab.nodes), "they train on")
    if slurm.tracking == "cgroup":  # elsewhere SLURM tells ranks and wrappers too
        assert all(lines(node).count(b"told by USR1") == 2 for node in slurm.lab.nodes), "and only once"


def over(slurm: Slurm, job: str) -> None:
    """Wait for the end of a job."""
    until(lambda: slurm.state(job) == "", "the job has ended")


def recorded(cockpits: Cockpits, signals: set[int]) -> None:
    """Each node records how its ranks ended before SLURM's SIGKILL; a failed one does once it is back."""

    def ended(node: str) -> bool:
        return cockpits.count(node, "ended") == 1

    for node in cockpits.lab.nodes:
        until(partial(ended, node), "all of it is recorded")
        exits = [event for event in cockpits.events(node) if event["e"] == "rank_exited"]
        assert len(exits) == 2, cockpits.name
        assert {event["signal"] for event in exits} <= signals, cockpits.name


def shown_afterwards(cockpits: Cockpits, sentence: str) -> None:
    """The same sentence from those who come later."""
    shown = json.loads(cockpits.cockpit("ps", cockpits.name, "--json", "--no-connect").stdout)
    assert sentence in shown["state"]
    assert [(found["id"], found["certainty"]) for found in shown["findings"]] == [("job_ended", "sure")]
    attached = cockpits.cockpit("attach", cockpits.name, "--headless", "--json")
    assert attached.returncode == 1
    over = json.loads(attached.stdout.splitlines()[-1])
    assert sentence in over["job_end"]
    assert over["first_failure"] is None


def unwatched_run(slurm: Slurm, job: str) -> None:
    """A run that nobody watches any more, in a job that is at its time limit."""
    cockpits = Cockpits(slurm.lab, "unwatched", slurm.env)
    process = begun(cockpits, job)
    cockpits.wait_for_start()
    process.kill()
    process.communicate()
    as_root("scontrol", "update", "jobid={job}", "EndTime=now+1")(slurm, job)


def known_later(slurm: Slurm, job: str) -> None:
    """What srun has said is enough to know how that job ended, and so is the controller."""
    over(slurm, job)
    cockpits = Cockpits(slurm.lab, "unwatched", slurm.env)
    said = f"SLURM ended job {job} at its time limit"
    listed = json.loads(cockpits.cockpit("ps", "--json", "--no-connect").stdout)
    assert [run["state"] for run in listed if run["run"] == "unwatched"] == [said], listed
    attached = cockpits.cockpit("attach", "unwatched", "--headless")
    assert attached.returncode == 1, attached.stderr
    assert said + " (00:" in attached.stderr
    assert f"SLURM job {job} has ended" in attached.stderr
    shown = json.loads(cockpits.cockpit("ps", "unwatched", "--json").stdout)
    assert {rank["state"] for rank in shown["ranks"]} == {"gone"}
    stopped = cockpits.cockpit("stop", "unwatched")
    assert stopped.returncode == 0, stopped.stderr
    assert not cockpits.left_over()


FORGETFUL = """
MinJobAge=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=graceful Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=5 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 State=UP
"""
WAITS = """
import os, sys, time
step = 0
while not os.path.exists(os.path.expanduser("~/go-" + sys.argv[1])):
    step += 1
    print("step", step)
    time.sleep(0.1)
if sys.argv[1] == "failed" and os.environ["RANK"] == "3":
    raise KeyError("what it died of")
"""


def test_words_are_the_same_when_slurm_has_forgotten_the_job() -> None:
    """Runs that were left: what was known of their ends while their job was there is known later."""
    with without_sshd("linuxproc", more=FORGETFUL.strip()) as slurm:
        job = slurm.allocate("-N2")
        graceful = slurm.allocate("-N2", "-p", "graceful")
        preempted = begun(Cockpits(slurm.lab, "graceful", slurm.env), graceful)
        runs = left(slurm, job, "well", "failed", "stopped", "unseen", "cancelled")
        for name in ("well", "failed", "unseen"):
            slurm.lab.write(None, slurm.lab.home() / f"go-{name}", "")
        for name in ("well", "failed", "unseen"):
            until(runs[name].ended, f"the end of {name}")
        assert runs["stopped"].cockpit("stop", "stopped").returncode == 0
        seen = ("well", "failed", "stopped")
        before = {name: shown(runs[name]) for name in seen}
        assert [before[name]["state"] for name in ("well", "stopped")] == ["ended", "stopped"]
        assert "what it died of" in before["failed"]["findings"][0]["detail"]
        gone = runs["cancelled"]
        slurm.cancel(job)
        cancelled = shown(gone)["state"]
        # Within two seconds SLURM tells why; after that only how its step has ended is known.
        assert cancelled.startswith((f"SLURM job {job} was cancelled", f"SLURM cancelled step {job}."))
        preempted_with_grace(slurm, graceful, preempted)  # in the minute after which SLURM forgets
        until(lambda: "Invalid job id" in forgotten(slurm, job), "SLURM has forgotten it")
        for name in seen:
            after = shown(runs[name])
            assert {one: after[one] for one in KEPT} == {one: before[name][one] for one in KEPT}
        assert shown(gone)["state"] == cancelled
        assert "how it ended is not known" in shown(runs["unseen"])["state"]
        codes = {"well": 0, "failed": 1, "stopped": 1, "cancelled": 1, "unseen": 3}
        for name, code in codes.items():
            assert gone.cockpit("attach", name, "--headless").returncode == code, name


def preempted_with_grace(slurm: Slurm, job: str, process: subprocess.Popen[str]) -> None:
    """A job that another one takes the nodes of, after the seconds that its partition grants."""
    cockpits = Cockpits(slurm.lab, "graceful", slurm.env)
    cockpits.wait_for_start()
    preempt(slurm, job, CPUS)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert f"SLURM preempted job {job} for another one" in said
    assert f"SLURM preempted job {job} for another one" in shown(cockpits)["state"]


KEPT = ("state", "ranks", "findings")


def left(slurm: Slurm, job: str, *names: str) -> dict[str, Cockpits]:
    """Runs that their cockpits have left while they went on."""
    runs = {name: Cockpits(slurm.lab, name, slurm.env) for name in names}
    words = ["--slurm", job, "--launcher", "command", "--headless"]
    program = ["/usr/bin/python3", "-u", "-c", WAITS]
    begun = [run.begin(*words, program=[*program, name]) for name, run in runs.items()]
    for run, process in zip(runs.values(), begun, strict=True):
        run.wait_for_start()
        process.kill()
        process.communicate()
    return runs


def shown(cockpits: Cockpits) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cockpits.cockpit("ps", "--json", cockpits.name).stdout)
    return found


def forgotten(slurm: Slurm, job: str) -> str:
    return slurm.lab.run(["scontrol", "show", "job", job], env=slurm.env).stderr
