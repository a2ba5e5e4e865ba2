"""The odd rank is named: real torch, two nodes of two ranks, one fault after the other in one run."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.faulty import KINDS
from tests.lab.lab import REPO, Lab
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.launch]

FAULTY = str(REPO / "tests/lab/faulty.py")

RANK = 1
"""The rank that has the faults."""

FAULTS = {
    "sleep": ("absent", "sure", "sleeps"),
    "loop": ("absent", "likely", "loops"),
    "lock": ("lock", "sure", "takes_lock"),
    "stop": ("stopped", "sure", "stops"),
    "gil": ("gil", "sure", "holds_gil"),
    "read": ("io", "sure", "reads"),
    "loader": ("loader", "sure", "next_batch"),
    "worker": ("loader", "sure", "next_item"),
}
"""For each fault that can end: kind and certainty of the verdict, and the function it must name."""


LASTS = "sleep"
"""The fault that is waited for until it can be no slow step: ten seconds where nothing tells of steps.

Of the others a likely verdict is enough: they name the rank and the place, too.
"""


class Training:
    """A run of ``faulty.py`` whose ranks get faults, and lose them, while it runs."""

    def __init__(self, cockpits: Cockpits) -> None:
        self.cockpits = cockpits

    def node(self, rank: int) -> str:
        """The node of a rank."""
        return list(self.cockpits.lab.nodes)[rank // 2]

    def said(self, rank: int, text: str, times: int = 1) -> bool:
        """Whether a rank has printed this, so many times."""
        log = self.cockpits.node_folder(self.node(rank)) / f"rank-{rank}.log"
        return log.exists() and log.read_text().count(text) >= times

    def tell(self, rank: int, number: int) -> None:
        """Send a rank a signal."""
        events = self.cockpits.events(self.node(rank))
        (pid,) = {event["pid"] for event in events if event["e"] == "rank_started" and event["rank"] == rank}
        self.cockpits.lab.run(["kill", f"-{number}", str(pid)], node=self.node(rank), check=True)

    def begin(self, kind: str, rank: int = RANK) -> None:
        """Return once that rank has that fault."""
        self.tell(rank, signal.SIGRTMIN + 1 + KINDS.index(kind))
        until(lambda: self.said(rank, f": {kind} at step"), f"rank {rank} has {kind}")

    @contextmanager
    def fault(self, kind: str, rank: int = RANK) -> Iterator[None]:
        """That rank has that fault inside; it trains on afterwards."""
        self.begin(kind, rank)
        try:
            yield
        finally:
            self.tell(rank, signal.SIGCONT if kind == "stop" else signal.SIGUSR1)
            until(lambda: self.said(rank, f": {kind} is over"), f"the end of {kind}")

    def stacks(self) -> tuple[int, dict[str, Any]]:
        """``cockpit stacks RUN --json``: exit status and answer."""
        done = self.cockpits.cockpit("stacks", self.cockpits.name, "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def judged(self, kind: str, certainty: str, *, unless: str = "", says: str = "") -> dict[str, Any]:
        """The answer with that verdict: right after a fault the others may still be on their way.

        :param unless: a certainty that is enough, too
        :param says: is in its headline or its evidence
        """
        last: dict[str, Any] = {}

        def judge() -> bool:
            nonlocal last
            _, last = self.stacks()
            said = last["verdict"]
            sure = said["certainty"] in (certainty, unless)
            text = " ".join([said["headline"], *said["evidence"]])
            return said["kind"] == kind and sure and says in text

        try:
            until(judge, f"{kind}, {certainty}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(last, indent=1)[:6000]}") from None
        return last


@contextmanager
def trained(lab: Lab, name: str, launcher: str, mode: str) -> Iterator[Training]:
    """A run that nobody watches: a cockpit would stop it once a rank has failed."""
    cockpits = Cockpits(lab, name)
    process = cockpits.start("--launcher", launcher, "--headless", program=[FAULTY, "--mode", mode])
    process.kill()
    process.wait()
    try:
        training = Training(cockpits)
        ready = lambda: all(training.said(rank, "is ready") for rank in range(4))  # noqa: E731
        until(ready, "all ranks are ready")
        yield training
    finally:
        cockpits.cockpit("stop", name, "--now")


@pytest.mark.parametrize(
    ("launcher", "mode"),
    [
        ("command", "all_reduce"),
        pytest.param("torchrun", "all_reduce", marks=pytest.mark.campaign),
        pytest.param("deepspeed", "deepspeed", marks=pytest.mark.campaign),
    ],
)
def test_the_odd_rank_is_named_whatever_its_fault(lab2: Lab, launcher: str, mode: str) -> None:
    """One run for all faults: to start one for each takes longer than they do."""
    with trained(lab2, f"stacks-{launcher}", launcher, mode) as training:
        for fault in FAULTS:
            check_fault(training, fault)
        if mode == "all_reduce":
            check_cut(training, sent=launcher == "command")
        answer = check_that_all_move(training)
        # No dump has left a rank stopped.
        assert {rank["state"] for rank in answer["ranks"].values()} <= {"R", "S"}
        END[launcher](training)


def check_exit(training: Training) -> None:
    training.begin("exit")
    answer = training.judged("exited", "sure")
    assert answer["verdict"]["ranks"] == str(RANK)
    assert answer["missing"] == {str(RANK): "exited 0"}
    assert training.stacks()[0] == 1


def check_exit_and_kill(training: Training) -> None:
    """One rank exits, then a rank that waits for it is killed; with several ends, none is sure."""
    training.begin("keep", rank=3)
    check_exit(training)
    training.tell(3, signal.SIGKILL)
    answer = training.judged("ended", "likely")
    assert answer["verdict"]["ranks"] == "3"
    assert "rank 3 was killed by SIGKILL: 2 ranks wait" in answer["verdict"]["headline"]
    assert answer["missing"] == {str(RANK): "exited 0", "3": "killed by SIGKILL"}


def check_another_collective(training: Training) -> None:
    training.begin("mismatch", rank=3)
    answer = training.judged("order", "sure")
    assert answer["verdict"]["ranks"] == "3"
    assert "rank 3 and ranks 0-2 call collectives in different orders" in answer["verdict"]["headline"]


# Every other launcher would end the other ranks of the node of one that is killed.
END = {"command": check_exit_and_kill, "torchrun": check_exit, "deepspeed": check_another_collective}
"""What cannot be taken back comes last, and once."""


def check_that_all_move(training: Training) -> dict[str, Any]:
    # Who waits for the others in both samples is not seen to move, though steps go on.
    answer = training.judged("moving", "sure", unless="unsure")
    assert answer["verdict"]["severity"] != "error"
    assert answer["missing"] == {}
    return answer


def check_fault(training: Training, fault: str) -> None:
    kind, certainty, function = FAULTS[fault]
    with training.fault(fault):
        answer = training.judged(kind, certainty, unless="" if fault == LASTS else "likely", says="3 ranks")
    verdict = answer["verdict"]
    assert verdict["ranks"] == str(RANK), fault
    assert "faulty.py:" in verdict["where"], fault
    assert verdict["where"].endswith(function), fault
    assert "3 ranks" in " ".join([verdict["headline"], *verdict["evidence"]]), fault
    assert answer["ranks"][str(RANK)]["node"] == "node1", fault
    assert answer["missing"] == {}, fault


@contextmanager
def lost(lab: Lab, node: str, far: str, *, sent: bool) -> Iterator[None]:
    """Whatever a node sends to another one is lost; both are reached from the login node as before.

    :param sent: on its way; else it is not even sent, as without a route
    """
    address = lab.addresses[far]
    begin = ["route", "add", "blackhole", address]
    end = ["route", "del", "blackhole", address]
    if sent:
        begin = [
            "neigh",
            "replace",
            address,
            "lladdr",
            "02:00:00:00:00:99",
            "dev",
            "eth0",
            "nud",
            "permanent",
        ]
        end = ["neigh", "del", address, "dev", "eth0"]
    lab.run(["ip", *begin], node=node, user="root", check=True)
    try:
        yield
    finally:
        lab.run(["ip", *end], node=node, user="root", check=True)


def check_cut(training: Training, *, sent: bool) -> None:
    """A network that loses what is sent: no rank is to blame."""
    lab = training.cockpits.lab
    near, far = list(lab.nodes)[:2]
    with lost(lab, near, far, sent=sent):
        answer = training.judged("cut", "likely")
    verdict = answer["verdict"]
    assert (verdict["ranks"], answer["missing"]) == ("", {}), sent
    # Acknowledgements are lost, too: either end may be the one that notices, or both.
    address = next(one for one in lab.addresses.values() if f"ping -c 3 {one}" in json.dumps(verdict))
    assert address in verdict["headline"] or "2 addresses" in verdict["headline"], sent
