"""Waits for another rank as real torch and py-spy show them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.kinds import WAITING, of_dump
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.core.stacks.verdict import verdict
from tests.needs import lacking, require_module
from tests.node import spies
from tests.ports import free_port
from tests.waiting import until
from tests.warm import Warm

pytestmark = [pytest.mark.launch, pytest.mark.slow]

SCRIPT = str(Path(__file__).with_name("waits.py"))
KINDS = {
    "store": ("store", "store.get"),
    "store wait": ("store", "store.wait"),
    "new_group": ("rendezvous", "new_group"),
    "poll": ("collective", "Work.is_completed"),
    "spin": ("collective", "Work.is_completed"),
}


@pytest.fixture
def pids(kind: str, warmed: Warm, tmp_path: Path) -> Iterator[list[int]]:
    """The processes of both ranks."""
    require_module("torch")
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    both = [
        subprocess.Popen(
            [warmed.python, SCRIPT, kind],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        yield [int(process.stdout.readline()) for process in both if process.stdout]
    finally:
        for process in both:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_for_another_rank_is_seen_as_one(
    pids: list[int], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spies.forget(monkeypatch)
    last: list[Dump] = []

    def waits() -> bool:
        last[:] = spies.look(*pids)
        does = of_dump(last[0])
        return (does.kind, does.what) == KINDS[kind]

    with contextlib.suppress(AssertionError):
        until(waits, f"{kind}: it waits")
    if last[0].error == "denied":
        lacking(last[0].what)
    assert (of_dump(last[0]).kind, of_dump(last[0]).what) == KINDS[kind], last[0]
    assert of_dump(last[0]).kind in WAITING
    taken = Snapshot("20261121-040441", "otter", "otter", {rank: Place("gpu1") for rank in range(2)})
    for at in (last[0].at, last[0].at + 1):
        dumps = dict(enumerate(spies.look(*pids)))
        taken.samples.append(Sample(at, dumps, took_s=0.1))
    found = verdict(taken)
    assert (found.ranks, found.id) == (0b10, "absent"), found
