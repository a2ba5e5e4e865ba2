"""Which runs are one series, and what the report of one of them says of it."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from cockpit.core.report import words
from cockpit.core.report.lineage import resumed, series
from cockpit.core.report.page import as_page
from cockpit.core.run.brief import Brief
from cockpit.engine.launch.relaunch import AGAIN
from cockpit.engine.launch.start import again_of, job_restart
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.gather import report_of
from tests.cli.schemas import fits
from tests.report.made import BEGAN, STEP_S, STEPS, made


def run(name: str, began: float, ended: float | None, **changes: Any) -> Brief:
    usual: dict[str, Any] = {"program": ("train.py",), "cwd": "/home/ada", "settings": "4a"}
    return Brief(run=name, began=began, ended=ended, word="failed", state="failed", **{**usual, **changes})


def names(runs: list[Brief], of: str) -> list[str]:
    return [one.run for one in series(runs, of)]


def test_a_run_that_failed_and_the_same_again() -> None:
    runs = [run("a", 0, 10), run("b", 20, 30), run("c", 40, None)]
    for each in "abc":
        assert names(runs, each) == ["a", "b", "c"]
    first, *rest = series(runs, "b")
    assert (first.how, first.sure) == ("", True)
    assert {(one.how, one.sure) for one in rest} == {("same command, folder and settings", False)}


def test_a_run_that_a_person_started_again() -> None:
    runs = [run("a", 0, 10), run("b", 20, 30, settings="8b", again="a")]
    assert series(runs, "a")[1] == ("b", "run again", True)
    assert names([run("a", 0, 10, well=True), runs[1]], "b") == ["b"]
    assert names([run("a", 0, None), runs[1]], "b") == ["b"]
    assert names([run("a", 0, 10), run("b", 20, 30, again="c", settings="")], "b") == ["b"]


@pytest.mark.parametrize(("said", "again"), [("", ""), ("a-run", "a-run"), ("../x", ""), ("x" * 65, "")])
def test_which_run_it_is_again_is_said_by_a_variable(
    said: str, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AGAIN, said)
    assert again_of() == again


@pytest.mark.parametrize(
    "second",
    [
        run("b", 20, 30, program=("other.py",)),
        run("b", 20, 30, cwd="/tmp"),
        run("b", 20, 30, settings="8b"),
        run("b", 5, 30),
        run("b", 20, 30, job="7", program=("other.py",)),
    ],
)
def test_what_is_another_series(second: Brief) -> None:
    assert names([run("a", 0, 10), second], "b") == ["b"]
    assert names([run("a", 0, 10), second], "a") == ["a"]


def test_what_ended_well_is_not_continued() -> None:
    assert names([run("a", 0, 10, well=True), run("b", 20, 30)], "b") == ["b"]
    runs = [run("a", 0, 10, well=True, job="7"), run("b", 20, 30, job="7")]
    assert names(runs, "b") == ["b"]


def test_a_requeue_is_known_by_job_and_restart_even_without_an_end() -> None:
    runs = [run("a", 0, None, job="7"), run("b", 20, 30, job="7", restart=1, settings="8b")]
    (_, later) = series(runs, "a")
    assert later == ("b", "SLURM job 7, restart 1", True)
    assert names([run("a", 0, None, job="7"), run("b", 20, 30, job="8", restart=1)], "b") == ["b"]


def test_each_run_is_continued_by_one_alone() -> None:
    runs = [run("a", 0, 10), run("b", 20, 30), run("c", 25, 40)]  # b and c at once
    assert names(runs, "b") == ["a", "b"]
    assert names(runs, "c") == ["c"]


def test_where_a_run_goes_on() -> None:
    assert resumed([(1, 10), (6, 20)], 0) == 6
    assert resumed([(1, 10), (11, 20)], 0) == 11
    assert resumed([(1, 10), (30, 40)], 0) is None
    assert resumed([(1, 10), (None, None)], 0) is None
    assert resumed([(1, 10)], 0) is None


def test_how_often_slurm_has_started_a_job_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert job_restart() == 0
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert job_restart() == 2
    monkeypatch.setenv("SLURM_RESTART_COUNT", "x")
    assert job_restart() == 0


def later(name: str, after_s: float, first: int) -> RunFolder:
    """The same run again, which begins with another step."""
    folder = made(name)
    manifest = replace(folder.manifest, created=BEGAN + after_s)
    (folder.path / "manifest.json").write_text(json.dumps(asdict(manifest)))
    for path in folder.path.rglob("*.jsonl"):
        path.write_text(
            "".join(_moved(line, after_s, first) + "\n" for line in path.read_text().splitlines())
        )
    return RunFolder(folder.path)


def _moved(line: str, after_s: float, first: int) -> str:
    told = json.loads(line)
    if isinstance(told, dict):
        return json.dumps({**told, "t": told["t"] + after_s} if "t" in told else told)
    return json.dumps([told[0], told[1] + first - 1, told[2] + after_s, *told[3:]])


def test_a_report_of_a_series() -> None:
    """The second run begins with step 31 of 40, 60 s after the end of the first."""
    made("one")
    second = later("two", 200.0, 31)
    report = asyncio.run(report_of(RunFolder(second.path)))
    assert report.series is not None
    assert [one.run for one in report.series.members] == ["one", "two"]
    assert not report.series.sure
    wall = report.series.wall
    assert wall is not None
    # Once more, from the files alone.
    spans = {name: _spans(second.path.parent / name) for name in ("one", "two")}
    lost = sum(took for step, took in spans["one"] if step >= 31)
    kept = sum(took for step, took in spans["one"] if step < 31) + sum(took for _, took in spans["two"])
    assert math.isclose(sum(wall.parts.values()), wall.wall_s, abs_tol=1e-6)
    assert wall.lost_steps is None  # of the second run no checkpoint is known
    assert report.series.members[0].wall is not None
    assert report.series.members[0].wall.lost_steps == 10
    assert math.isclose(wall.parts["lost"], lost, abs_tol=2.5)
    assert math.isclose(wall.parts["steps"], kept, abs_tol=5)
    ended = BEGAN + 5 + STEPS * STEP_S + 1
    assert math.isclose(wall.parts["between"], BEGAN + 200 - ended, abs_tol=1e-6)
    assert math.isclose(wall.wall_s, 200 + ended - BEGAN, abs_tol=1e-6)
    text = "\n".join(words.as_lines(report))
    assert "one: failed" in text
    assert "~ same command, folder and settings" in text
    assert "together: wall time" in text
    assert "**Series**" in words.as_markdown(report)
    assert "<h2>Series</h2>" in as_page(report)
    fits("report", json.loads(json.dumps(report.as_json())))


def _spans(folder: Path) -> list[tuple[int, float]]:
    found = [json.loads(line) for line in (folder / "pace.jsonl").read_text().splitlines()]
    return [(one[1], STEP_S) for one in found]


def test_the_wall_time_of_one_run_adds_up() -> None:
    report = asyncio.run(report_of(made()))
    assert report.series is None
    wall = report.wall
    assert wall is not None
    assert math.isclose(wall.wall_s, report.took_s)
    assert math.isclose(sum(wall.parts.values()), wall.wall_s, abs_tol=1e-6)
    assert any(line.strip().startswith("wall time") for line in words.as_lines(report))


def test_a_run_that_goes_on_is_not_said_to_have_ended() -> None:
    report = asyncio.run(report_of(made(over=False)))
    assert words.ending_title(report) == "How it is"
    assert "How it ended" not in as_page(report)
    report = asyncio.run(report_of(made("over")))
    assert "<h2>How it ended</h2>" in as_page(report)
