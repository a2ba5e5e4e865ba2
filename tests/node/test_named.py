"""Files that a person names on a node: which are found, which are refused and why, which bytes are sent."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import gate
from cockpit.base.answers import FindAnswer
from cockpit.node.calls import Call
from cockpit.node.jobs import named
from cockpit.node.run import collect
from tests.node import folders


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with files of all kinds."""
    work = tmp_path / "work"
    (work / "deep").mkdir(parents=True)
    (work / "a.txt").write_text("one")
    (work / "b [1].txt").write_text("two")
    (work / "deep/c.txt").write_text("three")
    (work / "link.txt").symlink_to(work / "deep/c.txt")
    (work / "loop").symlink_to("loop")
    (work / "gone").symlink_to("nowhere")
    (work / "null").symlink_to("/dev/null")
    (work / "self").symlink_to("/proc/self/environ")
    (tmp_path / "around").symlink_to("work")
    os.mkfifo(work / "fifo")
    return work


def find(cwd: Path, *words: str, targets: tuple[dict[str, int], ...] = ()) -> FindAnswer:
    header = {"id": 1, "do": "find", "words": list(words), "cwd": str(cwd), "targets": list(targets)}
    return gate.read(FindAnswer, named.find(Call(header, b"", lambda head, data: None)))


def test_paths_and_patterns_are_found_where_the_ranks_work(place: Path) -> None:
    """A name with brackets is a name if there is such a file; no shell reads any."""
    told = find(place, "*.txt", "b [1].txt", "deep/../a.txt", "none", "$(id)*")
    assert {one.path: one.size for one in told.files} == {
        str(place / "a.txt"): 3,
        str(place / "b [1].txt"): 3,
        str(place / "link.txt"): 5,
    }
    (link,) = (one for one in told.files if one.path.endswith("link.txt"))
    assert (link.dir, link.file) == (str(place / "deep"), "c.txt")
    assert told.absent == ("none", "$(id)*")
    assert told.trouble == ()


def test_what_is_no_file_is_told_when_it_is_named_and_passed_over_in_a_pattern(place: Path) -> None:
    words = ["fifo", "deep", "null", "self", "gone", "loop"]
    told = find(place, *words)
    assert told.files == ()
    assert [text.replace(str(place), "") for text in told.trouble] == [
        "/fifo: is not a file on a disk",
        "/deep: is a folder; name files in it: /deep/*",
        "/null: is not a file on a disk",
        "/self: is not a file on a disk",
        "/gone: No such file or directory",
        "/loop: Too many levels of symbolic links",
    ]
    assert {text.split(":")[1] for text in find(place, "*").trouble} == {
        " No such file or directory",
        " Too many levels of symbolic links",
    }


def test_relative_to_where_a_rank_works_now(place: Path) -> None:
    words = [sys.executable, "-c", "import os; os.chdir('deep'); print('there', flush=True); input()"]
    with subprocess.Popen(words, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        target = {"rank": 0, "pid": process.pid, "ticks": folders.ticks(process.pid)}
        assert [one.path for one in find(place, "c.txt", targets=(target,)).files] == [
            str(place / "deep/c.txt")
        ]
        process.communicate(b"\n")
    assert find(place, "c.txt", targets=(target,)).absent == ("c.txt",)


def test_one_file_by_two_paths_is_one(place: Path) -> None:
    told = find(place.parent, "work/a.txt", "around/a.txt", f"{place}/./a.txt")
    assert [one.path for one in told.files] == [str(place / "a.txt")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_told(place: Path) -> None:
    (place / "a.txt").chmod(0)
    (place / "deep").chmod(0)
    try:
        told = find(place, "*.txt", "deep/c.txt")
    finally:
        (place / "deep").chmod(0o700)
    assert [text.rpartition(": ")[2] for text in told.trouble] == ["Permission denied"] * 3


def test_a_pattern_that_matches_no_end_of_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MATCHES", 2)
    told = find(place, "*")
    assert len(told.files) <= 2
    assert told.trouble[0] == "* matches more than 2 files; the others are not fetched"


def asked(path: Path, **more: Any) -> dict[str, Any]:
    return {"id": 1, "dir": str(path.parent), "file": path.name, "named": True, **more}


def test_of_a_file_that_grows_the_first_bytes_are_hashed_and_sent(place: Path) -> None:
    path = place / "grows"
    path.write_bytes(b"0123456789")
    told = collect.digest(Call(asked(path, size=4), b"", lambda head, data: None))
    assert told == {"sha256": hashlib.sha256(b"0123").hexdigest(), "size": 4, "changed": False, "rest": 6}
    sent: list[bytes] = []
    call = Call(asked(path, size=4, offset=1), b"", lambda head, data: sent.append(data))
    call.add_credit(1 << 20)
    assert collect.read(call) == {"size": 4}
    assert b"".join(sent) == b"123"
    path.write_bytes(b"01")
    assert collect.digest(Call(asked(path, size=4), b"", lambda head, data: None))["changed"]


def test_what_became_a_link_or_a_fifo_since_it_was_found_is_not_read(place: Path) -> None:
    for name in ("link.txt", "fifo"):
        with pytest.raises(OSError, match=r"symbolic link|not a regular file"):
            collect.digest(Call(asked(place / name), b"", lambda head, data: None))
