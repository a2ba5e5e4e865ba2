"""``make hostile``: the whole campaign, with a table of what was tried; ends with 1 if anything gave way.

python -m tests.hostile --seed 7 --cases 2 --verbs ps,stop --mutations text
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

from tests.hostile import sabotage
from tests.hostile.app import drive
from tests.hostile.app_cases import cases
from tests.hostile.evidence import evidence
from tests.hostile.frames import Outcome, frames, lines
from tests.hostile.profiles import profiles
from tests.hostile.verbs import COLUMNS, MEMORY, VERBS, campaign


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="to see a campaign again")
    parser.add_argument("--frames", type=int, default=100_000, help="through the decoder (100000)")
    parser.add_argument("--lines", type=int, default=20_000, help="of run records (20000)")
    parser.add_argument("--screens", type=int, default=200, help="of what nodes send, through the app (200)")
    parser.add_argument("--cases", type=int, default=20, help="of each verb and mutation (20)")
    parser.add_argument("--every", type=int, default=1, help="only every so many of those pairs (1)")
    parser.add_argument("--minutes", type=float, default=58, help="after which no case is started (58)")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 2), help="cases side by side")
    parser.add_argument("--verbs", type=_Some(VERBS), default=VERBS, help=",".join(VERBS))
    parser.add_argument("--mutations", type=_Some(COLUMNS), default=COLUMNS, help=",".join(COLUMNS))
    parser.add_argument("--keep", action="store_true", help="keep the folders of cases with a fault")
    parser.add_argument("--without", choices=sabotage.BOUNDS, help="take this wall away: it must fail")
    return parser.parse_args(words)


_LINES_A_FILE = 10
"""Files of evidence cost more than lines of run records."""


class _Some:
    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def __call__(self, text: str) -> list[str]:
        words = text.split(",")
        if odd := set(words) - set(self._known):
            raise argparse.ArgumentTypeError(f"no {min(odd)}; there are {', '.join(self._known)}")
        return words


def main(words: Sequence[str] | None = None) -> int:
    """Run what is asked for and print what came of it."""
    args = _parsed(words)
    began = time.monotonic()
    print(f"seed {args.seed}", flush=True)
    if args.without:
        sabotage.remove(args.without)
    # In a process of its own: what it takes must not count for the cases, which begin as copies of this one.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        outcomes, peak = pool.submit(_decoded, args.frames, args.lines, args.seed).result()
    if args.frames:
        _table(outcomes[0].counts)
        print(f"{args.frames} frames, {args.lines} lines of run records, {peak >> 20} MB at most", flush=True)
    outcomes.append(_screens(args.screens, args.seed))
    outcomes.append(_whole(args, began + 60 * args.minutes))
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    if peak > MEMORY:
        faults.append(f"the decoder took {peak >> 20} MB")
    for fault in faults[:100]:
        print(f"FAULT {fault}")
    print(f"seed {args.seed}: {len(faults)} faults in {(time.monotonic() - began) / 60:.1f} minutes")
    return 1 if faults else 0


def _decoded(count: int, record_lines: int, seed: int) -> tuple[list[Outcome], int]:
    files = record_lines // _LINES_A_FILE
    outcomes = [frames(count, seed), lines(record_lines, seed), evidence(files, seed), profiles(files, seed)]
    return outcomes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _screens(count: int, seed: int) -> Outcome:
    """Cases of data through the app, all in one."""
    outcome = Outcome()
    with (
        tempfile.TemporaryDirectory(prefix="cockpit-hostile-") as top,
        ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool,
    ):
        try:
            done = pool.submit(_driven, top, count, seed).result()
        except Exception as error:
            outcome.blame(f"in the app: {error!r}")
        else:
            print(f"{done} parts of what nodes send, through every pane of the app", flush=True)
    return outcome


def _driven(top: str, count: int, seed: int) -> int:
    for name in ("STATE", "CONFIG", "DATA", "CACHE"):
        os.environ[f"XDG_{name}_HOME"] = f"{top}/{name.lower()}"
    return asyncio.run(drive(cases(seed, count))).total() if count else 0


def _whole(args: argparse.Namespace, until: float) -> Outcome:
    if not args.cases:
        return Outcome()
    top = Path(tempfile.mkdtemp(prefix="cockpit-hostile-"))
    pairs = list(product(args.verbs, args.mutations))[:: args.every]
    wanted = (pair for _ in range(args.cases) for pair in pairs)
    try:
        outcome = campaign(
            top, wanted, args.seed, side_by_side=args.jobs, until=until, tell=_tell, keep=args.keep
        )
    finally:
        if not args.keep:
            shutil.rmtree(top, ignore_errors=True)
    _table(outcome.counts)
    codes = ", ".join(f"{verb} {code} ×{n}" for (verb, code), n in sorted(outcome.codes.items()))
    print(f"exit codes: {codes}")
    print(f"{outcome.counts.total()} whole verbs, {outcome.peak >> 20} MB at most")
    print(f"{outcome.left} of them watched a node that went on, until they were told to leave", flush=True)
    for pair in pairs:
        if outcome.counts[pair] < args.cases:
            outcome.blame(f"{' '.join(pair)}: {outcome.counts[pair]} cases, {args.cases} are wanted")
    return outcome


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _table(counts: Counter[tuple[str, str]]) -> None:
    """Cases by verb and mutation."""
    rows = list(dict.fromkeys(sorted((verb for verb, _ in counts), key=_order)))
    columns = [name for name in COLUMNS if any(counts[row, name] for row in rows)]
    width = max(map(len, ["verb", *rows]))
    print("".join([f"{'verb':<{width}}", *(f"  {name}" for name in columns)]))
    for row in rows:
        print("".join([f"{row:<{width}}", *(f"  {counts[row, name]:>{len(name)}}" for name in columns)]))


def _order(verb: str) -> int:
    return VERBS.index(verb) if verb in VERBS else len(VERBS)


if __name__ == "__main__":
    sys.exit(main())
