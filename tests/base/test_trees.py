"""Folder trees: what they take, and that removing one touches nothing beside it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from cockpit.base.trees import TRASH, cleared, measured, trash_name
from tests.needs import lacking, require


def soon() -> float:
    return time.monotonic() + 60


def blocks(*paths: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in paths)


def test_what_a_tree_takes(tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "inner"
    inner.mkdir(parents=True)
    (inner / "log").write_bytes(bytes(100_000))
    os.link(inner / "log", inner / "again")
    (inner / "sparse").touch()
    os.truncate(inner / "sparse", 1 << 30)
    (inner / "link").symlink_to("/usr")
    os.utime(inner / "log", (5000, 5000))
    os.utime(inner / "sparse", (7000, 7000))
    os.utime(inner / "link", (9000, 9000), follow_symlinks=False)
    taken = measured(str(tmp_path / "tree"), soon())
    counted = [tmp_path / "tree", inner, *(inner / name for name in ("log", "sparse", "link"))]
    assert taken == (blocks(*counted), 5, 9000.0, True, "")
    assert taken.bytes < 1 << 20


def test_what_cannot_all_be_looked_at_is_not_whole(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).mkdir()
    assert not measured(str(tmp_path), soon(), files=5).whole
    assert not measured(str(tmp_path), time.monotonic() - 1).whole
    assert not measured(str(tmp_path / "none"), soon()).whole
    (tmp_path / "file").touch()
    assert not measured(str(tmp_path / "file"), soon()).whole
    (tmp_path / "link").symlink_to(tmp_path)
    assert measured(str(tmp_path / "link"), soon()).files == 0


def test_a_tree_is_removed_and_what_its_links_lead_to_is_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "folder").symlink_to(outside)
    (tree / "a" / "file").symlink_to(outside / "precious")
    os.mkfifo(tree / "a" / "fifo")
    (tree / "a" / "b" / "log").write_bytes(bytes(8192))
    (tree / "a" / "b").chmod(0o500)
    size = (tree / "a" / "b" / "log").stat().st_blocks * 512
    found = cleared(str(tree), soon())
    assert (found.left, found.late) == ("", False)
    assert found.bytes >= size
    assert not tree.exists()
    assert (outside / "precious").read_text() == "x"


def test_a_link_is_no_tree(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to("real")
    assert "link: " in cleared(str(tmp_path / "link"), soon()).left
    assert (tmp_path / "real" / "file").exists()
    assert cleared(str(tmp_path / "none"), soon()) == (0, "", False)


def test_what_takes_too_long_goes_on_later(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    for number in range(20):
        (tree / "inner" / str(number)).touch()
    first = cleared(str(tree), soon(), files=8)
    assert first.late
    assert 0 < len(list((tree / "inner").iterdir())) < 20
    assert cleared(str(tree), soon()).left == ""
    assert not tree.exists()


def test_what_is_too_deep_is_left(tmp_path: Path) -> None:
    made = tmp_path / "tree"
    made.mkdir()
    at = made
    for _ in range(210):
        at = at / "d"
        at.mkdir()
    found = cleared(str(made), soon())
    assert "too many folders within each other" in found.left
    assert not found.late
    assert made.exists()


@pytest.mark.root
def test_another_file_system_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "tree" / "mounted"
    place.mkdir(parents=True)
    (tmp_path / "tree" / "log").touch()
    options = ["-t", "tmpfs", "none", str(place)]
    if subprocess.run([require("mount"), *options], capture_output=True, check=False).returncode:
        lacking("mounting a tmpfs is not permitted")
    try:
        (place / "precious").touch()
        assert measured(str(tmp_path / "tree"), soon()).mounted == str(place)
        assert "mounted there" in cleared(str(tmp_path / "tree"), soon()).left
        assert (place / "precious").exists()
        assert not (tmp_path / "tree" / "log").exists()
    finally:
        subprocess.run(["umount", str(place)], capture_output=True, check=False)


def test_names_for_the_trash_differ() -> None:
    assert trash_name() != trash_name()
    assert trash_name().startswith(TRASH)
    assert TRASH.startswith(".")
