"""Each kind, twice in a row, on one rank and on all, over real training: it is here, and training goes on."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests import needs
from tests.profile.training import NODES, Training, told, training
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.campaign, pytest.mark.launch]


def test_twice_in_a_row(tmp_path: Path) -> None:
    needs.require_module("torch")
    with training(tmp_path, kind="gloo") as ranks:
        for number in (1, 2):
            done = ranks.profile("--kind", "torch", "--json", *(["--fetch"] if number == 2 else []))
            assert done.code == 0, done.both
            _torch(ranks, told(done.out), number, (0, 1))
            fetched = [one["here"] is not None for one in told(done.out)["taken"].values()]
            assert fetched == [number == 2] * 2
        done = ranks.profile("--ranks", "1", "--steps", "2", "--json")
        assert done.code == 0, done.both
        _torch(ranks, told(done.out), 3, (1,))
        for number in (4, 5):
            done = ranks.profile("--kind", "cpu", "--seconds", "5", "--json")
            assert done.code == 0, done.both
            found = ranks.collection(number)
            assert all("train.py" in one.folded and one.samples for one in found.results.values())
            assert found.seconds == 5.0
        shown = ranks.verbs.call("profile", "show", "r", "1")
        assert shown.code == 0, shown.both
        # Who watches the run has noted all of them.
        journal = ranks.folder / "journal.jsonl"
        until(lambda: journal.read_text().count('"e": "profile"') == 5, "five profiles in the journal")
        for rank in (0, 1):
            ranks.steps_on(rank)
        # All files are fetched, verified.
        (tmp_path / "end").touch()
        out, err = ranks.watching.communicate(timeout=PATIENCE_S)
        assert ranks.watching.returncode == 0, out + err
        collected = ranks.verbs.call("collect", "r", "--json")
        reports = told(collected.out)["reports"]
        assert {one["state"] for one in reports} == {"collected"}
        assert len(reports) == 5
        told_again = told(ranks.verbs.call("profile", "show", "r", "1", "--json").out)
        assert all(Path(one["here"]).exists() for one in told_again["taken"].values())
        made = ranks.verbs.call("profile", "show", "r", "1", "--perfetto", str(tmp_path / "all.tar"))
        assert made.code == 0, made.both
        with tarfile.open(tmp_path / "all.tar") as archive:
            assert archive.getnames() == ["perfetto_manifest.json", "rank-000000.json", "rank-000001.json"]
        for option in ("--html", "--folded", "--speedscope"):
            made = ranks.verbs.call("profile", "show", "r", "4", option, str(tmp_path / option))
            assert made.code == 0, made.both
            assert "train.py" in (tmp_path / option).read_text()


def _torch(ranks: Training, told: dict[str, object], number: int, who: tuple[int, ...]) -> None:
    assert (told["profile"], told["missing"]) == (number, {})
    found = ranks.collection(number)
    assert sorted(found.results) == list(who)
    for rank, one in found.results.items():
        assert one.summary is not None
        assert one.node == NODES[rank]
        assert found.first is not None
        steps = [step.step for step in one.summary.steps]
        assert steps == list(range(found.first, found.first + found.steps))
        # DDP waits for these at the end of its backward.
        assert {call.phase for call in one.summary.collectives if call.name == "all_reduce"} == {2}
        assert any(found.id in trace.name for trace in ranks.traces(rank))
    assert found.before is not None
    assert found.after is not None
