"""The supervisor starts py-spy where only its children may look into a rank; nothing of it can harm it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cockpit.node import procfs
from cockpit.node.run import helpers
from cockpit.node.stacks import pyspy
from tests.node import runs, spies
from tests.node.conftest import Launch
from tests.waiting import PATIENCE_S, until

Started = tuple[runs.Run, int]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that has learnt nothing yet."""
    spies.forget(monkeypatch)


@pytest.fixture
def started(launch: Launch, tmp_path: Path) -> Started:
    """A run with one rank that sleeps, and its pid; its run folder has a path too long for a socket."""
    program = runs.program(tmp_path / "rank", f"exec {sys.executable} -c 'import time; time.sleep(1000)'\n")
    folder = tmp_path / "base" / ("long" * 30) / "node1"
    run = launch(runs.command(1, program), dir=str(folder), ranks=[0])
    pid = int(run.event("rank_started", rank=0)["pid"])
    until(lambda: "python" in os.readlink(f"/proc/{pid}/exe"), "python")
    spies.in_state(pid, "S")
    return run, pid


@pytest.fixture
def only_by_supervisor(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A py-spy that may look only as a child of the supervisor, as Yama would have it."""
    script = f'[ $PPID = {started[0].started["pid"]} ] && exec $REAL "$@"\n'
    path = spies.fake(tmp_path / "fake-spy", script + "echo 'Permission denied (os error 13)' >&2\nexit 1\n")
    monkeypatch.setattr(pyspy._Known, "spy", str(path))


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A py-spy that never ends; it writes its pid to a file beside it."""
    script = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 1000"
    return spies.fake(tmp_path / "hanging", script)


def begun(program: Path) -> int:
    """Wait until the hanging py-spy runs; return its pid."""
    file = program.with_name("pid")
    until(file.exists, "py-spy")
    pid = int(file.read_text())
    file.unlink()
    return pid


def spied(run: runs.Run, program: Path) -> helpers.Running:
    """Have the supervisor start a py-spy."""
    with open(os.devnull, "wb") as nothing:
        start = helpers.by_supervisor(str(run.folder), "py-spy")
        return start(str(program), ["dump"], nothing.fileno(), nothing.fileno())


@pytest.mark.usefixtures("only_by_supervisor")
def test_ranks_are_seen_through_the_supervisor(started: Started) -> None:
    run, pid = started
    assert spies.look(pid)[0].error == "denied"
    for _ in range(2):
        dumps = spies.look(*[pid] * 8, dir=str(run.folder))
        # They look at the same process at once, which only one at a time can hold.
        assert {one.way for one in dumps} <= {"plain", "nonblocking"}
        assert {one.frames[-1].name for one in dumps} == {"<module>"}
    run.stop(hard=True)
    events = run.ended()
    # Its own programs are no orphans of the launcher.
    assert {event["e"] for event in events} <= {
        *("supervisor_started", "launcher_started", "rank_started", "stop_requested", "stage"),
        *("rank_exited", "launcher_exited", "ended"),
    }
    assert (run.folder / "supervisor.log").read_text() == ""
    # It goes once the end is on record.
    until(lambda: not (run.folder / helpers.SOCKET).exists(), "its socket is gone")


def test_a_py_spy_that_is_not_wanted_is_ended(started: Started, hanging: Path) -> None:
    run, _ = started
    wanted = spied(run, hanging)
    pid = begun(hanging)
    assert wanted.wait(0) is None
    wanted.kill()
    assert wanted.wait(PATIENCE_S) == -signal.SIGKILL
    assert procfs.stat(pid) is None
    # An agent that is gone cannot ask for it.
    with connected(run) as peer, open(os.devnull, "wb") as nothing:
        message = json.dumps(["py-spy", str(hanging), ["dump"]]).encode()
        socket.send_fds(peer, [message], [nothing.fileno()] * 2)
        pid = begun(hanging)
    until(lambda: procfs.stat(pid) is None, "the end of py-spy")


def test_the_supervisor_ends_with_a_py_spy_under_way(started: Started, hanging: Path) -> None:
    run, _ = started
    wanted = spied(run, hanging)
    pid = begun(hanging)
    run.stop(hard=True)
    run.ended()
    assert wanted.wait(PATIENCE_S) == -signal.SIGKILL
    until(lambda: procfs.stat(pid) is None, "the end of py-spy")


NONSENSE = [
    (b"junk", 2),
    (b"[]", 2),
    (b'["/bin/true", ["dump"]]', 2),
    (b'["py-spy", "/bin/true", "dump"]', 2),
    (b'["py-spy", "/bin/true", []]', 2),
    (b'["py-spy", "/bin/true", ["top"]]', 2),
    (b'["py-spy", "true", ["dump"]]', 2),
    (b'["py-spy", "/bin/true", ["dump"]]', 0),
    (b'["py-spy", "/bin/true", ["dump"]]', 5),
    (b'["py-spy", "/bin/true\\u0000", ["dump", "\\ud800"]]', 2),
    (b'["sh", "/bin/sh", ["dump"]]', 2),
    (b'[[], "/bin/true", ["dump"]]', 2),
    (b"[" * 60000, 2),
    (b"", 2),
]
"""Messages, and how many descriptors come with each."""


def test_nonsense_does_not_harm_the_supervisor(started: Started) -> None:
    run, _ = started
    for message, files in NONSENSE:
        with connected(run) as peer, open(os.devnull, "wb") as nothing:
            socket.send_fds(peer, [message], [nothing.fileno()] * files)
            peer.settimeout(20)
            told = b"".join(iter(lambda: peer.recv(1 << 16), b""))
            # What no program can be given is found out when it is too late to refuse.
            assert (b"started" in told) == (b"u0000" in message), message
    assert spied(run, Path(spies.REAL)).wait(PATIENCE_S) is not None
    assert procfs.alive(run.started["pid"], run.started["ticks"])
    assert (run.folder / "supervisor.log").read_text() == ""


def test_without_a_supervisor_it_says_so(tmp_path: Path, hanging: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        helpers.by_supervisor(str(tmp_path), "py-spy")(str(hanging), ["dump"], 1, 2)
    with pytest.raises(OSError, match="No such file"):
        helpers.by_supervisor(str(tmp_path / "gone"), "py-spy")(str(hanging), ["dump"], 1, 2)


@contextmanager
def connected(run: runs.Run) -> Iterator[socket.socket]:
    """A connection to the supervisor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        with helpers.reached(str(run.folder)) as address:
            peer.connect(address)
        yield peer
