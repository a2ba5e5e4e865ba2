"""Collect: fetch a run's reports and NCCL's dumps, or named files, verified, and resumed after a cut.

A file counts as collected only when its sha256 here equals the one on its node. It is written beside its
final name (``.part``) and renamed when complete. Local names are ours: folder by node, suffix from a list.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import posixpath
import shutil
import threading
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cockpit.base import verbs
from cockpit.base.record import nccl_dump
from cockpit.base.shell import join
from cockpit.config import SEE, Quotas, load
from cockpit.core.nccl_tests.json_file import HEAD, without_env
from cockpit.core.ranks import read_ranks
from cockpit.engine.files import append, create, open_regular, read_small, replace
from cockpit.engine.links.link import Link, RemoteError, streaming
from cockpit.engine.links.pool import LinkPool, retried, settle
from cockpit.engine.quotas import Space
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.records.names import safe_name
from cockpit.engine.run import foreign_jobs
from cockpit.errors import CockpitError, Exit, os_error
from cockpit.plans.profilers.registry import PROFILERS, SUFFIXES, WARNING
from cockpit.transport.base import LinkError

GROWTH = 1 << 30
"""Bytes a report may grow while it is fetched; a node that sends more would fill our disk."""

_CREDIT = 8 << 20
_TRIES = 5
_SILENCE_S = 60.0
"""A node that sends nothing of a file for so long is given up, or asked again."""
_HASH_BYTES_S = 1e6
"""A disk that is read more slowly than this is as good as none."""


@dataclass
class Fetched:
    """One report and what became of it."""

    node: str
    name: str
    size: int
    file: str = ""
    """Where it is, relative to the reports folder."""
    sha256: str = ""
    state: str = "waiting"
    """waiting, fetching, collected, changed, failed; same: another node has fetched the same file"""
    why: str = ""
    here: int = 0
    """Bytes here so far."""
    path: str = ""
    """Of a file that a person named: where it is on its node. Empty: it is a report."""
    real: str = ""
    """Where links lead from there."""
    place: str = ""
    """Of what NCCL's watchdog wrote: the folder on its node. Empty: it is something else."""


@dataclass
class Collected:
    """The outcome of a collect."""

    folder: Path
    reports: list[Fetched] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Nodes without a report, and why."""
    passed_over: dict[str, list[str]] = field(default_factory=dict)
    """Names, by node, of files beside the reports that are not reports; they are not fetched."""
    absent: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Words that stand for no file on a node, by node."""

    @property
    def complete(self) -> bool:
        """Whether every node's every report is here and verified."""
        return not self.missing and all(report.state in ("collected", "same") for report in self.reports)

    def exit_code(self) -> Exit:
        """0 when complete, else 3."""
        return Exit.OK if self.complete else Exit.NODE_UNFIT


Progress = Callable[[Collected], None]
Lost = Callable[[CockpitError], None]
"""Is told which node's link was lost, why, and what to type."""


async def collect(
    folder: RunFolder,
    pool: LinkPool,
    target: Path,
    progress: Progress = lambda collected: None,
    lost: Lost = lambda error: None,
    quotas: Quotas | None = None,
    words: Sequence[str] = (),
    only: Set[str] | None = None,
) -> Collected:
    """Fetch the reports of all nodes of a run into ``target`` in parallel; write ``manifest.json`` there.

    With ``words``, not the reports but the files that these name there: paths, or patterns as in :mod:`glob`;
    with ``only``, those reports alone that have these names.

    A node that cannot be reached is a line in ``missing``, and never ends the others. Run again, it
    fetches only what is not here.

    :param pool: lends the links
    :param lost: told of each link that is lost meanwhile; a node is asked again
    :param quotas: how much may be fetched; None: as this person's settings say
    :raises CockpitError: ``target`` or its ``manifest.json`` cannot be written, or the settings are wrong
    """
    manifest = folder.manifest
    _make(target)
    collected = Collected(target)
    room = Space(target, quotas or load().quotas)

    async def tell() -> None:
        while True:
            progress(collected)
            await asyncio.sleep(0.2)

    def say_lost(error: CockpitError) -> None:
        what = f"connection lost while collecting ({error.what}); reconnecting"
        hint = f"to resume later: cockpit collect {join([folder.name, *words])}"
        lost(LinkError(what, where=error.where, hint=hint))

    seek = _Named(folder, tuple(words)) if words else _Reports(only)
    teller = asyncio.create_task(tell())
    try:
        work = {
            node.name: _collect_node(node, pool, collected, room, index, say_lost, seek)
            for index, node in enumerate(manifest.nodes)
        }
        _, errors = await settle(work)
        for name, error in errors.items():
            collected.missing[name] = error.what
        if words:
            _nowhere(collected)
        elif only is None:
            _explain_missing(folder, collected)
    finally:
        teller.cancel()
        _write_manifest(folder, collected, beside=bool(words) or only is not None)
    progress(collected)
    return collected


class _Reports:
    """Files that a profiler wrote.

    :param only: names of those that are wanted; None: all are
    """

    def __init__(self, only: Set[str] | None = None) -> None:
        self._only = only

    async def list(self, link: Link, node: NodeEntry, collected: Collected, folder: str) -> list[Fetched]:
        """What there is on a node, each with its place here.

        :param folder: the node's, relative to the reports folder
        """
        answer = await link.call(verbs.Reports(node.dir))
        if others := [entry.name for entry in answer.files if not entry.name.endswith(SUFFIXES)]:
            collected.passed_over[node.name] = others
        if answer.older and self._only is None:
            what = f"{answer.older:,} older files are left out of {len(answer.files) + answer.older:,}"
            collected.missing[node.name] = f"{what} in its reports folder; move or delete some there"
        found: list[Fetched] = []
        for entry in answer.files:
            if entry.name.endswith(SUFFIXES) and (self._only is None or entry.name in self._only):
                file = _local_name(folder, entry.name, {report.file for report in found})
                found.append(Fetched(node.name, entry.name, entry.size, file))
        own = set(node.ranks)
        for dump in answer.dumps if self._only is None else ():
            if dump.rank in own:
                own.remove(dump.rank)
                file = f"{folder}/{nccl_dump(dump.rank)}"
                found.append(Fetched(node.name, dump.file, dump.size, file, place=dump.dir))
        return found


class _Named(_Reports):
    """Files that a person named."""

    def __init__(self, folder: RunFolder, words: tuple[str, ...]) -> None:
        super().__init__()
        self._manifest, self._model, self._words = folder.manifest, folder.model(), words
        self._owner: dict[str, str] = {}
        """Which node fetches a file that several have."""

    async def list(self, link: Link, node: NodeEntry, collected: Collected, folder: str) -> list[Fetched]:
        """See :meth:`_Reports.list`."""
        cwd = node.dir if self._manifest.foreign else self._manifest.cwd
        targets = foreign_jobs.targets(self._model, node.name)
        answer = await link.call(verbs.Find(self._words, targets, cwd or "/"))
        collected.absent[node.name] = answer.absent
        if answer.trouble:
            collected.missing[node.name] = "; ".join(answer.trouble)
        found = []
        for one in answer.files:
            file = Fetched(node.name, posixpath.basename(one.path), one.size, _local_path(folder, one.path))
            file.path, file.real = one.path, posixpath.join(one.dir, one.file)
            owner = self._owner.setdefault(one.id, node.name)
            if owner != node.name:
                file.state, file.file, file.why = "same", "", f"the same file as on {owner}"
            found.append(file)
        return found


def _nowhere(collected: Collected) -> None:
    """A word that stands for no file on any node that answered is a mistake; else some nodes may lack it."""
    everywhere = [set(words) for words in collected.absent.values()]
    for word in set.intersection(*everywhere) if everywhere else ():
        for node, words in collected.absent.items():
            if word in words:
                why = f"no such file: {word}"
                collected.missing[node] = "; ".join(filter(None, (collected.missing.get(node), why)))


async def _collect_node(
    node: NodeEntry,
    pool: LinkPool,
    collected: Collected,
    room: Space,
    index: int,
    lost: Lost,
    seek: _Reports,
) -> None:
    for attempt in range(1, _TRIES + 1):
        link: Link | None = None
        try:
            link = await pool.lend(node.name, patient=attempt > 1)
            await _collect_over(link, node, collected, room, index, seek)
            return
        except CockpitError as error:
            if attempt == _TRIES or not retried(error):
                _fail(collected, node.name, error)
                raise
            if link is not None:
                lost(error)


def _fail(collected: Collected, node: str, error: CockpitError) -> None:
    for report in collected.reports:
        if report.node == node and report.state in ("waiting", "fetching"):
            report.state, report.why = "failed", error.what


async def _collect_over(
    link: Link, node: NodeEntry, collected: Collected, room: Space, index: int, seek: _Reports
) -> None:
    collected.missing.pop(node.name, None)
    listed = await seek.list(link, node, collected, _of_node(index, node.name))
    known = {_key(report): report for report in collected.reports if report.node == node.name}
    for report in listed:
        if _key(report) in known:
            continue
        if len(known) >= room.quotas.report_files:
            what = f"lists more than {room.quotas.report_files} reports; the others are not fetched"
            what += f" (report_files in [quotas], {SEE})"
            collected.missing[node.name] = "; ".join(filter(None, (collected.missing.get(node.name), what)))
            break
        known[_key(report)] = report
        collected.reports.append(report)
    for report in known.values():
        if report.state not in ("collected", "changed", "same"):
            await _fetch(link, node, report, collected.folder, room)


def _key(report: Fetched) -> str:
    """What tells it from the others of its node."""
    return report.path or posixpath.join(report.place, report.name)


def _local_path(folder: str, path: str) -> str:
    """Where a named file goes: below its node's folder by the path that it has there, in names of ours."""
    return "/".join([folder, *(_part_name(part) for part in path.split("/") if part)])


def _part_name(name: str) -> str:
    """A name that no other one becomes too, and no unfinished file has."""
    safe = safe_name(name)[:200]
    if safe == name and not name.endswith(".part"):
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe[:100]}-{digest[:8]}"


def _of_node(index: int, name: str) -> str:
    """A node's folder in the folder of reports."""
    return f"{index:04d}-{safe_name(name)}"


def report_path(folder: RunFolder, node: str, name: str) -> Path | None:
    """Where a report of a run is, once it was fetched; None: that node is none of the run."""
    index = next((at for at, entry in enumerate(folder.manifest.nodes) if entry.name == node), None)
    known = index is not None and name.endswith(SUFFIXES)
    return folder.path / "reports" / _local_name(_of_node(index or 0, node), name, set()) if known else None


def _local_name(folder: str, name: str, taken: set[str]) -> str:
    """Where a report goes: our name, short and unique, since a name made by a node is data."""
    suffix = next(suffix for suffix in SUFFIXES if name.endswith(suffix))
    stem = safe_name(name.removesuffix(suffix))
    if len(stem) > 100:  # what tells them apart may be at the end
        stem = f"{stem[:91]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    file, number = f"{folder}/{stem}{suffix}", 1
    while file in taken:
        number += 1
        file = f"{folder}/{stem}-{number}{suffix}"
    return file


async def _fetch(link: Link, node: NodeEntry, report: Fetched, folder: Path, room: Space) -> None:
    final = folder / report.file
    part = final.with_name(final.name + ".part")
    report.state = "fetching"
    dir, name, how = _file_of(node, report)
    # The node hashes while it sends: both take about as long.
    hash_s = _SILENCE_S + report.size / _HASH_BYTES_S
    wanted_task = asyncio.create_task(link.call(verbs.Digest(dir, name, **how), deadline_s=hash_s))
    try:
        _make(final.parent)
        if report.path and os.path.lexists(final) and final.stat().st_size < report.size:
            os.replace(final, part)  # it has grown since
        if os.path.lexists(final):
            digest, report.here = await asyncio.to_thread(_hash_file, final)
        else:
            digest, report.here = await _append(link, node, report, part, room)
        wanted = await wanted_task
        report.size, report.sha256 = wanted.size, wanted.sha256
        if wanted.changed:
            report.state, report.why = "changed", "the node is still writing it: collect again later"
        elif digest == wanted.sha256:
            without = False
            if not final.exists():
                without = bool(report.path) and await asyncio.to_thread(_drop_env, part, whole=True)
                os.replace(part, final)
            report.state = "collected"
            if without:
                report.why = "without the environment in it, which may hold secrets"
            if wanted.rest:
                report.why = f"it grew by {wanted.rest} bytes meanwhile; collect again to fetch them"
        else:
            # The part kept from an earlier try is of a different file: start again from zero.
            stale = final if final.exists() else part
            first = report.why != "refetching"
            stale.unlink(missing_ok=True)
            report.state, report.why = ("waiting", "refetching") if first else ("failed", "sha256 differs")
            if first:
                await _fetch(link, node, report, folder, room)
    except RemoteError as error:
        report.state, report.why = "failed", error.what
    except LinkError:
        raise
    except CockpitError as error:
        report.state, report.why = "failed", str(error)
    except OSError as error:
        where = final if os.path.lexists(final) else part
        report.state, report.why = "failed", str(os_error("cannot be written", where, error))
    finally:
        if report.path and report.state != "collected":
            with suppress(OSError):
                _drop_env(part, whole=False)
        wanted_task.cancel()
        with suppress(asyncio.CancelledError, CockpitError):
            await wanted_task


def _drop_env(path: Path, *, whole: bool) -> bool:
    """Take the environment out of a file that a program of nccl-tests has written; whether it is one.

    :param whole: one that is not is removed, for it could not be continued
    :raises OSError: it cannot be written
    """
    with os.fdopen(open_regular(path), "rb") as file:
        head = without_env(file.read(HEAD))
        if head is not None and whole:
            with create(path.with_name(f"{path.name}.part")) as new:
                new.write(head)
                shutil.copyfileobj(file, new)
    if head is not None and whole:
        os.replace(path.with_name(f"{path.name}.part"), path)
    elif head is not None:
        path.unlink()
    return head is not None


def _file_of(node: NodeEntry, report: Fetched) -> tuple[str, str, dict[str, Any]]:
    """Folder and name of a file on its node, and how a node is asked for it."""
    if report.path:
        return *posixpath.split(report.real), {"named": True, "size": report.size}
    return (report.place or node.dir), report.name, {"named": bool(report.place)}


async def _append(link: Link, node: NodeEntry, report: Fetched, path: Path, room: Space) -> tuple[str, int]:
    """Fetch what is missing after the bytes already in ``path``; return sha256 and size of the whole."""
    part = await asyncio.to_thread(_Part, path)
    try:
        report.here = part.size
        room.check(max(0, report.size - part.size))
        dir, name, how = _file_of(node, report)
        async with streaming(link, verbs.Read(dir, name, report.here, _CREDIT, **how)) as stream:
            while (got := await stream.part(_SILENCE_S)) is not None:
                item, data = got
                if item.offset != report.here:
                    raise LinkError("sent a different part of the file than requested", where=node.name)
                if report.here + len(data) > report.size + (0 if report.path else GROWTH):
                    what = f"sends more than the {report.size} bytes it listed"
                    raise RemoteError("protocol", what, where=node.name)
                room.check(len(data))
                await asyncio.to_thread(part.add, data)
                report.here = part.size
                await stream.credit(len(data))
        return await asyncio.to_thread(part.finish), part.size
    finally:
        # Off the loop too: on some file systems closing is when bytes are really written.
        await asyncio.to_thread(part.close)


class _Part:
    """A report that is not whole yet. Everything here may take as long as the disk likes.

    :raises OSError: it cannot be read or written
    """

    def __init__(self, path: Path) -> None:
        self._number = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._busy = threading.Lock()
        self._hasher = hashlib.sha256()
        self.size = 0
        try:
            while chunk := os.read(self._number, 1 << 20):
                self._hasher.update(chunk)
                self.size += len(chunk)
        except OSError:
            self.close()
            raise

    def add(self, data: bytes) -> None:
        """Append all of ``data``, or nothing."""
        with self._busy:
            append(self._number, data, self.size)
            self._hasher.update(data)
            self.size += len(data)

    def finish(self) -> str:
        """Make sure it is safely on disk; return its sha256."""
        with self._busy:
            os.fsync(self._number)
            return self._hasher.hexdigest()

    def close(self) -> None:
        """Close it, once no thread is using it: a cancelled task leaves one behind."""
        with self._busy:
            os.close(self._number)


def _hash_file(path: Path) -> tuple[str, int]:
    hasher = hashlib.sha256()
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
        return hasher.hexdigest(), file.tell()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise os_error("cannot make the folder", folder, error) from None


def _explain_missing(folder: RunFolder, collected: Collected) -> None:
    """Say why nodes have no report, as far as their run record says.

    If nothing was profiled, NCCL's dumps are all there is to fetch: a node without one lacks nothing.
    """
    model = folder.model()
    reported = {report.node for report in collected.reports if not report.place}
    dumped = any(report.place for report in collected.reports)
    for node in folder.manifest.nodes:
        recorded = model.nodes[node.name].reports.values()
        said = [report.text for report in recorded if report.state == "missing"]
        if node.name in reported and said and node.name not in collected.missing:
            collected.missing[node.name] = "; ".join(said)  # some of its ranks have one
        if node.name in collected.missing or node.name in reported:
            continue
        if (dumped and not folder.manifest.profile) or (folder.manifest.profile or {}).get("ready"):
            continue
        profile = folder.manifest.profile or {}
        if "ranks" in profile and not read_ranks(str(profile["ranks"])).intersection(node.ranks):
            continue  # none was to be profiled there
        if folder.manifest.foreign:
            why = "cockpit did not start this job, so no profiler either"
        elif not folder.manifest.profile:
            by_itself = (name for name, kind in PROFILERS.items() if not kind.ready)
            why = f"the run was not profiled: use --profile {'|'.join(by_itself)}"
        elif not model.nodes[node.name].over:
            why = "the run is still running: a report is written when it ends"
        else:
            why = "; ".join(said) or "the profiler left no file"
        collected.missing[node.name] = why


def _write_manifest(folder: RunFolder, collected: Collected, *, beside: bool) -> None:
    """Write what is there.

    :param beside: only some files were fetched: there may be others
    """
    manifest = folder.manifest
    reports = [asdict(report) for report in collected.reports]
    if beside:
        reports = [*_collected_before(collected), *reports]
    text = json.dumps(
        {
            "run": manifest.run,
            "collected_at": time.time(),
            "warning": WARNING,
            "plan": asdict(manifest),
            "reports": reports,
            "missing": collected.missing,
            "passed_over": collected.passed_over,
        },
        indent=1,
    )
    replace(collected.folder / "manifest.json", text.encode())


def _collected_before(collected: Collected) -> list[Any]:
    """What the manifest says of files that were not asked for now."""
    now = {(report.node, _key(report)) for report in collected.reports}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        before = json.loads(read_small(collected.folder / "manifest.json"))["reports"]
        return [each for each in before if (each["node"], _key(Fetched(**each))) not in now]
    return []
