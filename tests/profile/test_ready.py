"""Recording with nsys, as often as wanted, in a run that was launched ready for it; nsys is a stand-in.

Most tests share one run, as long as its ranks live.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cockpit.core.profile.collection import DONE, Collection
from tests.profile.ready import Nsys, Shared, keepers, ready
from tests.profile.training import NODES, Training
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.launch]


@contextmanager
def at_the_second_try(folder: Path) -> Iterator[tuple[Training, Nsys]]:
    """Two ranks that do not wait for each other; one launch has failed at first."""
    nsys = Nsys(folder / "stand-in")
    nsys.fails("launch")
    with ready(folder, nsys) as made:
        nsys.fails()
        yield made, nsys


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory, at_the_second_try)
    yield made
    made.close()


@pytest.fixture
def ranks(shared: Shared) -> Training:
    return shared.get(0, 1)[0]


@pytest.fixture
def nsys(shared: Shared, ranks: Training) -> Iterator[Nsys]:
    """In whom nothing goes wrong that the test has not asked for."""
    made = shared.get(0, 1)[1]
    yield made
    made.fails()


def newest(ranks: Training) -> Collection:
    return ranks.collection(max(ranks.store.numbers()))


def reports(ranks: Training, rank: int, of: Collection) -> list[Path]:
    """What a recording has left on the node of a rank."""
    return [path for path in ranks.reports(rank) if of.id in path.name]


def test_a_launch_that_fails_at_first_is_tried_once_more(ranks: Training, nsys: Nsys) -> None:
    assert sum(line.startswith("launch") for line in nsys.asked) == 3
    assert "trying once more" in "".join((ranks.node(rank) / "launcher.log").read_text() for rank in (0, 1))


def test_steps_then_seconds(ranks: Training, nsys: Nsys) -> None:
    before = len(nsys.asked)
    done = ranks.profile("--steps", "4")
    assert done.code == 0, done.both
    assert re.search(r"nsys: steps [\d,]+ to [\d,]+ of ranks 0-1, in about \d+ s", done.err), done.err
    one = newest(ranks)
    assert (one.kind, one.steps, one.missing) == ("nsys", 4, {})
    assert one.first is not None
    for rank, node in enumerate(NODES):
        result = one.results[rank]
        assert result.file == f"r.{node}.nsys.{one.id}.nsys-rep"
        (path,) = reports(ranks, rank, one)
        assert path == ranks.node(rank) / "reports" / result.file
        assert path.stat().st_mode & 0o777 == 0o600
        held = f"steps {one.first} to {one.first + 3} are in it, with [0-9.]+ s before and [0-9.]+ s after"
        assert re.match(held, result.why), result.why
        assert "nsys took" in result.why
    assert "its starts were 0." in done.out
    done = ranks.profile("--kind", "nsys", "--seconds", "1", "--ranks", "1")
    assert done.code == 0, done.both
    two = newest(ranks)
    assert (two.seconds, two.first, list(two.results)) == (1.0, None, [1])
    assert two.id != one.id
    assert [len(reports(ranks, rank, two)) for rank in (0, 1)] == [0, 1]
    # No session was started or stopped by what it had launched.
    asked = [line.split() for line in nsys.asked[before:]]
    assert {where for _, where, *_ in asked} == {"outside"}
    starts = [words for verb, _, *words in asked if verb == "start"]
    assert all({"--sample=none", "--cpuctxsw=none", "-f"} <= set(words) for words in starts)
    assert all(re.fullmatch(r"--session=cockpit-[0-9a-f-]{36}", words[0]) for words in starts)
    assert len({words[0] for words in starts}) == 2
    assert keepers(ranks.verbs.work) == []
    for rank in (0, 1):
        ranks.steps_on(rank)


def last_step(profile: subprocess.Popen[str]) -> int:
    """The last step that is to be recorded, as it says."""
    assert profile.stderr is not None
    for line in profile.stderr:
        if told := re.search(r"nsys: steps [\d,]+ to ([\d,]+) of", line):
            return int(told[1].replace(",", ""))
    raise AssertionError("it does not say which steps")


def test_an_nsys_that_is_late_records_as_many_later_steps(ranks: Training, nsys: Nsys) -> None:
    before = len(nsys.asked)
    (nsys.folder / "late").touch()
    asked = ranks.verbs.start("profile", "r", "--kind", "nsys", "--steps", "4")
    until(lambda: sum(line.startswith("start ") for line in nsys.asked[before:]) == 2, "nsys starts")
    last = last_step(asked)
    until(lambda: all(ranks.step(rank) > last for rank in (0, 1)), "the steps are over")
    (nsys.folder / "late").unlink()
    done = ranks.verbs.end(asked, timeout=PATIENCE_S)
    assert done.code == 0, done.both
    for rank, one in newest(ranks).results.items():
        held = re.match("nsys was late: steps ([0-9]+) to ([0-9]+) are in it, with", one.why)
        assert held, (rank, one.why)
        assert int(held[1]) > last
        assert int(held[2]) == int(held[1]) + 3


def test_a_raw_file_that_cannot_be_imported_is_kept(ranks: Training, nsys: Nsys) -> None:
    nsys.fails("qdstrm")
    done = ranks.profile("--kind", "nsys", "--seconds", "1")
    assert done.code == 0, done.both
    one = newest(ranks)
    assert "QdstrmImporter -i" in one.results[0].why
    assert {path.suffix for path in reports(ranks, 0, one)} == {".qdstrm"}


def test_an_nsys_that_fails_is_said_and_leaves_nothing(ranks: Training, nsys: Nsys) -> None:
    for verb in ("start", "stop"):
        nsys.fails(verb)
        done = ranks.profile("--kind", "nsys", "--seconds", "1")
        assert done.code == 3, done.both
        assert f"nsys {verb} failed: nsys cannot do that now." in done.both
        assert reports(ranks, 0, newest(ranks)) == []
        until(lambda: keepers(ranks.verbs.work) == [], "nothing of it is left")
        assert not any(nsys.records(ranks.node(rank)) for rank in (0, 1))
    # What it lists is not needed.
    nsys.fails("sessions")
    done = ranks.profile("--kind", "nsys", "--seconds", "1")
    assert done.code == 0, done.both


def test_bytes_are_shown_while_nsys_writes_and_a_second_profile_waits(ranks: Training, nsys: Nsys) -> None:
    before = len(nsys.asked)
    (nsys.folder / "hold").touch()
    first = ranks.verbs.start("profile", "r", "--kind", "nsys", "--seconds", "1")
    until(lambda: any(line.startswith("stop") for line in nsys.asked[before:]), "nsys writes")
    second = ranks.profile("--kind", "nsys", "--seconds", "1")
    assert second.code == 2
    assert "another nsys profile of it is running" in second.err
    ranks.steps_on(0)
    (nsys.folder / "hold").unlink()
    done = ranks.verbs.end(first, timeout=PATIENCE_S)
    assert done.code == 0, done.both
    assert all(one.state == DONE for one in newest(ranks).results.values())


def test_a_session_that_nobody_stopped_is_taken_over(ranks: Training, nsys: Nsys) -> None:
    before = len(nsys.asked)
    for place in (nsys.folder / "sessions").iterdir():
        (place / "out").write_text(str(place / "lost"))
    done = ranks.profile("--kind", "nsys", "--seconds", "1")
    assert done.code == 0, done.both
    assert sum(line.startswith("cancel") for line in nsys.asked[before:]) == 2


def test_reports_are_fetched_and_shown(ranks: Training) -> None:
    assert ranks.profile("--kind", "nsys", "--seconds", "1", "--fetch").code == 0
    (ranks.verbs.work / "end").touch()
    ranks.verbs.end(ranks.watching, timeout=PATIENCE_S)
    assert len(list((ranks.folder / "reports").glob(f"*/*{newest(ranks).id}.nsys-rep"))) == 2
    shown = json.loads(ranks.verbs.call("profile", "show", "r", "--json").out)
    assert (shown["kind"], shown["finding"]["id"]) == ("nsys", "recorded")
    assert all(one["here"] for one in shown["taken"].values())
    text = " ".join(ranks.verbs.call("profile", "show", "r").out.split())
    assert "each opens with nsys-ui" in text
    assert "perfetto" not in text


def test_a_run_that_is_not_recorded_leaves_no_report_and_lacks_none(tmp_path: Path) -> None:
    with ready(tmp_path, Nsys(tmp_path / "stand-in")) as ranks:
        (tmp_path / "end").touch()
        done = ranks.verbs.end(ranks.watching, timeout=PATIENCE_S)
        assert done.code == 0, done.both
        assert "no report" not in done.both
        assert ranks.verbs.call("collect", "r").code == 0


def test_each_rank_on_its_own_but_one_that_is_not_listed(tmp_path: Path) -> None:
    listed = ["--per-rank", "--profile-ranks", "0,2,3"]
    with ready(tmp_path, Nsys(tmp_path / "stand-in"), more=listed, slots=2) as ranks:
        done = ranks.profile("--kind", "nsys", "--steps", "4")
        assert done.code == 3, done.both
        assert "a report of each rank" in done.err
        one = ranks.collection(1)
        assert one.missing == {1: "nsys has not launched it"}
        for rank in (0, 2, 3):
            result = one.results[rank]
            assert result.file == f"r.{ranks.host(rank)}.rank-{rank}.nsys.{one.id}.nsys-rep"
            assert (ranks.node(rank) / "reports" / result.file).is_file()
            assert "steps" in result.why
        assert ranks.profile("--kind", "nsys", "--seconds", "1", "--ranks", "3").code == 0
        assert list(ranks.collection(2).results) == [3]
        assert keepers(ranks.verbs.work) == []
        (tmp_path / "end").touch()
        done = ranks.verbs.end(ranks.watching, timeout=PATIENCE_S)
        assert done.code == 0, done.both
        assert "no report" not in done.both
