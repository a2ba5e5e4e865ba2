"""``make whypool``: all launches of a seed; prints the reasons that were said, phase by phase, and a table.

python -m tests.whypool --seed 7 --shard 1/2 --launches ddp-1,ddp-1-of2
What is there from before is not tried again. With --write the table is kept in tests/whypool/SCORE.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.slowpool.pool import tried
from tests.slowpool.scoring import page
from tests.whypool.cases import launches
from tests.whypool.scoring import HEAD, Reasoned, met, table

SCORE = Path(__file__).with_name("SCORE.md")


def main() -> int:
    """Try what is asked for and is not there yet; 1 if the aim is missed."""
    args, outcomes = tried("whypool", __doc__, SCORE, launches, Reasoned)
    found = table(outcomes)
    print(found)
    if args.write:
        SCORE.write_text(page(outcomes, args.seed, HEAD, found))
    return int(not met(outcomes))


if __name__ == "__main__":
    sys.exit(main())
