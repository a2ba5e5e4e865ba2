"""One run of real training, started and watched by cockpit; after each phase, who is slow according to it."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from cockpit.core.pace.pace import Pace
from cockpit.core.pace.phases import gross_of
from cockpit.core.pace.slow import Slow
from cockpit.core.pace.step import Step
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.session import Session
from cockpit.engine.work_sampler import watch_works
from tests.slowpool.cases import LAYERS, STEP_S, STEPS, Launch
from tests.waiting import PATIENCE_S, soon, until

FIRST_S, EVERY_S = 1.0, 3.0
"""Seconds until the first look at recorders, and between two: phases are short."""

TRAIN = Path(__file__).with_name("train.py")


@dataclass(frozen=True)
class Told:
    """What cockpit said of a phase.

    :param slow: ranks, the slowest first
    :param why: of each of them the phase that it is slow by; empty: none was said
    :param works: of each step, seconds of work of each rank
    :param phases: of each step, seconds that each rank was in each phase, as it marked them
    :param seconds: that it took
    """

    phase: int
    slow: list[Slow]
    why: list[str]
    works: list[list[float]]
    phases: list[list[list[float]]]
    seconds: float


_NUMBERS = itertools.count()


async def watched(launch: Launch, folder: Path) -> AsyncIterator[Told]:
    """Start a run, and tell of each phase what its session says at the end.

    :param folder: empty; the plan, and all that is left, is there: cockpit does not know it
    :raises AssertionError: it did not go on
    """
    with left(launch, folder, STEPS) as name:
        run = RunFolder.find(name)
        session = Session(run, writer=run.lock())
        try:
            async for told in _phases(session, launch, folder):
                yield told
        finally:
            await session.close()


@contextmanager
def left(launch: Launch, folder: Path, steps: int) -> Iterator[str]:
    """A run that is ready for its first phase, and that nobody watches; its name.

    :param folder: empty
    :param steps: of each phase
    :raises AssertionError: it did not start
    """
    name = f"{launch.name}-{os.getpid()}-{next(_NUMBERS)}"
    phases = [fault and asdict(fault) for fault in launch.phases]
    plan = {"step_s": STEP_S, "layers": LAYERS, "steps": steps, "phases": phases}
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "hosts").write_text(f"localhost slots={launch.ranks}\n")
    (folder / "nodes").mkdir()
    where = ["--cwd", str(folder), "--node-dir", str(folder / "nodes"), "--name", name, "--grace", "2"]
    here = ["--transport", "local", "--launcher", "command", "--no-preflight"]
    program = [sys.executable, str(TRAIN), launch.setup, str(launch.micro), str(folder)]
    words = ["run", "--headless", *here, *where, str(folder / "hosts"), "--", *program]
    with (folder / "said").open("wb") as said:
        first = _cockpit(words, said)
        try:
            until(
                lambda: begun(folder, launch, 0) or first.poll() is not None,
                "ranks are ready",
                timeout=PATIENCE_S,
            )
            assert first.poll() is None, (folder / "said").read_text()[-3000:]
            first.send_signal(signal.SIGHUP)
            first.wait(PATIENCE_S)
            yield name
        finally:
            first.kill()
            _cockpit(["stop", name, "--now"], said).wait(60)


def _cockpit(words: list[str], said: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cockpit", *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)  # type: ignore[call-overload,no-any-return]


def begun(folder: Path, launch: Launch, phase: int) -> bool:
    """Whether all ranks are at a phase."""
    logs = [log.read_text() for log in folder.glob("nodes/*/*/*/rank-*.log")]
    return sum(f"phase {phase}\n" in log for log in logs) == launch.ranks


async def _phases(session: Session, launch: Launch, folder: Path) -> AsyncIterator[Told]:
    await session.rejoin()
    session.watch()
    watch_works(session, first_s=FIRST_S, every_s=EVERY_S)
    for number in range(len(launch.phases)):
        began = time.monotonic()
        (folder / f"{number}.go").touch()
        at = partial(begun, folder, launch, number + 1)
        await soon(at, f"the end of phase {number}")
        last = STEPS * (number + 1)
        await soon(partial(_looked, session.pace, last), f"the work of step {last}")
        pace, seconds = session.pace, time.monotonic() - began
        slow = pace.slow()
        reasons = [pace.why(one) for one in slow]
        why = [found.phase if found else "" for found in reasons]
        steps = list(filter(None, map(pace.step, range(last - STEPS + 1, last + 1))))
        works = [[round(work, 3) for work in step.works] for step in steps]
        yield Told(number, slow, why, works, [_marked(step, launch.ranks) for step in steps], seconds)


def _looked(pace: Pace, step: int) -> bool:
    """Whether cockpit knows how long each rank worked in a step."""
    found = pace.step(step)
    return found is not None and len(found.works) > 0 and not any(map(math.isnan, found.works))


def _marked(step: Step, ranks: int) -> list[list[float]]:
    return [[round(one, 3) for one in gross_of(step, place) or ()] for place in range(ranks)]
