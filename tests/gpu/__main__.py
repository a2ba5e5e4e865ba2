"""``make gpu``: what only a machine with an NVIDIA GPU shows, part by part; a table at the end.

Where a part lacks something it is skipped, with the reason; 1 if a part failed.

python -m tests.gpu --python /opt/conda/bin/python: the Python whose torch uses the GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.gpu.job import PARTS, nsys, torch_of, training
from tests.gpu.parts import Lacking


class Outcome(NamedTuple):
    """Of a part: ``held``, ``skipped`` or ``failed``, and what was seen, or why."""

    part: str
    state: str
    said: str


def tried(part: str, look: Callable[[], str]) -> Outcome:
    """What a part comes to."""
    try:
        return Outcome(part, "held", look())
    except Lacking as error:
        return Outcome(part, "skipped", str(error))
    except Exception as error:
        # Whatever it is: the other parts have something to say.
        return Outcome(part, "failed", str(error) or repr(error))


def outcomes(python: str) -> Iterator[Outcome]:
    """Of all parts, as they come."""
    try:
        torch_of(python)
    except Lacking as error:
        yield from (Outcome(part, "skipped", str(error)) for part in (*PARTS, "nsys"))
        return
    done: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gpu-") as name:
        try:
            with training(Path(name), python, "gpu", "--probe", "on") as job:
                for part, look in PARTS.items():
                    done.append(part)
                    yield tried(part, partial(look, job))
        except AssertionError as error:
            rest = [part for part in PARTS if part not in done] or ["the run's end"]
            yield from (Outcome(part, "failed", str(error)) for part in rest)
    yield tried("nsys", partial(nsys, python))


def main(words: list[str] | None = None) -> int:
    """Try all parts; 1: one failed."""
    made = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    made.add_argument("--python", default=sys.executable, help="whose torch uses the GPU (default: this one)")
    found = []
    for one in outcomes(made.parse_args(words).python):
        print(f"{one.part:<12} {one.state:<8} {' '.join(one.said.split())}", flush=True)
        found.append(one.state)
    print(", ".join(f"{found.count(state)} {state}" for state in ("held", "skipped", "failed")))
    return int("failed" in found)


if __name__ == "__main__":
    sys.exit(main())
