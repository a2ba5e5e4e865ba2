"""Recording with nsys, as often as wanted, in a run that was launched ready for it; nsys is a stand-in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.core.profile.collection import DONE
from tests import needs
from tests.profile.ready import Nsys, keepers, ready
from tests.profile.training import NODES, Training, training
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.launch]


@pytest.fixture
def nsys(tmp_path: Path) -> Nsys:
    return Nsys(tmp_path / "stand-in")


@pytest.fixture
def ranks(nsys: Nsys, tmp_path: Path) -> Iterator[Training]:
    """Two ranks that do not wait for each other."""
    with ready(tmp_path, nsys) as made:
        yield made


def test_steps_then_seconds(ranks: Training, nsys: Nsys) -> None:
    done = ranks.profile("--kind", "nsys", "--steps", "4")
    assert done.code == 0, done.both
    assert re.search(r"nsys: steps [\d,]+ to [\d,]+ of ranks 0-1, in about \d+ s", done.err), done.err
    one = ranks.collection(1)
    assert (one.kind, one.steps, one.missing) == ("nsys", 4, {})
    assert one.first is not None
    for rank, node in enumerate(NODES):
        result = one.results[rank]
        assert result.file == f"r.{node}.nsys.{one.id}.nsys-rep"
        (path,) = ranks.reports(rank)
        assert path == ranks.node(rank) / "reports" / result.file
        assert path.stat().st_mode & 0o777 == 0o600
        held = f"steps {one.first} to {one.first + 3} are in it, with [0-9.]+ s before and [0-9.]+ s after"
        assert re.match(held, result.why), result.why
        assert "nsys took" in result.why
    assert "its starts were 0." in done.out
    done = ranks.profile("--kind", "nsys", "--seconds", "1", "--ranks", "1")
    assert done.code == 0, done.both
    two = ranks.collection(2)
    assert (two.seconds, two.first, list(two.results)) == (1.0, None, [1])
    assert two.id != one.id
    assert [len(ranks.reports(rank)) for rank in (0, 1)] == [1, 2]
    # No session was started or stopped by what it had launched.
    for line in nsys.asked:
        verb, where, *words = line.split()
        assert where == ("outside" if verb != "launch" else where)
        if verb == "start":
            assert {"--sample=none", "--cpuctxsw=none", "-f"} <= set(words)
    names = [line.split()[2] for line in nsys.asked if line.startswith("start")]
    assert all(re.fullmatch(r"--session=cockpit-[0-9a-f-]{36}", name) for name in names)
    assert len(set(names)) == 2
    assert keepers(ranks.verbs.work) == []
    for rank in (0, 1):
        ranks.steps_on(rank)


@pytest.mark.long
def test_an_nsys_that_is_late_records_as_many_later_steps(ranks: Training, nsys: Nsys) -> None:
    (nsys.folder / "late").touch()
    asked = ranks.verbs.start("profile", "r", "--kind", "nsys", "--steps", "4")
    until(lambda: (nsys.folder / "asked").read_text().count("\nstart ") == 2, "nsys starts")
    # The first step that was asked for is at most so far ahead.
    ahead = [ranks.step(rank) + 200 for rank in (0, 1)]
    until(lambda: all(ranks.step(rank) > ahead[rank] for rank in (0, 1)), "the steps are over")
    (nsys.folder / "late").unlink()
    done = ranks.verbs.end(asked, timeout=PATIENCE_S)
    assert done.code == 0, done.both
    one = ranks.collection(1)
    assert one.first is not None
    for rank in (0, 1):
        held = re.match("nsys was late: steps ([0-9]+) to ([0-9]+) are in it, with", one.results[rank].why)
        assert held, one.results[rank].why
        assert int(held[1]) > max(one.first, ahead[rank])
        assert int(held[2]) == int(held[1]) + 3


@pytest.mark.long
def test_reports_are_fetched_and_shown(ranks: Training) -> None:
    assert ranks.profile("--kind", "nsys", "--seconds", "1", "--fetch").code == 0
    (ranks.verbs.work / "end").touch()
    ranks.verbs.end(ranks.watching, timeout=PATIENCE_S)
    assert len(list((ranks.folder / "reports").glob("*/*.nsys-rep"))) == 2
    shown = json.loads(ranks.verbs.call("profile", "show", "r", "--json").out)
    assert (shown["kind"], shown["finding"]["id"]) == ("nsys", "recorded")
    assert all(one["here"] for one in shown["taken"].values())
    text = " ".join(ranks.verbs.call("profile", "show", "r").out.split())
    assert "each opens with nsys-ui" in text
    assert "perfetto" not in text


@pytest.mark.long
def test_a_run_that_is_not_recorded_leaves_no_report_and_lacks_none(ranks: Training) -> None:
    (ranks.verbs.work / "end").touch()
    done = ranks.verbs.end(ranks.watching, timeout=PATIENCE_S)
    assert done.code == 0, done.both
    assert "no report" not in done.both
    assert ranks.verbs.call("collect", "r").code == 0


@pytest.mark.long
def test_a_run_that_was_not_launched_ready_is_refused(tmp_path: Path) -> None:
    with training(tmp_path, kind="stub") as plain:
        done = plain.profile("--kind", "nsys")
    assert done.code == 2
    assert "it was not launched with --profile nsys-ready" in done.err
    assert "next time: cockpit run --profile nsys-ready" in done.err


@pytest.mark.long
def test_nsys_is_the_default_and_torch_is_left_to_who_asks_for_it(nsys: Nsys, tmp_path: Path) -> None:
    needs.require_module("torch")
    # The stand-in puts nothing into the ranks: torch's profiler is not in its way.
    with ready(tmp_path, nsys, kind="alone") as ranks:
        for words, kind in (([], "nsys"), (["--kind", "torch"], "torch"), (["--stack"], "torch")):
            done = ranks.profile("--steps", "2", *words)
            assert done.code == 0, done.both
            assert ranks.collection(len(ranks.store.numbers())).kind == kind


@pytest.mark.long
def test_a_raw_file_that_cannot_be_imported_is_kept(ranks: Training, nsys: Nsys) -> None:
    nsys.fails("qdstrm")
    done = ranks.profile("--kind", "nsys", "--seconds", "1")
    assert done.code == 0, done.both
    assert "QdstrmImporter -i" in ranks.collection().results[0].why
    assert {path.suffix for path in ranks.reports(0)} == {".qdstrm"}


@pytest.mark.long
@pytest.mark.parametrize("verb", ["start", "stop", "sessions"])
def test_an_nsys_that_fails_is_said_and_leaves_nothing(ranks: Training, nsys: Nsys, verb: str) -> None:
    nsys.fails(verb)
    done = ranks.profile("--kind", "nsys", "--seconds", "1")
    if verb == "sessions":
        assert done.code == 0, done.both
        return
    assert done.code == 3, done.both
    assert f"nsys {verb} failed: nsys cannot do that now." in done.both
    assert ranks.reports(0) == []
    until(lambda: keepers(ranks.verbs.work) == [], "nothing of it is left")
    assert not any(nsys.records(ranks.node(rank)) for rank in (0, 1))
    nsys.fails()
    assert ranks.profile("--kind", "nsys", "--seconds", "1").code == 0


@pytest.mark.long
def test_bytes_are_shown_while_nsys_writes_and_a_second_profile_waits(ranks: Training, nsys: Nsys) -> None:
    (nsys.folder / "hold").touch()
    first = ranks.verbs.start("profile", "r", "--kind", "nsys", "--seconds", "1")
    until(lambda: any(line.startswith("stop") for line in nsys.asked), "nsys writes")
    second = ranks.profile("--kind", "nsys", "--seconds", "1")
    assert second.code == 2
    assert "another nsys profile of it is running" in second.err
    ranks.steps_on(0)
    (nsys.folder / "hold").unlink()
    done = ranks.verbs.end(first, timeout=PATIENCE_S)
    assert done.code == 0, done.both
    assert all(one.state == DONE for one in ranks.collection(1).results.values())


@pytest.mark.long
def test_a_session_that_nobody_stopped_is_taken_over(ranks: Training, nsys: Nsys) -> None:
    for place in (nsys.folder / "sessions").iterdir():
        (place / "out").write_text(str(place / "lost"))
    done = ranks.profile("--kind", "nsys", "--seconds", "1")
    assert done.code == 0, done.both
    assert sum(line.startswith("cancel") for line in nsys.asked) == 2


@pytest.mark.long
def test_a_launch_that_fails_at_first_is_tried_once_more(nsys: Nsys, tmp_path: Path) -> None:
    nsys.fails("launch")
    with ready(tmp_path, nsys) as ranks:
        assert sum(line.startswith("launch") for line in nsys.asked) == 3
        assert "trying once more" in "".join(
            (ranks.node(rank) / "launcher.log").read_text() for rank in (0, 1)
        )
        assert ranks.profile("--kind", "nsys", "--seconds", "1").code == 0


@pytest.mark.long
def test_each_rank_on_its_own(nsys: Nsys, tmp_path: Path) -> None:
    with ready(tmp_path, nsys, more=["--per-rank"]) as ranks:
        done = ranks.profile("--kind", "nsys", "--steps", "4")
        assert done.code == 0, done.both
        assert "a report of each rank" in done.err
        one = ranks.collection(1)
        for rank, node in enumerate(NODES):
            assert one.results[rank].file == f"r.{node}.rank-{rank}.nsys.{one.id}.nsys-rep"
            assert (ranks.node(rank) / "reports" / one.results[rank].file).is_file()
            assert "steps" in one.results[rank].why
        assert ranks.profile("--kind", "nsys", "--seconds", "1", "--ranks", "1").code == 0
        assert list(ranks.collection(2).results) == [1]
        assert keepers(ranks.verbs.work) == []
        (ranks.verbs.work / "end").touch()
        done = ranks.verbs.end(ranks.watching, timeout=PATIENCE_S)
        assert done.code == 0, done.both
        assert "no report" not in done.both


@pytest.mark.long
def test_a_rank_that_is_not_listed_cannot_be_recorded(nsys: Nsys, tmp_path: Path) -> None:
    with ready(tmp_path, nsys, more=["--profile-ranks", "1"]) as ranks:
        done = ranks.profile("--kind", "nsys", "--seconds", "1")
        assert done.code == 3, done.both
        assert ranks.collection().missing == {0: "nsys has not launched it"}
