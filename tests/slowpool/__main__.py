"""``make slowpool``: all launches of a seed; prints who was named, phase by phase, and a table.

python -m tests.slowpool --seed 7 --shard 1/2 --launches ddp-1,zero3-4
What is there from before is not tried again. With --write the table is kept in tests/slowpool/SCORE.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from tests import tries
from tests.slowpool.cases import Launch, launches
from tests.slowpool.scoring import Outcome, met, page, table
from tests.slowpool.watching import watched

SCORE = Path(__file__).with_name("SCORE.md")


def main() -> int:
    """Try what is asked for and is not there yet; 1 if the aim is missed."""
    parser = tries.parser("slowpool", __doc__, SCORE)
    parser.add_argument("--launches", default="", help="only these: ddp-1,zero3-4")
    args = parser.parse_args()
    folder = tries.folder_of("slowpool", args)
    for launch in tries.shard_of(launches(args.seed), args.shard):
        if not args.launches or launch.name in args.launches.split(","):
            try:
                asyncio.run(_try(launch, folder))
            except AssertionError as error:
                print(f"{launch.name}: {error}", flush=True)
            except KeyboardInterrupt:
                return 130
    outcomes = [outcome for launch in launches(args.seed) for outcome in _kept(launch, folder)]
    print(table(outcomes))
    if args.write:
        SCORE.write_text(page(outcomes, args.seed))
    return int(not met(outcomes))


def _kept(launch: Launch, folder: Path) -> list[Outcome]:
    """What was told before of a launch."""
    file = folder / f"{launch.name}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    found = {facts["phase"]: facts for facts in map(json.loads, lines)}
    return [Outcome.read(launch, facts) for facts in found.values()]


async def _try(launch: Launch, folder: Path) -> None:
    done = len(_kept(launch, folder))
    if done == len(launch.phases):
        return
    while launch.phases[done]:  # ranks learn in a healthy phase what a step takes
        done -= 1
    rest = replace(launch, phases=launch.phases[done:])
    with tempfile.TemporaryDirectory(prefix="slowpool-") as name:
        os.environ["XDG_STATE_HOME"] = f"{name}/state"
        async for told in watched(rest, Path(name)):
            facts = {**asdict(told), "phase": done + told.phase, "load": os.getloadavg()[0]}
            with (folder / f"{launch.name}.jsonl").open("a") as file:
                file.write(json.dumps(facts) + "\n")
            print(Outcome.read(launch, facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
