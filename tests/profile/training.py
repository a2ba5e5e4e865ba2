"""Real training on this machine, as two nodes with an agent each, and what a profile of it leaves behind."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from cockpit.base.profile import order
from cockpit.base.progress import ring
from cockpit.core.profile.collection import Collection
from cockpit.engine.profile.store import Store
from tests.cli.verbs import Done, Verbs
from tests.waiting import until

NODES = ("localhost", "127.0.0.1")
"""Names of this machine; each has as many ranks."""

BUSY_S = 240
"""Longest wait for ranks that train, and for a profile: beside others, torch's import alone takes minutes."""

SCRIPT = Path(__file__).with_name("train.py")


class Training:
    """A run of two nodes, on which ranks follow each other.

    :param slots: ranks of each
    """

    def __init__(self, verbs: Verbs, name: str, watching: subprocess.Popen[str], slots: int = 1) -> None:
        self.verbs = verbs
        self.name = name
        self.watching = watching
        """The cockpit that watches it."""
        self.slots = slots
        self.ranks = range(slots * len(NODES))

    @property
    def folder(self) -> Path:
        """The run's, here."""
        return self.verbs.runs / self.name

    @property
    def store(self) -> Store:
        """Its profiles."""
        return Store(self.folder / "profiles")

    def host(self, rank: int) -> str:
        """The node of a rank, as the hostfile names it."""
        return NODES[rank // self.slots]

    def node(self, rank: int) -> Path:
        """The run folder on the node of a rank."""
        (found,) = self.verbs.work.glob(f"nodes/cockpit-*/{self.name}/{self.host(rank)}")
        return found

    def ring_of(self, rank: int) -> bytes:
        """The ring of a rank."""
        folder = json.loads((self.node(rank) / "record.json").read_text())["rings"]
        return (Path(folder) / f"{rank}.{self.pid(rank)}.ring").read_bytes()

    def pid(self, rank: int) -> int:
        """Of the training process."""
        told = json.loads((self.node(rank) / f"rank-{rank}.start.json").read_text())
        return int(told["pid"])

    def step(self, rank: int) -> int:
        """The last step that a rank has ended; 0: none."""
        steps = ring.read(self.ring_of(rank)).steps
        return steps[-1].step if steps else 0

    def answer(self, rank: int) -> order.Answer:
        """What its hook says of the newest order."""
        return order.answer(self.ring_of(rank)[ring.ORDER :])

    def steps_on(self, rank: int) -> None:
        """Wait until a rank has ended some more steps."""
        before = self.step(rank)
        assert before
        until(lambda: self.step(rank) >= before + 3, f"rank {rank} steps on", timeout=BUSY_S)

    def profile(self, *words: str) -> Done:
        """Take one, to its end."""
        return self.verbs.call("profile", self.name, *words, timeout=BUSY_S)

    def collection(self, number: int = 1) -> Collection:
        """One that was taken."""
        return self.store.load(number)

    def traces(self, rank: int) -> list[Path]:
        """What there is on its node."""
        return sorted((self.node(rank) / "reports").glob("*.trace.json.gz"))

    def reports(self, rank: int) -> list[Path]:
        """What nsys has left on its node, also what it did not finish."""
        return sorted((self.node(rank) / "reports").glob("**/*nsys.*"))

    def unfinished(self) -> list[Path]:
        """Files on nodes that somebody is writing, or has given up."""
        return [
            path
            for rank in self.ranks[:: self.slots]
            for path in (self.node(rank) / "reports").glob("*.part")
        ]


@contextmanager
def training(
    folder: Path,
    *,
    kind: str = "alone",
    step_s: float = 0.05,
    nodes: str = "",
    launcher: str = "command",
    slots: int = 1,
    more: Sequence[str] = (),
) -> Iterator[Training]:
    """Ranks that train until the end of the block; they are known to step by then.

    :param kind: ``alone``: no rank waits for another; ``gloo``; ``stub``: as ``alone``, with a stub of torch,
        which starts at a fifth of what torch's import takes
    :param nodes: where run folders of nodes are; empty: below ``folder``
    :param slots: ranks of each node
    :param more: options of the run
    """
    verbs = Verbs(folder / "state", folder)
    (folder / "hosts").write_text("".join(f"{name} slots={slots}\n" for name in NODES))
    words = ["run", "--headless", "--transport", "local", "--launcher", launcher, "--name", "r"]
    words += ["--cwd", str(folder), "--node-dir", nodes or str(folder / "nodes"), "--on-failure", "wait"]
    words += [
        "--python",
        sys.executable,
        "--master-addr",
        "127.0.0.1",
        "--probe",
        "on",
        *more,
        str(folder / "hosts"),
    ]
    python = [sys.executable] if launcher == "command" else []
    words += ["--", *python, str(SCRIPT), kind, str(step_s)]
    env = {"OMP_NUM_THREADS": "1", "COCKPIT_TRACEBACK": "1"}
    watching = verbs.start(*words, env=env)
    made = Training(verbs, "r", watching, slots)
    try:
        for rank in made.ranks:
            until(partial(_begun, made, rank), f"rank {rank} steps", timeout=BUSY_S)
        yield made
    finally:
        (folder / "end").touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            watching.communicate(timeout=30)
        verbs.call("stop", "r", "--now")
        watching.kill()
        watching.communicate()


def _begun(made: Training, rank: int) -> bool:
    try:
        return made.step(rank) > 5
    except (OSError, ValueError):
        return False


def spies(pids: Sequence[int]) -> list[psutil.Process]:
    """Each py-spy that looks at one of these processes."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if "record" in line and any(str(pid) in line for pid in pids):
                found.append(process)
    return found


def agents(cockpit: int) -> list[psutil.Process]:
    """The agents that a cockpit talks to."""
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(cockpit).children(recursive=True)
        return [process for process in below if _is_agent(process)]
    return []


def _is_agent(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("cockpit.node.agent" in word for word in process.cmdline())
    return False


def told(text: str) -> dict[str, Any]:
    """The JSON object of the last line."""
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found
