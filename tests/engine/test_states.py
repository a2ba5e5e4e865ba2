"""The journal over months: what holds, comes and goes costs little there, and is known as it is now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cockpit.base.events import ClockMeasured, Fact, Filling, LinkChanged, Note, Notice
from cockpit.core.run.events import Event
from cockpit.core.run.notices.words import findings
from cockpit.engine.records import states
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.manifest import Manifest, NodeEntry

HELD = Notice("disk", "gpu01", "the disk of gpu01 is nearly full", 1000.0, certainty="sure", nodes=("gpu01",))


@pytest.fixture
def folder() -> RunFolder:
    entries = [NodeEntry("gpu01", "/none/a", [0])]
    return RunFolder.create(Manifest("run", 0.0, entries, "command", ["true"], "/"))


def size(folder: RunFolder) -> int:
    return sum((folder.path / name).stat().st_size for name in ("journal.jsonl", states.FILE))


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written when the folder is closed: a month is written here in a second."""
    monkeypatch.setattr(states, "EVERY_S", 1e9)


def weeks(folder: RunFolder, facts: list[Fact], *, minutes: int = 4 * 7 * 24 * 60) -> float:
    """Write the same news each minute; until when that was."""
    until = 0.0
    for minute in range(minutes):
        until = 1000.0 + 60.0 * minute
        for fact in facts:
            folder.write(Event(until, "gpu01", fact))
    return until


def test_what_holds_for_weeks_takes_kilobytes_and_is_known_to_hold(folder: RunFolder) -> None:
    until = weeks(folder, [HELD, Filling("", 5, 10, 9e9), ClockMeasured(0.5, 0.1)], minutes=10_000)
    until = weeks(folder, [HELD, Filling("", 5, 10, 9e9), ClockMeasured(0.75, 0.1)])
    folder.close()
    assert size(folder) < 200_000
    (known,) = list_runs()
    model = known.model()
    model.apply(Event(until, "gpu01", LinkChanged("ok")))
    assert model.nodes["gpu01"].offset_s == 0.75
    assert model.notices["disk", "gpu01"] == (until, HELD)
    assert model.nodes["gpu01"].filling[""][0] == until
    assert {each.id for each in findings(model, "run", until + 60)} == {"disk", "memory_filling"}
    folder.write(Event(until + 60, "gpu01", replace(HELD, what="", over=True)))
    assert not known.model().notices, "what has ended has not begun again"


def test_a_link_that_flaps_for_weeks(folder: RunFolder) -> None:
    flaps: list[Fact] = [LinkChanged("stale", "connection lost"), LinkChanged("ok"), ClockMeasured(0.1, 0.1)]
    flaps += [HELD, replace(HELD, over=True)]
    weeks(folder, flaps * 2)
    folder.write(Event(9e6, "gpu01", LinkChanged("stale", "the last word")))
    folder.close()
    assert size(folder) < 200_000
    (known,) = list_runs()
    assert known.model().nodes["gpu01"].link_why == "the last word"
    told = [event.fact.state for event in known.journal() if isinstance(event.fact, LinkChanged)]
    assert told[:4] == ["stale", "ok", "stale", "ok"]


def test_whoever_writes_next_keeps_what_the_file_says(folder: RunFolder) -> None:
    until = weeks(folder, [HELD], minutes=100)
    folder.close()
    (second,) = list_runs()
    for _ in range(40):
        second.write(Event(until, "gpu01", ClockMeasured(0.5, 0.1)))
    second.close()
    assert list_runs()[0].model().notices["disk", "gpu01"] == (until, HELD)


def test_damage_costs_the_line(folder: RunFolder) -> None:
    until = weeks(folder, [HELD], minutes=101)
    folder.close()
    path = folder.path / states.FILE
    whole = path.read_bytes()
    lines = [
        b"[]",
        b'{"t": 1, "e": "notice"}',
        b"\xff\0",
        b'{"t": 2e9, "e": "note", "text": "x", "node": ""}',
    ]
    path.write_bytes(b"\n".join([*lines, whole]))
    model = folder.model()
    assert model.notices["disk", "gpu01"] == (until, HELD)
    assert not any(isinstance(event.fact, Note) for event in folder.journal())
    path.unlink()
    path.mkdir()
    folder.write(Event(until + 1, "gpu01", HELD))
    assert folder.model().notices["disk", "gpu01"][0] < until, "the journal is as true without it"
