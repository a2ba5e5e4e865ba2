"""Reports on nodes that are nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from cockpit.base import verbs
from cockpit.base.answers import ReportsAnswer
from cockpit.engine.files import SMALL_LIMIT, read_small
from cockpit.engine.links.link import Link
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.plans.profilers.registry import SUFFIXES


async def uncollected(folder: RunFolder, link: Link, entry: NodeEntry) -> int:
    """How many reports, and dumps of NCCL's, are in a node's run folder, and not in the run's folder here.

    :raises CockpitError: the node cannot say
    """
    answer = await link.call(verbs.Reports(entry.dir))
    here = set(_collected(folder, entry.name))
    return answer.older + sum(each not in here for each in written(answer, entry.dir))


def written(answer: ReportsAnswer, dir: str) -> Iterator[tuple[str, int]]:
    """Name and size of each report, and of each dump that goes with the run folder."""
    yield from ((file.name, file.size) for file in answer.files if file.name.endswith(SUFFIXES))
    yield from ((dump.file, dump.size) for dump in answer.dumps if f"{dump.dir}/".startswith(f"{dir}/"))


def _collected(folder: RunFolder, node: str) -> Iterator[tuple[str, int]]:
    """Name there and size of each file of a node that was fetched and verified, and is still here."""
    reports = folder.path / "reports"
    listed: Any = []
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        listed = json.loads(read_small(reports / "manifest.json", SMALL_LIMIT))["reports"]
    for each in listed if isinstance(listed, list) else ():
        with suppress(KeyError, TypeError, OSError, ValueError):
            mine = each["state"] == "collected" and each["node"] == node and not each["path"]
            if mine and os.lstat(reports / each["file"]).st_size == each["size"]:
                yield each["name"], each["size"]
