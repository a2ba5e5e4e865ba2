"""What a node keeps of its ranks' steps: all of them, in little room, whatever is in the way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.base.answers import PastItem
from cockpit.base.events import RECORD
from cockpit.base.gate import read
from cockpit.base.progress import ring
from cockpit.base.progress.past import Piece, Stretch, pieces
from cockpit.node.calls import Call
from cockpit.node.measure.past import past
from cockpit.node.run import past as keeping
from cockpit.node.run.past import Keeper
from cockpit.node.run.probing import SHARED_MEMORY, is_memory
from tests.node.conftest import Launch
from tests.node.runs import command
from tests.node.test_probing import stepping
from tests.waiting import until

START_NS = 1_800_000_000 * 10**9


def ring_of(rank: int, first: int, spans: list[float], *, pid: int = 7, began: float = 1.0) -> ring.Ring:
    """A ring in which steps end after so many seconds each."""
    steps, at = [], began
    for place, span in enumerate(spans):
        at += span
        steps.append(ring.Step(first + place, START_NS + round(at * 1e9), round(at * 1e9)))
    return ring.Ring(rank, pid, 99, "optimizer", "", tuple(steps))


def asked(folder: Path, ranks: tuple[int, ...] = (0,), **fields: Any) -> list[Stretch]:
    items: list[dict[str, Any]] = []
    header = {"id": 1, "dir": str(folder), "ranks": list(ranks), **fields}
    past(Call(header, b"", lambda header, payload: items.append(header["item"])))
    return [row for item in items for row in read(PastItem, json.loads(json.dumps(item))).rows]


def told(folder: Path, rank: int = 0, **fields: Any) -> list[Piece]:
    return [piece for row in asked(folder, (rank,), **fields) for piece in pieces(row)]


def test_there_are_events_of_the_kinds_around_which_steps_stay() -> None:
    assert set(keeping.AROUND) <= set(RECORD)


def test_each_step_once_although_rings_overlap(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path), [0])
    keeper.take(ring_of(0, 1, [0.5] * 10))
    keeper.take(ring_of(0, 6, [0.5] * 10, began=3.5))
    keeper.flush(now=True)
    found = told(tmp_path)
    assert [piece.step for piece in found] == list(range(1, 16))
    assert [piece.span for piece in found] == [None] + [0.5] * 14
    assert found[-1].end == pytest.approx(START_NS / 1e9 + 8.5)


def test_a_process_that_ends_is_not_followed_back(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path), [0])
    keeper.take(ring_of(0, 1, [1.0] * 3))
    keeper.take(ring_of(0, 1, [1.0] * 2, pid=8, began=20.0))
    keeper.take(ring_of(0, 4, [1.0], began=4.0))  # the old one said this before the new one began
    keeper.flush(now=True)
    assert [(piece.step, piece.span) for piece in told(tmp_path)] == [
        (1, None), (2, 1.0), (3, 1.0), (1, None), (2, 1.0),
    ]  # fmt: skip


def train(keeper: Keeper, ranks: range, seconds: int, span: float = 0.5, since: int = 0) -> None:
    """Each rank trains up to then; it is looked at each ten seconds."""
    each = round(10 / span)
    for look in range(since // 10, seconds // 10):
        for rank in ranks:
            keeper.take(ring_of(rank, look * each + 1, [span] * each, began=look * 10.0))
        keeper.flush(now=True)
        keeper.wait()


@pytest.mark.slow
def test_half_a_day_needs_little_room(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path), range(2))
    (tmp_path / record.EVENTS).write_text(
        json.dumps({"t": START_NS / 1e9 + 3600, "e": "rank_exited", "rank": 1, "code": 1}) + "\n"
    )
    train(keeper, range(2), 43_200)
    assert (tmp_path / record.STEPS).stat().st_size <= 2 * keeping.STEPS_BYTES * 1.1
    found = told(tmp_path, steps=1 << 20)
    assert sum(piece.many for piece in found) == 2 * 43_200
    assert found[0].step - found[0].many == 0
    last = found[-1].end
    hour = [piece for piece in found if piece.end > last - 3600]
    assert len(hour) >= 7199
    assert {piece.many for piece in hour} == {1}
    event = START_NS / 1e9 + 3600
    around = [piece.many for piece in found if abs(piece.end - event) < 59]
    assert len(around) >= 235
    assert set(around) == {1}


@pytest.mark.slow
def test_without_a_run_record_they_need_no_more(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path), range(1))
    train(keeper, range(1), 40_000)
    assert (tmp_path / record.STEPS).stat().st_size <= keeping.STEPS_BYTES * 1.1
    (tmp_path / "steps.jsonl.new").mkdir()
    train(keeper, range(1), 80_000, since=40_000)
    assert (tmp_path / record.STEPS).stat().st_size < 2 * keeping.STEPS_BYTES, "it cannot be thinned"


def test_what_is_asked_for_is_sent(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path), range(3))
    train(keeper, range(3), 600)
    rows = asked(tmp_path, (0, 2), since=START_NS / 1e9 + 500, steps=50)
    assert {row.rank for row in rows} == {0, 2}
    found = told(tmp_path, since=START_NS / 1e9 + 500, steps=50)
    assert min(piece.end for piece in found) > START_NS / 1e9 + 500
    assert [piece.many for piece in found[-50:]] == [1] * 50
    assert sum(piece.many for piece in found) == 200
    assert len(found) < 60


@pytest.mark.parametrize("name", [record.STEPS, record.STEPS_FOLDED])
@pytest.mark.parametrize("there", ["fifo", "folder", "link", "noise", "lines"])
def test_what_the_program_put_there_costs_no_more_than_that(tmp_path: Path, name: str, there: str) -> None:
    path = tmp_path / name
    other = {record.STEPS: record.STEPS_FOLDED, record.STEPS_FOLDED: record.STEPS}[name]
    (tmp_path / other).write_bytes(Stretch(0, 1, 1, 5.0, 1, (5000,)).line())
    if there == "fifo":
        os.mkfifo(path)
    elif there == "folder":
        path.mkdir()
    elif there == "link":
        path.symlink_to("/dev/zero")
    elif there == "noise":
        path.write_bytes(os.urandom(1 << 20))
    else:
        path.write_bytes(b'[0,1,1,5.0,1,["x"]]\n[]\n\n{"a":1}\n' * 100)
    keeper = Keeper(str(tmp_path), [0])
    keeper.take(ring_of(0, 1, [1.0] * 3))
    keeper.flush(now=True)
    assert 1 in [piece.step for piece in told(tmp_path)]


def test_without_a_folder_nothing_is_kept_and_nothing_fails(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path / "gone"), [0])
    keeper.take(ring_of(0, 1, [1.0] * 3))
    keeper.flush(now=True)
    assert asked(tmp_path / "gone") == []


@pytest.mark.slow
@pytest.mark.skipif(not is_memory(SHARED_MEMORY), reason="no /dev/shm here")
def test_a_supervisor_keeps_the_steps_of_its_ranks(launch: Launch, tmp_path: Path) -> None:
    run = launch(command(2, stepping(tmp_path)), probe="auto")

    def steps(rank: int) -> list[int]:
        return [piece.step for piece in told(run.folder, rank)]

    until(lambda: len(steps(0)) > 20 and len(steps(1)) > 20, "steps on the disk")
    os.kill(run.started["pid"], signal.SIGTERM)
    run.ended()
    last = {one["rank"]: one["steps"][-1]["step"] for one in run.events("rank_steps")}
    for rank in (0, 1):
        assert steps(rank) == list(range(1, last[rank] + 1)), "all of them, each once"
