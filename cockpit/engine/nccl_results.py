"""What programs of nccl-tests measured in a run, and what was measured on the same nodes before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cockpit import paths
from cockpit.base.gate import Definition, ListOf, Of, bound, plain, read
from cockpit.core.nccl_tests.comparing import Past, changes
from cockpit.core.nccl_tests.findings import Result
from cockpit.core.run.model import RunModel
from cockpit.engine.files import read_small, replace
from cockpit.engine.nccl import NcclReader
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError
from cockpit.private import private_dir

KEPT = 50
"""Measurements of the same nodes that are kept, the newest."""
_LIMIT = 16 << 20


class _ResultsFile(Definition):
    """The file of a set of nodes."""

    measured: Sequence[Past] = bound(ListOf(Of(Past), 10 * KEPT))


def results(folder: RunFolder, model: RunModel, heard: NcclReader) -> list[Result]:
    """All tables of a run, each with what was measured on the same nodes before.

    Those of a run that is over are kept for the next one.

    :param heard: what was read of its logs
    """
    found = []
    for part, table in heard.tests([node.name for node in model.nodes.values() if node.done]):
        now = Past.of(table, folder.name, folder.manifest.created, table.hosts or (part.node,))
        found.append(Result(table, part.node, part.rank, part.path, now, _before(now)))
    if model.over and not folder.manifest.closed:
        _keep(found)
    return found


def results_here(folder: RunFolder, model: RunModel) -> list[Result]:
    """The same, of the copies that are here."""
    heard = NcclReader(folder)
    heard.read()
    return results(folder, model, heard)


def _before(now: Past) -> Past | None:
    """The newest that has something in common with it."""
    return next(
        (
            one
            for one in reversed(measured(now.hosts))
            if one.run != now.run and one.t <= now.t and one.comparable(now) and changes(now, one)
        ),
        None,
    )


def _keep(found: Sequence[Result]) -> None:
    """Keep what was measured in whole; if it cannot be, the next run has nothing to compare with."""
    whole = [one.now for one in found if one.table.finished and not one.table.damage and one.now.rows]
    by_hosts: dict[tuple[str, ...], list[Past]] = {}
    for past in whole:
        by_hosts.setdefault(tuple(past.hosts), []).append(past)
    for hosts, new in by_hosts.items():
        old = measured(hosts)
        kept = sorted([*(one for one in old if one.run != new[0].run), *new], key=lambda one: one.t)[-KEPT:]
        if kept != old:
            with suppress(CockpitError, OSError):
                private_dir(paths.measured())
                replace(_file(hosts), json.dumps(plain(_ResultsFile(kept))).encode())


def measured(hosts: Sequence[str]) -> list[Past]:
    """What was measured on these nodes, the newest last; what cannot be read is as good as none."""
    with suppress(OSError, ValueError, RecursionError):
        return list(read(_ResultsFile, json.loads(read_small(_file(hosts), _LIMIT))).measured)
    return []


def _file(hosts: Sequence[str]) -> Path:
    return paths.measured() / f"{hashlib.sha256(chr(0).join(hosts).encode()).hexdigest()[:32]}.json"
