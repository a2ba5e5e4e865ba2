"""Jobs that others started, on their node: where they write to, what is added there, how they are ended."""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import gate
from cockpit.base.answers import BegunOutput, EndAnswer, OutputsAnswer, WatchItem
from cockpit.base.trail import Trail
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.jobs import ending, outputs, watch
from cockpit.node.stacks import launchers
from tests.needs import require
from tests.node.test_find_ranks import as_user
from tests.waiting import until

RANK = """
import os, sys, time
print("up", flush=True)
print("oh", file=sys.stderr, flush=True)
name = "ready-" + os.environ["RANK"]
with open(name + ".tmp", "w") as file:
    file.write(str(os.getpid()))
os.rename(name + ".tmp", name)
time.sleep(1000)
"""


class Ranks:
    """Processes that stand for ranks, in a folder for their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: list[subprocess.Popen[bytes]] = []
        (folder / "rank.py").write_text(RANK)

    def shell(self, text: str, **how: Any) -> subprocess.Popen[bytes]:
        """A launcher: a shell script, in which ``$RANK_0`` and so on run a rank."""
        env = {f"RANK_{n}": f"env RANK={n} WORLD_SIZE=2 {sys.executable} rank.py" for n in range(2)}
        words = ["/bin/bash", "-c", f"{text}\nwait\nexit 0"]
        how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **how}
        process = subprocess.Popen(
            words, cwd=self.folder, env={**os.environ, **env}, start_new_session=True, **how
        )
        self._all.append(process)
        return process

    def found(self, number: int = 2) -> list[dict[str, int]]:
        """Targets: this many ranks, once they have said that they are up."""

        def ready() -> list[dict[str, int]]:
            told = {n: self.folder / f"ready-{n}" for n in range(number)}
            if not all(path.exists() for path in told.values()):
                return []
            pids = {n: int(path.read_text()) for n, path in told.items()}
            return [{"rank": n, "pid": pid, "ticks": procfs.ticks(pid)} for n, pid in pids.items()]

        return until(ready, "ranks")

    def clean(self) -> None:
        for process in self._all:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    made.clean()


def answered(targets: list[dict[str, int]]) -> OutputsAnswer:
    """What the verb says, through the gate."""
    call = Call({"id": 1, "do": "outputs", "targets": targets}, b"", lambda head, data: None)
    return gate.read(OutputsAnswer, outputs.outputs(call))


def test_files_of_their_own_and_who_started_them(ranks: Ranks) -> None:
    launcher = ranks.shell("for n in 0 1; do v=RANK_$n; ${!v} >$n.out 2>$n.err & done")
    answer = answered(ranks.found())
    assert {(Path(file.path).name, file.ranks, file.shared) for file in answer.files} == {
        ("0.out", (0,), False),
        ("0.err", (0,), False),
        ("1.out", (1,), False),
        ("1.err", (1,), False),
    }
    assert not answer.why
    (above,) = answer.launchers
    assert (above.pid, above.ranks, above.below) == (launcher.pid, (0, 1), 2)
    assert above.command.startswith("/bin/bash -c for n in 0 1")
    assert answer.cwd == str(ranks.folder)


def test_one_file_for_all(ranks: Ranks) -> None:
    ranks.shell("exec >all.out 2>&1; $RANK_0 & $RANK_1 &")
    (file,) = answered(ranks.found()).files
    assert (Path(file.path).name, file.ranks) == ("all.out", (0, 1))


def test_through_the_pipe_of_tee(ranks: Ranks) -> None:
    ranks.shell("{ $RANK_0 & $RANK_1 & wait; } 2>&1 | tee tee.out >/dev/null")
    targets = ranks.found()
    (file,) = until(lambda: answered(targets).files, "tee runs")
    assert (Path(file.path).name, file.ranks) == ("tee.out", (0, 1))


def test_a_file_that_was_renamed_and_deleted_is_still_the_same(ranks: Ranks) -> None:
    ranks.shell("$RANK_0 >0.out 2>&1 &")
    targets = ranks.found(1)
    os.rename(ranks.folder / "0.out", ranks.folder / "moved.out")
    (file,) = answered(targets).files
    assert Path(file.path).name == "moved.out"
    os.unlink(ranks.folder / "moved.out")
    item, data = first(targets, [asked(file, 0)])
    assert data == b"up\noh\n"
    assert not item.trouble


def test_why_there_is_none(ranks: Ranks) -> None:
    main, side = pty.openpty()
    name = os.ttyname(side).replace("/dev/", "")
    ranks.shell("$RANK_0 >/dev/null 2>&1 & $RANK_1 | cat >/dev/null &", stderr=side)
    os.close(side)
    targets = ranks.found()
    until(lambda: "cat" in answered(targets).why[1], "cat runs")
    answer = answered(targets)
    assert not answer.files
    assert answer.why[0] == "writes to /dev/null"
    assert answer.why[1].startswith("writes through cat (pid ")
    assert answer.why[1].endswith(f") to /dev/null and its errors to a terminal ({name})")
    os.close(main)


def test_through_the_terminal_of_script(ranks: Ranks) -> None:
    """It writes what it reads from the terminal that it has made to a file that it opened."""
    require("script")
    words = "script -qf -c '$RANK_0 & $RANK_1 & wait' typed.out </dev/null >/dev/null &"
    ranks.shell(words)
    targets = ranks.found()
    (file,) = until(lambda: answered(targets).files, "it has opened its file")
    assert (Path(file.path).name, file.ranks, file.shared) == ("typed.out", (0, 1), True)


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ("10.0.0.9 40000 10.0.0.1 22", ("10.0.0.9", "40000", "10.0.0.1", "22")),
        ("fe80::1%eth0 40000 fe80::2 22", ("fe80::1%eth0", "40000", "fe80::2", "22")),
        ("UNKNOWN 65535 UNKNOWN 65535", ()),
        ("10.0.0.9 0 10.0.0.1 22", ()),
        ("10.0.0.9 99999 10.0.0.1 22", ()),
        ("10.0.0.9 1", ()),
        ("", ()),
    ],
)
def test_what_an_environment_says_of_an_ssh_connection(said: str, ends: tuple[str, ...]) -> None:
    assert outputs._caller(said.split()) == ends


def test_who_has_the_near_end_of_a_connection(ranks: Ranks) -> None:
    """As ssh has, whose output is what ranks elsewhere write."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()[1]
        ranks.shell(f"sh -c 'exec sleep 1000' >ssh.out 2>&1 5<>/dev/tcp/127.0.0.1/{place} &")
        far = server.accept()[0]
        with far:
            ends = {"address": "127.0.0.1", "port": far.getpeername()[1], "to": "127.0.0.1", "to_port": place}
            call = {"id": 1, "do": "outputs", "callers": [{"ranks": [2, 3], **ends}]}
            answer = gate.read(OutputsAnswer, outputs.outputs(Call(call, b"", lambda head, data: None)))
            other = {**call, "callers": [{"ranks": [2, 3], **ends, "to_port": 1}]}
            nothing = gate.read(OutputsAnswer, outputs.outputs(Call(other, b"", lambda head, data: None)))
    assert [(Path(file.path).name, file.ranks, file.shared) for file in answer.files] == [
        ("ssh.out", (2, 3), False)
    ]
    assert [one.ranks for one in answer.launchers] == [(2, 3)]
    assert not nothing.files
    assert not nothing.launchers


def test_the_srun_that_listens_where_its_ranks_say(ranks: Ranks) -> None:
    """Not another program at that port, nor an srun at another one, nor a port of another machine."""
    (ranks.folder / "srun").symlink_to(sys.executable)
    listens = (
        "import socket, sys, time; s = socket.create_server(('', 0)); "
        "open(sys.argv[1], 'w').write(str(s.getsockname()[1])); time.sleep(1000)"
    )
    for program, name in (("./srun", "mine"), ("./srun", "other"), (sys.executable, "none")):
        ranks.shell(f'{program} -c "{listens}" port-{name} >{name}.out 2>&1 &')
    places = {name: ranks.folder / f"port-{name}" for name in ("mine", "other", "none")}
    until(lambda: all(path.exists() and path.read_text() for path in places.values()), "they listen")

    def asked(name: str, address: str = "127.0.0.1") -> OutputsAnswer:
        ends = {"address": address, "port": int(places[name].read_text()), "to": address, "to_port": 0}
        callers = [{"ranks": [rank], **ends} for rank in (2, 3)]
        call = Call({"id": 1, "do": "outputs", "callers": callers}, b"", lambda head, data: None)
        return gate.read(OutputsAnswer, outputs.outputs(call))

    answer = asked("mine")
    assert [(Path(file.path).name, file.ranks, file.shared) for file in answer.files] == [
        ("mine.out", (2, 3), True)
    ]
    assert [one.ranks for one in answer.launchers] == [(2, 3)]
    for nothing in (asked("none"), asked("mine", "192.0.2.1")):
        assert not nothing.files
        assert not nothing.launchers


MASTER = """
import socket, sys
wire = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
server = socket.socket(socket.AF_UNIX)
server.bind("control")
server.listen()
kept = []
while True:
    kept.append(server.accept()[0])
    kept[-1].send(b"x")
"""


def test_a_connection_that_several_ssh_share_is_nobodys_output(ranks: Ranks) -> None:
    """As with ControlMaster: its own output is that of one session, and which is not known."""
    (ranks.folder / "master.py").write_text(MASTER)
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()[1]
        ranks.shell(f"{sys.executable} master.py {place} >first.out 2>&1 &")
        far = server.accept()[0]
        ends = {"address": "127.0.0.1", "port": far.getpeername()[1], "to": "127.0.0.1", "to_port": place}
        call = {"id": 1, "do": "outputs", "callers": [{"ranks": [2], **ends}]}

        def files() -> int:
            answer = gate.read(OutputsAnswer, outputs.outputs(Call(call, b"", lambda head, data: None)))
            assert [one.ranks for one in answer.launchers] == [(2,)]
            return len(answer.files)

        with far, socket.socket(socket.AF_UNIX) as client:
            until((ranks.folder / "control").exists, "it listens")
            assert files() == 1
            until(lambda: not client.connect_ex(str(ranks.folder / "control")), "connected")
            assert client.recv(1) == b"x"
            assert files() == 0


def test_a_file_that_is_only_read_is_no_output(ranks: Ranks) -> None:
    (ranks.folder / "secret").write_text("x")
    process = ranks.shell("sleep 1000 1<secret 2>/dev/null &")
    below = until(lambda: procfs.descendants(process.pid, lambda pid: False), "sleep")
    target = {"rank": 0, "pid": below[0].pid, "ticks": below[0].ticks}
    until(lambda: procfs.link(f"/proc/{below[0].pid}/fd/1").endswith("secret"), "exec")
    answer = answered([target])
    assert not answer.files
    assert "opened read-only" in answer.why[0]


def asked(file: Any, number: int, offset: int = 0) -> dict[str, Any]:
    """A file, as a request names it."""
    names = ("path", "device", "inode", "pid", "ticks", "fd")
    return {"number": number, "offset": offset, **{name: getattr(file, name) for name in names}}


def first(targets: list[dict[str, int]], files: list[dict[str, Any]]) -> tuple[WatchItem, bytes]:
    """The first part of the answer."""
    with watched(targets, files) as items:
        until(lambda: items, "an item")
        return items[0]


@contextlib.contextmanager
def watched(
    targets: list[dict[str, int]], files: list[dict[str, Any]]
) -> Iterator[list[tuple[WatchItem, bytes]]]:
    """All parts of the answer so far, while the request is served."""
    items: list[tuple[WatchItem, bytes]] = []
    header = {"id": 1, "do": "watch", "targets": targets, "files": files}
    call = Call(header, b"", lambda head, data: items.append((gate.read(WatchItem, head["item"]), data)))
    call.add_credit(1 << 20)
    thread = threading.Thread(target=watch.watch, args=(call,))
    thread.start()
    try:
        yield items
    finally:
        call.cancel()
        thread.join(60)
        assert not thread.is_alive()


def test_a_file_that_is_cut_begins_anew_and_its_rank_goes(ranks: Ranks) -> None:
    ranks.shell("$RANK_0 >>0.out 2>&1 &")
    targets = ranks.found(1)
    (file,) = answered(targets).files
    path = ranks.folder / "0.out"
    with watched(targets, [asked(file, 7, 3)]) as items:
        until(lambda: any(data == b"oh\n" for _, data in items), "the rest")
        assert items[0][0].ranks == (0,)
        (mark,) = (item.marks[7] for item, data in items if data)
        path.write_bytes(b"x")
        until(lambda: any(item.begun == (BegunOutput(7, 6),) for item, _ in items), "begun")
        until(lambda: any(data == b"x" for _, data in items), "what is new")
        path.write_bytes(b"it has grown past that")
        until(lambda: any(data == b"it has grown past that" for _, data in items), "what is new again")
        os.kill(targets[0]["pid"], 9)
        until(lambda: items[-1][0].ranks == (), "its end")
    assert items[-1][0].sizes == {7: 22}
    again = {**asked(file, 7, 3), "mark": mark, "marked": 6}
    item, data = first(targets, [again])
    assert (item.begun, data) == ((BegunOutput(7, None),), b"it has grown past that")
    again |= {"offset": 2, "mark": item.marks[7], "marked": 22}
    item, data = first(targets, [again])
    assert (item.begun, data) == ((), b" has grown past that")


@pytest.mark.parametrize("how", ["copied", "renamed"])
def test_a_file_that_is_rotated_is_read_to_its_end(ranks: Ranks, how: str) -> None:
    ranks.shell("$RANK_0 >>0.out 2>&1 &")
    targets = ranks.found(1)
    (file,) = answered(targets).files
    path = ranks.folder / "0.out"
    _, data = first(targets, [asked(file, 7)])
    assert data == b"up\noh\n"
    if how == "copied":
        path.with_name("0.out-20260101").write_bytes(path.read_bytes() + b"more\n")
        path.write_bytes(b"new\n")
    else:
        path.rename(path.with_name("0.out.1"))
    with watched(targets, [{**asked(file, 7, 6), "mark": Trail(6, data, data).mark, "marked": 6}]) as items:
        if how == "copied":
            until(lambda: items and items[-1][0].sizes == {7: 4}, "the new one")
            assert b"".join(data for _, data in items) == b"more\nnew\n"
            assert [item.begun for item, _ in items if item.begun] == [(BegunOutput(7, 11),)]
        else:
            with path.with_name("0.out.1").open("ab") as moved:
                moved.write(b"on\n")
            until(lambda: any(data == b"on\n" for _, data in items), "what is written on")
            assert not any(item.begun for item, _ in items)


@pytest.mark.parametrize("kind", ["another", "fifo", "link", "none", "not for writing"])
def test_only_the_very_file_is_read(ranks: Ranks, kind: str) -> None:
    ranks.shell("$RANK_0 >0.out 2>&1 &")
    targets = ranks.found(1)
    (file,) = answered(targets).files
    path = ranks.folder / "0.out"
    request = {**asked(file, 0), "pid": 0}  # as if its process had ended: by its name
    if kind == "not for writing":
        secret = ranks.folder / "secret"
        secret.write_text("x")
        info = secret.stat()
        request |= {"path": "/nowhere", "device": info.st_dev, "inode": info.st_ino}
    else:
        path.unlink()
    if kind == "another":
        # Kept, so that its inode is not taken again: it is open in the rank.
        path.write_text("x")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    item, data = first(targets, [request])
    assert not data
    assert "cannot be read" in item.trouble[0]


def test_a_process_that_ends_while_its_file_is_opened(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks.shell("$RANK_0 >0.out 2>&1 &")
    targets = ranks.found(1)
    (file,) = answered(targets).files
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    # What was seen of it just before.
    monkeypatch.setattr(watch, "is_ours", lambda pid, ticks: True)
    monkeypatch.setattr(watch, "writes", lambda pid, fd: True)
    item, data = first(targets, [{**asked(file, 0), "pid": ended.pid}])
    assert (data, item.trouble) == (b"up\noh\n", {})


@pytest.mark.root
def test_who_reads_along_gets_what_their_user_may_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        words = [require("setpriv"), "--reuid", "58123", "--clear-groups", "sleep", "1000"]
        with subprocess.Popen(words) as rank:
            try:
                until(lambda: os.stat(f"/proc/{rank.pid}").st_uid == 58123, "the user has changed")
                files = []
                for number, (owner, mode) in enumerate([(58123, 0o644), (58123, 0o600), (58125, 0o644)]):
                    path = folder / str(number)
                    path.write_bytes(b"step 1\n")
                    path.chmod(mode)
                    os.chown(path, owner, owner)
                    info = path.stat()
                    place = {"path": str(path), "device": info.st_dev, "inode": info.st_ino}
                    files.append({"number": number, **place, "pid": 0, "ticks": 0, "fd": 0})
                targets = [{"rank": 0, "pid": rank.pid, "ticks": procfs.ticks(rank.pid)}]
                told = as_user(58124, lambda: first_told(targets, files))
            finally:
                rank.kill()
    assert told["parts"] == [[0, 0, 7]]
    assert told["trouble"] == {
        "1": f"only uid 58123 can read {folder}/1",
        "2": f"{folder}/2 cannot be read: it is another user's",
    }


def first_told(targets: list[dict[str, int]], files: list[dict[str, Any]]) -> dict[str, Any]:
    """The first part of the answer, as it is sent."""
    items: list[dict[str, Any]] = []

    def take(head: dict[str, Any], data: bytes) -> None:
        items.append(head["item"])
        call.cancel()

    call = Call({"id": 1, "do": "watch", "targets": targets, "files": files}, b"", take)
    call.add_credit(1 << 20)
    watch.watch(call)
    return items[0]


def test_ending_goes_from_the_launcher_down(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = ranks.shell("trap : TERM; $RANK_0 >0.out 2>&1 & $RANK_1 >1.out 2>&1 &")
    targets = ranks.found()
    call = Call(
        {
            "id": 1,
            "do": "end",
            "processes": [{"pid": launcher.pid, "ticks": procfs.ticks(launcher.pid)}],
            "grace_s": 0.2,
        },
        b"",
        lambda head, data: None,
    )
    monkeypatch.setattr(ending, "_LAST_S", 60.0)
    threading.Thread(target=launcher.wait).start()  # bash ends once its ranks have
    answer = gate.read(EndAnswer, ending.end(call))
    assert answer.count == 3
    assert not [one for one in targets if procfs.alive(one["pid"], one["ticks"])]
    assert not answer.survivors


def test_what_has_started_the_agent_is_not_ended() -> None:
    above = os.getppid()
    request = {"id": 1, "do": "end", "processes": [{"pid": above, "ticks": procfs.ticks(above)}]}
    with pytest.raises(NodeError, match="also started this agent"):
        ending.end(Call(request, b"", lambda head, data: None))


@pytest.mark.parametrize(
    ("command", "typed_into"),
    [
        ("-bash", True),
        ("/usr/bin/zsh -i -l", True),
        ("/bin/bash --init-file /usr/share/code/scripts/shellIntegration-bash.sh", True),
        ("bash --rcfile x -i", True),
        ("bash --rcfile x train.sh", False),
        ("bash -l train.sh", False),
        ("bash -c train", False),
        ("python train.py", False),
    ],
)
def test_a_shell_that_a_person_types_into_started_nothing(command: str, typed_into: bool) -> None:
    assert launchers.is_typed_into(command.encode().split()) == typed_into
