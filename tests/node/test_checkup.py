"""A checkup on this machine: each part within its bounds, and what hangs costs its own answer only."""

from __future__ import annotations

import os
import pwd
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base import checkup_answers, verbs
from cockpit.base.events import NodeSample
from cockpit.base.gate import SIZE, plain, read
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.checkup import checkup, gpus, machine, network
from cockpit.node.checkup.deadline import within
from cockpit.node.measure import gpu
from tests.node import folders
from tests.node.test_gpu import recorded
from tests.node.test_samples import looks

PARTS = tuple(checkup.CHECKS)


def call(request: verbs.Request[Any, Any], sent: list[Any] | None = None) -> Call:
    items: list[Any] = [] if sent is None else sent
    return Call({"id": 1, **plain(request)}, b"", lambda header, payload: items.append(header))


def checked(*parts: str, **asked: Any) -> checkup_answers.CheckupAnswer:
    answer = checkup.checkup(call(verbs.Checkup(parts, **{"limit_s": 30.0, **asked})))
    return read(checkup_answers.CheckupAnswer, answer)


def test_every_part_passes_the_gate(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    found = checked(*PARTS, cwd=str(tmp_path), script="train.py", names=("localhost", "nosuch.invalid"))
    # NVML and name servers may be anything here; all else must answer.
    assert set(found.silent) <= {"nosuch.invalid"}
    assert found.system is not None
    assert found.system.kernel == os.uname().release
    assert (found.system.memory_bytes or 0) > (found.system.memory_free_bytes or 0) > 0
    roles = {disk.role: disk for disk in found.disks or ()}
    assert roles["working directory"].path == str(tmp_path)
    assert roles["working directory"].free_bytes > 0
    assert found.code is not None
    assert set(found.code) == {"train.py"}
    assert found.names is not None
    assert "127.0.0.1" in found.names["localhost"] + ("127.0.0.1",) * ("::1" in found.names["localhost"])
    assert found.port == ()


def test_only_what_is_asked_for_is_looked_at() -> None:
    found = checked("limits", "no such check")
    assert found.limits is not None
    assert plain(found) | {"limits": None} == plain(checkup_answers.CheckupAnswer())


def test_a_check_that_hangs_costs_its_own_answer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    monkeypatch.setattr(gpus, "driver", lambda asked, payload: ends.wait())

    def broken(asked: verbs.Checkup, payload: bytes) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine, "session", broken)
    began = time.monotonic()
    try:
        found = checked("driver", "session", "limits", limit_s=4.0)
    finally:
        ends.set()
    assert time.monotonic() - began < 20
    assert found.limits is not None
    assert found.silent == {"driver": "no answer within 5 s", "session": "Permission denied"}


def test_a_folder_whose_server_is_dead_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    real = os.statvfs

    def statvfs(path: Any) -> Any:
        return ends.wait(60) and None if path == "/tmp" else real(path)

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr(checkup, "_SPARE_S", 60.0)
    try:
        found = checked("disks", cwd="/", base="/", limit_s=5.0)
    finally:
        ends.set()
    assert found.silent == {"/tmp": "no answer within 5 s"}
    assert {disk.role for disk in found.disks or ()} >= {"run folders", "working directory"}


def test_a_file_system_whose_sizes_make_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CephFS has 2**64 - 1 free inodes, and object stores have that much room: the node is still told of."""
    odd = SimpleNamespace(f_bavail=1 << 52, f_blocks=1 << 52, f_frsize=1 << 12, f_files=9, f_favail=2**64 - 1)
    monkeypatch.setattr(os, "statvfs", lambda path: odd)
    found = checked("disks", cwd="/", base="/")
    most = SIZE.most
    assert {(disk.free_bytes, disk.total_bytes, disk.inodes_free) for disk in found.disks or ()} == {
        (most,) * 3
    }
    folders.make(tmp_path, [0])
    (item,) = looks(tmp_path, lambda _: True)
    assert read(NodeSample, item["node"]).disk_free_bytes == SIZE.most


def test_questions_are_asked_side_by_side_and_an_error_is_a_reason() -> None:
    def ask(name: str) -> str:
        if name == "odd":
            raise ValueError("is odd")
        return name.upper()

    found, silent = within(10, ["a", "odd", "b", "a"], ask, threads=2)
    assert (found, silent) == ({"a": "A", "b": "B"}, {"odd": "ValueError: is odd"})
    assert within(10, [], ask, threads=2) == ({}, {})


def test_a_port_that_is_held_and_by_whom() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (holder,) = checked("port", port=port).port or ()
        assert (holder.port, holder.pid) == (port, os.getpid())
        with pytest.raises(NodeError, match="in use"):
            network.meet(call(verbs.Meet(port)))


def test_nodes_meet_and_reach() -> None:
    sent: list[Any] = []
    meeting = call(verbs.Meet(0, limit_s=60.0), sent)
    thread = threading.Thread(target=network.meet, args=(meeting,))
    thread.start()
    try:
        while not sent:
            time.sleep(0.01)
        port = read(checkup_answers.MeetItem, sent[0]["item"]).port
        for _ in range(3):
            answer = read(
                checkup_answers.ReachAnswer, network.reach(call(verbs.Reach("127.0.0.1", port, 20.0)))
            )
            assert answer == checkup_answers.ReachAnswer("", "127.0.0.1", "lo")
    finally:
        meeting.cancel()
        thread.join(30)
    assert not thread.is_alive()
    refused = network.reach(call(verbs.Reach("127.0.0.1", port, 20.0)))
    assert refused == {"error": "Connection refused"}
    assert network.reach(call(verbs.Reach("no such name", port, 20.0)))["error"]


def test_what_only_a_login_shell_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "nvcc"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_shell="/bin/bash"))
    (tmp_path / ".bash_profile").write_text(
        f"echo welcome; PATH={tool.parent}:$PATH; export CUDA_HOME=/opt/cuda; read answer\n"
    )
    found = checked("login").login or {}
    assert (found.get("nvcc"), found.get("CUDA_HOME")) == (str(tool), "/opt/cuda")
    (tmp_path / ".bash_profile").write_text("sleep 600\n")
    monkeypatch.setattr(checkup, "_SPARE_S", 60.0)
    assert checked("login", limit_s=0.5).silent == {"login": "a login shell did not start within 0.5 s"}


def test_locks_and_shared_memory_that_nobody_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = tmp_path / "py311_cpu" / "cpu_adam"
    build.mkdir(parents=True)
    (build / "lock").touch()
    os.utime(build / "lock", (1, 1))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    name = f"torch_{os.getpid()}_test_checkup"
    left = Path("/dev/shm") / name
    left.write_bytes(bytes(2 << 20))
    try:
        found = checked("leftovers").leftovers
        assert found is not None
        (lock,) = found.locks
        assert (lock.path, lock.age_s > 1e9) == (str(build / "lock"), True)
        assert name in {piece.name for piece in found.memory}
        with left.open("rb"):
            used = checked("leftovers").leftovers
        assert used is not None
        assert name not in {piece.name for piece in used.memory}
    finally:
        left.unlink()


def test_gpus_with_their_users_and_health(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = recorded()
    nvml.nvmlDeviceGetTotalEccErrors = lambda handle, kind, counter: 2 * handle
    nvml.nvmlDeviceGetPowerManagementLimit = lambda handle: 700_000
    nvml.nvmlDeviceGetPersistenceMode = lambda handle: 1
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x1 | 0x20 * handle
    nvml.nvmlDeviceGetMaxClockInfo = lambda handle, clock: 1980
    monkeypatch.setattr(gpu, "NVML", nvml)
    monkeypatch.setattr(gpus, "DRIVER", ("/",))
    first, second = checked("gpus").gpus or ()
    assert (first.memory_bytes, first.errors, first.slowed, first.clock_mhz) == (40 << 30, 0, (), 1980)
    assert [user.pid for user in first.users] == [4711]
    assert (second.errors, second.slowed, second.power_w, second.persistent) == (2, ("heat",), 700, True)


def test_the_driver_as_its_kernel_module_says(monkeypatch: pytest.MonkeyPatch) -> None:
    told = b"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
    monkeypatch.setattr(procfs, "contents", lambda path: told)
    assert checked("driver").driver == "570.86.15"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nPreserveVideo: 0\n", False),
        ("RmProfilingAdminOnly: 0\n", True),
        ("RmProfilingAdminOnly: yes\n", None),
        ("", None),
        (None, None),
    ],
)
def test_whether_nvidia_s_driver_lets_users_read_counters(
    text: str | None, expected: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = tmp_path / "params"
    if text is not None:
        params.write_text(text)
    monkeypatch.setattr(machine, "_NVIDIA", str(params))
    found = checked("profiling")
    assert found.profiling is not None
    assert found.profiling.gpu_counters is expected


def test_addresses_of_an_interface_that_has_only_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "fd000000000000000000000000000002 02 40 00 80     ib7\n"
        "fe800000000000000000000000000002 02 40 20 80     ib7\n"
        "fd000000000000000000000000000003 03 40 00 80     ib8\n"
    )
    monkeypatch.setattr(procfs, "contents", lambda path: lines.encode())
    assert network.addresses_of("ib7") == ["fd00::2"]
    assert "127.0.0.1" in network.addresses_of("lo")
