"""cockpit and TraceML beside each other: what each costs the same training, and says of a slow loader.

TraceML (``pip install traceml-ai``) is in an environment of its own that has the same torch; ``TRACEML`` in
the environment is its command, else it is looked for on the path.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.here import Here, started, wait
from benchmarks.marks import NOTES, ROUNDS, WINDOW, begun, compared, watched
from benchmarks.measure import FOLDER, BenchmarkError, interleave
from benchmarks.table import Figure, Level, Result
from tests.ports import free_port

STEPS = 300
"""Of the training whose rank 1 has a slow loader."""
_ENV = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": ""}
_ROWS, _COLUMNS = 50, 160


def unavailable() -> str | None:
    """Why it cannot be measured."""
    return None if _command() else "TraceML is not installed (TRACEML=…/bin/traceml)"


def run() -> Result:
    """Measure; needs torch and TraceML."""
    figures: list[Figure] = []
    sides = {"cockpit": watched("auto"), "TraceML": _traced, "off": _bare, "off again": _bare}
    for size in WINDOW:
        with ExitStack() as stack:
            trainings = begun(stack, size, sides)
            windows = interleave({name: each.window for name, each in trainings.items()}, ROUNDS[size])
        figures += compared(size, windows, ["cockpit"], ("off", "off again"), ["TraceML"])
    ours_s, ours = _by_cockpit()
    live_s, live, _, _ = _by_traceml("cli")
    _, _, end_s, end = _by_traceml("summary")
    return Result(
        "traceml",
        f"cockpit and TraceML {_version()} beside each other, on the same programs",
        {
            "cockpit": "cockpit run … --headless --probe auto",
            "TraceML": "traceml run … (summary, its default; live: --mode=cli)",
            "other": "python training.py, without either",
        },
        figures,
        [
            Level("rank 1 of 2 has a slow loader: cockpit names it, after the first step", [ours_s], "s"),
            Level("TraceML's live view (--mode=cli) names it, after the first step", [live_s], "s"),
            Level("TraceML's summary names it, after the last step", [end_s], "s"),
        ],
        [
            "The first column of a row is that of the tool it names. Aims are for cockpit only.",
            *NOTES,
            *(f"{who} says: {_quoted(said)}" for who, said in (("cockpit", ours), ("TraceML, live,", live))),
            f"TraceML says in its summary: {_quoted(end)}",
            "cockpit is asked with `cockpit ps RUN` again and again, which takes a second or more each time.",
            "TraceML's live view is on the terminal where training was started, here one of 50 lines, and"
            " intended for single-node runs (`traceml run --help`).",
            "Typed by hand: lines to add to a plain loop: cockpit 0; TraceML 3 (`import`, `init`, `with"
            " trace_step(model):`, and what the last holds is indented), from the README of traceml-ai 0.5.0."
            " Trainers of Hugging Face, Lightning and RF-DETR take none with it, says the same.",
        ],
    )


def _command() -> str | None:
    return shutil.which(os.environ.get("TRACEML", "traceml"))


def _version() -> str:
    python = Path(_command() or "").with_name("python")
    ask = "from importlib.metadata import version; print(version('traceml-ai'))"
    return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def _quoted(lines: Sequence[str]) -> str:
    return " / ".join(f"“{line}”" for line in lines)


@contextmanager
def _bare(program: Sequence[str]) -> Iterator[None]:
    """A training that nothing watches."""
    with _group([sys.executable, *program], FOLDER, subprocess.DEVNULL):
        yield


@contextmanager
def _traced(program: Sequence[str]) -> Iterator[None]:
    """The same under TraceML.

    :raises BenchmarkError: it has seen no step, so nothing was measured
    """
    with tempfile.TemporaryDirectory(prefix="cockpit-bench-") as name:
        with _group(_traceml(program), Path(name), subprocess.DEVNULL) as process:
            yield
            process.wait(120)
        if not json.loads(_summary(Path(name)).read_text())["step_time"]["metadata"]["training_latest_step"]:
            raise BenchmarkError("TraceML has seen no step")


def _traceml(program: Sequence[str], *options: str) -> list[str]:
    script, *words = program
    ports = ["--master-port", str(free_port()), "--aggregator-port", str(free_port())]
    return [_command() or "traceml", "run", script, *ports, *options, "--args", *words, "traceml"]


def _summary(folder: Path) -> Path:
    """:raises BenchmarkError: it has written none"""
    found = list(folder.glob("logs/*/final_summary.json"))
    if not found:
        raise BenchmarkError("TraceML has written no summary")
    return found[0]


@contextmanager
def _group(argv: Sequence[str], cwd: Path, output: int) -> Iterator[subprocess.Popen[bytes]]:
    """A command and all that it starts, which end with it."""
    process = subprocess.Popen(
        argv, cwd=cwd, env=_ENV, stdin=output, stdout=output, stderr=output, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _by_cockpit() -> tuple[float, list[str]]:
    """Seconds until cockpit says that rank 1 is slow, and what it says."""
    with tempfile.TemporaryDirectory(prefix="cockpit-bench-") as name:
        program = ["env", "GLOO_SOCKET_IFNAME=lo", sys.executable, *_slow_loader(name)]
        with started(2, program, ["--master-addr", "127.0.0.1", "--no-preflight"]) as here:
            wait((Path(name) / "first").exists, "the first step", 120)
            found = _ask(here)
            while not found and not (Path(name) / "last").exists():
                found = _ask(here)
            took = time.time() - _at(name, "first")
    if not found:
        raise BenchmarkError("cockpit did not say that rank 1 is slow")
    return took, found


def _ask(here: Here) -> list[str]:
    """What a run is bound by and why ranks are slow, in its lines; nothing until rank 1 is called slow."""
    lines = [line.strip() for line in here.said("ps", here.name).splitlines()]
    if not any(line.startswith("rank 1 slow") for line in lines):
        return []
    return [line for line in lines if re.match(r"rank 1 |a step of |[a-z]+-bound", line)]


def _by_traceml(mode: str) -> tuple[float, list[str], float, list[str]]:
    """Seconds from the first step until a terminal names the rank, and what it says; the same of the summary,
    from the last step.

    :raises BenchmarkError: it names none
    """
    with tempfile.TemporaryDirectory(prefix="cockpit-bench-") as name:
        folder = Path(name)
        control, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        program = _traceml(_slow_loader(name), "--nproc-per-node=2", f"--mode={mode}")
        screen, seen = b"", 0.0
        with _group(program, folder, terminal) as process:
            os.close(terminal)
            while process.poll() is None:
                if select.select([control], [], [], 0.1)[0]:
                    with suppress(OSError):
                        screen += os.read(control, 1 << 16)
                if not seen and _named(screen):
                    seen = time.time()
        os.close(control)
        said = [] if mode != "cli" else _named(screen)
        found = _summary(folder)
        diagnosis = json.loads(found.read_text())["primary_diagnosis"]
        end = [diagnosis[field] for field in ("status", "summary", "action")]
        if not seen or "r1" not in end[1]:
            raise BenchmarkError(f"TraceML says {end}")
        return seen - _at(name, "first"), said, found.stat().st_mtime - _at(name, "last"), end


def _named(screen: bytes) -> list[str]:
    """Its first verdict of a rank in what it drew, line by line."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode(errors="replace"))
    found = re.search(r"(INPUT STRAGGLER).*?Why: (.*?) *│.*?Next: (.*?) *[│|]", text, re.DOTALL)
    if found is None:
        found = re.search(r"(INPUT STRAGGLER).*?Why: (.*?) *\|.*?Next: (.*?) *\|", text, re.DOTALL)
    return list(found.groups()) if found else []


def _slow_loader(folder: str) -> list[str]:
    return [str(FOLDER / "slowloader.py"), folder, str(STEPS)]


def _at(folder: str, what: str) -> float:
    return float((Path(folder) / what).read_text())
