"""Runs programs that time their own phases, each twice in a copy of one process that has imported torch:
without the probe, and as a rank whose torch has just been imported.

``python -m tests.probe.phased FOLDER``: in it, the probe's folders, and ``programs.json``: by name, the text
of a program, how many ranks it has (only the first is probed), and the modules that it needs.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed
import torch.utils.data

from cockpit.node.probe import hooks, sitecustomize

SIDE_BY_SIDE = 3
"""They sleep most of the time."""
PATIENCE_S = 120
"""A program that takes longer hangs."""


def main(folder: Path) -> None:
    """Run all programs."""
    torch.set_num_threads(1)
    # What programs that compile would import, each again. Nothing goes backward: that would start threads.
    torch.compile(torch.nn.Linear(1, 1), backend="aot_eager", fullgraph=True)(torch.ones(1, 1))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    gc.collect()
    gc.freeze()
    programs: dict[str, tuple[str, int, list[str]]] = json.loads((folder / "programs.json").read_text())
    names, share = list(programs), 0
    others = []
    for share in range(SIDE_BY_SIDE):
        if share == SIDE_BY_SIDE - 1 or (pid := os.fork()) == 0:
            break
        others.append(pid)
    for name in names[share::SIDE_BY_SIDE]:
        text, ranks, needs = programs[name]
        lacks = [module for module in needs if importlib.util.find_spec(module) is None]
        for probed in ("without", "with"):
            work = folder / probed / name
            work.mkdir(parents=True)
            if lacks:
                (work / "lacks").write_text(lacks[0])
                continue
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                return _become(text, ranks, work, folder if probed == "with" else None)
            (work / "status").write_text(str(os.waitpid(pid, 0)[1]))
    if share < SIDE_BY_SIDE - 1:
        os._exit(0)
    for pid in others:
        os.waitpid(pid, 0)
    return None


def _become(text: str, ranks: int, work: Path, folder: Path | None) -> None:
    """The program; this process then ends as any Python does."""
    os.chdir(work)
    rank = 0
    for other in range(1, ranks):
        if os.fork() == 0:
            rank = other
            break
    signal.alarm(PATIENCE_S)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(name if rank == 0 else f"{name}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    if folder is not None and rank == 0:
        settings = str(folder / "probe"), "auto", 0, str(folder / "rings")
        lookout = sitecustomize._Lookout(str(Path(hooks.__file__).parent), settings)  # type: ignore[no-untyped-call]
        sys.meta_path.insert(0, lookout)
        importlib.util.find_spec("nothing_of_that_name")  # it looks at each import what is there
        os.symlink(folder / "probe" / f"0.{os.getpid()}.json", "told")
        os.symlink(folder / "rings" / f"0.{os.getpid()}.ring", "ring")
    space = {"__name__": "__main__", "RANK": rank, "RANKS": ranks, "PROBED": folder is not None}
    exec(compile(text, "train.py", "exec"), space)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
