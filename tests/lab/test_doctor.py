"""The doctor on real nodes: one answer each, over ssh; what was planted is named with its node."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.lab import USER, Lab
from tests.needs import require_module
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

HOLDS = """
import os, socket, sys, time
server = socket.create_server(("", 29500))
open(sys.argv[1], "w").close()
time.sleep(600)
"""
"""What is left of a run: it has the port, and the environment of a rank."""


def doctor(lab: Lab, *words: str, timeout: float = PATIENCE_S) -> tuple[int, dict[str, Any]]:
    """The doctor's exit code and what it tells programs."""
    command = ["cockpit", "doctor", str(lab.hostfile), "--json", "--launcher", "torchrun", "--timeout", "60"]
    done = lab.run([*command, *words], timeout=timeout)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout or "{}")


def lines(told: dict[str, Any]) -> dict[str, tuple[str, list[str], str]]:
    """Findings by their id: severity, nodes, sentence; without what this machine may lack itself."""
    everywhere = told["nodes"]
    return {
        each["id"]: (each["severity"], each["nodes"], each["what"])
        for each in told["findings"]
        if each["nodes"] != everywhere and each["id"] != "no_answer"
    }


@contextmanager
def leftover(lab: Lab, node: str) -> Iterator[None]:
    """A rank that nobody ended, with the port that ranks meet at."""
    sign = lab.home() / "holds"
    env = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": node, "MASTER_PORT": "29500"}
    process = lab.popen([lab.python, "-c", HOLDS, str(sign)], node, env=env)
    try:
        until(sign.exists, "the port is held")
        yield
    finally:
        process.kill()
        process.wait()


def other_python(lab: Lab, node: str) -> str:
    """A path at which one node has a Python without torch, and the others have that of the lab."""
    path = lab.home() / "venv" / "bin" / "python"
    for each in lab.nodes:
        isolated = "-I -S" if each == node else ""
        text = f'#!/bin/sh\nexec {lab.python} {isolated} "$@"\n'
        lab.write(each, Path("/tmp/doctor-python"), text, mode=0o755)
    path.parent.mkdir(parents=True, exist_ok=True)
    return "/tmp/doctor-python"


def test_what_is_planted_is_named_and_nodes_that_are_alike_are_fit(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(3)
    code, told = doctor(lab, "--python", sys.executable)
    assert lines(told) == {}
    assert told["nodes"] == ["node1", "node2", "node3"]
    assert code in (0, 1)
    if code == 0:
        assert told["verdict"].startswith("3 nodes fit: python ")

    first, second, third = lab.nodes
    # The folder alone: the Python that runs this may be somewhere below /tmp.
    user = lab.ids[USER]
    folder = f"/tmp/cockpit-{user}"
    full = f"mkdir -p {folder} && mount -t tmpfs -o size=16k,mode=0700,uid={user} tmpfs {folder}"
    lab.run(["sh", "-c", full], second, "root", check=True)
    python = other_python(lab, third)
    lab.run(["ip", "link", "set", "dev", "eth0", "mtu", "1400"], third, "root")
    with leftover(lab, first):
        code, told = doctor(lab, "--python", python)
    found = lines(told)
    assert code == 3
    assert found["no_torch"][:2] == ("error", [third])
    assert found["no_folder"][:2] == ("error", [second])
    assert found["port_in_use"][:2] == ("warning", [first])
    assert "port 29500" in found["port_in_use"][2]
    assert found["leftover_ranks"][1:] == ([first], "rank 5 of a job is running there")
    assert "differs_torch" not in found, "said once"

    lab.stop_sshd(second, sessions=True)
    code, told = doctor(lab, "--python", sys.executable)
    assert code == 3
    assert lines(told)["unreachable"][:2] == ("error", [second])
    assert {first, third}.isdisjoint(lines(told)["unreachable"][1])


BAD_HARDWARE = "02:00:00:00:00:99"
"""An address that nobody has: what is sent there is lost without a word."""


def plant_faults(lab: Lab) -> None:
    """A dropped port of the first node, a wrong interface on the third, a bad link from second to fifth."""

    def on(node: str, *commands: str) -> None:
        lab.run(["sh", "-ec", "\n".join(commands)], node, "root", check=True)

    on(lab.nodes[0], "ip rule add ipproto tcp sport 29500 blackhole")
    on(
        lab.nodes[1],
        f"ip neigh replace {lab.addresses[lab.nodes[4]]} lladdr {BAD_HARDWARE} nud permanent dev eth0",
    )
    on(
        lab.nodes[2],
        "ip link add eth1 type veth peer name eth2",
        "ip addr add 9.0.0.3/24 dev eth1",
        "ip link set eth1 up",
        "ip link set eth2 up",
        "grep -v node3 /etc/hosts > /run/hosts",
        "echo 9.0.0.3 node3 >> /run/hosts",
        "mount --bind /run/hosts /etc/hosts",
    )


def torch_left(lab: Lab) -> list[str]:
    """What runs on the nodes of a torch test, or is an agent."""
    return [
        f"{node}: {process.cmdline[:2]}"
        for node in lab.nodes
        for process in lab.processes(node)
        if process.cmdline and "python" in process.cmdline[0]
    ]


def test_torch_is_tried_between_nodes_and_who_is_to_blame_is_named(make_lab: Callable[[int], Lab]) -> None:
    """Six nodes of which three things are wrong, all found at once; then whoever ends it leaves nothing."""
    require_module("torch")
    lab = make_lab(6)
    plant_faults(lab)
    deep = ("--python", sys.executable, "--deep", "--deep-timeout", "900", "--master-port", "29500")
    code, told = doctor(lab, *deep, timeout=400)
    found = {each["id"]: each for each in told["findings"]}
    assert code == 3
    assert found["deep_port"]["nodes"] == lab.nodes[1:]
    assert "unreached" not in found
    assert found["deep_member"]["nodes"] == [lab.nodes[2]]
    assert "took eth1 (9.0.0.3), most others eth0" in found["deep_member"]["what"]
    assert found["deep_link"]["nodes"] == [lab.nodes[1], lab.nodes[4]]
    assert {node: each["name"] for node, each in told["deep"]["interfaces"].items()} == {
        node: "eth1" if node == lab.nodes[2] else "eth0" for node in lab.nodes
    }
    assert told["deep"]["backend"] == "gloo"
    assert len(told["deep"]["pairs"]) >= 3
    until(lambda: not torch_left(lab), "nothing is left")

    two = ["cockpit", "doctor", "-w", ",".join(lab.nodes[:2]), "--timeout", "60", *deep]
    for number in (signal.SIGINT, signal.SIGKILL):
        process = lab.popen(two, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(
                lambda: any("-c" in each for each in torch_left(lab)),
                "torch is being imported",
                timeout=PATIENCE_S,
            )
        finally:
            process.send_signal(number)
            process.wait(PATIENCE_S)
        until(lambda: not torch_left(lab), "nothing is left")
