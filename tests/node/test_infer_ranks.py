"""Ranks that no environment tells of: made-up processes for every way to start them, and real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import gate
from cockpit.base.answers import SeekAnswer
from cockpit.core.run.jobs import group
from cockpit.node.calls import Call
from cockpit.node.stacks import find_ranks, tcp_peers
from cockpit.node.stacks.infer_ranks import Above, Given, Inferred, Scene, Worker, infer
from cockpit.node.stacks.pythons import pythons
from cockpit.node.stacks.tcp_peers import Wire
from tests.needs import require_module
from tests.node import runs
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

HERE = "0100007F"
LAN = "0100000A"
"""10.0.0.1"""
FAR = "0200000A"
SPAWN = (
    b"/usr/bin/python3",
    b"-c",
    b"from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=7)",
)
TRAIN = (b"python3", b"train.py")


class Made:
    """A made-up node."""

    def __init__(self) -> None:
        self.workers: dict[int, Worker] = {}
        self.above: dict[int, Above] = {}
        self.wires: dict[int, Wire] = {}
        self.torch: set[int] = set()
        self.given: dict[int, Given] = {}
        self._inode = 100

    def worker(self, pid: int, parent: int, **facts: Any) -> Worker:
        """A Python process; one that takes part in torch.distributed unless said otherwise."""
        facts = {"ticks": pid, "name": "python3", "words": SPAWN, "joined": True, **facts}
        self.workers[pid] = Worker(pid, parent, **facts)
        return self.workers[pid]

    def hold(self, pid: int, near: tuple[str, int], far: tuple[str, int], listens: bool = False) -> None:
        """Give a process a socket."""
        self._inode += 1
        self.wires[self._inode] = Wire("net:[1]", near, far, listens)
        one = self.workers[pid]
        self.workers[pid] = one._replace(sockets=one.sockets | {self._inode})

    def connect(self, host: int, port: int, *guests: int, address: str = HERE) -> None:
        """A process listens, and others are connected to it."""
        self.hold(host, ("00000000", port), ("00000000", 0), listens=True)
        for guest in guests:
            self.hold(guest, (address, 40000 + guest), (address, port))
            self.hold(host, (address, port), (address, 40000 + guest))

    def siblings(self, *pids: int, parent: int = 10, port: int = 29500, **facts: Any) -> None:
        """Children of one process that meet at the first."""
        self.above.setdefault(parent, Above("python3.11", TRAIN))
        for pid in pids:
            self.worker(pid, parent, **facts)
        self.connect(pids[0], port, *pids)

    def found(self) -> list[Inferred]:
        """What is inferred."""
        return list(infer(Scene(self.workers, self.above, self.wires, self.torch.__contains__, self.given)))

    def ranks(self) -> dict[int, int]:
        """The rank of each pid."""
        return {one.worker.pid: one.rank for one in self.found()}

    def how(self) -> set[tuple[str, str]]:
        """In which ways, and from which launchers."""
        return {(one.how, one.launcher) for one in self.found()}


@pytest.fixture
def made() -> Made:
    return Made()


@pytest.mark.parametrize(
    ("above", "words", "launcher"),
    [
        (Above("python3.11", TRAIN), SPAWN, "mp.spawn"),
        (Above("python3.11", TRAIN), TRAIN, "fork"),
        (Above("python3.11", (b"python3", b"-m", b"ipykernel_launcher")), (b"python3",), "notebook"),
        (Above("trainer", (b"/venv/bin/torchrun", b"train.py")), (b"a title",), "torchrun"),
        (Above("bash", (b"bash", b"go.sh")), TRAIN, "other"),
    ],
)
def test_children_of_one_launcher_are_numbered_in_their_order(
    made: Made, above: Above, words: tuple[bytes, ...], launcher: str
) -> None:
    made.above[10] = above
    made.siblings(30, 21, 25, words=words)
    # Pids start again at some time: what counts is when each was started.
    for at, pid in enumerate((30, 21, 25)):
        made.workers[pid] = made.workers[pid]._replace(ticks=at)
    assert made.ranks() == {30: 0, 21: 1, 25: 2}
    assert made.how() == {("order", launcher)}
    assert {(one.addr, one.port, one.size) for one in made.found()} == {("127.0.0.1", "29500", 3)}


def test_older_torch_names_no_threads_and_is_known_by_its_libraries(made: Made) -> None:
    made.siblings(21, 22, joined=False)
    assert made.ranks() == {}
    made.torch = {21, 22}
    assert made.ranks() == {21: 0, 22: 1}


def test_the_address_is_the_one_that_other_nodes_use(made: Made) -> None:
    made.siblings(21, 22)
    made.hold(21, (LAN, 29500), (FAR, 50123))
    assert {(one.addr, one.port) for one in made.found()} == {("10.0.0.1", "29500")}


@pytest.mark.parametrize("option", [(b"--node_rank", b"1"), (b"--machine-rank=1",), (b"--rank", b"1")])
def test_a_node_whose_ranks_meet_elsewhere(made: Made, option: tuple[bytes, ...]) -> None:
    made.above[10] = Above("python3.11", (*TRAIN, *option))
    made.siblings(21, 22, port=45000)  # a pair of theirs
    for pid in (21, 22):
        made.hold(pid, (LAN, 50000 + pid), (FAR, 29500))
        made.hold(pid, (LAN, 51000 + pid), (FAR, 41000))
    assert {(one.addr, one.port) for one in made.found()} == {("10.0.0.2", "29500")}
    assert made.ranks() == {21: 2, 22: 3}
    assert made.how() == {("node_order", "mp.spawn")}


@pytest.mark.parametrize(
    "above", [Above("raylet", (b"/x/raylet", b"--port=1")), Above("systemd", ()), Above("", ())]
)
def test_an_order_that_says_nothing(made: Made, above: Above) -> None:
    made.above[10] = above
    made.siblings(22, 21, words=(b"ray::TrainWorker",))
    assert made.ranks() == {21: 0, 22: 1}
    assert made.how() == {("pid", "ray")}
    assert {(one.local, one.size) for one in made.found()} == {(None, None)}


def test_an_order_that_something_speaks_against(made: Made) -> None:
    made.siblings(21, 22)
    assert made.how() == {("order", "mp.spawn")}
    for pid, gpu in ((21, 1), (22, 0)):
        made.workers[pid] = made.workers[pid]._replace(gpus=frozenset([gpu]))
    assert made.how() == {("pid", "mp.spawn")}
    # Rank 0 is the one at which they meet.
    other = Made()
    other.siblings(22, 21)
    assert other.how() == {("pid", "mp.spawn")}


def test_processes_of_different_parents_are_one_job_of_unknown_ranks(made: Made) -> None:
    for pid, parent in ((21, 11), (22, 12)):
        made.worker(pid, parent, words=TRAIN)
        made.above[parent] = Above("bash")
    made.connect(21, 29500, 21, 22)
    assert made.how() == {("pid", "other")}


def alone(**facts: Any) -> Made:
    """The only rank of a node, which meets the others on another one; it has other connections too."""
    made = Made()
    made.above[10] = Above("bash", (b"bash",))
    made.worker(21, 10, words=TRAIN, **facts)
    for port in (443, 29500, 41234, 6379):
        made.hold(21, (LAN, 50000 + port % 1000), (FAR, port))
    return made


def test_the_only_rank_of_each_node() -> None:
    """Where they meet is the same for all nodes; which rank it is nobody knows."""
    guest, host = alone(), Made()
    host.worker(31, 10, words=TRAIN)
    host.connect(31, 29500, 31, address=FAR)
    host.hold(31, (FAR, 29500), (LAN, 50500))
    for made in (guest, host):
        (found,) = made.found()
        assert (found.how, found.addr, found.port) == ("pid", "10.0.0.2", "29500")


def test_a_process_alone_without_enough_evidence() -> None:
    """Connections alone are none, nor a GPU and torch alone; with torch's own port they are."""
    assert alone(joined=False).found() == []
    serving = alone(joined=False, gpus=frozenset({0}))
    assert serving.found() == []
    serving.torch.add(21)
    assert [one.worker.pid for one in serving.found()] == [21]
    quiet = Made()
    quiet.worker(21, 10)
    quiet.hold(21, (LAN, 50000), (FAR, 443))
    assert quiet.found() == []
    helped = alone()
    helped.worker(22, 21)
    helped.hold(22, (LAN, 50001), (FAR, 29500))
    assert [one.worker.pid for one in helped.found()] == [21]
    known = alone()
    known.given[21] = Given(21, 3, 8)
    assert known.found() == []


def test_who_gives_ranks_work_is_none_and_their_services_are_no_meeting(made: Made) -> None:
    """Ray: a driver with torch talks to every worker; workers and their launcher to a server for all jobs."""
    made.above[10] = Above("raylet", (b"/x/raylet",), sockets=frozenset({1}))
    made.wires[1] = Wire("net:[1]", (LAN, 50999), (FAR, 6379), False)
    made.above[11] = Above("bash", (b"bash",))
    made.siblings(21, 22, port=41000, words=(b"ray::TrainWorker",))
    made.worker(31, 11, words=TRAIN, joined=False)
    made.torch.add(31)
    made.worker(23, 10, joined=False)  # it waits for work
    for at, pid in enumerate((21, 22, 23, 31)):
        made.hold(pid, (LAN, 51000 + at), (FAR, 6379))
    for pid in (21, 22):
        made.connect(pid, 60000 + pid, 31)
    assert made.ranks() == {21: 0, 22: 1}
    assert {one.port for one in made.found()} == {"41000"}
    # Before they have met, nobody has joined but the first one.
    made.workers[22] = made.workers[22]._replace(joined=False)
    made.torch.add(22)
    assert {21, 22} <= made.ranks().keys()


def test_a_dead_rank_keeps_its_number(made: Made) -> None:
    dead = (("python3", 22, 22), ("git", 20, 20))
    made.above[10] = Above("python3.11", TRAIN, dead)
    made.siblings(21, 23)
    assert made.ranks() == {21: 0, 23: 2}
    assert {one.size for one in made.found()} == {3}


def test_jobs_beside_each_other_are_told_apart(made: Made) -> None:
    made.siblings(21, 22, port=29500)
    made.siblings(31, 32, port=29501)
    assert made.ranks() == {21: 0, 22: 1, 31: 0, 32: 1}
    # Jobs of one rank each, as a search for parameters starts them, are not ranks of one.
    sweep = Made()
    for pid in (21, 22, 23):
        sweep.worker(pid, 10)
        sweep.connect(pid, 29000 + pid, pid)
        sweep.hold(pid, (LAN, 50000 + pid), (FAR, 5000))
    assert sweep.found() == []


def test_what_surrounds_ranks_is_no_rank(made: Made) -> None:
    made.siblings(21, 22)
    quiet = {"joined": False}
    # Workers of a data loader, of a compiler; a tracker; what reports for rank 0 and is connected to it.
    for pid, parent in ((41, 21), (42, 21), (43, 22), (44, 10), (45, 10)):
        made.worker(pid, parent, **quiet)
        made.torch.add(pid)
    made.hold(41, (LAN, 50041), (FAR, 443))
    made.hold(42, (LAN, 50042), (FAR, 443))
    made.connect(21, 6006, 43)
    assert made.ranks() == {21: 0, 22: 1}
    # And without any ranks: a program and its workers, all of which talk to one server.
    alone = Made()
    alone.worker(21, 10, **quiet)
    for pid in (31, 32, 33):
        alone.worker(pid, 21, **quiet)
        alone.hold(pid, (LAN, 50000 + pid), (FAR, 9000))
        alone.torch.add(pid)
    alone.torch.add(21)
    alone.connect(21, 8786, 31, 32, 33)
    assert alone.found() == []


def lightning(made: Made, node: int, size: int, *pids: int) -> None:
    """What Lightning's launcher makes of a program: the first rank, which starts it again for each other."""
    told = {"NODE_RANK": str(node), "WORLD_SIZE": str(size), "MASTER_ADDR": "node1", "MASTER_PORT": "12910"}
    made.worker(pids[0], 10, words=TRAIN, joined=False)
    for local, pid in enumerate(pids[1:], 1):
        made.worker(pid, pids[0], words=TRAIN, joined=False, env={**told, "LOCAL_RANK": str(local)})
        # Its data loaders have its environment.
        made.worker(pid + 100, pid, joined=False, env={**told, "LOCAL_RANK": str(local)})
    made.worker(pids[0] + 100, pids[0], joined=False, env={**told, "LOCAL_RANK": "0"})


def test_lightning_tells_all_but_the_rank(made: Made) -> None:
    lightning(made, 0, 4, 21, 22)
    assert made.ranks() == {21: 0, 22: 1}
    assert made.how() == {("local_rank", "lightning")}
    assert {(one.addr, one.port, one.size) for one in made.found()} == {("node1", "12910", 4)}
    second = Made()
    lightning(second, 1, 4, 31, 32)
    assert second.ranks() == {31: 2, 32: 3}
    # Once they are connected too, nothing else is found.
    second.torch = {31, 32}
    second.connect(31, 4000, 32)
    assert second.ranks() == {31: 2, 32: 3}


def test_a_launcher_that_tells_all_but_the_rank_and_is_none(made: Made) -> None:
    env = {"NODE_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "12910"}
    made.worker(10, 5, joined=False)
    for local, pid in enumerate((21, 22)):
        made.worker(pid, 10, words=TRAIN, joined=False, env={**env, "LOCAL_RANK": str(local)})
    assert made.ranks() == {21: 0, 22: 1}
    assert made.how() == {("local_rank", "other")}


def test_a_launcher_that_slurm_started_as_a_rank(made: Made) -> None:
    """One task on each node, which starts a rank for each GPU."""
    made.worker(10, 5, joined=False, words=TRAIN)
    made.siblings(21, 22)
    made.given = {pid: Given(10, 3, 4) for pid in (10, 21, 22)}
    assert made.ranks() == {21: 6, 22: 7}
    assert {one.size for one in made.found()} == {8}
    assert made.how() == {("node_order", "mp.spawn")}
    # A rank that takes part itself is one, whatever it has started.
    made.workers[10] = made.workers[10]._replace(joined=True)
    assert made.found() == []


def test_ranks_that_their_environment_tells_of_are_not_inferred(made: Made) -> None:
    made.siblings(21, 22)
    made.given = {21: Given(21, 0), 22: Given(22, 1)}
    assert made.found() == []


def test_nonsense_of_processes_ends(made: Made) -> None:
    made.worker(21, 22)
    made.worker(22, 21)
    made.worker(23, 23)
    made.connect(21, 29500, 21, 22, 23)
    assert {one.how for one in made.found()} <= {"pid"}
    env = {"LOCAL_RANK": "1", "NODE_RANK": "999999", "WORLD_SIZE": "0", "MASTER_PORT": "x"}
    odd = Made()
    odd.worker(31, 10)
    odd.worker(32, 31, env=env)
    odd.worker(33, 31, env={**env, "LOCAL_RANK": "٣"})
    assert [one.rank for one in odd.found()] == [1999998, 1999999]
    # No job has so many: they are not told.
    assert not any(find_ranks.can_be(one) for one in odd.found())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "sl local_address",
        "0: x y 01 0 0 0 0 0 7",
        "0: 0100007F:ZZ 0100007F:1 01 a b c d e 7",
        "0: : : 01",
    ],
)
def test_lines_that_are_not_of_the_kernels_table(line: str) -> None:
    good = "1: 0100007F:7373 00000000:0000 0A 0:0 0:0 0 1000 0 99 1"
    assert dict(tcp_peers.read("n", iter([line, good]))) == {
        99: Wire("n", ("0100007F", 29555), ("00000000", 0), True)
    }


def test_addresses() -> None:
    mapped = "0: 0000000000000000FFFF00000100007F:1 0000000000000000FFFF00000100000A:2 01 0:0 0:0 0 0 0 5 1"
    ((_, wire),) = tcp_peers.read("n", iter([mapped]))
    assert (tcp_peers.address_text(wire.near), tcp_peers.address_text(wire.far)) == ("127.0.0.1", "10.0.0.1")
    assert tcp_peers.address_text(("0" * 24 + "01000000", 1)) == "::1"
    assert tcp_peers.address_text(("nonsense", 1)) == ""


# -- real processes ------------------------------------------------------------------------------------

RANKS = """
import ctypes, multiprocessing, os, socket, sys, threading, time

LIBC = ctypes.CDLL(None)

def named(name):
    done = threading.Event()
    def run():
        LIBC.prctl(15, name.encode(), 0, 0, 0)
        done.set()
        time.sleep(1000)
    threading.Thread(target=run, daemon=True).start()
    done.wait()

def write_title(title):
    # As setproctitle does: over the arguments, and the environment behind them.
    fields = open("/proc/self/stat", "rb").read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[48])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(title.encode().ljust(end - start, b"\\0"))

def work(rank, folder, title):
    port = os.path.join(folder, "port")
    if rank == 0:
        server = socket.create_server(("127.0.0.1", 0))
        with open(port + ".new", "w") as file:
            file.write(str(server.getsockname()[1]))
        os.rename(port + ".new", port)
    while not os.path.exists(port):
        time.sleep(0.02)
    client = socket.create_connection(("127.0.0.1", int(open(port).read())))
    guests = [server.accept() for _ in range(3)] if rank == 0 else []
    # What a rank starts has its sockets, or its environment, or neither.
    for method in ("fork", "spawn"):
        multiprocessing.get_context(method).Process(target=time.sleep, args=(1000,)).start()
    named("pt_gloo_runloop")
    if title:
        write_title("trainer: rank %d" % rank)
    with open(os.path.join(folder, "told-%d" % rank), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)

if __name__ == "__main__":
    folder, method, title = sys.argv[1:]
    context = multiprocessing.get_context(method)
    for rank in range(3):
        context.Process(target=work, args=(rank, folder, title == "title")).start()
    time.sleep(1000)
"""

TORCH = """
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, folder):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%s" % sys.argv[2], rank=rank, world_size=2)
    dist.barrier()
    with open(os.path.join(folder, "told-%d" % rank), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)

if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), nprocs=2, start_method="fork")
"""
"""Torch is imported once: what is forked has it."""


class Started:
    """A program with ranks, in a session of its own."""

    def __init__(self, folder: Path, program: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        path = folder / "program.py"
        path.write_text(program)
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(path), str(folder), *words],
            env={**runs.clean_environment(), **(env or {})},
            start_new_session=True,
        )

    def told(self, number: int, timeout: float = PATIENCE_S) -> list[int]:
        """The pid of each rank, once all have told it."""
        paths = [self.folder / f"told-{rank}" for rank in range(number)]
        until(lambda: all(path.exists() and path.read_text() for path in paths), "all have told", timeout)
        return [int(path.read_text()) for path in paths]

    def answer(self) -> SeekAnswer:
        """What the node says of it, as it passes the gate."""
        told = find_ranks.seek(Call({"id": 1, "do": "seek"}, b"", lambda head, data: None))
        mine = [one for one in told["ranks"] if self._is_mine(one["pid"])]
        return gate.read(SeekAnswer, json.loads(json.dumps({**told, "ranks": mine})))

    def _is_mine(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.process.pid
        except ProcessLookupError:
            return False  # some other test's


@pytest.fixture
def started() -> Iterator[list[Started]]:
    all_of_them: list[Started] = []
    yield all_of_them
    for one in all_of_them:
        os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


@pytest.mark.parametrize(
    ("method", "title", "launcher"),
    [("spawn", "", "mp.spawn"), ("fork", "", "fork"), ("fork", "title", "other")],
)
def test_ranks_of_multiprocessing(
    tmp_path: Path, started: list[Started], method: str, title: str, launcher: str
) -> None:
    started.append(Started(tmp_path, RANKS, method, title))
    pids = started[0].told(3)
    answer = started[0].answer()
    assert [one.pid for one in answer.ranks] == pids
    assert {one.inferred for one in answer.ranks} == {"order"}
    assert {one.launcher for one in answer.ranks} == {launcher}
    (job,) = group({"gpu01": answer})
    port = (tmp_path / "port").read_text()
    assert f"at 127.0.0.1:{port}, 3 inferred ranks on 1 node" in job.title
    assert job.problems == ["~ ranks 0-2 are inferred: in the order in which they were started"]


def test_a_rank_that_multiprocessing_lost(tmp_path: Path, started: list[Started]) -> None:
    started.append(Started(tmp_path, RANKS, "fork", ""))
    pids = started[0].told(3)
    os.kill(pids[1], signal.SIGKILL)
    until(lambda: not runs.alive(pids[1]), "the rank ended")
    # What it has started holds its connection, and is none.
    (job,) = group({"gpu01": started[0].answer()})
    assert {rank: found.pid for rank, found in job.ranks.items()} == {0: pids[0], 2: pids[2]}
    assert job.missing == 0b010


def test_what_has_ended_counts_though_an_ordinary_user_may_not_look_at_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        until(lambda: pythons([child.pid]).stats, "it is a Python")
        assert pythons([child.pid], {child.pid}) == ({}, {})
        child.stdin.close()
        until(lambda: not runs.alive(child.pid), "it has ended")
        found = pythons([child.pid], {child.pid})
        assert {parent: pid for parent, [(_, _, pid)] in found.dead.items()} == {os.getpid(): child.pid}


def test_ranks_below_a_task_of_slurm(tmp_path: Path, started: list[Started]) -> None:
    env = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}
    started.append(Started(tmp_path, RANKS, "spawn", "", env=env))
    pids = started[0].told(3)
    found = {one.pid: (one.rank, one.inferred) for one in started[0].answer().ranks}
    assert found == {pid: (3 + at, "node_order") for at, pid in enumerate(pids)}


@pytest.mark.slow
def test_torchs_own_processes(tmp_path: Path, started: list[Started]) -> None:
    require_module("torch")
    port = str(free_port())
    started.append(Started(tmp_path, TORCH, port))
    pids = started[0].told(2, timeout=PATIENCE_S)
    answer = started[0].answer()
    assert [(one.pid, one.rank, one.inferred) for one in answer.ranks] == [
        (pids[0], 0, "order"),
        (pids[1], 1, "order"),
    ]
    assert {(one.job.addr, one.job.port) for one in answer.ranks} == {("127.0.0.1", port)}
