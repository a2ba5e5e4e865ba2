"""The probes of a run's ranks, from their start to its end: what they say, and what is measured."""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.base.events import RANK_SAMPLES
from cockpit.base.progress import ring
from cockpit.node import procfs
from cockpit.node.measure.progress import Rings
from cockpit.node.probe import hooks
from cockpit.node.run import probing
from tests.node.conftest import Launch
from tests.node.runs import command, program
from tests.node.test_samples import looks
from tests.waiting import until

STUB = Path(__file__).parents[1] / "probe" / "stub"

TRAIN = """
import os, time
assert "COCKPIT_PROBE" not in os.environ and "PYTHONPATH" in os.environ
import torch
made = torch.optim.SGD()
while True:
    made.step()
    if os.path.exists(os.environ["COCKPIT_DIR"] + "/break"):
        torch.optim.break_hook(made)
    time.sleep(0.02)
"""


def stepping(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return program(
        tmp_path / "rank", f"PYTHONPATH=$PYTHONPATH:{STUB} exec {sys.executable} {tmp_path}/train.py\n"
    )


@pytest.mark.skipif(not probing.is_memory(probing.SHARED_MEMORY), reason="no /dev/shm here")
def test_steps_of_ranks_are_measured_while_they_run(launch: Launch, tmp_path: Path) -> None:
    run = launch(command(2, stepping(tmp_path)), probe="auto")
    for rank in (0, 1):
        said = run.event("rank_probe", rank=rank)
        assert (said["server"], said["steps"], said["torch"]) == ("", "", "2.13.0+stub")
        assert said["handlers"] == ["fr_trace_json", "ping"]
        assert (run.folder / "probe" / f"{rank}.{said['pid']}.sock").is_socket()
    items = looks(
        run.folder,
        lambda item: (
            all((one["progress"] or {}).get("step", 0) > 5 for one in item["ranks"].values())
            and len(item["ranks"]) == 2
        ),
    )
    found = RANK_SAMPLES.read(items[-1]["ranks"])
    for rank in (0, 1):
        progress = found[rank].progress
        assert progress.source == "optimizer"
        assert 0 <= progress.age_s < 60
        assert 0.02 <= progress.step_s < 60
        assert progress.steps[-1].step == progress.step
    told = [
        step["step"] if isinstance(step, dict) else step[0]
        for item in items
        for step in (item["ranks"].get("0", {}).get("progress") or {"steps": []})["steps"]
    ]
    assert told == list(range(told[0], told[-1] + 1)), "each step once"
    facts = json.loads((run.folder / record.RECORD).read_text())
    assert facts["probe"] == "auto"
    assert os.listdir(facts["rings"])
    (run.folder / "break").touch()

    def gave_up(rank: int) -> list[dict[str, Any]]:
        return [one for one in run.events("rank_probe", rank=rank) if one["steps"]]

    until(lambda: gave_up(0) and gave_up(1), "their hooks gave up")
    broken = gave_up(1)[0]
    assert broken["steps"].startswith("stopped at an error: TypeError")
    assert broken["handlers"] == ["fr_trace_json", "ping"]
    os.kill(run.started["pid"], signal.SIGTERM)
    run.ended()
    assert not os.path.exists(facts["rings"])
    kept = [ring.read(path.read_bytes()) for path in (run.folder / "probe").glob("*.ring")]
    assert sorted((one.rank, one.broken[:9]) for one in kept) == [(0, "TypeError"), (1, "TypeError")]
    for one in kept:
        last = run.event("rank_steps", rank=one.rank)
        assert (last["source"], last["pid"]) == (one.source, one.pid)
        assert [step["step"] for step in last["steps"]] == [
            step.step for step in one.steps[-ring.LAST_STEPS :]
        ]


MEET = """
import os, sys, time
import torch
from torch.distributed import _world, init_process_group
init_process_group("file:" + sys.argv[1])
assert _world.default_pg == sys.argv[1]
time.sleep(600)
"""


@pytest.mark.skipif(not probing.is_memory(probing.SHARED_MEMORY), reason="no /dev/shm here")
def test_a_rendezvous_is_told_when_it_begins_and_when_the_group_is_there(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(MEET)
    text = f"PYTHONPATH=$PYTHONPATH:{STUB} exec {sys.executable} {tmp_path}/train.py {tmp_path}/met\n"
    run = launch(command(1, program(tmp_path / "rank", text)), probe="auto")

    def told(**known: bool) -> list[dict[str, Any]]:
        return [
            one
            for one in run.events("rank_probe", rank=0)
            if all((one.get(name) is not None) == there for name, there in known.items())
        ]

    began = until(lambda: told(rendezvous_at=True, group_at=False), "the rendezvous began")[0]
    (tmp_path / "met").touch()
    joined = until(lambda: told(rendezvous_at=True, group_at=True), "the group is there")[0]
    assert began["rendezvous_at"] == joined["rendezvous_at"] < joined["group_at"]
    assert joined["handlers"] == ["fr_trace_json", "ping"]
    assert len(run.events("rank_probe", rank=0)) <= 3
    os.kill(run.started["pid"], signal.SIGTERM)
    run.ended()


def test_a_program_cannot_have_its_rendezvous_told_for_ever(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    (tmp_path / "probe").mkdir()
    probes = probing.Probes(str(tmp_path), "auto", [0], lambda kind, **facts: said.append(facts))
    try:
        path = made(Path(probes.rings), 0, os.getpid())
        (tmp_path / "probe" / "a.json").write_text(json.dumps({"rank": 0, "pid": os.getpid(), "torch": "2"}))
        data = path.read_bytes()
        for number in range(1000):
            odd = struct.pack("=2Q", number * 10**9, (1 << 64) - 1)
            path.write_bytes(data[: ring.RENDEZVOUS] + odd + data[ring.RENDEZVOUS + 16 :])
            probes.look()
        assert 100 < len(said) <= 210
        assert {one["group_at"] for one in said} == {None}
    finally:
        probes.close()


def test_without_it_nothing_is_there(launch: Launch, tmp_path: Path) -> None:
    show = program(tmp_path / "show", 'echo "$PYTHONPATH:$COCKPIT_PROBE:$COCKPIT_RINGS:"\n')
    run = launch(command(1, show), ranks=[0], probe="off", env={"PYTHONPATH": "mine"})
    run.ended()
    assert run.log(0) == "mine:::\n"
    assert not (run.folder / "probe").exists()
    assert run.event("supervisor_started")["probe"] == "off"


def made(folder: Path, rank: int, pid: int, *steps: int, ticks: int | None = None) -> Path:
    path = folder / f"{rank}.{pid}.ring"
    one = hooks.Ring(str(path), rank, procfs.ticks(pid) if ticks is None else ticks)
    one.words[3] = pid
    for step in steps:
        one.add(step)
    return path


def test_of_several_processes_the_one_that_stepped_last_is_the_rank(tmp_path: Path) -> None:
    made(tmp_path, 0, os.getppid(), 1, 2, 3)
    made(tmp_path, 0, os.getpid(), 1, 2)
    made(tmp_path, 0, 1 << 22, 7, ticks=5)  # it has ended
    made(tmp_path, 1, os.getpid())
    rings = Rings(str(tmp_path))
    rings.look()
    assert (rings.progress(0) or {})["step"] == 2
    assert rings.progress(1) is None
    assert rings.progress(2) is None


def hostile(data: bytes) -> list[bytes]:
    word = struct.Struct("=Q")
    full = (1 << 64) - 1
    sealed = struct.pack("=4Q", full, full, full, full ^ full ^ full ^ ring.MAGIC)
    future = struct.pack("=4Q", 1, 1, 1 << 61, 1 ^ 1 ^ (1 << 61) ^ ring.MAGIC)
    head = 8 * ring.HEADER_WORDS
    return [
        b"",
        data[:-1],
        data + b"x",
        os.urandom(ring.SIZE),
        data[:48] + word.pack(full) + data[56:],
        data[:16] + word.pack(full) + data[24:],
        data[:head] + sealed + data[head + 32 :],
        data[:head] + future + data[head + 32 :],
        data[:head] + (future + sealed) * (ring.CAPACITY // 2),
    ]


def test_what_a_program_writes_into_its_ring_passes_the_gate_or_counts_for_nothing(tmp_path: Path) -> None:
    path = made(tmp_path, 0, os.getpid(), 1)
    for data in hostile(path.read_bytes()):
        path.write_bytes(data)
        rings = Rings(str(tmp_path))
        rings.look()
        RANK_SAMPLES.read({"0": {"progress": rings.progress(0)}})
    path.unlink()
    path.symlink_to("/etc/passwd")
    (tmp_path / "1.5.ring").mkdir()
    os.mkfifo(tmp_path / "2.5.ring")
    for name in ("9" * 200 + ".1.ring", ".5.ring", "5..ring", "\u00b2.5.ring", "0.5.ring\n", "0.-5.ring"):
        (tmp_path / name).touch()
    for folder in (str(tmp_path), "/nowhere", "\0", ""):
        rings = Rings(folder)
        rings.look()
        assert [rings.progress(rank) for rank in range(3)] == [None] * 3


def test_what_a_program_says_in_place_of_its_probe_is_bounded(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    (tmp_path / "probe").mkdir()
    probes = probing.Probes(str(tmp_path), "auto", [0], lambda kind, **facts: said.append(facts))
    try:
        bad = [
            "",
            "[]",
            "{}",
            '{"rank": "0"}',
            json.dumps({"rank": 5, "pid": 1, "ticks": 1}),
            "x" * (1 << 20),
        ]
        bad.append(json.dumps({"rank": 0, "pid": 1, "ticks": 1, "handlers": ["x"] * 200}))
        for number, text in enumerate(bad):
            (tmp_path / "probe" / f"{number}.json").write_text(text)
        os.mkfifo(tmp_path / "probe" / "fifo.json")
        probes.look()
        assert said == []
        for number in range(1000):
            text = json.dumps({"rank": 0, "pid": number, "ticks": 1, "steps": "\x1b[31m" * 1000})
            (tmp_path / "probe" / f"m{number}.json").write_text(text)
        probes.look()
        probes.look()
        assert 0 < len(said) <= 210
        assert max(len(one["steps"]) for one in said) <= 2001
    finally:
        probes.close()
    assert not os.path.exists(probes.rings) or not probes.rings


def test_what_a_killed_supervisor_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "SHARED_MEMORY", str(tmp_path))
    monkeypatch.setattr(probing, "is_memory", lambda place: True)
    made = probing.Probes(str(tmp_path), "on", [0], lambda kind, **facts: None)
    own = os.path.basename(made.rings).partition(f"{os.getpid()}-")[0]
    made.close()
    alive = f"{own}{os.getppid()}-{procfs.ticks(os.getppid())}-abc"
    others = (f"cockpit-{os.geteuid()}-1-{1 << 22}-5-abc", f"{own}x-1-abc", f"{own}--", "sem.mp-1")
    for name in (f"{own}{1 << 22}-5-abc", alive, *others):
        (tmp_path / name).mkdir()
    probes = probing.Probes(str(tmp_path), "on", [0], lambda kind, **facts: None)
    assert set(os.listdir(tmp_path)) == {alive, *others, os.path.basename(probes.rings)}
    probes.close()
    assert set(os.listdir(tmp_path)) == {alive, *others}
