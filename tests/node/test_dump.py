"""The stacks of ranks: real processes in every state and a real py-spy, a stand-in where that fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.stacks.dump import LEFT_OUT, Dump
from cockpit.base.stacks.unpacking import unpack
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.stacks import dump, permission, pyspy_output
from tests.node import spies
from tests.waiting import until

Spy = Callable[[str], Path]

SLEEP = "import time\nprint()\ntime.sleep(1000)"

STATES = """
import ctypes, os, subprocess, sys, threading, time

def odd(kind, fifo):
    print()
    if kind == "loop":
        while True:
            pass
    if kind == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if kind == "gil":
        ctypes.PyDLL(None).sleep(1000)
    if kind == "read":
        open(fifo).read()
    if kind == "hard":
        # Waits without interruption until its child runs a program; the child waits to open the pipe.
        wait = (os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[wait])
    if kind == "child":
        subprocess.run(["sleep", "1000"])
    time.sleep(1000)

odd(*sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that has learnt nothing yet."""
    spies.forget(monkeypatch)


@pytest.fixture
def sleeping() -> Iterator[int]:
    """A Python process that sleeps."""
    process = spies.start(SLEEP)
    spies.in_state(process.pid, "S")
    yield process.pid
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Dump]]:
    """One dump of a process in every state that there is, all taken at once."""
    folder = tmp_path_factory.mktemp("states")
    for name in ("read", "hard"):
        os.mkfifo(folder / name)
    started = {
        kind: spies.start(STATES, kind, folder / kind)
        for kind in ("sleep", "loop", "lock", "gil", "read", "child", "hard", "stop", "zombie", "gone")
    }
    started["foreign"] = subprocess.Popen(["sleep", "1000"])
    pids = {kind: process.pid for kind, process in started.items()}
    with spies.ending(started.values()):
        started["stop"].send_signal(signal.SIGSTOP)
        started["zombie"].kill()
        spies.in_state(pids["stop"], "T")
        spies.in_state(pids["zombie"], "Z")
        spies.in_state(pids["hard"], "D")
        started["gone"].kill()
        started["gone"].wait()
        for kind in ("sleep", "lock", "gil", "read", "child"):
            spies.in_state(pids[kind], "S")
        # One look before: what a wait looks like after py-spy has held it once must not differ.
        spies.look(*pids.values())
        yield dict(zip(pids, spies.look(*pids.values()), strict=True))


@pytest.mark.parametrize(
    ("kind", "way", "state", "call", "line"),
    [
        ("sleep", "plain", "S", "clock_nanosleep", "time.sleep(1000)"),
        ("loop", "plain", "R", "", ""),
        ("lock", "plain", "S", "futex", "lock.acquire()"),
        ("gil", "plain", "S", "clock_nanosleep", "ctypes.PyDLL(None).sleep(1000)"),
        ("read", "plain", "S", "openat", "open(fifo).read()"),
        ("hard", "nonblocking", "D", "", ""),
        ("stop", "nonblocking", "T", None, ""),
    ],
)
def test_every_state_has_its_way(
    states: dict[str, Dump], kind: str, way: str, state: str, call: str | None, line: str
) -> None:
    found = states[kind]
    assert (found.way, found.error, found.what, found.notes) == (way, "", "", ())
    assert found.process is not None
    assert found.process.state == state
    assert [frame.name for frame in found.frames] == ["<module>", "odd"]
    assert found.threads[0].name == "MainThread"
    assert found.threads[0].tid == found.process.pid
    if call:
        assert found.process.call == call
    if line:
        assert STATES.splitlines()[found.frames[-1].line - 1].strip() == line


def test_what_the_kernel_knows(states: dict[str, Dump]) -> None:
    loop, read, child, gil = (states[kind].process for kind in ("loop", "read", "child", "gil"))
    assert loop is not None
    assert read is not None
    assert child is not None
    assert gil is not None
    assert loop.main_cpu_s > 0
    assert loop.wchan == ""
    assert read.target.endswith("/read")
    assert (child.call, [(one.name, one.state) for one in child.children]) == ("wait4", [("sleep", "S")])
    assert child.target == f"process {child.children[0].pid} (sleep)"
    assert states["gil"].threads[0].gil
    assert gil.switches > 0


def test_no_frames_have_a_reason(states: dict[str, Dump]) -> None:
    zombie, gone, foreign = (states[kind] for kind in ("zombie", "gone", "foreign"))
    assert (zombie.error, zombie.way, zombie.threads) == ("zombie", "kernel", ())
    assert zombie.process is not None
    assert (gone.error, gone.way, gone.process) == ("gone", "", None)
    assert (foreign.error, foreign.way) == ("failed", "kernel")
    assert "not a Python process" in foreign.what
    assert foreign.process is not None
    assert foreign.process.call == "clock_nanosleep"


def test_another_process_with_the_same_pid_is_not_looked_at(sleeping: int) -> None:
    found: list[Dump] = []
    one = {**spies.target(0, sleeping), "ticks": 12}
    dump.stacks(spies.call(lambda head, data: found.extend(unpack(data, str)), [one]))
    assert (found[0].error, found[0].process) == ("gone", None)


RECURSION = """
import sys, time

sys.setrecursionlimit(9000)

def again(number):
    if number:
        return again(number - 1)
    print()
    time.sleep(1000)

again(int(sys.argv[1]))
"""


def test_a_recursion_that_is_too_deep_is_cut_and_says_so() -> None:
    process, honest = (spies.start(RECURSION, depth) for depth in (4050, 2999))
    try:
        cut, whole = spies.look(process.pid, honest.pid)
    finally:
        for one in (process, honest):
            one.kill()
            one.communicate()
    assert cut.notes == ("stack cut at 4,000 of 4,052",)
    assert (len(cut.frames), cut.frames[1000]) == (4000, LEFT_OUT)
    assert [frame.name for frame in (cut.frames[0], cut.frames[-1])] == ["<module>", "again"]
    assert (len(whole.frames), whole.notes) == (3001, ())


def test_nonsense_is_refused() -> None:
    for targets in ([{"rank": 0}], [{"rank": 0, "pid": -1, "ticks": 1}], 5):
        with pytest.raises(NodeError) as caught:
            dump.stacks(Call({"id": 1, "targets": targets}, b"", lambda head, data: None))
        assert caught.value.kind == "protocol"


# -- when py-spy fails -------------------------------------------------------------------------------


def test_a_rank_that_py_spy_left_stopped_is_continued(sleeping: int, use: Spy) -> None:
    use('kill -STOP "$pid"; exec sleep 1000')
    found = spies.look(sleeping, timeout_s=1.5)[0]
    # Continued, it runs for a moment before it sleeps on.
    spies.in_state(sleeping, "S")
    assert (found.error, found.way) == ("timeout", "kernel")
    assert "py-spy left it stopped; it was continued" in found.notes
    assert found.process is not None
    assert found.process.state == "S"


def test_a_rank_that_somebody_stopped_stays_stopped(sleeping: int) -> None:
    os.kill(sleeping, signal.SIGSTOP)
    spies.in_state(sleeping, "T")
    assert spies.look(sleeping)[0].way == "nonblocking"
    assert spies.letter(sleeping) == "T"


@pytest.mark.parametrize("kind", ["stop", "hard"])
def test_who_cannot_be_held_is_not_tried_to(tmp_path: Path, use: Spy, kind: str) -> None:
    use(f'echo "$*" >> {tmp_path}/asked; exec $REAL "$@"')
    os.mkfifo(tmp_path / "fifo")
    process = spies.start(STATES, kind, tmp_path / "fifo")
    try:
        if kind == "stop":
            process.send_signal(signal.SIGSTOP)
        spies.in_state(process.pid, "T" if kind == "stop" else "D")
        found = spies.look(process.pid, native=True)[0]
    finally:
        if kind == "hard":
            (tmp_path / "fifo").write_text("")
        process.kill()
        process.communicate()
    assert found.way == "nonblocking"
    assert found.notes[0].startswith("no native frames: it is ")
    assert all("--nonblocking" in line for line in (tmp_path / "asked").read_text().splitlines())


def test_a_debugger_does_not_keep_us_out(sleeping: int) -> None:
    tracer = spies.start(
        "import ctypes, sys, time\n"
        "assert ctypes.CDLL(None).ptrace(0x4206, ctypes.c_long(int(sys.argv[1])), None, None) == 0\n"
        "print()\n"
        "time.sleep(1000)",
        sleeping,
    )
    try:
        assert spies.look(sleeping)[0].way == "nonblocking"
    finally:
        tracer.kill()
        tracer.communicate()


@pytest.mark.parametrize(
    ("script", "timeout_s", "way", "note"),
    [
        (
            '[ -e {mark} ] && exec $REAL "$@"; touch {mark}; echo Error: UNW_EBADREG >&2; exit 1',
            60.0,
            "native",
            "",
        ),
        (
            'case "$*" in *native*) echo Error: UNW_EBADREG >&2; exit 1;; esac; exec $REAL "$@"',
            60.0,
            "plain",
            "no native frames: py-spy failed: UNW_EBADREG",
        ),
        (
            'case "$*" in *nonblocking*) exec cat {told};; esac; exec sleep 1000',
            2.0,
            "nonblocking",
            "no native frames: py-spy gave no answer within 2 s",
        ),
    ],
    ids=["once more", "then plain", "then without holding it"],
)
def test_ways_to_fall_back(
    sleeping: int, use: Spy, tmp_path: Path, script: str, timeout_s: float, way: str, note: str
) -> None:
    told = tmp_path / "told"
    if "{told}" in script:  # beforehand: a py-spy may take longer than the time that is up here
        words = [spies.REAL, "dump", "--json", "--nonblocking", "--pid", str(sleeping)]
        told.write_bytes(subprocess.run(words, capture_output=True, check=True).stdout)
    use(script.replace("{mark}", str(tmp_path / "mark")).replace("{told}", str(told)))
    found = spies.look(sleeping, native=True, timeout_s=timeout_s)[0]
    assert (found.way, found.error) == (way, "")
    assert found.notes == ((note,) if note else ())
    assert any(frame.native for frame in found.frames) == (way == "native")
    assert "<module>" in [frame.name for frame in found.frames]


@pytest.mark.parametrize(
    ("script", "error", "what"),
    [
        ("echo '[]'", "failed", "no Python code running"),
        ("echo '[{]'", "failed", "not understood"),
        (
            "echo Error: Unsupported version of Python: 4.1.0 >&2; exit 1",
            "failed",
            "does not know Python 4.1.0",
        ),
        ("echo Error: strange >&2; echo '   Reason: so' >&2; exit 1", "failed", "py-spy failed: strange: so"),
        ("kill -KILL $$", "failed", "py-spy failed: no reason given"),
        (
            "kill -KILL $pid; until grep -q '^State:.Z' /proc/$pid/status; do sleep 0.02; done\n"
            "echo 'Error: (os error 2)' >&2; exit 1",
            "zombie",
            "ended during",
        ),
        ("echo 'Error: Permission denied (os error 13)' >&2; exit 1", "denied", ""),
    ],
)
def test_failures_are_told_apart(sleeping: int, use: Spy, script: str, error: str, what: str) -> None:
    use(script)
    found = spies.look(sleeping)[0]
    assert (found.error, found.way, found.threads) == (error, "kernel", ())
    assert what in found.what
    assert found.process is not None


def test_one_slow_rank_delays_no_other(sleeping: int, use: Spy, tmp_path: Path) -> None:
    slow = spies.start(SLEEP)
    use(f'while [ $pid = {slow.pid} ] && [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exec $REAL "$@"')
    came: list[list[int]] = []
    targets = [spies.target(0, slow.pid), *(spies.target(rank, sleeping) for rank in range(1, 6))]
    call = spies.call(lambda head, data: came.append([one.rank for one in unpack(data, str)]), targets)
    thread = threading.Thread(target=dump.stacks, args=(call,))
    thread.start()
    try:
        until(lambda: sorted(chain(*came)) == [1, 2, 3, 4, 5], "the others")
        (tmp_path / "go").touch()
        until(lambda: 0 in chain(*came), "the slow one")
    finally:
        call.cancel()
        thread.join()
        slow.kill()
        slow.communicate()


def test_a_cancelled_request_ends_its_py_spy(sleeping: int, use: Spy, tmp_path: Path) -> None:
    use(f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 1000")
    call = spies.call(lambda head, data: None, [spies.target(0, sleeping)])
    thread = threading.Thread(target=dump.stacks, args=(call,))
    thread.start()
    until((tmp_path / "pid").exists, "py-spy")
    call.cancel()
    thread.join()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: procfs.stat(pid) is None, "the end of py-spy")


# -- who may -----------------------------------------------------------------------------------------


def test_sudo_is_asked_once_and_remembered(
    sleeping: int, use: Spy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use('[ "$SUDO" ] && exec $REAL "$@"; echo Permission denied >&2; exit 1')
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n[ -e {tmp_path}/no ] && exit 1\nshift 2\nSUDO=1 "$@"\n'
    )
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", spies.first_on_path(sudo.parent))
    monkeypatch.setattr(os, "geteuid", lambda: os.stat("/proc/self").st_uid + 1000)
    assert spies.look(sleeping)[0].way == "plain"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 2
    assert all(line.startswith("-n -- ") for line in asked)
    (tmp_path / "no").touch()
    monkeypatch.setattr(permission._Remembered, "sudo", None)
    for _ in range(2):
        assert spies.look(sleeping, sleeping)[0].error == "denied"
    assert len((tmp_path / "asked").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("ours", "scope", "may", "what", "hint"),
    [
        (1000, 0, False, "its process belongs to uid 4242", "only uid 4242 or root may"),
        (4242, 1, False, "ptrace_scope = 1", "sudo sysctl -w kernel.yama.ptrace_scope=0"),
        (4242, 2, False, "ptrace_scope = 2", "sudo sysctl -w kernel.yama.ptrace_scope=0"),
        (0, 3, False, "ptrace_scope = 3", "reboot"),
        (0, 0, False, "a container", "--cap-add SYS_PTRACE"),
        (4242, 0, False, "the system forbids", "sudo py-spy dump"),
        (0, 0, True, "the system forbids", "sudo py-spy dump"),
    ],
)
def test_a_refusal_says_what_helps(
    monkeypatch: pytest.MonkeyPatch, ours: int, scope: int, may: bool, what: str, hint: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ours)
    monkeypatch.setattr(permission, "_scope", lambda: scope)
    monkeypatch.setattr(permission, "_may_trace", lambda: may)
    told, helps = permission.refusal(17, 4242)
    assert what in told
    assert hint in helps


# -- what is told ------------------------------------------------------------------------------------


def test_locals_come_without_secrets(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import time\n"
        "def step(api_token, batch, tokens, note, config):\n"
        "    print(flush=True)\n"
        "    time.sleep(1000); password = 'hunter2'\n"
        "step('s3cr3t', 'b' * 900, 7, 'see http://me:s3cr3t@host', {'wandb_key': 's3cr3t', 'lr': 0.1})\n"
    )
    process = subprocess.Popen([sys.executable, script.name], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    spies.in_state(process.pid, "S")
    try:
        found = spies.look(process.pid, locals=True)[0]
        assert spies.look(process.pid)[0].threads[0].locals == ()
    finally:
        process.kill()
        process.communicate()
    assert [(frame.name, frame.file) for frame in found.frames] == [
        ("<module>", "./train.py"),
        ("step", "./train.py"),
    ]
    assert found.source == "time.sleep(1000); password = (secret)"
    told = found.threads[0].locals[-1]
    assert told["api_token"] == "(secret, 8 characters)"
    assert told["tokens"] == "7"
    assert len(told["batch"]) <= pyspy_output.VALUE_LIMIT
    assert "http://(secret)@host" in told["note"]
    assert "0.1" in told["config"]
    assert "s3cr3t" not in repr(found)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("key_states", "<Tensor at 0x7fa0>", "<Tensor at 0x7fa0>"),
        ("key", '"abc"', "(secret, 5 characters)"),
        ("env", '{"HF_TOKEN": "hf_abc", "HOME": "/root"}', '{"HF_TOKEN": (secret), "HOME": "/root"}'),
        ("argv", '["--api-key=abc", "--lr=1"]', '["--api-key=(secret)", "--lr=1"]'),
        ("text", '"Authorization: Bearer abc"', '"Authorization: (secret)"'),
        ("x", '"sk-abcdefghijklmnopqrstuvwxyz"', '"(secret)"'),
        ("x", '["tokenizer", "keyed"]', '["tokenizer", "keyed"]'),
    ],
)
def test_values(name: str, text: str, told: str) -> None:
    assert pyspy_output.value(name, text) == told


def test_children(tmp_path: Path) -> None:
    process = spies.start(
        "import os, subprocess, sys, time\n"
        "def worker():\n    os.write(1, b'.\\n')\n    time.sleep(1000)\n"
        "if os.fork() == 0:\n    worker()\n"
        "subprocess.run(['sleep', '1000'])"
    )
    with spies.ending([process]):
        until(
            lambda: "sleep" in [one.name for one in procfs.descendants(process.pid, lambda pid: False)],
            "both children",
        )
        plain, full = spies.look(process.pid)[0], spies.look(process.pid, children=True)[0]
    assert plain.process is not None
    assert full.process is not None
    assert [child.threads for child in plain.process.children] == [(), ()]
    told = {
        child.name: [frame.name for thread in child.threads for frame in thread.frames]
        for child in full.process.children
    }
    assert told.pop("sleep") == []
    assert list(told.values()) == [["<module>", "worker"]]


@pytest.mark.parametrize("kind", ["fifo", "large", "missing", "folder"])
def test_what_is_no_source_file_gives_no_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "train.py"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "large":
        path.write_text("x\n" * pyspy_output.FILE_LIMIT)
    elif kind == "folder":
        path.mkdir()
    sources: Any = pyspy_output.Sources()
    assert sources.line(str(path), 1) == ""
