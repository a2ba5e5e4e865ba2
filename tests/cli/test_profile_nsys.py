"""``cockpit profile show --nsys``, ``--report`` and what is printed of collectives; with nodes made up."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from cockpit.base.events import RankStarted
from cockpit.cli.verbs import profile
from cockpit.core.run.events import Event
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError
from tests.cli.schemas import fits
from tests.engine.pools import Fakes
from tests.engine.test_nsys_reports import two
from tests.node.nsys_exports import Export, job

PIDS = (4711, 4712)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunFolder:
    """A run of two nodes whose reports are there."""
    nodes = [NodeEntry(f"gpu0{at + 1}", f"/run/{at}", [2 * at, 2 * at + 1]) for at in range(2)]
    made = Manifest(
        "otter", 1.0, nodes, "command", ["true"], "/", profile={"nsys": "/opt/nsys", "report": "x"}
    )
    folder = RunFolder.create(made)
    folder.close()

    def pool(manifest: Manifest) -> Fakes:
        return Lazy({})

    monkeypatch.setattr(profile, "pool_for", pool)
    monkeypatch.chdir(tmp_path)
    return folder


class Lazy(Fakes):
    """Nodes that are made once there is a loop for them."""

    async def _connect(self, node: str) -> object:  # type: ignore[override]
        self.links = self.links or two()
        return await super()._connect(node)


def test_reports_of_a_run_become_a_profile(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CockpitError, match="no profile of it yet; cockpit profile show otter --nsys"):
        profile.main(["show", "otter"])
    assert profile.main(["show", "otter", "--nsys"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("profile 1 of otter: steps 700-704, nsys, 4 ranks")
    assert "2 files, 0 kB, on the nodes (to fetch: cockpit collect otter); each opens with nsys-ui" in out
    assert "--perfetto" not in out
    assert [event.kind for event in run.journal()] == ["profile"]
    assert profile.main(["show", "otter"]) == 0
    assert capsys.readouterr().out == out
    assert profile.main(["show", "otter", "1", "--nsys", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    fits("profile", told)
    assert (told["kind"], told["profile"], told["spread"]["calls"]) == ("nsys", 1, 20)
    assert profile.main(["show", "otter", "--md"]) == 0
    assert capsys.readouterr().out.startswith("# profile 1 of otter")


def test_the_spread_of_its_collectives(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile.main(["show", "otter", "--nsys", "--spread"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("20 calls of ranks 0-3: duration by size of the message")
    assert profile.main(["show", "otter", "--csv", "x.csv"]) == 0
    assert len(list(csv.DictReader(Path("x.csv").read_text().splitlines()))) == 20
    assert profile.main(["show", "otter", "--svg", "x.svg"]) == 0
    assert Path("x.svg").read_text().startswith("<svg ")
    assert "written: x.svg" in capsys.readouterr().err


@pytest.mark.slow
def test_a_report_that_is_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = job(tmp_path / "x.sqlite", PIDS, late=150)
    assert profile.main(["show", "--report", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("a report of a job: steps 30-33, nsys, 2 ranks")
    assert "all_reduce comm feed" in out
    assert profile.main(["show", "--report", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    fits("profile", told)
    assert told["folder"] == ""
    assert {rank: one["wait_s"] for rank, one in told["ranks"].items()} == {
        "0": pytest.approx(1.5e-7),
        "1": 0.0,
    }
    assert profile.main(["show", "--report", str(path), "--spread"]) == 0
    assert "8 calls of ranks 0-1" in capsys.readouterr().out


def test_a_report_of_a_run_has_its_ranks(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the processes that the run has recorded."""
    assert run.lock()
    for rank, pid in ((2, 4712), (3, 4711)):
        run.write(Event(1.0, "gpu02", RankStarted(rank, pid=pid, ticks=5)))
    run.close()
    path = job(tmp_path / "otter-gpu02.sqlite", PIDS, late=150)
    assert profile.main(["show", "otter", "--report", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {rank: (one["node"], one["wait_s"] > 0) for rank, one in told["ranks"].items()} == {
        "2": ("gpu02", False), "3": ("gpu02", True),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["otter", "--nsys"], "--nsys goes with: cockpit profile show RUN"),
        (["otter", "--spread"], "--spread goes with: cockpit profile show RUN"),
        (["show", "otter", "7", "--nsys"], "no profile of it here"),
        (["show", "otter", "x", "--nsys"], "not the number of a profile: 'x'"),
        (["show", "otter", "more", "--report", "x.sqlite"], "unexpected argument 'more'"),
        (["show", "--report", "gone.sqlite"], "No such file"),
        (["show", "--nsys"], "no run given"),
        (["show", "otter", "--nsys", "--report", "x.sqlite"], "give one of them"),
    ],
)
def test_refused(words: list[str], said: str, run: RunFolder) -> None:
    with pytest.raises(CockpitError) as raised:
        profile.main(words)
    assert said in str(raised.value)


def test_nothing_to_plot(tmp_path: Path) -> None:
    made = Export(tmp_path / "x.sqlite")
    made.wait(4711, "read", 10, 20)
    with pytest.raises(CockpitError, match="no collective in it: nothing to plot"):
        profile.main(["show", "--report", str(made.done()), "--spread"])
