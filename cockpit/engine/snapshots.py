"""Snapshots on disk: a folder that any machine can open again.

=================  ====================================================================================
``snapshot.json``  what was asked of whom, when, and who did not answer
``rank-N.json``    every dump of global rank N, in the order of the samples; ``null`` where there is none
``tree.json``      for each sample the merged tree: its branches with their depth and their ranks
``verdict.json``   the verdict with its evidence
=================  ====================================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cockpit import __version__, paths
from cockpit.base.gate import RANK_LIMIT
from cockpit.base.stacks import Dump, dump_from_json, dump_json
from cockpit.core.ranks import mask_text
from cockpit.core.snapshot import Place, Sample, Snapshot
from cockpit.core.text import RemoteText
from cockpit.core.verdict import Verdict, verdict
from cockpit.errors import CockpitError

FORMAT = 1
"""Version of the files; a reader refuses a newer one."""

MAIN = "snapshot.json"

_BROKEN = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What reading a file raises that is not as it was written."""


def new_folder(root: Path, snapshot: Snapshot) -> Path:
    """Make a folder (0700) for a snapshot below ``root``, named after it.

    :raises CockpitError: it cannot be made
    """
    try:
        paths.private_dir(root)
        number = 1
        while True:
            name = snapshot.name if number == 1 else f"{snapshot.name}-{number}"
            try:
                (root / name).mkdir(mode=0o700)
                return root / name
            except FileExistsError:
                number += 1
    except OSError as error:
        raise CockpitError(f"cannot make a folder: {error.strerror}", where=str(root)) from None


def save(snapshot: Snapshot, folder: Path) -> None:
    """Write all files of a snapshot; each is whole or as it was before.

    :raises CockpitError: one cannot be written
    """
    head = {
        "format": FORMAT,
        "version": __version__,
        "name": snapshot.name,
        "title": snapshot.title,
        "run": snapshot.run,
        "options": dict(snapshot.options),
        "ranks": {str(rank): asdict(place) for rank, place in snapshot.ranks.items()},
        "samples": [
            {"at": sample.at, "took_s": sample.took_s, "silent": sample.silent} for sample in snapshot.samples
        ],
    }
    try:
        for rank, place in snapshot.ranks.items():
            dumps = [sample.dumps.get(rank) for sample in snapshot.samples]
            told = [None if dump is None else dump_json(dump) for dump in dumps]
            _write(folder / f"rank-{rank}.json", {"rank": rank, "node": place.node, "samples": told})
        _write(folder / "tree.json", [_tree_json(sample) for sample in snapshot.samples])
        _write(folder / "verdict.json", verdict_json(verdict(snapshot)))
        # Last: the folder is a snapshot from here on.
        _write(folder / MAIN, head)
    except OSError as error:
        raise CockpitError(f"cannot write: {error.strerror}", where=str(error.filename or folder)) from None


def load(folder: Path) -> Snapshot:
    """The snapshot of a folder.

    A rank whose file is missing or damaged is there, without a stack.

    :raises CockpitError: it is not one, a newer cockpit wrote it, or it is damaged
    """
    file = folder / MAIN
    try:
        head = _read(file)
        if int(head["format"]) > FORMAT:
            what = f"written by cockpit {_clean(str(head.get('version')))}, which is newer than this one"
            raise CockpitError(what, where=str(file))
        snapshot = Snapshot(
            _clean(head["name"]),
            _clean(head["title"]),
            _clean(head["run"]),
            {_rank(rank): _place(place) for rank, place in head["ranks"].items()},
            [
                Sample(
                    _seconds(sample["at"]),
                    {},
                    {_clean(node): _clean(why) for node, why in sample["silent"].items()},
                    None if sample["took_s"] is None else _seconds(sample["took_s"]),
                )
                for sample in head["samples"]
            ],
            {str(name): bool(value) for name, value in head["options"].items()},
        )
    except (FileNotFoundError, NotADirectoryError):
        known = newest(folder) or newest(folder / "stacks")
        hint = f"see: cockpit stacks {known}" if known else "give the folder that `cockpit stacks` named"
        raise CockpitError(f"is no snapshot: it has no {MAIN}", where=str(folder), hint=hint) from None
    except _BROKEN as error:
        raise CockpitError(_why(error), where=str(file)) from None
    for rank in snapshot.ranks:
        dumps = _dumps(folder / f"rank-{rank}.json", rank, snapshot.samples)
        for sample, dump in zip(snapshot.samples, dumps, strict=True):
            if dump is not None:
                sample.dumps[rank] = dump
    return snapshot


def is_snapshot(folder: Path) -> bool:
    """Whether a path is a snapshot's folder."""
    return os.path.isfile(folder / MAIN)


def newest(root: Path) -> Path | None:
    """The snapshot below ``root`` that was taken last, if there is one."""
    try:
        return max((file.parent for file in root.glob(f"*/{MAIN}")), default=None)
    except OSError:
        return None


def verdict_json(found: Verdict) -> dict[str, Any]:
    """A verdict for programs: ranks as text, everything else as it is."""
    return {**asdict(found), "ranks": mask_text(found.ranks)}


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return f"is damaged, or no file of a snapshot: {RemoteText.of(repr(error)).shown(limit=200)}"


def _dumps(file: Path, rank: int, samples: Sequence[Sample]) -> list[Dump | None]:
    try:
        told = _read(file)["samples"]
        if len(told) != len(samples):
            raise ValueError(f"{len(told)} samples, not {len(samples)}")
        return [None if dump is None else _of_rank(rank, dump) for dump in told]
    except _BROKEN as error:
        what = f"{file.name} {_why(error)}"
        return [Dump(rank, sample.at, error="failed", what=what) for sample in samples]


def _of_rank(rank: int, told: dict[str, Any]) -> Dump:
    dump = dump_from_json(told, _clean)
    if dump.rank != rank:
        raise ValueError(f"a dump of rank {dump.rank}")
    return dump


def _rank(text: str) -> int:
    rank = int(text)
    if not 0 <= rank < RANK_LIMIT:
        raise ValueError(f"no rank: {text}")
    return rank


def _seconds(told: float) -> float:
    # What no calendar has could not be shown, and what is no number is no JSON.
    if not 0 <= float(told) < 1 << 36:
        raise ValueError(f"no time: {told}")
    return float(told)


def _place(told: dict[str, Any]) -> Place:
    local, pid = told["local_rank"], told["pid"]
    return Place(
        _clean(told["node"]),
        None if local is None else int(local),
        None if pid is None else int(pid),
        _clean(told["why"]),
    )


def _tree_json(sample: Sample) -> list[dict[str, Any]]:
    """The tree as a list, parents before their children: a nested one may be too deep for a parser."""
    return [
        {
            "depth": depth,
            "name": branch.frame.name,
            "file": branch.frame.file,
            "line": branch.frame.line,
            "native": branch.frame.native,
            "ranks": mask_text(branch.ranks),
        }
        for depth, branch in sample.tree().walk()
    ]


def _clean(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError(f"expected text, got {type(text).__name__}")
    return RemoteText.of(text).shown()


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _write(file: Path, data: object) -> None:
    beside = file.with_name(file.name + ".new")
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as target:
        # In one piece and without indentation: only that is fast, and a job may have a thousand ranks.
        target.write(json.dumps(data))
    os.replace(beside, file)
