"""``make faultpool``: all cases of a seed, with the probe and without; prints what was said, and a table.

python -m tests.faultpool --seed 7 --shard 1/4 --only fifo_open,crossed --minutes 50
What is there from before is not tried again. With --write the table is kept in tests/faultpool/SCORE.md.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests import tries
from tests.faultpool.cases import Case, cases
from tests.faultpool.running import LEAVING, tried
from tests.faultpool.scoring import Outcome, page
from tests.warm import warm

SCORE = Path(__file__).with_name("SCORE.md")
Turn = tuple[Case, str]


def main() -> int:
    """Try what is asked for and is not there yet; 1 if something was not as it should be."""
    args = _parser().parse_args()
    folder = tries.folder_of("faultpool", args)
    only = {name.replace("_", "-") for name in args.only.split(",") if name}
    # In an order that makes a part of them a fair one.
    turns = [turn for turn in _turns(args.seed) if args.probe in ("both", turn[1]) or turn[0].bare]
    chosen = [turn for turn in turns if not only or _chosen(turn[0], only)]
    if not args.score:
        _try(tries.shard_of(chosen, args.shard), folder, args)
    outcomes = [Outcome(case, facts) for case, probe in chosen if (facts := _kept(folder, case, probe))]
    text = page(outcomes, len(chosen) - len(outcomes), args.seed)
    print(text)
    if args.write:
        SCORE.write_text(text)
    wrong = [
        one for one in outcomes for how in ("s", "unattended") if (said := one.judged(how)) and not said.right
    ]
    return int(bool(wrong))


def _parser() -> argparse.ArgumentParser:
    parser = tries.parser("faultpool", __doc__, SCORE)
    parser.add_argument("--only", default="", help="only these kinds or cases: fifo_open,crossed-1")
    parser.add_argument("--probe", choices=("both", "on", "off"), default="both")
    parser.add_argument("--minutes", type=float, default=55, help="begin no run after so many (55)")
    parser.add_argument("--jobs", type=int, default=3, help="runs side by side: most wait for something (3)")
    parser.add_argument("--again", action="store_true", help="try what is there as well")
    parser.add_argument("--keep", action="store_true", help="leave the files of each run where they are")
    parser.add_argument("--score", action="store_true", help="try nothing, print what is there")
    return parser


def _turns(seed: int) -> list[Turn]:
    """All runs of a seed: without torch the probe has nothing to say, and one is enough."""
    turns = [(case, probe) for case in cases(seed) for probe in (("on",) if case.bare else ("on", "off"))]
    random.Random(seed).shuffle(turns)
    return turns


def _chosen(case: Case, only: set[str]) -> bool:
    return bool({case.name, case.kind.name.replace("_", "-"), case.kind.family} & only)


def _kept(folder: Path, case: Case, probe: str) -> dict[str, Any] | None:
    """What was said before of a run."""
    file = folder / f"{case.name}.{probe}.json"
    facts: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return facts if facts and not facts["trouble"] else None


def _try(turns: Sequence[Turn], folder: Path, args: argparse.Namespace) -> None:
    end = time.monotonic() + 60 * args.minutes

    def one(turn: Turn) -> dict[str, Any] | None:
        case, probe = turn
        if time.monotonic() > end or (not args.again and _kept(folder, case, probe)):
            return None
        facts = tried(case, probe, cockpit, args.keep)
        (folder / f"{case.name}.{probe}.json").write_text(json.dumps(facts))
        _print(Outcome(case, facts))
        return facts

    with warm("cockpit") as made, ThreadPoolExecutor(args.jobs) as pool:
        cockpit = (made.python, "-m", "cockpit")
        waiting = [pool.submit(one, turn) for turn in turns]
        try:
            for done in as_completed(waiting):
                done.result()
        finally:
            LEAVING.set()
            pool.shutdown(cancel_futures=True)


def _print(outcome: Outcome) -> None:
    facts = outcome.facts
    if facts["trouble"]:
        print(f"TROUBLE {outcome.case.name} probe {outcome.probe}: {facts['trouble']}", flush=True)
    else:
        print(f"{facts['seconds']:5.0f} s {outcome.line('s')}", flush=True)
        if facts["unattended"]:
            print(f"     by itself {outcome.line('unattended')}", flush=True)
    if facts["left"]:
        print(f"        left after the stop: {facts['left']}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
