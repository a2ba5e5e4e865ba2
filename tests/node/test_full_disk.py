"""A full disk on a node: how ranks ended is recorded all the same, and it is said that the disk is full."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.base import record
from tests.needs import lacking, require
from tests.node.conftest import Launch
from tests.node.runs import command, program
from tests.waiting import until

# When all ranks have started, until not even one byte can be written.
FILL = """
import os, signal, sys, time
os.chdir(os.environ["COCKPIT_DIR"])
for rank in range(int(os.environ["WORLD_SIZE"])):
    while not os.path.exists("rank-%d.start.json" % rank):
        time.sleep(0.02)
with open("filler-" + os.environ["RANK"], "wb", buffering=0) as file:
    for size in (1 << 16, 1 << 10, 1):
        try:
            while True:
                file.write(b"x" * size)
        except OSError:
            pass
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(7)
"""


pytestmark = pytest.mark.root


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    mount = require("mount")
    base = tmp_path / "small"
    base.mkdir(mode=0o700)
    options = ["-t", "tmpfs", "-o", "size=4m,mode=700", "none", str(base)]
    if subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        lacking("mounting a tmpfs is not permitted")
    yield base
    subprocess.run(["umount", "-l", str(base)], capture_output=True, check=True)


def test_exits_are_recorded_and_the_cause_is_said(launch: Launch, tmp_path: Path, small: Path) -> None:
    (tmp_path / "fill.py").write_text(FILL)
    fill = program(tmp_path / "fill", f"exec {sys.executable} {tmp_path / 'fill.py'}\n")
    run = launch(command(2, fill), dir=str(small / "run" / "node1"))
    run.ended()
    room = os.statvfs(run.folder)
    assert room.f_bavail == 0
    assert not run.events("rank_lost")
    assert (run.event("rank_exited", rank=0)["code"], run.event("rank_exited", rank=1)["signal"]) == (7, 9)
    [note] = run.events("note")
    assert f"{run.folder}: the disk is full" in note["text"] or "No space left on device" in note["text"]
    assert (run.folder / record.SUPERVISOR_LOG).read_text() == ""


def test_a_small_disk_that_has_room_again_is_said_to_have_it(
    launch: Launch, tmp_path: Path, small: Path
) -> None:
    text = f"""
    cd "$COCKPIT_DIR"
    for size in 65536 1024 1; do dd if=/dev/zero bs=$size 2>/dev/null >>filler; done
    until [ -e {tmp_path}/free ]; do sleep 0.05; done
    rm filler
    """
    run = launch(command(1, program(tmp_path / "fill", text)), dir=str(small / "run" / "node1"))
    until(lambda: run.events("note"), "it is said that the disk is full")
    (tmp_path / "free").touch()
    run.ended()
    full, again = run.events("note")
    assert full["text"].endswith("; until it can be written again, what ranks print may be lost")
    assert f"{run.folder} can be written again" in again["text"]


def test_an_end_for_which_there_is_no_room_is_told_to_the_supervisor(
    launch: Launch, tmp_path: Path, small: Path
) -> None:
    """Where room cannot be kept ahead, as on file systems that copy what is written over."""
    (tmp_path / "fill.py").write_text(FILL)
    text = f'rm -f "$COCKPIT_DIR"/*.exit.json.tmp\nexec {sys.executable} {tmp_path / "fill.py"}\n'
    run = launch(command(1, program(tmp_path / "fill", text)), dir=str(small / "run" / "node1"))
    run.ended()
    assert not (run.folder / record.rank_exit(0)).exists()
    assert run.event("rank_exited", rank=0)["code"] == 7
    assert not run.events("rank_lost")


def test_an_end_that_nobody_could_tell_says_why(launch: Launch, tmp_path: Path, small: Path) -> None:
    (tmp_path / "fill.py").write_text(FILL)
    text = f"""
    rm -f "$COCKPIT_DIR"/*.exit.json.tmp "$COCKPIT_DIR"/helpers.sock
    exec {sys.executable} {tmp_path / "fill.py"}
    """
    run = launch(command(1, program(tmp_path / "fill", text)), dir=str(small / "run" / "node1"))
    run.ended()
    assert not run.events("rank_exited")
    why = run.event("rank_lost")["why"]
    assert "neither its wrapper nor the supervisor saw its status: " in why
    assert "the disk is full" in why or "No space left on device" in why


def test_a_disk_full_from_the_start_stops_no_rank(launch: Launch, tmp_path: Path, small: Path) -> None:
    """Neither its start nor its environment can be recorded, nor can it be said in the launcher's log."""
    text = """
    cd "$COCKPIT_DIR"
    for size in 65536 1024 1; do dd if=/dev/zero bs=$size 2>/dev/null >>filler; done
    """
    done = tmp_path / "done"
    rank = program(tmp_path / "rank", f"sleep 1; echo $RANK >{done}; exit 5\n")
    run = launch(text + command(1, rank), dir=str(small / "run" / "node1"))
    until(lambda: run.events("launcher_exited"), "the end of the launcher")
    assert done.read_text() == "0\n"
    assert run.event("launcher_exited")["code"] == 5
    assert not (run.folder / record.rank_environ(0)).exists()
