"""What the probe and its marks cost a process that trains for real, at steps of about 1, 10 and 100 ms."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.here import started, wait
from benchmarks.measure import FOLDER, BenchmarkError, interleave
from benchmarks.table import Figure, Level, Result
from cockpit.base.progress import phases, ring
from cockpit.node.probe import hooks, marks

WINDOW = {"1": 150, "10": 16, "100": 3}
"""Milliseconds of a step, and how many of them a window has; the first window is of cold caches."""
ROUNDS = {"1": 60, "10": 50, "100": 24}
SIDES = {"on": "auto", "off": "off", "off again": "off"}
CALLS, REPEATS = 50_000, 9
"""Of a timer that calls something with nothing in between."""
AMID = 300
"""Steps of training between which something is timed, each time."""

Do = Callable[[], None]

Start = Callable[[Sequence[str]], AbstractContextManager[Any]]
"""Starts a side with these words for :mod:`benchmarks.training`, and ends it."""


def run() -> Result:
    """Measure; needs torch."""
    figures, written = [], []
    for size in WINDOW:
        with ExitStack() as stack:
            sides = begun(stack, size, {name: watched(probe) for name, probe in SIDES.items()})
            windows = interleave({name: each.window for name, each in sides.items()}, ROUNDS[size])
            written.append(_marks_of_a_step(sides["on"]))
        figures += compared(size, windows, ["on"], ("off", "off again"))
    return Result(
        "marks",
        "one process that trains with a DataLoader, in windows in turn, watched",
        {
            "cockpit": "cockpit run … --probe auto (steps and marks)",
            "other": "cockpit run … --probe off",
        },
        figures,
        [
            *levels(),
            Level("a step writes", written, "marks"),
        ],
        [
            *NOTES,
            "Bands are as wide as the machine is busy, so that only much would show; what marks take by"
            " themselves is finer.",
            "Again and again, a mark is in the caches; between two steps it is not: most of its cost is"
            " that.",
        ],
    )


def levels() -> list[Level]:
    """What marks take by themselves, again and again and in the midst of training."""
    with _made() as made:
        each = {
            "one mark": (lambda: made.add(marks.UPDATE_END), _nothing),
            "the marks of a step, with what they are hung on": _step(made),
        }
        return [
            Level(f"{what}, {how}", measure(*pair), "µs")
            for what, pair in each.items()
            for how, measure in (("again and again", _alone), ("between two steps of 1 ms", _amid))
        ]


NOTES = (
    "A window gives the median of its steps; steps of a window: "
    + ", ".join(f"{steps} of {size} ms" for size, steps in WINDOW.items())
    + ".",
    "CPU is that of the thread that trains; the sizes are of a core that has nothing else to do.",
    "The aim is the upper end of the A/A band of these minutes. While one trains, the others wait.",
)


def compared(
    size: str,
    windows: Mapping[str, Sequence[Sequence[float]]],
    ours: Sequence[str],
    plain: tuple[str, str],
    theirs: Sequence[str] = (),
) -> list[Figure]:
    """Steps of sides against those of the first plain one, all run in turn.

    :param theirs: sides that no aim is for
    """
    found = []
    for at, what in enumerate((f"a step of {size} ms", f"CPU of a step of {size} ms")):
        of = {name: [one[at] for one in each] for name, each in windows.items()}
        off, again = plain
        band = Figure(f"{what}, {off}, against {again} (A/A)", of[off], of[again], "ms")
        for name in (*ours, *theirs):
            aim = max(band.ratios) if name in ours else None
            found.append(Figure(f"{what}, {name}, against {off}", of[name], of[off], "ms", aim, False, _SLOW))
        found.append(band)
    return found


_SLOW = "marks written in C, which take fewer caches: they are Python that torch calls."


class Training:
    """A process that trains a window on request."""

    def __init__(self, stack: ExitStack, size: str, start: Start) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cockpit-bench-")))
        self._steps = WINDOW[size]
        self._window = 0
        program = [str(FOLDER / "training.py"), str(self._folder), size, str(1 + ROUNDS[size])]
        self.started = stack.enter_context(start(program))

    def ready(self) -> bool:
        """Whether it has begun."""
        return (self._folder / "ready").exists()

    @property
    def pid(self) -> int:
        """Of the process that trains."""
        return int((self._folder / "ready").read_text())

    def window(self) -> tuple[float, float]:
        """Milliseconds of the median step of a window, and of its thread's CPU."""
        told, answer = self._folder / "new", self._folder / f"{self._window}.json"
        told.write_text(str(self._steps))
        told.rename(self._folder / f"{self._window}.go")
        self._window += 1
        wait(answer.exists, "some steps", 120)
        wall, cpu = json.loads(answer.read_text())
        return wall, cpu


def begun(stack: ExitStack, size: str, starts: Mapping[str, Start]) -> dict[str, Training]:
    """Sides that wait to be told."""
    sides = {name: Training(stack, size, start) for name, start in starts.items()}
    for name, each in sides.items():
        wait(each.ready, f"the training of {name}", 240)
        each.window()
    return sides


def watched(probe: str) -> Start:
    """A run on this machine, with a probe or without."""
    environment = ["env", "OMP_NUM_THREADS=1", sys.executable]
    return lambda program: started(1, [*environment, *program], ["--probe", probe])


def _marks_of_a_step(side: Training) -> float:
    """How many marks the ring has for each step.

    :raises BenchmarkError: there are none, so nothing was measured
    """
    paths = list(Path("/dev/shm").glob(f"cockpit-*/*.{side.pid}.ring"))
    found = ring.read(paths[0].read_bytes()).marks if paths else ()
    steps = sum(mark.kind == phases.UPDATE_END for mark in found)
    if not steps:
        raise BenchmarkError("the probe has written no marks")
    return len(found) / steps


@contextmanager
def _made() -> Iterator[marks.Marks]:
    """Marks as a probe makes them."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        words = hooks.Ring(f"{folder}/0.ring", 0, 0)
        yield marks.Marks(words.words, words.broke)


def _step(made: marks.Marks) -> tuple[Do, Do]:
    """What a step does where torch asks for marks, with them and without."""
    plain = logging.getLogger("torch.autograd.graph")
    usual = type("Iterator", (), {})
    marked = type("Iterator", (), {"_profile_name": marks.Asked(made), "_num_yielded": marks.Answered(made)})

    def step(iterator: Any, log: Any) -> None:
        _ = iterator._profile_name
        iterator._num_yielded = 1
        logs = log.getEffectiveLevel() <= logging.DEBUG
        if logs or logs:  # it looks twice
            raise AssertionError

    def with_marks() -> None:
        step(ours, log)
        made.add(marks.UPDATE_END)

    theirs, ours, log = usual(), marked(), marks.Log(plain, made)
    theirs._profile_name = ours._profile_name = "next"
    return with_marks, lambda: step(theirs, plain)


def _nothing() -> None:
    """Cost what a call does."""


def _alone(do: Do, without: Do) -> list[float]:
    """Microseconds that one thing takes more than another, each again and again with nothing in between."""
    less = min(timeit.repeat(without, number=CALLS, repeat=REPEATS))
    return [1e6 * (took - less) / CALLS for took in timeit.repeat(do, number=CALLS, repeat=REPEATS)]


def _amid(do: Do, without: Do) -> list[float]:
    """The same, each once after a step of training, when the caches have what that needs."""
    from benchmarks import training  # it needs torch

    model, optimizer, data = training.prepared("1")
    found: dict[Do, list[int]] = {}
    differ = []
    for _ in range(REPEATS):
        found[do], found[without] = [], []
        for number in range(AMID):
            (x,) = next(data)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            timed = without if number % 2 else do
            began = time.perf_counter_ns()
            timed()
            found[timed].append(time.perf_counter_ns() - began)
        differ.append((median(found[do]) - median(found[without])) / 1000)
    return differ
