"""Runs that were started alike are found by the index: what was recorded of them is not read."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cockpit.core.compare.command import same_command
from cockpit.engine.alike import alike, last_good, same_program
from cockpit.engine.briefs import briefs
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.wall import MEMBERS, facts_of, lineage_of
from tests.engine.knownruns import KnownRun

NOW = time.time()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs whose whole journal was read."""
    names: list[str] = []
    model = RunFolder.model

    def noted(folder: RunFolder) -> Any:
        names.append(folder.name)
        return model(folder)

    monkeypatch.setattr(RunFolder, "model", noted)
    return names


def runs(*ends: str, **more: Any) -> list[RunFolder]:
    """Runs of one command, one after the other, the oldest first; what their ends are."""
    return [
        KnownRun(f"{at:03d}", NOW - 4000 * (len(ends) - at), end=end, **more).write()
        for at, end in enumerate(ends)
    ]


def series(folder: RunFolder) -> list[str]:
    facts = facts_of(folder, folder.model(), [], None, exact=False)
    found = lineage_of(folder, facts, "failed")
    return [] if found is None else [one.run for one in found.members]


def test_a_series_reads_its_own_runs_alone(read: list[str]) -> None:
    folders = runs(*["ended"] * 40, "failed", "failed", "failed")
    list(briefs())
    read.clear()
    assert series(folders[-1]) == ["040", "041", "042"]
    assert sorted(read) == ["040", "041", "042"]


def test_of_a_long_series_some_runs_are_looked_at(read: list[str]) -> None:
    folders = runs(*["failed"] * (2 * MEMBERS))
    list(briefs())
    for at, first in ((-1, MEMBERS), (MEMBERS, MEMBERS), (MEMBERS - 3, 0), (0, 0)):
        read.clear()
        found = series(folders[at])
        assert found[0] == f"{first:03d}"
        assert folders[at].name in found
        assert sorted(read) == found
    facts = facts_of(folders[-1], folders[-1].model(), [], None, exact=False)
    lineage = lineage_of(folders[-1], facts, "failed")
    assert lineage is not None
    assert lineage.left_out == MEMBERS


def test_without_an_index_only_what_was_started_alike_is_read(read: list[str]) -> None:
    for at in range(5):
        KnownRun(f"other-{at}", NOW - 9000 - at, program=("eval.py",)).write()
    folders = runs("ended", "failed")
    good = last_good(folders[1])
    assert good is not None
    assert good.name == "000"
    assert set(read) == {"000", "001"}
    read.clear()
    assert last_good(folders[1]) is not None
    assert read == [], "they are in the index"
    assert len(list(briefs())) == 7


def test_a_run_that_goes_on_is_read_when_its_files_have_changed(read: list[str]) -> None:
    folders = runs("ended", "failed", "")
    list(briefs())
    with (folders[2].path / "journal.jsonl").open("a") as file:
        file.write("\n")
    read.clear()
    assert {one.run for one in alike(folders[1], same_program)} == {"000", "001", "002"}
    assert read == ["002"]


def test_a_damaged_run_hides_no_other() -> None:
    folders = runs("ended", "ended", "failed")
    (folders[1].path / "manifest.json").write_text("{")
    good = last_good(folders[2])
    assert good is not None
    assert good.name == "000"


@pytest.mark.parametrize("end", ["failed", "stopped", "lost", ""])
def test_what_did_not_end_well_is_no_good_run(end: str) -> None:
    assert last_good(runs(end, "failed")[1]) is None


def test_a_good_run_is_found_however_many_failed_since() -> None:
    good = last_good(runs("ended", *["failed"] * 30)[-1])
    assert good is not None
    assert good.name == "000"


def test_a_renamed_folder_is_called_as_it_is() -> None:
    folders = runs("ended", "failed")
    folders[0].path.rename(folders[0].path.with_name("renamed"))
    good = last_good(folders[1])
    assert good is not None
    assert good.manifest.program == folders[1].manifest.program
    assert good.name == "renamed"


@pytest.mark.parametrize(
    ("change", "by_program", "by_command"),
    [
        ({"program": ("train.py", "--config", "other.json")}, False, True),
        ({"program": ("eval.py", "--config", "c4-1b.json")}, False, False),
        ({"more": {"cwd": "/elsewhere"}}, False, False),
        ({"more": {"launcher": "torchrun"}}, True, False),
    ],
)
def test_what_counts_as_alike(change: dict[str, Any], by_program: bool, by_command: bool) -> None:
    folder = runs("failed")[0]
    KnownRun("other", NOW - 9000, **change).write()
    for same, expected in ((same_program, by_program), (same_command, by_command)):
        assert ("other" in {one.run for one in alike(folder, same)}) is expected


def test_other_variables_are_another_series() -> None:
    folders = [
        KnownRun(name, NOW - 9000 + at, lasted_s=5, end="failed", more={"plans": [{"env": env}]}).write()
        for at, (name, env) in enumerate(
            [
                ("one", {"MASTER_PORT": "29500", "NCCL_DEBUG": "INFO"}),
                ("two", {"MASTER_PORT": "29501", "NCCL_DEBUG": "INFO"}),
                ("three", {"MASTER_PORT": "29501", "NCCL_DEBUG": "WARN"}),
            ]
        )
    ]
    told = {one.run: one.settings for one in alike(folders[0], same_program)}
    assert told["one"] == told["two"] != told["three"]
    assert all(len(each) == 16 for each in told.values())
