"""Record what :mod:`tests.recorder.toy` leaves in torch's recorders: ``python -m tests.recorder.record``."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cockpit.node.recorder.server import ask

FAULTS = ("slow", "missing", "size", "operation")
RECORDED = Path(__file__).with_name("recorded")
RANKS = range(4)


def record(fault: str) -> dict[str, Any]:
    """Each rank's dump, and the ends of its steps in nanoseconds, when all that can happen has happened."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks = [_start(rank, fault, folder) for rank in RANKS]
        while len(list(folder.glob("*.sock"))) < len(RANKS):
            time.sleep(0.1)
        time.sleep(8)  # steps take 0.1 s each; an error comes at once
        dumps = [json.loads(ask(str(next(folder.glob(f"{rank}.*.sock"))), "fr_trace_json")) for rank in RANKS]
        for process in ranks:
            process.kill()
        printed = [(process.communicate()[0] or "").splitlines() for process in ranks]
    ends = [[int(line.split()[2]) for line in lines if line.startswith("end")] for lines in printed]
    return {"dumps": dumps, "ends": ends}


def _start(rank: int, fault: str, folder: Path) -> subprocess.Popen[str]:
    env = {"RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29617"}
    words = [sys.executable, "-m", "tests.recorder.toy", fault, str(folder)]
    return subprocess.Popen(words, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    RECORDED.mkdir(exist_ok=True)
    for each in sys.argv[1:] or FAULTS:
        data = json.dumps(record(each), separators=(",", ":")).encode()
        (RECORDED / f"{each}.json.gz").write_bytes(gzip.compress(data, mtime=0))
