"""``python -m tests.explain.score``: who failed first in generated consoles, and why; is it told right?"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cockpit.engine.explain.reading import explained
from cockpit.engine.explain.sources import items
from tests.explain.consoles import FAULTS, LAUNCHERS, WORLDS, Console, console


def right(one: Console, folder: Path) -> tuple[bool, bool, str]:
    """Whether the first failure is right, and its cause; and what is told."""
    path = folder / f"{one.launcher}-{one.world}-{one.fault}.log"
    path.write_bytes(one.text)
    report = explained(items([str(path)]))
    path.unlink()
    first = report.failed and report.ranks == (() if one.rank is None else (one.rank,))
    if not first and one.world == 1:
        first = report.failed and not report.ranks
    said = report.cause.what if report.cause else ""
    why = one.cause in said if one.cause else True
    return first, first and why, f"{report.what} | {said[:120]}"


def main() -> int:
    """Print the score; 1 if fewer than 90 of 100 are right."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    table: dict[tuple[str, int], Counter[str]] = {}
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for launcher in LAUNCHERS:
            for world in WORLDS:
                count = table.setdefault((launcher, world), Counter())
                for seed in range(most if world < 1024 else min(most, len(FAULTS))):
                    one = console(launcher, world, seed)
                    begun = time.process_time()
                    first, why, told = right(one, Path(folder))
                    count["ms"] += round(1000 * (time.process_time() - begun))
                    count["all"] += 1
                    count["first"] += first
                    count["why"] += why
                    if not why:
                        wrong.append(f"{launcher} {world} {one.fault}: rank {one.rank} | told: {told}")
    print("| launcher | ranks | first | first and cause | ms each |\n|---|---|---|---|---|")
    for (launcher, world), count in table.items():
        many = count["all"]
        found = f"{count['first']} of {many} | {count['why']} of {many}"
        print(f"| {launcher} | {world:,} | {found} | {count['ms'] // many} |")
    every = sum(table.values(), Counter[str]())
    share, caused = every["first"] / every["all"], every["why"] / every["all"]
    print(f"\nfirst: {every['first']} of {every['all']}, {share:.0%}; with its cause: {caused:.0%}")
    print("\nNot right:\n" + "\n".join(wrong or ["nothing"]))
    return int(share < 0.9)


if __name__ == "__main__":
    sys.exit(main())
