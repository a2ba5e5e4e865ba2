"""``make slowpool``: all launches of a seed; prints who was named, phase by phase, and a table.

python -m tests.slowpool --seed 7 --shard 1/2 --launches ddp-1,zero3-4
What is there from before is not tried again. With --write the table is kept in tests/slowpool/SCORE.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from tests.slowpool.cases import Launch, launches
from tests.slowpool.scoring import Outcome, met, page, table
from tests.slowpool.watching import watched

SCORE = Path(__file__).with_name("SCORE.md")


def main() -> int:
    """Try what is asked for and is not there yet; 1 if the aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.slowpool", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="to see them again")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="only each Nth launch, from the Ith on")
    parser.add_argument("--launches", default="", help="only these: ddp-1,zero3-4")
    parser.add_argument("--folder", type=Path, help="for what was told (slowpool-SEED in the temp folder)")
    parser.add_argument("--write", action="store_true", help=f"keep the table in {SCORE.name}")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.gettempdir()) / f"slowpool-{args.seed}"
    folder.mkdir(exist_ok=True)
    print(f"seed {args.seed}, {folder}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its run is stopped
    first, _, count = args.shard.partition("/")
    wanted = launches(args.seed)[int(first) - 1 :: int(count)]
    for launch in wanted:
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
