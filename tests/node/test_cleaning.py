"""Run folders that nobody needs any more: what is told of them, and that nothing else is ever removed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record, trees
from cockpit.base.answers import FoldersAnswer, KeptFolder, RemoveAnswer
from cockpit.base.gate import read
from cockpit.node import cleaning, procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.run import leftovers
from tests.node.conftest import Launch
from tests.node.folders import ticks
from tests.waiting import until

GONE = 1 << 22
"""A pid that no process has."""


def asked(**words: Any) -> Call:
    return Call({"id": 1, **words}, b"", lambda header, payload: None)


def told(*bases: Path) -> list[KeptFolder]:
    answer = cleaning.folders(asked(bases=[str(base) for base in bases]))
    return list(read(FoldersAnswer, json.loads(json.dumps(answer))).folders)


def removed(folder: Path, **changes: Any) -> RemoveAnswer:
    """Ask for what the record of the folder says, but for ``changes``."""
    facts: dict[str, Any] = {"run": folder.parent.name, "node": "node1", "boot_id": ""}
    facts["supervisor"] = {"pid": GONE, "ticks": 1}
    if (folder / record.RECORD).exists():
        facts = json.loads((folder / record.RECORD).read_text())
    names = ("run", "node", "boot_id", "supervisor")
    words = {"dir": str(folder), **{name: facts[name] for name in names}, **changes}
    return read(RemoveAnswer, cleaning.remove(asked(**words)))


def make(base: Path, run: str = "old", node: str = "node1", *, ended: bool = True, **facts: Any) -> Path:
    """A run folder as one that was over long ago leaves it."""
    folder = base / run / node
    folder.mkdir(parents=True)
    found = {
        "format": record.FORMAT,
        "t": 1.0,
        "run": run,
        "node": node,
        "host": os.uname().nodename,
        "ranks": [0],
        "boot_id": procfs.boot_id(),
        "supervisor": {"pid": GONE, "ticks": 1},
        **facts,
    }
    (folder / record.RECORD).write_text(json.dumps(found))
    lines = [{"t": 1.0, "e": "supervisor_started"}, *([{"t": 2.0, "e": "ended"}] if ended else [])]
    (folder / record.EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "rank-0.log").write_bytes(bytes(50_000))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_told_of_a_folder(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))
    (one,) = told(tmp_path)
    assert (one.dir, one.ours, one.alive, one.living, one.ended, one.whole) == (
        str(folder),
        True,
        False,
        0,
        True,
        True,
    )
    assert one.record is not None
    assert (one.record.run, one.record.node) == ("old", "node1")
    assert 50_000 <= one.bytes < 100_000
    assert one.idle_s > 1e8
    assert one.owner


def test_what_is_no_run_folder_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "bin" / "empty").mkdir(parents=True)
    (tmp_path / "file").touch()
    make(tmp_path / "elsewhere")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "node1").symlink_to(tmp_path / "elsewhere" / "old" / "node1")
    make(tmp_path, trees.TRASH + "x")
    assert told(tmp_path, tmp_path / "none") == []
    torn = make(tmp_path, "torn")
    (torn / record.RECORD).write_text("{")
    (torn / record.NODE_PYZ).touch()
    (one,) = told(tmp_path)
    assert (one.dir, one.record, one.alive) == (str(torn), None, None)


def test_one_folder_by_two_ways_has_one_id(tmp_path: Path) -> None:
    make(tmp_path / "real")
    make(tmp_path / "real", "other")
    (tmp_path / "way").symlink_to("real")
    found = told(tmp_path / "real", tmp_path / "way")
    assert len(found) == 4
    assert len({one.id for one in found}) == 2


@pytest.mark.root
def test_folders_of_others_are_told_with_their_owner(tmp_path: Path) -> None:
    folder = make(tmp_path)
    os.chown(folder, 65534, 65534)
    (one,) = told(tmp_path)
    assert (one.ours, one.record) == (False, None)
    assert one.owner in ("nobody", "uid 65534")
    with pytest.raises(NodeError, match=r"belongs to (nobody|uid 65534)"):
        removed(folder)
    assert (folder / "rank-0.log").exists()


def test_an_old_run_is_removed(launch: Launch) -> None:
    run = launch("true")
    run.ended()
    until(lambda: not procfs.alive(run.started["pid"], run.started["ticks"]), "its supervisor ended")
    base = run.folder.parents[1]
    make(base, run.run, "node2")
    (one,) = [one for one in told(base) if one.record and one.record.node == "node1"]
    assert one.ended
    found = removed(run.folder)
    assert (found.gone, found.left, found.late) == (True, "", False)
    assert found.bytes > 100_000
    assert names(base / run.run) == ["node2"]  # another node's, on a shared file system
    assert names(base) == [run.run]
    assert removed(base / run.run / "node2").gone
    assert names(base) == []
    assert removed(base / run.run / "node2") == RemoveAnswer(True)


def test_a_run_that_lives_is_not_removed(launch: Launch) -> None:
    run = launch("exec sleep 600")
    (one,) = told(run.folder.parents[1])
    assert (one.alive, one.ended) == (True, False)
    assert one.living >= 1
    with pytest.raises(NodeError, match="its supervisor is still running"):
        removed(run.folder, unended=True)
    assert run.folder.exists()


def test_processes_without_a_supervisor_keep_a_folder(tmp_path: Path) -> None:
    folder = make(tmp_path)
    tags = {record.ENV_RUN: "old", record.ENV_NODE: "node1", record.ENV_DIR: str(folder)}
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, **tags})
    try:
        until(lambda: leftovers.find(str(folder), "old", "node1"), "it has its environment")
        assert told(tmp_path)[0].living == 1
        with pytest.raises(NodeError, match="processes of the run are still running"):
            removed(folder, unended=True)
    finally:
        left.kill()
        left.wait()
    assert removed(folder).gone


def test_a_process_that_comes_meanwhile_gets_its_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path)
    looks = iter([leftovers.Leftovers(None, {}, []), leftovers.Leftovers((1, 1), {}, [])])
    monkeypatch.setattr(leftovers, "find", lambda *_: next(looks))
    with pytest.raises(NodeError, match="processes of the run are still running"):
        removed(folder)
    assert (folder / "rank-0.log").exists()
    assert names(tmp_path) == ["old"]


def test_without_an_end_on_record_only_when_told(tmp_path: Path) -> None:
    folder = make(tmp_path, ended=False)
    with pytest.raises(NodeError, match="no recorded end on that node"):
        removed(folder)
    assert removed(folder, unended=True).gone


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "other"},
        {"node": "node2"},
        {"boot_id": "another"},
        {"supervisor": {"pid": GONE, "ticks": 2}},
        {"supervisor": {"pid": GONE - 1, "ticks": 1}},
    ],
)
def test_only_the_launch_that_is_meant(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = make(tmp_path)
    with pytest.raises(NodeError, match=r"another run is in that folder|not a run folder of other"):
        removed(folder, **changes)
    assert (folder / "rank-0.log").exists()


def test_a_folder_of_another_machine_is_not_judged_from_here(tmp_path: Path) -> None:
    folder = make(tmp_path, host="far", boot_id="another")
    with pytest.raises(NodeError, match="the run was on far, and this is"):
        removed(folder, unended=True)
    # After a reboot its processes are surely gone.
    again = make(tmp_path, "again", boot_id="another")
    assert removed(again).gone


@pytest.mark.parametrize(
    "place", ["base/old/../old/node1", "base/old/node1/", "base/old", "base//old/node1", "base/old/node1/.."]
)
def test_only_the_path_of_a_run_folder(place: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "base")
    facts = json.loads((folder / record.RECORD).read_text())
    words = {name: facts[name] for name in ("run", "node", "boot_id", "supervisor")}
    with pytest.raises(NodeError, match="not a run folder of old"):
        cleaning.remove(asked(dir=f"{tmp_path}/{place}", **words))
    assert (folder / "rank-0.log").exists()


@pytest.mark.parametrize("which", ["base", "base/old", "base/old/node1"])
def test_never_by_way_of_a_link(which: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "base")
    moved = tmp_path / "moved"
    (tmp_path / which).rename(moved)
    (tmp_path / which).symlink_to(moved)
    with pytest.raises(NodeError, match=r"cannot be removed|is not a folder"):
        removed(folder)
    assert list(moved.rglob("rank-0.log"))


def test_a_damaged_record_is_nobodys(tmp_path: Path) -> None:
    folder = make(tmp_path)
    facts = json.loads((folder / record.RECORD).read_text())
    words = {name: facts[name] for name in ("run", "node", "boot_id", "supervisor")}
    for text in ("", "{", "[]", json.dumps({**facts, "run": "../x"}), json.dumps({**facts, "format": 99})):
        (folder / record.RECORD).write_text(text)
        with pytest.raises(NodeError):
            cleaning.remove(asked(dir=str(folder), **words))
    (folder / record.RECORD).unlink()
    with pytest.raises(NodeError, match="no run record"):
        cleaning.remove(asked(dir=str(folder), **words))
    assert (folder / "rank-0.log").exists()


def test_what_an_earlier_deletion_left_goes_too(tmp_path: Path) -> None:
    left = tmp_path / trees.trash_name() / "reports"
    left.mkdir(parents=True)
    (left / "big").write_bytes(bytes(200_000))
    folder = make(tmp_path)
    assert removed(folder).bytes > 200_000
    assert names(tmp_path) == []


def test_too_little_time_leaves_no_half_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path)
    few: Callable[..., trees.Cleared] = lambda path, until: real(path, until, 1)  # noqa: E731
    real = trees.cleared
    monkeypatch.setattr(trees, "cleared", few)
    first = removed(folder)
    assert (first.gone, first.late) == (True, True)
    assert told(tmp_path) == []
    monkeypatch.setattr(trees, "cleared", real)
    size = removed_bytes(tmp_path)
    assert removed(folder) == RemoveAnswer(True, size)
    assert names(tmp_path) == []


def removed_bytes(base: Path) -> int:
    (trash,) = base.iterdir()
    return sum(path.lstat().st_blocks * 512 for path in trash.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_folder_that_is_used_by_another_run_of_its_name(launch: Launch, tmp_path: Path) -> None:
    """Between the look and the removal somebody else removed it, and started a run of the same name."""
    old = make(tmp_path / "base", "again")
    facts = json.loads((old / record.RECORD).read_text())
    words = {name: facts[name] for name in ("run", "node", "boot_id", "supervisor")}
    assert removed(old).gone
    run = launch("exec sleep 600", run="again", dir=str(old))
    with pytest.raises(NodeError, match="another run is in that folder"):
        cleaning.remove(asked(dir=str(old), unended=True, **words))
    assert run.folder.exists()


def test_ticks_of_a_live_process_are_those_of_the_record(tmp_path: Path) -> None:
    folder = make(tmp_path, supervisor={"pid": os.getpid(), "ticks": ticks(os.getpid())})
    with pytest.raises(NodeError, match="its supervisor is still running"):
        removed(folder)


def discarded(folder: Path | str) -> None:
    assert cleaning.discard(asked(dir=str(folder))) == {}


def test_an_undone_launch_leaves_nothing(tmp_path: Path) -> None:
    folder, other = make(tmp_path, ended=False), make(tmp_path, node="node2")
    discarded(folder)
    assert names(tmp_path / "old") == ["node2"]
    discarded(f"{tmp_path}//old/../old/{other.name}")
    assert names(tmp_path) == []
    with pytest.raises(NodeError) as found:
        discarded(folder)
    assert found.value.kind == "gone"


def test_a_discarded_folder_first_loses_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with any removal: if nothing can be deleted, nothing looks like a run either."""
    folder = make(tmp_path)
    monkeypatch.setattr(trees, "cleared", lambda path, until: trees.Cleared(0, "no", late=True))
    discarded(folder)
    assert told(tmp_path) == []
    (trash,) = names(tmp_path)
    assert trash.startswith(trees.TRASH)
    monkeypatch.undo()
    discarded(make(tmp_path, "next"))
    assert names(tmp_path) == []


def test_what_lives_or_is_no_run_folder_is_not_discarded(tmp_path: Path) -> None:
    alive = make(tmp_path, supervisor={"pid": os.getpid(), "ticks": ticks(os.getpid())})
    with pytest.raises(NodeError, match="is in use"):
        discarded(alive)
    elsewhere = make(tmp_path, "b")
    moved = elsewhere.parent.rename(tmp_path / "c") / "node1"
    with pytest.raises(NodeError, match="not a run folder of b"):
        discarded(moved)
    with pytest.raises(NodeError):
        discarded(tmp_path)
    assert (alive / "rank-0.log").exists()
    assert (moved / "rank-0.log").exists()
