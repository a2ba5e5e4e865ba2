"""Nodes that cannot be used: one clear line each, the right exit code, the others left clean."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.lab.cockpits import EXAMPLES, Cockpits
from tests.lab.lab import OTHER, USER, Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PLAIN = str(EXAMPLES / "train_plain.py")


def refused(
    cockpits: Cockpits, *options: str, launcher: str = "command", nodes: str | None = None
) -> list[str]:
    """Run, expect that nothing was started or left behind; return what was said, line by line."""
    # What the nodes are like otherwise is another test's.
    words = ("--launcher", launcher, "--no-preflight", *options)
    done = cockpits.run(*words, program=[PLAIN, "--steps", "3"], nodes=nodes)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert not cockpits.left_over()
    assert not cockpits.node_folder("node1").exists()
    progress = ("connecting to", "nodes answered", "nothing was started: ")
    return [line for line in done.stderr.splitlines() if not any(words in line for words in progress)]


def test_nodes_that_cannot_be_reached(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(5)
    lab.link_down("node2")
    lab.stop_sshd("node3", sessions=True)
    lab.refuse_key("node4")
    lab.change_host_key("node5")
    nodes = "".join(f"{name} slots=1\n" for name in (*lab.nodes, "nowhere"))
    lines = refused(Cockpits(lab, "unreachable"), nodes=nodes)
    said = {
        "node2": ["is the node up"],
        "node3": ["connection refused", "sshd"],
        "node4": ["login refused", "ssh-copy-id node4"],
        "node5": ["host key changed", "ssh-keygen -R"],
        "nowhere": ["name unknown"],
    }
    assert len(lines) == len(said), lines
    for name, words in said.items():
        (line,) = (line for line in lines if f"{name}: " in line)
        assert all(word in line for word in words), line


def test_no_such_python(cockpits: Cockpits) -> None:
    lines = refused(cockpits, "--python", "/opt/none/bin/python")
    assert len(lines) == 2
    assert all("no python /opt/none/bin/python" in line and "--python PATH" in line for line in lines)


def test_a_python_without_deepspeed(cockpits: Cockpits) -> None:
    lines = refused(cockpits, "--python", "/usr/bin/python3", launcher="deepspeed")
    assert len(lines) == 2
    assert all("no deepspeed in /usr/bin/python3" in line for line in lines)


def test_a_run_folder_of_somebody_else(cockpits: Cockpits) -> None:
    lab = cockpits.lab
    base = f"/tmp/cockpit-{lab.ids[USER]}"
    taken = lab.node_path("node2", base)
    kept = taken.with_name("kept-aside")
    if taken.exists():
        taken.rename(kept)
    try:
        lab.run(["mkdir", base], node="node2", user=OTHER, check=True)
        (line,) = [line for line in refused(cockpits) if "ready after" not in line]
    finally:
        os.rmdir(taken)
        if kept.exists():
            kept.rename(taken)
    assert line.startswith(f"cockpit: node2: {base} belongs to {OTHER}")
    assert "--node-dir" in line


def test_a_port_in_use(cockpits: Cockpits) -> None:
    lab = cockpits.lab
    script = "import socket, sys\ns = socket.create_server(('', 0))\nprint(s.getsockname()[1], flush=True)\n"
    script += "sys.stdin.read()"
    holder = lab.popen([lab.python, "-c", script], node="node1", stdin=-1, stdout=-1, text=True)
    try:
        assert holder.stdout
        port = holder.stdout.readline().strip()
        (line,) = refused(cockpits, "--master-port", port)
    finally:
        holder.communicate()
    assert f"port {port}" in line
    assert "--master-port" in line


def test_a_missing_script(cockpits: Cockpits) -> None:
    done = cockpits.run("--launcher", "command", program=["nowhere.py"])
    assert done.returncode == 3
    assert done.stderr.count("no nowhere.py in") == 2
