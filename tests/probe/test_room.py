"""Whether the server's threads have room, on machines with one limit or another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cockpit.node.probe import room

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max data size             {data:<20} unlimited            bytes
Max stack size            8388608              unlimited            bytes
Max processes             {processes:<20} 96364                processes
Max address space         {space:<20} unlimited            bytes
Max realtime timeout      unlimited            unlimited            us
"""
NONE = {"data": "unlimited", "processes": "unlimited", "space": "unlimited"}
MiB = 1 << 20


class Machine:
    """A machine of two processors, whose eight ranks need room for 176 threads together."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.write("loadavg", "1.00 1.00 1.00 2/1000 4242")
        self.write("sys/kernel/threads-max", "100000\n")
        self.write("sys/kernel/pid_max", "32768\n")
        self.write("sys/vm/overcommit_memory", "0\n")
        self.write("meminfo", "MemTotal: 8 kB\nCommitLimit: 1024000 kB\nCommitted_AS: 20480 kB\n")
        self.write("self/status", "Name:\tpython\nVmSize:\t 1024000 kB\nVmData:\t 512000 kB\nThreads:\t1\n")
        self.limit()

    def write(self, name: str, text: str) -> None:
        """A file in /proc."""
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def limit(self, **limits: int) -> None:
        """Limits of this process."""
        self.write("self/limits", LIMITS.format(**{**NONE, **limits}))

    def process(self, pid: int, threads: int) -> None:
        """One more process of this user."""
        self.write(f"{pid}/stat", f"{pid} (a b) S {' '.join('1' * 16)} {threads} 0 4242 0 0\n")

    def group(self, lines: str, folder: str, most: str, here: int) -> None:
        """Our cgroup, and the limit of one."""
        self.write("self/cgroup", lines)
        (self.cgroups / folder).mkdir(parents=True, exist_ok=True)
        (self.cgroups / folder / "pids.max").write_text(most + "\n")
        (self.cgroups / folder / "pids.current").write_text(f"{here}\n")

    def lacking(self) -> str:
        """What is too near."""
        return room.lacking(str(self.proc), str(self.cgroups))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with room."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for name in ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return Machine(tmp_path)


def test_room_enough(machine: Machine) -> None:
    assert machine.lacking() == ""


def test_nothing_can_be_seen(tmp_path: Path) -> None:
    assert room.lacking(str(tmp_path / "no"), str(tmp_path / "no")) == ""


def test_this_machine_has_room_or_says_why() -> None:
    assert isinstance(room.lacking(), str)


def test_the_machine_has_too_many_threads(machine: Machine) -> None:
    machine.write("sys/kernel/pid_max", "1175\n")
    assert machine.lacking() == "this machine may have 1175 threads (kernel.pid_max), and has 1000"
    machine.write("sys/kernel/pid_max", "1176\n")
    assert machine.lacking() == ""


def test_the_user_has_too_many_threads(machine: Machine) -> None:
    machine.limit(processes=1100)  # less than all there may be: they are counted
    machine.process(7, 900)
    assert machine.lacking() == ""
    machine.process(8, 25)
    assert machine.lacking() == "this user may have 1100 threads (ulimit -u), and has 925"


def test_as_many_ranks_as_the_launcher_says(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write("sys/kernel/pid_max", "1100\n")
    assert machine.lacking()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert machine.lacking() == ""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "5")
    assert machine.lacking()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "no number")
    assert machine.lacking()


@pytest.mark.parametrize(
    ("lines", "folder"),
    [
        ("0::/a/b\n", "a/b"),
        ("0::/a/b\n", "a"),  # a limit of one above ours counts as well
        ("4:memory:/x\n8:pids:/a/b\n", "pids/a"),
        ("0::/a/b\n", "."),  # the path is that of the host
    ],
)
def test_its_cgroup_has_too_many_threads(machine: Machine, lines: str, folder: str) -> None:
    machine.group(lines, folder, "200", 25)
    assert machine.lacking().endswith("may have 200 threads (pids.max), and has 25")
    machine.group(lines, folder, "200", 24)
    assert machine.lacking() == ""
    machine.group(lines, folder, "max", 1000)
    assert machine.lacking() == ""


def test_no_room_for_stacks(machine: Machine) -> None:
    machine.limit(space=2583 * MiB)
    why = "the process may map 2583 MiB of memory (ulimit -v), has 1000 and would need 1584 more"
    assert machine.lacking() == why
    machine.limit(space=2584 * MiB)
    assert machine.lacking() == ""
    machine.limit(data=1000 * MiB)
    assert machine.lacking().startswith("the process may map 1000 MiB of memory (ulimit -d), has 500")


def test_memory_that_the_kernel_does_not_promise(machine: Machine) -> None:
    machine.write("sys/vm/overcommit_memory", "2\n")
    why = "this machine may commit 1000 MiB of memory (vm.overcommit_memory), and has committed 20"
    assert machine.lacking() == why
    machine.write("meminfo", "CommitLimit: 10240000 kB\nCommitted_AS: 20480 kB\n")
    assert machine.lacking() == ""
