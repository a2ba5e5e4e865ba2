"""Causes and levels read from samples (``tests/logs``): how many are right, and what reading costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from benchmarks.table import Level as Measured
from benchmarks.table import Result
from cockpit.core.logs.levels import Level, level_of, may_be
from tests.logs.corpus import samples
from tests.logs.judged import TAIL, causes, find_cause, levels, quiet_lines

ROUNDS = 9
BLOCK = 64 << 10
LOG = 2 << 20


def run() -> Result:
    """Measure; needs nothing."""
    plain, talk = _log("progress"), _log("healthy")
    tails = [each.text[-TAIL:] for each in samples("failures")]
    long = [(plain[:TAIL] + tail)[-TAIL:] for tail in tails]
    return Result(
        "causes",
        "why a rank ended and how much a line matters, read from logs",
        {"cockpit": "find_cause, level_of and may_be on the samples of tests/logs"},
        levels=[
            *_accuracy(),
            Measured(
                "levels: a MB of a training's log, looked through for an error (80 MB/s)",
                _per_mb(lambda: [may_be(Level.ERROR, block) for block in _blocks(plain)], len(plain)),
                "ms",
                12.5,
                _SPEED,
            ),
            Measured(
                "levels: a MB of it, line by line",
                _per_mb(lambda: [level_of(line) for line in plain.split(b"\n")], len(plain)),
                "ms",
                12.5,
                _SPEED,
            ),
            Measured(
                "levels: a MB of a log that talks of errors, looked through for one",
                _per_mb(lambda: [may_be(Level.ERROR, block) for block in _blocks(talk)], len(talk)),
                "ms",
            ),
            Measured("cause: a sample", _each(tails), "ms", 5),
            Measured("cause: a sample after a training, 64 KiB", _each(long), "ms", 20),
        ],
        notes=["Times are of the process, on one core; samples were written after the formats of projects."],
    )


def _accuracy() -> list[Measured]:
    tried: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for _, variant, told in causes():
        tried[variant] += 1
        wrong[variant] += bool(told)
    found = [
        Measured(f"wrong causes of {count} failures, {variant}", [100 * wrong[variant] / count], "%", 10)
        for variant, count in tried.items()
    ]
    told_levels = list(levels())
    missed = sum(told is not expected for _, _, expected, told in told_levels)
    plain = [told for _, _, expected, told in told_levels if expected is Level.PLAIN]
    plain += [level_of(line) for _, line in quiet_lines()]
    raised = sum(told is not Level.PLAIN for told in plain)
    return [
        *found,
        Measured(f"wrong levels of {len(told_levels)} lines", [100 * missed / len(told_levels)], "%", 10),
        Measured(f"raised of {len(plain)} plain lines", [100 * raised / len(plain)], "%", 1),
    ]


def _log(kind: str) -> bytes:
    """What samples of a kind say, again and again."""
    text = b"".join(each.text for each in samples(kind))
    return text * (LOG // len(text) + 1)


def _blocks(log: bytes) -> list[bytes]:
    return [log[at : at + BLOCK] for at in range(0, len(log), BLOCK)]


def _per_mb(work: Callable[[], object], size: int) -> list[float]:
    """Milliseconds of CPU that a MB takes, in each round."""
    return [_timed(work) * 1000 / (size / 1e6) for _ in range(ROUNDS)]


def _each(tails: Sequence[bytes]) -> list[float]:
    """Milliseconds of CPU for a tail, in each round."""
    return [_timed(lambda: [find_cause(tail) for tail in tails]) * 1000 / len(tails) for _ in range(ROUNDS)]


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


_SPEED = "fewer texts to look for, or looking for all of them outside of Python's re"
