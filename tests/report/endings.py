"""Eleven ways in which a run ends, and two of torchrun, each made to happen by ranks of a few lines."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.verbs import HERE, Done, Verbs
from tests.waiting import until

STUB = Path(__file__).parents[1] / "probe" / "stub"
"""A torch of a few lines, whose optimizer has the hooks by which ranks note their steps."""
AT_ONCE = 5
FAR = 100_000
"""Steps of a run that others end."""
MET = 12
"""The step at which it happens."""

TRAIN = """
import math, os, sys, time
ending, noted, bad, steps, met = sys.argv[1], sys.argv[2] == "noted", *map(int, sys.argv[3:6])
rank, says = int(os.environ["RANK"]), ending != "code" or not noted
if ending == "import" and rank == bad:
    import a_module_that_nobody_has
if noted:
    sys.path.insert(0, sys.argv[6])
    import torch
    made = torch.optim.SGD()
for step in range(1, steps + 1):
    time.sleep(0.03 + 0.02 * (step % 3))
    if rank == bad and step == met:
        if ending == "code":
            sys.exit(3)
        if ending == "exception":
            raise ValueError(f"no batch {step}")
    if step == met and ending == "restarted" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        # An agent reads the rings of living processes, once a second.
        time.sleep(3 if rank == bad else 3600)
        sys.exit(3)
    if step == met and ending in ("watch", "hang"):
        time.sleep(3600)
    if noted:
        made.step()
    loss = 2 + math.cos(step / 4) + step / 1000 + rank / 3
    if ending == "nan" and step >= met:
        loss = math.inf if step == met + 1 else math.nan
    speed = 1000 + 7 * (step * 5 % 11) + rank
    print(f"step {step}/{steps} loss {loss:.4f} tokens/s {speed}" if says else "working", flush=True)
print("done", flush=True)
"""


class Ending(NamedTuple):
    """A run that ends so.

    :param how: one of :data:`ENDINGS`
    :param noted: its ranks note their steps; else only their logs tell of them
    :param bad: the rank that it happens to
    :param again: ends the name of another run that ends so
    """

    how: str
    noted: bool
    bad: int
    again: str = ""

    @property
    def name(self) -> str:
        """Of the run."""
        return f"{self.how}-{'noted' if self.noted else 'told'}{self.again}"


Act = Callable[[Verbs, Ending], object]


def spool(here: Verbs, run: str) -> Path:
    """Where what its node wrote is."""
    return here.runs / run / "spool" / "0000-localhost"


def _reached(here: Verbs, ending: Ending) -> None:
    """Wait until all ranks have come to where it happens; of one that hangs, to the step before."""
    last = MET - 1 if ending.how in ("watch", "hang") else MET
    logs = [here.spooled(ending.name, rank) for rank in (0, 1)]
    until(lambda: all(log.exists() and f"step {last}/" in log.read_text() for log in logs), ending.name)


def _killed(number: int) -> Act:
    """Send the rank a signal from outside."""

    def act(here: Verbs, ending: Ending) -> None:
        _reached(here, ending)
        lines = (spool(here, ending.name) / "events.jsonl").read_text().splitlines()
        started = [event for line in lines if (event := json.loads(line))["e"] == "rank_started"]
        os.kill(next(event["pid"] for event in started if event["rank"] == ending.bad), number)

    return act


def _stopped(*words: str) -> Act:
    """Stop the run."""

    def act(here: Verbs, ending: Ending) -> None:
        _reached(here, ending)
        here.call("stop", ending.name, *words)

    return act


class Kind(NamedTuple):
    """What is special about an ending.

    :param exits: the exit code of ``run``
    :param options: of ``run``
    :param act: what is done to it from outside
    """

    exits: int
    steps: int = 30
    options: tuple[str, ...] = ()
    act: Act | None = None


SOON = ("--failure-wait", "1")
"""The other rank is stopped so many seconds later."""
TORCHRUN = ("--launcher", "torchrun", "--launcher-args", "--max-restarts 1")
ENDINGS = {
    "restarted": Kind(0, options=TORCHRUN),
    "torchrun": Kind(0, options=TORCHRUN),
    "watch": Kind(4, options=("--hang-after", "1", "--on-hang", "stop", "--stop-after", "1")),
    "done": Kind(0),
    "code": Kind(1),
    "exception": Kind(1),
    "sigkill": Kind(1, FAR, SOON, act=_killed(signal.SIGKILL)),
    "sigterm": Kind(1, FAR, SOON, act=_killed(signal.SIGTERM)),
    "stop": Kind(1, FAR, act=_stopped()),
    "now": Kind(1, FAR, act=_stopped("--now")),
    "hang": Kind(1, act=_stopped()),
    "import": Kind(1),
    "nan": Kind(0),
}
"""In ``watch`` and ``hang`` ranks hang, and are stopped by the watch, or by a person.

What takes longest comes first.
"""

BOTH = ("done", "code")
"""Those of which there are two runs: one whose ranks note their steps, and one of which only logs tell."""
NOTED = ("restarted", "torchrun", "watch", "sigkill", "stop", "nan")
"""Those whose ranks note their steps; the log of a restart counts no steps again."""


def runs() -> list[Ending]:
    """Each of them, noted or told, or both; torchrun's where it is."""
    found = []
    launchers = () if importlib.util.find_spec("torch") else ("restarted", "torchrun")
    for at, how in enumerate(how for how in ENDINGS if how not in launchers):
        found += [Ending(how, True, at % 2)] if how in (*BOTH, *NOTED) else []
        found += [] if how in NOTED else [Ending(how, False, (at + 1) % 2)]
    return found


class Made(NamedTuple):
    """A run that has ended, and its report: for programs, as Markdown, and as text."""

    ending: Ending
    folder: Path
    done: Done
    report: dict[str, Any]
    markdown: str
    text: str


def make_all(here: Verbs) -> list[Made]:
    """Have all of them run, several at once."""
    here.work.mkdir(exist_ok=True)
    (here.work / "train.py").write_text(TRAIN)
    with ThreadPoolExecutor(2 * AT_ONCE) as acts, ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda ending: _make(here, ending, acts), runs()))


def make_again(here: Verbs, ending: Ending) -> Made:
    """Have another run end so, with no other beside it."""
    with ThreadPoolExecutor(1) as acts:
        return _make(here, ending._replace(again="-again"), acts)


def _make(here: Verbs, ending: Ending, acts: ThreadPoolExecutor) -> Made:
    kind = ENDINGS[ending.how]
    # Each from a folder of its own: runs of one program in one folder are a series.
    own = here.work / ending.name
    own.mkdir()
    where = ["--cwd", str(own), "--node-dir", str(here.work / "nodes"), "--name", ending.name]
    told = [ending.how, "noted" if ending.noted else "told", *map(str, (ending.bad, kind.steps, MET))]
    program = ["--", str(here.work / "train.py"), *told, str(STUB)]
    options = ["-w", "localhost:2", "--headless", "--python", sys.executable, *kind.options]
    act = kind.act and acts.submit(kind.act, here, ending)
    done = here.call("run", *HERE, *where, *options, *program)
    if act is not None:
        act.result()
    page = own / "report.md"
    asked = here.call("report", ending.name, "--json", "--md", str(page))
    text = here.call("report", ending.name)
    assert (asked.code, text.code) == (0, 0), asked.err + text.err
    return Made(ending, here.runs / ending.name, done, json.loads(asked.out), page.read_text(), text.out)
