"""Ranks that no environment tells of, on two nodes: found, numbered, marked, and the odd one named."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cockpits import ENV
from tests.lab.lab import Lab
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.launch]

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

        until(ready, "its ranks have met", timeout=200)
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
    cockpit = lab.popen([*words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines: list[dict[str, Any]] = []
    try:
        assert cockpit.stdout is not None
        heard: set[str] = set()
        while heard != set(lab.nodes):
            line = cockpit.stdout.readline()
            assert line, cockpit.wait()
            lines.append(json.loads(line))
            if lines[-1]["event"] == "log":
                heard.add(lines[-1]["node"])
        done = lab.run(["cockpit", "stop", "spawns", "--foreign", "--grace", "5"], timeout=90)
        assert done.returncode == 0, done.stderr
        lines += [json.loads(line) for line in cockpit.communicate(timeout=90)[0].splitlines()]
    finally:
        cockpit.kill()
        cockpit.wait()
    assert lines[0]["nodes"] == {lab.nodes[0]: [0, 1], lab.nodes[1]: [2, 3]}
    assert {line["rank"] for line in lines if line["event"] == "rank_gone"} == {0, 1, 2, 3}
    for index, folder in enumerate(sorted((lab.home() / ".local/state/cockpit/runs/spawns/spool").iterdir())):
        assert (folder / "launcher.log").read_bytes() == output(lab, index).read_bytes()


def stacks(lab: Lab) -> tuple[dict[str, Any], str]:
    """``cockpit stacks HOSTFILE --json``: answer and narration."""
    hosts = lab.home() / "hostfile-inferred"
    lab.write(None, hosts, "".join(f"{node} slots=2\n" for node in lab.nodes))
    done = lab.run(["cockpit", "stacks", str(hosts), "--json"], timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.timeout(300)
def test_the_odd_one_of_inferred_ranks_is_named(lab2: Lab) -> None:
    with running(lab2, "--node_rank"):
        answer = until(lambda: judged(lab2), "a likely verdict", timeout=60)
        attached(lab2)
    assert answer is not None
    found, said = answer
    assert "4 inferred ranks on 2 nodes" in said
    assert ":29631" in said
    assert found["verdict"]["ranks"] == "2", found["verdict"]
    assert "inferred" in found["verdict"]["evidence"][0]
    assert [rank["inferred"] for rank in found["ranks"].values()] == ["node_order"] * 4
    assert [rank["node"] for rank in found["ranks"].values()] == [lab2.nodes[at] for at in (0, 0, 1, 1)]
    assert Path(str(lab2.node_path(None, found["snapshot"])), "rank-3.json").is_file()


def judged(lab: Lab) -> tuple[dict[str, Any], str] | None:
    """What is said once it has an opinion: its peers may not have come to the collective yet."""
    found, said = stacks(lab)
    assert found["verdict"]["certainty"] != "sure", found["verdict"]
    return (found, said) if found["verdict"]["certainty"] == "likely" else None
