"""``make calm``: healthy runs that make no step for a minute now and then; 1 if one is called stalled.

python -m tests.calm --kinds checkpoint,paused_node --minutes 6 --jobs 5
With --write the table is kept in tests/calm/SCORE.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import tries
from tests.calm import RANKS
from tests.waiting import until

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
    "slept": "the cockpit itself is paused for a minute, as on a laptop that slept",
}
PAUSE_S = 60
NODES = ("localhost", "127.0.0.2")


@dataclass(frozen=True)
class Said:
    """What the watch said of a run: looks at a standstill, and alarms; and how many steps it made."""

    kind: str
    probe: str
    steps: int
    looks: int
    alarms: tuple[str, ...]
    trouble: str = ""

    def __str__(self) -> str:
        told = f"{self.steps} steps, {self.looks} looks, {len(self.alarms)} alarms"
        return f"{self.kind:15} probe {self.probe:3}  {self.trouble or told}  {'; '.join(self.alarms)}"


class Run:
    """A healthy run under a real cockpit, with the limits that everybody has."""

    def __init__(self, kind: str, probe: str) -> None:
        self.kind, self.probe = kind, probe
        self.name = f"calm-{kind.replace('_', '-')}-{probe}"
        self.folder = Path(tempfile.mkdtemp(prefix="calm-"))
        self._out = (self.folder / "said").open("wb")
        self.cockpit = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        shutil.copy(TRAIN, self.folder)
        slots = RANKS // len(NODES)
        (self.folder / "hosts").write_text("".join(f"{name} slots={slots}\n" for name in NODES))
        (self.folder / "nodes").mkdir()
        homes = {f"XDG_{kind}_HOME": str(self.folder / kind) for kind in ("STATE", "CONFIG", "CACHE")}
        self._env = {**os.environ, **homes, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
        words = ["run", "--headless", "--transport", "local", "--no-preflight", "--probe", self.probe]
        words += ["--launcher", "torchrun", "--master-addr", "127.0.0.1", "--name", self.name]
        words += ["--cwd", str(self.folder), "--node-dir", str(self.folder / "nodes")]
        words += [str(self.folder / "hosts"), "--", str(self.folder / "train.py"), self.kind]
        return self._spawn(words)

    def _spawn(self, words: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "cockpit", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env=self._env,
        )

    def steps(self) -> int:
        """How many steps rank 0 has printed."""
        logs = self.folder.glob("nodes/*/*/*/rank-0.log")
        return max((log.read_bytes().count(b"step ") for log in logs), default=0)

    def watched(self) -> list[dict[str, Any]]:
        """The events of the watch."""
        journal = self.folder / "STATE" / "cockpit" / "runs" / self.name / "journal.jsonl"
        lines = journal.read_text().splitlines() if journal.exists() else []
        told = [json.loads(line) for line in lines if '"watch"' in line and line.endswith("}")]
        return [event for event in told if event["e"] == "watch"]

    def disturb(self) -> None:
        """Pause what this kind pauses, and let it go on."""
        if self.kind == "slept":
            paused = [self.cockpit.pid]
        elif self.kind == "paused_node":
            paused = list(self._of_node(NODES[1]))
        else:
            return
        for signum in (signal.SIGSTOP, signal.SIGCONT):
            for pid in paused:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)
            if signum == signal.SIGSTOP:
                time.sleep(PAUSE_S)

    def _of_node(self, node: str) -> Iterator[int]:
        """The processes of a node: its agent, and all that its supervisor started, with the supervisor."""
        agents = [pid for pid in _children(self.cockpit.pid) if b"receive(size)" in _read(pid, "cmdline")]
        # They are started in the order of the hostfile.
        yield sorted(agents)[NODES.index(node)]
        folder = os.fsencode(self.folder / "nodes") + b"/"
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            words = _read(pid, "environ").split(b"\0")
            mine = {f"COCKPIT_RUN={self.name}".encode(), f"COCKPIT_NODE={node}".encode()} <= {*words}
            command = _read(pid, "cmdline")
            if mine or (folder in command and f"/{node}/node.py".encode() in command):
                yield pid

    def stop(self) -> None:
        """End it, and remove its files."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._spawn(["stop", self.name, "--now"]).wait(60)
        self.cockpit.kill()
        self.cockpit.wait()
        self._out.close()

    def remove(self) -> None:
        """Remove its files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _children(parent: int) -> Iterator[int]:
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        stat = _read(pid, "stat").rpartition(b")")[2].split()
        if stat and int(stat[1]) == parent:
            yield pid


def tried(kind: str, probe: str, minutes: float, leaving: threading.Event) -> Said:
    """Let one run for so long, and read what its watch has said."""
    run = Run(kind, probe)
    trouble = ""
    try:
        until(lambda: run.steps() > 3 or leaving.is_set(), "steps", timeout=300)
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end and not leaving.wait(20):
            run.disturb()
        if run.cockpit.poll() is not None:
            trouble = f"it ended with {run.cockpit.returncode}: {(run.folder / 'said').read_text()[-300:]}"
    except AssertionError as error:
        trouble = str(error)
    finally:
        run.stop()
    events, steps = run.watched(), run.steps()
    stalled = [event for event in events if event["state"] == "stalled"]
    alarms = tuple((event["found"] or {}).get("what", "nobody named") for event in stalled)
    run.remove()
    looks = sum(bool(event["found"]) for event in events)
    return Said(kind, probe, steps, looks, alarms, trouble)


def page(found: list[Said], minutes: float, loads: list[float]) -> str:
    """The table."""
    rows = [
        f"| {one.kind} | {KINDS[one.kind]} | {one.probe} | {one.steps} | {one.looks} | {len(one.alarms)} |"
        for one in found
    ]
    wrong = [f"    {one}" for one in found if one.alarms or one.trouble]
    alarms = sum(len(one.alarms) for one in found)
    return "\n".join([
        "# Nothing is wrong",
        "",
        "Healthy runs of real torch, four ranks on two nodes, that make no step for a minute now and then,",
        f"each watched for {minutes:g} minutes with the default limits; written by `make calm ARGS=--write`.",
        "",
        f"{tries.when(None, loads)}: {alarms} false alarm{'s' * (alarms != 1)} in {len(found)} runs.",
        "",
        "| kind | what happens | probe | steps | looks | alarms |",
        "|---|---|---|---|---|---|",
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
    with ThreadPoolExecutor(args.jobs) as pool:
        turns = [(kind, probe) for kind in args.kinds.split(",") for probe in ("on", "off")]
        waiting = [pool.submit(tried, *turn, args.minutes, leaving) for turn in turns]
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
