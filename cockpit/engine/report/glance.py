"""A glance at one run, from what is here: how it ended and why, its curves, its last words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from threading import Event

from cockpit import config
from cockpit.base.gate import Malformed
from cockpit.core.explain.report import Report
from cockpit.core.pace.past import past_of
from cockpit.core.report.model import Tail
from cockpit.core.run.summary import summary
from cockpit.engine.explain.known import explained
from cockpit.engine.files import lines
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import speaker
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.tails import tails
from cockpit.engine.run.measures import kept
from cockpit.engine.run.paces import FILE
from cockpit.engine.run.past_metrics import EnoughError, Points, numbers
from cockpit.errors import CockpitError

LOG_READ, PACE_READ = 1 << 20, 1 << 20
"""Bytes of the log that says most, and of the file of the pace, that are read."""

TAILS = 2


@dataclass(frozen=True)
class Memory:
    """How full a GPU or a node was, as far as that is kept.

    :param gpu: its index; None: this is the memory of the node
    :param used: bytes, the oldest first
    :param total: bytes; None: not known
    """

    node: str
    gpu: int | None
    used: Sequence[int]
    total: int | None

    @property
    def full(self) -> tuple[float, int]:
        """The fullest of several: by share used or, where no total is known, by bytes."""
        return self.used[-1] / self.total if self.total else 0.0, self.used[-1]


@dataclass(frozen=True)
class Glance:
    """What a run was.

    :param outcome: sentences about its end, the cause first
    :param cause: what the one who failed first said of it; ``meaning``: what that means;
        ``next``: what to type
    :param places: where that was, the innermost last
    :param loss, step_s: the values of its last steps, oldest first
    :param memory: of its fullest GPU, or else its fullest node; None: nothing was measured
    """

    outcome: Sequence[str] = ()
    cause: str = ""
    meaning: str = ""
    next: str = ""
    places: Sequence[str] = ()
    loss: Sequence[float] = ()
    step_s: Sequence[float] = ()
    memory: Memory | None = None
    tails: Sequence[Tail] = ()


def glance(folder: RunFolder, enough: Event) -> Glance:
    """Look at a run; that takes much reading.

    :param enough: set: nobody waits for it any more
    :raises CockpitError: its manifest or its journal cannot be read
    """
    model = folder.model()
    told = Report() if enough.is_set() else explained(folder, model, counts=False)
    if enough.is_set():
        return Glance()
    points: Mapping[str, Points] = {}
    with suppress(CockpitError, EnoughError):
        points = numbers(folder, model, LOG_READ, enough)
    with closing(SpooledLogs(folder)) as logs:
        speaks = speaker(logs)
    row, lang = told.row, config.load().language
    step = next(iter(row.steps(lang)), None) if row is not None else None
    return Glance(
        tuple(summary(model, folder.name)),
        "" if told.cause is None else told.cause.what,
        "" if row is None else row.meaning(lang),
        "" if step is None else step.text,
        () if told.cause is None else told.cause.places,
        tuple(value for _, value in points.get("loss", ())),
        _spans(folder),
        _memory(folder, enough),
        tails(folder, model, told, speaks, TAILS),
    )


def _spans(folder: RunFolder) -> tuple[float, ...]:
    """Seconds of its last steps."""
    found = []
    with suppress(CockpitError):
        for line in lines(folder.path / FILE, PACE_READ):
            with suppress(Malformed):
                found.append(past_of(line).span)
    return tuple(islice(found, max(0, len(found) - 400), None))


def _memory(folder: RunFolder, enough: Event) -> Memory | None:
    """That of the fullest GPU, if any was measured, or of the fullest node."""
    found: dict[tuple[str, int | None], tuple[list[int], int | None]] = {}
    with suppress(CockpitError):
        for one in kept(folder.path, folder.manifest, math.inf):
            if enough.is_set():
                return None
            measured = [(None, one.used, one.total), *((gpu.index, gpu.used, gpu.total) for gpu in one.gpus)]
            for index, used, total in measured:
                if used is not None:
                    values, _ = found.get((one.node, index), ([], None))
                    values.append(used)
                    found[one.node, index] = values, total
    each = [Memory(node, index, values, total) for (node, index), (values, total) in found.items()]
    gpus = [memory for memory in each if memory.gpu is not None]
    return max(gpus or each, key=lambda memory: memory.full, default=None)
