"""Runs in one line each, and the index of them: true whatever happens to the file, or to a run meanwhile."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit import config, paths
from cockpit.core.run.brief import Brief
from cockpit.engine import briefs as made
from cockpit.engine.briefs import brief_here, briefs
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.index import Index
from tests.engine.knownruns import KnownRun, many

NOW = time.time()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of runs that were read, not taken from the index."""
    names: list[str] = []

    def here(folder: RunFolder) -> Brief:
        names.append(folder.name)
        return brief_here(folder)

    monkeypatch.setattr(made, "brief_here", here)
    return names


def taken(names: list[str]) -> list[str]:
    """Which were read since the last time."""
    told = sorted(names)
    names.clear()
    return told


def by_name() -> dict[str, Brief]:
    return {brief.run: brief for brief in briefs()}


@pytest.mark.parametrize(
    ("end", "word", "how"),
    [
        ("ended", "ended", "in 59 min 59 s, loss 2.8"),
        ("failed", "failed", "rank 0: torch.OutOfMemoryError: CUDA out of memory"),
        ("stopped", "stopped", "after 59 min 59 s"),
        ("lost", "failed", "rank 0 lost: rebooted"),
    ],
)
def test_in_one_line_how_it_ended(end: str, word: str, how: str) -> None:
    brief = brief_here(KnownRun("otter", NOW - 9000, end=end).write())
    assert brief.word == word
    assert brief.how(NOW).startswith(how)
    assert (brief.step, brief.total, brief.loss) == (200, 5000, 2.8)
    assert (brief.ranks, brief.nodes, brief.over) == (4, ("gpu01", "gpu02"), True)


def test_a_second_time_nothing_is_read(read: list[str]) -> None:
    many(5, NOW)
    first = by_name()
    assert taken(read) == [f"run-000{at}" for at in range(5)]
    assert by_name() == first
    assert taken(read) == []


def test_the_index_has_the_newest_first() -> None:
    many(5, NOW)
    list(briefs())
    assert [brief.run for brief in briefs()] == [f"run-000{at}" for at in (4, 3, 2, 1, 0)]


def damage(kind: str, path: Path) -> None:
    whole = path.read_bytes()
    content = {
        "cut off": whole[: len(whole) // 2],
        "no JSON": b"\0" * 100,
        "empty": b"",
        "of another version": whole.replace(b'"version": "', b'"version": "9', 1),
        "nonsense in a line": whole.replace(b'"word":"ended"', b'"word":["ended"]'),
        "a line too long": whole + b"x" * 100_000,
    }[kind]
    assert content != whole
    path.write_bytes(content)


@pytest.mark.parametrize(
    "kind",
    ["cut off", "no JSON", "empty", "of another version", "nonsense in a line", "a line too long"],
)
def test_a_damaged_index_is_made_again(kind: str, read: list[str]) -> None:
    many(5, NOW)
    first = by_name()
    damage(kind, paths.index())
    taken(read)
    assert by_name() == first
    taken(read)
    assert by_name() == first
    assert taken(read) == [], "what was missing has been written"


def test_without_an_index_the_newest_is_read_first(read: list[str]) -> None:
    for at, folder in enumerate(many(4, NOW)):
        os.utime(folder.path / "manifest.json", (NOW - 100 + at, NOW - 100 + at))
    assert [brief.run for brief in briefs()] == ["run-0003", "run-0002", "run-0001", "run-0000"]


def test_an_index_that_cannot_be_written_is_not_needed(read: list[str]) -> None:
    many(2, NOW)
    paths.index().mkdir()
    assert len(by_name()) == 2
    assert len(by_name()) == 2
    assert list(paths.state().glob(".runs*")) == [], "nothing is left of the attempt"


@pytest.mark.parametrize("file", ["journal.jsonl", "manifest.json", "pace.jsonl", "now.jsonl"])
def test_a_run_whose_files_have_changed_is_read_again(file: str, read: list[str]) -> None:
    many(3, NOW)
    list(briefs())
    taken(read)
    with (paths.runs() / "run-0001" / file).open("a") as opened:
        opened.write("\n")
    assert len(by_name()) == 3
    assert taken(read) == ["run-0001"]


def test_an_end_that_came_with_a_copy_of_a_node_s_record_is_seen(read: list[str]) -> None:
    folder = KnownRun("otter", NOW - 9000, end="", nodes=("gpu01",)).write()
    assert by_name()["otter"].word == "running"
    taken(read)
    with (folder.path / "spool" / "0000-gpu01" / "events.jsonl").open("a") as opened:
        for rank in (0, 1):
            opened.write(json.dumps({"t": NOW - 10, "e": "rank_exited", "rank": rank, "code": 0}) + "\n")
        opened.write(json.dumps({"t": NOW - 9, "e": "ended"}) + "\n")
    assert by_name()["otter"].word == "ended"
    assert taken(read) == ["otter"]


def test_removed_runs_leave_the_index(read: list[str]) -> None:
    folders = many(3, NOW)
    list(briefs())
    folders[1].discard()
    assert sorted(by_name()) == ["run-0000", "run-0002"]
    assert b"run-0001" not in paths.index().read_bytes()


def test_a_damaged_run_is_said_to_be_and_hides_no_other(read: list[str]) -> None:
    folders = many(3, NOW)
    (folders[1].path / "manifest.json").write_text("{")
    found = by_name()
    assert len(found) == 3
    assert found["run-0001"].word == "damaged"
    assert "is not JSON" in found["run-0001"].how(NOW)


def test_what_failed_is_said_in_the_language_of_now(read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    many(2, NOW)
    list(briefs())
    taken(read)
    settings = config.Config(lang="zh")
    monkeypatch.setattr(config, "load", lambda: settings)
    list(briefs())
    assert taken(read) == ["run-0000", "run-0001"]


def test_two_cockpits_at_once_leave_one_whole_index() -> None:
    many(6, NOW)
    reading: list[Iterator[Brief]] = [Index(brief_here).briefs() for _ in range(2)]
    for each in (*reading, *reading):
        next(each)
    KnownRun("late", NOW - 60).write()
    found = [sorted(brief.run for brief in each) for each in reading]
    assert [len(each) for each in found] == [4, 4]
    assert len(by_name()) == 7
    assert len(paths.index().read_bytes().splitlines()) == 8


def test_a_reader_that_stops_early_has_written_what_it_read(read: list[str]) -> None:
    many(3, NOW)
    first = briefs()
    next(first)
    first.close()  # type: ignore[attr-defined]
    taken(read)
    assert len(by_name()) == 3
    assert len(taken(read)) == 2


def test_a_run_whose_words_depend_on_the_time_is_read_each_time(read: list[str]) -> None:
    folder = KnownRun("otter", NOW - 30, end="", steps=0).write()
    for log in folder.path.glob("spool/*/rank-*.log"):
        log.write_text("")
    assert folder.lock(), "somebody watches it: what it prints would be here"
    try:
        assert by_name()["otter"].starting
        taken(read)
        by_name()
        assert taken(read) == ["otter"]
    finally:
        folder.close()


def test_more_than_an_index_has_of_a_run_is_read_each_time(read: list[str]) -> None:
    KnownRun("otter", NOW - 9000, program=["train.py", "x" * 100_000]).write()
    assert len(by_name()["otter"].program[1]) == 100_000
    taken(read)
    by_name()
    assert taken(read) == ["otter"]


def test_what_needs_a_person_comes_first_then_what_goes_on_then_the_newest() -> None:
    def brief(run: str, word: str, began: float, running: int = 0) -> Brief:
        return Brief(run=run, word=word, state=word, began=began, running=running, over=not running)

    found = [
        brief("old", "failed", 1),
        brief("new", "ended", 9),
        brief("live", "running", 2, 8),
        brief("stuck", "stalled", 1, 8),
        brief("dying", "failed", 3, 7),
    ]
    assert [each.run for each in sorted(found, key=lambda each: each.order)] == [
        *("dying", "stuck", "live", "new", "old"),
    ]


@pytest.mark.usefixtures("utc")
def test_its_pace_and_when_it_will_be_through() -> None:
    live = Brief(
        run="otter", word="running", state="running", began=0.0, running=8, ranks=8, step=100, total=500,
        step_t=86400.0, step_s=0.37, loss=2.5,
    )  # fmt: skip
    assert live.how(86410.0) == "0.37 s/step, eta 00:02, loss 2.5"
    assert live.how(90000.0) == "loss 2.5", "that pace is not the one of now"
