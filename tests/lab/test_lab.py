"""The lab itself: what the other tests take for granted about it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import keeper
from tests.lab.fixtures import need_lab
from tests.lab.lab import BASE, OTHER, REPO, USER, Lab, LabError
from tests.waiting import PATIENCE_S, until

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
pytestmark = [pytest.mark.lab, pytest.mark.slow]

SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30"]
SOON = ["-o", "ConnectTimeout=2"]
"""Before others: for nodes that do not answer."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    need_lab()
    with Lab(nodes=2) as made:
        yield made


def ssh(lab: Lab, node: str, text: str, user: str = USER) -> subprocess.CompletedProcess[str]:
    return lab.run([*SSH, node, text], user=user)


def silent(lab: Lab, node: str) -> bool:
    """Whether nothing comes of a connection to a node."""
    return lab.run([SSH[0], *SOON, *SSH[1:], node, "true"]).returncode == 255


def test_openssh_reaches_every_node_as_the_user(lab: Lab) -> None:
    text = f"hostname; whoami; {BOOT_ID}"
    answers = [ssh(lab, node, text).stdout for node in lab.nodes]
    assert [answer.split()[:2] for answer in answers] == [[node, USER] for node in lab.nodes]
    assert len({answer.split()[2] for answer in answers}) == 2
    assert lab.run(["hostname"]).stdout == "login\n"
    assert "Accepted publickey for ckplab" in lab.sshd_log("node2")


def test_a_hostname_resolves_to_the_nodes_own_address(lab: Lab) -> None:
    text = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    found = lab.run([lab.python, "-c", text], node="node2").stdout.strip()
    assert found == lab.addresses["node2"]


def test_files_are_private_and_homes_are_shared(lab: Lab) -> None:
    lab.write("node1", "/tmp/own/mark", "text")
    lab.write("node1", lab.home() / "shared", "all see this")
    assert lab.node_path("node1", "/tmp/own/mark").read_text() == "text"
    assert ssh(lab, "node1", "cat /tmp/own/mark; stat -c %U /tmp/own").stdout == f"text{USER}\n"
    for node in ("node2", None):
        assert lab.run(["cat", "/tmp/own/mark"], node=node).returncode == 1
        assert lab.run(["cat", "shared"], node=node).stdout == "all see this"
    assert not Path("/tmp/own").exists()


def test_processes_are_private_and_found_by_environment(lab: Lab) -> None:
    tag = {"LAB_TEST_TAG": "mine"}

    def tagged(node: str | None) -> list[int]:
        return [p.pid for p in lab.processes(node) if p.environ.get("LAB_TEST_TAG") == "mine"]

    for node, other in (("node1", "node2"), (None, "node1")):
        with lab.popen(["sleep", "1000"], node=node, env=tag) as program:
            until(lambda node=node: sleeps(lab, node), f"sleep on {node}")  # type: ignore[misc]
            assert tagged(node) != []
            assert tagged(other) == []
            program.kill()
        until(lambda node=node: not tagged(node), f"end of sleep on {node}")  # type: ignore[misc]
    listing = lab.run(["ps", "-eo", "comm="], node="node1").stdout.split()
    assert "ps" in listing
    assert len(listing) < 10


def test_the_user_can_run_python_and_read_the_repository(lab: Lab) -> None:
    text = f"import psutil, sys; sys.path.insert(0, {str(REPO)!r}); import cockpit.errors; print('fine')"
    for node in ("node1", None):
        done = lab.run([lab.python, "-c", text], node=node)
        assert done.stdout == "fine\n", done.stderr
        assert lab.run(["touch", str(REPO / "touched")], node=node).returncode == 1


def test_another_user_is_refused(lab: Lab) -> None:
    lab.run(["mkdir", "-m", "700", "/tmp/secret"], node="node1", check=True)
    lab.run(["touch", "/tmp/secret/file"], node="node1", check=True)
    assert ssh(lab, "node1", "whoami", user=OTHER).stdout == f"{OTHER}\n"
    assert ssh(lab, f"{USER}@node1", "true", user=OTHER).returncode == 255
    for path in ("/tmp/secret", str(lab.home() / ".ssh")):
        assert "Permission denied" in ssh(lab, "node1", f"ls {path}", user=OTHER).stderr
    assert "Permission denied" in lab.run(["ls", str(lab.home())], user=OTHER).stderr


def test_a_cable_can_be_pulled_and_put_back(lab: Lab) -> None:
    lab.link_down("node2")
    try:
        assert silent(lab, "node2")
        assert ssh(lab, "node1", "true").returncode == 0
    finally:
        lab.link_up("node2")
    until(lambda: not silent(lab, "node2"), "node2 answers again")
    assert ssh(lab, "node2", "true").returncode == 0


def test_a_changed_host_key_is_refused(lab: Lab) -> None:
    lab.change_host_key("node1")
    assert "HOST IDENTIFICATION HAS CHANGED" in ssh(lab, "node1", "true").stderr
    lab.trust_host_keys()
    assert ssh(lab, "node1", "true").returncode == 0


def test_a_key_can_be_refused_by_one_node(lab: Lab) -> None:
    lab.refuse_key("node1")
    assert "Permission denied (publickey)" in ssh(lab, "node1", "true").stderr
    assert ssh(lab, "node2", "true").returncode == 0
    lab.restart_sshd("node1")
    assert ssh(lab, "node1", "true").returncode == 0


@pytest.mark.parametrize("sessions", [False, True])
def test_sshd_can_be_stopped_with_or_without_its_sessions(lab: Lab, sessions: bool) -> None:
    pipe = subprocess.PIPE
    with lab.popen([*SSH, "node1", "cat"], text=True, stdin=pipe, stdout=pipe) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        print("one", file=session.stdin, flush=True)
        assert session.stdout.readline() == "one\n"
        lab.stop_sshd("node1", sessions=sessions)
        try:
            assert "Connection refused" in ssh(lab, "node1", "true").stderr
            if sessions:
                assert session.wait(PATIENCE_S) == 255
            else:
                print("two", file=session.stdin, flush=True)
                assert session.stdout.readline() == "two\n"
                session.stdin.close()
                assert session.wait(PATIENCE_S) == 0
        finally:
            lab.start_sshd("node1")
    assert ssh(lab, "node1", "true").returncode == 0


def test_a_frozen_node_goes_on_when_thawed(lab: Lab) -> None:
    with lab.popen(["sleep", "1000"], node="node1") as program:
        sleeper = until(lambda: sleeps(lab, "node1"), "sleep")[0]
        lab.freeze("node1")
        assert Path(f"/proc/{sleeper}/stat").read_text().split()[2] == "T"
        assert silent(lab, "node1")
        lab.thaw("node1")
        until(lambda: Path(f"/proc/{sleeper}/stat").read_text().split()[2] == "S", "sleep goes on")
        assert ssh(lab, "node1", "true").returncode == 0
        program.kill()


def test_the_login_shell_can_be_another(lab: Lab) -> None:
    lab.set_shell("/bin/sh")
    assert ssh(lab, "node1", "echo $0").stdout == "sh\n"
    lab.set_shell("/bin/bash")
    assert ssh(lab, "node1", "echo $0").stdout == "bash\n"


def test_a_node_dies_with_all_it_has_and_comes_back_empty(lab: Lab) -> None:
    lab.write("node2", "/tmp/mark", "x")
    with lab.popen(["sleep", "1000"], node="node2") as program:
        until(lambda: sleeps(lab, "node2"), "sleep")
        first = ssh(lab, "node2", BOOT_ID).stdout
        lab.kill_node("node2")
        assert program.wait(PATIENCE_S) != 0
    with pytest.raises(LabError, match="node2 is not up"):
        lab.processes("node2")
    assert silent(lab, "node2")
    lab.start_node("node2")
    answer = ssh(lab, "node2", f"ls /tmp/mark; {BOOT_ID}")
    assert "No such file" in answer.stderr
    assert answer.stdout not in ("", first)


def sleeps(lab: Lab, node: str | None) -> list[int]:
    return [p.pid for p in lab.processes(node) if p.cmdline[:1] == ("sleep",)]


def indexes() -> set[int]:
    """Numbers of this machine's interfaces: unlike names, none is given a second time."""
    return {index for index, _ in socket.if_nameindex()}


def test_nothing_is_left(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(3)
    machines = [*lab.nodes, None]
    programs = [lab.popen(["setsid", "sleep", "1000"], node=machine) for machine in machines]
    until(lambda: [len(sleeps(lab, machine)) for machine in machines] == [1] * 4, "four sleeps")
    pids = [pid for machine in machines for pid in sleeps(lab, machine)]
    mark = lab.folder / "mark"
    mark.touch()
    index = socket.if_nametoindex(lab.interface)
    lab.stop()
    for program in programs:
        program.wait(PATIENCE_S)
    assert all(keeper.ticks(pid) is None for pid in pids)
    assert not mark.exists()
    assert index not in indexes()


def test_a_failure_at_the_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    need_lab()
    monkeypatch.setattr("tests.lab.lab.trees", lambda: ["/nonexistent"])
    lab = Lab(1)
    with pytest.raises(LabError, match="/nonexistent"):
        lab.start()
    with open(f"{lab.folder}.lock") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused: another lab has taken the number since
        assert not lab.folder.exists()
        assert not Path("/sys/class/net", lab.interface).exists()


HOLDER = """
import sys, socket
from tests.lab.lab import Lab
from tests.waiting import until
with Lab(1) as lab:
    sleep = lab.popen(["sleep", "1000"])
    until(lambda: any(each.cmdline[:1] == ("sleep",) for each in lab.processes(None)), "it is in the lab")
    (lab.folder / "mark").touch()
    print(lab.folder, socket.if_nametoindex(lab.interface), lab.keeper.pid, sleep.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("with_keeper", [False, True])
def test_nothing_is_left_when_the_test_process_is_killed(with_keeper: bool) -> None:
    """By the keeper that outlives it; or, where that is killed as well, by a later lab."""
    need_lab()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        folder, index, keeper_pid, sleep_pid = holder.stdout.readline().split()
        mark = Path(folder, "mark")
        if with_keeper:
            os.kill(int(keeper_pid), signal.SIGKILL)
        holder.kill()
    with contextlib.ExitStack() as later:
        if with_keeper:
            for _ in range(5):  # the first free number may be another one
                if mark.exists():
                    later.enter_context(Lab(1))
        until(lambda: int(index) not in indexes(), "the lab's interface is gone")
        until(lambda: keeper.ticks(int(sleep_pid)) is None, "the program is gone")
        until(lambda: not mark.exists(), f"{folder} is gone")


def test_two_labs_at_once_do_not_meet(lab: Lab, make_lab: Callable[[int], Lab]) -> None:
    other = make_lab(1)
    assert ssh(other, "node1", BOOT_ID).stdout != ""
    assert set(other.addresses.values()).isdisjoint(lab.addresses.values())
    assert set(other.ids.values()).isdisjoint(lab.ids.values())
    probe = ["bash", "-c", f"exec 3<>/dev/tcp/{other.addresses['node1']}/22"]
    assert "unreachable" in lab.run(probe, node="node1").stderr


def test_trees_that_others_cannot_reach_are_covered(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    for path in (closed / "tree", tmp_path / "open"):
        path.mkdir(parents=True)
    base = Path("/var/tmp")
    assert keeper.covers([str(base)]).keys() == {"/tmp", "/run", "/dev/shm"}
    inner = BASE.parent / f"cover-{os.getpid()}"
    (inner / "a/b").mkdir(parents=True)
    try:
        (inner / "a").chmod(0o700)
        assert str(inner / "a") in keeper.covers([str(inner / "a/b")])
        (inner / "a").chmod(0o711)
        assert str(inner / "a") not in keeper.covers([str(inner / "a/b")])
        (inner / "a/b").chmod(0o700)
        assert str(inner / "a/b") in keeper.covers([str(inner / "a/b")])
    finally:
        for path in (inner / "a/b", inner / "a", inner):
            path.rmdir()


def test_the_program_says_how_to_enter() -> None:
    need_lab()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.lab", "1"], cwd=REPO, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        lines = [line.strip() for line in iter(program.stdout.readline, "ctrl-c ends it\n")]
        enter = next(line for line in lines if "nsenter" in line)
        line = enter.replace("/bin/bash -i", "ssh node1 whoami")
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert done.stdout == f"{USER}\n", done.stderr
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE_S) == 0


def test_a_node_that_is_killed_at_its_start_is_named() -> None:
    events, tell = os.pipe()
    killed = subprocess.Popen(["sleep", "1000"])
    killed.kill()
    made = keeper.Keeper.__new__(keeper.Keeper)
    made.inits = {"node1": killed.pid}
    try:
        with pytest.raises(OSError, match="node1 ended at its start, with signal or status 9"):
            made.expect(events, "up", ["node1"])
    finally:
        killed.wait()
        os.close(events)
        os.close(tell)


def test_no_namespace_gets_the_number_of_a_login_node_that_has_ended() -> None:
    """A lab's end kills by that number, and would kill a node that another lab is starting."""
    need_lab()
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(nodes=1))
        state = json.loads((lab.folder / "state.json").read_text())
        (login,) = keeper.members("mnt", state["login"])
        os.kill(login, signal.SIGKILL)
        until(lambda: keeper.ticks(login) is None, "the login node has ended")
        line = ["unshare", "--mount", "sh", "-c", "readlink /proc/self/ns/mnt; read end"]
        for _ in range(10):  # side by side: the kernel gives the lowest number first
            made = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(made)
            stack.callback(made.kill)
            assert made.stdout is not None
            assert made.stdout.readline().strip() != state["login"]
