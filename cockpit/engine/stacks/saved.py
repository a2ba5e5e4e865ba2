"""Snapshots on disk: a folder that any machine can open again.

=================  ====================================================================================
``snapshot.json``  who was asked for what, when, and who did not answer
``rank-N.json``    every dump of global rank N, in the order of the samples; ``null`` where there is none;
                   ranks without any have no file
``tree.json``      for each sample the merged tree: its branches with their depth and their ranks
``verdict.json``   the verdict with its evidence
=================  ====================================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit import __version__, paths
from cockpit.base import gate
from cockpit.base.answers import RankCalls
from cockpit.base.gate import Definition, Digits, ListOf, MapOf, Maybe, Of, bound, maybe, plain, read
from cockpit.base.shell import quote
from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.packing import dump_json
from cockpit.base.stacks.unpacking import ANYTHING, FromJson, Room
from cockpit.core.finding import Finding
from cockpit.core.ranks import mask_text
from cockpit.core.stacks import last_calls
from cockpit.core.stacks.collectives import Collectives
from cockpit.core.stacks.progress import Progress
from cockpit.core.stacks.ras import Ras
from cockpit.core.stacks.snapshot import Sample, Snapshot
from cockpit.core.stacks.verdict import verdict
from cockpit.core.text import one_line
from cockpit.engine.files import create, read_small
from cockpit.engine.stacks.places import WORDS, PlaceJson, place_json, twice_of
from cockpit.errors import CockpitError
from cockpit.private import private_dir

FORMAT = 1
"""Version of the files; a reader refuses a newer one."""

MAIN = "snapshot.json"

FILE_LIMIT = 32 << 20
"""Bytes of one file: a larger one is neither written nor read."""

ROOM = 1 << 30
"""Bytes that a snapshot from disk may take up, as :class:`cockpit.base.stacks.unpacking.Room` counts them."""

_BROKEN = (OSError, ValueError, RecursionError)
"""What reading a file raises if it is not as it was written."""


class _Sample(Definition):
    at: float = bound(gate.TIME)
    took_s: float | None = bound(Maybe(gate.TIME))
    silent: dict[str, str] = bound(MapOf(WORDS, WORDS, 1 << 16))


class _Head(Definition):
    """``snapshot.json``."""

    name: str = bound(WORDS)
    title: str = bound(WORDS)
    run: str = bound(WORDS)
    options: dict[str, bool] = bound(MapOf(WORDS, gate.FLAG, 100))
    ranks: dict[int, PlaceJson] = bound(MapOf(Digits(gate.RANK), Of(PlaceJson), gate.RANK_LIMIT))
    samples: tuple[_Sample, ...] = bound(ListOf(Of(_Sample), 100_000))
    files: tuple[int, ...] | None = maybe(ListOf(gate.RANK, gate.RANK_LIMIT))
    progress: Progress | None = maybe(Of(Progress))
    collectives: Collectives | None = maybe(Of(Collectives))
    ras: Ras | None = maybe(Of(Ras))
    calls: tuple[RankCalls, ...] = bound(ListOf(Of(RankCalls), gate.RANK_LIMIT), ())
    problems: tuple[str, ...] = bound(ListOf(WORDS, 100), ())
    twice: dict[int, str] | None = maybe(MapOf(Digits(gate.RANK), WORDS, gate.RANK_LIMIT))
    stood: dict[int, float] = bound(MapOf(Digits(gate.RANK), gate.TIME, gate.RANK_LIMIT), {})
    by_nodes: str = bound(WORDS, "")


class _Version(Definition):
    """The part of ``snapshot.json`` that every version has."""

    format: int = bound(gate.COUNT)
    version: str = bound(WORDS, "")


class _Rank(Definition):
    """``rank-N.json``; its dumps are read one by one."""

    samples: tuple[Any, ...] = bound(ListOf(ANYTHING, 100_000))
    closer: Any = bound(ANYTHING, None)


def new_folder(root: Path, snapshot: Snapshot) -> Path:
    """Make a folder (0700) for a snapshot below ``root``, named after it.

    :raises CockpitError: it cannot be made
    """
    try:
        if paths.state() in root.parents:
            private_dir(root)
        else:  # a person named it, and may share it
            root.mkdir(0o700, parents=True, exist_ok=True)
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


def writable(root: Path) -> bool:
    """Whether this user may make folders below ``root``, which need not be there yet."""
    there = next((path for path in (root, *root.parents) if path.exists()), root)
    return os.access(there, os.W_OK | os.X_OK)


def save(snapshot: Snapshot, folder: Path) -> None:
    """Write all files of a snapshot; each is whole or as it was before.

    :raises CockpitError: one cannot be written
    """
    asked = [*(sample.dumps for sample in snapshot.samples), snapshot.closer]
    files = [rank for rank in snapshot.ranks if any(rank in dumps for dumps in asked)]
    head = {
        "format": FORMAT,
        "version": __version__,
        "name": snapshot.name,
        "title": snapshot.title,
        "run": snapshot.run,
        "options": dict(snapshot.options),
        "ranks": {str(rank): place_json(place) for rank, place in snapshot.ranks.items()},
        "samples": [sample.as_json() for sample in snapshot.samples],
        "files": files,
        "progress": snapshot.progress and snapshot.progress.as_json(),
        "collectives": snapshot.collectives and snapshot.collectives.as_json(),
        "ras": snapshot.ras and snapshot.ras.as_json(),
        "calls": [plain(one) for one in snapshot.calls.values()],
        "problems": list(snapshot.problems),
        "twice": {str(rank): text for rank, text in snapshot.twice.items()},
        "stood": {str(rank): since for rank, since in snapshot.stood.items()},
        "by_nodes": snapshot.by_nodes,
    }
    try:
        for rank in files:
            _write(folder / f"rank-{rank}.json", [_rank_text(rank, snapshot)])
        _write(folder / "tree.json", _tree_text(snapshot))
        _write(folder / "verdict.json", [json.dumps(verdict_json(verdict(snapshot)))])
        # Last: the folder is a snapshot from here on.
        _write(folder / MAIN, [json.dumps(head)])
    except OSError as error:
        raise CockpitError(f"cannot write: {error.strerror}", where=str(error.filename or folder)) from None


def load(folder: Path) -> Snapshot:
    """The snapshot of a folder.

    A rank whose file is missing or damaged is included, without a stack.

    :raises CockpitError: it is not a snapshot, a newer cockpit wrote it, or it is damaged
    """
    file = folder / MAIN
    try:
        told = _read(file)
        written = read(_Version, told)
        if written.format > FORMAT:
            what = f"written by cockpit {written.version}, which is newer than this one"
            raise CockpitError(what, where=str(file))
        head = read(_Head, told)
    except (FileNotFoundError, NotADirectoryError):
        known = newest(folder) or newest(folder / "stacks")
        hint = "give the folder that `cockpit stacks` named"
        if known:
            hint = f"see: cockpit stacks {quote(str(known))}"
        raise CockpitError(f"is not a snapshot: it has no {MAIN}", where=str(folder), hint=hint) from None
    except _BROKEN as error:
        raise CockpitError(_why(error), where=str(file)) from None
    snapshot = _opened(head)
    reader = FromJson(one_line, Room(ROOM, ROOM))
    for rank in snapshot.ranks if head.files is None else set(head.files) & set(snapshot.ranks):
        dumps, closer = _dumps(folder / f"rank-{rank}.json", rank, snapshot.samples, reader)
        if closer is not None:
            snapshot.closer[rank] = closer
        for sample, dump in zip(snapshot.samples, dumps, strict=True):
            if dump is not None:
                sample.dumps[rank] = dump
    return snapshot


def _opened(head: _Head) -> Snapshot:
    """The snapshot, still without dumps."""
    samples = [Sample(**vars(one)) for one in head.samples]
    ranks = {rank: one.place for rank, one in head.ranks.items()}
    more: dict[str, Any] = {"progress": head.progress, "collectives": head.collectives, "ras": head.ras}
    more["by_nodes"] = head.by_nodes
    more["calls"] = {one.rank: last_calls.harmless(one) for one in head.calls if one.rank in ranks}
    more["twice"] = twice = twice_of(head.problems) if head.twice is None else head.twice
    more["problems"] = tuple(text for text in head.problems if text not in twice.values())
    # Nobody has stood still since a time that was still to come.
    begun = samples[0].at if samples else 0.0
    more["stood"] = {rank: at for rank, at in head.stood.items() if rank in ranks and at <= begun}
    return Snapshot(head.name, head.title, head.run, ranks, samples, head.options, **more)


@dataclass(frozen=True)
class Summary:
    """A snapshot as a list shows it.

    :param at: when it was begun, unix seconds on our clock; None: no sample is in it
    :param until: when its last sample was begun, of which its verdict and the nodes' reason are
    :param by_nodes: see :class:`Snapshot`
    """

    name: str
    at: float | None
    until: float | None
    ranks: int
    samples: int
    by_nodes: str


def head(folder: Path) -> Summary:
    """What a snapshot is of, without its dumps.

    :raises CockpitError: it is not a snapshot, or damaged
    """
    try:
        found = read(_Head, _read(folder / MAIN))
    except _BROKEN as error:
        raise CockpitError(_why(error), where=str(folder / MAIN)) from None
    first, last = (found.samples[0].at, found.samples[-1].at) if found.samples else (None, None)
    return Summary(found.name, first, last, len(found.ranks), len(found.samples), found.by_nodes)


def is_snapshot(folder: Path) -> bool:
    """Whether a path is a snapshot's folder."""
    return os.path.lexists(folder / MAIN)  # one that is damaged too: why is said as it is read


def newest(root: Path) -> Path | None:
    """The newest snapshot below ``root``, if there is one."""
    try:
        return max((file.parent for file in root.glob(f"*/{MAIN}")), default=None)
    except OSError:
        return None


def verdict_json(found: Finding) -> dict[str, Any]:
    """A verdict for programs: the finding, also by the names that its fields had first."""
    steps = [step.text for step in found.steps]
    return {**found.as_json(), "kind": found.id, "headline": found.what, "next": steps}


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return f"is damaged, or not a file of a snapshot: {one_line(str(error), limit=200)}"


def _dumps(
    file: Path, rank: int, samples: Sequence[Sample], reader: FromJson
) -> tuple[list[Dump | None], Dump | None]:
    """The dumps of a rank, one a sample, and the closer look at it."""
    try:
        found = read(_Rank, _read(file))
        told = found.samples
        if len(told) != len(samples):
            raise ValueError(f"{len(told)} samples, not {len(samples)}")
        dumps = [None if dump is None else _of_rank(rank, reader(dump)) for dump in told]
        return dumps, None if found.closer is None else _of_rank(rank, reader(found.closer))
    except _BROKEN as error:
        what = f"{file.name} {_why(error)}"
        return [Dump(rank, sample.at, error="failed", what=what) for sample in samples], None


def _of_rank(rank: int, dump: Dump) -> Dump:
    if dump.rank != rank:
        raise ValueError(f"a dump of rank {dump.rank}")
    return dump


def _rank_text(rank: int, snapshot: Snapshot) -> str:
    """The content of a rank's file; if it would be too large, a note that says so."""
    dumps = [sample.dumps.get(rank) for sample in snapshot.samples]
    node = json.dumps(snapshot.ranks[rank].node)
    told: list[str] = []
    size = 0
    for dump in dumps:
        told.append(_dump_text(dump))
        size += len(told[-1])
        if size > FILE_LIMIT - (1 << 20):
            what = f"its stacks take up more than {FILE_LIMIT >> 20} MiB and are not saved"
            instead = [dump and Dump(rank, dump.at, error="failed", what=what) for dump in dumps]
            told = [_dump_text(dump) for dump in instead]
            break
    more = _dump_text(snapshot.closer.get(rank))
    closer = "" if more == "null" or size + len(more) > FILE_LIMIT - (1 << 20) else f', "closer": {more}'
    return f'{{"rank": {rank}, "node": {node}, "samples": [{", ".join(told)}]{closer}}}'


def _dump_text(dump: Dump | None) -> str:
    if dump is None:
        return "null"
    told = dump_json(dump)
    # One by one: nothing else runs during one call that writes, and the app must stay responsive.
    threads = ", ".join(map(json.dumps, told.pop("threads")))
    return f'{json.dumps(told)[:-1]}, "threads": [{threads}]}}'


def _tree_text(snapshot: Snapshot) -> Iterator[str]:
    """The trees of all samples, one after the other, branch by branch."""
    between = "["
    for sample in snapshot.samples:
        yield between + "["
        between = ""
        for branch in _branches(sample):
            yield between + json.dumps(branch)
            between = ", "
        yield "]"
        between = ", "
    yield "]" if snapshot.samples else "[]"


def _branches(sample: Sample) -> Iterator[dict[str, Any]]:
    """The tree as a list, parents before their children: a nested one may be too deep for a parser."""
    for depth, branch in sample.tree().walk():
        yield {
            "depth": depth,
            "name": branch.frame.name,
            "file": branch.frame.file,
            "line": branch.frame.line,
            "native": branch.frame.native,
            "ranks": mask_text(branch.ranks),
        }


def _read(file: Path) -> Any:
    return json.loads(read_small(file, FILE_LIMIT).decode())


def _write(file: Path, parts: Iterable[str]) -> None:
    """Write JSON, without indentation: with it, writing a thousand ranks would be slow."""
    beside = file.with_name(file.name + ".new")
    try:
        with create(beside) as target:
            target.writelines(part.encode("ascii") for part in parts)
        os.replace(beside, file)
    except OSError as error:
        # A write names no file.
        error.filename = error.filename or str(file)
        with suppress(OSError):
            beside.unlink()
        raise
