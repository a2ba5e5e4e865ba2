"""``make calm``: healthy runs that make no step for a while; 1 if one is sure to be stuck, or stopped.

python -m tests.calm --kinds checkpoint,paused_node --minutes 6 --jobs 5
With --write the table is kept in tests/calm/SCORE.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import tries
from tests.lab.cockpits import Cockpits
from tests.lab.lab import Lab
from tests.waiting import PATIENCE_S, until

SCORE = Path(__file__).with_name("SCORE.md")
TRAIN = Path(__file__).with_name("train.py")

KINDS = {
    "train": "nothing special",
    "first_step": "the first step takes a minute on all ranks",
    "compile": "all ranks wait for a compiler, at the first step and at a later one",
    "checkpoint": "rank 0 writes a checkpoint for a minute, the others wait",
    "checkpoint_all": "all ranks write their part of one",
    "evaluate": "all ranks evaluate for a minute",
    "evaluate_one": "rank 0 evaluates, the others wait",
    "uneven": "batches take between 0.1 and 6 s to load",
    "pipeline": "four stages with bubbles, 16 s a step",
    "accumulate": "24 micro-batches, 48 s a step",
    "paused_node": "all processes of a node are paused for a minute, as of a paused virtual machine",
    "first_wait": "rank 0 waits for one answer of a server before the first step",
    "evaluate_gently": "rank 0 evaluates with short sleeps, which looks like polling, the others wait",
    "upload": "rank 0 waits for one answer of a server, in one call, the others wait",
    "rest": "rank 0 sleeps for 40 s between epochs, the others wait",
    "answer": "rank 0 waits 12.5 s for one answer, with `--hang-after 10`",
    "await_file": "rank 0 polls for a file, the others wait",
    "compile_beside": "rank 0 has a compiler at work below a thread, the others wait",
    "throttled": "rank 0 is stopped by a signal for 4 of each 4.3 s, with `--hang-after 10`",
    "rounds": "no steps: all ranks meet twenty times a second",
    "slept": "the cockpit itself is paused for a minute, as on a laptop that slept",
}
PAUSE_S = 60
HASTY = ("answer", "throttled")
"""Kinds whose pauses are short, so that they are looked at earlier."""
STEPLESS = ("rounds",)


@dataclass(frozen=True)
class Said:
    """What the watch said of a run, and how many steps that made.

    :param looks: at a standstill
    :param likely: how often it was called stalled, though not surely
    :param alarms: what was said of it when it was surely stuck
    """

    kind: str
    probe: str
    steps: int
    looks: int
    likely: int
    alarms: tuple[str, ...]
    trouble: str = ""

    def __str__(self) -> str:
        told = f"{self.steps} steps, {self.looks} looks, {self.likely} likely, {len(self.alarms)} sure"
        return f"{self.kind:15} probe {self.probe:3}  {self.trouble or told}  {'; '.join(self.alarms)}"


class Run:
    """A healthy run on two nodes of a lab under a real cockpit that stops what hangs."""

    def __init__(self, lab: Lab, kind: str, probe: str) -> None:
        self.kind = kind
        self._lab = lab
        self._cockpits = Cockpits(lab, f"calm-{kind.replace('_', '-')}-{probe}")
        script = lab.home() / f"{self._cockpits.name}.py"
        lab.write(None, script, TRAIN.read_text())
        words = ["--headless", "--no-preflight", "--launcher", "torchrun", "--probe", probe]
        words += ["--on-hang", "stop", *(["--hang-after", "10"] if kind in HASTY else [])]
        self.cockpit = self._cockpits.start(*words, program=[str(script), kind])

    def steps(self) -> int:
        """How many steps rank 0 has printed."""
        return self._cockpits.logs(self._lab.nodes[0]).get("rank-0.log", b"").count(b"step ")

    def watched(self) -> list[dict[str, Any]]:
        """The events of the watch."""
        lines = (self._cockpits.folder / "journal.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in lines if '"watch"' in line and line.endswith("}")]
        return [event for event in told if event["e"] == "watch"]

    def disturb(self) -> None:
        """Pause what this kind pauses, and let it go on."""
        if self.kind == "paused_node":
            self._lab.freeze(self._lab.nodes[1])
            time.sleep(PAUSE_S)
            self._lab.thaw(self._lab.nodes[1])
        elif self.kind == "slept":
            mine = [one.pid for one in self._lab.processes(None) if self._cockpits.name in one.cmdline]
            for signum, wait_s in ((signal.SIGSTOP, PAUSE_S), (signal.SIGCONT, 0)):
                for pid in mine:
                    os.kill(pid, signum)
                time.sleep(wait_s)

    def stop(self) -> None:
        """End it."""
        self._cockpits.cockpit("stop", self._cockpits.name, "--now")
        self.cockpit.wait(PATIENCE_S)


def tried(lab: Lab, kind: str, probe: str, minutes: float, leaving: threading.Event) -> Said:
    """Let one run for so long, and read what its watch has said."""
    with contextlib.ExitStack() as labs:
        # A node is paused with all that runs there.
        lab = labs.enter_context(Lab(nodes=2)) if kind == "paused_node" else lab
        run = Run(lab, kind, probe)
        trouble = ""
        try:
            if kind not in STEPLESS:
                until(lambda: run.steps() > 3 or leaving.is_set(), "steps", timeout=300)
            end = time.monotonic() + 60 * minutes
            while time.monotonic() < end and not leaving.wait(20):
                run.disturb()
            if run.cockpit.poll() is not None:
                trouble = f"it ended with {run.cockpit.returncode}"
        except AssertionError as error:
            trouble = str(error)
        finally:
            run.stop()
        events, steps = run.watched(), run.steps()
    stalled = [event for event in events if event["state"] == "stalled"]
    sure = [event["found"] or {} for event in stalled if event["stuck"] == "sure"]
    alarms = tuple(found.get("what", "nobody named") for found in sure)
    looks = sum(bool(event["found"]) for event in events)
    return Said(kind, probe, steps, looks, len(stalled) - len(sure), alarms, trouble)


def page(found: list[Said], minutes: float, loads: list[float]) -> str:
    """The table."""
    rows = [
        f"| {one.kind} | {KINDS[one.kind]} | {one.probe} | {one.steps} | {one.looks} | {one.likely} "
        f"| {len(one.alarms)} |"
        for one in found
    ]
    wrong = [f"    {one}" for one in found if one.alarms or one.trouble]
    alarms = sum(bool(one.alarms) for one in found)
    stopped = sum(bool(one.trouble) for one in found)
    return "\n".join([
        "# Nothing is wrong",
        "",
        "Healthy runs of real torch, four ranks on two nodes with real sshd, that make no step for a minute",
        f"now and then, each watched for {minutes:g} minutes with `--on-hang stop`; written by",
        "`make calm ARGS=--write`. *Likely*: called so for a while; no first wait can be told from a hang.",
        "",
        f"{tries.when(None, loads)}: {alarms} surely stuck, {stopped} stopped of {len(found)} runs.",
        "",
        "| kind | what happens | probe | steps | looks | likely | sure |",
        "|---|---|---|---|---|---|---|",
        *rows,
        *(["", "Not as it should be:", "", *wrong] if wrong else []),
        "",
    ])  # fmt: skip


def main() -> int:
    """Try them; 1 if there was an alarm, or a run that did not get on."""
    parser = argparse.ArgumentParser(prog="python -m tests.calm", description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS), help="only these")
    parser.add_argument("--minutes", type=float, default=5, help="of each run (5)")
    parser.add_argument("--jobs", type=int, default=6, help="runs side by side (6)")
    parser.add_argument("--write", action="store_true", help=f"keep the table in {SCORE.name}")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    leaving, loads, found = threading.Event(), [], []
    if why := Lab.unavailable():
        print(f"needs a lab of several nodes, and {why}")
        return 2
    with Lab(nodes=2) as lab, ThreadPoolExecutor(args.jobs) as pool:
        turns = [(kind, probe) for kind in args.kinds.split(",") for probe in ("on", "off")]
        waiting = [pool.submit(tried, lab, *turn, args.minutes, leaving) for turn in turns]
        try:
            for one in waiting:
                found.append(one.result())
                loads.append(os.getloadavg()[0])
                print(found[-1], flush=True)
        finally:
            leaving.set()
            pool.shutdown(cancel_futures=True)
    text = page(found, args.minutes, loads)
    print(text)
    if args.write:
        SCORE.write_text(text)
    return int(any(one.alarms or one.trouble for one in found))


if __name__ == "__main__":
    sys.exit(main())
