"""Drive the real ``cockpit`` on a lab's login node, and look at what it left where."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.lab import REPO, USER, Lab
from tests.waiting import PATIENCE_S, until
from tests.warm import Warm

EXAMPLES = REPO / "examples"
ENV = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}

STEPS = """
n=0
until [ -e "$0" ]; do n=$((n + 1)); echo "rank $RANK at step $n"; sleep 0.2; done
"""

SLOW_VERBS = 3
"""So many verbs of a lab start by themselves: to import all of cockpit for the others costs as much."""

_verbs: weakref.WeakKeyDictionary[Lab, int] = weakref.WeakKeyDictionary()
_quick: weakref.WeakKeyDictionary[Lab, str] = weakref.WeakKeyDictionary()


def cockpit(
    lab: Lab, *words: str | Path, env: Mapping[str, str] | None = None, timeout: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """A verb of the lab's user that runs to its end; ``env`` is added to what a login gives."""
    return lab.run([*_started(lab), *words], env={**ENV, **(env or {})}, timeout=timeout)


def _started(lab: Lab) -> tuple[str, ...]:
    """The words that start it; all but the first ones are copies of a process that has imported cockpit."""
    _verbs[lab] = _verbs.get(lab, 0) + 1
    if _verbs[lab] <= SLOW_VERBS:
        return ("cockpit",)
    if lab not in _quick:
        _quick[lab] = _warm(lab)
    return _quick[lab], "-m", "cockpit"


def _warm(lab: Lab) -> str:
    """Start the process on the login node; the lab ends it."""
    folder = lab.home() / "warm"
    lab.run(["mkdir", folder], check=True)
    path = Warm(folder).python
    os.chown(path, lab.ids[USER], lab.ids[USER])
    words = [lab.python, "-m", "tests.warm", str(folder), "cockpit"]
    process = lab.popen(words, cwd=REPO, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    weakref.finalize(lab, _end, process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return path


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


class Cockpits:
    """Cockpits of the lab's user.

    :param name: the run that most calls are about
    :param env: further variables of the login node
    """

    def __init__(self, lab: Lab, name: str, env: Mapping[str, str] | None = None) -> None:
        self.lab = lab
        self.name = name
        self._env = {**ENV, **(env or {})}

    def words(self, *options: str, program: list[str], nodes: str | None = None) -> list[str]:
        """The words of a ``cockpit run`` of this run."""
        hostfile = self.lab.home() / f"hostfile-{self.name}"
        text = nodes or "".join(f"{node} slots=2\n" for node in self.lab.nodes)
        self.lab.write(None, hostfile, text)
        sent = [word for name in ENV for word in ("--env", name)]
        python = (
            ["--python", self.lab.python] if "--python" not in options and "--setup" not in options else []
        )
        return [
            "cockpit",
            "run",
            str(hostfile),
            "--name",
            self.name,
            *python,
            *sent,
            *options,
            "--",
            *program,
        ]

    def run(
        self,
        *options: str,
        program: list[str],
        nodes: str | None = None,
        timeout: float = PATIENCE_S,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A whole ``cockpit run``."""
        words = self.words(*options, program=program, nodes=nodes)
        return self.cockpit(*words[1:], timeout=timeout, env=env)

    def start(self, *options: str, program: list[str], **keywords: Any) -> subprocess.Popen[str]:
        """A ``cockpit run`` in the background; returns once it knows that all ranks have started."""
        process = self.begin(*options, program=program, **keywords)
        self.wait_for_start()
        return process

    def begin(self, *options: str, program: list[str], **keywords: Any) -> subprocess.Popen[str]:
        """A ``cockpit run`` in the background, beside which others can begin."""
        assert not self.folder.exists(), f"{self.name} exists: its record would answer for the new run"
        return self.lab.popen(
            self.words(*options, program=program),
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=keywords.get("stdout", subprocess.DEVNULL),
            stderr=keywords.get("stderr", subprocess.DEVNULL),
            text=True,
        )

    def steps(self) -> list[str]:
        """A program that nothing but a shell is needed for, whose ranks step until :meth:`finish`."""
        return ["/bin/sh", "-c", STEPS, str(self._end)]

    def finish(self) -> None:
        """Let the ranks of :meth:`steps` end well."""
        self.lab.write(None, self._end, "")

    @property
    def _end(self) -> Path:
        return self.lab.home() / f"end-{self.name}"

    def wait_for_start(self) -> None:
        """Return once all ranks have started, and the start is over: until then a signal takes it back."""
        until(self.all_started, f"all ranks of {self.name} started")
        until(self._all_launched, f"the start of {self.name} is over")

    def cockpit(
        self, *words: str, timeout: float = PATIENCE_S, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Any other verb; ``env`` is added to what this shell has."""
        return cockpit(self.lab, *words, timeout=timeout, env={**self._env, **(env or {})})

    @property
    def folder(self) -> Path:
        """The run's folder on the login node."""
        state = self._env.get("XDG_STATE_HOME", self.lab.home() / ".local/state")
        return Path(state) / "cockpit/runs" / self.name

    def node_folder(self, node: str) -> Path:
        """The run's folder on a node, as seen from here."""
        return self.lab.node_path(node, f"/tmp/cockpit-{self.lab.ids[USER]}/{self.name}/{node}")

    def events(self, node: str) -> list[dict[str, Any]]:
        """The run record on a node."""
        try:
            text = (self.node_folder(node) / "events.jsonl").read_text()
        except FileNotFoundError:
            return []
        # The last one may be being written.
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]

    def all_started(self) -> bool:
        """Whether two ranks a node have started."""
        return all(self.count(node, "rank_started") >= 2 for node in self.lab.nodes)

    def _all_launched(self) -> bool:
        journal = self.folder / "journal.jsonl"
        return journal.exists() and journal.read_text().count('"e": "launched"') >= len(self.lab.nodes)

    def count(self, node: str, kind: str) -> int:
        """How many events of a kind a node has recorded."""
        return sum(event["e"] == kind for event in self.events(node))

    def ended(self) -> bool:
        """Whether every node recorded its end."""
        return all(self.count(node, "ended") for node in self.lab.nodes)

    def logs(self, node: str) -> dict[str, bytes]:
        """Name and content of every log on a node."""
        return {path.name: path.read_bytes() for path in sorted(self.node_folder(node).glob("*.log"))}

    def spooled(self, index: int) -> dict[str, bytes]:
        """Name and content of every log here of the node with that index."""
        folder = next((self.folder / "spool").glob(f"{index:04d}-*"))
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}

    def assert_spools_equal(self) -> None:
        """Every log here has the bytes of the node's file."""
        for index, node in enumerate(self.lab.nodes):
            there = {n: hashlib.sha256(d).hexdigest() for n, d in self.logs(node).items() if d or n[0] == "r"}
            here = {name: hashlib.sha256(data).hexdigest() for name, data in self.spooled(index).items()}
            there.pop("supervisor.log", None)
            assert here == there, node

    def left_over(self) -> list[str]:
        """Command lines on all nodes that carry the run's tag."""
        return [
            f"{node}: {process.cmdline}"
            for node in self.lab.nodes
            for process in self.lab.processes(node)
            if process.environ.get("COCKPIT_RUN") == self.name
        ]
