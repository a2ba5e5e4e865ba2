"""Evidence that a supervisor keeps of its ranks: of real processes, with py-spy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import evidence_file, record
from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.unpacking import unpack
from cockpit.node import procfs
from cockpit.node.calls import NodeError
from cockpit.node.evidence import taking
from cockpit.node.run import wrapper
from cockpit.node.stacks import permission, pyspy
from tests.node import runs, spies
from tests.node.conftest import Launch
from tests.waiting import until

SLEEPS = "def stuck():\n    open(GO, 'w').close()\n    time.sleep(1000)\nstuck()"
FAILS = f"""STARTED = os.environ["COCKPIT_DIR"] + "/{record.rank_start(0)}"
while not (os.path.exists(GO) and os.path.exists(STARTED)): time.sleep(0.02)
sys.exit(3)
"""
"""Once the other one is stuck, and its start is on record."""

LAUNCHER = """
set -- 2
for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 "$COCKPIT_DIR"/rankwrap 1 %s &
done
wait -n; code=$?
pkill -KILL -P $$
wait
exit $code
"""
"""Ends the other rank the moment that one has failed, as launchers do, only harder."""


def program(path: Path, *of_rank: str) -> Path:
    """A program that does another thing in each rank."""
    go = path.parent / "go"
    head = f"import os, sys, time\nGO = {str(go)!r}\n"
    for rank, text in enumerate(of_rank):
        (path.parent / f"{rank}.py").write_text(head + text)
    return runs.program(path, f'exec {sys.executable} -S -u "{path.parent}/$RANK.py"\n')


def evidence(run: runs.Run, **facts: object) -> evidence_file.EvidenceFile:
    """Wait for evidence; what is in its file."""
    event = run.event("evidence", **facts)
    return evidence_file.parsed((run.folder / record.EVIDENCE / event["file"]).read_bytes())


def dumps(found: evidence_file.EvidenceFile) -> dict[int, Dump]:
    return {dump.rank: dump for data in found.stacks for dump in unpack(data, str)}


def names(dump: Dump) -> list[str]:
    return [frame.name for frame in dump.frames]


def test_a_failed_rank_waits_until_the_others_were_looked_at(launch: Launch, tmp_path: Path) -> None:
    script = LAUNCHER % program(tmp_path / "program", SLEEPS, FAILS)
    run = launch(script, evidence={"hold_s": 50})  # it is released much sooner
    events = run.ended()
    assert [event["code"] for event in run.events("rank_exited", rank=1)] == [3]
    found = evidence(run, why="failure")
    assert found.head.failed == (1,)
    assert names(dumps(found)[0])[-1] == "stuck"
    order = [event["e"] for event in events]
    assert order.index("rank_exited") < order.index("evidence") < order.index("launcher_exited")


@pytest.mark.slow
def test_ranks_that_stand_still_and_go_on(launch: Launch, tmp_path: Path) -> None:
    waits = "while not os.path.exists(GO): time.sleep(0.02)\n"
    of_ranks = [waits + "print('on')\nwhile os.path.exists(GO): time.sleep(0.02)\n"] * 2
    limits = {"idle_s": 2.5, "after_s": 2.5, "every_s": 1000}  # the other has started by then
    run = launch(runs.command(2, program(tmp_path / "program", *of_ranks)), evidence=limits)
    found = evidence(run, why="stall")
    assert sorted(dumps(found)) == [0, 1]
    assert found.head.since is not None
    assert found.head.boot_id == procfs.boot_id()
    (tmp_path / "go").touch()
    went_on = until(lambda: [one for one in run.events("evidence") if "over_s" in one], "they went on")
    assert went_on[0]["over_s"] > 0
    for rank in (0, 1):
        run.says(rank, "on")
    (tmp_path / "go").unlink()
    run.ended()
    # Once: the next time is far away.
    assert len(run.events("evidence")) == 2


@pytest.mark.parametrize(
    ("limits", "said"),
    [({"quota": 1000}, "has used its"), ({"floor": 1 << 60}, "MB free"), ({"keep": False}, "")],
)
def test_without_room_nothing_is_kept_and_nobody_waits(
    launch: Launch, tmp_path: Path, limits: dict[str, Any], said: str
) -> None:
    run = launch(LAUNCHER % program(tmp_path / "program", SLEEPS, FAILS), evidence=limits)
    run.ended()
    told = run.events("evidence")
    assert [said in one["text"] for one in told] == ([True] if said else [])
    assert not (run.folder / record.EVIDENCE).exists()


def test_a_rank_alone_has_nobody_to_look_at(launch: Launch, tmp_path: Path) -> None:
    run = launch(runs.command(1, program(tmp_path / "program", "sys.exit(3)")), ranks=[0])
    run.ended()
    assert run.events("evidence") == []


def test_a_cockpit_asks_for_it(launch: Launch, tmp_path: Path) -> None:
    run = launch(runs.command(2, program(tmp_path / "program", SLEEPS, SLEEPS)))
    run.event("rank_started", rank=0)
    run.event("rank_started", rank=1)
    (run.folder / record.WISH).write_text("{}")
    found = evidence(run, why="asked")
    assert sorted(dumps(found)) == [0, 1]


def test_nothing_is_begun_while_the_run_is_stopped(launch: Launch, tmp_path: Path) -> None:
    run = launch(runs.command(2, program(tmp_path / "program", SLEEPS, SLEEPS)))
    run.event("rank_started", rank=0)
    run.event("rank_started", rank=1)
    run.stop(hard=True)
    run.ended()
    assert run.events("evidence") == []


# The wrapper

Hold = Callable[..., int]


@pytest.fixture
def hold(tmp_path: Path, pyz: bytes) -> Iterator[Hold]:
    """Start a wrapper whose rank fails under a supervisor that does nothing; its pid, once it waits."""
    (tmp_path / "node.pyz").write_bytes(pyz)
    started: list[subprocess.Popen[bytes]] = []

    def start(rank: int, supervisor: int) -> int:
        words = [sys.executable, "-I", "-S", str(tmp_path / "node.pyz"), "wrap", "1", "/bin/false"]
        told = {"RANK": str(rank), record.ENV_DIR: str(tmp_path), record.ENV_HOLD: "50"}
        process = subprocess.Popen(words, env={**os.environ, **told, record.ENV_SUPERVISOR: str(supervisor)})
        started.append(process)
        until((tmp_path / record.rank_exit(rank)).exists, "the rank has failed")
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def ended(pid: int) -> bool:
    found = procfs.stat(pid)
    return found is None or found.state in "ZX"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, wrapper.RELEASE])
def test_the_wait_ends_with_a_signal(hold: Hold, number: int) -> None:
    with subprocess.Popen(["sleep", "1000"]) as supervisor:
        waiting = [hold(rank, supervisor.pid) for rank in (0, 1)]
        os.kill(waiting[0], number)
        until(lambda: ended(waiting[0]), "it ends")
        other_waits = not ended(waiting[1])
        supervisor.kill()
    assert other_waits


def test_the_wait_ends_with_the_supervisor(hold: Hold) -> None:
    with subprocess.Popen(["sleep", "1000"]) as one, subprocess.Popen(["sleep", "1000"]) as other:
        waiting = [hold(0, one.pid), hold(1, other.pid)]
        one.kill()
        until(lambda: ended(waiting[0]), "it ends")
        other_waits = not ended(waiting[1])
        other.kill()
    assert other_waits


def test_the_wait_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    waits: list[float] = []

    def wait(signals: set[int], seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("cockpit.node.run.wrapper.time.monotonic", lambda: now[0])
    monkeypatch.setattr("cockpit.node.run.wrapper.signal.sigtimedwait", wait)
    monkeypatch.setattr(procfs, "send", lambda *_: True)
    supervisor = os.getpid(), procfs.ticks(os.getpid())
    for told, waited in (("3", 3), ("6000", wrapper.HOLD_S)):
        waits.clear()
        monkeypatch.setenv(record.ENV_HOLD, told)
        wrapper._hold(supervisor)
        assert sum(waits) == pytest.approx(waited)


@pytest.mark.parametrize("case", ["not wanted", "no supervisor", "nonsense"])
def test_there_is_no_wait(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr("cockpit.node.run.wrapper.signal.sigtimedwait", lambda *_: pytest.fail("it waits"))
    monkeypatch.setattr(procfs, "send", lambda *_: pytest.fail("it tells somebody"))
    supervisor = (os.getpid(), 0 if case == "no supervisor" else procfs.ticks(os.getpid()))
    if case != "not wanted":
        monkeypatch.setenv(record.ENV_HOLD, "soon" if case == "nonsense" else "3")
    wrapper._hold(supervisor)


# The process that looks


def asked(folder: Path, *pids: int, **facts: Any) -> dict[str, Any]:
    live = [[rank, pid, procfs.ticks(pid)] for rank, pid in enumerate(pids)]
    told: dict[str, Any] = {"folder": str(folder), "name": "20261123-031200-stall.evidence"}
    told |= {
        "run": "no-run",
        "node": "n",
        "why": "stall",
        "since": 1.0,
        "failed": [],
        "own": list(range(len(pids))),
        "live": live,
    }
    return {**told, "budget_s": 30, "quota": 20 << 20, "floor": 0, **facts}


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that sleeps in a function."""
    with spies.start("import time\nprint()\ndef stuck():\n    time.sleep(1000)\nstuck()") as process:
        spies.in_state(process.pid, "S")
        yield process.pid
        process.kill()


def read(folder: Path) -> evidence_file.EvidenceFile:
    (file,) = (folder / record.EVIDENCE).iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert evidence_file.is_name(file.name)
    return evidence_file.parsed(file.read_bytes())


def test_without_py_spy_what_the_kernel_says_is_kept(
    tmp_path: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise NodeError("py-spy", "no py-spy here")

    monkeypatch.setattr(pyspy, "kept", none)
    said = taking.look(asked(tmp_path, sleeper))
    found = read(tmp_path)
    dump = dumps(found)[0]
    assert dump.process is not None
    assert dump.process.call
    assert not dump.threads
    assert "no py-spy here" in said["trouble"]
    assert found.head.trouble == ("no py-spy here",)


def test_one_py_spy_at_a_time(tmp_path: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = tmp_path / "turn"
    spy = runs.program(
        tmp_path / "spy", f"mkdir {turn} || touch {tmp_path}/two\nsleep 0.1\nrmdir {turn}\necho '[]'\n"
    )
    monkeypatch.setattr(pyspy, "kept", lambda: str(spy))
    taking.look(asked(tmp_path, *[sleeper] * 3))
    assert not (tmp_path / "two").exists()
    assert sorted(dumps(read(tmp_path))) == [0, 1, 2]


def test_it_asks_nobody_to_become_root(tmp_path: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(permission, "_by_sudo", lambda *_: pytest.fail("sudo is asked"))
    assert taking.look(asked(tmp_path, sleeper))
    assert list(dumps(read(tmp_path))) == [0]
    with pytest.raises(pytest.fail.Exception):
        permission.starters("", 1)


def test_the_quota_counts_what_is_there(tmp_path: Path, sleeper: int) -> None:
    (tmp_path / record.EVIDENCE).mkdir()
    (tmp_path / record.EVIDENCE / "before").write_bytes(bytes(20 << 20))
    with pytest.raises(OSError, match="may still save"):
        taking.look(asked(tmp_path, sleeper))
    assert [each.name for each in (tmp_path / record.EVIDENCE).iterdir()] == ["before"]


def test_an_evidence_folder_that_leads_elsewhere_is_not_followed(tmp_path: Path, sleeper: int) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / record.EVIDENCE).symlink_to(elsewhere)
    with pytest.raises(OSError):  # noqa: PT011 (whatever it is called)
        taking.look(asked(tmp_path, sleeper))
    assert list(elsewhere.iterdir()) == []


def test_nobody_left_to_look_at(tmp_path: Path) -> None:
    assert "no rank is left" in taking.look(asked(tmp_path))["trouble"]


def test_what_is_kept_fits_in_one_word_of_a_command(tmp_path: Path) -> None:
    most = asked(tmp_path, *[2**22] * 1024)
    assert len(json.dumps(most)) < 128 << 10
