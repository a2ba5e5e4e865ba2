"""From a key to what is drawn for it, with 1,024 ranks."""

from __future__ import annotations

from benchmarks.table import Level, Result
from benchmarks.uilag import screens

ROUNDS = 15
AIM_MS = 100
NAMES = {"zoom": "pace, z", "time": "pace, > and <", "lines": "nodes, a line a rank"}
"""What some of the keys are called in the table."""
MISSING = (
    "the first > draws 300 steps of all ranks that were not on the screen before, at 0.2 ms a step; "
    "else most of it is the layout of the whole screen when panes come and go"
)


def run() -> Result:
    """Measure; needs nothing."""
    found = screens("ranks", str(ROUNDS))
    levels = [Level("first full screen", [1000 * found["first_s"]], "ms")]
    for what in ("scroll", "select", "filter", "pace", "zoom", "time", "lines"):
        median, worst = found[what]
        what = NAMES.get(what, what)
        levels.append(Level(f"{what}: key to repaint, median", [median], "ms", AIM_MS))
        levels.append(Level(f"{what}: key to repaint, p99", [worst], "ms", AIM_MS, MISSING))
    levels.append(Level("loop lag, p99", [found["p99_lag_ms"]], "ms"))
    half = screens("half", str(ROUNDS))
    for name in ("pace", "zoom", "time"):
        what = f"{NAMES.get(name, name)}, half of the ranks slow: key to repaint"
        for each, value in zip(("median", "p99"), half[name], strict=True):
            levels.append(Level(f"{what}, {each}", [value], "ms", AIM_MS, MISSING))
    return Result(
        "ranks",
        "128 nodes with 8 ranks each, all measured once a second",
        {"cockpit": "the app, headless, 140 x 45, on a made-up session"},
        levels=levels,
    )
