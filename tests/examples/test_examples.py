"""The example scripts do what the launch tests rely on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import require_module
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until
from tests.warm import Warm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEP = re.compile(r"step (\d+)/\d+ loss \d+\.\d{4} lr \d\.\de-\d\d (\d+) ms/step")


def plain(*flags: str, rank: int = 0) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "train_plain.py"), "--step-time", "0", *flags],
        env={**os.environ, "RANK": str(rank)},
        capture_output=True,
        check=False,
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are killed in the end, if they still are."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def begin(
    started: list[subprocess.Popen[bytes]], log: Path, *flags: str, rank: int = 0
) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "train_plain.py"), "--step-time", "0.01", *flags],
            env={**os.environ, "RANK": str(rank)},
            stdout=out,
        )
    started.append(process)
    return process


def test_steps_are_printed() -> None:
    done = plain("--steps", "3", "--local_rank=1")
    lines = done.stdout.decode().splitlines()
    steps = [found[1] for found in map(STEP.fullmatch, lines) if found]
    assert done.returncode == 0
    assert steps == ["1", "2", "3"]
    assert lines[-1] == "done"


def test_crash_is_a_clear_traceback_on_one_rank() -> None:
    done = plain("--crash", "1@2", rank=1)
    assert done.returncode == 1
    assert b"step 1/20" in done.stdout
    assert b"step 2/20" not in done.stdout
    assert done.stderr.startswith(b"Traceback (most recent call last):")
    assert done.stderr.endswith(b"RuntimeError: injected fault: rank 1 crashes at step 2\n")
    assert plain("--crash", "1@2", rank=0).returncode == 0


def test_slow_from_that_step_on() -> None:
    done = plain("--steps", "4", "--slow", "0@3:0.2")
    slow = [found[1] for found in STEP.finditer(done.stdout.decode()) if int(found[2]) >= 200]
    assert {"3", "4"} <= set(slow)


@pytest.mark.parametrize("text", ["1", "1@", "@1", "a@b", "1@2:x"])
def test_bad_fault_is_a_usage_error(text: str) -> None:
    done = plain("--crash", text)
    assert done.returncode == 2
    assert b"want RANK@STEP" in done.stderr


def test_hang_ends_on_term(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = begin(started, log, "--hang", "0@2")
    until(lambda: b"hangs at step 2" in log.read_bytes(), "the hang")
    process.terminate()
    assert process.wait(PATIENCE_S) == -signal.SIGTERM
    assert b"step 2/" not in log.read_bytes()


def test_ignore_term(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = begin(started, log, "--ignore-term", "--steps", "100000")
    until(lambda: log.read_bytes(), "a first step")
    process.terminate()
    seen = log.stat().st_size
    until(lambda: log.stat().st_size > seen + 1000, "more steps after SIGTERM")
    assert process.poll() is None


def test_child_gets_away() -> None:
    done = plain("--child", "--steps", "0")
    pid = int(done.stdout.split()[2])
    try:
        assert os.getsid(pid) == pid
    finally:
        os.kill(pid, signal.SIGKILL)


def test_lines_are_complete_and_repeatable() -> None:
    flags = ["--steps", "0", "--lines", "3000", "--junk", "--seed", "7"]
    first, second, other = plain(*flags), plain(*flags), plain(*flags, rank=1)
    assert first.stdout == second.stdout
    assert other.stdout != first.stdout
    found = re.findall(rb"^rank 0 line (\d+)$", first.stdout, re.MULTILINE)
    assert [int(number) for number in found] == list(range(1, 3001))
    lines = first.stdout.split(b"\n")
    assert sum(len(line) >= 1_000_000 for line in lines) == 2
    assert b"\x1b" in first.stdout
    assert b"\r 50%|##########" in first.stdout
    with pytest.raises(UnicodeDecodeError):
        first.stdout.decode()


def torchrun(*argv: str) -> list[str]:
    port = str(free_port())
    return ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port", port, *argv]


def deepspeed(*argv: str) -> list[str]:
    return ["-m", "deepspeed.launcher.runner", "--num_gpus=2", "--master_port", str(free_port()), *argv]


def launched(python: str, argv: list[str], folder: Path) -> tuple[int, str]:
    """Run a launcher to its end; return its status and all that was printed."""
    done = subprocess.run(
        [python, *argv],
        cwd=folder,
        env={
            **os.environ,
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(folder),  # torchrun leaves folders there
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout


TORCH, DEEPSPEED = str(EXAMPLES / "train_torch.py"), str(EXAMPLES / "train_deepspeed.py")


@pytest.mark.slow
@pytest.mark.launch
def test_torch_trains_with_two_ranks(warmed: Warm, tmp_path: Path) -> None:
    require_module("torch")
    code, text = launched(warmed.python, torchrun(TORCH, "--steps", "5"), tmp_path)
    assert code == 0, text
    assert text.count("step 5/5 loss") == 2


@pytest.mark.slow
@pytest.mark.launch
def test_torch_crash(warmed: Warm, tmp_path: Path) -> None:
    require_module("torch")
    code, text = launched(warmed.python, torchrun(TORCH, "--crash", "1@3"), tmp_path)
    assert code == 1
    assert "RuntimeError: injected fault: rank 1 crashes at step 3" in text
    assert "step 3/20 loss" not in text


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize("zero", ["0", "2"])
def test_deepspeed_trains_with_two_ranks(warmed: Warm, tmp_path: Path, zero: str) -> None:
    require_module("deepspeed")
    words = deepspeed(DEEPSPEED, "--steps", "5", "--zero", zero)
    code, text = launched(warmed.python, words, tmp_path)
    assert code == 0, text
    assert text.count("step 5/5 loss") == 2
    assert "built successfully" not in text, "something was compiled"


def test_ranks_that_meet_wait_for_each_other_and_not_for_who_has_ended(
    started: list[subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    logs = [tmp_path / str(rank) for rank in range(3)]
    flags = ("--together", "--steps", "6", "--hang", "1@4", "--crash", "2@2")
    first, second, third = (begin(started, log, *flags, rank=rank) for rank, log in enumerate(logs))
    assert third.wait(PATIENCE_S) == 1
    until(lambda: b"hangs at step 4" in logs[1].read_bytes(), "the hang")
    until(lambda: b"step 3/6" in logs[0].read_bytes(), "the step before it")
    assert first.poll() is None
    second.kill()
    assert first.wait(PATIENCE_S) == 0
    assert b"step 6/6" in logs[0].read_bytes()


def test_without_rank_0_nobody_meets(
    started: list[subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    flags = ("--together", "--steps", "6", "--crash", "0@2")
    first, second = (begin(started, tmp_path / str(rank), *flags, rank=rank) for rank in range(2))
    assert first.wait(PATIENCE_S) == 1
    assert second.wait(PATIENCE_S) == 1
