"""Reports of nsys on their node: exported, summed up, nothing left; with a stand-in, and the real one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record, verbs
from cockpit.base.answers import ProfileItem
from cockpit.base.gate import plain, read
from cockpit.base.profile.summary import RankProfile
from cockpit.base.shared_fields import Target
from cockpit.node import procfs, space
from cockpit.node.calls import Call, at_end
from cockpit.node.profile import child, nsys_reports
from cockpit.node.run.reports import importers
from tests.needs import require
from tests.node.nsys_exports import job
from tests.waiting import until

PIDS = (4711, 4712)


class Node:
    """A run folder with reports, and what is nsys there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports = folder / record.REPORTS
        self.reports.mkdir(parents=True)
        self.nsys = folder / "nsys"
        self.ready = folder / "ready.sqlite"
        job(self.ready, PIDS)
        self.be(f'cp {self.ready} "$out"')
        for rank, pid in enumerate(PIDS):
            self.start(rank, pid)
        self.items: list[tuple[dict[str, Any], bytes]] = []

    def be(self, export: str, helps: str = "--type --include-blobs=") -> None:
        """Let nsys export like this; ``$out`` is where to, ``$report`` where from."""
        self.nsys.write_text(
            '#!/bin/bash\nif [ "$2" = --help ]; then echo "' + helps + '"; exit 0; fi\n'
            f'echo "$PWD $(ls -A | wc -l) $*" >>{self.folder}/asked\nreport=${{@: -1}}\n'
            'while [ "$1" != --output ]; do shift; done\nout=$2\n' + export + "\n"
        )
        self.nsys.chmod(0o755)

    def start(self, rank: int, pid: int, ticks: int = 7) -> None:
        facts = {
            "t": 1.0, "rank": rank, "attempt": 0, "local_rank": rank, "world_size": 2,
            "pid": pid, "ticks": ticks,
            "wrapper": 2, "wrapper_ticks": 2, "parent": 1, "parent_ticks": 1, "max_restarts": 0,
        }  # fmt: skip
        (self.folder / record.rank_start(rank)).write_text(json.dumps(facts))

    def report(self, name: str = "otter-node1.nsys-rep", data: bytes = b"report") -> str:
        (self.reports / name).write_bytes(data)
        return name

    def call(self, *files: str, **more: Any) -> Call:
        request = verbs.SumUp(str(self.folder), files, (0, 1), tools=(str(self.nsys),), **more)
        head = {"id": 1, **plain(request)}
        return Call(head, b"", lambda header, data: self.items.append((header["item"], data)))

    def sum_up(self, *files: str, **more: Any) -> dict[int, ProfileItem]:
        """The last item of each rank."""
        nsys_reports.sumup(self.call(*files, **more))
        assert not list(self.reports.glob(".*")), "an export is left"
        return {item["rank"]: read(ProfileItem, item) for item, _ in self.items}

    def profile(self, rank: int) -> RankProfile:
        data = next(data for item, data in self.items if item["rank"] == rank and data)
        return read(RankProfile, json.loads(zlib.decompress(data)))


@pytest.fixture
def node(tmp_path: Path, pyz: bytes, monkeypatch: pytest.MonkeyPatch) -> Node:
    """The node code is beside it, as an agent has it."""
    (tmp_path / "node.pyz").write_bytes(pyz)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "node.pyz")])
    return Node(tmp_path / "run")


def test_a_report_of_a_node_is_that_of_all_its_ranks(node: Node) -> None:
    last = node.sum_up(node.report())
    told = [(rank, one.state, one.file, one.size) for rank, one in sorted(last.items())]
    assert told == [(rank, "done", "otter-node1.nsys-rep", 6) for rank in (0, 1)]
    assert [item["state"] for item, _ in node.items if item["rank"] == 0] == ["exporting", "reading", "done"]
    one = node.profile(1)
    assert (one.rank, one.file, len(one.steps), one.collectives[0].size) == (1, last[1].file, 4, 1 << 20)
    where, many, words = (node.folder / "asked").read_text().split(" ", 2)
    assert where.startswith(str(node.reports))
    assert many == "1", "nsys was started where other files are"  # its own link to the report
    assert "--include-blobs=true" in words


def test_an_older_nsys_is_not_asked_for_what_it_cannot(node: Node) -> None:
    node.be(f'cp {node.ready} "$out"', helps="--type --lazy")
    assert node.sum_up(node.report())[0].state == "done"
    assert "--include-blobs" not in (node.folder / "asked").read_text()


def test_a_report_of_a_rank_says_whose_it_is(node: Node) -> None:
    names = [node.report(f"otter.node1.rank-{rank}.nsys-rep") for rank in (0, 1)]
    last = node.sum_up(*names)
    assert [(last[rank].state, last[rank].file) for rank in (0, 1)] == [("done", name) for name in names]


@pytest.mark.slow
def test_reports_by_names_of_the_users_own_are_told_by_their_processes(node: Node) -> None:
    node.be(f'case "$(cat "$report")" in 0) cp {node.ready} "$out";; *) cp {node.folder}/other "$out";; esac')
    job(node.ready.with_name("one"), PIDS[:1]).replace(node.ready)
    job(node.folder / "other", PIDS[1:])
    last = node.sum_up(node.report("mine.nsys-rep", b"0"), node.report("theirs.nsys-rep", b"1"))
    assert [(last[rank].state, last[rank].file) for rank in (0, 1)] == [
        ("done", "mine.nsys-rep"), ("done", "theirs.nsys-rep"),
    ]  # fmt: skip


def test_an_export_that_is_here_already_needs_no_nsys(node: Node) -> None:
    shutil.copy(node.ready, node.reports / "otter-node1.sqlite")
    node.nsys.unlink()
    assert node.sum_up("otter-node1.sqlite")[0].state == "done"


@pytest.mark.parametrize(
    ("export", "why"),
    [
        ("echo 'no license' >&2; exit 3", "no license"),
        ("kill -9 $$", "killed by signal 9"),
        ("exit 0", "nsys wrote no export"),
        ('echo no >"$out"', "the report cannot be read: it is not a usable SQLite export"),
        ('ln -s /etc/passwd "$out"', "nsys wrote no export"),
    ],
)
def test_an_export_that_fails_is_said_and_nothing_is_left(node: Node, export: str, why: str) -> None:
    node.be(export)
    last = node.sum_up(node.report())
    assert [one.state for one in last.values()] == ["failed", "failed"]
    assert why in last[0].what


def test_without_nsys(node: Node) -> None:
    node.nsys.unlink()
    assert "no nsys here" in node.sum_up(node.report())[0].what


def test_a_report_that_is_a_link_or_gone(node: Node) -> None:
    (node.reports / "x.nsys-rep").symlink_to("/etc/passwd")
    assert node.sum_up("x.nsys-rep")[0].what == "a symbolic link"
    node.items.clear()
    assert node.sum_up("gone.nsys-rep")[0].what == "No such file or directory"


def test_without_room_nothing_is_exported(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "free", lambda folder: 1000)
    assert "of disk, 0.0 GB are free; make room" in node.sum_up(node.report())[0].what
    assert not (node.folder / "asked").exists()


def test_memory_is_left_to_ranks_that_run(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_reports, "_available", lambda: 1000)
    assert node.sum_up(node.report())[0].state == "done"  # after the run
    node.items.clear()
    ticks = procfs.ticks(os.getpid())
    assert ticks is not None
    node.start(0, os.getpid(), ticks)
    assert "while ranks are running" in node.sum_up(node.report())[0].what


def test_an_export_that_fills_the_disk_is_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([1 << 40])
    monkeypatch.setattr(space, "free", lambda folder: next(free, 0))
    node.be('echo begun >"$out"; exec sleep 600')
    assert node.sum_up(node.report())[0].what == "its export filled the disk"


def test_nobody_wants_it_any_more(node: Node) -> None:
    node.be(f'echo $$ >{node.folder}/pid; echo begun >"$out"; exec sleep 600')
    call = node.call(node.report(), node.report("second.nsys-rep"))
    thread = threading.Thread(target=nsys_reports.sumup, args=(call,), daemon=True)
    thread.start()
    until(
        lambda: (node.folder / "pid").exists() and (node.folder / "pid").read_text().strip(), "nsys exports"
    )
    pid = int((node.folder / "pid").read_text())
    call.cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert not os.path.exists(f"/proc/{pid}")
    assert not list(node.reports.glob(".*"))
    assert (node.folder / "asked").read_text().count("\n") == 1


def test_an_agent_that_ends_leaves_nothing(node: Node) -> None:
    """Its link is lost: what it does at its end is all that it still does."""
    told = node.folder / "pid"
    node.be(f'echo $$ >{told}; echo begun >"$out"; exec sleep 600')
    call = node.call(node.report(), node.report("second.nsys-rep"))
    thread = threading.Thread(target=nsys_reports.sumup, args=(call,), daemon=True)
    thread.start()
    until(lambda: told.exists() and told.read_text().strip(), "nsys exports")
    for each in list(at_end):
        each()
    assert not list(node.reports.glob(".*"))
    # Killed; but the thread that started it may not yet have waited for it.
    until(lambda: not os.path.exists(f"/proc/{int(told.read_text())}"), "no nsys is left")
    thread.join(30)
    assert not thread.is_alive()
    assert (node.folder / "asked").read_text().count("\n") == 1


def test_one_at_a_time_and_what_a_killed_one_left_is_removed(node: Node) -> None:
    left = node.reports / nsys_reports.EXPORT
    left.mkdir()
    (left / "report.sqlite").write_bytes(b"half")
    turn = child.Turn(str(node.reports))
    assert turn.take()
    call = node.call(node.report())
    thread = threading.Thread(target=nsys_reports.sumup, args=(call,), daemon=True)
    thread.start()
    assert not (node.folder / "asked").exists()
    turn.close()
    thread.join(60)
    assert node.profile(0).rank == 0
    assert not left.exists()


def test_a_file_that_a_person_named(node: Node, tmp_path: Path) -> None:
    (tmp_path / "x.nsys-rep").write_bytes(b"report")
    request = verbs.SumUp(
        str(tmp_path), ("x.nsys-rep",), (1,), (Target(1, 4712, 7),), (str(node.nsys),), True
    )
    nsys_reports.sumup(
        Call({"id": 1, **plain(request)}, b"", lambda head, data: node.items.append((head["item"], data)))
    )
    assert node.profile(1).rank == 1
    assert not list(tmp_path.glob(".*"))


PROGRAM = """
import threading, time
def wait():
    for _ in range(5):
        time.sleep(0.02)
some = [threading.Thread(target=wait) for _ in range(2)]
for one in some: one.start()
for one in some: one.join()
"""


def real_report(folder: Path, nsys: str) -> Path:
    """What the real nsys writes of a program that mostly waits."""
    (folder / "wait.py").write_text(PROGRAM)
    words = [
        "profile",
        "-o",
        str(folder / "real"),
        "-f",
        "true",
        "-t",
        "osrt",
        "-s",
        "none",
        "--cpuctxsw=none",
    ]
    for _ in range(5):  # on a busy machine it fails at times before it has started anything
        subprocess.run(
            [nsys, *words, sys.executable, "wait.py"], cwd=folder, capture_output=True, check=False
        )
        if list(folder.glob("real.*")):
            break
    raw = folder / "real.qdstrm"
    if raw.exists():
        importer = importers(nsys)[0]
        subprocess.run(
            [importer, "-i", raw, "-o", raw.with_suffix(".nsys-rep")], capture_output=True, check=True
        )
    return folder / "real.nsys-rep"


def slept(nsys: str, report: Path) -> int:
    """The time of all its sleeps by an export of our own, in ns."""
    database = report.with_suffix(".sqlite")
    words = [nsys, "export", "--type", "sqlite", "-o", str(database), str(report)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    asked = (
        "select sum(end - start) from OSRT_API join StringIds on id = nameId where value = 'clock_nanosleep'"
    )
    with contextlib.closing(sqlite3.connect(database)) as opened:
        [[found]] = opened.execute(asked).fetchall()
    return int(found)


@pytest.mark.nsys
@pytest.mark.slow
def test_a_real_report(node: Node) -> None:
    nsys = require("nsys")
    report = real_report(node.folder, nsys)
    report.rename(node.reports / "otter.node1.rank-0.nsys-rep")
    node.nsys.unlink()
    node.nsys.symlink_to(nsys)
    last = node.sum_up("otter.node1.rank-0.nsys-rep")
    assert last[0].state == "done", last[0].what
    one = node.profile(0)
    named = {each.name: each for each in one.operations}
    sleeps = named["clock_nanosleep"]
    # As long as nsys says, not as the program slept: its clock was 1 % behind in so short a program.
    assert (sleeps.count, sleeps.own) == (10, slept(nsys, node.reports / "otter.node1.rank-0.nsys-rep"))
    assert one.steps[0].idle > 0
    assert one.steps[0].idle + one.steps[0].compute == one.steps[0].took
