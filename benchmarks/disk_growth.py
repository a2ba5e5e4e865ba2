"""What a long run leaves on this machine, by what writes it in a run: bytes of a rank and hour."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

from benchmarks.reports import HOURS, NODES, SLOTS, STEP_S, _state
from benchmarks.table import Level, Result
from cockpit.base.record import EVENTS, TIMES
from cockpit.core.pace.measured import EVERY_S
from cockpit.engine.run import measures, paces
from tests.weeks import story
from tests.weeks.__main__ import START
from tests.weeks.clock import Clock, live

NAMED = {
    paces.FILE: "steps and their times",
    measures.FILE: "measurements",
    "journal.jsonl": "journal",
    EVENTS: "records of the nodes",
    TIMES: "time index of logs",
}
LOGS = "copies of logs"


def run() -> Result:
    """Measure; needs nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="kept-") as place,
        _state(place),
        mock.patch.object(story, "QUIET_S", EVERY_S),
        mock.patch.object(story, "STEP_S", STEP_S),
    ):
        steps, found = _night(Path(place))
    hours = NODES * SLOTS * HOURS
    rest = sum(size for name, size in found.items() if name != LOGS)
    names = [*NAMED.values(), *sorted(found.keys() - {*NAMED.values(), LOGS}), LOGS]
    return Result(
        "kept",
        f"{NODES * SLOTS} ranks, {HOURS} h, {steps:,} steps, bytes of a rank and hour here",
        {"cockpit": "the folder of a run that was watched to its end"},
        levels=[
            Level("all but copies of logs", [rest / hours / 1e3], "kB"),
            *(Level(name, [found[name] / hours / 1e3], "kB") for name in names),
        ],
        notes=[
            f"In simulated time. Steps of {STEP_S:g} s; rank 0 prints each, the others each "
            f"{story.OTHERS_PRINT}th; six checkpoints, logs rotated, a clock set, a hang, a failure.",
            "Older steps and measurements are thinned once their files are full: `weeks` has a month.",
        ],
    )


def _night(place: Path) -> tuple[int, Counter[str]]:
    """How many steps were made, and bytes by what they are."""
    clock = Clock(START)

    async def passed() -> story.Story:
        one = story.Story(clock, place, story.Scale(days=1, day_s=HOURS * 3600.0, nodes=NODES))
        await (await one.pass_by()).close()
        return one

    made = live(clock, passed())
    sizes: Counter[str] = Counter()
    for path in made.folder.path.rglob("*"):
        if path.is_file():
            log = path.name.endswith(".log")
            sizes[LOGS if log else NAMED.get(path.name, "anything else")] += path.stat().st_size
    return made.step, sizes
