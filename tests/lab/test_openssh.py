"""The user's own ssh program against real sshds: a whole run, what comes after it, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cockpits import EXAMPLES, Cockpits, cockpit
from tests.lab.lab import Lab
from tests.stderr_lines import messages
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PLAIN = str(EXAMPLES / "train_plain.py")
BY = ("--transport", "openssh")


@contextlib.contextmanager
def configured(lab: Lab, *lines: str) -> Iterator[Path]:
    """The configuration of the lab's user, with more lines before it."""
    path = lab.home() / "config-openssh"
    own = (lab.home() / ".ssh/config").read_text()
    lab.write(None, path, "".join(f"{line}\n" for line in lines) + own)
    yield path
    path.unlink()


@contextlib.contextmanager
def masters(lab: Lab, config: Path) -> Iterator[None]:
    """A ControlMaster connection to each node, as a person opens it."""
    for node in lab.nodes:
        lab.run(["ssh", "-F", config, "-fNM", node], check=True, stderr=None, stdout=None)
    try:
        yield
    finally:
        for node in lab.nodes:
            lab.run(["ssh", "-F", config, "-O", "exit", node])


def alone(lab: Lab) -> dict[str, str]:
    """Of a cockpit that knows no runs: it would ask the nodes of those that other tests have left, too."""
    return {"XDG_STATE_HOME": str(lab.home() / "no-runs")}


def clients(cockpits: Cockpits) -> dict[str, int]:
    """The ssh processes of cockpits on the login node, by node."""
    found = {}
    for process in cockpits.lab.processes(None):
        words = process.cmdline
        if words[:1] == ("ssh",) and "-T" in words:
            found[words[words.index("--") + 1]] = process.pid
    return found


def manifest(cockpits: Cockpits) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cockpits.folder / "manifest.json").read_text())
    return found


def test_a_run_past_lost_links_and_what_comes_after_it(cockpits: Cockpits) -> None:
    """ps, attach and stop go the way the run went, by what its manifest says."""
    lab = cockpits.lab
    process = cockpits.start(*BY, "--launcher", "command", program=[PLAIN, "--steps", "100000"])
    assert set(clients(cockpits)) == set(lab.nodes)
    for pid in clients(cockpits).values():
        assert os.getsid(pid) == pid
    lose_links(cockpits)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not clients(cockpits), "its ssh processes end with it")
    written = manifest(cockpits)
    assert written["transport"] == "openssh"
    assert [node["transport"] for node in written["nodes"]] == ["openssh", "openssh"]

    attached = lab.popen(["cockpit", "attach", cockpits.name, "--plain"], stdout=subprocess.DEVNULL)
    try:
        until(lambda: set(clients(cockpits)) == set(lab.nodes), "attach goes the same way")
        listed = cockpits.cockpit("ps", cockpits.name, "--json")
        assert '"state": "running"' in listed.stdout, listed.stdout + listed.stderr
        stopped = cockpits.cockpit("stop", cockpits.name, "--now")
        assert stopped.returncode == 0, stopped.stderr
        attached.wait(PATIENCE_S)
    finally:
        attached.kill()
        attached.wait()
    until(lambda: not cockpits.left_over(), "nothing is left")
    cockpits.assert_spools_equal()


def lose_links(cockpits: Cockpits) -> None:
    """The link to a node whose ssh is killed comes back, and one that is cut off."""
    first = clients(cockpits)["node2"]
    os.kill(first, signal.SIGKILL)
    until(lambda: clients(cockpits).get("node2", first) != first, "another ssh takes its place")

    def back() -> bool:
        return links(cockpits, "node2")[-1] == "ok"

    until(lambda: "stale" in links(cockpits, "node2") and back(), "the link of the killed ssh is back")
    assert "its ssh was ended here by signal 9" in (cockpits.folder / "journal.jsonl").read_text()
    cockpits.lab.link_down("node2")
    try:
        until(lambda: links(cockpits, "node2")[-1] == "stale", "the link that is cut is lost")
    finally:
        cockpits.lab.link_up("node2")
    until(back, "the link that was cut is back")


def links(cockpits: Cockpits, node: str) -> list[str]:
    """The states that the link to a node has had so far."""
    text = (cockpits.folder / "journal.jsonl").read_text()
    events = [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]
    return [event["state"] for event in events if event.get("e") == "link" and event.get("node") == node]


def test_open_masters_are_used_where_no_key_is_accepted(cockpits: Cockpits) -> None:
    """By ``openssh`` as by ``auto``, which is refused once and keeps in mind what let it in."""
    lab = cockpits.lab
    with configured(lab, "Host node*", "  ControlPath ~/.ssh/m-%n") as config, masters(lab, config):
        try:
            for node in lab.nodes:
                lab.refuse_key(node)
            before = {node: lab.sshd_log(node).count("Connection from") for node in lab.nodes}

            def connections() -> list[int]:
                return [lab.sshd_log(node).count("Connection from") - before[node] for node in lab.nodes]

            asked = cockpit(lab, "ps", "--hostfile", lab.hostfile, *BY, "-F", config, env=alone(lab))
            assert (asked.returncode, messages(asked.stderr)) == (0, [])
            assert connections() == [0, 0]

            done = cockpits.run("-F", str(config), "--launcher", "command", program=["echo", "hello"])
            assert done.returncode == 0, done.stderr
            why = "node[1-2]: reached by the ssh program: a ControlMaster connection is open\n"
            assert done.stderr.count(why) == 1
            written = manifest(cockpits)
            assert written["transport"] == "auto"
            assert [node["transport"] for node in written["nodes"]] == ["openssh", "openssh"]
            assert connections() == [1, 1]
            listed = cockpits.cockpit("ps", cockpits.name)
            assert (listed.returncode, messages(listed.stderr)) == (0, [])
            assert connections() == [1, 1]
        finally:
            for node in lab.nodes:
                lab.restart_sshd(node)


def test_what_asyncssh_cannot_speak_is_left_to_ssh(lab2: Lab) -> None:
    with configured(lab2, "KexAlgorithms sntrup761x25519-sha512@openssh.com") as config:
        words = ("ps", "--hostfile", lab2.hostfile, "-F", config)
        library = cockpit(lab2, *words, "--transport", "ssh")
        assert library.stderr.count("no common ssh algorithm") == 2
        done = cockpit(lab2, *words)
        assert done.returncode == 0
        assert "node[1-2]: reached by the ssh program: no common ssh algorithm: " in done.stderr
        assert done.stderr.count("reached by") == 1


def test_a_refused_login_is_tried_once_by_auto(lab2: Lab) -> None:
    lab2.refuse_key("node2")
    try:
        before = lab2.sshd_log("node2").count("Connection from")
        done = cockpit(lab2, "ps", "--hostfile", lab2.hostfile, env=alone(lab2))
        assert "node2: login refused: no key of" in done.stderr
        assert lab2.sshd_log("node2").count("Connection from") == before + 1
    finally:
        lab2.restart_sshd("node2")


def test_what_is_refused(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(3)
    lab.refuse_key("node1")
    lab.change_host_key("node2")
    known = lab.home() / ".ssh/known_hosts"
    lines = known.read_text().splitlines(keepends=True)
    known.write_text("".join(line for line in lines if not line.startswith("node3,")))
    before = known.read_bytes()
    # The configuration trusts whatever comes: nothing of that is heard.
    with configured(lab, "StrictHostKeyChecking no") as config:
        done = cockpit(lab, "ps", "--hostfile", lab.hostfile, *BY, "-F", config)
    told = {line.split(": ")[1]: line for line in messages(done.stderr)}
    assert "login refused: ckplab is not accepted (publickey); try: ssh-copy-id -F " in told["node1"]
    assert "host key changed: a different machine, or somebody in between" in told["node2"]
    assert f"ssh-keygen -R {lab.addresses['node2']}" in told["node2"]
    assert "host key is not known: ssh-ed25519 SHA256:" in told["node3"]
    assert told["node3"].endswith(f"accept it with: ssh -F {config} node3 true")
    assert known.read_bytes() == before
