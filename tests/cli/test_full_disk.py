"""A state folder that cannot be written: path, cause and what to do in a line, code 2, nothing half-done."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.verbs import Verbs
from tests.needs import lacking
from tests.waiting import until

HELD = "echo one; while [ ! -e go ]; do sleep 0.05; done; "
MUCH = HELD + f"i=0; while [ $i -lt 3000 ]; do echo two $i {'.' * 40}; i=$((i+1)); done"
"""More than fits into what is left of a block on a full disk."""


class Disk:
    """A file system of 4 MiB of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fill = path / "fill"

    def fill(self) -> None:
        """Leave not a byte free."""
        with self._fill.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 10, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def free(self) -> None:
        """Give the space back."""
        self._fill.unlink()

    def mount(self, option: str) -> None:
        """Mount it anew: ``ro``."""
        subprocess.run(["mount", "-o", f"remount,{option}", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True)
    if made.returncode:
        lacking(f"a tmpfs cannot be mounted: {made.stderr.decode()}")
    yield Disk(path)
    subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def verbs(disk: Disk, tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Verbs:
    return Verbs(disk.path, tmp_path / "work", quick_cockpit)


def whole(verbs: Verbs, run: str) -> None:
    """The journal has whole lines alone, the spool what the node has."""
    journal = (verbs.runs / run / "journal.jsonl").read_text()
    assert journal.endswith("\n")
    for line in journal.splitlines():
        assert "e" in json.loads(line)
    assert verbs.spooled(run, 0).read_bytes() == verbs.on_node(run, 0).read_bytes()


@pytest.mark.root
def test_a_run_does_not_begin_on_a_full_disk(disk: Disk, verbs: Verbs) -> None:
    disk.fill()
    done = verbs.call(*verbs.words("r", "echo one"))
    assert done.code == 2
    assert "No space left on device; free some space there and try again" in done.err
    assert str(verbs.runs / "r") in done.err or str(disk.path / "cockpit") in done.err
    disk.free()
    assert not list(verbs.runs.glob("*"))
    assert not list(verbs.runs.glob(".*"))
    assert not list(verbs.work.glob("nodes/cockpit-*/r"))
    assert verbs.call(*verbs.words("r", "echo one")).code == 0


@pytest.mark.root
def test_logs_wait_while_the_disk_is_full(disk: Disk, verbs: Verbs) -> None:
    script = "i=0; while [ ! -e end ]; do echo line $i; i=$((i+1)); sleep 0.1; done"
    run = verbs.start(*verbs.words("r", script))
    until(lambda: verbs.spooled("r", 0).exists() and verbs.spooled("r", 0).stat().st_size, "output")
    disk.fill()
    assert run.stderr
    said = []
    for line in run.stderr:
        said.append(line)
        if "log transfer paused" in line:
            break
    # Free space is checked once a second: a write may be refused first.
    assert "kept free" in said[-1] or "No space left" in said[-1]
    assert "the transfer resumes automatically" in said[-1]
    disk.free()
    (verbs.work / "end").touch()
    done = verbs.end(run)
    assert done.code == 0, done.err
    assert "log transfer resumes" in done.err
    printed = verbs.on_node("r", 0).read_text().splitlines()
    assert [line.partition("| ")[2] for line in done.out.splitlines()] == printed
    whole(verbs, "r")


@pytest.mark.root
def test_a_run_that_ends_on_a_full_disk_is_attached_to_later(disk: Disk, verbs: Verbs) -> None:
    run = verbs.start(*verbs.words("r", MUCH))
    until(lambda: verbs.spooled("r", 0).exists() and verbs.spooled("r", 0).stat().st_size, "output")
    disk.fill()
    (verbs.work / "go").touch()
    done = verbs.end(run)
    assert done.code == 2, done.err
    assert "cockpit attach r" in done.err
    assert verbs.call("attach", "--plain", "r").code == 2
    ps = verbs.call("ps")
    assert ps.code == 0
    assert ps.out.splitlines()[1].startswith("r ")
    logs = verbs.call("logs", "r")
    assert logs.code == 0
    assert "one" in logs.out
    disk.fill()
    collected = verbs.call("collect", "r")
    assert collected.code == 2
    assert "No space left on device" in collected.err
    disk.free()
    again = verbs.call("attach", "--plain", "r")
    assert again.code == 0, again.err
    whole(verbs, "r")


@pytest.mark.slow
def test_leaving_where_the_journal_cannot_be_written(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)
    run = verbs.start(*verbs.words("r", HELD))
    until(lambda: verbs.spooled("r", 0).exists() and verbs.spooled("r", 0).stat().st_size, "output")
    # As a full disk, to the byte, and without being root; stopped, so that nothing that comes finds it first.
    run.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(run.pid).status() == psutil.STATUS_STOPPED, "it stands still")
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (1, 1))
    run.send_signal(signal.SIGINT)
    run.send_signal(signal.SIGCONT)
    done = verbs.end(run)
    assert done.code == 130
    assert "journal.jsonl: cannot write the journal: File too large; raise the limit" in done.err
    assert "cockpit attach r" in done.err
    (verbs.work / "go").touch()
    assert verbs.call("attach", "--plain", "r").code == 0
    whole(verbs, "r")


@pytest.mark.slow
def test_a_watch_that_cannot_write_ends_and_the_run_goes_on(
    tmp_path: Path, quick_cockpit: tuple[str, ...]
) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)
    run = verbs.start(*verbs.words("r", MUCH))
    until(lambda: verbs.spooled("r", 0).exists() and verbs.spooled("r", 0).stat().st_size, "output")
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (2000, 2000))
    (verbs.work / "go").touch()
    done = verbs.end(run)
    assert done.code == 2, done.err
    assert "File too large; raise the limit of file sizes" in done.err
    assert "nothing is lost, the node keeps its files" in done.err
    assert "cockpit attach r" in done.err
    assert verbs.call("attach", "--plain", "r").code == 0
    whole(verbs, "r")


@pytest.mark.root
def test_stacks_on_a_full_disk(disk: Disk, verbs: Verbs) -> None:
    run = verbs.start(*verbs.words("r", HELD))
    until(lambda: verbs.spooled("r", 0).exists() and verbs.spooled("r", 0).stat().st_size, "output")
    run.kill()  # it would leave, once it has something to write
    verbs.end(run)
    disk.fill()
    stacks = verbs.call("stacks", "r")
    assert stacks.code == 2
    assert "No space left on device" in stacks.err
    disk.free()
    (verbs.work / "go").touch()
    assert verbs.call("attach", "--plain", "r").code == 0


@pytest.mark.root
def test_a_disk_that_is_read_only(disk: Disk, verbs: Verbs) -> None:
    assert verbs.call(*verbs.words("r", "echo one")).code == 0
    disk.mount("ro")
    begun = verbs.call(*verbs.words("s", "echo one"))
    assert begun.code == 2
    assert "Read-only file system; that file system is read-only; another state folder" in begun.err
    attached = verbs.call("attach", "--plain", "r")
    assert attached.code == 0, attached.err
    said = "r: its folder is on a read-only file system; this one watches, and prints new lines only"
    assert said in attached.err
    assert verbs.call("ps").code == 0
    logs = verbs.call("logs", "r")
    assert logs.code == 0
    assert "one" in logs.out
    assert verbs.call("collect", "r").code == 2
    disk.mount("rw")


def test_a_file_in_place_of_the_state_folder(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)
    verbs.state.write_text("")
    done = verbs.call(*verbs.words("r", "echo one"))
    assert done.code == 2
    assert "cannot make the run folder: File exists; move it away" in done.err
    assert verbs.call("ps").code == 2
