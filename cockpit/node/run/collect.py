"""A run's reports: list them; hash and read them, and files that a person has named."""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import os
from typing import Any, Dict, Union

from cockpit.base import record, verbs
from cockpit.base.shared_fields import REPORT_FILES
from cockpit.node import safefiles
from cockpit.node.calls import Call
from cockpit.node.run.dumps import dumps

_CHUNK = 1 << 20


def reports(call: Call) -> Dict[str, Any]:
    """List the files in the run's reports folder, ``files`` [{name, size}] by name, and NCCL's dumps.

    Of more than an answer has room for, the newest, and how many are ``older``: a run of months is profiled
    often.
    """
    run = call.asked(verbs.Reports).dir
    folder = os.path.join(run, record.REPORTS)
    found = []
    if os.path.isdir(folder):
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_file(follow_symlinks=False):
                        info = entry.stat(follow_symlinks=False)
                        found.append((info.st_mtime_ns, entry.name, info.st_size))
    newest = sorted((name, size) for _, name, size in heapq.nlargest(REPORT_FILES, found))
    return {
        "files": [{"name": name, "size": size} for name, size in newest],
        "dumps": dumps(run),
        "older": len(found) - len(newest),
    }


def _open(asked: Union[verbs.Digest, verbs.Read]) -> int:
    folder = asked.dir if asked.named else os.path.join(asked.dir, record.REPORTS)
    return safefiles.opened(os.path.join(folder, asked.file))


def digest(call: Call) -> Dict[str, Any]:
    """The sha256 and size of a file; ``changed`` when it grew or was written while being read.

    Where only the first bytes are asked for, it may grow, by ``rest`` bytes, but not shrink.
    """
    asked = call.asked(verbs.Digest)
    number = _open(asked)
    try:
        before = os.fstat(number)
        digest = hashlib.sha256()
        size = 0
        while asked.size is None or size < asked.size:
            room = _CHUNK if asked.size is None else min(_CHUNK, asked.size - size)
            chunk = os.pread(number, room, size)
            if not chunk or call.cancelled:
                break
            digest.update(chunk)
            size += len(chunk)
        after = os.fstat(number)
        if asked.size is None:
            changed = (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)
            return {"sha256": digest.hexdigest(), "size": size, "changed": changed}
        rest = max(0, after.st_size - size)
        return {"sha256": digest.hexdigest(), "size": size, "changed": size < asked.size, "rest": rest}
    finally:
        os.close(number)


def read(call: Call) -> Dict[str, Any]:
    """Send a file from ``offset`` to its end as items ``{offset}`` with bytes, as credit allows."""
    asked = call.asked(verbs.Read)
    number = _open(asked)
    try:
        offset = asked.offset
        while not call.cancelled and (asked.size is None or offset < asked.size):
            room = min(_CHUNK, call.take_credit(1.0))
            if asked.size is not None:
                room = min(room, asked.size - offset)
            if room <= 0:
                continue
            chunk = os.pread(number, room, offset)
            if not chunk:
                break
            call.item({"offset": offset}, chunk)
            offset += len(chunk)
        return {"size": offset}
    finally:
        os.close(number)
