"""The first full screen of the app against that of a Textual app that says hello."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.measure import BenchmarkError, interleave
from benchmarks.table import Figure, Result

ROUNDS = 8
AIM = 1.5
RUN = "20261121-0412-otter"
HELLO = """
from textual.app import App
from textual.widgets import Static

class Hello(App):
    def compose(self):
        yield Static("Hello, world")

Hello().run()
"""
COCKPIT = "from cockpit.cli.main import main; raise SystemExit(main())"


def run() -> Result:
    """Measure; needs nothing."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home, "TERM": "xterm-256color"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs are compiled
        _record(Path(home) / "cockpit" / "runs" / RUN)
        sides = {
            "cockpit": lambda: _first(["-c", COCKPIT, "attach", RUN], b"RECORDED", env),
            "hello": lambda: _first(["-c", HELLO], b"Hello", env),
        }
        interleave(sides, 1)  # files into the cache
        walls = interleave(sides, ROUNDS)
    return Result(
        "firstframe",
        "until the first full screen",
        {"cockpit": f"cockpit attach {RUN} (over, 8 nodes x 8 ranks)", "other": "Hello().run() of Textual"},
        figures=[
            Figure(
                "wall",
                walls["cockpit"],
                walls["hello"],
                "s",
                AIM,
                missing="0.2 s of imports beyond Textual's own, and two screens laid out one after the other",
            )
        ],
    )


def _first(words: list[str], seen: bytes, env: dict[str, str]) -> float:
    """Seconds from the start of a program on a terminal until it shows some bytes."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 140, 0, 0))
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *words], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
    )
    os.close(slave)
    shown = b""
    try:
        while seen not in shown:
            if time.monotonic() - started > 30:
                raise BenchmarkError(f"never showed {seen!r}: {shown[-500:]!r}")
            if select.select([master], [], [], 0.05)[0]:
                shown += os.read(master, 1 << 16)
        return time.monotonic() - started
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _record(folder: Path) -> None:
    """A run that is over, with all its output here."""
    from cockpit.engine.records.folder import Manifest, NodeEntry

    now = time.time()
    nodes = [NodeEntry(f"gpu{i:02d}", f"/tmp/{i}", list(range(8 * i, 8 * i + 8))) for i in range(8)]
    manifest = Manifest(RUN, now - 700, nodes, "deepspeed", ["train.py"], "/home/ada/job")
    for index, node in enumerate(nodes):
        spool = folder / "spool" / f"{index:04d}-{node.name}"
        spool.mkdir(parents=True)
        lines = [{"t": now - 690, "e": "rank_started", "rank": rank, "pid": 1} for rank in node.ranks]
        lines += [{"t": now - 9, "e": "rank_exited", "rank": rank, "code": 0} for rank in node.ranks]
        lines.append({"t": now - 8, "e": "ended"})
        (spool / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for rank in node.ranks:
            (spool / f"rank-{rank}.log").write_text("step 1/5000 loss 2.3\n" * 200)
    (folder / "manifest.json").write_text(json.dumps(asdict(manifest)))
    complete = [{"t": now - 8, "e": "complete", "node": node.name} for node in nodes]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in complete))
