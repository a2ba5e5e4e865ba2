"""``make profilepool``: profiles of real training with a rank slow in one phase: is the reason the same?

python -m tests.profilepool --seed 7 --shard 1/2 --launches ddp-1,zero2-4-of2
What is there from before is not tried again. With --write the table is kept in tests/profilepool/SCORE.md.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from tests import tries
from tests.profilepool.profiling import profiled
from tests.profilepool.scoring import HEAD, facts_of
from tests.slowpool.cases import Launch
from tests.slowpool.scoring import page
from tests.whypool.cases import launches
from tests.whypool.scoring import Reasoned, met, table

SCORE = Path(__file__).with_name("SCORE.md")


def main() -> int:
    """Try what is asked for and is not there yet; 1 if the aim is missed."""
    parser = tries.parser("profilepool", __doc__, SCORE)
    parser.add_argument("--launches", default="", help="only these: ddp-1,zero2-4-of2")
    args = parser.parse_args()
    folder = tries.folder_of("profilepool", args)
    for launch in tries.shard_of(launches(args.seed), args.shard):
        file = folder / f"{launch.name}.jsonl"
        if not file.exists() and (not args.launches or launch.name in args.launches.split(",")):
            _try(launch, file)
    outcomes = [one for launch in launches(args.seed) for one in _kept(launch, folder)]
    print(table(outcomes))
    if args.write:
        SCORE.write_text(page(outcomes, args.seed, HEAD, table(outcomes)))
    return int(not met(outcomes))


def _try(launch: Launch, file: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="profilepool-") as name:
        os.environ["XDG_STATE_HOME"] = f"{name}/state"
        try:
            for told in profiled(launch, Path(name)):
                facts = facts_of(told)
                with file.open("a") as lines:
                    lines.write(json.dumps(facts) + "\n")
                print(Reasoned.read(launch, facts), "" if facts["inside"] else "NOT INSIDE", flush=True)
        except AssertionError as error:
            print(f"{launch.name}: {error}", flush=True)


def _kept(launch: Launch, folder: Path) -> list[Reasoned]:
    """Phases whose profile is of that phase alone."""
    file = folder / f"{launch.name}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [Reasoned.read(launch, facts) for facts in map(json.loads, lines) if facts["inside"]]


if __name__ == "__main__":
    sys.exit(main())
