"""``cockpit profile`` as it is typed: what is meant, printed, kept, refused; with nodes made up."""

from __future__ import annotations

import asyncio
import json
import locale
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cockpit import paths
from cockpit.base import verbs
from cockpit.cli import job_options, node_options, profiled, slurm_options
from cockpit.cli.verbs import profile
from cockpit.config import Quotas
from cockpit.core.profile.gain import Ahead
from cockpit.engine.profile.store import Store
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, Exit
from tests.core.profiled import Work, collection
from tests.core.test_profile import one_of
from tests.engine.test_profile import FakeJob, FakeNode, Part, done, summary, well
from tests.waiting import soon


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """How the nodes answer: functions by node, or the node, or the reason why there is none."""
    told: list[Any] = [well, well]

    @asynccontextmanager
    async def party(*args: object) -> AsyncIterator[FakeJob]:
        nodes = {
            f"gpu0{at + 1}": FakeNode([2 * at, 2 * at + 1], one) if callable(one) else one
            for at, one in enumerate(told)
        }
        yield FakeJob(nodes)

    monkeypatch.setattr(job_options, "party", party)
    monkeypatch.chdir(tmp_path)
    Path("hostfile").touch()
    return told


@pytest.fixture
def run() -> RunFolder:
    """A run of two nodes."""
    nodes = [
        NodeEntry("gpu01", "/there/otter/gpu01", [0, 1]),
        NodeEntry("gpu02", "/there/otter/gpu02", [2, 3]),
    ]
    folder = RunFolder.create(Manifest("otter", 1.0, nodes, "command", ["train.py"], "/"))
    folder.close()
    return folder


def test_a_run(job: list[Any], run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile.main(["otter", "--steps", "3"]) == 0
    out, err = capsys.readouterr()
    assert "cockpit: torch: steps 11" in err
    assert out.startswith("profile 1 of otter: steps ")
    assert "(to fetch: cockpit collect otter)" in out
    assert "all ranks on one timeline: cockpit profile show otter 1 --fetch --perfetto" in out
    assert [event.kind for event in run.journal()] == ["profile"]
    assert profile.main(["show", "otter"]) == 0
    assert capsys.readouterr().out == out
    assert list(run.model().profiles) == [1]


def test_twice_and_as_json(job: list[Any], run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        assert profile.main(["otter", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["profile"], told["missing"], told["taken"]["3"]["state"]) == (number, {}, "done")
    assert profile.main(["show", "otter", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"] == 1
    assert profile.main(["show", "otter", "1", "--md"]) == 0
    assert capsys.readouterr().out.startswith("# profile 1 of otter")


def test_the_newest_whole_one_is_shown_where_a_cockpit_was_killed(
    job: list[Any], run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.path / "profiles" / "1").mkdir(parents=True)
    with pytest.raises(CockpitError, match="no profile of it yet"):
        profile.main(["show", "otter"])
    profile.main(["otter"])
    (run.path / "profiles" / "3").mkdir()
    capsys.readouterr()
    assert profile.main(["show", "otter"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("profile 2 of otter")
    assert err == "cockpit: profile 3 is empty: not started yet, or its cockpit was killed; showing 2\n"
    assert profile.main(["show", "otter", "2"]) == 0
    assert not capsys.readouterr().err


def test_a_job_of_others_is_kept_beside_runs(job: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert profile.main(["hostfile"]) == 0
    assert Store(paths.profiles()).numbers() == [1]
    again = f"to show it again: cockpit profile show {paths.profiles()}/1"
    assert again in capsys.readouterr().out
    assert profile.main(["show", f"{paths.profiles()}/1"]) == 0
    assert again in capsys.readouterr().out


def test_what_is_missing_is_said(job: list[Any], run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    job[1] = CockpitError("connection refused")
    assert profile.main(["otter"]) == Exit.NODE_UNFIT
    out, err = capsys.readouterr()
    assert "cockpit: ranks 2-3: connection refused" in err
    assert "ranks 2-3 gpu02: connection refused" in out
    assert profile.main(["show", "otter"]) == Exit.NODE_UNFIT


def test_what_would_be_gained_is_said_of_a_run_that_tells_its_pace(
    job: list[Any], run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = collection(4, one_of(Work(data=305), rank=2), run="otter", before=0.5)
    Store(run.path / "profiles").begin(Quotas())
    Store(run.path / "profiles").save(slow)
    monkeypatch.setattr(profiled, "ahead_of", lambda folder: Ahead(7200.0, 1000.0))
    assert profile.main(["show", "otter"]) == 0
    said = "  without it: ~4 steps/s, ~2,000 tokens/s, ETA ~1 h 00 min"
    assert said in capsys.readouterr().out.split("\n")


@pytest.mark.parametrize("words", [["--md"], []])
def test_where_only_ascii_is_shown_nothing_else_is_printed(
    words: list[str],
    job: list[Any],
    run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a C locale Python itself writes UTF-8."""
    name = "".join(f"/opt/schön/{each}" for each in range(99))
    job[1] = CockpitError(f"gone … {'x' * 3000}")
    job[0] = lambda asked: [
        done(rank, summary(rank, asked.first, asked.steps, operations=[[name, "compute", 50000000, 1]]))
        for rank in (0, 1)
    ]

    def taken() -> str:
        profile.main(["otter"])
        profile.main(["show", "otter", *words])
        return "".join(capsys.readouterr())

    assert not taken().isascii()
    monkeypatch.setattr(locale, "nl_langinfo", lambda what: "ANSI_X3.4-1968")
    shown = taken()
    assert shown.isascii()
    assert "gone ..." in shown
    assert "/opt/sch\\xf6n/" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["otter", "--ranks", "7"], "no rank 7; it has 0-3"),
        (["nosuch"], "no such run"),
        (["otter", "3"], "unexpected argument '3'; to show a profile: cockpit profile show RUN"),
        (["otter", "--md"], "--md goes with: cockpit profile show RUN"),
        (["otter", "--kind", "cpu", "--no-shapes"], "--no-shapes goes with: --kind torch"),
        (["show", "otter", "--ranks", "3"], "--ranks goes with: cockpit profile RUN"),
        (["show", "otter", "1", "2"], "unexpected argument '2'; usage: cockpit profile show RUN"),
        (["otter", "--seconds", "0"], "expected more than 0"),
        (["show"], "no run given; usage: cockpit profile show RUN [N]"),
        (["show", "otter"], "no profile of it yet; cockpit profile otter"),
        (["show", "otter", "x"], "not the number of a profile: 'x'"),
    ],
)
def test_refused(words: list[str], said: str, job: list[Any], run: RunFolder) -> None:
    with pytest.raises(CockpitError) as raised:
        profile.main(words)
    assert said in str(raised.value)
    assert raised.value.code == Exit.USAGE


def test_an_unknown_number_names_those_there_are(job: list[Any], run: RunFolder) -> None:
    profile.main(["otter"])
    with pytest.raises(CockpitError, match="otter: no profile 9; it has 1"):
        profile.main(["show", "otter", "9"])


def test_ctrl_c_ends_it_and_keeps_what_is_here(
    job: list[Any], run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(FakeNode):
        async def stream(self, request: Any) -> Any:
            stream = await super().stream(request)
            stream.on_cancel = [({"rank": 3, "state": "cancelled"}, b"")]
            self.pressing = asyncio.create_task(self.press())
            return stream

        async def press(self) -> None:
            await soon(lambda: self.streams[-1].queue.empty())
            os.kill(os.getpid(), signal.SIGINT)

    @asynccontextmanager
    async def party(*args: object) -> AsyncIterator[FakeJob]:
        first = FakeNode([0, 1], well)
        yield FakeJob(
            {"gpu01": first, "gpu02": Interrupted([2, 3], lambda asked: well(asked)[:3], goes_on=True)}
        )

    job_options.party = party  # type: ignore[assignment]  # the fixture puts the real one back
    assert profile.main(["otter"]) == Exit.LEFT
    out, err = capsys.readouterr()
    assert "cancelling; collected ranks are kept" in err
    assert "rank 3 gpu02: cancelled" in out
    kept = Store(run.path / "profiles").load(1)
    assert kept.cancelled == "cancelled by Ctrl-C"
    assert sorted(set(kept.results) - set(kept.missing)) == [0, 1, 2]


def test_nothing_a_node_says_drives_the_terminal(
    job: list[Any], run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    def evil(asked: verbs.Profile) -> list[Part | Exception]:
        what = "\x1b]52;c;x\x07\x1b[2J"
        return [
            ({"rank": 2, "state": "refused", "what": what, "file": f"{what[:9]}x"}, b""),
            *well(asked)[3:],
        ]

    job[1] = evil
    assert profile.main(["otter"]) == Exit.NODE_UNFIT
    both = "".join(capsys.readouterr())
    assert "\x1b" not in both
    assert "\x07" not in both


def test_the_one_run_in_a_slurm_job_is_meant_by_it(
    job: list[Any], run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def steps(args: Any) -> None:
        args.step = f"{args.slurm}."

    found = [run]
    monkeypatch.setattr(slurm_options, "take_step", steps)
    monkeypatch.setattr(node_options, "source", lambda *words: ["--slurm"])
    monkeypatch.setattr(slurm_options, "runs_in", lambda word: found if word == "12" else [])
    assert profile.main(["--slurm", "12"]) == 0
    assert Store(run.path / "profiles").numbers() == [1]
    assert profile.main(["--slurm", "13"]) == 0
    assert Store(paths.profiles()).numbers() == [1]
