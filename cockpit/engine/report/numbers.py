"""The numbers of a run as a report has them: how far it came, how fast, and its curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from cockpit.core.logs.progress.series import Series
from cockpit.core.pace.past import Lasted
from cockpit.core.pace.phases import NAMES
from cockpit.core.report.model import STEP_TIME, WORK, Course, Curve
from cockpit.engine.run.series import RunSeries

POINTS = 240
"""Of a curve."""

Columns = Mapping[str, tuple[str, str]]
"""Columns of a run's numbers that become curves: what they are called then, and their units."""

CURVES: Columns = {
    "loss": ("loss", ""),
    "step_s": (STEP_TIME, "s"),
    "work_s": (WORK, "s"),
    "tokens_s": ("tokens/s", ""),
    "samples_s": ("samples/s", ""),
}


class _Gauge:
    """One column of a run's numbers, as they are read."""

    def __init__(self, points: int) -> None:
        self._points = Series(points)
        self._first = self._last = 0.0
        self._least, self._most, self._most_at = math.inf, -math.inf, 0.0
        self._odd, self._odd_from = 0, None  # type: int, float | None

    def add(self, step: float, value: float) -> None:
        """Take in the value of a step."""
        if not math.isfinite(value):
            self._odd += 1
            self._odd_from = step if self._odd_from is None else self._odd_from
            return
        self._first = value if math.isinf(self._least) else self._first
        self._last, self._least = value, min(self._least, value)
        if value > self._most:
            self._most, self._most_at = value, step
        self._points.add(step, [value])

    def curve(self, name: str, unit: str) -> Curve | None:
        """What it has become; None: it has had no value."""
        if math.isinf(self._least):
            return None
        numbers = (self._first, self._last, self._least, self._most, self._most_at)
        return Curve(name, unit, tuple(self._points.points()), *numbers, self._odd, self._odd_from)


class _Shares:
    """The phases of steps, as they are read.

    Steps of which the wait is known and others are not mixed: without it, it is in the other phases.
    """

    def __init__(self) -> None:
        self._seconds, self._steps = dict[str, float](), Counter[str]()

    def add(self, row: Mapping[str, Any], took: float) -> None:
        """Take in the steps of a row, which took so many seconds."""
        for name in NAMES:
            if (part := row[f"{name}_s"]) is not None and row["step_s"]:
                self._seconds[name] = self._seconds.get(name, 0.0) + part / row["step_s"] * took
                self._steps[name] += row["steps"]

    @property
    def means(self) -> dict[str, float]:
        """Of a step, seconds."""
        return {name: took / self._steps[name] for name, took in self._seconds.items()}


def numbers(
    series: RunSeries,
    began: float,
    columns: Columns = CURVES,
    points: int = POINTS,
    also: Callable[[Mapping[str, Any]], None] | None = None,
) -> tuple[Course, tuple[Curve, ...]]:
    """How far a run came and how fast, and its curves, from all of its rows.

    :param began: when it was started, unix seconds
    :param points: of a curve, at most
    :param also: takes each row, too: there are many, which are read once
    """
    gauges = {name: _Gauge(points) for name in columns}
    steps, first, last, begun, exact = 0, None, None, None, False
    timed, spans, lasted = 0, 0.0, Lasted()
    unwaited, waited = _Shares(), _Shares()
    for place, row in enumerate(series.rows()):
        if also is not None:
            also(row)
        number = row["step"] if row["log_step"] is None else row["log_step"]
        step = place if number is None else number
        for name, gauge in gauges.items():
            if row[name] is not None:
                gauge.add(step, row[name])
        # Of several steps a row has the last one.
        more = max(0, row["steps"] - 1) if row["log_step"] is None else 0
        if number is not None:
            first, last = (number - more if first is None else first), number
        if begun is None and row["t"] is not None:
            begun = max(0.0, row["t"] - more * (row["step_s"] or 0.0) - began)
        steps += row["steps"]
        exact |= not row["estimated"]
        if row["step_s"] is not None and row["steps"]:
            key, noted = (row["restarts"], row["step"]), not row["estimated"]
            took = lasted.of(*key, row["steps"], row["t"], row["step_s"], exact=noted)
            timed, spans = timed + row["steps"], spans + took
            (unwaited if row["wait_s"] is None else waited).add(row, took)
    course = Course(
        steps,
        first,
        last,
        begun,
        spans / timed if timed else None,
        waited.means or unwaited.means,
        exact,
    )
    curves = (gauge.curve(*columns[name]) for name, gauge in gauges.items())
    return course, tuple(curve for curve in curves if curve is not None)
