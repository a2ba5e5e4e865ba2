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
from benchmarks.table import Figure, Level, Result

ROUNDS = 8
AIM = 1.5
RUN, LONG = "20261121-0412-otter", "20261121-0512-heron"
HELLO = """
from textual.app import App
from textual.widgets import Static

class Hello(App):
    def compose(self):
        yield Static("Hello, world")

Hello().run()
"""
COCKPIT = "from cockpit.cli.main import main; raise SystemExit(main())"


def run(rounds: int = ROUNDS, long: int = 1 << 30) -> Result:
    """Measure; needs nothing.

    :param long: bytes of the logs of a second run, which is measured alone; 0: none
    """
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home, "TERM": "xterm-256color"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs are compiled
        _record(Path(home) / "cockpit" / "runs" / RUN)
        sides = {
            "cockpit": lambda: first(["-c", COCKPIT, "attach", RUN], b"RECORDED", env),
            "hello": lambda: first(["-c", HELLO], b"Hello", env),
        }
        interleave(sides, 1)  # files into the cache
        walls = interleave(sides, rounds)
        if long:
            _record(Path(home) / "cockpit" / "runs" / LONG, long // 64)
        words = ["-c", COCKPIT, "attach", LONG]
        longs = [first(words, b"RECORDED", env, b"/5000000 loss") for _ in range(rounds if long else 0)]
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
                missing=_IMPORTS,
            )
        ],
        levels=[Level("a run with 1 GiB of logs, with their last lines", longs, "s", 1.0)] if longs else [],
    )


def first(words: list[str], seen: bytes, env: dict[str, str], also: bytes = b"") -> float:
    """Seconds from the start of a program on a terminal until it shows some bytes, and others too."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 140, 0, 0))
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *words], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
    )
    os.close(slave)
    shown = b""
    try:
        while not (seen in shown and also in shown):
            if time.monotonic() - started > 30:
                raise BenchmarkError(f"never showed {seen!r}: {shown[-500:]!r}")
            if select.select([master], [], [], 0.05)[0]:
                shown += os.read(master, 1 << 16)
        return time.monotonic() - started
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _record(folder: Path, size: int = 4400) -> None:
    """A run that is over, with all its output here: ``size`` bytes of each rank."""
    from cockpit.engine.records.manifest import Manifest, NodeEntry

    now = time.time()
    nodes = [NodeEntry(f"gpu{i:02d}", f"/tmp/{i}", list(range(8 * i, 8 * i + 8))) for i in range(8)]
    manifest = Manifest(folder.name, now - 700, nodes, "deepspeed", ["train.py"], "/home/ada/job")
    for index, node in enumerate(nodes):
        spool = folder / "spool" / f"{index:04d}-{node.name}"
        spool.mkdir(parents=True)
        lines = [{"t": now - 690, "e": "rank_started", "rank": rank, "pid": 1} for rank in node.ranks]
        lines += [{"t": now - 9, "e": "rank_exited", "rank": rank, "code": 0} for rank in node.ranks]
        lines.append({"t": now - 8, "e": "ended"})
        (spool / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for rank in node.ranks:
            with (spool / f"rank-{rank}.log").open("w") as file:
                step, text = 0, ""
                while file.tell() + len(text) < size:
                    text = "".join(
                        f"step {step + i}/5000000 loss {2.3 - (step + i) / 1e8:.4f}\n" for i in range(200)
                    )
                    step += 200
                    file.write(text)
    (folder / "manifest.json").write_text(json.dumps(asdict(manifest)))
    complete = [{"t": now - 8, "e": "complete", "node": node.name} for node in nodes]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in complete))


_IMPORTS = (
    "of 0.44 s, 0.15 s are those of hello; 0.19 s are the imports of 345 modules of ours, where making 364 "
    "dataclasses takes 0.06 s and compiling 244 expressions 0.03 s; 0.1 s are styles and layout of a screen "
    "of 30 widgets. 1.5 would leave 0.08 s for both: it takes a first screen that is made without most of "
    "these modules"
)
