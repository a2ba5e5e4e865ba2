"""``--nccl-debug`` on a node: a file for each rank in the run folder, and what of it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.base import record
from cockpit.node.run import follow
from tests.node import folders
from tests.node.conftest import Launch
from tests.node.runs import command, program
from tests.waiting import until

SAYS = """
[ -z "$COCKPIT_NCCL" ] || exit 9
echo "${NCCL_DEBUG_FILE:-none}"
[ -z "$NCCL_DEBUG_FILE" ] || echo "of $RANK" >"$NCCL_DEBUG_FILE"
"""


def ended(run_folder: Path) -> None:
    until(lambda: b'"ended"' in (run_folder / record.EVENTS).read_bytes(), "the end of the run")


def said(run_folder: Path) -> list[str]:
    return [(run_folder / record.rank_log(rank)).read_text().strip() for rank in (0, 1)]


def test_each_rank_has_a_file_of_its_own(launch: Launch, tmp_path: Path) -> None:
    run = launch(command(2, program(tmp_path / "train", SAYS)), nccl_debug=True)
    ended(run.folder)
    assert said(run.folder) == [str(run.folder / f"rank-{rank}.nccl") for rank in (0, 1)]
    assert (run.folder / "rank-1.nccl").read_text() == "of 1\n"
    # The time index has it, so that it is known when it was printed.
    assert b"rank-1.nccl" in (run.folder / record.TIMES).read_bytes()


def test_a_file_that_the_user_named_stays(launch: Launch, tmp_path: Path) -> None:
    mine = tmp_path / "mine.%p"
    run = launch(
        command(2, program(tmp_path / "train", SAYS)), nccl_debug=True, env={"NCCL_DEBUG_FILE": str(mine)}
    )
    ended(run.folder)
    assert said(run.folder) == [str(mine)] * 2
    assert not list(run.folder.glob("*.nccl"))


def test_without_the_option_there_is_none(launch: Launch, tmp_path: Path) -> None:
    run = launch(command(2, program(tmp_path / "train", SAYS)))
    ended(run.folder)
    assert said(run.folder) == ["none"] * 2


@pytest.mark.parametrize("wanted", [False, True])
def test_it_is_sent_where_the_run_has_it(tmp_path: Path, wanted: bool) -> None:
    folders.make(tmp_path, [3])
    (tmp_path / "rank-3.nccl").write_bytes(b"x" * 100)
    parts, data = follow._Reader(str(tmp_path), [3], {}, nccl=wanted).batch(1 << 20)
    assert (parts, data) == (([("rank-3.nccl", 0, 100)], b"x" * 100) if wanted else ([], b""))


def test_only_its_beginning_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "NCCL_READ", 1000)
    folders.make(tmp_path, [3])
    path = tmp_path / "rank-3.nccl"
    path.write_bytes(b"x" * 5000)
    reader = follow._Reader(str(tmp_path), [3], {}, nccl=True)
    assert len(reader.batch(1 << 20)[1]) == 1000
    assert reader.sizes["rank-3.nccl"] == 1000
    with path.open("ab") as file:
        file.write(b"y" * 5000)
    assert (reader.batch(1 << 20), reader.behind) == (([], b""), 0)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-0.nccl", 0),
        ("rank-131071.nccl", 131071),
        ("rank-00.nccl", None),
        ("rank-.nccl", None),
        ("rank-1.nccl/..", None),
        ("rank-1.log", None),
        ("rank-\u0661.nccl", None),
        (".nccl", None),
    ],
)
def test_names(name: str, rank: int | None) -> None:
    assert record.nccl_rank(name) == rank
    assert rank is None or record.rank_nccl(rank) == name
    assert record.is_followed(name) is (rank is not None or name == "rank-1.log")
