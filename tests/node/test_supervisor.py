"""The supervisor with real processes under a launch script that stands in for a launcher."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cockpit.base import record
from cockpit.base.times import ticks
from cockpit.node import procfs
from cockpit.node.run import stopping
from tests.node.conftest import Launch
from tests.node.runs import Run, alive, command, program
from tests.waiting import until

ROOT = Path(__file__).parents[2]

COUNT = """trap 'echo got TERM; exit 0' TERM
echo ready
while :; do sleep 0.05; done
"""
STUBBORN = """trap 'echo got TERM' TERM
echo ready
while :; do sleep 0.05; done
"""


@pytest.fixture
def count(tmp_path: Path) -> Path:
    """A rank that says when it gets SIGTERM, and ends."""
    return program(tmp_path / "count", COUNT)


@pytest.fixture
def stubborn(tmp_path: Path) -> Path:
    """A rank that does not end at SIGTERM."""
    return program(tmp_path / "stubborn", STUBBORN)


@pytest.fixture
def decoy(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of another run."""
    path = program(tmp_path / "decoy", STUBBORN)
    environment = {**os.environ, record.ENV_RUN: "another-run", record.ENV_NODE: "node1"}
    process = subprocess.Popen([str(path)], env=environment, stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


def kinds(run: Run) -> list[str]:
    return [event["e"] for event in run.events()]


def test_a_run_that_ends_well(launch: Launch, tmp_path: Path) -> None:
    script = command(2, program(tmp_path / "hello", 'echo "hello $RANK"'))
    run = launch(script, files={"hostfile": "node1 slots=2\n"})
    events = run.ended()
    assert [event["e"] for event in events[:2]] == ["supervisor_started", "launcher_started"]
    assert sorted(kinds(run)[2:-2]) == ["rank_exited", "rank_exited", "rank_started", "rank_started"]
    assert [event["e"] for event in events[-2:]] == ["launcher_exited", "ended"]
    assert events[0]["pid"] == run.started["pid"]
    assert (events[-2]["code"], events[-2]["signal"]) == (0, None)
    assert {run.log(0), run.log(1)} == {"hello 0\n", "hello 1\n"}
    assert (run.folder / "hostfile").read_text() == "node1 slots=2\n"
    until(lambda: not alive(run.started["pid"]), "the supervisor ended")
    facts = json.loads((run.folder / record.RECORD).read_text())
    assert facts["supervisor"] == {"pid": run.started["pid"], "ticks": run.started["ticks"]}
    assert facts["boot_id"] == procfs.boot_id()
    sizes: dict[str, int] = {}
    for _, changed in ticks((run.folder / record.TIMES).read_bytes().splitlines()):
        sizes.update(changed)
    assert sizes == {"rank-0.log": 8, "rank-1.log": 8, "launcher.log": 0}
    assert (run.folder / record.SUPERVISOR_LOG).read_text() == ""


@pytest.mark.parametrize("before", ["", "one\n"], ids=["empty", "not-empty"])
def test_a_log_that_was_moved_away_has_its_times_as_before(
    launch: Launch, tmp_path: Path, before: str
) -> None:
    wait = "while [ ! -e {0}/{1} ]; do sleep 0.05; done; ".format
    script = f"printf '{before}'; {wait(tmp_path, 'moved')}echo two; {wait(tmp_path, 'noted')}"
    run = launch(command(1, program(tmp_path / "on", script)))
    index = run.folder / record.TIMES

    def told(size: int) -> bool:
        seen = ticks(index.read_bytes().splitlines()) if index.exists() else ()
        return any(sizes.get("rank-0.log") == size for _, sizes in seen)

    until(lambda: told(len(before)), "the log's size is recorded")
    run.event("rank_started")
    log = run.folder / record.rank_log(0)
    log.rename(log.with_name("rank-0.log.1"))
    log.touch()
    (tmp_path / "moved").touch()
    until(lambda: told(len(before) + 4), "the size of the log that was moved away")
    (tmp_path / "noted").touch()
    run.ended()


def test_everything_is_private(launch: Launch, tmp_path: Path) -> None:
    run = launch(command(1, program(tmp_path / "true", "true")))
    run.ended()
    until(lambda: not alive(run.started["pid"]), "the supervisor has removed its socket")
    for path in [run.folder, *run.folder.iterdir()]:
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() or path.name == record.RANKWRAP else 0o600), path


def test_ranks_have_the_users_umask(launch: Launch, tmp_path: Path) -> None:
    before = os.umask(0o026)
    try:
        run = launch("umask; " + command(1, program(tmp_path / "umask", "umask")))
    finally:
        os.umask(before)
    run.ended()
    assert run.log(0) == (run.folder / record.LAUNCHER_LOG).read_text() == "0026\n"


def test_what_ranks_on_other_nodes_do_not_have_is_unset(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FOO", "LD_X", "BAR"):
        monkeypatch.setenv(name, "of this shell")
    script = f'export LD_X="/opt:${{LD_X-}}"; echo "$FOO|$LD_X|$BAR" >{tmp_path}/said'
    launch(script, unset=["FOO", "LD_X"]).ended()
    assert (tmp_path / "said").read_text() == "|/opt:|of this shell\n"


def test_secrets_reach_the_rank_and_no_disk(launch: Launch, tmp_path: Path) -> None:
    secret = "hunter2-in-no-file"
    path = program(tmp_path / "secret", 'printf %s "$HF_TOKEN" | wc -c; sleep 0.3')
    run = launch(command(1, path), env={"HF_TOKEN": secret})
    run.ended()
    assert run.log(0).strip() == str(len(secret))
    files = [
        path for path in run.folder.rglob("*") if path.is_file()
    ]  # a socket of its helpers may still be there
    assert files
    for file in files:
        assert secret.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("how", "code", "number"), [("exit 3", 3, None), ("kill -ABRT $$", None, 6), ("kill -KILL $$", None, 9)]
)
def test_status_of_a_rank(
    launch: Launch, tmp_path: Path, how: str, code: int | None, number: int | None
) -> None:
    run = launch(command(2, program(tmp_path / "end", f"test $RANK = 0 || {how}")))
    run.ended()
    assert run.event("rank_exited", rank=0)["code"] == 0
    exited = run.event("rank_exited", rank=1)
    assert (exited["code"], exited["signal"], exited["by"]) == (code, number, "wrapper")


def test_supervisor_is_detached(launch: Launch, count: Path) -> None:
    run = launch(command(1, count))
    run.says(0, "ready")
    pid = run.started["pid"]
    assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    own = (str(run.folder), "pipe:", "socket:", os.devnull)

    def inherited() -> list[str]:
        files = [procfs.link(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        return [path for path in files if path and not path.startswith(own)]

    # It has files of /proc open for a moment now and then: what is inherited stays.
    until(lambda: not inherited(), "nothing is inherited")
    launcher = run.event("launcher_started")["pid"]
    assert os.getsid(launcher) == launcher


def test_polite_stop(launch: Launch, count: Path) -> None:
    run = launch(command(2, count))
    for rank in (0, 1):
        run.says(rank, "ready")
    run.stop(reason="enough")
    run.ended()
    assert run.event("stop_requested")["reason"] == "enough"
    for rank in (0, 1):
        assert run.log(rank) == "ready\ngot TERM\n"
        assert run.event("rank_exited", rank=rank)["code"] == 0
    assert [event["stage"] for event in run.events("stage")] == ["term"]
    started = {event["wrapper"] for event in run.events("rank_started")}
    assert set(run.events("stage")[0]["pids"]) == started


def test_sigterm_to_the_supervisor_is_a_stop(launch: Launch, count: Path) -> None:
    run = launch(command(1, count))
    run.says(0, "ready")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(run.started["pid"], number)
    run.ended()
    assert run.event("stop_requested")["reason"] == "SIGTERM to the supervisor"
    assert run.log(0) == "ready\ngot TERM\n"


def test_stop_file_that_is_not_json_stops(launch: Launch, count: Path) -> None:
    run = launch(command(1, count))
    run.says(0, "ready")
    (run.folder / record.STOP).write_text("[1")
    run.ended()
    assert "cannot be read" in run.event("stop_requested")["reason"]
    assert run.event("rank_exited")["code"] == 0


def test_a_rank_that_ignores_sigterm_is_killed(launch: Launch, stubborn: Path) -> None:
    run = launch(command(1, stubborn), grace_s=8)
    run.says(0, "ready")
    run.stop()
    run.ended()
    exited = run.event("rank_exited")
    assert (exited["signal"], exited["by"]) == (9, "wrapper")
    assert run.log(0) == "ready\ngot TERM\n"
    assert [event["stage"] for event in run.events("stage")][:2] == ["term", "kill"]


def test_a_second_hard_stop_does_not_wait(launch: Launch, stubborn: Path) -> None:
    run = launch(command(1, stubborn), grace_s=100_000)
    run.says(0, "ready")
    run.stop()
    run.says(0, "got TERM")
    run.stop(hard=True)
    run.ended()
    assert run.event("rank_exited")["signal"] == 9


def test_stop_before_any_rank(launch: Launch) -> None:
    run = launch("echo up; exec sleep 1000", grace_s=100_000)
    run.event("launcher_started")
    until(lambda: (run.folder / record.LAUNCHER_LOG).read_text(), "the launcher runs")
    run.stop()
    run.ended()
    assert run.event("launcher_exited")["signal"] == signal.SIGTERM
    assert "no rank has started" in run.event("stage", stage="term")["text"]


def test_a_launcher_that_ignores_everything_is_killed(launch: Launch) -> None:
    run = launch("trap '' TERM; echo up; while :; do sleep 0.05; done", grace_s=0.2)
    run.event("launcher_started")
    until(lambda: (run.folder / record.LAUNCHER_LOG).read_text(), "the launcher runs")
    run.stop()
    run.ended()
    assert run.event("launcher_exited")["signal"] == signal.SIGKILL


def test_ranks_survive_their_launcher(launch: Launch, count: Path) -> None:
    run = launch(command(2, count))
    for rank in (0, 1):
        run.says(rank, "ready")
    os.kill(run.event("launcher_started")["pid"], signal.SIGKILL)
    assert run.event("launcher_exited")["signal"] == 9
    assert "rank 0, 1" in run.event("note")["text"]
    assert not run.events("rank_exited")
    first, second = (run.event("rank_started", rank=rank) for rank in (0, 1))
    assert procfs.stat(first["wrapper"]).parent == run.started["pid"]  # type: ignore[union-attr]
    # Without its wrapper, and with it: both ends are known.
    os.kill(first["wrapper"], signal.SIGKILL)
    assert run.event("rank_exited", rank=0)["by"] == "supervisor"
    run.stop()
    run.ended()
    assert run.event("rank_exited", rank=0)["signal"] == 9
    exited = run.event("rank_exited", rank=1)
    assert (exited["code"], exited["by"], exited["pid"]) == (0, "wrapper", second["pid"])


def test_a_killed_wrapper_takes_its_rank_along(launch: Launch, count: Path) -> None:
    run = launch(command(2, count))
    for rank in (0, 1):
        run.says(rank, "ready")
    started = run.event("rank_started", rank=1)
    os.kill(started["wrapper"], signal.SIGKILL)
    exited = run.event("rank_exited", rank=1)
    assert (exited["signal"], exited["by"], exited["pid"]) == (9, "supervisor", started["pid"])
    assert not alive(started["pid"])
    run.stop()
    run.ended()


def test_what_the_run_leaves_behind_is_swept(
    launch: Launch, tmp_path: Path, decoy: subprocess.Popen[bytes]
) -> None:
    leave = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(1000)
    os._exit(0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
    (tmp_path / "leave.py").write_text(leave)
    pid_file = tmp_path / "pid"
    again = f"{tmp_path / 'decoy'} & exec {sys.executable} {tmp_path / 'leave.py'} {pid_file}"
    run = launch(command(1, program(tmp_path / "leave", again)))
    run.ended()
    left = int(pid_file.read_text())
    swept = run.event("stage", stage="sweep")
    assert left in swept["pids"]
    assert len(swept["pids"]) >= 2
    assert not any(alive(pid) for pid in swept["pids"])
    assert not run.events("survivors")
    assert decoy.poll() is None


ESCAPE = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", sys.argv[2], sys.argv[1]], {})
    os._exit(0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
ESCAPED = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
with open(sys.argv[1] + ".%d" % os.getpid(), "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, sys.argv[1] + ("" if os.getsid(0) == os.getpid() else ".parent"))
time.sleep(1000)
"""


def test_who_got_away_without_any_environment_is_swept(launch: Launch, tmp_path: Path, count: Path) -> None:
    pid_file = tmp_path / "pid"
    (tmp_path / "escape.py").write_text(ESCAPE)
    escape = [sys.executable, str(tmp_path / "escape.py"), str(pid_file), ESCAPED]
    run = launch(command(1, program(tmp_path / "rank", f"{shlex.join(escape)}\nexec {count}\n")))
    run.says(0, "ready")
    paths = (pid_file, Path(f"{pid_file}.parent"))
    until(lambda: all(path.exists() for path in paths), "both got away")
    left = [int(path.read_text()) for path in paths]
    try:
        assert not {pid for pid in left if procfs.environment(pid) != [b""]}
        run.stop()
        run.ended()
        swept = run.event("stage", stage="sweep")
        assert set(left) <= set(swept["pids"])
        assert "python" in swept["text"]
        assert not any(map(alive, left))
        assert not run.events("survivors")
    finally:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_survivors_without_any_environment_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing that a test can start survives SIGKILL, so none is sent.
    monkeypatch.setattr(procfs, "send", lambda pid, ticks, number: True)
    monkeypatch.setattr(stopping, "SWEEP_S", 0.05)
    monkeypatch.setattr(stopping, "SLOW_S", 0.05)
    told: list[tuple[str, dict[str, Any]]] = []
    above = subprocess.Popen(["/bin/sh", "-c", "env -i sleep 1000 & wait"], start_new_session=True)
    try:
        until(lambda: [one.state for one in below(above.pid) if one.name == "sleep"] == ["S"], "sleep runs")
        stopping.sweep("no-run", "node1", lambda kind, **facts: told.append((kind, facts)), above=above.pid)
        [child] = below(above.pid)
        survivor = {"pid": child.pid, "name": "sleep", "state": "S"}
        assert told == [
            (
                "stage",
                {
                    "stage": "sweep",
                    "pids": [child.pid],
                    "text": f"left behind by the run: sleep ({child.pid})",
                },
            ),
            ("survivors", {"procs": [survivor]}),
        ]
    finally:
        os.killpg(above.pid, signal.SIGKILL)
        above.wait()


def test_who_takes_long_to_die_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a node whose processors are busy: SIGKILL is sent, and takes effect later.
    late: list[threading.Timer] = []
    send = procfs.send

    def sent(pid: int, ticks: int, number: int) -> bool:
        if number == signal.SIGKILL and not late:
            late.append(threading.Timer(0.5, send, (pid, ticks, number)))
            late[0].start()
        return True

    monkeypatch.setattr(procfs, "send", sent)
    monkeypatch.setattr(stopping, "SWEEP_S", 0.05)
    told: list[str] = []
    above = subprocess.Popen(["/bin/sh", "-c", "env -i sleep 1000 & wait"], start_new_session=True)
    try:
        until(lambda: [one for one in below(above.pid) if one.name == "sleep"], "sleep runs")
        stopping.sweep("no-run", "node1", lambda kind, **facts: told.append(kind), above=above.pid)
        assert told == ["stage"]
        assert late
        assert not below(above.pid)
    finally:
        for timer in late:
            timer.join()
        os.killpg(above.pid, signal.SIGKILL)
        above.wait()


def below(pid: int) -> list[procfs.Stat]:
    return procfs.descendants(pid, lambda pid: False)


INNER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from cockpit.engine.links import payload
from cockpit.node.run import folder
folder.start(json.loads(sys.argv[2]), sys.executable, payload.archive())
"""


def test_a_run_that_was_started_within_a_run_is_not_swept(
    launch: Launch, tmp_path: Path, count: Path
) -> None:
    """Its supervisor is inherited by ours, and what it supervises is not ours."""
    folder = tmp_path / "base" / "inner" / "node1"
    spec = {
        **{"format": 1, "run": f"inner-{uuid4().hex}", "node": "node1", "index": 0, "dir": str(folder)},
        **{"script": command(1, count), "files": {}, "env": {}, "ranks": [0], "launcher": "command"},
        **{"profile": None, "grace_s": 30, "finalise_s": 60},
    }
    words = [sys.executable, "-c", INNER, str(ROOT), json.dumps(spec)]
    outer = launch(command(1, program(tmp_path / "outer", f"exec {shlex.join(words)}\n")))
    outer.ended()
    assert outer.event("rank_exited")["code"] == 0, outer.log(0)
    inner = Run.found(folder)
    try:
        inner.says(0, "ready")
        assert not outer.events("stage", stage="sweep")
        assert alive(inner.started["pid"])
        assert alive(inner.event("rank_started")["pid"])
    finally:
        inner.clean()


def test_another_node_on_the_same_machine_is_left_alone(launch: Launch, count: Path) -> None:
    first = launch(command(1, count))
    second = launch(command(1, count), run=first.run, node="node2", dir=str(first.folder.parent / "node2"))
    for run in (first, second):
        run.says(0, "ready")
    first.stop()
    first.ended()
    assert not second.events("rank_exited")
    assert alive(second.event("rank_started")["pid"])


def test_a_rank_that_is_restarted(launch: Launch, tmp_path: Path) -> None:
    path = program(tmp_path / "again", "exit $((3 - TORCHELASTIC_RESTART_COUNT))")
    script = "export TORCHELASTIC_MAX_RESTARTS=2\n" + "".join(
        f'TORCHELASTIC_RESTART_COUNT={attempt} RANK=0 "$COCKPIT_DIR"/rankwrap 1 {path}\n'
        for attempt in range(3)
    )
    run = launch(script)
    run.ended()
    assert [event["attempt"] for event in run.events("rank_started")] == [0, 1, 2]
    assert sorted((event["attempt"], event["code"]) for event in run.events("rank_exited")) == [
        (0, 3),
        (1, 2),
        (2, 1),
    ]


def test_an_end_that_nobody_saw_is_said_to_be_lost(launch: Launch, tmp_path: Path, count: Path) -> None:
    # A program in between that waits for orphans itself, as some profilers do.
    between = f"""
import ctypes, os, subprocess
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
environment = dict(os.environ, RANK="0")
subprocess.Popen([os.environ["COCKPIT_DIR"] + "/rankwrap", "1", "{count}"], env=environment)
while True:
    os.wait()
"""
    (tmp_path / "between.py").write_text(between)
    run = launch(f"exec {sys.executable} {tmp_path / 'between.py'}")
    run.says(0, "ready")
    os.kill(run.event("rank_started")["wrapper"], signal.SIGKILL)
    run.ended()
    assert run.event("rank_lost")["rank"] == 0
    assert not run.events("rank_exited")
