"""The listener of a session that prints to stdout: the ranks' lines, and what events mean."""

from __future__ import annotations

import os
import sys
import time

from cockpit.base.events import Gap
from cockpit.base.record import is_log
from cockpit.cli.narration import Narrator
from cockpit.cli.output import say
from cockpit.cli.printer import JsonPrinter, Printer
from cockpit.core.finding import Finding
from cockpit.core.logs.sources import Source, Writer, writer_of
from cockpit.core.pace.log_steps import SaidSteps
from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.failure import blamed
from cockpit.core.run.model import RunModel
from cockpit.core.run.summary import meaning, summary
from cockpit.engine.records.manifest import Manifest
from cockpit.errors import Exit

TICK_S = 0.1
"""Seconds between two looks at what has arrived."""


class Live:
    """The listener of a session that prints to stdout.

    :param manifest: the run's; its nodes and ranks set the width of the labels
    :param json: an event stream instead of lines
    :param fold: fold similar lines of many ranks into one
    :param leaving: what leaving means, if not that the run continues
    :param nccl: print all that NCCL writes to files of its own, not only its warnings
    """

    def __init__(
        self,
        manifest: Manifest,
        *,
        json: bool = False,
        fold: bool = True,
        leaving: str = "",
        nccl: bool = False,
    ) -> None:
        terminal = sys.stdout.isatty()
        colour = terminal and "NO_COLOR" not in os.environ
        names = {rank: node.name for node in manifest.nodes for rank in node.ranks}
        self._json = JsonPrinter(sys.stdout, nccl=nccl) if json else None
        self._printer: Printer | JsonPrinter = self._json or Printer(
            sys.stdout, colour=colour, terminal=terminal, names=names, fold=fold, nccl=nccl
        )
        self._narrator: Narrator | None = None
        self._steps: SaidSteps | None = None
        self._leaving = leaving

    def joined(self, model: RunModel, pace: Pace) -> None:
        """Tell people what events mean, using the session's model; take in the steps that logs tell of."""
        self._narrator = Narrator(model)
        self._steps = SaidSteps(pace)

    def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
        """New bytes of a log."""
        self.count(writer, data)
        self._printer.feed(node, writer, data, offset)

    def count(self, writer: Writer, data: bytes) -> None:
        """Take in the steps that new bytes of a log tell of."""
        if self._steps is not None and isinstance(writer, int):
            self._steps.read(writer, data, time.time())

    def event(self, event: Event, changed: set[str | int]) -> None:
        """An event was applied."""
        if isinstance(event.fact, Gap) and is_log(event.fact.file):
            writer = writer_of(event.fact.file)
            self.count(writer, b"\n")
            self.gap((event.node, writer), event.fact, event.at)
        elif self._json:
            self._json.event(event.kind, **{name: v for name, v in event.as_json().items() if name != "e"})
        elif self._narrator:
            self._narrator.tell(event)

    def gap(self, source: Source, gap: Gap, at: float) -> None:
        """Something of a log is missing here."""
        self._printer.gap(source, gap, at)

    def tick(self) -> None:
        """Print what has arrived."""
        self._printer.tick(time.monotonic())

    def batch(self, at: float | None) -> None:
        """Print all complete lines so far.

        :param at: when what follows was there, unix seconds, to print with it; None: print no times
        """
        self._printer.flush()
        self._printer.at = at

    def over(self, model: RunModel, run: str, code: Exit, cause: Finding | None = None) -> None:
        """Print the outcome, once all output is out.

        :param cause: why it failed, or what is known of ranks that are gone
        """
        if self._json:
            first = blamed(model, model.judged)
            failed = None if first is None else {"rank": first.rank, "node": first.node, "how": first.text}
            more = {} if cause is None else {cause.id: cause.as_json()}
            self._json.event(
                "over", run=run, exit=int(code), first_failure=failed, job_end=model.job_end, **more
            )
            self._json.close()
            return
        if cause is not None and cause.id == "gone":
            say(f"{cause.what}: {cause.detail}")
            for line in meaning(cause):
                say(line)
            say(f"its output: {cause.steps[-1].command}")
        for line in summary(model, run, logs=not self._leaving):
            say(line)

    def close(self) -> None:
        """Print all that is left."""
        self._printer.close()
