"""Record golden runs with the cockpit of this tree: ``python -m tests.golden.make tests/golden/formatN``.

Real runs of real processes, each as a person would start and end it; see README.md in this folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from cockpit.engine.links import payload
from tests.golden.folders import (
    AS_IT_IS,
    NODES,
    SCENARIOS,
    WHO,
    cockpit,
    environment,
    fill,
    generalise,
    local_folder,
    node_folder,
    python,
    shown,
)
from tests.waiting import PATIENCE_S, until

RANK = r'''#!/usr/bin/env python3
"""A rank of a golden run: prints, then does what its first word says."""

import os
import sys
import time

what, rank = sys.argv[1], int(os.environ["RANK"])
out = sys.stdout.buffer
for step in range(3):
    out.write(b"step %d of rank %d: loss %.4f\n" % (step, rank, 1 / (step + 1)))
    out.flush()
    time.sleep(0.05)
if rank == 1:
    # What programs print besides plain lines: colours, a bar that is drawn anew, bytes that are no text.
    out.write("\x1b[32mgr\u00fcn\x1b[0m\n 10%|#   |\r 90%|### |\r".encode() + b"\xff\xfe\x00 no text\n")
if rank == 3:
    out.write(b"a last line without an end")
out.flush()
if what == "fail" and rank == 2:
    sys.stderr.write("CUDA out of memory. Tried to allocate 2.00 GiB\n")
    sys.exit(3)
if what in ("fail", "wait"):
    while not os.path.exists(what + ".over"):
        time.sleep(0.05)
    print("went on to the end")
'''

NSYS = """#!/bin/sh
# Stands in for nsys: writes a report of one line where it is told to, after the program has ended.
[ "$1" = --version ] && { echo "NVIDIA Nsight Systems version 2022.4.2.1-df9881f"; exit 0; }
while [ "$1" != bash ]; do
    [ "$1" = -o ] && report=$2
    shift
done
"$@"
status=$?
echo "report of $COCKPIT_NODE" > "$report.nsys-rep"
exit $status
"""


def main() -> int:
    """Record all scenarios into the folder named by the first word of argv, which must not exist."""
    target = Path(sys.argv[1])
    target.mkdir(mode=0o755)
    (target / "node.pyz").write_bytes(node_code())
    for scenario in SCENARIOS:
        with folder() as top:
            _work(top)
            # The work folder of every scenario is the same: the last one stays.
            shutil.rmtree(target / "work", ignore_errors=True)
            _copy(top / "work", target / "work", top, f"golden-{scenario}")
            _RECORD[scenario](top)
            _keep(top, f"golden-{scenario}", target / scenario)
        # Asked of a copy, and not of the original: so that a copy is proven to be as good.
        with folder() as top:
            run = fill(target, scenario, top)
            text = json.dumps(shown(top, run), indent=1, ensure_ascii=True)
            (target / scenario / "shown.json").write_text(text + "\n")
    return 0


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder, whose path holds nothing that is also found elsewhere."""
    path = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def node_code() -> bytes:
    """What is sent to nodes, without byte code: any Python that this code supports can take it."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(payload.archive())) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target,
    ):
        for name in dict.fromkeys(source.namelist()):
            if not name.endswith(".pyc"):
                info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                target.writestr(info, source.read(name), zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()


# -- runs


def _work(top: Path) -> None:
    work = top / "work"
    work.mkdir()
    python(top)
    (work / "hostfile").write_text("".join(f"{node} slots=2\n" for node in NODES))
    (work / "train").write_text(RANK)
    (work / "train").chmod(0o755)
    (work / "nsys").write_text(NSYS)
    (work / "nsys").chmod(0o755)


@contextlib.contextmanager
def _run(top: Path, name: str, what: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run in the foreground of somebody else's shell."""
    words = ["run", "hostfile", "--launcher", "command", "--headless", "--transport", "local", "--name", name]
    words += [
        "--node-dir",
        str(top / "nodes"),
        "--python",
        str(top / "bin/python3"),
        *options,
        "--",
        "./train",
        what,
    ]
    # Nothing of this shell may get into what is recorded.
    plain = {"PATH": os.defpath, "HOME": str(top), "LANG": "C.UTF-8", "LOGNAME": WHO}
    kept = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR")
    with open(top / f"{name}.said", "wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "cockpit", *words],
            cwd=top / "work",
            env={**plain, **{key: environment(top)[key] for key in kept}},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        yield process
        process.wait(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def _all_wait(top: Path, name: str) -> None:
    """Until every rank has printed all it prints before it waits, and all of it has been fetched."""

    def fetched() -> bool:
        spools = sorted((local_folder(top, name) / "spool").glob("*/rank-*.log"))
        sizes = [path.stat().st_size for path in spools]
        logs = [path for node in NODES for path in sorted(node_folder(top, name, node).glob("rank-*.log"))]
        return len(sizes) == 4 and min(sizes) > 80 and sizes == [path.stat().st_size for path in logs]

    until(fetched, f"{name}: four waiting ranks")


def _ended(top: Path, name: str) -> None:
    files = [node_folder(top, name, node) / "events.jsonl" for node in NODES]
    until(lambda: all('"ended"' in file.read_text() for file in files), f"{name}: the end")


def _healthy(top: Path) -> None:
    with _run(top, "golden-healthy", "end"):
        pass


def _failed(top: Path) -> None:
    with _run(top, "golden-failed", "fail", "--failure-wait", "0.5", "--grace", "5"):
        pass


def _stopped(top: Path) -> None:
    with _run(top, "golden-stopped", "wait"):
        _all_wait(top, "golden-stopped")
        assert cockpit(top, "stop", "golden-stopped").returncode == 0


def _left(top: Path) -> None:
    """The cockpit leaves while ranks run; they end while nobody watches."""
    with _run(top, "golden-left", "wait") as process:
        _all_wait(top, "golden-left")
        process.send_signal(signal.SIGHUP)
    over = top / "work/wait.over"
    over.touch()
    _ended(top, "golden-left")
    over.unlink()


def _lost(top: Path) -> None:
    """A node's supervisor and wrappers are killed: nobody sees the end of its ranks."""
    with _run(top, "golden-lost", "wait"):
        _all_wait(top, "golden-lost")
        there = node_folder(top, "golden-lost", NODES[1])
        os.kill(json.loads((there / "record.json").read_text())["supervisor"]["pid"], signal.SIGKILL)
        (launcher,) = re.findall(r'"launcher_started", "pid": (\d+)', (there / "events.jsonl").read_text())
        os.kill(int(launcher), signal.SIGKILL)
        for start in there.glob("rank-*.start.json"):
            os.kill(json.loads(start.read_text())["wrapper"], signal.SIGKILL)
        (top / "work/wait.over").touch()
    (top / "work/wait.over").unlink()


def _profiled(top: Path) -> None:
    nsys = str(top / "work/nsys")
    with _run(top, "golden-profiled", "end", "--profile", "nsys", "--nsys", nsys, "--no-collect"):
        pass


_RECORD: dict[str, Callable[[Path], None]] = {
    "healthy": _healthy,
    "failed": _failed,
    "stopped": _stopped,
    "left": _left,
    "lost": _lost,
    "profiled": _profiled,
}


# -- what is kept of them


def _keep(top: Path, run: str, target: Path) -> None:
    _copy(local_folder(top, run), target / "local", top, run)
    for node in NODES:
        _copy(node_folder(top, run, node), target / "nodes" / node, top, run)
        (target / "nodes" / node / "node.pyz").unlink()  # the same in all of them


def _copy(source: Path, target: Path, top: Path, run: str) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("helpers.sock"))
    for path in sorted(target.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        if path.is_file() and path.suffix not in AS_IT_IS:
            path.write_bytes(generalise(path.read_bytes(), top, run))
        path.rename(path.with_name(path.name.replace(run, "@RUN@")))


if __name__ == "__main__":
    sys.exit(main())
