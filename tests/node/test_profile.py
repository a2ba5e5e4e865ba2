"""Profiles of a node's ranks, from the order to the summary, and what ends them early."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cockpit.base import record, verbs
from cockpit.base.answers import ProfileItem, WindowAnswer
from cockpit.base.frames import encode
from cockpit.base.gate import plain, read
from cockpit.base.profile import order
from cockpit.base.profile.summary import RankProfile
from cockpit.base.progress import ring
from cockpit.base.shared_fields import Target
from cockpit.node import archive, procfs
from cockpit.node.calls import Call
from cockpit.node.probe import hooks
from cockpit.node.profile import rings, window
from cockpit.node.profile.profile import profile
from cockpit.node.run import probing
from tests.needs import require_module
from tests.node import runs
from tests.node.conftest import Launch
from tests.node.runs import command, program
from tests.waiting import until

real = pytest.mark.skipif(not probing.is_memory(probing.SHARED_MEMORY), reason="no /dev/shm here")

TRAIN = """
import os, sys, time
import torch
folder = os.environ["COCKPIT_DIR"]
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
data = torch.utils.data.DataLoader(torch.ones(1 << 16, 8), batch_size=2)
made = torch.optim.SGD(model.parameters())
for batch in data:
    model(batch).sum().backward()
    made.step()
    made.zero_grad()
    while os.path.exists(folder + "/hang"):
        open(folder + "/hangs-" + os.environ["RANK"], "w").close()
        time.sleep(0.02)
    if os.path.exists(folder + "/end"):
        break
    time.sleep(0.02)
print("through", flush=True)
"""


@pytest.fixture
def training(launch: Launch, tmp_path: Path, pyz: bytes, monkeypatch: pytest.MonkeyPatch) -> runs.Run:
    """Two ranks that make steps, with the real torch; the node code is beside them, as an agent has it."""
    require_module("torch")
    (tmp_path / "node.pyz").write_bytes(pyz)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "node.pyz")])
    (tmp_path / "train.py").write_text(TRAIN)
    rank = program(tmp_path / "rank", f"exec {sys.executable} {tmp_path}/train.py\n")
    run = launch(command(2, rank), probe="auto", env={"OMP_NUM_THREADS": "1"})
    until(lambda: sum(bool(one.step) for one in met(run)) == 2, "both ranks make steps")
    return run


def targets(run: runs.Run) -> tuple[Target, ...]:
    found = []
    for rank in (0, 1):
        facts = json.loads((run.folder / record.rank_start(rank)).read_text())
        found.append(Target(rank, facts["pid"], facts["ticks"]))
    return tuple(found)


def met(run: runs.Run) -> list[Any]:
    """What a profile of its ranks would meet."""
    try:
        request = verbs.Window(str(run.folder), targets(run), "torch")
    except (OSError, ValueError):
        return []
    return list(read(WindowAnswer, window.window(called(request))).ranks)


def called(request: Any, hear: Callable[[dict[str, Any], bytes], None] = lambda head, data: None) -> Call:
    return Call({"id": 1, **plain(request)}, b"", hear)


class Asked:
    """A request for a profile, in a thread of its own."""

    def __init__(self, run: runs.Run, ahead: int = 50, **facts: Any) -> None:
        self.items: list[tuple[dict[str, Any], bytes]] = []
        front = max(one.step for one in met(run))
        asked = {"collection": "one-1", "first": front + ahead, "steps": 3, "deadline_s": 60.0, **facts}
        self.request = verbs.Profile(str(run.folder), targets(run), "torch", **asked)
        self.call = called(self.request, lambda head, data: self.items.append((head["item"], data)))
        self.thread = threading.Thread(target=profile, args=(self.call,), daemon=True)
        self.thread.start()

    def states(self, rank: int) -> list[str]:
        return [item["state"] for item, _ in self.items if item["rank"] == rank]

    def over(self) -> list[tuple[dict[str, Any], bytes]]:
        """The last item of each rank, once it is answered."""
        self.thread.join(120)
        assert not self.thread.is_alive()
        return [next(one for one in reversed(self.items) if one[0]["rank"] == rank) for rank in (0, 1)]


@real
@pytest.mark.slow
def test_the_same_steps_of_all_ranks_and_whatever_ends_it_early_leaves_nothing_running(
    training: runs.Run,
) -> None:
    the_same_steps(training)
    assert [training.log(rank) for rank in (0, 1)] == ["", ""]
    ends_before_its_first_step(training)
    ends_within(training)
    an_order_whose_agent_was_killed_is_no_obstacle(training)
    a_rank_is_killed_within(training)
    (training.folder / "end").touch()
    training.ended()
    assert ["through" in training.log(rank) for rank in (0, 1)] == [False, True]


def the_same_steps(training: runs.Run) -> None:
    asked = Asked(training)
    first = asked.request.first
    for item, payload in asked.over():
        rank = item["rank"]
        assert item["state"] == "done", item
        assert item["file"] == f"{training.run}.node1.rank-{rank}.torch.step-{first}.one-1.trace.json.gz"
        path = training.folder / record.REPORTS / item["file"]
        assert path.stat().st_size == item["size"]
        assert path.stat().st_mode & 0o777 == 0o600
        trace = json.loads(gzip.decompress(path.read_bytes()))
        named = {one["name"] for one in trace["traceEvents"] if one["name"].startswith("ProfilerStep#")}
        assert named == {f"ProfilerStep#{step}" for step in range(first, first + 3)}
        assert trace["cockpit"]["run"] == training.run
        assert (trace["cockpit"]["node"], trace["cockpit"]["rank"]) == ("node1", rank)
        found = read(RankProfile, json.loads(zlib.decompress(payload)))
        assert [step.step for step in found.steps] == [first, first + 1, first + 2]
        assert found.file == item["file"]
        assert all(len(step.phases) == 4 and min(step.phases) >= 0 for step in found.steps)
        assert found.before is not None
        assert found.before > 0.02
        assert found.stop_s > 0
        assert found.warm_s > 0
        assert found.began / 1e9 == pytest.approx(item["t"])
    order = [state for state in asked.states(0) if state not in ("stopping", "writing")]
    assert order[-3:] == ["written", "reading", "done"]
    assert sorted(os.listdir(training.folder / record.REPORTS)) == sorted(
        item["file"] for item, _ in asked.over()
    )
    again = Asked(training, collection="two-2", shapes=False, stack=True)
    assert [item["state"] for item, _ in again.over()] == ["done", "done"]


def answered(run: runs.Run, rank: int) -> Any:
    """What the hook of a rank has said last."""
    one = rings.Finder(str(run.folder)).open(rank)
    try:
        return one.answer()
    finally:
        one.close()


def ends_before_its_first_step(training: runs.Run) -> None:
    asked = Asked(training, ahead=10_000)
    until(lambda: asked.states(0) == asked.states(1) == ["ready"], "both are ready")
    other = Asked(training, collection="other").over()
    assert [item["what"] for item, _ in other] == ["another profile of it is running"] * 2
    assert [one.why for one in met(training)] == ["another profile of it is running"] * 2
    asked.call.cancel()
    assert [item["state"] for item, _ in asked.over()] == ["cancelled", "cancelled"]
    assert [answered(training, rank).state for rank in (0, 1)] == ["cancelled", "cancelled"]
    # The deadline.
    asked = Asked(training, ahead=10_000, deadline_s=1.0)
    assert [item["what"] for item, _ in asked.over()] == ["its deadline passed"] * 2


def ends_within(training: runs.Run) -> None:
    asked = Asked(training, steps=100)
    until(lambda: asked.states(0)[-1:] == asked.states(1)[-1:] == ["profiling"], "both began")
    asked.call.cancel()
    assert [item["state"] for item, _ in asked.over()] == ["cancelled", "cancelled"]
    # They hang within: nobody waits for them, and they end it once they go on.
    asked = Asked(training, steps=100)
    until(lambda: asked.states(0)[-1:] == asked.states(1)[-1:] == ["profiling"], "both began")
    (training.folder / "hang").touch()
    until(lambda: all((training.folder / f"hangs-{rank}").exists() for rank in (0, 1)), "both hang")
    asked.call.cancel()
    assert [item["what"] for item, _ in asked.over()] == ["it ends as its step does"] * 2
    (training.folder / "hang").unlink()
    until(lambda: all(answered(training, rank).state == "cancelled" for rank in (0, 1)), "they end it")


def an_order_whose_agent_was_killed_is_no_obstacle(training: runs.Run) -> None:
    left = rings.Finder(str(training.folder)).open(0)
    left.order(order.Order(5, 1 << 30, 3, 1, time.monotonic_ns() + 10**12, "left"))
    left.close()
    until(lambda: answered(training, 0).state == "ready", "it was taken up")
    asked = Asked(training, memory=True, collection="last-1")
    assert [item["state"] for item, _ in asked.over()] == ["done", "done"]
    names = os.listdir(training.folder / record.REPORTS)
    # Those that were cancelled were called as the first.
    assert Counter(name.split(".")[-4] for name in names) == {"one-1": 2, "two-2": 2, "last-1": 2}


def a_rank_is_killed_within(training: runs.Run) -> None:
    """The other one is not held up."""
    reports = training.folder / record.REPORTS
    asked = Asked(training, steps=100, collection="killed-1")
    until(lambda: asked.states(0)[-1:] == ["profiling"], "it began")
    (reports / f"x.rank-0.torch.step-{asked.request.first}.killed-1.trace.json.part").touch()
    os.kill(targets(training)[0].pid, signal.SIGKILL)
    killed, other_rank = asked.over()
    assert (killed[0]["state"], killed[0]["what"]) == ("failed", "its process has ended")
    assert other_rank[0]["state"] == "done"
    assert not [name for name in os.listdir(reports) if name.endswith(".part")]


# A rank that this process plays, and whose hook says what the test says.

FILE = "run.node1.rank-0.torch.step-9.one-1.trace.json.gz"


class Played:
    """A run folder with one rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (record.REPORTS, record.PROBE, "rings"):
            (folder / name).mkdir()
        made = hooks.Ring(str(folder / "mapped"), 0, procfs.ticks(os.getpid()))
        for step in (1, 2, 3):
            made.add(step)
        # A copy: what is cut short under a process that has mapped it ends that process.
        self.path = folder / "rings" / f"0.{os.getpid()}.ring"
        self.path.write_bytes((folder / "mapped").read_bytes())
        facts = {
            "format": 1,
            "run": "run",
            "node": "node1",
            "boot_id": procfs.boot_id(),
            "ranks": [0],
            "supervisor": {"pid": 1, "ticks": 1},
            "rings": str(folder / "rings"),
        }
        (folder / record.RECORD).write_text(json.dumps(facts))
        self.items: list[tuple[dict[str, Any], bytes]] = []

    def page(self, word: int) -> int:
        """A word of the page."""
        at = ring.ORDER + 8 * word
        return int.from_bytes(self.path.read_bytes()[at : at + 8], sys.byteorder)

    def write(self, word: int, value: int) -> None:
        """The same."""
        with self.path.open("r+b") as file:
            file.seek(ring.ORDER + 8 * word)
            file.write(value.to_bytes(8, sys.byteorder))

    def says(self, state: int, words: Mapping[int, int] = MappingProxyType({})) -> None:
        """Answer the order that is there."""
        for word, value in {**words, 17: state, 16: self.page(0)}.items():
            self.write(word, value)

    def target(self) -> Target:
        return Target(0, os.getpid(), procfs.ticks(os.getpid()))

    def request(self) -> verbs.Profile:
        return verbs.Profile(str(self.folder), (self.target(),), "torch", "one-1", 9, 3, deadline_s=30.0)

    def start(self) -> tuple[Call, threading.Thread]:
        call = called(self.request(), lambda head, data: self.items.append((head["item"], data)))
        thread = threading.Thread(target=profile, args=(call,), daemon=True)
        thread.start()
        until(lambda: self.page(0), "it is ordered")
        return call, thread

    def file(self) -> Path:
        return self.folder / record.REPORTS / FILE

    @property
    def last(self) -> dict[str, Any]:
        return self.items[-1][0]


@pytest.fixture
def played(tmp_path: Path) -> Played:
    (tmp_path / "folder").mkdir()
    return Played(tmp_path / "folder")


def archive_that(tmp_path: Path, pyz: bytes, sums: str) -> Path:
    """The node code, but for what sums a trace up: this program."""
    path = tmp_path / "node.pyz"
    main = "import sys, time, os\nif sys.argv[1] == 'sum':\n    exec(%r)\n    sys.exit(0)\n" % sums
    with zipfile.ZipFile(io.BytesIO(pyz)) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            text = source.read(name).decode()
            target.writestr(name, main + text if name == "__main__.py" else text)
    return path


ENDED = {18: 10**18, 19: 10**9, 20: 10**18, 21: 10**9}
READY, WRITTEN, CANCELLED = map(order.STATES.index, ("ready", "written", "cancelled"))
SUMMARY: dict[str, Any] = {
    "device": "cpu",
    "steps": [[step, 1, 2, 0, 0, 0, 2, 0, []] for step in (9, 10, 11)],
    "collectives": [],
    "sha256": hashlib.sha256(b"trace").hexdigest(),
}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("sums", "state", "what"),
    [
        (f"print({json.dumps(SUMMARY)!r})", "done", ""),
        ("sys.exit('cockpit: the trace cannot be read: odd')", "failed", "the trace cannot be read: odd"),
        ("print('x')", "failed", "Expecting value: line 1 column 1 (char 0)"),
        ("print('x' * (5 << 20))", "failed", "larger than 4 MiB"),
        ("os.kill(os.getpid(), 9)", "failed", "killed by signal 9"),
        ("sys.exit(3)", "failed", "status 3"),
    ],
)
def test_what_sums_up_may_fail(
    played: Played,
    tmp_path: Path,
    pyz: bytes,
    monkeypatch: pytest.MonkeyPatch,
    sums: str,
    state: str,
    what: str,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive_that(tmp_path, pyz, sums))])
    _, thread = played.start()
    played.file().write_bytes(b"trace")
    played.says(WRITTEN, ENDED)
    thread.join(60)
    assert (played.last["state"], played.last["file"], played.last["size"]) == (state, FILE, 5)
    before = "its trace is there, but not its summary: " if what else ""
    assert played.last["what"] == before + what
    if state == "done":
        found = read(RankProfile, json.loads(zlib.decompress(played.items[-1][1])))
        assert found.sha256 == hashlib.sha256(b"trace").hexdigest()
        assert [step.step for step in found.steps] == [9, 10, 11]


@pytest.mark.slow
def test_a_hostile_page_costs_the_rank_its_profile_and_nobody_anything(played: Played) -> None:
    full = (1 << 64) - 1
    pages = [(state, {word: full}) for state in (READY, WRITTEN) for word in range(18, 64)]
    for state, words in [*pages, (WRITTEN, {}), (99, {}), (full, {})]:
        played.items.clear()
        for word in (0, *range(16, 64)):
            played.write(word, 0)
        call, thread = played.start()
        played.says(state, words)
        until(lambda: played.items, f"{state} {words}")
        call.cancel()
        played.says(CANCELLED, dict.fromkeys(words, 0))
        thread.join(60)
        assert not thread.is_alive()
        for item, payload in played.items:
            assert read(ProfileItem, item).state in ("ready", "failed", "cancelled"), item
            assert payload == b""


@pytest.mark.parametrize("spoilt", ["cut", "grown", "noise"])
def test_a_ring_that_the_program_spoils(played: Played, spoilt: str) -> None:
    _, thread = played.start()
    played.says(READY)
    until(lambda: played.items, "it is ready")
    with played.path.open("r+b") as file:
        if spoilt == "noise":
            file.write(os.urandom(ring.SIZE))
        else:
            file.truncate(100 if spoilt == "cut" else ring.SIZE + 1)
    thread.join(60)
    assert not thread.is_alive()
    assert played.last["state"] == "failed"
    assert "its " in played.last["what"]


def test_what_lies_where_the_file_should_is_not_read(played: Played, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of others")
    ways: list[Callable[[], None]] = [
        lambda: played.file().symlink_to(tmp_path / "secret"),
        lambda: os.mkfifo(played.file()),
        lambda: played.file().mkdir(),
        lambda: None,
    ]
    for lay in ways:
        played.write(16, 0)
        played.write(0, 0)
        lay()
        _, thread = played.start()
        played.says(WRITTEN, ENDED)
        thread.join(60)
        assert (played.last["state"], played.last["what"]) == (
            "failed",
            "the file that it wrote is not there",
        )
        with contextlib.suppress(FileNotFoundError):
            played.file().rename(tmp_path / f"{time.monotonic_ns()}")


class Agent:
    """A process of its own that serves this one over pipes, as on a node."""

    def __init__(self, archive: Path) -> None:
        argv = [sys.executable, "-I", "-S", str(archive), "agent"]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.asks({"id": 1, "do": "ping"})

    def asks(self, header: dict[str, Any]) -> None:
        """Send a request."""
        assert self.process.stdin is not None
        self.process.stdin.write(encode(header))
        self.process.stdin.flush()

    def children(self) -> list[int]:
        """Its processes."""
        return [one.pid for one in procfs.children().get(self.process.pid, ())]


@pytest.fixture
def agent(tmp_path: Path, pyz: bytes) -> Iterator[Agent]:
    """One whose reader of traces never ends."""
    found = Agent(archive_that(tmp_path, pyz, "time.sleep(1000)"))
    yield found
    found.process.kill()
    found.process.wait()
    for file in (found.process.stdin, found.process.stdout):
        assert file is not None
        with contextlib.suppress(OSError):
            file.close()


@pytest.mark.parametrize("end", ["killed", "lost", "cancelled"])
def test_what_sums_up_ends_with_its_agent(played: Played, agent: Agent, end: str) -> None:
    agent.asks({"id": 2, "do": "profile", **plain(played.request())})
    until(lambda: played.page(0), "it is ordered")
    played.file().write_bytes(b"trace")
    played.says(WRITTEN, ENDED)
    (child,) = until(agent.children, "it sums up")
    if end == "killed":
        agent.process.kill()
    elif end == "lost":
        assert agent.process.stdin is not None
        agent.process.stdin.close()
    else:
        agent.asks({"do": "cancel", "to": 2})
    until(lambda: not runs.alive(child), "the child has ended")


@pytest.mark.parametrize("end", ["lost", "cancelled"])
def test_an_order_ends_with_the_link(played: Played, agent: Agent, end: str) -> None:
    agent.asks({"id": 2, "do": "profile", **plain(played.request())})
    until(lambda: played.page(0), "it is ordered")
    played.says(READY)
    assert played.page(6) == 0
    if end == "lost":
        assert agent.process.stdin is not None
        agent.process.stdin.close()
    else:
        agent.asks({"do": "cancel", "to": 2})
    until(lambda: played.page(6) == played.page(0), "it is cancelled")


def test_of_two_agents_one_orders_and_a_dead_one_is_no_obstacle(played: Played, agent: Agent) -> None:
    agent.asks({"id": 2, "do": "profile", **plain(played.request())})
    first = until(lambda: played.page(0), "it is ordered")
    _, thread = played.start()
    thread.join(60)
    assert (played.last["state"], played.last["what"]) == ("refused", "another profile of it is running")
    assert played.page(0) == first
    agent.process.kill()
    agent.process.wait()
    call, thread = played.start()
    until(lambda: played.page(0) != first, "it is ordered again")
    call.cancel()
    played.says(CANCELLED)
    thread.join(60)


def test_the_node_code_in_memory_starts_itself_again(
    tmp_path: Path, pyz: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "any").write_bytes(pyz)
    with (tmp_path / "any").open("rb") as file:
        monkeypatch.setattr(sys, "path", [f"/proc/self/fd/{file.fileno()}"])
        argv, numbers = archive.command("nothing")
        ran = subprocess.run(argv, pass_fds=numbers, capture_output=True, text=True, check=False)
    assert ran.stderr.startswith("cockpit: unknown part 'nothing'")


def test_windows(played: Played) -> None:
    def asked(kind: str = "torch", **facts: Any) -> Any:
        facts = {"dir": str(played.folder), "targets": (played.target(),), "kind": kind, **facts}
        return read(WindowAnswer, window.window(called(verbs.Window(**facts))))

    (one,) = asked().ranks
    assert (one.step, one.why) == (3, "")
    assert one.age_s >= 0
    assert one.step_s >= 0
    assert asked().free > 0
    ended = Target(0, os.getpid(), 1)
    assert [each.why for each in asked(targets=(ended,)).ranks] == ["its process has ended"]
    assert asked(targets=(Target(1, os.getpid(), procfs.ticks(os.getpid())),)).ranks[0].why == (
        "no probe counts its steps"
    )
    told = {"rank": 1, "pid": 5, "steps": "there is no memory file system at /dev/shm"}
    (played.folder / record.PROBE / "1.5.json").write_text(json.dumps(told))
    other = (Target(1, os.getpid(), procfs.ticks(os.getpid())),)
    why = "its probe counts no steps: there is no memory file system at /dev/shm"
    assert asked(targets=other).ranks[0].why == why
    assert asked("cpu", targets=other).ranks[0].why == ""
    assert asked(dir="").ranks[0].why == "cockpit did not start it, so it has no probe"
    data = played.path.read_bytes()
    played.path.write_bytes(data[:8] + (2).to_bytes(8, sys.byteorder) + data[16 : ring.ORDER])
    assert (asked().ranks[0].step, asked().ranks[0].why) == (3, "its probe is that of an earlier cockpit")
    played.path.write_bytes(data[:56] + (1).to_bytes(8, sys.byteorder) + b"Odd".ljust(64, b"\0") + data[128:])
    assert asked().ranks[0].why == "its probe has stopped: Odd"
