"""The journal while the disk is full: what waits is written once there is room, in order."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cockpit.base.events import Note
from cockpit.core.run.events import Event
from cockpit.engine.files import append
from cockpit.engine.records import journal
from cockpit.engine.records.journal import Journal
from cockpit.errors import CockpitError, NoRoom


class Disk:
    """What the journal is written to; refuses with an error, if there is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        monkeypatch.setattr(journal, "append", self.append)

    def append(self, number: int, data: bytes, size: int) -> None:
        if self.number:
            raise OSError(self.number, os.strerror(self.number))
        append(number, data, size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def noted(text: str) -> Event:
    return Event(1.0, "a", Note(text))


def texts(path: Path) -> list[str]:
    return [event.fact.text for event in Journal(path).read() if isinstance(event.fact, Note)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_what_waits_is_written_in_order(number: int, disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    kept = Journal(path)
    kept.write(noted("one"), waits=False)
    disk.number = number
    for text in ("two", "three"):
        kept.write(noted(text), waits=True)
        assert isinstance(kept.refused, NoRoom)
    assert texts(path) == ["one"]
    disk.number = 0
    kept.write(noted("four"), waits=True)
    assert kept.refused is None
    assert texts(path) == ["one", "two", "three", "four"]


def test_who_does_not_wait_is_refused_and_what_waited_still_does(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    kept = Journal(path)
    disk.number = errno.EDQUOT
    kept.write(noted("one"), waits=True)
    with pytest.raises(NoRoom, match="cannot write the journal: Disk quota exceeded"):
        kept.write(noted("two"), waits=False)
    disk.number = errno.EIO
    with pytest.raises(CockpitError, match="Input/output error"):
        kept.write(noted("three"), waits=True)
    disk.number = 0
    kept.close()
    assert texts(path) == ["one"]


def test_what_waits_is_bounded(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PENDING", 300)
    kept = Journal(tmp_path / "journal.jsonl")
    disk.number = errno.ENOSPC
    kept.write(noted("event 0"), waits=True)
    with pytest.raises(NoRoom):
        kept.write(noted("event 1" * 50), waits=True)


def test_a_line_that_a_crash_cut_off_stays_apart(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"t": 1.0, "e": "no')
    kept = Journal(path)
    disk.number = errno.ENOSPC
    kept.write(noted("one"), waits=True)
    disk.number = 0
    kept.write(noted("two"), waits=True)
    reader = Journal(path)
    assert [event.fact for event in reader.read()] == [Note("one"), Note("two")]
    assert reader.damaged == 1
