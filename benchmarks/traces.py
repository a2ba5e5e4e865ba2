"""What it costs a node to sum up the traces of its ranks, against json.load of the same file."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import FOLDER, BenchmarkError, interleave
from benchmarks.table import Figure, Level, Result

SIZE = 150_000_000
STEP = 2_620_000
"""Bytes of a step of a rank with shapes and stacks, 5,100 operators, as torch 2.13 wrote it."""
RANKS, STEPS, ROUNDS = 8, 5, 3

_OURS = "import sys; from cockpit.node.profile import traces; code = traces.main(sys.argv[1:])"
_OTHER = "import json, sys; code = 0 if json.load(open(sys.argv[1])) else 1"
# What a process took before it became this program counts in its resource usage, not there.
_TELL = "; sys.stderr.write(open('/proc/self/status').read()); sys.exit(code)"
_BASE = 4991502666000000
_OPERATORS = (
    ("aten::linear", 0, 90), ("aten::t", 2, 18), ("aten::transpose", 4, 14), ("aten::as_strided", 8, 3),
    ("aten::addmm", 24, 60), ("aten::relu", 92, 40), ("aten::clamp_min", 96, 30), ("aten::mul", 140, 9),
)  # fmt: skip


class Cost(NamedTuple):
    """Of one program."""

    wall: float
    cpu: float
    peak: float


def run() -> Result:
    """Measure; needs nothing."""
    with tempfile.TemporaryDirectory() as name:
        large = Path(name) / "large.json"
        small = Path(name) / "small.json.gz"
        with large.open("w") as file:
            file.writelines(trace(SIZE))
        with gzip.open(small, "wt", 1) as file:
            file.writelines(trace(STEPS * STEP))
        size = large.stat().st_size / 1e6
        found = interleave({"ours": lambda: cost(_OURS, large), "other": lambda: cost(_OTHER, large)}, ROUNDS)
        node = [[cost(_OURS, small) for _ in range(RANKS)] for _ in range(ROUNDS)]
    ours, other = found["ours"], found["other"]
    of_a_node = f"a node of {RANKS} ranks, {STEPS} steps each, one after another"
    return Result(
        "traces",
        f"a trace of {size:.0f} MB, summed up on its node",
        {"cockpit": "python -m cockpit.node sum FILE", "other": "json.load(open(FILE)), and no sum"},
        [
            Figure("peak RSS", [one.peak for one in ours], [one.peak for one in other], "MB"),
            Figure("CPU", [one.cpu for one in ours], [one.cpu for one in other], "s"),
        ],
        [
            Level("peak RSS", [one.peak for one in ours], "MB", 200),
            Level("CPU of a MB", [1000 * one.cpu / size for one in ours], "ms"),
            Level(of_a_node, [sum(one.wall for one in each) for each in node], "s", 10),
            Level(f"{of_a_node}: CPU", [sum(one.cpu for one in each) for each in node], "s"),
        ],
        notes=[
            f"Made up as torch writes them: a step of a rank is {STEP / 1e6:.2f} MB; those of a node packed."
        ],
    )


def cost(program: str, file: Path) -> Cost:
    """Of a fresh Python.

    :raises BenchmarkError: it failed
    """
    began = time.perf_counter()
    env = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    words = [sys.executable, "-c", program + _TELL, str(file)]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, text=True
    ) as child:
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    peak = re.search(r"VmHWM:\s+([0-9]+) kB", said)
    if child.returncode or peak is None:
        raise BenchmarkError(f"it ended with {child.returncode}: {said[-500:]}")
    return Cost(time.perf_counter() - began, used.ru_utime + used.ru_stime, int(peak.group(1)) / 1000)


def trace(size: int) -> Iterator[str]:
    """A trace of so many bytes: five steps of operators with shapes, and functions of Python around them."""
    yield '\n  {"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "traceEvents": ['
    each, at, number = size // STEPS, _BASE, 0
    for step in range(STEPS):
        begin, written = at, 0
        while written < each:
            text = "".join(_block(at, number))
            number += 2 + len(_OPERATORS)
            at += 200_000
            written += len(text)
            yield text
        yield _event("user_annotation", f"ProfilerStep#{step}", begin, at - begin, number, "")
        yield _event("user_annotation", "gloo:all_reduce", at - 150_000, 90_000, number, _dims(number), 26850)
    yield '\n  {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 0.000}\n  ]\n}'


def _block(at: int, number: int) -> Iterator[str]:
    name = f"torch/nn/modules/linear.py({number % 400}): forward"
    yield _event("python_function", name, at, 190_000, number, f'"Python id": {number}, ')
    yield _event("python_function", "<built-in function linear>", at + 500, 150_000, number + 1, "")
    for place, (name, start, length) in enumerate(_OPERATORS):
        args = _dims(number + place)
        yield _event("cpu_op", name, at + 1000 * (start + 1), 1000 * length, number + 2 + place, args)


def _dims(number: int) -> str:
    return (
        f'"External id": {number},"Record function id": 0, "Concrete Inputs": ["", "", ""], '
        '"Input type": ["float", "float", "Scalar"], "Input Strides": [[4096, 1], [1, 4096], []], '
        f'"Input Dims": [[{number % 64}, 4096], [4096, 128], []], '
    )


def _event(cat: str, name: str, start: int, length: int, number: int, args: str, tid: int = 26716) -> str:
    return (
        f'\n  {{\n    "ph": "X",\n    "cat": "{cat}",\n    "name": "{name}",\n    "pid": 26716,\n'
        f'    "tid": {tid},\n    "ts": {start // 1000}.{start % 1000:03},\n'
        f'    "dur": {length // 1000}.{length % 1000:03}\n    ,\n'
        f'    "args": {{\n      {args}"Ev Idx": {number}\n    }}\n  }},'
    )
