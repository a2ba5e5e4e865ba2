"""From the last step of a run to the rank that holds it up, unasked: four real ranks, 1,024 recorded ones."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.here import Here, started, wait
from benchmarks.measure import BenchmarkError
from benchmarks.table import Level, Result
from benchmarks.uilag import screens

ROUNDS, RECORDED = 3, 5
HANG_AFTER_S = 10.0
AIM_S = 5.0
_TRAIN = ["env", "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", sys.executable, "examples/train_torch.py"]
_HANGS = ["--steps", "100000", "--step-time", "0.2", "--hang", "3@20"]


def run() -> Result:
    """Measure; needs torch."""
    real = [_named() for _ in range(ROUNDS)]
    found = screens("watch", str(RECORDED))
    return Result(
        "watch",
        "from the last step of a run to the rank that holds it up, no key touched",
        {
            "cockpit": f"cockpit run --headless --hang-after {HANG_AFTER_S:g} -- train_torch.py --hang 3@20",
            "recorded": "128 simulated nodes with 8 ranks each, whose agents answer with recorded dumps",
        },
        levels=[
            Level(
                "4 real ranks: from the last step to the culprit, less the threshold", real, "s", AIM_S, _SLOW
            ),
            Level(
                "1,024 recorded ranks: a look, from threshold to verdict",
                [found["look_s"]],
                "s",
                AIM_S,
                _SLOW,
            ),
            Level("1,024 ranks: the watch, each second", [found["tick_ms"]], "ms"),
        ],
        notes=[
            "Until the event is in the model; the app draws ten times a second.",
            "Recorders of the recorded ranks are not asked; a look waits 1.5 s between its samples.",
        ],
    )


def _named() -> float:
    """Seconds over the threshold until rank 3 is named.

    :raises BenchmarkError: it is not, or another is
    """
    more = ["--hang-after", f"{HANG_AFTER_S:g}", "--master-addr", "127.0.0.1", "--no-preflight"]
    with started(4, [*_TRAIN, *_HANGS], more) as here:
        wait(lambda: bool(_stalls(here)), "the watch to call it stalled", 180)
        event = _stalls(here)[0]
    if event["found"]["ranks"] != [3]:
        raise BenchmarkError(f"it names {event['found']}")
    return float(event["t"] - event["since"] - HANG_AFTER_S)


def _stalls(here: Here) -> list[dict[str, Any]]:
    journals = here.folder.glob("state/**/journal.jsonl")
    lines = [line for file in journals for line in file.read_text().splitlines(keepends=True)]
    events = [json.loads(line) for line in lines if '"watch"' in line and line.endswith("\n")]
    return [event for event in events if event["e"] == "watch" and event["state"] == "stalled"]


_SLOW = "py-spy on the nodes before the first look, and fewer processes on the two cores"
