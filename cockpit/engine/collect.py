"""Collect: fetch a run's profiler reports, verified byte for byte, resumed where a cut left them.

A file counts as collected only when its sha256 here equals the one on its node. It is written beside its
final name (``.part``) and renamed when complete. Local names are ours: folder by node, suffix from a list.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cockpit.base import verbs
from cockpit.engine.fleet import Fleet, close_all, settle
from cockpit.engine.joining import reach
from cockpit.engine.link import Link, RemoteError
from cockpit.engine.runs import NodeEntry, RunFolder, safe_name
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import LinkError

SUFFIXES = (".nsys-rep", ".qdstrm", ".sqlite")
"""What a report's name may end in; anything else in the reports folder is named, not fetched."""

WARNING = "nsys reports hold the whole environment of the run, secrets included: share them with care"

GROWTH = 1 << 30
"""Bytes a report may grow while it is fetched; a node that sends more would fill our disk."""

_CREDIT = 8 << 20
_TRIES = 5


@dataclass
class Report:
    """One report and what became of it."""

    node: str
    name: str
    size: int
    file: str = ""
    """Where it lies, relative to the reports folder."""
    sha256: str = ""
    state: str = "waiting"
    """waiting, fetching, collected, changed, failed"""
    why: str = ""
    here: int = 0
    """Bytes here so far."""


@dataclass
class Collected:
    """The outcome of a collect."""

    folder: Path
    reports: list[Report] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Nodes without a report, and why."""
    passed_over: dict[str, list[str]] = field(default_factory=dict)
    """Names, by node, of files beside the reports that are none; they are not fetched."""

    @property
    def complete(self) -> bool:
        """Whether every node's every report is here and verified."""
        return not self.missing and all(report.state == "collected" for report in self.reports)

    def exit_code(self) -> Exit:
        """0 when complete, else 3."""
        return Exit.OK if self.complete else Exit.NODE_UNFIT


Progress = Callable[[Collected], None]


async def collect(
    folder: RunFolder, fleet: Fleet, target: Path, progress: Progress = lambda collected: None
) -> Collected:
    """Fetch the reports of all nodes of a run into ``target`` in parallel; write ``manifest.json`` there.

    A node that cannot be reached is a line in ``missing``, never an end to the others. Run again, it
    fetches only what is not here.
    """
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    manifest = folder.manifest
    collected = Collected(target)

    async def tell() -> None:
        while True:
            progress(collected)
            await asyncio.sleep(0.2)

    teller = asyncio.create_task(tell())
    try:
        work = {
            node.name: _collect_node(node, fleet, collected, index)
            for index, node in enumerate(manifest.nodes)
        }
        _, errors = await settle(work)
        for name, error in errors.items():
            collected.missing[name] = error.what
        _explain_missing(folder, collected)
    finally:
        teller.cancel()
        _write_manifest(folder, collected)
    progress(collected)
    return collected


async def _collect_node(node: NodeEntry, fleet: Fleet, collected: Collected, index: int) -> None:
    link: Link | None = None
    for attempt in range(1, _TRIES + 1):
        try:
            if link is None or link.lost.done():
                link = await reach(fleet, node)
            await _collect_over(link, node, collected, index)
            await link.close()
            return
        except CockpitError as error:
            if link is not None:
                await close_all([link])
            if attempt == _TRIES or not getattr(error, "retry", False):
                _fail(collected, node.name, error)
                raise
            await asyncio.sleep(0.5 * attempt)


def _fail(collected: Collected, node: str, error: CockpitError) -> None:
    for report in collected.reports:
        if report.node == node and report.state in ("waiting", "fetching"):
            report.state, report.why = "failed", error.what


async def _collect_over(link: Link, node: NodeEntry, collected: Collected, index: int) -> None:
    listed = (await link.call(verbs.Reports(node.dir))).files
    known = {report.name: report for report in collected.reports if report.node == node.name}
    if others := [entry.name for entry in listed if not entry.name.endswith(SUFFIXES)]:
        collected.passed_over[node.name] = others
    for entry in listed:
        name = entry.name
        if name in known or not name.endswith(SUFFIXES):
            continue
        taken = {report.file for report in known.values()}
        known[name] = Report(node.name, name, entry.size)
        known[name].file = _local_name(f"{index:04d}-{safe_name(node.name)}", name, taken)
        collected.reports.append(known[name])
    for report in known.values():
        if report.state not in ("collected", "changed"):
            await _fetch(link, node, report, collected.folder)


def _local_name(folder: str, name: str, taken: set[str]) -> str:
    """Where a report goes: ours, short and unique, for a name made by a node is data."""
    suffix = next(suffix for suffix in SUFFIXES if name.endswith(suffix))
    stem = safe_name(name.removesuffix(suffix))[:100]
    file, number = f"{folder}/{stem}{suffix}", 1
    while file in taken:
        number += 1
        file = f"{folder}/{stem}-{number}{suffix}"
    return file


async def _fetch(link: Link, node: NodeEntry, report: Report, folder: Path) -> None:
    final = folder / report.file
    final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = final.with_name(final.name + ".part")
    report.state = "fetching"
    # The node hashes while it sends: both take about as long.
    wanted_task = asyncio.create_task(link.call(verbs.Digest(node.dir, report.name), deadline_s=24 * 3600))
    try:
        if final.exists():
            digest, report.here = await asyncio.to_thread(_hash_file, final)
        else:
            digest, report.here = await _append(link, node, report, part)
        wanted = await wanted_task
        report.size, report.sha256 = wanted.size, wanted.sha256
        if wanted.changed:
            report.state, report.why = "changed", "the node still writes it: collect again later"
        elif digest == wanted.sha256:
            if not final.exists():
                os.replace(part, final)
            report.state = "collected"
        else:
            # The start kept from an earlier try is of another file: once more, from zero.
            stale = final if final.exists() else part
            first = report.why != "refetching"
            stale.unlink(missing_ok=True)
            report.state, report.why = ("waiting", "refetching") if first else ("failed", "sha256 differs")
            if first:
                await _fetch(link, node, report, folder)
    except RemoteError as error:
        report.state, report.why = "failed", error.what
    except OSError as error:
        report.state, report.why = "failed", f"cannot write {part}: {error.strerror}"
    finally:
        wanted_task.cancel()
        with suppress(asyncio.CancelledError, CockpitError):
            await wanted_task


async def _append(link: Link, node: NodeEntry, report: Report, part: Path) -> tuple[str, int]:
    """Fetch what is missing behind the bytes already in ``part``; return sha256 and size of the whole."""
    hasher = hashlib.sha256()
    number = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "r+b") as file:
        await asyncio.to_thread(_hash_into, hasher, file)
        report.here = file.tell()
        stream = await link.stream(verbs.Read(node.dir, report.name, report.here, _CREDIT))
        try:
            async for item, data in stream.parts():
                if item.offset != report.here:
                    raise LinkError("sent another part of the file than asked for", where=node.name)
                if report.here + len(data) > report.size + GROWTH:
                    what = f"sends more than the {report.size} bytes it listed"
                    raise RemoteError("protocol", what, where=node.name)
                file.write(data)
                # hashlib frees the GIL, but a chunk is a millisecond: not worth a thread.
                hasher.update(data)
                report.here += len(data)
                await stream.credit(len(data))
        finally:
            await stream.close()
        file.flush()
        os.fsync(file.fileno())
    return hasher.hexdigest(), report.here


def _hash_file(path: Path) -> tuple[str, int]:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        _hash_into(hasher, file)
        return hasher.hexdigest(), file.tell()


def _hash_into(hasher: Any, file: Any) -> None:
    while chunk := file.read(1 << 20):
        hasher.update(chunk)


def _explain_missing(folder: RunFolder, collected: Collected) -> None:
    """Nodes that have no report: say why, as far as their run record does."""
    model = folder.model()
    for node in folder.manifest.nodes:
        if node.name in collected.missing or any(report.node == node.name for report in collected.reports):
            continue
        recorded = model.nodes[node.name].reports.values()
        said = [report.text for report in recorded if report.state == "missing"]
        if not folder.manifest.profile:
            why = "the run was not profiled: use --profile nsys"
        elif not model.nodes[node.name].over:
            why = "the run still goes on: a report is written when it ends"
        else:
            why = said[0] if said else "the profiler left no file"
        collected.missing[node.name] = why


def _write_manifest(folder: RunFolder, collected: Collected) -> None:
    manifest = folder.manifest
    text = json.dumps(
        {
            "run": manifest.run,
            "collected_at": time.time(),
            "warning": WARNING,
            "plan": asdict(manifest),
            "reports": [asdict(report) for report in collected.reports],
            "missing": collected.missing,
            "passed_over": collected.passed_over,
        },
        indent=1,
    )
    file = collected.folder / "manifest.json"
    beside = file.with_name("manifest.json.new")
    beside.write_text(text)
    beside.chmod(0o600)
    os.replace(beside, file)
