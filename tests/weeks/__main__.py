"""Let weeks pass in simulated time, and say what did not hold: see ``make weeks``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from cockpit.base import times
from cockpit.cli import heap
from tests.weeks.bounds import broken
from tests.weeks.clock import Clock, live
from tests.weeks.month import size
from tests.weeks.story import Scale, Story

START = 1_790_000_000.0


def passed(place: Path, scale: Scale) -> tuple[Story, list[str]]:
    """The story, and what did not hold."""
    clock = Clock(START)

    async def played() -> Story:
        story = Story(clock, place, scale)
        await (await story.pass_by()).close()
        return story

    story = live(clock, played())
    return story, list(broken(story))


def _as_it_is(data: bytes, limit: int = 0) -> bytes:
    return data


def main() -> int:
    """Print what it took; 1 if something did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--no-thinning", action="store_true", help="it must fail then")
    words = parser.parse_args()
    if words.no_thinning:
        times.thinned = _as_it_is
    heap.give_back()  # as whoever attaches does
    began, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="weeks-") as place:
        os.environ["XDG_STATE_HOME"] = place
        story, found = passed(Path(place), Scale(days=words.days, nodes=words.nodes))
        took, used = time.monotonic() - began, time.process_time() - cpu
        print(f"{story.step:,} steps of {words.nodes} nodes in {took / 60:.0f} min, {used / 60:.0f} of CPU")
        print(f"a node keeps {max(size(node.folder) for node in story.nodes.values()) / 1e6:.1f} MB")
        print(f"memory, MB: {' '.join(str(each >> 20) for each in story.resident)}")
        for path in sorted(story.folder.path.iterdir()):
            if path.is_file():
                print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    for what in found:
        print(what)
    print(f"{1 if found else 0} failed" if found else "all held")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
