"""All launches of a seed, one after the other, phase by phase; what was told is kept as it comes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from tests import tries
from tests.slowpool.cases import Fault, Launch
from tests.slowpool.scoring import Outcome
from tests.slowpool.watching import watched

Some = TypeVar("Some", bound=Outcome)


def tried(
    name: str,
    doc: str | None,
    score: Path,
    launches: Callable[[int], Sequence[Launch]],
    kind: type[Some],
) -> tuple[argparse.Namespace, list[Some]]:
    """Try what the command line asks for and is not there yet; that, and all that was told by now.

    :param name: of the pool
    :param score: the file of its table
    :param launches: those of a seed
    :param kind: how what was told is judged
    """
    parser = tries.parser(name, doc, score)
    parser.add_argument("--launches", default="", help="only these: ddp-1,zero3-4")
    args = parser.parse_args()
    folder = tries.folder_of(name, args)
    for launch in tries.shard_of(launches(args.seed), args.shard):
        if not args.launches or launch.name in args.launches.split(","):
            try:
                asyncio.run(_try(launch, folder, kind))
            except AssertionError as error:
                print(f"{launch.name}: {error}", flush=True)
            except KeyboardInterrupt:
                sys.exit(130)
    return args, [outcome for launch in launches(args.seed) for outcome in _kept(launch, folder, kind)]


def _kept(launch: Launch, folder: Path, kind: type[Some]) -> list[Some]:
    """What was told before of a launch."""
    file = folder / f"{launch.name}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    found = {facts["phase"]: facts for facts in map(json.loads, lines)}
    return [kind.read(launch, facts) for facts in found.values()]


async def _try(launch: Launch, folder: Path, kind: type[Some]) -> None:
    done = len(_kept(launch, folder, kind))
    if done == len(launch.phases):
        return
    while isinstance(launch.phases[done], Fault):  # ranks learn in a healthy phase what a step takes
        done -= 1
    rest = replace(launch, phases=launch.phases[done:])
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-") as name:
        os.environ["XDG_STATE_HOME"] = f"{name}/state"
        async for told in watched(rest, Path(name)):
            facts = {**asdict(told), "phase": done + told.phase, "load": os.getloadavg()[0]}
            with (folder / f"{launch.name}.jsonl").open("a") as file:
                file.write(json.dumps(facts) + "\n")
            print(kind.read(launch, facts), flush=True)
