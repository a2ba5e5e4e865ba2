"""Following the logs of a run: fairly, without a pause while anything is left, with few files open."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.base.trail import Trail
from cockpit.node import following, safefiles
from cockpit.node.calls import Call
from cockpit.node.run.follow import BULK, _Reader, follow
from cockpit.node.run.status import _status
from tests.node import folders
from tests.waiting import until


def test_one_rank_far_behind_is_not_held_up_by_chatty_ones(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_bytes(b"x" * (3 * BULK))
    for rank in range(1, 8):
        (tmp_path / f"rank-{rank}.log").write_bytes(b"one line\n")
    folders.make(tmp_path, range(8))
    reader = _Reader(str(tmp_path), range(8), {})
    first, data = reader.batch(BULK)
    assert len(first) == 8
    got = len(data)
    batches = 1
    while reader.behind:
        got += len(reader.batch(BULK)[1])
        batches += 1
    assert got == 3 * BULK + 7 * len(b"one line\n")
    assert batches <= 5


def test_it_pauses_only_when_nothing_is_left(tmp_path: Path) -> None:
    for rank in range(8):
        (tmp_path / f"rank-{rank}.log").write_bytes(b"x" * (BULK if rank == 0 else 10))
    folders.make(tmp_path, range(8))
    got = 0
    calls: list[Call] = []

    class Watched(Call):
        def pause(self, seconds: float) -> bool:
            assert got == BULK + 70, "paused with bytes left"
            return False

    def send(header: dict[str, object], payload: bytes) -> None:
        nonlocal got
        got += len(payload)

    calls.append(Watched({"id": 1, "dir": str(tmp_path)}, b"", send))
    calls[0].add_credit(10 * BULK)
    follow(calls[0])
    assert got == BULK + 70


@pytest.fixture
def few_files() -> Iterator[None]:
    """This process may open no more than 64 files, whatever other tests have left open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 64, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_2048_logs_under_64_files(tmp_path: Path) -> None:
    ranks = range(2048)
    folders.make(tmp_path, ranks)
    want = {}
    for rank in ranks:
        want[record.rank_log(rank)] = text = b"line of rank %d\n" % rank
        (tmp_path / record.rank_log(rank)).write_bytes(text)
    assert followed(tmp_path, 2048) == want


def followed(folder: Path, files: int, **fields: Any) -> dict[str, bytes]:
    """Follow until so many logs have come; what came of each."""
    got: dict[str, bytes] = {}

    def send(header: dict[str, Any], payload: bytes) -> None:
        for name, _, length in header["item"]["parts"]:
            got[name], payload = got.get(name, b"") + payload[:length], payload[length:]
        if len(got) >= files:
            call.cancel()

    call = Call({"id": 1, "dir": str(folder), **fields}, b"", send)
    call.add_credit(64 << 20)
    follow(call)
    return got


def test_only_regular_files_of_own_ranks_are_followed(tmp_path: Path) -> None:
    folders.make(tmp_path, [0, 1, 2, 3])
    (tmp_path / "rank-0.log").write_bytes(b"mine\n")
    os.mkfifo(tmp_path / "rank-1.log")
    (tmp_path / "secret").write_bytes(b"somebody else's\n")
    (tmp_path / "rank-2.log").symlink_to(tmp_path / "secret")
    (tmp_path / "rank-3.log").mkdir()
    for name in ("rank-4.log", "rank-" + "1" * 240 + ".log", "rank-\N{ARABIC-INDIC DIGIT ONE}.log"):
        (tmp_path / name).write_bytes(b"no rank of this node\n")
    assert followed(tmp_path, 1) == {"rank-0.log": b"mine\n"}


class Reading:
    """What a cockpit has of rank 0's log, read on and on; what begins anew is kept apart."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "rank-0.log"
        folders.make(folder, [0])
        self.parts: list[bytes] = [b""]
        self.lost: list[int | None] = []
        self.reader = _Reader(str(folder), [0], {})

    def again(self) -> Reading:
        """Another agent goes on where the one before was."""
        trail = Trail()
        trail.add(self.parts[-1])
        offsets = {self.log.name: trail.size} if trail.size else {}
        self.reader = _Reader(str(self.folder), [0], offsets, dict.fromkeys(offsets, trail.mark))
        return self

    def go(self, looks: int = 3) -> list[bytes]:
        for _ in range(looks):
            parts, data = self.reader.batch(BULK)
            for name, end in self.reader.begun:
                assert name == self.log.name
                self.lost.append(None if end is None else end - len(self.parts[-1]))
                self.parts.append(b"")
            self.reader.begun = []
            for name, offset, length in parts:
                if name == self.log.name:
                    assert offset == len(self.parts[-1])
                    self.parts[-1] += data[:length]
                data = data[length:]
        return self.parts


OLD = b"".join(b"old line %04d\n" % number for number in range(200))
NEW = b"".join(b"NEW line %04d\n" % number for number in range(300))


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """One that has read the old lines."""
    found = Reading(tmp_path)
    found.log.write_bytes(OLD)
    assert found.go() == [OLD]
    return found


@pytest.mark.parametrize("afresh", [False, True])
@pytest.mark.parametrize(
    "now", [b"", NEW[:100], NEW[: len(OLD)], NEW], ids=["empty", "short", "alike", "grown"]
)
def test_a_file_that_was_cut_goes_on_from_its_start(reading: Reading, now: bytes, afresh: bool) -> None:
    reading.log.write_bytes(now)
    if afresh:
        reading.again()
    got = reading.go()
    with reading.log.open("ab") as file:
        file.write(b"more\n")
    reading.go()
    assert got == [OLD, now + b"more\n"]
    assert reading.lost == [None if afresh else 0]


def test_what_was_not_read_before_a_cut_is_counted(reading: Reading) -> None:
    with reading.log.open("ab") as file:
        file.write(b"x" * 1000)
    reading.reader.batch(0)
    assert reading.go()[-1:] == [OLD + b"x" * 1000]
    with reading.log.open("ab") as file:
        file.write(b"y" * 5000)
    assert reading.reader.batch(1000)[1] == b"y" * 1000
    assert reading.reader.begun == []
    reading.parts[-1] += b"y" * 1000
    reading.log.write_bytes(NEW)
    assert reading.go()[1:] == [NEW]
    assert reading.lost == [4000]


@pytest.mark.parametrize("seen", [False, True], ids=["at once", "empty for a while"])
@pytest.mark.parametrize("unread", [0, 5000])
@pytest.mark.parametrize("days", [1, 3])
def test_a_log_that_was_emptied_under_one_who_does_not_append_has_no_zeros(
    reading: Reading, seen: bool, unread: int, days: int
) -> None:
    """``: >``: the next line comes where the last one ended, and before it there is a hole."""
    with reading.log.open("r+b", buffering=0) as file:
        file.seek(0, os.SEEK_END)
        for day in range(days):
            file.write(b"x" * unread)
            os.truncate(reading.log, 0)
            if seen:
                reading.go()
            file.write(b"day %d\n" % day)
            got = reading.go()
            assert reading.reader.sizes == {reading.log.name: 6}
            got = reading.again().go()
            file.write(NEW)
            got = reading.go()
    assert got == [OLD, *(b"day %d\n" % day + NEW for day in range(days))]
    # What came between the last look and the end is known if the file was not seen empty.
    assert reading.lost == [0 if seen else unread] * days


@pytest.mark.parametrize("zeros", [0, 1, 4095, 4096, 4097, 12288, 50_001])
@pytest.mark.parametrize("text", [0, 1, 4095, 4096, 10_000])
def test_a_hole_ends_where_something_is_written(tmp_path: Path, zeros: int, text: int) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(zeros)
        file.seek(zeros)
        file.write(b"x" * text)
    extent = safefiles.extent(str(path))
    assert extent is not None
    assert text <= extent < text + 4096
    assert extent == text or zeros % 4096
    number = os.open(path, os.O_RDONLY)
    try:
        assert safefiles.hole(number, zeros + text) == zeros
    finally:
        os.close(number)


def test_what_was_cut_off_unread_is_said_to_be_missing(reading: Reading) -> None:
    with reading.log.open("ab") as file:
        file.write(NEW)
    reading.reader.batch(0)
    assert reading.reader.begun == []
    os.truncate(reading.log, len(OLD) + 100)
    assert reading.go() == [OLD + NEW[:100]]
    assert str(len(NEW) - 100) in reading.reader.trouble["rank-0.log"]
    with reading.log.open("ab") as file:
        file.write(b"more\n")
    assert reading.go() == [OLD + NEW[:100] + b"more\n"]
    assert reading.lost == []


def test_only_what_nobody_read_of_a_copied_log_is_missing(reading: Reading) -> None:
    """logrotate, copytruncate: the copy is read to its end first."""
    with reading.log.open("ab") as file:
        file.write(b"x" * 1000)
    (reading.folder / "rank-0.log.1").write_bytes(reading.log.read_bytes())
    reading.log.write_bytes(NEW)
    assert reading.go() == [OLD + b"x" * 1000, NEW]
    assert reading.lost == [0]


def test_a_log_that_was_renamed_goes_on_where_it_is_written(reading: Reading) -> None:
    """logrotate, create: its rank has it open, and writes on there."""
    with reading.log.open("ab", buffering=0) as file:
        child = subprocess.Popen(["sleep", "1000"], stdout=file)
        try:
            start = folders.start(0, child.pid, wrapper=child.pid, wrapper_ticks=folders.ticks(child.pid))
            (reading.folder / record.rank_start(0)).write_text(start)
            for rename in (lambda: reading.log.rename(reading.folder / "rank-0.log.1"), reading.log.touch):
                rename()
                file.write(b"more\n")
                reading.go()
            assert reading.again().go() == [OLD + b"more\nmore\n"]
            (reading.folder / "rank-0.log.1").unlink()
            file.write(b"unlinked\n")
            assert reading.go() == [OLD + b"more\nmore\nunlinked\n"]
            assert reading.again().go() == [OLD + b"more\nmore\nunlinked\n"]
        finally:
            child.kill()
            child.wait()
    reading.log.write_bytes(NEW)
    assert reading.go() == [OLD + b"more\nmore\nunlinked\n", NEW]


def test_what_a_rank_logs_to_a_file_itself_is_not_taken_for_its_log(reading: Reading) -> None:
    """Both have the same lines. The log is removed, and a new file takes its name."""
    with (reading.folder / "train.log").open("ab", buffering=0) as own:
        own.write(OLD)
        child = subprocess.Popen(["sleep", "1000"], stdout=own)
        try:
            start = folders.start(0, child.pid, wrapper=child.pid, wrapper_ticks=folders.ticks(child.pid))
            (reading.folder / record.rank_start(0)).write_text(start)
            reading.log.unlink()
            reading.log.write_bytes(NEW)
            own.write(b"more\n")
            assert reading.go() == [OLD, NEW]
        finally:
            child.kill()
            child.wait()


def test_a_log_that_is_gone_and_comes_back_is_one_of_its_own(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "AGAIN_S", 0.0)
    kept = reading.log.rename(reading.folder / "kept-aside")
    assert reading.go() == [OLD]
    assert reading.reader.trouble == {"rank-0.log": "is gone"}
    kept.rename(reading.log)
    assert reading.go() == [OLD]
    assert not reading.reader.trouble
    reading.log.unlink()
    reading.go()
    reading.log.write_bytes(NEW)
    assert reading.go() == [OLD, NEW]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_what_cannot_be_read_is_tried_again(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with reading.log.open("ab") as file:
        file.write(b"more\n")
    with monkeypatch.context() as patched:

        def fail(*words: object) -> bytes:
            raise OSError(number, os.strerror(number))

        patched.setattr(os, "pread", fail)
        assert reading.go() == [OLD]
        assert reading.reader.trouble == {"rank-0.log": f"cannot be read: {os.strerror(number)}"}
    assert reading.go() == [OLD + b"more\n"]
    assert (reading.lost, reading.reader.trouble) == ([], {})


def test_a_file_that_is_cut_all_the_time_is_not_made_to_be_read(reading: Reading) -> None:
    for number in range(100):
        reading.log.write_bytes(b"%d\n" % number * (1 + number % 2))
        reading.go()
    assert len(reading.lost) == following.OFTEN


def test_a_record_that_was_removed_is_no_folder_that_is_gone(reading: Reading) -> None:
    (reading.folder / record.EVENTS).unlink()
    assert reading.go() == [OLD]
    assert _status(str(reading.folder))["events"] == []


def test_how_much_went_while_nobody_looked_is_known_from_the_time_index(reading: Reading) -> None:
    index = [len(OLD) + 500, 0, 300, 7, 9]
    lines = [json.dumps({"t": 1.0, "s": {reading.log.name: size}}) + "\n" for size in (len(OLD), *index)]
    (reading.folder / record.SIZES).write_text("".join(lines) + "{\n[]\n")
    reading.log.write_bytes(b"123456789")
    trail = Trail()
    trail.add(OLD)
    offsets = {reading.log.name: len(OLD), record.SIZES: len(lines[0])}
    marks = {reading.log.name: trail.mark}
    reading.reader = _Reader(str(reading.folder), [0], offsets, marks)
    parts, _ = reading.reader.batch(BULK)
    assert reading.reader.begun == [(reading.log.name, len(OLD) + 800)]
    assert (reading.log.name, 0, 9) in parts


def test_a_record_that_began_anew_has_what_wrappers_wrote_told_again(reading: Reading) -> None:
    folder = reading.folder
    (folder / record.rank_start(0)).write_text(folders.start(0, os.getpid()))
    (folder / record.EVENTS).write_text('{"t": 1.0, "e": "rank_started", "rank": 0, "attempt": 0}\n' * 9)
    items: list[dict[str, Any]] = []

    def send(header: dict[str, Any], payload: bytes) -> None:
        items.append(header["item"])
        if len(items) == 1:
            (folder / record.EVENTS).write_text("")
        if items[-1].get("found"):
            call.cancel()

    call = Call({"id": 1, "dir": str(folder)}, b"", send)
    call.add_credit(BULK)
    follow(call)
    assert [event["e"] for event in items[-1]["found"]] == ["rank_started"]
    assert [name for item in items for name, _ in item["begun"]] == [record.EVENTS]


def _followed(path: Path, **facts: Any) -> following.Followed:
    found = following.Followed(following.Place(str(path)), **facts)
    found.look()
    found.read(1 << 20)
    return found


def test_a_file_of_like_name_and_start_that_was_left_alone_is_not_its_rest(tmp_path: Path) -> None:
    log, old = tmp_path / "train.log", tmp_path / "train.log.old"
    old.write_bytes(b"Starting\nyesterday\n")
    until(lambda: not log.write_bytes(b"Starting\n") or log.stat().st_ctime_ns > old.stat().st_ctime_ns)
    found = _followed(log)
    log.rename(tmp_path / "elsewhere")
    log.write_bytes(b"Another\n")
    assert found.look() == following.Begun(9)
    assert found.read(1 << 20) == b"Another\n"


@pytest.mark.root
def test_a_copy_of_anothers_is_not_its_rest(tmp_path: Path) -> None:
    log, forged = tmp_path / "train.log", tmp_path / "train.log.1"
    log.write_bytes(b"Starting\n")
    found = _followed(log)
    log.rename(tmp_path / "elsewhere")
    forged.write_bytes(b"Starting\nforged\n")
    os.chown(forged, 12345, 12345)
    found.look()
    assert found.read(1 << 20) == b""


def test_searching_a_huge_folder_takes_a_small_part_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    searched: list[float] = []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    def slowly(folder: str) -> list[os.DirEntry[str]]:
        searched.append(now[0])
        now[0] += 2.0
        return []

    monkeypatch.setattr(following, "time", Clock)
    (tmp_path / "train.log").write_bytes(b"Starting\n")
    found = _followed(tmp_path / "train.log")
    monkeypatch.setattr(os, "scandir", slowly)
    (tmp_path / "train.log").unlink()
    while now[0] < 2000:
        found.look()
        now[0] += 0.25
    assert 1 < len(searched) <= 10  # of a thousand seconds, a fiftieth


def test_who_writes_a_file_that_was_moved_away_is_not_asked_for_while_nothing_is_in_its_place(
    tmp_path: Path,
) -> None:
    log = tmp_path / "train.log"
    asked: list[str] = []

    def written() -> list[str]:
        asked.append("again")
        return []

    log.write_bytes(b"Starting\n")
    found = _followed(log, written=written)
    log.rename(tmp_path / "train.log.1")
    log.touch()
    for _ in range(100):
        found.look()
    assert len(asked) <= 1
    log.write_bytes(b"Another\n")
    assert found.look() == following.Begun(9)


def test_a_run_record_that_is_shorter_and_cannot_be_read_for_now_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.make(tmp_path, [0])
    events = tmp_path / record.EVENTS
    events.write_bytes(b"{}\n" * 4)
    reader = _Reader(str(tmp_path), [0], {})
    reader.batch(1000)
    events.write_bytes(b"{}\n")

    def fails(path: str, **_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    with monkeypatch.context() as patch:
        patch.setattr("cockpit.node.safefiles.opened", fails)
        assert reader.batch(1000) == ([], b"")
    assert not reader.begun
