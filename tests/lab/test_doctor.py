"""The doctor on real nodes: one answer each, over ssh; what was planted is named with its node."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.lab import Lab
from tests.waiting import until

pytestmark = pytest.mark.lab

HOLDS = """
import os, socket, sys, time
server = socket.create_server(("", 29500))
open(sys.argv[1], "w").close()
time.sleep(600)
"""
"""What is left of a run: it has the port, and the environment of a rank."""


def doctor(lab: Lab, *words: str, timeout: float = 180) -> tuple[int, dict[str, Any]]:
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
        until(sign.exists, "the port is held", timeout=60)
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
    lab.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", "/tmp"], second, "root", check=True)
    python = other_python(lab, third)
    lab.run(["ip", "link", "set", "dev", "eth0", "mtu", "1400"], third, "root")
    with leftover(lab, first):
        code, told = doctor(lab, "--python", python)
    found = lines(told)
    assert code == 3
    assert found["no_torch"][:2] == ("error", [third])
    assert found["disk_full"][:2] == ("error", [second])
    assert found["port_in_use"][:2] == ("warning", [first])
    assert "port 29500" in found["port_in_use"][2]
    assert found["leftover_ranks"][1:] == ([first], "rank 5 of a job runs there")
    assert "differs_torch" not in found, "said once"

    lab.stop_sshd(second, sessions=True)
    code, told = doctor(lab, "--python", sys.executable)
    assert code == 3
    assert lines(told)["unreachable"][:2] == ("error", [second])
    assert {first, third}.isdisjoint(lines(told)["unreachable"][1])
