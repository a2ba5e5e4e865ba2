"""The real ``cockpit`` on this machine, and what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import until

COCKPIT = [sys.executable, "-m", "cockpit"]


class Watched:
    """A cockpit that prints events as JSON, and what it has printed so far."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*COCKPIT, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def events(self, kind: str = "", **facts: object) -> list[dict[str, Any]]:
        """The events so far; only those of a kind and with these facts."""
        lines = [json.loads(line) for line in self._out.read_text().split("\n")[:-1]]
        return [
            event
            for event in lines
            if kind in ("", event["event"]) and all(event.get(name) == value for name, value in facts.items())
        ]

    def event(self, kind: str, **facts: object) -> dict[str, Any]:
        """Wait for an event of that kind and with these facts; return the first."""

        def found() -> list[dict[str, Any]]:
            ended = self.process.poll() is not None
            events = self.events(kind, **facts)
            if ended and not events:
                raise AssertionError(f"no {kind} {facts}; it ended and said: {self.said()}")
            return events

        return until(found, f"{kind} {facts}")[0]

    def said(self) -> str:
        """What it has told people so far."""
        return self._err.read_text()
