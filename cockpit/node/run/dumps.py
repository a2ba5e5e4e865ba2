"""Files that NCCL's watchdog wrote for the ranks of a run when a collective took too long."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List

from cockpit.base import record
from cockpit.base.gate import FILE_NAME, PATH, RANK_LIMIT, Malformed
from cockpit.node import safefiles

NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Variables by which a person says where they go; torch adds the rank. The first that is set counts."""

_ENVIRONMENT = 4 << 20
"""Bytes of a recorded environment."""
_STARTED = re.compile(r"rank-(\d{1,6})\.start\.json")


def dumps(folder: str) -> List[Dict[str, Any]]:
    """What there is of them: ``rank``, ``dir``, ``file`` and ``size`` of each, by rank.

    In the run's folder, where the probe has them go; or where the environment of a rank says, if that is
    known and the file is younger than the rank.
    """
    found: Dict[int, Dict[str, Any]] = {}
    for rank, started in _ranks(folder):
        named = _named(folder, rank)
        for path in filter(None, (named, os.path.join(folder, record.PROBE, record.nccl_dump(rank)))):
            size = safefiles.size(path)
            if size is None or (path == named and _written(path) < started):
                continue
            found[rank] = {
                "rank": rank,
                "dir": os.path.dirname(path),
                "file": os.path.basename(path),
                "size": size,
            }
            break
    return [found[rank] for rank in sorted(found)]


def _ranks(folder: str) -> Iterator[Any]:
    """The ranks that have started here, and when, by the file system's clock."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        match = _STARTED.fullmatch(entry.name)
        if match is None or int(match.group(1)) >= RANK_LIMIT:
            continue
        yield int(match.group(1)), _written(entry.path)


def _written(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _named(folder: str, rank: int) -> str:
    """Where a person has the dump of a rank go; empty: nowhere that is known."""
    try:
        environ = safefiles.load(os.path.join(folder, record.rank_environ(rank)), _ENVIRONMENT).get("environ")
    except (OSError, ValueError):
        return ""
    values = (environ.get(name) for name in NAMES) if isinstance(environ, dict) else ()
    prefix = next((value for value in values if isinstance(value, str) and value), "")
    folder, name = os.path.split(os.path.normpath(prefix + str(rank)))
    try:
        return os.path.join(PATH.read(folder), FILE_NAME.read(name))
    except Malformed:
        return ""
