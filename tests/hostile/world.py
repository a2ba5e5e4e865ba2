"""Runs to look at: one that is over and one that goes on, each on a good and a hostile node."""

from __future__ import annotations

import gzip
import json
import os
import random
import secrets
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cockpit.base.progress import calls
from cockpit.base.progress.past import Stretch
from cockpit.base.record import EVENTS, EVIDENCE, PROBE, STEPS
from tests.hostile import evidence, mutations, values
from tests.hostile.quick import BAD, REPO
from tests.node.nsys_exports import job
from tests.waiting import until

GOOD = "good"
NODES = (BAD, GOOD)
RANKS = {BAD: (0, 1), GOOD: (2, 3)}

OVER = """
import os, time
rank = os.environ["RANK"]
print(f"rank {rank} trains", flush=True)
time.sleep(0.5)
for step in range(2000):
    print(f"step {step} of rank {rank}: loss {100 - step / 20:.3f}  \\x1b[32mgreen\\x1b[0m")
with open(os.path.join(os.environ["COCKPIT_DIR"], "reports", f"over.rank-{rank}.nsys-rep"), "wb") as file:
    file.write(bytes(range(256)) * 1200 + rank.encode())
"""
NSYS = """#!/bin/bash
if [ "$2" = --help ]; then echo "--type --include-blobs="; exit; fi
while [ "$1" != --output ]; do shift; done
cp "$(dirname "$0")"/export.sqlite "$2"
"""
LIVE = f"""
import os, sys, threading, time
sys.path.insert(0, {str(REPO)!r})
from tests.recorder.serving import serve_rank
from tests.hostile.stepping import make_steps
server = serve_rank()
threading.Thread(target=make_steps, daemon=True).start()
print("rank", os.environ["RANK"], "is ready", flush=True)
time.sleep(3600)
"""


class World:
    """The runs, in a folder.

    :param top: holds the nodes' run folders (``nodes``) and the state folder of who started them (``state``)
    """

    def __init__(self, top: Path) -> None:
        self.top = top
        self.base = top / "nodes"
        self.runs = top / "state" / "cockpit" / "runs"
        self.hostfile = top / "hostfile"
        # A stop goes by the names of run and node: no other world's may be the same.
        mark = secrets.token_hex(3)
        self.over, self.live = f"over-{mark}", f"live-{mark}"
        self._live: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Start both runs and wait for the end of one."""
        self.top.mkdir(parents=True)
        self.hostfile.write_text("".join(f"{node} slots=2\n" for node in NODES))
        over = self._start(self.over, OVER)
        self._live = self._start(self.live, LIVE)
        until(lambda: self._rows(self.live, "rank_started") == 4, "the live run's ranks started", 120)
        assert over.wait(120) == 0, (self.top / f"{self.over}.out").read_text()
        for run in (self.over, self.live):
            for node in NODES:
                self._keep_steps(run, node)
        file = self.runs / self.over / "manifest.json"
        manifest = json.loads(file.read_text())
        manifest["profile"] = {"nsys": str(self._nsys()), "report": "rank"}
        file.write_text(json.dumps(manifest))

    def _nsys(self) -> Path:
        """A stand-in that exports the same of each report."""
        job(self.top / "export.sqlite", (4711,))
        made = self.top / "nsys"
        made.write_text(NSYS)
        made.chmod(0o755)
        return made

    def _start(self, name: str, program: str) -> subprocess.Popen[bytes]:
        script = self.top / f"{name}.py"
        script.write_text(program)
        words = [sys.executable, "-m", "cockpit", "run", str(self.hostfile), "--name", name, "--headless"]
        words += ["--transport", "local", "--launcher", "command", "--python", sys.executable]
        words += ["--node-dir", str(self.base), "--grace", "2", "--", sys.executable, str(script)]
        with (self.top / f"{name}.out").open("wb") as out:
            return subprocess.Popen(
                words,
                cwd=REPO,
                env={**os.environ, "XDG_STATE_HOME": str(self.top / "state")},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def _keep_steps(self, run: str, node: str) -> None:
        """As if the ranks, which have no torch, had made steps that nobody watched."""
        now = time.time()
        told = (Stretch(rank, 1, 1, now, 100, (100,) * 100).line() for rank in RANKS[node])
        (self.node(run, node) / STEPS).write_bytes(b"".join(told))

    def _rows(self, run: str, kind: str) -> int:
        files = (self.node(run, node) / "events.jsonl" for node in NODES)
        return sum(file.read_text().count(f'"{kind}"') for file in files if file.is_file())

    def node(self, run: str, node: str) -> Path:
        """A run folder on a node."""
        return self.base / f"cockpit-{os.geteuid()}" / run / node

    def close(self) -> None:
        """Stop the live run."""
        if self._live is not None:
            self._live.send_signal(signal.SIGTERM)
            self._live.wait(60)

    def state(self, run: str, folder: Path, **changes: Any) -> Path:
        """A state folder that knows a run by its manifest alone; the run's folder in it.

        :param changes: other fields of the manifest
        """
        here = folder / "cockpit" / "runs" / run
        here.mkdir(parents=True, mode=0o700)
        manifest = json.loads((self.runs / run / "manifest.json").read_text())
        # As of a run that was found on its nodes: one with plans and no journal never started.
        (here / "manifest.json").write_text(json.dumps({**manifest, "plans": [], **changes}))
        return here

    def damage(self, run: str, known: Path, target: Path, rng: random.Random) -> None:
        """A damaged copy of the hostile node's run folder, to which a run's manifest then leads."""
        copy = target / f"cockpit-{os.geteuid()}" / run / BAD
        shutil.copytree(self.node(run, BAD), copy, ignore=_no_sockets)
        for _ in range(rng.choice((1, 2, 4))):
            damage(copy, rng)
        manifest = json.loads((known / "manifest.json").read_text())
        manifest["nodes"][0]["dir"] = str(copy)
        (known / "manifest.json").write_text(json.dumps(manifest))


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if stat.S_ISSOCK(os.stat(os.path.join(folder, name)).st_mode)]


FILES = (
    "events.jsonl",
    "sizes.jsonl",
    "times.jsonl",
    "steps.jsonl",
    "record.json",
    "launcher.log",
    "rank-0.log",
    "rank-0.start.json",
    "rank-1.exit.json",
    "rank-0.environ.json",
    "stop.json",
    "supervisor.log",
    "reports",
)
"""What a training program could damage in its run folder."""


def damage(folder: Path, rng: random.Random) -> None:
    """Something that a program on a node could do to a run folder."""
    name = rng.choice((*FILES, "events.jsonl", "record.json", "times.jsonl"))
    path = folder / name
    was = path.read_bytes() if path.is_file() else b""
    match rng.randrange(8):
        case 0:
            _remove(path)
        case 1:
            _remove(path)
            rng.choice((path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("/etc/hostname")))()
        case 2:
            strange = (
                b"[" * 200_000,
                b"\xff\xfe\0",
                b"9" * 5000,
                b"{}",
                b"null",
                rng.randbytes(5000),
                b"x" * 3_000_000,
            )
            _write(path, was[: len(was) // 2] + rng.choice(strange) + b"\n")
        case 3:
            _write(path, was[: rng.randrange(len(was) + 1)])
        case 4:
            for number in rng.choice(((2,), range(4, 300))):
                _write(folder / f"rank-{number}.log", b"not mine\n")
        case 5 if rng.random() < 0.5:
            _traces(folder, rng)
        case 5:
            _write(folder / "reports" / f"{rng.choice(('x', chr(27), 'a b'))}.nsys-rep", b"report")
        case 6 if rng.random() < 0.3:
            _calls(folder / PROBE, rng)
        case 6:
            _evidence(folder, rng)
        case _ if name.endswith(".json") and was:
            _write(path, _rewritten(was, rng))
        case _:
            lines = b"".join(mutations.line(rng) + b"\n" for _ in range(rng.choice((1, 50))))
            events = folder / "events.jsonl"  # an earlier damage may have taken it away
            _write(events, (events.read_bytes() if events.is_file() else b"") + lines)


def _evidence(folder: Path, rng: random.Random) -> None:
    """Evidence that no supervisor has kept, and a run record that names it; some of it makes sense."""
    place = folder / EVIDENCE
    told = b""
    for number in range(rng.choice((1, 3, 250))):
        name = f"20261123-{number:06}-{rng.choice(('stall', 'failure', 'asked'))}.evidence"
        data = rng.choice((evidence.file, evidence.rewritten))(rng)
        try:
            place.mkdir(exist_ok=True)
        except OSError:
            return  # the run folder was replaced by something else
        _write(place / rng.choice((name, name, "x.evidence")), data)
        told += json.dumps({"t": evidence.AT, "e": "evidence", "why": "stall", "file": name}).encode() + b"\n"
    events = folder / EVENTS
    if events.is_file():
        _write(events, told + events.read_bytes())


def _traces(folder: Path, rng: random.Random) -> None:
    """What could be in the way of profiles, in the reports folder and by the names that they have."""
    for number in range(rng.choice((1, 3, 30))):
        step = rng.choice((1, 5, 10**11))
        mark = rng.choice(("x-1", chr(27), "a b", "\u202e", "y" * 150))
        path = folder / "reports" / f"r.{BAD}.rank-{number % 3}.torch.step-{step}.{mark}.trace.json.gz"
        try:
            match rng.randrange(7):
                case 0:
                    path.symlink_to(rng.choice(("/etc/hostname", "/dev/zero", "/nowhere", ".")))
                case 1:
                    os.mkfifo(path)
                case 2:
                    path.mkdir()
                case 3:
                    with path.open("wb") as file:
                        file.truncate(1 << 43)  # all of it a hole
                case 4:
                    path.write_bytes(gzip.compress(b" " * (64 << 20), 1))
                case 5:
                    path.with_name(path.name + ".part").write_bytes(b"{")
                case _:
                    path.write_bytes(gzip.compress(b'{"traceEvents": []}') + rng.randbytes(20))
        except OSError:
            return  # the reports folder was replaced by something else, or has it


def _calls(folder: Path, rng: random.Random) -> None:
    """Files of last calls that no probe has written."""
    for rank in (0, 1, 2):
        pid = rng.choice((7, 4_000_000, 9_999_999_999))
        data = bytearray(rng.randbytes(4096).ljust(calls.SIZE, rng.choice((b"\t", b"\n", b"\x1b"))))
        struct.pack_into("=4Q", data, 0, calls.MAGIC, calls.VERSION, rank, pid)
        _write(folder / f"{rank}.{pid}.calls", bytes(data[: rng.choice((0, 100, calls.SIZE, calls.SIZE))]))


def _rewritten(data: bytes, rng: random.Random) -> bytes:
    """A JSON object with a strange value."""
    try:
        told: dict[str, Any] = json.loads(data)
        name = rng.choice(list(told))
    except (ValueError, IndexError, TypeError):
        return b"{"
    strange: tuple[Any, ...] = (
        None,
        -1,
        10**400,
        "x",
        [],
        {},
        values.deep(rng),
        values.Raw("1e400"),
        rng.choice(values.EVIL),
    )
    told[name] = rng.choice(strange)
    return values.dumped(told)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    try:
        if not path.is_symlink() and (path.is_file() or not path.exists()):
            path.write_bytes(data)
    except OSError:
        pass  # its folder was replaced by something else
