"""nsys's session of a run: where it is, what is believed of it, what becomes of what was left unfinished."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record, verbs
from cockpit.base.shared_fields import Target
from cockpit.node import procfs
from cockpit.node.profile import nsys
from cockpit.node.run import nsys_session, reports
from cockpit.node.run.nsys_session import NoSession
from tests.node.runs import program

NAME = "cockpit-01234567-89ab"
TARGETS = (Target(0, os.getpid(), procfs.ticks(os.getpid())),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder of a run that is ready."""
    made = tmp_path / "run"
    (made / record.REPORTS).mkdir(parents=True)
    keep(made)
    (made / record.NSYS_SESSION).write_text(NAME + "\n")
    (made / "launcher.pid").write_text(f"{os.getpid()}\n")
    return made


def keep(folder: Path, **profile: Any) -> None:
    """Write its record."""
    told = {
        "format": record.FORMAT,
        "t": 1.0,
        "run": "r",
        "node": "n/1",
        "ranks": [0],
        "boot_id": procfs.boot_id(),
        "supervisor": {"pid": 1, "ticks": 1},
        "profile": {"nsys": str(folder.parent / "nsys"), "report": "reports/r-n", "ready": "yes", **profile},
    }
    (folder / record.RECORD).write_text(json.dumps(told))


def tool(folder: Path, script: str) -> None:
    """An nsys that does this."""
    program(folder.parent / "nsys", script)


def found(folder: Path) -> nsys_session.Session:
    """Its one session."""
    (place,) = nsys_session.places(str(folder), TARGETS)
    return nsys_session.find(str(folder), place.file, place.pid)


def why(folder: Path | str) -> str:
    """Why nothing can be recorded."""
    return nsys.ready(str(folder) if folder else "", TARGETS)[0][0]


def state(folder: Path) -> str:
    return found(folder).state()


def test_its_state_is_what_nsys_lists(folder: Path) -> None:
    head = "              ID         TIME                       STATE LAUNCH NAME"
    listed = [head, f"1 00:03 Idle 1 {NAME}-2", f"2 00:03 Collection 1 {NAME}", "x"]
    tool(folder, "cat <<'END'\n%s\nEND\n" % "\n".join(listed))
    assert state(folder) == "Collection"
    assert why(folder) == ""
    tool(folder, f"echo '{head}'\n")
    assert state(folder) == ""
    assert why(folder) == "its nsys session has ended"


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "not ready": (lambda folder: keep(folder, ready=""), "not launched with --profile nsys-ready"),
    "no name": (lambda folder: (folder / record.NSYS_SESSION).unlink(), "has not launched it"),
    "no launcher": (lambda folder: (folder / "launcher.pid").unlink(), "has not launched it yet"),
    "a name": (lambda folder: (folder / record.NSYS_SESSION).write_text("-x y"), "is damaged"),
    "no ASCII": (lambda folder: (folder / record.NSYS_SESSION).write_bytes(b"\xff"), "has not launched"),
    "a large name": (lambda folder: (folder / record.NSYS_SESSION).write_text("a" * 10**6), ""),
    "a folder": (lambda folder: _folder(folder / record.NSYS_SESSION), "has not launched it"),
    "a pid": (lambda folder: (folder / "launcher.pid").write_text("9" * 5000), "has not launched it yet"),
    "no tool": (lambda folder: keep(folder, nsys="/nowhere/nsys"), "No such file"),
    "no record": (lambda folder: (folder / record.RECORD).unlink(), "no run record"),
    "an error": (lambda folder: tool(folder, "echo no; exit 1\n"), "nsys does not list its sessions: no"),
}


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_said(folder: Path, how: str) -> None:
    tool(folder, "true\n")
    damage, said = BROKEN[how]
    damage(folder)
    assert said in why(folder)
    assert why(folder)


def test_a_job_that_cockpit_has_not_started_has_none() -> None:
    assert "cockpit did not start it" in why("")


def test_an_nsys_that_hangs_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_session, "LIST_S", 0.3)
    tool(folder, "exec sleep 600\n")
    with pytest.raises(NoSession, match=r"took over 0.3 s"):
        state(folder)


def test_it_is_looked_for_where_the_launcher_has_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    monkeypatch.setattr(procfs, "environment", lambda pid: [b"TMPDIR=/theirs", b"X=1"])
    theirs = found(folder)
    assert (theirs.temporary, theirs.environment["TMPDIR"]) == ("/theirs", "/theirs")
    monkeypatch.setattr(procfs, "environment", lambda pid: [])
    assert "TMPDIR" not in found(folder).environment


def test_only_one_records(folder: Path) -> None:
    first = nsys_session.lock(str(folder), record.NSYS_SESSION)
    assert first is not None
    assert nsys_session.lock(str(folder), record.NSYS_SESSION) is None
    assert why(folder) == "another nsys profile of it is running"
    os.close(first)
    second = nsys_session.lock(str(folder), record.NSYS_SESSION)
    assert second is not None
    os.close(second)


def test_at_the_end_what_was_left_unfinished_is_a_report(folder: Path) -> None:
    left = Path(nsys_session.parts(str(folder), "one-1"))
    assert left.stat().st_mode & 0o777 == 0o700
    (left / "a.nsys-rep").write_bytes(b"report")
    (left / "b.nsys-rep").write_bytes(b"")
    (left / "c.tmp").write_bytes(b"x")
    (folder / record.REPORTS / "nsys.link").symlink_to("/etc")
    events: list[dict[str, Any]] = []
    reports.finish(
        str(folder),
        {"nsys": "nsys", "ready": "yes"},
        "why",
        lambda event, **facts: events.append(facts),
        timeout_s=5,
        cancelled=bool,
    )
    assert [(one["name"], one["state"]) for one in events] == [("a.nsys-rep", "ready")]
    assert not left.exists()
    assert os.path.exists("/etc/passwd")


def test_the_end_of_a_run_waits_for_who_records_but_not_for_ever(folder: Path) -> None:
    number = nsys_session.lock(str(folder), record.NSYS_SESSION)
    assert number is not None
    waited: list[int] = []
    nsys_session.settle(str(folder), 60, lambda: waited.append(1) or len(waited) > 2)  # type: ignore[func-returns-value]
    assert len(waited) == 3
    nsys_session.settle(str(folder), 0.05, bool)
    fcntl.flock(number, fcntl.LOCK_UN)
    os.close(number)
    nsys_session.settle(str(folder), 60, bool)


def test_its_report_has_a_name_that_a_file_can_have(folder: Path) -> None:
    asked = verbs.Profile(str(folder), TARGETS, "nsys", "one-1")
    (place,) = nsys_session.places(str(folder), TARGETS)
    assert nsys._stem(asked, place) == "r.n_1.nsys.one-1"


def test_ranks_that_nsys_has_launched_have_a_session_each(folder: Path) -> None:
    keep(folder, ranks="0-1")
    head = "              ID         TIME                       STATE LAUNCH NAME"
    tool(folder, f"echo '{head}'; echo '1 00:03 Launched 1 {NAME}'\n")
    (folder / record.rank_session(0)).write_text(NAME)
    both = (*TARGETS, Target(1, 1, 1))
    whys, _ = nsys.ready(str(folder), both)
    assert whys == {0: "", 1: "nsys has not launched it"}
    places = nsys_session.places(str(folder), both)
    assert [(place.file, place.pid) for place in places] == [
        ("rank-0.nsys.session", os.getpid()),
        ("rank-1.nsys.session", 1),
    ]
    asked = verbs.Profile(str(folder), both, "nsys", "one-1")
    assert nsys._stem(asked, places[1]) == "r.n_1.rank-1.nsys.one-1"
