"""The time index of a supervisor: bounded whatever happens, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cockpit.base import record
from cockpit.base.growing_file import PENDING, Lasting
from cockpit.base.times import line, thinned, ticks
from cockpit.node.run import follow
from tests.node import folders
from tests.waiting import PATIENCE_S

LIMIT = 50_000


def index(path: str) -> Lasting:
    return Lasting(path, LIMIT, lambda data: thinned(data, LIMIT))


def grow(writer: Lasting, count: int, start: int = 0) -> None:
    for place in range(start, start + count):
        writer.add(line(1000.0 + place / 5, {"rank-0.log": 100 * place, "rank-1.log": place}))
        writer.wait()


def last(path: Path) -> float:
    return list(ticks(path.read_bytes().split(b"\n")))[-1][0]


@pytest.mark.slow
def test_it_stays_within_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl"
    writer = index(str(path))
    for start in range(0, 20_000, 500):
        grow(writer, 500, start)
        assert path.stat().st_size <= LIMIT + 100
        assert last(path) == pytest.approx(1000.0 + (start + 499) / 5)
    assert not writer.trouble
    assert [entry.name for entry in tmp_path.iterdir()] == ["times.jsonl"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_whoever_follows_it_gets_it_anew_once_it_is_thinned(tmp_path: Path) -> None:
    """So that its copy is thinned too."""
    folders.make(tmp_path, [0])
    writer = index(str(tmp_path / "times.jsonl"))
    reader = follow._Reader(str(tmp_path), [0], {})
    copy, times = b"", 0
    for start in range(0, 3000, 100):
        grow(writer, 100, start)
        while True:
            parts, data = reader.batch(1 << 20)
            begun, reader.begun = reader.begun, []
            if begun:
                assert [name for name, _ in begun] == ["times.jsonl"]
                copy, times = b"", times + 1
            for name, offset, length in parts:
                assert (name, offset) == ("times.jsonl", len(copy))
                copy += data[:length]
            if not reader.behind:
                break
        assert copy == (tmp_path / "times.jsonl").read_bytes()
    assert times > 2


@pytest.mark.parametrize("size", [40, record.SIZES_READ + 1])
def test_the_index_of_an_earlier_version_is_followed_unless_it_is_huge(tmp_path: Path, size: int) -> None:
    folders.make(tmp_path, [0])
    (tmp_path / "sizes.jsonl").write_bytes(b'{"t": 1.0, "s": {"rank-0.log": 1234567}}')
    os.truncate(tmp_path / "sizes.jsonl", size)
    parts, _ = follow._Reader(str(tmp_path), [0], {}).batch(1 << 20)
    assert [name for name, _, _ in parts] == ["sizes.jsonl"] * (size == 40)


@pytest.mark.few(1)
@pytest.mark.parametrize("there", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_what_is_in_its_way_costs_the_index(tmp_path: Path, there: Any) -> None:
    path = tmp_path / "times.jsonl"
    writer = index(str(path))
    there(str(path) + ".new")
    grow(writer, 20_000)
    assert path.stat().st_size < 2 * LIMIT
    there(tmp_path / "other")
    other = index(str(tmp_path / "other"))
    grow(other, 20_000)
    assert not other.flush()
    assert not other.trouble, "the disk has room"
    assert len(other._pending) <= PENDING


@pytest.mark.slow
def test_damage_in_it_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl"
    writer = index(str(path))
    grow(writer, 100)
    with path.open("ab") as file:
        file.write(b"\0" * 1000 + b"\n[[[[\n")
    grow(writer, 20_000, 100)
    assert last(path) == pytest.approx(1000.0 + 20_099 / 5)
    path.unlink()
    grow(writer, 5, 20_100)
    assert last(path) == pytest.approx(1000.0 + 20_104 / 5), "somebody removed it, and it is there again"


def test_nobody_waits_while_it_is_thinned(tmp_path: Path) -> None:
    path, begun, go = tmp_path / "times.jsonl", Event(), Event()

    def slowly(data: bytes) -> bytes:
        begun.set()
        assert go.wait(PATIENCE_S)
        return thinned(data, LIMIT)

    writer = Lasting(str(path), LIMIT, slowly)
    place = full = 0
    while not full:
        full = place and path.stat().st_size >= LIMIT
        writer.add(line(1000.0 + place / 5, {"rank-0.log": place}))
        place += 1
    assert begun.wait(PATIENCE_S)
    for more in range(place, place + 100):
        writer.add(line(1000.0 + more / 5, {"rank-0.log": more}))
    assert last(path) == pytest.approx(1000.0 + (place + 99) / 5), "what comes meanwhile is there at once"
    size = path.stat().st_size
    go.set()
    writer.wait()
    assert path.stat().st_size < size - LIMIT // 3
    found = [sizes["rank-0.log"] for _, sizes in ticks(path.read_bytes().split(b"\n"))]
    assert found[-101:] == list(range(place - 1, place + 100)), "and stays"


def test_it_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = index(str(tmp_path / "times.jsonl"))
    grow(writer, 1)
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("it was opened"))
    grow(writer, 100)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = index(str(tmp_path / "times.jsonl"))
    grow(writer, 10)
    write = os.write

    def full(number: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    grow(writer, 20_000, 10)
    assert writer.trouble == "No space left on device"
    assert not writer.flush()
    assert len(writer._pending) <= PENDING
    monkeypatch.setattr(os, "write", write)
    assert writer.flush()
    assert not writer.trouble
    assert last(tmp_path / "times.jsonl") == pytest.approx(1000.0 + 20_009 / 5)
