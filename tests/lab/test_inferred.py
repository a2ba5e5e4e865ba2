"""Ranks that no environment tells of, on two nodes: found, numbered, marked, and the odd one named."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cockpits import ENV, cockpit
from tests.lab.lab import Lab
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.launch]

PROGRAM = """
import sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(local, node):
    rank = 2 * node + local
    dist.init_process_group("gloo", init_method="tcp://node1:29631", rank=rank, world_size=4)
    dist.all_reduce(torch.ones(4))
    print("ready", flush=True)
    if rank == 2:
        time.sleep(1000)
    dist.all_reduce(torch.ones(4))

if __name__ == "__main__":
    mp.start_processes(work, (int(sys.argv[-1]),), nprocs=2, start_method="fork")
"""


@contextlib.contextmanager
def running(lab: Lab, *words: str) -> Iterator[None]:
    """The program on both nodes, from the moment at which its ranks have met to its end."""
    path = lab.home() / "spawns.py"
    lab.write(None, path, PROGRAM)
    jobs = [
        lab.popen(
            [
                "sh",
                "-c",
                'exec "$@" >"$0" 2>&1',
                output(lab, index),
                lab.python,
                str(path),
                *words,
                str(index),
            ],
            node=node,
            env={**ENV, "GLOO_SOCKET_IFNAME": ""},
        )
        for index, node in enumerate(lab.nodes)
    ]
    try:

        def ready() -> bool:
            said = [path.read_text() if path.exists() else "" for path in (output(lab, 0), output(lab, 1))]
            assert all(job.poll() is None for job in jobs), said
            return all(text.count("ready\n") == 2 for text in said)

        until(ready, "its ranks have met")
        yield
    finally:
        for node in lab.nodes:
            for process in lab.processes(node):
                if str(path) in process.cmdline:
                    lab.run(["kill", "-KILL", str(process.inner)], node=node, user="root")
        for job in jobs:
            job.kill()
            job.wait()


def output(lab: Lab, index: int) -> Path:
    """What the node with this index prints."""
    return lab.home() / f"out-spawns-{index}"


def attached(lab: Lab) -> None:
    """Its output is here, and it is ended by request."""
    words = ["cockpit", "attach", str(lab.home() / "hostfile-inferred"), "--name", "spawns", "--headless"]
    watch = lab.popen([*words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines: list[dict[str, Any]] = []
    try:
        assert watch.stdout is not None
        heard: set[str] = set()
        while heard != set(lab.nodes):
            line = watch.stdout.readline()
            assert line, watch.wait()
            lines.append(json.loads(line))
            if lines[-1]["event"] == "log":
                heard.add(lines[-1]["node"])
        done = cockpit(lab, "stop", "spawns", "--foreign", "--grace", "5")
        assert done.returncode == 0, done.stderr
        lines += [json.loads(line) for line in watch.communicate(timeout=PATIENCE_S)[0].splitlines()]
    finally:
        watch.kill()
        watch.wait()
    assert lines[0]["nodes"] == {lab.nodes[0]: [0, 1], lab.nodes[1]: [2, 3]}
    assert {line["rank"] for line in lines if line["event"] == "rank_gone"} == {0, 1, 2, 3}
    for index, folder in enumerate(sorted((lab.home() / ".local/state/cockpit/runs/spawns/spool").iterdir())):
        assert (folder / "launcher.log").read_bytes() == output(lab, index).read_bytes()


def stacks(lab: Lab) -> tuple[dict[str, Any], str]:
    """``cockpit stacks HOSTFILE --json``: answer and narration."""
    hosts = lab.home() / "hostfile-inferred"
    lab.write(None, hosts, "".join(f"{node} slots=2\n" for node in lab.nodes))
    done = cockpit(lab, "stacks", str(hosts), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_the_odd_one_of_inferred_ranks_is_named(lab2: Lab) -> None:
    with running(lab2, "--node_rank"):
        answer = until(lambda: judged(lab2), "a likely verdict")
        attached(lab2)
    assert answer is not None
    found, said = answer
    assert "4 inferred ranks on 2 nodes" in said
    assert ":29631" in said
    assert found["verdict"]["ranks"] == "2", found["verdict"]
    assert "rank 2 is inferred" in " ".join(found["verdict"]["evidence"])
    assert [rank["inferred"] for rank in found["ranks"].values()] == ["node_order"] * 4
    assert [rank["node"] for rank in found["ranks"].values()] == [lab2.nodes[at] for at in (0, 0, 1, 1)]
    assert Path(str(lab2.node_path(None, found["snapshot"])), "rank-3.json").is_file()


def judged(lab: Lab) -> tuple[dict[str, Any], str] | None:
    """What is said once it has an opinion: its peers may not have come to the collective yet."""
    found, said = stacks(lab)
    assert found["verdict"]["certainty"] != "sure", found["verdict"]
    return (found, said) if found["verdict"]["certainty"] == "likely" else None


POOL = """
import json, os, socket, sys, time

def write_title(title):
    # As setproctitle does: over the arguments, and the environment behind them.
    fields = open("/proc/self/stat", "rb").read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[48])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(title.encode().ljust(end - start, b"\\0"))

def serve(port):
    server = socket.create_server(("", int(port)))
    guests = [server.accept() for _ in iter(int, 1)]

def work(folder, name):
    service = socket.create_connection(("node1", 6479))
    server = socket.create_server(("", 0))
    with open(os.path.join(folder, name + ".new"), "w") as file:
        file.write(str(server.getsockname()[1]))
    os.rename(os.path.join(folder, name + ".new"), os.path.join(folder, name))
    write_title("ray::IDLE")
    driver, _ = server.accept()
    os.environ.update(json.loads(driver.makefile().readline()))
    write_title("ray::RayTrainWorker.train")
    train()

def train():
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    for step in range(1, 1000000):
        print("step %d loss %.3f" % (step, 1 / step), flush=True)
        if step == 3 and os.environ["RANK"] == "2":
            stand_still()
        dist.all_reduce(torch.ones(4))

def stand_still():
    time.sleep(1000)

def drive(folder, *names):
    import torch
    service = socket.create_connection(("node1", 6479))
    wires = []
    for rank, name in enumerate(names):
        node, port = name.split("-")[0], open(os.path.join(folder, name)).read()
        wires.append(socket.create_connection((node, int(port))))
        env = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank // 2)}
        env.update(MASTER_ADDR="node1", MASTER_PORT="36479")
        wires[-1].sendall(json.dumps(env).encode() + b"\\n")
    time.sleep(1000)

globals()[sys.argv[1]](*sys.argv[2:])
"""

RAYLET = """
exec 3<>/dev/tcp/node1/6479
for at in 0 1 2; do
    "$1" "$2/pool.py" work "$2" "$3-$at" >"$2/$3-$at.out" 2>"$2/$3-$at.err" 3<&- &
done
wait
"""
"""What runs on each node of a pool, whoever uses it; like Ray's it is no Python."""


@contextlib.contextmanager
def pool(lab: Lab) -> Iterator[Path]:
    """A pool as Ray has it, with a job in it whose rank 2 does not come to its third collective.

    Its driver deals out ranks by turns, and one worker of each node gets nothing.
    """
    folder = lab.home() / "pool"
    lab.write(None, folder / "pool.py", POOL)
    lab.write(None, folder / "raylet", RAYLET)
    python = [lab.python, str(folder / "pool.py")]
    env = {**ENV, "GLOO_SOCKET_IFNAME": "", "OMP_NUM_THREADS": "1"}
    started = [lab.popen([*python, "serve", "6479"], node="node1", env=env)]

    def start(words: list[str], node: str) -> None:
        started.append(lab.popen(words, node=node, env=env))

    def ready(names: list[str]) -> bool:
        assert all(one.poll() is None for one in started)
        return all((folder / name).exists() for name in names)

    try:
        until(lambda: lab.run(["bash", "-c", "</dev/tcp/node1/6479"]).returncode == 0, "its server is there")
        for node in lab.nodes:
            start(["bash", str(folder / "raylet"), lab.python, str(folder), node], node)
        workers = [f"{node}-{at}" for node in lab.nodes for at in range(3)]
        until(lambda: ready(workers), "its workers wait")
        # Not in the order of their start: only the driver knows.
        start([*python, "drive", str(folder), "node1-2", "node2-1", "node1-0", "node2-2"], "node1")

        def trains() -> bool:
            assert ready(workers)
            texts = [(folder / f"{name}.out").read_text() for name in ("node1-2", "node2-1", "node1-0")]
            return all("step 3" in text for text in texts)

        until(trains, "they train")
        yield folder
    finally:
        for node in lab.nodes:
            for process in lab.processes(node):
                if any(word in " ".join(process.cmdline) for word in ("ray::", "raylet", str(folder))):
                    lab.run(["kill", "-KILL", str(process.inner)], node=node, user="root")
        for one in started:
            one.kill()
            one.wait()


def test_a_pool_of_workers_as_ray_has_it(lab2: Lab) -> None:
    """Only the driver knows who is which rank: they are one job, and only that is said."""
    with pool(lab2) as folder:
        answer = until(lambda: judged(lab2), "a likely verdict")
        assert answer is not None
        found, said = answer
        assert "found: ray job at " in said
        assert ":36479, 4 processes on 2 nodes" in said
        assert "their ranks are unknown, so they are numbered by node and pid" in said
        assert {rank["inferred"] for rank in found["ranks"].values()} == {"pid"}
        assert [rank["node"] for rank in found["ranks"].values()] == [lab2.nodes[at] for at in (0, 0, 1, 1)]
        # That of node1 which was started first is rank 2 to those who know.
        assert found["verdict"]["ranks"] == "0", found["verdict"]
        assert "stand_still" in found["verdict"]["where"]
        assert f"process {found['ranks']['0']['pid']} on node1" in " ".join(found["verdict"]["evidence"])
        watched(lab2, folder)


def watched(lab: Lab, folder: Path) -> None:
    """Each worker's file is its log, and stopping it leaves the pool alone."""
    words = ["cockpit", "attach", str(lab.home() / "hostfile-inferred"), "--name", "pool", "--headless"]
    files = ["node1-0", "node1-2", "node2-1", "node2-2"]
    spool = lab.home() / ".local/state/cockpit/runs/pool/spool"

    def logs() -> list[bytes]:
        return [path.read_bytes() for path in sorted(spool.glob("*/rank-*.log"))]

    watch = lab.popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        theirs = [(folder / f"{name}.out").read_bytes() for name in files]
        until(lambda: logs() == theirs, "all logs are here")
        refused = cockpit(lab, "stop", "pool")
        assert refused.returncode == 2
        assert "raylet" not in refused.stderr
        assert "SIGTERM to ranks without a launcher of their own: " in refused.stderr
        done = cockpit(lab, "stop", "pool", "--foreign", "--grace", "5")
        assert done.returncode == 0, done.stderr
        # Its launcher lives; the job is over.
        assert watch.wait(PATIENCE_S) == 0, watch.communicate()[1]
    finally:
        watch.kill()
        watch.communicate()
    for node in lab.nodes:
        lines = [" ".join(one.cmdline) for one in lab.processes(node)]
        assert any("raylet" in line for line in lines), lines
        assert sum(line.startswith("ray::") for line in lines) == 1, lines
