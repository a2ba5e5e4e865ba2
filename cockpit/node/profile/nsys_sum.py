"""Sum up an nsys report for each rank in it: ``nsyssum EXPORT REPORT``, which ranks it has on stdin.

On stdin comes JSON: ``{"ranks": {"3": 4711}, "alone": false}``: pids by rank, null: not known; ``alone``:
the report is of this one rank. On stdout comes a line of JSON for each rank: fields of
:class:`cockpit.base.profile.summary.RankProfile`, or ``{"rank": 3, "error": "…"}``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import sys
from typing import Dict, List, Optional, Tuple

from cockpit.base.gate import RANK, RANKS_A_NODE, Digits, Malformed
from cockpit.node import safefiles
from cockpit.node.profile.events import BadTrace
from cockpit.node.profile.nsys_database import Database
from cockpit.node.profile.nsys_tables import RANK_TABLES, Report

TAKES_S = 540.0
"""Seconds for all queries of one report."""
MEMORY = 4 << 30
"""Bytes of address space: a larger one is refused, so that the node has room for its ranks."""
_NICE = 19
_CHUNK = 1 << 20
_PART = 10
"""A process of an unknown job counts as a rank if it has this part of the rows of the busiest one."""


def main(argv: List[str]) -> int:
    """Sum up the export, print JSON; a sentence on stderr and 1 if that cannot be done."""
    os.nice(_NICE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        asked = safefiles.parse(sys.stdin.buffer.read(1 << 20))
        ranks = {Digits(RANK).read(rank): pid for rank, pid in asked["ranks"].items()}
        _sum_up(argv[0], argv[1], ranks, alone=asked.get("alone") is True)
    except (BadTrace, Malformed, ValueError) as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(error.strerror or str(error))
    except MemoryError:
        return _failed("there is not enough memory for it")
    return 0


def _failed(why: str) -> int:
    sys.stderr.write("cockpit: the report cannot be read: %s\n" % why)
    return 1


def _sum_up(export: str, source: str, ranks: Dict[int, Optional[int]], *, alone: bool) -> None:
    with contextlib.closing(Database(export, TAKES_S)) as database:
        _tell(database, source, ranks, alone=alone)


def _tell(database: Database, source: str, ranks: Dict[int, Optional[int]], *, alone: bool) -> None:
    pids, note = processes(database, ranks, alone=alone)
    report = Report(database, pids.values())
    size, digest = _sha256(source)
    for rank, pid in sorted(pids.items()):
        try:
            found = report.told(pid)
            found["notes"] = [*([note] if note else []), *found["notes"]][:20]
            found.update(rank=rank, size=size, sha256=digest)
        except BadTrace as error:
            found = {"rank": rank, "error": str(error)}
        sys.stdout.write(json.dumps(found, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def processes(
    database: Database, ranks: Dict[int, Optional[int]], *, alone: bool
) -> Tuple[Dict[int, int], str]:
    """The process of each rank in a report, and a sentence if that is not sure.

    :param ranks: pids, as the run recorded them; none: the report is of a job that nobody knows
    :raises BadTrace: none of them is in it
    """
    known = {rank: pid for rank, pid in ranks.items() if type(pid) is int}
    found: List[Tuple[int, int]] = []
    for table, column in RANK_TABLES:
        some = database.busiest(table, column)
        there = {pid for pid, _ in some}
        here = {rank: pid for rank, pid in known.items() if pid in there}
        if here:
            return here, ""
        found = found or some
    if not found:
        raise BadTrace("it has no events of any process")
    if alone and len(ranks) == 1:
        why = "its process has another pid in the report: the busiest is taken"
        return {next(iter(ranks)): found[0][0]}, why
    if ranks:
        raise BadTrace("it has no events of these ranks")
    busy = sorted(pid for pid, many in found if _PART * many >= found[0][1])[:RANKS_A_NODE]
    pids = ", ".join(map(str, busy[:20]))
    return dict(enumerate(busy)), "the report names no ranks: processes %s in this order" % pids


def _sha256(path: str) -> Tuple[int, str]:
    """Size and checksum of a file."""
    digest, size = hashlib.sha256(), 0
    with os.fdopen(safefiles.opened(path), "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()
