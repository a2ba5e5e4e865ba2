"""What nodes kept while nobody watched: fetched, put together over all nodes, and kept here as snapshots.

Files are copied to ``evidence/`` of the run's folder here, byte for byte; snapshots below ``stacks/`` are
made of them, and can be made again.
"""

from __future__ import annotations

import asyncio
import glob
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cockpit.base import evidence_file, verbs
from cockpit.base.gate import TIME, Malformed
from cockpit.base.record import EVIDENCE
from cockpit.base.recorder.unpacking import unpack as unpack_trace
from cockpit.base.shell import quote
from cockpit.base.stacks.packing import TooLarge
from cockpit.base.stacks.unpacking import KEPT, Room, unpack
from cockpit.core.finding import Finding
from cockpit.core.ranks import nodes_text
from cockpit.core.recorder.merge import Recorded
from cockpit.core.run.model import RunModel
from cockpit.core.stacks.evidence_snapshots import Testimony, moments, snapshot
from cockpit.core.stacks.progress import Done
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.verdict import verdict
from cockpit.core.text import one_line
from cockpit.core.time_text import clock
from cockpit.engine.files import read_small, replace
from cockpit.engine.links.link import Link, RemoteError
from cockpit.engine.links.reading import read_part
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.probes import clean
from cockpit.errors import CockpitError
from cockpit.private import private_dir

A_NODE = 20 << 20
"""Bytes that are taken from one node, all its files together."""

A_RUN = 512 << 20
"""Bytes of evidence of one run that are kept here."""

SNAPSHOTS = 50
"""Moments of one run that are put together, the newest ones."""

_TEXT = 250


@dataclass(frozen=True)
class Shown:
    """A snapshot that nodes took by themselves, with the verdict on it."""

    path: Path
    snapshot: Snapshot
    found: Finding

    @property
    def at(self) -> float:
        """When it was begun, unix seconds on our clock."""
        return self.snapshot.samples[0].at

    @property
    def sentence(self) -> str:
        """What it shows, for a person; its last sample is what the nodes' reason is of."""
        taken = f"snapshot of {clock(self.snapshot.samples[-1].at, time.time())} ({self.snapshot.by_nodes})"
        return f"{taken}: {self.found.what}"

    @property
    def command(self) -> str:
        """Shows it."""
        return f"cockpit stacks {quote(str(self.path))}"


class Depot:
    """The copies of one run here."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._root = folder.path / EVIDENCE

    def of(self, node: NodeEntry) -> Path:
        """The folder of a node's files; its name is ours, whatever the hostfile says."""
        return self._root / self._folder.spool_dir(node).name

    def names(self, node: NodeEntry) -> list[str]:
        """The files of a node that are here."""
        try:
            return sorted(name for name in os.listdir(self.of(node)) if evidence_file.is_name(name))
        except OSError:
            return []

    def used(self) -> int:
        """Bytes of all of them."""
        sizes = (file.stat().st_size for file in self._root.glob("*/*.evidence") if file.is_file())
        return sum(sizes)

    def add(self, node: NodeEntry, name: str, data: bytes) -> None:
        """Keep a file.

        :raises CockpitError: it cannot be written
        """
        place = self.of(node)
        try:
            private_dir(self._root)
            private_dir(place)
        except OSError as error:
            raise CockpitError(f"cannot be written: {error.strerror}", where=str(place)) from None
        replace(place / name, data)

    def read(self, node: NodeEntry, name: str) -> bytes:
        """A file.

        :raises OSError: it cannot be read, or is larger than it may be
        """
        return read_small(self.of(node) / name, evidence_file.LIMIT)


async def fetch(link: Link, folder: RunFolder, node: NodeEntry) -> int:
    """Copy what a node has kept and is not here yet; returns how many files that were.

    :raises CockpitError: the node cannot say, or says what makes no sense
    """
    depot = Depot(folder)
    place = f"{node.dir}/{EVIDENCE}"
    answer = await link.call(verbs.Find((f"{glob.escape(place)}/*.evidence",)))
    here = set(depot.names(node))
    listed = sorted({one.file: one.size for one in answer.files if evidence_file.is_name(one.file)}.items())
    room = A_NODE - sum(size for name, size in listed if name in here)
    left = A_RUN - await asyncio.to_thread(depot.used)
    new = [(name, size) for name, size in listed if name not in here][: evidence_file.FILES - len(here)]
    count = 0
    for name, size in new:
        room -= size
        left -= size
        if size > evidence_file.LIMIT or room < 0 or left < 0:
            raise RemoteError("protocol", f"{EVIDENCE}/{name}: more than may be saved", where=node.name)
        data = await read_part(link, place, name, 0, size)
        await asyncio.to_thread(_check, data, node)
        await asyncio.to_thread(depot.add, node, name, data)
        count += 1
    return count


def _check(data: bytes, node: NodeEntry) -> None:
    try:
        opened(data, node, 0.0)
    except Malformed as error:
        text = one_line(str(error), limit=200)
        raise RemoteError("protocol", f"its evidence is invalid: {text}", where=node.name) from None


def opened(data: bytes, node: NodeEntry, ahead_s: float) -> Testimony:
    """What a file of a node says, of its own ranks.

    :param ahead_s: its clock minus ours
    :raises Malformed: it makes no sense
    """

    def ours(at: float) -> float:
        # A clock that is far off moves a time out of the calendar: it could be neither shown nor saved.
        return max(TIME.least, min(at - ahead_s, TIME.most))

    found = evidence_file.parsed(data)
    head = found.head
    own = set(node.ranks)
    dumps = {}
    room = Room(KEPT)
    for part, packed in zip(head.stacks, found.stacks, strict=True):
        try:
            for dump in unpack(packed, clean, room):
                if dump.rank != part.rank or dump.rank not in own or dump.rank in dumps:
                    raise Malformed(f"a dump of rank {dump.rank}")
                dumps[dump.rank] = dump
        except (ValueError, TooLarge) as error:
            raise Malformed(f"an invalid dump: {error}") from None
    recorded, trouble = {}, [*head.trouble]
    for one, packed_traces in zip(head.recorders, found.recorders, strict=True):
        if one.rank not in own or one.rank in recorded:
            raise Malformed(f"the recorder of rank {one.rank}")
        traces = (unpack_trace(each, lambda text: one_line(text, limit=_TEXT)) for each in packed_traces)
        try:
            shifted = tuple(trace.shifted(-round(ahead_s * 1e6)) for trace in traces)
        except Malformed as error:
            # What a training program says of itself costs nobody else's evidence.
            trouble.append(f"the recorder of rank {one.rank} is invalid: {error}")
            continue
        recorded[one.rank] = Recorded(round(ours(one.at) * 1e6), shifted)
    steps = {one.rank: Done(one.step, ours(one.at)) for one in head.steps if one.rank in own}
    usual = sorted(one.usual_s for one in head.steps if one.usual_s is not None and one.usual_s >= 0)
    return Testimony(
        node.name,
        ours(head.t),
        head.why,
        None if head.since is None else ours(min(head.since, head.t)),
        tuple(rank for rank in head.failed if rank in own),
        one_line(head.boot_id, limit=60),
        tuple(one_line(text, limit=300) for text in trouble),
        max(0.0, min(head.took_s, 600.0)),
        steps,
        usual[len(usual) // 2] if usual else None,
        dumps,
        recorded,
    )


def put_together(folder: RunFolder, model: RunModel) -> list[Shown]:
    """Make snapshots of all that is here, the oldest first; those that are there already are made anew.

    Does much reading: not for the event loop.

    :raises CockpitError: one cannot be written
    """
    depot, found = Depot(folder), []
    for entry in folder.manifest.nodes:
        names = depot.names(entry)
        if not names or entry.name not in model.nodes:
            continue
        for name in names:
            # A file that has been damaged here hides no other.
            with suppress(OSError, Malformed):
                found.append(opened(depot.read(entry, name), entry, model.nodes[entry.name].offset_s))
    if not found:
        return []
    root = folder.path / "stacks"
    known = _made_before(root)
    shown = []
    for rounds in moments(found)[-SNAPSHOTS:]:
        made = snapshot(rounds, model, folder.name)
        path = known.get(made.name) or saved.new_folder(root, made)
        saved.save(made, path)
        shown.append(Shown(path, made, verdict(made)))
    return shown


def _made_before(root: Path) -> dict[str, Path]:
    """Snapshots that were made of what nodes kept, by their own names."""
    found = {}
    for file in root.glob(f"*/{saved.MAIN}"):
        with suppress(CockpitError):
            head = saved.head(file.parent)
            if head.by_nodes:
                found[head.name] = file.parent
    return found


async def gather(
    folder: RunFolder, model: RunModel, lend: Callable[[str], Awaitable[Link]], nodes: Iterable[str] = ()
) -> tuple[list[Shown], dict[str, CockpitError]]:
    """Fetch from these nodes what is not here yet, and put all of it together.

    :return: the snapshots, the oldest first, and why a node's evidence could not be fetched
    """
    entries = {entry.name: entry for entry in folder.manifest.nodes}
    errors: dict[str, CockpitError] = {}

    async def one(name: str) -> None:
        try:
            await fetch(await lend(name), folder, entries[name])
        except CockpitError as error:
            errors[name] = error

    if not folder.manifest.foreign:
        await asyncio.gather(*(one(name) for name in nodes if name in entries))
    return await asyncio.to_thread(put_together, folder, model), errors


def lacking(folder: RunFolder, model: RunModel) -> list[str]:
    """Nodes that say to have kept something that is not here."""
    depot = Depot(folder)
    return [
        entry.name
        for entry in folder.manifest.nodes
        if entry.name in model.nodes
        and {fact.file for _, fact in model.nodes[entry.name].evidence} - set(depot.names(entry))
    ]


def amiss(
    folder: RunFolder, model: RunModel, asked: Iterable[str], errors: Mapping[str, CockpitError]
) -> list[str]:
    """Why evidence that nodes say to have kept is not here, a sentence for each node.

    :param asked: nodes that it was fetched from
    :param errors: what :func:`gather` said of them
    """
    told = [f"{name}: can't fetch its evidence: {errors[name].what}" for name in sorted(errors)]
    absent = {*lacking(folder, model)} & {*asked} - errors.keys()
    return told + [f"{name}: its run record names evidence that doesn't exist" for name in sorted(absent)]


def none_of(folder: RunFolder, model: RunModel) -> str:
    """Of a run that failed: nodes without evidence, and why; empty: there are none."""
    if not model.failures() or folder.manifest.foreign:
        return ""
    depot = Depot(folder)
    reasons: dict[str, list[str]] = {}
    for entry in folder.manifest.nodes:
        node = model.nodes.get(entry.name)
        if node is not None and not depot.names(entry):
            why = node.lost or "none recorded"
            if node.evidence:
                why = node.lost or "it could not be fetched"
            reasons.setdefault(why, []).append(entry.name)
    told = [f"{nodes_text(names)} ({why})" for why, names in reasons.items()]
    return f"no evidence from {', '.join(told)}" if told else ""
