"""One table of launchers: what each starts is found, read, looked into and ended, and nothing else is.

The launchers are real; what they start is a few lines of Python.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cockpit.core.logs.metrics import Metrics
from tests.lab.cockpits import ENV, cockpit
from tests.lab.lab import Lab
from tests.needs import require, require_module
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.launch]

PYTHON = "/usr/bin/python3"

RANK = """
import os, time

def train():
    for step in range(1, 1000000):
        # In one piece: several ranks write to one file.
        os.write(1, b"step %d loss %.3f\\n" % (step, 1 / step))
        time.sleep(0.2)

train()
"""


class Scene(NamedTuple):
    """A launcher, started by a shell script in a folder of its own in the shared home.

    :param script: with ``{rank}``, the command of a rank; ``{marks}``, what says who it is; ``{hosts}``
    :param ranks: of each node
    :param node: where it is started; None: the login node
    :param own: the file of each rank by its number; empty: one file, ``out``
    :param tag: what is before each line of a rank in ``out``
    :param speaks: whose console has its untagged lines; empty: no line is untagged
    """

    script: str
    ranks: dict[str, list[int]]
    node: str | None = "node1"
    own: str = ""
    tag: str = ""
    speaks: str = ""
    tools: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def numbers(self) -> list[int | None]:
        """All ranks."""
        return [rank for ranks in self.ranks.values() for rank in ranks]


BOTH = {"node1": [0, 1], "node2": [2, 3]}
ONE = {"node1": [0, 1]}
EACH = {"node1": [0], "node2": [1]}
LOOP = "for r in 0 1; do {marks} RANK=$r LOCAL_RANK=$r"

SCENES = {
    "mpirun": Scene(
        "exec mpirun --hostfile hosts -np 4 --tag-output {rank} >out 2>&1",
        BOTH,
        None,
        tag="[1,%d]<stdout>:",
        speaks="login",
        tools=("mpirun",),
    ),
    # Nothing of it comes to where mpirun writes: each daemon makes the files of its ranks.
    "mpirun-files": Scene(
        "exec mpirun --hostfile hosts -np 4 --output-filename outs:nocopy {rank} >out 2>&1",
        BOTH,
        None,
        own="outs/1/rank.%d/stdout",
        tools=("mpirun",),
    ),
    # It gives each rank a terminal, and tee a pipe.
    "mpirun-tee": Scene(
        "mpirun -np 2 --oversubscribe {rank} 2>&1 | tee out >/dev/null",
        ONE,
        speaks="node1",
        tools=("mpirun",),
    ),
    "deepspeed": Scene(
        "{deepspeed} --hostfile hosts --master_addr node1 --master_port {port} {program} 2>&1"
        " | tee out >/dev/null",
        BOTH,
        None,
        speaks="node1 node2 login",
        tools=("pdsh",),
        modules=("deepspeed",),
    ),
    "pdsh": Scene(
        "exec pdsh -R ssh -w node1,node2 'cd {folder}; env {marks} RANK=%n LOCAL_RANK=0 {rank}' >out 2>&1",
        EACH,
        None,
        tag="node%d: ",
        speaks="login",
        tools=("pdsh",),
    ),
    "ssh": Scene(
        'for r in 0 1; do ssh node$((r + 1)) "env {marks} RANK=$r LOCAL_RANK=0 {rank}" >own-$r 2>&1 & done;'
        " wait",
        EACH,
        None,
        own="own-%d",
    ),
    "nohup": Scene(f"exec >out; {LOOP} nohup {{rank}} 2>/dev/null & done; wait", ONE, speaks="node1"),
    # Its /tmp is its own: what its log is called there is another file here.
    "bwrap": Scene(
        f"mkdir -p tmp-0 tmp-1; {LOOP} bwrap --unshare-user --unshare-pid --ro-bind / / --dev /dev"
        " --bind tmp-$r /tmp sh -c 'exec {rank} >/tmp/train.log 2>&1' & done; wait",
        ONE,
        own="tmp-%d/train.log",
        tools=("bwrap",),
    ),
}

CAMPAIGN = ("deepspeed",)
"""Scenes of which others show the parts: its pdsh, and what DeepSpeed starts on a node."""


class Job:
    """A job of the lab's user that runs."""

    def __init__(self, lab: Lab, name: str, port: int) -> None:
        self.lab, self.name, self.scene = lab, name, SCENES[name]
        self.folder = lab.home() / f"job-{name}"
        self.program = self.folder / f"rank-{name}.py"
        words = {
            "rank": f"{PYTHON} {self.program}",
            "program": str(self.program),
            "folder": str(self.folder),
            "deepspeed": str(Path(lab.python).parent / "deepspeed"),
            "marks": f"WORLD_SIZE={len(self.scene.numbers)} MASTER_ADDR=node1 MASTER_PORT={port}",
            "port": str(port),
        }
        for file, text in {
            self.program.name: RANK,
            "start.sh": self.scene.script.format(**words) + "\n",
            "hosts": "node1 slots=2\nnode2 slots=2\n",
        }.items():
            lab.write(None, self.folder / file, text)

    def start(self) -> subprocess.Popen[Any]:
        """Start it."""
        words = ["setsid", "bash", "start.sh"]
        null = subprocess.DEVNULL
        return self.lab.popen(
            words, self.scene.node, env=ENV, cwd=self.folder, stdin=null, stdout=null, stderr=null
        )

    def file(self, name: str) -> bytes:
        """A file that it writes."""
        path = self.folder / name
        return path.read_bytes() if path.exists() else b""

    def processes(self) -> list[tuple[str | None, int]]:
        """What is there of it, on all machines."""
        return [
            (node, one.inner)
            for node in (None, *self.lab.nodes)
            for one in self.lab.processes(node)
            if any(self.program.name in word for word in one.cmdline) and "--match" not in one.cmdline
        ]


@contextlib.contextmanager
def running(lab: Lab, name: str) -> Iterator[Job]:
    """The job of a scene, and another one beside it."""
    job = Job(lab, name, 29800 + list(SCENES).index(name))
    marks = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "node1", "MASTER_PORT": "29799"}
    other = lab.popen([PYTHON, "-c", "import time; time.sleep(1000)"], node="node1", env=marks)
    launcher = job.start()
    try:
        yield job
        assert other.poll() is None
    finally:
        for node, pid in job.processes():
            lab.run(["kill", "-KILL", str(pid)], node=node, user="root")
        for process in (launcher, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * (name in CAMPAIGN)) for name in SCENES]
)
def test_what_others_started_is_found_read_and_ended(lab2: Lab, name: str) -> None:
    scene = SCENES[name]
    for tool in (PYTHON, *scene.tools):
        require(tool)
    for module in scene.modules:
        require_module(module)
    if name == "bwrap":
        lab2.write("node1", "/tmp/train.log", "another file\n")
    with running(lab2, name) as job:
        watch = Watch(lab2, job)
        try:
            watch.sees_training()
            stacks = json.loads(cockpit(lab2, "stacks", name, "--json").stdout)
            assert {int(rank): one["node"] for rank, one in stacks["ranks"].items()} == {
                rank: node for node, ranks in scene.ranks.items() for rank in ranks
            }
            assert any("train" in json.dumps(each) for each in stacks["classes"]), stacks
            assert job.processes()
            done = cockpit(lab2, "stop", name, "--foreign", "--grace", "5")
            assert done.returncode == 0, done.stderr
            until(lambda: not job.processes(), "nothing is left behind")
            assert watch.ends() == 0
        finally:
            watch.close()
        check_logs(lab2, job)


class Watch:
    """``cockpit attach`` of a job, under the name of its scene."""

    def __init__(self, lab: Lab, job: Job) -> None:
        self._lab, self._job = lab, job
        self._metrics = Metrics()
        self._process: subprocess.Popen[str] | None = None

    def sees_training(self) -> None:
        """Attach; return once the step and loss of every log were seen."""
        lab, job = self._lab, self._job
        scene = job.scene
        words = ["cockpit", "attach", "-w", ",".join(scene.ranks), "--match", job.program.name]
        words += ["--name", job.name, "--headless", "--json"]
        files = [scene.own % rank for rank in scene.numbers] if scene.own else ["out"]
        # All of them: who is not there when cockpit attaches is not looked for later.
        said = len(scene.numbers) // len(files)
        until(lambda: all(job.file(name).count(b"step 2 loss") >= said for name in files), "all train")
        self._process = lab.popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        wanted = set(scene.numbers) if scene.own or scene.tag else {None}
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] == "log" and "loss" in event["text"]:
                self._metrics.feed(event["rank"], event["text"].encode() + b"\n", event.get("t", 0.0))
                wanted.discard(event["rank"])
            if not wanted:
                break
        assert not wanted, self._process.wait(PATIENCE_S)
        assert self._metrics.latest.step is not None
        assert self._metrics.latest.loss is not None

    def ends(self) -> int:
        """Wait until it has seen the job's end."""
        assert self._process is not None
        self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def check_logs(lab: Lab, job: Job) -> None:
    """What is here of the job's output is what is in its files, byte for byte."""
    scene = job.scene
    spool = lab.home() / f".local/state/cockpit/runs/{job.name}/spool"
    logs = {
        (folder.name.partition("-")[2], path.stem): path.read_bytes()
        for folder in spool.iterdir()
        for path in folder.glob("*.log")
        if path.stat().st_size
    }
    if scene.own:
        wanted = {
            (node, f"rank-{rank}"): job.file(scene.own % rank)
            for node, ranks in scene.ranks.items()
            for rank in ranks
        }
        if said := job.file("out"):
            wanted[scene.node or "login", "launcher"] = said
        assert logs == wanted
        return
    theirs = job.file("out").splitlines(keepends=True)
    assert sorted(line for data in logs.values() for line in data.splitlines(keepends=True)) == sorted(theirs)
    assert {node for node, name in logs if name == "launcher"} <= set(scene.speaks.split())
    for node, ranks in scene.ranks.items() if scene.tag else ():
        for rank in ranks:
            tag = (scene.tag % (rank + ("node" in scene.tag))).encode()
            assert logs[node, f"rank-{rank}"] == b"".join(line for line in theirs if line.startswith(tag))
