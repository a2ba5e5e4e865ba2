"""Reads where the wall time of a run went, and which runs are one series with it."""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from cockpit import paths
from cockpit.base.events import RankStarted, Saved, Watched
from cockpit.base.record import log_name
from cockpit.core.logs.progress.wordings import EVALUATION
from cockpit.core.logs.sources import Output
from cockpit.core.pace.heat import STALL
from cockpit.core.pace.past import Lasted
from cockpit.core.report.goodput import Facts, Goodput, Span, Stretch, goodput, together
from cockpit.core.report.lineage import Joint, Lineage, Member, resumed, series
from cockpit.core.run.brief import Brief
from cockpit.core.run.event_table import our_time
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.checkpoint_words import names_one
from cockpit.core.run.summary import ended_when
from cockpit.engine.alike import alike, same_program
from cockpit.engine.logs.spooled import Placed, SpooledLogs, gaps, time_index
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.paces import kept
from cockpit.errors import CockpitError

MEMBERS = 20
"""Runs of a series that are looked at: the newest ones, or an older one and those before it."""
PAUSES, PAUSE_S, PAUSE_BYTES = 200, 1.0, 64 << 10
"""Pauses between steps in which a log is looked at, the longest; seconds of one; bytes of the log in it."""

_WORD = re.compile(rb"[A-Za-z]+")


class Stretches:
    """The steps of a run, collected from its rows.

    :param relative: whether ranks count steps from the start of the program: the log's numbers count then
    """

    def __init__(self, *, relative: bool) -> None:
        self._relative = relative
        self._lasted = Lasted()
        self._found: list[tuple[int, Stretch]] = []
        self._ahead: dict[int, set[int]] = {}
        self._log: tuple[int, int, float] | None = None
        self._lines: list[tuple[int, Stretch]] = []
        """Between lines of a log that tell of steps: all there is of a run that was too short to be timed."""
        self.exact = False

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in a row of :mod:`cockpit.core.pace.series`."""
        at, step, said, restarts = row["t"], row["step"], row["log_step"], row["restarts"]
        self.exact |= not row["estimated"]
        if at is None:
            return
        if said is not None and row["step_s"] is None and row["estimated"]:
            self._line(restarts, said, at)
        elif row["steps"] and row["step_s"] is not None:
            if said is not None:
                self._ahead.setdefault(restarts, set()).add(said - step)
            exact = not row["estimated"]
            took = self._lasted.of(restarts, step, row["steps"], at, row["step_s"], exact=exact)
            self._found.append((restarts, Stretch(step, row["steps"], at - took, at)))

    def _line(self, restarts: int, step: int, at: float) -> None:
        """Take in a line of a log: the steps of all lines that have one time ended since the time before."""
        before, self._log = self._log, (restarts, step, at)
        if before is None or before[0] != restarts or step <= before[1]:
            return
        many = step - before[1]
        if at > before[2]:
            self._lines.append((restarts, Stretch(step, many, before[2], at)))
        elif self._lines and self._lines[-1][0] == restarts and self._lines[-1][1].end == at:
            last = self._lines[-1][1]
            self._lines[-1] = restarts, last._replace(step=step, many=last.many + many)

    def all(self) -> list[Stretch]:
        """What was found, by time."""
        found = self._found or self._lines
        made = [stretch._replace(step=self._number(*one)) for one in found for stretch in one[1:]]
        return sorted(made, key=lambda stretch: stretch.end)

    @property
    def mean_s(self) -> float | None:
        """Seconds of a step, the mean; None: no two of them have a time."""
        steps = self.all()
        many = sum(step.many for step in steps)
        return sum(step.end - step.begin for step in steps) / many if many else None

    def _number(self, restarts: int, stretch: Stretch) -> int | None:
        if not self._relative or stretch.step is None:
            return stretch.step
        ahead = self._ahead.get(restarts, set())
        return stretch.step + next(iter(ahead)) if len(ahead) == 1 else None


def facts_of(
    folder: RunFolder,
    model: RunModel,
    steps: list[Stretch],
    ended: float | None,
    speaks: Output | None = None,
    *,
    exact: bool,
) -> Facts:
    """What is on record of a run for its wall time.

    :param ended: when it ended; None: it goes on, or that is not known
    :param speaks: whose log names evaluations; None: nobody's is read

    :raises CockpitError: the journal cannot be read
    """
    events = [event for event in folder.journal() if isinstance(event.fact, Saved | Watched)]
    until = ended or (steps[-1].end if steps and model.over else time.time())
    pauses: list[tuple[bool, Span]] = []
    with suppress(CockpitError):
        pauses = list(_pauses(folder, model, speaks, steps)) if speaks is not None else []
    evaluations, named = ([span for saves, span in pauses if saves is kind] for kind in (False, True))
    failed = model.over and bool(model.exit_code())
    restarts = sorted(_restarts(folder, model))
    return Facts(folder.manifest.created, until, failed, steps, exact, restarts, events, evaluations, named)


def _restarts(folder: RunFolder, model: RunModel) -> Iterable[float]:
    """When ranks were started anew, each time once."""
    first: dict[int, float] = {}
    for entry in folder.manifest.nodes:
        for event in folder.recorded(entry):
            if isinstance(event.fact, RankStarted) and event.fact.attempt > 0:
                at = our_time(model, event)
                first[event.fact.attempt] = min(at, first.get(event.fact.attempt, at))
    return first.values()


# Pauses


def _pauses(
    folder: RunFolder, model: RunModel, source: Output, steps: list[Stretch]
) -> Iterator[tuple[bool, Span]]:
    """Pauses between steps in which a log names a checkpoint (true), or else an evaluation."""
    if not steps:
        return
    usual = median((step.end - step.begin) / step.many for step in steps)
    found = [(one.end, two.begin) for one, two in pairwise(steps)]
    # Steps that take much longer than usual began late.
    found += [(step.begin, step.end - step.many * usual) for step in steps]
    least = max(PAUSE_S, (STALL - 1) * usual)
    longest = sorted(
        (span for span in found if span[1] - span[0] >= least), key=lambda span: span[0] - span[1]
    )
    if not longest:
        return
    times, ends = _times(folder, model, source)
    with closing(SpooledLogs(folder)) as logs:
        number = logs.number(source)
        for begin, end in longest[:PAUSES]:
            start, stop = (_place(times, ends, at) for at in (begin, end + PAUSE_S))
            data = logs.read(number, start, min(PAUSE_BYTES, stop - start)) if stop > start else b""
            saves = any(map(names_one, data.splitlines()))
            if saves or any(word.lower() in EVALUATION for word in _WORD.findall(data)):
                yield saves, (begin, end)


def _times(folder: RunFolder, model: RunModel, source: Output) -> tuple[list[float], list[int]]:
    """When a log had which length, on our clock."""
    name, ahead = log_name(source[1]), model.nodes[source[0]].offset_s
    entry = next(node for node in folder.manifest.nodes if node.name == source[0])
    placed = Placed(gaps(folder, source[0]))
    times, ends = [], []
    for at, tick in time_index(folder, entry):
        if (size := tick.get(name)) is not None:
            times.append(at - ahead)
            ends.append(placed.end(at - ahead, name, size))
    return times, ends


def _place(times: list[float], ends: list[int], at: float) -> int:
    place = bisect_left(times, at)
    return ends[place - 1] if place else 0


# The series


def lineage_of(folder: RunFolder, facts: Facts, state: str) -> Lineage | None:
    """The series that a run is in; None: it is alone.

    :param facts, state: its own, which are not worked out again
    :raises CockpitError: the folder of runs, or the manifest of this one, cannot be read
    """
    if folder.bundled or folder.manifest.foreign:
        return None
    known = {one.run: one for one in alike(folder, same_program) if not one.foreign}
    joints = series(known.values(), folder.name) if folder.name in known else []
    if len(joints) < 2:
        return None
    place = next(at for at, one in enumerate(joints) if one.run == folder.name)
    end = len(joints) if place >= len(joints) - MEMBERS else place + 1
    shown = joints[max(0, end - MEMBERS) : end]
    known[folder.name] = replace(known[folder.name], state=state)
    parts = {folder.name: facts}
    for run in {one.run for one in shown} - {folder.name}:
        with suppress(CockpitError):  # it was removed or damaged meanwhile
            parts[run] = _facts(RunFolder(paths.runs() / run))
    members = [one for one in shown if one.run in parts]
    return _lineage(members, parts, known, len(joints) - len(members))


def _lineage(
    joints: list[Joint],
    parts: Mapping[str, Facts],
    known: Mapping[str, Brief],
    left_out: int,
) -> Lineage:
    numbers = [_numbers(parts[one.run].steps) for one in joints]
    members, walls = [], list[tuple[float, float, Goodput | None]]()
    for place, one in enumerate(joints):
        facts = parts[one.run]
        goes_on = resumed(numbers, place)
        wall = goodput(facts._replace(failed=facts.failed or goes_on is not None), goes_on)
        walls.append((facts.began, facts.ended, wall))
        brief = known[one.run]
        members.append(
            Member(
                one.run,
                facts.began,
                facts.ended if brief.over else None,
                brief.state,
                one.how,
                one.sure,
                *numbers[place],
                wall,
            )
        )
    return Lineage(tuple(members), left_out, together(walls))


def _numbers(steps: Iterable[Stretch]) -> tuple[int | None, int | None]:
    """First and last step."""
    known = [(step.step - step.many + 1, step.step) for step in steps if step.step is not None]
    return (known[0][0], known[-1][1]) if known else (None, None)


def _facts(folder: RunFolder) -> Facts:
    """What is on record of another run of the series, by what is kept of its steps.

    :raises CockpitError: its manifest or its journal cannot be read
    """
    model = folder.model()
    steps, exact, lasted = [], False, Lasted()
    with suppress(CockpitError):
        for step in kept(folder):
            exact |= step.exact
            number = None if step.relative else step.step
            took = lasted.of(step.restarts, step.step, step.count, step.at, step.span, exact=step.exact)
            steps.append(Stretch(number, step.count, step.at - took, step.at))
    steps.sort(key=lambda stretch: stretch.end)
    return facts_of(folder, model, steps, ended_when(model), exact=exact)
