"""A run's reports: list, hash and read them."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict

from cockpit.base import record, verbs
from cockpit.node import safefiles
from cockpit.node.calls import Call

_CHUNK = 1 << 20


def reports(call: Call) -> Dict[str, Any]:
    """List the files in the run's reports folder: ``files`` [{name, size}], sorted by name."""
    folder = os.path.join(call.asked(verbs.Reports).dir, record.REPORTS)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    sizes = {name: safefiles.size(os.path.join(folder, name)) for name in names}
    return {"files": [{"name": name, "size": size} for name, size in sizes.items() if size is not None]}


def _open(folder: str, name: str) -> int:
    return safefiles.opened(os.path.join(folder, record.REPORTS, name))


def digest(call: Call) -> Dict[str, Any]:
    """The sha256 and size of a report; ``changed`` when it grew or was written while being read."""
    asked = call.asked(verbs.Digest)
    number = _open(asked.dir, asked.file)
    try:
        before = os.fstat(number)
        digest = hashlib.sha256()
        size = 0
        while True:
            chunk = os.pread(number, _CHUNK, size)
            if not chunk or call.cancelled:
                break
            digest.update(chunk)
            size += len(chunk)
        after = os.fstat(number)
        changed = (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)
        return {"sha256": digest.hexdigest(), "size": size, "changed": changed}
    finally:
        os.close(number)


def read(call: Call) -> Dict[str, Any]:
    """Send a report from ``offset`` to its end as items ``{offset}`` with bytes, as credit allows."""
    asked = call.asked(verbs.Read)
    number = _open(asked.dir, asked.file)
    try:
        offset = asked.offset
        while not call.cancelled:
            room = min(_CHUNK, call.take_credit(1.0))
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
