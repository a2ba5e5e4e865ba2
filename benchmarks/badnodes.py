"""64 nodes of which 12 are not as they should be: how long until each of them is named."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.measure import FOLDER, BenchmarkError
from benchmarks.table import Level, Result
from tests.transport.badnodes import KINDS, bad_node, far_away
from tests.transport.sshserver import Place

NODES = 64
ROUNDS = 3
FAR_S = 1.0
"""One way to the node that is healthy and far away."""


def run() -> Result:
    """Measure; needs nothing: the nodes are ssh servers in this process, with real agents behind them."""
    rounds = [asyncio.run(_round()) for _ in range(ROUNDS)]
    levels = [
        Level("first word about the nodes", [one["word"] for one in rounds], "s", 2),
        Level("every bad node named, with its state", [one["named"] for one in rounds], "s", 15),
        Level("every healthy node ready, but the one far away", [one["ready"] for one in rounds], "s"),
        Level("the command has ended", [one["end"] for one in rounds], "s"),
    ]
    return Result(
        "badnodes",
        f"{NODES} nodes, {len(KINDS) + 1} of them bad or slow, each in its own way",
        {"cockpit": "cockpit run --transport ssh --launcher command HOSTFILE -- true"},
        levels=levels,
        notes=[
            f"Bad: {', '.join(KINDS)}. Slow, and never called failed: a round trip of {2 * FAR_S:g} s.",
            "All servers and agents share the cores with the client.",
        ],
    )


async def _round() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            place = Place(Path(folder))
            names = [f"good{number}" for number in range(NODES - len(KINDS) - 1)]
            for name in [*names, "near"]:
                await stack.enter_async_context(place.server(name))
            await stack.enter_async_context(far_away(place, "far", FAR_S))
            for kind in KINDS:
                await stack.enter_async_context(bad_node(place, kind, kind))
            hostfile = Path(folder) / "hostfile"
            hostfile.write_text("".join(f"{name} slots=1\n" for name in [*names, "far", *KINDS]))
            return await _measure(place, hostfile, len(names))


async def _measure(place: Place, hostfile: Path, good: int) -> dict[str, float]:
    """Start the command with a terminal for its narration, and read along."""
    words = f"run --plain --transport ssh --ssh-config {place.config} --python {sys.executable}"
    program = ["--launcher", "command", str(hostfile), "--", "true"]
    ours, theirs = os.openpty()
    env = {
        **os.environ,
        "PYTHONPATH": str(FOLDER.parent),
        "XDG_STATE_HOME": str(place.folder / "state"),
        "TERM": "xterm",
        "COLUMNS": "2000",
        "LOGNAME": getpass.getuser(),
    }
    began = time.monotonic()
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cockpit",
        *words.split(),
        *program,
        env=env,
        stdin=null,
        stdout=null,
        stderr=theirs,
    )
    os.close(theirs)
    at: dict[str, float] = {}
    text = ""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def read() -> None:
        nonlocal text
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the terminal's last user has gone
            data = b""
        if not data:
            loop.remove_reader(ours)
            over.set()
            return
        text += data.decode(errors="replace")
        now = time.monotonic() - began
        if re.search(r"nodes answered|cockpit: \w+: ", text):
            at.setdefault("word", now)
        if all(_state(kind, text) for kind in KINDS):
            at.setdefault("named", now)
        if any(int(count) >= good for count in re.findall(r"(\d+) of \d+ nodes answered", text)):
            at.setdefault("ready", now)

    loop.add_reader(ours, read)
    await over.wait()
    code = await process.wait()
    at["end"] = time.monotonic() - began
    os.close(ours)
    if code != 3 or len(at) < 4 or re.search(r"far: (?!no answer yet after)", text):
        raise BenchmarkError(f"cockpit run ended with {code}, {at}: {text[-3000:]}")
    return at


def _state(kind: str, text: str) -> bool:
    """Whether a node has been named as one that failed, or as one that is awaited and for what."""
    return bool(
        re.search(rf"cockpit: {kind}: |{kind}[^;()\r]* for [5-9] s \(|{kind}[^;()\r]* for 1\d s \(", text)
    )
