"""Twenty real runs, with torch on gloo, in which one rank breaks in some way and the others wait for it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.waiting import PATIENCE_S

SCRIPT = """
import atexit, concurrent.futures, datetime, faulthandler, os, resource, signal, sys, threading, time
import torch, torch.distributed as dist
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
RANK, MODE, WHO = int(os.environ["RANK"]), sys.argv[1], int(sys.argv[2])
LIMIT = datetime.timedelta(seconds=float(sys.argv[3]))

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if MODE == "loader_killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyError("label of row %d" % index)

def die():
    os._exit(3)

def parse():
    try:
        return int("x")
    except ValueError:
        raise RuntimeError("no such recipe: zero2.json")

def breaks(step):
    if MODE == "raise":
        raise ValueError("loss became NaN")
    if MODE == "chain":
        parse()
    if MODE == "raise_hangs":
        atexit.register(time.sleep, 600)
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    if MODE == "raise_slow":
        atexit.register(time.sleep, 5)
        raise FileNotFoundError(2, "No such file", "/data/x.bin")
    if MODE == "thread_hangs":
        threading.Thread(target=time.sleep, args=(600,)).start()
        raise IndexError("index 50257 is out of range")
    if MODE in ("loader", "loader_killed"):
        next(iter(torch.utils.data.DataLoader(Rows(), num_workers=1)))
    if MODE == "pool_dies":
        concurrent.futures.ProcessPoolExecutor(1).submit(die).result()
    if MODE == "quiet":
        os._exit(3)
    if MODE == "exit_0":
        os._exit(0)
    if MODE.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, MODE))
    if MODE == "faulthandler":
        faulthandler.enable()
        os.kill(os.getpid(), signal.SIGSEGV)
    if MODE == "stuck":
        time.sleep(600)
    if MODE == "assert":
        assert step < 0, "shapes differ"

def train():
    dist.init_process_group("gloo", timeout=LIMIT)
    if MODE == "survived":
        try:
            parse()
        except RuntimeError:
            import traceback
            traceback.print_exc()
            print("skipping the recipe", flush=True)
    for step in range(1, 60):
        numbers = torch.ones(4)
        if MODE == "barrier":
            if RANK == WHO and step == 12:
                raise KeyError("labels")
            dist.monitored_barrier(timeout=LIMIT)
        dist.all_reduce(numbers)
        print(" step %d/200 | loss %.4f" % (step, 1 / step), flush=True)
        time.sleep(0.1)
        if RANK == WHO and step == 12:
            if MODE == "survived":
                os.kill(os.getpid(), signal.SIGKILL)
            breaks(step)

if MODE == "before" and RANK == WHO:
    raise ImportError("cannot import name flash_attn")
train()
"""


class Scene(NamedTuple):
    """One run.

    :param told: a pattern of the cause
    :param limit_s: after which the others give up waiting
    """

    mode: str
    told: str = ""
    limit_s: float = 60.0


SCENES = (
    Scene("raise", "became NaN"),
    Scene("chain", "no such recipe"),
    Scene("raise_hangs", "CUDA out of memory", 15),
    Scene("raise_slow", "x.bin", 15),
    Scene("thread_hangs", "50257", 15),
    Scene("loader", "label of row"),
    Scene("loader_killed", "killed by signal"),
    Scene("pool_dies", "terminated abruptly"),
    Scene("quiet"),
    Scene("exit_0"),
    Scene("SIGKILL"),
    Scene("SIGSEGV"),
    Scene("SIGBUS", "/dev/shm"),
    Scene("SIGABRT"),
    Scene("faulthandler", "Segmentation fault"),
    Scene("stuck", "", 15),
    Scene("assert", "shapes differ"),
    Scene("barrier", "labels"),
    Scene("survived", "killed from outside"),
    Scene("before", "flash_attn", 15),
)


def runs(folder: Path, jobs: int = 3) -> tuple[list[str], list[str]]:
    """Run all; what was told of each, and of those that were not told right."""
    (folder / "train.py").write_text(SCRIPT)
    with ThreadPoolExecutor(jobs) as pool:
        told = list(pool.map(lambda at: _run(folder, at, SCENES[at]), range(len(SCENES))))
    lines = [f"{'right' if right else 'WRONG'} {line}" for right, line in told]
    return lines, [line for line in lines if line.startswith("WRONG")]


def _run(folder: Path, number: int, scene: Scene) -> tuple[bool, str]:
    size, name = 3 + number % 2, f"{scene.mode.lower().replace('_', '-')}-{os.getpid()}"
    who = (number * 2 + 1) % size
    home = folder / name
    home.mkdir()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    env |= {f"XDG_{kind}_HOME": str(home / kind) for kind in ("STATE", "CONFIG", "CACHE")}
    cockpit = [sys.executable, "-m", "cockpit"]
    words = [*cockpit, "run", "-w", f"localhost:{size}", "--transport", "local", "--launcher", "command"]
    words += ["--headless", "--no-preflight", "--name", name, "--python", sys.executable, "--grace", "2"]
    words += [
        "--failure-wait",
        "6",
        "--hang-after",
        "600",
        "--node-dir",
        str(home),
        "--cwd",
        str(folder),
        "--",
    ]
    words += [sys.executable, "train.py", scene.mode, str(who), str(scene.limit_s)]
    done = subprocess.run(
        words, env=env, capture_output=True, timeout=300, stdin=subprocess.DEVNULL, check=False
    )
    asked = [*cockpit, "ps", "--json", "--no-connect", name]
    said = subprocess.run(asked, env=env, capture_output=True, timeout=PATIENCE_S, check=False).stdout
    found: dict[str, str] = next(iter(json.loads(said)["findings"]), {}) if said else {}
    state = json.loads(said)["state"] if said else ""
    first = [line for line in done.stderr.decode().splitlines() if "first to fail" in line]
    right = found.get("ranks") == str(who) and re.search(scene.told, found.get("detail", "")) is not None
    # One answer: the last lines and the state name the same rank.
    right = right and f"rank {who} " in state and bool(first) and f"rank {who} " in first[0]
    shutil.rmtree(home, ignore_errors=True)
    return (
        right,
        f"{scene.mode}: rank {who} of {size}; told: {found.get('what')} | {found.get('detail')} | {state}",
    )
