"""Jobs that cockpit did not start: found by their environment, their stacks taken and judged."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cockpits import ENV, EXAMPLES, cockpit
from tests.lab.lab import OTHER, USER, Lab
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.launch]

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


def launch(lab: Lab, index: int, launcher: str, program: list[str]) -> list[str]:
    """What a person would type on one node."""
    if launcher == "deepspeed":
        words = [str(Path(lab.python).parent / "deepspeed"), "--no_ssh", "--hostfile", str(hostfile(lab))]
        words += ["--node_rank", str(index), "--master_addr", lab.nodes[0], "--master_port", PORT]
        words += ["--enable_each_rank_log", str(lab.home() / f"logs-{launcher}-{index}")]
    elif launcher == "torchrun":
        # Unbuffered, or what it repeats of its ranks' files comes late.
        words = ["-u", "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(index)]
        words += ["--nproc-per-node", "2", "--master-addr", lab.nodes[0], "--master-port", PORT]
        words += ["--tee", "3", "--log-dir", str(lab.home() / f"logs-{launcher}-{index}")]
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


def output(lab: Lab, launcher: str, index: int) -> Path:
    """The file that has what a launcher prints on the node with that index."""
    return lab.home() / f"out-{launcher}-{index}"


@contextlib.contextmanager
def running(lab: Lab, launcher: str, program: list[str], sign: str) -> Iterator[None]:
    """A job, from the line of its first node that has ``sign`` to its end."""
    into = ["sh", "-c", 'exec "$@" >"$0" 2>&1']
    jobs = [
        lab.popen(
            [*into, output(lab, launcher, index), *launch(lab, index, launcher, program)],
            node=node,
            env=ENV,
            cwd=EXAMPLES,
        )
        for index, node in enumerate(lab.nodes)
    ]
    try:
        logs = lab.home() / f"logs-{launcher}-0"

        def said() -> bool:
            files = [output(lab, launcher, 0), *logs.rglob("*.log")]
            text = "".join(path.read_text() for path in files if path.exists())
            assert jobs[0].poll() is None, text
            return sign in text

        until(said, sign)
        yield
    finally:
        for node in lab.nodes:
            for process in lab.processes(node):
                if "RANK" in process.environ or any("launch" in word for word in process.cmdline):
                    lab.run(["kill", "-KILL", str(process.inner)], node=node, user="root")
        for job in jobs:
            job.kill()
            job.wait()


def watch_like_a_run(lab: Lab, launcher: str) -> None:
    """Its ranks are measured, and what it writes is read byte for byte."""
    words = ["cockpit", "attach", str(hostfile(lab)), "--name", launcher, "--headless", "--json"]
    watch = lab.popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert watch.stdout is not None
        ranks = range(4)
        logs: set[tuple[str, str, int | None]] = {("log", node, None) for node in lab.nodes}
        if launcher != "accelerate":
            logs = {("log", lab.nodes[rank // 2], rank) for rank in ranks}
        wanted = logs | {("sample", node, None) for node in lab.nodes}
        seen: list[dict[str, Any]] = []
        for line in watch.stdout:
            event = json.loads(line)
            seen.append(event)
            if event["event"] == "log" and "loss" in event["text"]:
                wanted.discard(("log", event["node"], event["rank"]))
            if event["event"] == "sample" and len(event["ranks"]) == 2:
                wanted.discard(("sample", event["node"], None))
            if not wanted:
                break
        assert not wanted, seen
        until(lambda: spooled(lab, launcher) == written(lab, launcher), f"all output of {launcher}")
    finally:
        watch.terminate()
        watch.communicate()
    told = json.loads(cockpit(lab, "ps", launcher, "--json").stdout)
    assert told["state"] == "running", told
    assert {rank["text"] for rank in told["ranks"]} == {"running"}
    assert all(rank["sample"]["rss_bytes"] > 1e6 for rank in told["ranks"])
    refused = cockpit(lab, "stop", launcher)
    assert refused.returncode == 2
    assert {"deepspeed": "deepspeed.launcher.launch", "torchrun": "torch.distributed.run"}.get(
        launcher, "accelerate.commands.launch"
    ) in refused.stderr
    assert "--foreign" in refused.stderr
    done = cockpit(lab, "stop", launcher, "--foreign", "--grace", "5")
    assert done.returncode == 0, done.stderr
    assert "processes ended" in done.stdout


def spooled(lab: Lab, name: str) -> dict[tuple[str, str], list[bytes]]:
    """The lines here of each log that is not empty, in order of the alphabet if it is of two files."""
    folder = lab.home() / ".local/state/cockpit/runs" / name / "spool"
    return {
        (node, path.stem): in_order(name, path.stem, path.read_bytes())
        for index, node in enumerate(lab.nodes)
        for path in (folder / f"{index:04d}-{node}").glob("*.log")
        if path.stat().st_size
    }


def written(lab: Lab, launcher: str) -> dict[tuple[str, str], list[bytes]]:
    """The same of the files that a job has written."""
    found = {}
    for index, node in enumerate(lab.nodes):
        found[node, "launcher"] = output(lab, launcher, index).read_bytes()
        logs = lab.home() / f"logs-{launcher}-{index}"
        for local in range(2):
            rank = 2 * index + local
            files = [*logs.glob(f"*/attempt_0/{local}/std*.log"), *logs.glob(f"*_rank{rank}.log")]
            found[node, f"rank-{rank}"] = b"".join(path.read_bytes() for path in sorted(files))
    return {(node, log): in_order(launcher, log, data) for (node, log), data in found.items() if data}


def in_order(launcher: str, log: str, data: bytes) -> list[bytes]:
    """Lines of a log; of torchrun's ranks sorted, which have a file for output and one for errors."""
    lines = data.splitlines(keepends=True)
    return sorted(lines) if launcher == "torchrun" and log != "launcher" else lines


def stacks(lab: Lab, *words: str) -> tuple[int, dict[str, Any], str]:
    """``cockpit stacks HOSTFILE --json``: exit code, answer, narration."""
    done = cockpit(lab, "stacks", str(hostfile(lab)), "--json", *words)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("accelerate", marks=pytest.mark.campaign)])
def test_a_job_of_ones_own_is_found_and_its_hung_rank_named(lab2: Lab, launcher: str) -> None:
    script = lab2.home() / "hangs.py"
    lab2.write(None, script, HANGS)
    with running(lab2, launcher, [str(script)], "it hangs"):

        def judged() -> dict[str, Any] | None:
            found = asked(lab2, launcher)
            # Its peers may not have come to the collective yet. That it is sure after ten seconds, however
            # often somebody looks, is the same for all launchers: one is enough.
            enough = ("sure",) if launcher == "torchrun" else ("sure", "likely")
            return found if found["verdict"]["certainty"] in enough else None

        found = until(judged, "a sure verdict")
        watch_like_a_run(lab2, launcher)
    assert found is not None
    check_whole(lab2, found)
    assert found["verdict"]["ranks"] == "0", found["verdict"]
    assert "hang" in found["verdict"]["where"]
    assert "hangs.py" in found["verdict"]["where"]
    assert Path(str(lab2.node_path(None, found["snapshot"])), "rank-3.json").is_file()


STANDS = """
import time
for step in range(3):
    print("step %d loss %.3f" % (step, 1 / (1 + step)), flush=True)
time.sleep(1000)
"""


def test_a_job_of_deepspeed_is_found_and_watched(lab2: Lab) -> None:
    script = lab2.home() / "stands.py"
    lab2.write(None, script, STANDS)
    with running(lab2, "deepspeed", [str(script)], "step 2 loss"):

        def stand() -> bool:
            logs = lab2.home().glob("logs-deepspeed-*/*_rank*.log")
            return sum("step 2" in path.read_text() for path in logs) == 4

        until(stand, "all ranks")
        check_whole(lab2, asked(lab2, "deepspeed"))
        watch_like_a_run(lab2, "deepspeed")


def asked(lab: Lab, launcher: str) -> dict[str, Any]:
    """The stacks of a job of that launcher."""
    code, found, said = stacks(lab)
    assert code == 0, said
    assert f"{launcher} job" in said
    return found


def check_whole(lab: Lab, found: dict[str, Any]) -> None:
    """All ranks are found, each on its node."""
    nodes = {rank: one["node"] for rank, one in found["ranks"].items()}
    assert nodes == {str(rank): lab.nodes[rank // 2] for rank in range(4)}
    assert found["missing"] == {}


def test_a_job_of_somebody_else_is_refused_by_name(lab2: Lab) -> None:
    # Nobody else may read its environment: what it is called by is all that there is to see.
    words = ["-c", "print('up', flush=True); input()", "-m", "torch.distributed.run", "--nnodes", "2"]
    jobs = [
        lab2.popen([lab2.python, *words, "train.py"], node=node, user=OTHER, stdin=-1, stdout=-1)
        for node in lab2.nodes
    ]
    try:
        for job in jobs:
            assert job.stdout is not None
            job.stdout.readline()
        code, found, said = stacks(lab2)
        attached = cockpit(lab2, "attach", str(hostfile(lab2)), "--headless")
    finally:
        for job in jobs:
            job.communicate()
    assert code == 3
    assert not found
    assert attached.returncode == 3
    for text in (said, attached.stderr):
        assert f"no job of yours on node[1-2], but of {OTHER}" in text
        assert f"only {OTHER} or root may inspect it" in text
        assert "Traceback" not in text


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


def others_may_look(lab: Lab, file: str) -> None:
    """Somebody who may read the state folder sees what is there of the job, and asks its nodes nothing."""
    state = lab.home() / ".local/state"
    lab.run(["chmod", "-R", "o+rX", str(lab.home() / ".local")], user="root", check=True)
    lab.run(["chmod", "o+x", str(lab.home())], user="root", check=True)
    alone = f"belongs to {USER}, so cockpit does not connect to its nodes"
    for words, code, said in (
        (["ps", "lonely"], 0, "running"),
        (["logs", "lonely"], 0, "step 1 loss"),
        (["stacks", "lonely", "--list"], 0, "VERDICT"),
        (["attach", "lonely", "--headless"], 3, alone),
        (["stop", "lonely"], 3, alone),
        (["stop", "lonely", "--foreign"], 3, alone),
        (["stacks", "lonely"], 3, alone),
        (["collect", "lonely", file], 3, alone),
    ):
        env = {"XDG_STATE_HOME": str(state)}
        done = lab.run(["cockpit", *words], user=OTHER, env=env, timeout=PATIENCE_S)
        assert (done.returncode, said in done.stdout + done.stderr) == (code, True), (words, done)


LONELY = """
import time
for step in range(1, 1000000):
    print("step %d loss %.3f" % (step, 1 / step), flush=True)
    time.sleep(0.2)
"""


def test_a_program_without_any_rank_is_watched_when_it_is_named(lab2: Lab) -> None:
    script, out = lab2.home() / "lonely.py", lab2.home() / "lonely.out"
    lab2.write(None, script, LONELY)
    into = ["sh", "-c", 'exec "$@" >"$0"', str(out), "/usr/bin/python3", str(script)]
    program = lab2.popen(into, node="node1")
    sleeps = ["/usr/bin/python3", "-c", "import time; time.sleep(1000)", str(script)]
    other = lab2.popen(sleeps, node="node2", user=OTHER)
    try:
        until(lambda: out.exists() and b"step 3" in out.read_bytes(), "it trains")

        def begun(node: str) -> list[int]:
            them = [one for one in lab2.processes(node) if str(script) in one.cmdline]
            return [one.inner for one in them if "python3" in one.cmdline[0]]

        pids = {node: until(partial(begun, node), f"python on {node}")[0] for node in lab2.nodes}
        theirs = cockpit(lab2, "attach", "-w", "node2", "--pid", str(pids["node2"]), "--headless")
        assert theirs.returncode == 3
        assert f"process {pids['node2']}" in theirs.stderr
        assert f"is of {OTHER}: only {OTHER} or root may inspect it" in theirs.stderr
        words = ["cockpit", "attach", "-w", "node1", "--pid", str(pids["node1"]), "--name", "lonely"]
        watch = lab2.popen(
            [*words, "--headless"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            assert watch.stdout is not None
            said = ""
            while "step 3 loss" not in said:
                line = watch.stdout.readline()
                assert line, said
                said += line
            assert "~ rank 0 is inferred: it is the program you named" in said
            again = cockpit(lab2, "stacks", "-w", "node[1-2]", "--match", "lonely[.]py", "--json")
            assert list(json.loads(again.stdout)["ranks"]) == ["0"], again.stderr
            stacks = json.loads(cockpit(lab2, "stacks", "lonely", "--json").stdout)
            assert stacks["ranks"]["0"]["pid"] == pids["node1"]
            told = json.loads(cockpit(lab2, "ps", "lonely", "--json").stdout)
            assert [one["text"] for one in told["ranks"]] == ["running"]
            others_may_look(lab2, str(out))
            done = cockpit(lab2, "stop", "lonely", "--foreign")
            assert done.returncode == 0, done.stderr
            watch.communicate(timeout=PATIENCE_S)
        finally:
            watch.kill()
            watch.communicate()
        spool = lab2.home() / ".local/state/cockpit/runs/lonely/spool/0000-node1/rank-0.log"
        assert spool.read_bytes() == out.read_bytes()
    finally:
        for process in (program, other):
            process.kill()
            process.wait()
