"""The report of a run: its numbers are those of its files, the essential is first, secrets are not in it."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cockpit.base.events import NodeLost, StopAsked
from cockpit.cli.main import main
from cockpit.core.pace.phases import NAMES
from cockpit.core.report.model import RunReport
from cockpit.core.report.page import as_page
from cockpit.core.report.sieve import Sieve
from cockpit.core.report.words import MD_LINES, as_lines, as_markdown
from cockpit.core.run.events import Event
from cockpit.engine.launch.code import DIFF
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.gather import report_of
from cockpit.engine.report.numbers import numbers
from cockpit.engine.run.series import RunSeries
from cockpit.errors import Exit
from tests.cli.schemas import fits
from tests.report.made import BEGAN, HOSTILE, NODES, RUN, STEPS, TOKEN, TREE, made


def report(folder: RunFolder) -> RunReport:
    return asyncio.run(report_of(folder))


def test_how_it_ended_and_why_is_what_explain_says(capsys: pytest.CaptureFixture[str]) -> None:
    folder = made()
    found = report(folder)
    assert main(["explain", folder.name, "--json"]) == Exit.RANK_FAILED
    told = json.loads(capsys.readouterr().out)
    assert found.state == "failed: rank 3 exited 1"
    assert found.code == Exit.RANK_FAILED
    assert (found.why.how, found.why.what, found.why.certainty) == (
        told["first"]["how"],
        told["first"]["what"],
        told["first"]["certainty"],
    )
    assert found.why.ranks == (3,)
    assert found.why.cause == told["cause"]["what"]
    assert found.why.lines[0].file == "spool/0001-gpu02/rank-3.log"


def test_numbers_are_those_of_the_files() -> None:
    """Counted anew from the bytes of the log and of its time index."""
    folder = made()
    found = report(folder)
    spool = folder.path / "spool" / "0000-gpu01"
    log = (spool / "rank-0.log").read_text()
    losses = [float(value) for value in re.findall(r"loss (\S+)", log)]
    ends = [json.loads(line)["t"] for line in (spool / "times.jsonl").read_text().splitlines()]
    curve = next(each for each in found.curves if each.name == "loss")
    assert [value for _, value in curve.points] == losses
    assert [step for step, _ in curve.points] == [float(step) for step in re.findall(r"step (\d+)", log)]
    assert (curve.first, curve.last, curve.least, curve.most) == (
        losses[0],
        losses[-1],
        min(losses),
        max(losses),
    )
    assert curve.most_at == losses.index(max(losses)) + 1
    steps = [json.loads(line) for line in (folder.path / "pace.jsonl").read_text().splitlines()]
    assert found.course.mean_s == pytest.approx(sum(step[5] for step in steps) / len(steps))
    for place, name in enumerate(NAMES):
        took = sum(step[5] * step[-1][place] / 1000 for step in steps) / len(steps)
        assert found.course.phases[name] == pytest.approx(took, rel=1e-3)
    assert found.course.last == len(losses)
    assert found.course.begun_s == pytest.approx(ends[0] - BEGAN)
    assert found.took_s == pytest.approx(ends[-1] - BEGAN + 1)


def test_how_the_others_ended_is_said_in_each_form() -> None:
    found = report(made())
    for lines in (list(as_lines(found)), as_markdown(found), as_page(found).splitlines()):
        assert any("others: ranks 0-2 exited 0" in line for line in lines)
        assert sum("failed first: rank 3 exited 1" in line for line in lines) == 1


def test_a_word_that_anybody_may_say_is_no_secret() -> None:
    """An option's value may be an ordinary word: it is cut there alone."""
    sieve = Sieve()
    assert sieve.words(["--api-token", "default", "--hub-token", "9f8e7d6c5b4a"])[1::2] == ("(secret)",) * 2
    assert sieve.text("the default is 9f8e7d6c5b4a") == "the default is (secret)"
    assert sieve.taken == 3


def test_where_nodes_differ_comes_first() -> None:
    first, *others = report(made()).what.versions
    assert (first.name, first.differs) == ("torch", True)
    assert [nodes for _, nodes in first.said] == [("gpu01",), ("gpu02",)]
    assert {one.name for one in others} == {"Python", "all packages", "numpy"}
    assert not any(one.differs for one in others)


def test_secrets_are_taken_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one without a form, which this shell knows: a rank may have printed it."""
    monkeypatch.setenv("MY_SECRET", "correct-horse-battery")
    folder = made(hostile="correct-horse-battery")
    found = report(folder)
    text = json.dumps(found.as_json()) + "\n".join([*as_lines(found), *as_markdown(found)])
    assert "correct-horse" not in text
    assert TOKEN not in text
    assert found.taken >= 3
    assert f"{found.taken} secrets were taken out" in text


def test_all_output_of_ranks_is_harmless_for_a_terminal() -> None:
    assert all(line.isprintable() or not line for line in as_lines(report(made())))


def test_what_nodes_say_is_harmless_in_files_too() -> None:
    """A reason for its end comes from a node."""
    folder = made(over=False)
    folder.write(Event(BEGAN + 50, "gpu02", NodeLost("its \x1b]0;evil\x07 disk is \u202e gone")))
    found = report(folder)
    folder.close()
    assert any(host.how.startswith("lost: its") for host in found.what.hosts)
    assert "\x1b" not in "\n".join(as_markdown(found)) + as_page(found)
    assert "\u202e" not in "\n".join(as_markdown(found)) + as_page(found)


def test_markdown_is_short_and_begins_with_the_end() -> None:
    found = report(made())
    lines = as_markdown(found)
    assert lines[0].startswith(f"# {RUN}: failed: rank 3 exited 1")
    assert len(lines) <= MD_LINES
    whole = replace(found, tails=found.tails * 9, findings=found.findings * 9, events=found.events * 99)
    assert len(as_markdown(whole)) <= MD_LINES
    quoted = [line for line in lines if "<script" in line]
    assert all(line.startswith("    ") or "\\<script" in line for line in quoted)


def test_of_a_run_that_goes_on() -> None:
    """No node is asked, and nothing is said of an end."""
    found = report(made(over=False))
    assert (found.code, found.ended, found.why.how) == (None, None, "")
    assert found.as_json()["why"] is None
    assert found.course.steps == STEPS
    assert found.course.exact
    assert found.state == "running when last seen"
    assert any("not watched since 20" in line for line in as_lines(found))
    assert found.seen is not None
    assert found.took_s == found.seen - found.began
    folder = RunFolder.find(RUN)
    assert folder.lock()
    watched = report(folder)
    folder.close()
    assert (watched.state, watched.seen) == ("running", None)
    assert any("still running when this was made" in line for line in as_lines(watched))


def test_a_loss_that_is_no_number_is_counted() -> None:
    folder = made(over=False)
    log = folder.path / "spool" / "0000-gpu01" / "rank-0.log"
    log.write_bytes(log.read_bytes().replace(b"loss 2.3000", b"loss nan"))
    curve = next(each for each in report(folder).curves if each.name == "loss")
    assert (curve.odd, curve.odd_from) == (1, 30)
    assert json.loads(json.dumps(curve.as_json(), allow_nan=False))


def test_json_fits_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (made(), made("still-going", over=False)):
        assert main(["report", folder.name, "--json"]) == Exit.OK
        fits("report", json.loads(capsys.readouterr().out))


def test_events_are_in_order_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.engine.report.gather.EVENTS", 2)
    found = report(made())
    assert len(found.events) == 2
    assert found.left_out > 0
    assert [moment.at for moment in found.events] == sorted(moment.at for moment in found.events)


@pytest.mark.parametrize("file", ["journal.jsonl", "pace.jsonl", "spool/0001-gpu02/events.jsonl"])
def test_damage_costs_what_is_damaged(file: str) -> None:
    folder = made()
    with open(folder.path / file, "ab") as target:
        target.write(b'{"t": 1, "e": "ran\xff\n[1,2\n\x00\n')
    found = report(folder)
    assert found.state == "failed: rank 3 exited 1"
    assert {host.name for host in found.what.hosts} == set(NODES)


def test_the_working_tree_is_named_everywhere_and_shown_where_there_is_room() -> None:
    folder = made()
    assert report(folder).as_json()["diff"] == []
    assert not any("working tree" in line.lower() for line in as_page(report(folder)).splitlines())
    (folder.path / DIFF).write_text(TREE)
    found = report(folder)
    assert found.as_json()["diff"] == TREE.splitlines()
    named = "working tree: train.py +2 -1; --html and --json have the diff"
    assert sum(named in line for line in as_lines(found)) == 1
    assert sum(named in line for line in as_markdown(found)) == 1
    page = as_page(found)
    folded = "<details><summary>Working tree <span class='dim'>train.py +2 -1</span></summary><pre>diff --git"
    assert folded in page
    assert "\n+    lr = 0.2\n" in page


def test_a_working_tree_of_anybody_is_text_without_secrets_and_bounded() -> None:
    folder = made()
    folded = "".join(f"+{number} {HOSTILE} {'x' * 900}\n" for number in range(2000))
    key = f"+-----BEGIN PRIVATE KEY-----\n+{'MIIEvQIBADANBgkqh' * 3}\n+-----END PRIVATE KEY-----\n"
    raw = f"{TREE}+api_key = '{TOKEN}'\n{key}{folded}".encode("utf-8", "surrogateescape")
    (folder.path / DIFF).write_bytes(raw + b"\xff\x1b]0;owned\x07\r\n")
    found = report(folder)
    assert found.taken >= report(made("without")).taken + 2
    assert TOKEN not in "\n".join(found.what.diff)
    assert "MIIEv" not in "\n".join(found.what.diff)
    assert sum(map(len, found.what.diff)) < 270_000
    assert re.fullmatch(r"\.\.\. cut: 1,\d{3} more lines", found.what.diff[-1])
    page = as_page(found)
    assert len(page.encode()) < 2_000_000
    assert "<script" not in page
    for line in as_lines(found):
        assert line.isprintable()
    assert len(as_markdown(found)) <= MD_LINES


def test_a_stop_is_one_event_although_clocks_differ() -> None:
    """Of the policy's stop each node has a line; one of the clocks is some milliseconds behind."""
    folder = made()
    at, why = BEGAN + 101, "rank 3 exited 1"
    folder.write(Event(at, "", StopAsked(why, "the failure policy")))
    folder.close()
    for index, entry in enumerate(folder.manifest.nodes):
        file = folder.spool_dir(entry) / "events.jsonl"
        *lines, last = file.read_text().splitlines()
        stop = {
            "t": at - 0.004 + 0.006 * index,
            "e": "stop_requested",
            "by": "the failure policy",
            "reason": why,
        }
        file.write_text("\n".join([*lines, json.dumps(stop), last]) + "\n")
    told = [
        moment
        for moment in report(RunFolder(folder.path)).events
        if why in moment.text and "stop" in moment.text
    ]
    assert [moment.text for moment in told] == [f"stopping: {why}"]
    assert told[0].at == at


# Runs of a second or two that only logs tell of


def short(*ticks: tuple[float, int]) -> RunReport:
    """That of a run whose ranks noted nothing.

    :param ticks: of the time index: seconds after its start, and so many steps that the log had
    """
    folder = made()
    (folder.path / "pace.jsonl").unlink()
    spool = folder.path / "spool" / "0000-gpu01"
    lines = (spool / "rank-0.log").read_bytes().splitlines(keepends=True)
    (spool / "rank-0.log").write_bytes(b"".join(lines[: ticks[-1][1]]))
    rows = [{"t": BEGAN + at, "s": {"rank-0.log": sum(map(len, lines[:many]))}} for at, many in ticks]
    (spool / "times.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for file in folder.path.glob("spool/*/events.jsonl"):
        told = [json.loads(line) for line in file.read_text().splitlines()]
        late = [row for row in told if row["t"] > BEGAN + 2]
        rows = [row | {"t": BEGAN + 4.0 if row in late else row["t"]} for row in told]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return report(RunFolder(folder.path))


def test_a_short_run_that_only_logs_tell_of_has_a_pace_and_a_wall_time() -> None:
    """Steps 4, 8 and 12 have times, so eight steps took 0.8 s; what is before step 4 is its start."""
    found = short((2.6, 4), (3.0, 8), (3.4, 12))
    assert (found.course.steps, found.course.exact) == (12, False)
    assert found.course.mean_s == pytest.approx(0.1)
    assert found.wall is not None
    assert found.wall.parts["steps"] == pytest.approx(0.8)
    assert sum(found.wall.parts.values()) == pytest.approx(found.wall.wall_s) == pytest.approx(found.took_s)
    assert "steps" in found.wall.estimated
    assert any("12 steps, 1 to 12, ~0.1 s a step" in line for line in as_lines(found))


def row(step: int, **phases: float | None) -> dict[str, Any]:
    """A step of 1 s."""
    told = {"step": step, "log_step": None, "t": BEGAN + step, "steps": 1, "restarts": 0, "estimated": False}
    rest = dict.fromkeys(("loss", "work_s", "tokens_s", "samples_s", *(f"{name}_s" for name in NAMES)))
    return {**rest, **told, "step_s": 1.0, **{f"{name}_s": took for name, took in phases.items()}}


def test_phases_are_those_of_steps_whose_wait_is_known() -> None:
    unknown = [row(step, forward=0.2, backward=0.8) for step in range(1, 7)]
    known = [row(step, forward=0.2, backward=0.3, wait=0.5) for step in range(7, 10)]

    def phases(rows: list[dict[str, Any]]) -> dict[str, float]:
        course, _ = numbers(cast(RunSeries, SimpleNamespace(rows=lambda: rows)), BEGAN)
        return {name: round(took, 6) for name, took in course.phases.items()}

    assert phases(unknown) == {"forward": 0.2, "backward": 0.8}
    assert phases(unknown + known) == {"forward": 0.2, "backward": 0.3, "wait": 0.5}


def test_why_a_run_has_no_pace_is_said() -> None:
    found = short((3.0, 12))
    assert (found.course.mean_s, found.wall) == (None, None)
    for lines in (list(as_lines(found)), as_markdown(found), as_page(found).splitlines()):
        assert any("how long a step takes is not known" in line for line in lines)
        assert any("wall time 4 s: not split" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--json", "--md"], "--json and --md would both print: give --md a FILE"),
        (["--html", ""], "--html: no file name"),
        (["--md", ""], "--md: no file name"),
        (["--bundle", ""], "--bundle: no file name"),
    ],
)
def test_words_that_would_print_something_else(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["report", "otter", *words])
    assert says in capsys.readouterr().err
