"""What nsys costs the steps of a run, each way that cockpit starts it: real training, real nsys."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from statistics import median

from benchmarks.measure import BenchmarkError
from benchmarks.profiles import STEP_S, profile, training
from benchmarks.table import Figure, Result
from cockpit.base.progress import ring

RANKS, ROUNDS, STEPS = 2, 3, 30
MODES = {
    "around the launcher": ("--profile", "nsys"),
    "around each rank": ("--profile", "nsys", "--per-rank"),
    "ready, nothing recorded": ("--profile", "nsys-ready"),
}
RECORDING = "ready, while steps are recorded"


def run() -> Result:
    """Measure; needs torch and nsys."""
    if shutil.which("nsys") is None:
        raise BenchmarkError("there is no nsys on PATH")
    plain: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in (*MODES, RECORDING)}
    for _ in range(ROUNDS):
        with training(RANKS) as (name, env):
            plain.append(_steps_ms(Path(env["XDG_STATE_HOME"]).parent, name))
        for mode, words in MODES.items():
            with training(RANKS, *words) as (name, env):
                folder = Path(env["XDG_STATE_HOME"]).parent
                found[mode].append(_steps_ms(folder, name))
                if "nsys-ready" in words:
                    told = profile(name, env, "--kind", "nsys", "--steps", str(STEPS)).told
                    found[RECORDING].append(1000 * told["cost"]["during_s"])
    return Result(
        "nsysmodes",
        f"nsys around {RANKS} ranks on this machine, steps of {STEP_S:g} s and some: --trace cuda,nvtx,osrt",
        {"nsys": "cockpit run --profile MODE", "plain": "the same without"},
        [Figure(f"a step with nsys {mode}", some, plain, "ms") for mode, some in found.items()],
        [],
    )


def _steps_ms(folder: Path, run: str) -> float:
    """Milliseconds of a step of rank 0, the median of the next ones."""
    (node,) = folder.glob(f"nodes/cockpit-*/{run}/localhost")
    place = Path(json.loads((node / "record.json").read_text())["rings"])
    (path,) = place.glob("0.*.ring")
    first = ring.read(path.read_bytes()).steps[-1].step
    end = time.monotonic() + 120
    while time.monotonic() < end:
        steps = ring.read(path.read_bytes()).steps
        if steps[-1].step >= first + STEPS:
            known = (ring.seconds(steps, place) for place, one in enumerate(steps) if one.step > first)
            return 1000 * median(one for one in known if one is not None)
        time.sleep(0.5)
    raise BenchmarkError("the training does not go on")
