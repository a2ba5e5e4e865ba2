"""The rank wrapper, alone under this process as its launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cockpit.node import procfs
from cockpit.node.run import redact, wrapper
from tests.node.runs import alive
from tests.waiting import until

Wrap = Callable[..., "subprocess.Popen[str]"]

COUNTER = """
import os, signal, sys, time
def got(number, frame):
    os.write(1, b"got %d\\n" % number)
for number in map(int, sys.argv[1:]):
    signal.signal(number, got)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.05)  # not pause(): a signal just before it is handled by Python only once it returns
"""


@pytest.fixture
def wrap(tmp_path: Path, pyz: bytes) -> Iterator[Wrap]:
    """Start ``rankwrap`` with arguments, as a launcher would."""
    (tmp_path / "node.pyz").write_bytes(pyz)
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str, **environment: str | None) -> subprocess.Popen[str]:
        wanted = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "COCKPIT_DIR": str(tmp_path)}
        full = {**os.environ, "COCKPIT_UMASK": "027", **wanted, **environment}
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(tmp_path / "node.pyz"), "wrap", *argv],
            env={name: value for name, value in full.items() if value is not None},
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stderr
        process.stderr.close()


def record(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / f"rank-5.{kind}.json"
    until(path.exists, f"{path}")
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def log(folder: Path) -> str:
    path = folder / "rank-5.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 3", 3, None)]
    + [(f"kill -{number} $$", None, number) for number in (6, 9, 11, 15)],
)
def test_status_is_recorded_and_passed_on(
    wrap: Wrap, tmp_path: Path, script: str, code: int | None, number: int | None
) -> None:
    process = wrap("1", "sh", "-c", script)
    assert process.wait() == (code if number is None else -number)
    exited = record(tmp_path, "exit")
    assert (exited["code"], exited["signal"]) == (code, number)
    started = record(tmp_path, "start")
    assert exited["pid"] == started["pid"]
    assert (started["rank"], started["local_rank"], started["world_size"]) == (5, 1, 8)
    assert (started["wrapper"], started["parent"]) == (process.pid, os.getpid())
    assert exited["maxrss_kb"] > 0


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], ["a", "b c"]),
        (["--local_rank=1"], ["--local_rank=1", "a", "b c"]),
        (["--local-rank=1"], ["--local-rank=1", "a", "b c"]),
    ],
)
def test_local_rank_is_put_where_the_script_expects_it(
    wrap: Wrap, tmp_path: Path, before: list[str], expected: list[str]
) -> None:
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    assert wrap(*before, "3", sys.executable, "-c", show, "a", "b c").wait() == 0
    assert json.loads(log(tmp_path)) == expected


@pytest.mark.parametrize(
    ("argv", "environment", "said"),
    [
        (("1", "true"), {"RANK": None}, "RANK is not set"),
        (("1", "true"), {"RANK": "one"}, "RANK is not a number"),
        (("1", "true"), {"COCKPIT_DIR": None}, "COCKPIT_DIR is not set"),
        (("true",), {}, "expected a number and a command"),
        (("3",), {}, "expected a number and a command"),
        (("x", "true"), {}, "expected a number and a command"),
    ],
)
def test_wrong_use_is_an_error(
    wrap: Wrap, tmp_path: Path, argv: tuple[str, ...], environment: dict[str, str | None], said: str
) -> None:
    process = wrap(*argv, **environment)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert not list(tmp_path.glob("rank-*"))


@pytest.mark.parametrize("word", ["", "--local_rank=0", "sup"])
def test_unknown_part_is_an_error(tmp_path: Path, pyz: bytes, word: str) -> None:
    (tmp_path / "node.pyz").write_bytes(pyz)
    argv = [sys.executable, "-I", "-S", str(tmp_path / "node.pyz"), word]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown part" in done.stderr


@pytest.mark.parametrize(("name", "code"), [("no-such-program", 127), ("/", 126)])
def test_program_that_cannot_be_started(wrap: Wrap, tmp_path: Path, name: str, code: int) -> None:
    # A folder on PATH that may not be searched makes 126 of 127, as in execvp(3).
    assert wrap("1", name, PATH="/usr/bin:/bin").wait() == code
    assert record(tmp_path, "exit")["code"] == code
    assert f"cockpit: cannot start {name}: " in log(tmp_path)


def test_surroundings_of_the_training_process(wrap: Wrap, tmp_path: Path) -> None:
    show = (
        "import os, signal, sys; print(sys.stdin.read() == '', oct(os.umask(0)), os.getpgrp() == os.getpid(),"
        " signal.pthread_sigmask(signal.SIG_BLOCK, []), file=sys.stderr);"
        " os.write(1, b'out')"
    )
    (tmp_path / "rank-5.log").write_text("before\n")
    assert wrap("1", sys.executable, "-c", show).wait() == 0
    assert log(tmp_path) == "before\nTrue 0o27 True set()\nout"
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("rank-5.*.json")}
    assert modes == dict.fromkeys([f"rank-5.{kind}.json" for kind in ("start", "exit", "environ")], 0o600)


def test_new_log_is_private(wrap: Wrap, tmp_path: Path) -> None:
    assert wrap("1", "true").wait() == 0
    assert (tmp_path / "rank-5.log").stat().st_mode & 0o777 == 0o600


def test_signals_are_forwarded(wrap: Wrap, tmp_path: Path) -> None:
    def arrived(count: int) -> bool:
        return log(tmp_path).count("got") == count

    numbers = [int(number) for number in wrapper.FORWARDED]
    process = wrap("1", sys.executable, "-c", COUNTER, *map(str, numbers))
    until(lambda: "ready" in log(tmp_path), "the rank is ready")
    for count, number in enumerate(numbers, 1):
        process.send_signal(number)
        until(partial(arrived, count), f"signal {number} arrived")
    assert log(tmp_path).split()[1:] == " ".join(f"got {number}" for number in numbers).split()


def test_a_launcher_that_signals_the_whole_tree_is_not_doubled(wrap: Wrap, tmp_path: Path) -> None:
    process = wrap("1", sys.executable, "-c", COUNTER, "1", "15", CROSS_RANK="0")
    until(lambda: "ready" in log(tmp_path), "the rank is ready")
    process.send_signal(signal.SIGHUP)
    # From somebody else, and a higher number: once it is there, so would be the one from here.
    subprocess.run(["kill", "-TERM", str(process.pid)], check=True)
    until(lambda: "got 15" in log(tmp_path), "a signal from elsewhere arrived")
    assert "got 1\n" not in log(tmp_path)
    subprocess.run(["kill", "-HUP", str(process.pid)], check=True)
    until(lambda: "got 1\n" in log(tmp_path), "SIGHUP from elsewhere arrived")


def test_the_rank_dies_with_its_wrapper(wrap: Wrap, tmp_path: Path) -> None:
    process = wrap("1", sys.executable, "-c", COUNTER)
    until(lambda: "ready" in log(tmp_path), "the rank is ready")
    pid = record(tmp_path, "start")["pid"]
    process.kill()
    until(lambda: not alive(pid), "the rank died")
    assert not (tmp_path / "rank-5.exit.json").exists()


def test_records_of_an_earlier_attempt_are_kept(wrap: Wrap, tmp_path: Path) -> None:
    assert wrap("1", "sh", "-c", "exit 4", TORCHELASTIC_RESTART_COUNT="0").wait() == 4
    again = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "2"}
    assert wrap("1", "true", **again).wait() == 0
    assert record(tmp_path, "exit.0")["code"] == 4
    assert record(tmp_path, "exit")["code"] == 0
    started = record(tmp_path, "start")
    assert (started["attempt"], started["max_restarts"]) == (1, 2)


def test_identity_is_pid_and_start_time(wrap: Wrap, tmp_path: Path) -> None:
    process = wrap("1", sys.executable, "-c", COUNTER)
    until(lambda: "ready" in log(tmp_path), "the rank is ready")
    started = record(tmp_path, "start")
    assert procfs.alive(started["pid"], started["ticks"])
    assert procfs.alive(process.pid, started["wrapper_ticks"])
    assert not procfs.send(started["pid"], started["ticks"] + 1, signal.SIGKILL)
    assert procfs.send(started["pid"], started["ticks"], signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_who_records_the_environment_is_gone_while_the_rank_runs(wrap: Wrap, tmp_path: Path) -> None:
    process = wrap("1", "sleep", "1000")
    pid = record(tmp_path, "environ")["pid"]
    until(lambda: [one.pid for one in procfs.children()[process.pid]] == [pid], "the rank is alone")
    # And signals still reach it.
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


def test_an_environment_that_cannot_be_recorded_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wrapper, "_SCRIBE_S", 1)
    monkeypatch.setattr(redact, "told", lambda found: signal.pause())
    wrapper._see_off(wrapper._record_environ(str(tmp_path), 5, 7, 8))

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    wrapper._see_off(wrapper._record_environ(str(tmp_path), 5, 7, 8))
    assert "cannot record the environment of rank 5: " in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_wrapper_stays_small(tmp_path: Path, pyz: bytes) -> None:
    (tmp_path / "node.pyz").write_bytes(pyz)
    show = f"import sys; sys.path.insert(0, {str(tmp_path / 'node.pyz')!r}); import cockpit.node.run.wrapper"
    argv = [sys.executable, "-I", "-S", "-c", show + "; print(*sys.modules)"]
    modules = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    assert "cockpit.node.run.wrapper" in modules
    assert not modules & {"ctypes", "json", "re", "subprocess", "typing"}
