"""``python -m tests.weeks [DAYS [NODES]]``: see ``make weeks``."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.weeks.clock import Clock, live
from tests.weeks.story import Month


def main(words: list[str]) -> int:
    """Let the weeks pass, and say how it was; 1: something was not as it should be."""
    days = float(words[0]) if words else 30.0
    nodes = int(words[1]) if len(words) > 1 else 16
    with tempfile.TemporaryDirectory(prefix="weeks-") as place:
        os.environ["XDG_STATE_HOME"] = place
        began, cpu = time.perf_counter(), time.process_time()
        clock = Clock(1_790_000_000.0); _CLOCK.append(clock)
        found = live(clock, _pass(Path(place), days, nodes))
        print(f"{days:g} days of {nodes} nodes in {time.perf_counter() - began:.0f} s, CPU {time.process_time() - cpu:.0f} s")
    for line in found:
        print(line)
    return 0


async def _pass(place: Path, days: float, nodes: int) -> list[str]:
    month = Month(_CLOCK[0], place, days, nodes)
    cockpit = await month.pass_by()
    seen = cockpit.seen
    found = [f"steps {month.step}", f"RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"]
    found += [f"wrong: {each}" for each in month.wrong_copies(seen)[:5]]
    found += [f"kept there {month.kept_there() / 1e6:.1f} MB", f"kept here {month.kept_here()}"]
    found += [f"stall {event.at - month.hung_at:+.0f} s {event.fact.state} {event.fact.found} {event.fact.why}" for event in seen.stalls[:6]]
    found += [f"stop {event.at - month.failed_at:+.1f} s {event.fact}" for event in seen.stops]
    found += [f"lost {event}" for event in seen.lost[:5]]
    found += [f"gaps {sum(map(len, seen.gaps.values()))} notices {seen.notices}"]
    await cockpit.leave()
    return found


_CLOCK: list[Any] = []

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
