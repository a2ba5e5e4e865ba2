"""Jobs that cockpit did not start: found by their environment, their stacks taken and judged."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cockpits import ENV, EXAMPLES
from tests.lab.lab import OTHER, USER, Lab
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.launch]

PORT = "29611"

HANGS = """
import os, time
import torch
import torch.distributed as dist

def hang():
    print("it hangs", flush=True)
    while True:
        time.sleep(1)

dist.init_process_group("gloo")
for step in range(1_000_000):
    if os.environ["RANK"] == "0" and step == 3:
        hang()
    dist.all_reduce(torch.ones(1))
    print("step %d loss %.3f" % (step, 1 / (1 + step)), flush=True)
"""
"""Rank 0 is the one whose output is read, so it is the one that says when it hangs."""


def launch(lab: Lab, node: str, index: int, launcher: str, program: list[str], user: str) -> list[str]:
    """What a person would type on one node."""
    if launcher == "deepspeed":
        words = [str(Path(lab.python).parent / "deepspeed"), "--no_ssh", "--hostfile", str(hostfile(lab))]
        words += ["--node_rank", str(index), "--master_addr", lab.nodes[0], "--master_port", PORT]
    elif launcher == "torchrun":
        # Unbuffered, or what it repeats of its ranks' files comes late.
        words = ["-u", "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(index)]
        words += ["--nproc-per-node", "2", "--master-addr", lab.nodes[0], "--master-port", PORT]
        words += ["--tee", "3", "--log-dir", str(lab.home(user) / f"logs-{index}")]
    else:
        words = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "2"]
        words += ["--num_processes", "4", "--machine_rank", str(index), "--main_process_ip", lab.nodes[0]]
        words += ["--main_process_port", PORT, "--mixed_precision", "no", "--dynamo_backend", "no"]
    return [lab.python, *words, *program]


def hostfile(lab: Lab) -> Path:
    """The hostfile of the lab's nodes, where every machine can read it."""
    path = lab.home() / "hostfile-foreign"
    lab.write(None, path, "".join(f"{node} slots=2\n" for node in lab.nodes))
    return path


@contextlib.contextmanager
def running(lab: Lab, launcher: str, program: list[str], sign: str, user: str = USER) -> Iterator[None]:
    """A job of ``user``, from the line of its first node that has ``sign`` to its end."""
    jobs = [
        lab.popen(
            launch(lab, node, index, launcher, program, user),
            node=node,
            user=user,
            env=ENV,
            cwd=EXAMPLES,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index, node in enumerate(lab.nodes)
    ]
    try:
        output = jobs[0].stdout
        assert output is not None
        said = []
        for line in output:
            said.append(line)
            if sign in line:
                break
        else:
            raise AssertionError("".join(said))
        yield
    finally:
        for node in lab.nodes:
            for process in lab.processes(node):
                if "RANK" in process.environ or any("launch" in word for word in process.cmdline):
                    lab.run(["kill", "-KILL", str(process.inner)], node=node, user="root")
        for job in jobs:
            job.kill()
            job.communicate()


def watch_like_a_run(lab: Lab) -> None:
    """Ranks of torchrun that write to files of their own: measured, and their logs read byte for byte."""
    words = ["cockpit", "attach", str(hostfile(lab)), "--name", "theirs", "--headless", "--json"]
    cockpit = lab.popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert cockpit.stdout is not None
        wanted = {("log", rank) for rank in range(4)} | {("sample", node) for node in lab.nodes}
        seen: list[dict[str, Any]] = []
        for line in cockpit.stdout:
            event = json.loads(line)
            seen.append(event)
            if event["event"] == "log":
                wanted.discard(("log", event["rank"]))
            if event["event"] == "sample" and len(event["ranks"]) == 2:
                wanted.discard(("sample", event["node"]))
            if not wanted:
                break
        assert not wanted, seen
    finally:
        cockpit.terminate()
        cockpit.communicate()
    told = json.loads(lab.run(["cockpit", "ps", "theirs", "--json"], timeout=60).stdout)
    assert told["state"] == "running", told
    assert {rank["text"] for rank in told["ranks"]} == {"running"}
    assert all(rank["sample"]["rss_bytes"] > 1e6 for rank in told["ranks"])
    for index in range(len(lab.nodes)):
        for local in range(2):
            folder = f"{lab.home()}/logs-{index}"
            files = f"cat {folder}/*/attempt_0/{local}/stdout.log {folder}/*/attempt_0/{local}/stderr.log"
            theirs = lab.run(["sh", "-c", files], node=lab.nodes[index]).stdout
            logs = ["cockpit", "logs", "theirs", "--rank", str(2 * index + local), "--raw"]
            ours = lab.run(logs, timeout=60).stdout
            assert "loss" in ours
            assert sorted(ours.splitlines()) == sorted(theirs.splitlines())
    refused = lab.run(["cockpit", "stop", "theirs"], timeout=60)
    assert refused.returncode == 2
    assert "torch.distributed.run" in refused.stderr
    assert "--foreign" in refused.stderr
    done = lab.run(["cockpit", "stop", "theirs", "--foreign", "--grace", "5"], timeout=90)
    assert done.returncode == 0, done.stderr
    assert "processes have ended" in done.stdout


def stacks(lab: Lab, *words: str) -> tuple[int, dict[str, Any], str]:
    """``cockpit stacks HOSTFILE --json``: exit code, answer, narration."""
    done = lab.run(["cockpit", "stacks", str(hostfile(lab)), "--json", *words], timeout=120)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "accelerate"])
def test_a_job_of_ones_own_is_found_and_its_hung_rank_named(lab2: Lab, launcher: str) -> None:
    script = lab2.home() / "hangs.py"
    lab2.write(None, script, HANGS)
    with running(lab2, launcher, [str(script)], "it hangs"):

        def judged() -> dict[str, Any] | None:
            code, found, said = stacks(lab2)
            assert code == 0, said
            assert f"{launcher} job" in said
            # Its peers may not have come to the collective yet.
            return found if found["verdict"]["certainty"] == "sure" else None

        found = until(judged, "a sure verdict", timeout=60)
        if launcher == "torchrun":
            watch_like_a_run(lab2)
    assert found is not None
    assert found["verdict"]["ranks"] == "0", found["verdict"]
    assert "hang" in found["verdict"]["where"]
    assert "hangs.py" in found["verdict"]["where"]
    assert sorted(found["ranks"]) == ["0", "1", "2", "3"]
    assert {rank["node"] for rank in found["ranks"].values()} == set(lab2.nodes)
    assert found["missing"] == {}
    assert Path(str(lab2.node_path(None, found["snapshot"])), "rank-3.json").is_file()


@pytest.mark.timeout(300)
def test_a_job_of_somebody_else_is_refused_by_name(lab2: Lab) -> None:
    program = ["train_plain.py", "--steps", "100000", "--step-time", "1"]
    with running(lab2, "torchrun", program, "step 1/", user=OTHER):
        code, found, said = stacks(lab2)
    assert code == 3
    assert not found
    assert OTHER in said
    assert "root" in said
    assert "Traceback" not in said


@pytest.mark.timeout(300)
def test_which_of_two_jobs_is_asked(lab2: Lab) -> None:
    ranks = []
    for port in ("29701", "29702"):
        env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": port}
        words = [lab2.python, "-c", "import time; print('up', flush=True); time.sleep(1000)"]
        ranks.append(lab2.popen(words, node="node1", env=env, stdout=subprocess.PIPE))
    try:
        for rank in ranks:
            assert rank.stdout is not None
            rank.stdout.readline()
        code, found, said = stacks(lab2)
        assert code == 2
        assert not found
        assert "node1:29701" in said
        assert "--job 2" in said
        code, found, said = stacks(lab2, "--job", "29702")
        assert code == 1, said  # rank 1 is nowhere
        assert "29702" in found["job"]
        assert list(found["missing"]) == ["1"]
        assert "not found" in found["missing"]["1"]
    finally:
        for rank in ranks:
            rank.kill()
            with rank:
                rank.wait()
