"""Runs programs with the real torch, each twice in a copy of one process that has imported it: without the
probe's hooks, and with them armed as when torch has just been imported.

``python -m tests.probe.real FOLDER``: in it, the probe's folders, and ``programs.json``: by name, what is
done before the hooks arm, and the program.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

from cockpit.node.probe import hooks, sitecustomize

HOOKS = Path(hooks.__file__)
PATIENCE_S = 60
"""A program that takes longer hangs."""


def main(folder: Path) -> None:
    """Run all programs."""
    # What they would all import or compile. Nothing goes backward here: that would start threads.
    torch.compile(torch.nn.Linear(1, 1), backend="eager", fullgraph=True)(torch.ones(1, 1))
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.AdamW([weight]).step()
    torch.optim.SGD([weight]).step()
    gc.collect()
    gc.freeze()  # else a copy that ends as any Python does looks through all that torch has made, and again
    programs: dict[str, tuple[str, str]] = json.loads((folder / "programs.json").read_text())
    statuses: dict[str, int] = {}
    for name, texts in programs.items():
        for probed in ("without", "with"):
            work = folder / probed / name
            work.mkdir(parents=True)
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                return _become(*texts, work, folder if probed == "with" else None)
            _, statuses[f"{probed} {name}"] = os.waitpid(pid, 0)
    (folder / "statuses.json").write_text(json.dumps(statuses))
    return None


def _become(before: str, text: str, work: Path, folder: Path | None) -> None:
    """The program; this process then ends as any Python does."""
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(work / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(work)
    signal.alarm(PATIENCE_S)
    exec(before, {})
    if folder is not None:
        space: dict[str, Any] = {"__name__": "cockpit_probe", "__file__": str(HOOKS)}
        exec(compile(HOOKS.read_bytes(), str(HOOKS), "exec"), space)
        os.environ["PROBED"] = "1"
        places = str(folder / "probe"), "auto", 0, str(folder / "rings")
        armed = space["Hooks"](*places, sitecustomize.interrupted)
        armed.before_torch()  # in time: torch reads these variables when its recorder is needed first
        armed.after(torch)
        os.rename(folder / "probe" / f"0.{os.getpid()}.json", work / "told")
        os.symlink(folder / "rings" / f"0.{os.getpid()}.ring", work / "ring")
    exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
