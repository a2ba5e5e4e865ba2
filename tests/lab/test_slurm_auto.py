"""A hostfile of nodes that nobody can log in to, while a SLURM job of ours holds them; and batch scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.slurm import Slurm, without_sshd
from tests.needs import lacking
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ADOPT = "Access denied by pam_slurm_adopt: you have no active jobs on this node"
SHORT = ["/bin/sh", "-c", "echo rank $RANK in job $SLURM_JOB_ID"]
LONG = ["/bin/sh", "-c", "while sleep 0.1; do echo on; done"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Two nodes of two GPUs each, as far as SLURM knows, on which no sshd listens."""
    with without_sshd(gpus=2) as cluster:
        yield cluster


@pytest.fixture
def allocate(slurm: Slurm) -> Iterator[Callable[..., str]]:
    """Makes jobs that end with the test."""
    jobs: list[str] = []

    def make(*options: str) -> str:
        jobs.append(slurm.allocate(*options))
        return jobs[-1]

    yield make
    for job in jobs:
        slurm.cancel(job)


@pytest.fixture
def cockpits(slurm: Slurm, request: pytest.FixtureRequest) -> Cockpits:
    """Cockpits on the login node, which know where SLURM is."""
    return Cockpits(slurm.lab, request.node.name.replace("_", "-")[:50], slurm.env)


def steps(slurm: Slurm, job: str) -> list[str]:
    """Names of the steps of a job."""
    return slurm.run("squeue", "-h", "-s", "-o", "%j", "-j", job).split()


def test_where_no_sshd_listens_auto_takes_the_job_that_holds_the_nodes(
    slurm: Slurm, cockpits: Cockpits, allocate: Callable[..., str]
) -> None:
    without = cockpits.run("--launcher", "command", program=SHORT)
    assert without.returncode == 3
    assert "node1: connection refused: no sshd listens there" in without.stderr

    job = allocate("-N2")
    process = cockpits.start("--launcher", "command", "--headless", program=LONG)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: steps(slurm, job) == ["cockpit"], "one step, which holds all supervisors")
    manifest = json.loads((cockpits.folder / "manifest.json").read_text())
    assert (manifest["transport"], manifest["transport_options"]) == ("srun", {"job": job})
    assert [node["transport"] for node in manifest["nodes"]] == ["srun", "srun"]
    stopped = cockpits.cockpit("stop", cockpits.name)
    assert stopped.returncode == 0, stopped.stderr
    assert not cockpits.left_over()

    second = allocate("-N2")
    several = cockpits.run("--launcher", "command", "--name", "several", program=SHORT)
    assert several.returncode == 3
    said = f"no sshd listens there; your SLURM jobs {job}, {second} hold it; say which one: --slurm {job}"
    assert f"node2: connection refused: {said}" in several.stderr
    inside = {
        **slurm.env,
        "SLURM_JOB_ID": second,
        "SLURM_JOB_NODELIST": "node[1-2]",
    }
    within = cockpits.run("--launcher", "command", "--name", "inside", program=SHORT, env=inside)
    assert within.returncode == 0, within.stderr
    assert f"node[1-2]: reached by steps of SLURM job {second}: connection refused" in within.stderr
    assert f"rank 3 in job {second}" in within.stdout


def test_a_run_is_in_one_job_or_in_none(
    slurm: Slurm, cockpits: Cockpits, allocate: Callable[..., str]
) -> None:
    job = allocate("-N1", "-w", "node1")
    slurm.lab.start_sshd("node2")
    try:
        refused = cockpits.run("--launcher", "command", program=SHORT)
        assert refused.returncode == 3
        assert f"node2: is not a node of SLURM job {job}" in refused.stderr
        assert "a run must have all its nodes in one SLURM job, or none" in refused.stderr
        assert "--exclude node2" in refused.stderr
        # Those who only look are not bound to one job.
        shown = cockpits.cockpit("ps", "--hostfile", str(slurm.lab.hostfile), "--json")
        assert shown.returncode == 0, shown.stderr
    finally:
        slurm.lab.stop_sshd("node2", sessions=True)
    allocate("-N1", "-w", "node2")
    refused = cockpits.run("--launcher", "command", program=SHORT)
    assert "a run must be in one" in refused.stderr
    until(lambda: steps(slurm, job) == [], "the step of the refused run has ended")


def test_a_start_that_fails_leaves_no_step(
    slurm: Slurm, cockpits: Cockpits, allocate: Callable[..., str]
) -> None:
    job = allocate("-N2")
    slurm.lab.write("node2", f"/tmp/cockpit-{slurm.lab.ids['ckplab']}/{cockpits.name}/node2/x", "")
    done = cockpits.run("--slurm", job, "--launcher", "command", program=LONG)
    assert done.returncode != 0
    assert "node2" in done.stderr
    until(lambda: steps(slurm, job) == [], "no step is left")
    assert not cockpits.left_over()


def test_pam_slurm_adopt_s_words_are_known(
    slurm: Slurm, cockpits: Cockpits, allocate: Callable[..., str]
) -> None:
    """Said by PAM to a real sshd, which closes then, as the real module has it do."""
    lab = slurm.lab
    if not list(Path("/usr/lib").glob("*/security/pam_exec.so")):
        lacking("pam_exec is not installed")
    rules = f"auth optional pam_permit.so\naccount requisite pam_exec.so stdout quiet /bin/echo {ADOPT}\n"
    try:
        for node in lab.nodes:
            lab.write(node, "/tmp/pam", f"{rules}account requisite pam_deny.so\n", owner="root")
            lab.run(["mount", "--bind", "/tmp/pam", "/etc/pam.d/sshd"], node, "root", check=True)
            lab.start_sshd(node, "UsePAM yes")
        for transport in ("auto", "openssh"):
            refused = cockpits.run("--launcher", "command", "--transport", transport, program=SHORT)
            assert refused.returncode == 3
            assert "node1: SLURM refuses logins without a job on that node" in refused.stderr
        connections = lab.sshd_log("node1").count("Connection from")
        job = allocate("-N2")
        done = cockpits.run("--launcher", "command", program=SHORT)
        assert done.returncode == 0, done.stderr
        assert f"node[1-2]: reached by steps of SLURM job {job}: SLURM refuses logins" in done.stderr
        assert lab.sshd_log("node1").count("Connection from") == connections + 1, "refused once"
    finally:
        for node in lab.nodes:
            lab.stop_sshd(node, sessions=True)
            lab.run(["umount", "/etc/pam.d/sshd"], node, "root")


def test_what_plan_prints_for_sbatch_runs(slurm: Slurm, cockpits: Cockpits) -> None:
    lab = slurm.lab
    python = ["--python", "/usr/bin/python3", "--launcher", "command"]
    tell = 'echo "$RANK of $WORLD_SIZE: $1 ($SLURM_GPUS_ON_NODE GPUs)"; exit $((RANK * $2))'

    def submit(status: int) -> subprocess.Popen[str]:
        program = ["/bin/sh", "-c", tell, "sh", "it's $HOME", str(status)]
        words = ["plan", "--sbatch", "--nodes", "2", "--slots", "2", *python, "--name", f"sbatch-{status}"]
        planned = cockpits.cockpit(*words, "--", *program)
        assert planned.returncode == 0, planned.stderr
        script = lab.home() / f"{status}.sbatch"
        lab.write(None, script, planned.stdout)
        return lab.popen(["sbatch", "--wait", f"--output={script}.out", str(script)], env=slurm.env)

    submitted = {status: submit(status) for status in (0, 1)}
    out = {}
    for status, process in submitted.items():
        code = process.wait(PATIENCE_S)
        out[status] = (lab.home() / f"{status}.sbatch.out").read_text()
        assert code == status, out[status]
    for rank in range(4):
        assert f"{rank} of 4: it's $HOME (2 GPUs)" in out[0]
    assert "cockpit logs sbatch-1 --rank" in out[1], "it says where to look"
