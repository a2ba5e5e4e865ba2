"""A run on this machine as an agent would start it, for tests."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from cockpit.base import record
from cockpit.node import procfs
from cockpit.node.run.folder import start
from tests.waiting import until

Event = dict[str, Any]

COMMAND = """
i=0
while [ $i -lt "$1" ]; do
    RANK=$i LOCAL_RANK=$i WORLD_SIZE=$1 "$COCKPIT_DIR"/rankwrap 1 %s &
    pids="$pids $!"
    i=$((i + 1))
done
status=0
for pid in $pids; do wait $pid || status=$?; done
exit $status
"""
"""What stands in for a launcher: starts ranks, waits for all, passes a failure on."""


def command(ranks: int, program: Path) -> str:
    """A launch script that starts ``program`` once a rank."""
    return f"set -- {ranks}\n" + COMMAND % program


def program(path: Path, text: str) -> Path:
    """Write an executable shell script."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


class Run:
    """One started run."""

    def __init__(self, run: str, node: str, folder: Path, started: dict[str, Any]) -> None:
        self.run = run
        self.node = node
        self.folder = folder
        self.started = started

    @classmethod
    def start(cls, spec: dict[str, Any], pyz: bytes) -> Run:
        """Start it as an agent does."""
        started = start(spec, sys.executable, pyz)
        return cls(spec["run"], spec["node"], Path(spec["dir"]), started)

    @classmethod
    def found(cls, folder: Path) -> Run:
        """One that somebody else started."""
        facts = json.loads((folder / record.RECORD).read_text())
        return cls(facts["run"], facts["node"], folder, facts["supervisor"])

    def events(self, kind: str = "", **facts: object) -> list[Event]:
        """The events so far; only those of a kind and with these facts."""
        # What is after the last line's end is just being written.
        lines = (self.folder / record.EVENTS).read_text().rpartition("\n")[0].splitlines()
        events: list[Event] = [json.loads(line) for line in lines]
        return [
            event
            for event in events
            if kind in ("", event["e"]) and all(event.get(name) == value for name, value in facts.items())
        ]

    def event(self, kind: str, **facts: object) -> Event:
        """Wait for an event and return the first such one."""
        what = f"{kind} {facts} in {self.folder}"
        return until(lambda: self.events(kind, **facts), what)[0]

    def ended(self) -> list[Event]:
        """Wait for the end; return all events."""
        self.event("ended")
        return self.events()

    def log(self, rank: int) -> str:
        """What a rank has written so far."""
        path = self.folder / record.rank_log(rank)
        return path.read_text() if path.exists() else ""

    def says(self, rank: int, text: str) -> None:
        """Wait until a rank has written something, and its wrapper that it has started."""
        started = self.folder / record.rank_start(rank)
        until(lambda: text in self.log(rank) and started.exists(), f"{text!r} from rank {rank}")

    def stop(self, **wish: object) -> None:
        """Ask to stop as the agent does."""
        path = self.folder / record.STOP
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"reason": "test", "by": "me", **wish}))
        new.rename(path)

    def clean(self) -> None:
        """End it, whatever state it is in."""
        identity = self.started["pid"], self.started["ticks"]
        if procfs.alive(*identity):
            if self.folder.exists():
                self.stop(hard=True)
            until(lambda: not procfs.alive(*identity), "the supervisor ended")


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    found = procfs.stat(pid)
    return found is not None and found.state not in "ZX"


def clean_environment() -> dict[str, str]:
    """This environment with one thread a process and no accelerator."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
