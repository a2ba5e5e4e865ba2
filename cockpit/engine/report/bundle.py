"""Packs a run for somebody else's cockpit: its records, pace, snapshots, profiles, and ends of logs.

All of it passes the one filter for secrets once more, file by file; how to reach the nodes is left out.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from cockpit import __version__
from cockpit.base import secret, times
from cockpit.base.events import Gap, NodeLost
from cockpit.base.gate import Malformed
from cockpit.base.record import EVENTS, TIMES
from cockpit.core.logs.sources import writer_of
from cockpit.core.report.sieve import Sieve
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.files import SMALL_LIMIT, create, lines, open_regular, read_small
from cockpit.engine.launch.code import DIFF, kept_diff, kept_revision
from cockpit.engine.launch.code import FILE as CODE
from cockpit.engine.launch.environments import FILE as ENVIRON
from cockpit.engine.launch.environments import Environments, kept_environments
from cockpit.engine.logs.spooled import Placed, SpooledLogs, gaps, logs_of, time_index
from cockpit.engine.profile.known import store_of
from cockpit.engine.records import bundles, ustar
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import NodeEntry
from cockpit.engine.report.gather import snapshots
from cockpit.engine.report.log_end import LogEnd
from cockpit.engine.run import measures
from cockpit.engine.run.paces import FILE as PACE
from cockpit.engine.run.paces import kept
from cockpit.errors import CockpitError, os_error

LOG_BYTES = 1 << 20
"""Of each log's end, unless somebody wants more."""

LOOKS, PROFILES = 8, 5
"""Snapshots and profiles, the newest ones."""

WORDS = ("command", "program", "argv", "run_argv")
"""Fields of a manifest that are command lines: an option may say that the next word is a secret."""


def pack(folder: RunFolder, target: str, log_bytes: int = LOG_BYTES) -> int:
    """Write the bundle of a run; returns how many secrets were taken out.

    :param log_bytes: of each log's end
    :raises CockpitError: the run cannot be read, or the file not be written
    """
    sieve = Sieve(secret.values(os.environ))
    try:
        with tempfile.TemporaryDirectory(prefix="cockpit-") as place:
            root = Path(place)
            _gather(folder, root, sieve, log_bytes)
            head = bundles.Head(bundles.FORMAT, __version__, folder.name, time.time(), log_bytes, sieve.taken)
            _write(root / bundles.HEAD, json.dumps(asdict(head)).encode())
            _archive(root, target)
    except OSError as error:
        raise os_error("the bundle cannot be written", error.filename or target, error) from None
    return sieve.taken


def _gather(folder: RunFolder, root: Path, sieve: Sieve, log_bytes: int) -> None:
    """Write all that is in it, in the form of a run's folder."""
    model = folder.model()
    manifest = _manifest(folder, sieve)
    _write(root / "manifest.json", json.dumps(manifest).encode())
    if (code := kept_revision(folder.path)) is not None:
        _write(root / CODE, json.dumps(asdict(code)).encode())
    if environs := kept_environments(folder):
        clean = Environments({node: _variables(told, sieve) for node, told in environs.items()})
        _write(root / ENVIRON, json.dumps(asdict(clean)).encode())
    if diff := kept_diff(folder.path):
        _write(root / DIFF, sieve.text(diff).encode())
    _write_lines(root / "journal.jsonl", (event.as_json() for event in _journal(folder, model)), sieve)
    with suppress(CockpitError):
        _write(root / PACE, b"".join(step.line() for step in kept(folder)))
        measured = measures.kept(folder.path, folder.manifest)
        _write_parts(root / measures.FILE, (one.line() for one in measured))
    with closing(SpooledLogs(folder)) as logs:
        for entry in folder.manifest.nodes:
            _node(folder, entry, root / "spool" / folder.spool_dir(entry).name, logs, sieve, log_bytes)
    for one in snapshots(folder, model)[-LOOKS:]:
        _copies(one.path, root / "stacks" / one.path.name, sieve)
    store = store_of(folder)
    for number in store.numbers()[-PROFILES:]:
        _copies(store.folder(number), root / "profiles" / str(number), sieve)


def _manifest(folder: RunFolder, sieve: Sieve) -> dict[str, Any]:
    """What was started, without how its nodes were reached."""
    manifest = folder.manifest
    nodes = [replace(node, transport="ssh") for node in manifest.nodes]
    plain: dict[str, Any] = asdict(
        replace(manifest, nodes=nodes, transport="auto", transport_options={}, pythons=())
    )
    return {name: _field(name, value, sieve) for name, value in plain.items()}


def _field(name: str, value: Any, sieve: Sieve) -> Any:
    if name in WORDS and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return list(sieve.words(value))
    if name == "env" and isinstance(value, dict):
        return _variables(value, sieve)
    if isinstance(value, dict):
        return {each: _field(each, inner, sieve) for each, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_field("", inner, sieve) for inner in value]
    return sieve.all_in(value)


def _variables(env: Mapping[str, Any], sieve: Sieve) -> dict[str, str]:
    return {name: sieve.variable(name, str(text)) for name, text in env.items()}


def _journal(folder: RunFolder, model: RunModel) -> Iterator[Event]:
    """Our events. Packed logs have no gaps, and a running run can't be followed from a bundle."""
    yield from (event for event in folder.journal() if not isinstance(event.fact, Gap))
    yield from folder.job_ended()
    at = time.time()
    packed = time.strftime("when it was packed, %Y-%m-%d %H:%M:%S %z", time.localtime(at))
    for node in model.nodes.values():
        if not node.done:
            why = "it was not all fetched" if node.over else "it was still running"
            yield Event(at, node.name, NodeLost(f"{why} {packed}", taken=True))


def _node(
    folder: RunFolder, entry: NodeEntry, place: Path, logs: SpooledLogs, sieve: Sieve, log_bytes: int
) -> None:
    """A node's record, the ends of its logs, and its time index for these."""
    _write_lines(place / EVENTS, _parsed(lines(folder.spool_dir(entry) / EVENTS)), sieve)
    ends: dict[str, LogEnd] = {}
    for name in logs_of(folder, entry):
        number = logs.number((entry.name, writer_of(name)))
        end = ends[name] = LogEnd(partial(logs.read, number), logs.size(number))
        _write_parts(place / name, end.parts(log_bytes, sieve))
    placed = Placed(gaps(folder, entry.name))
    ahead = folder.model().nodes[entry.name].offset_s
    rows = (
        times.line(
            at, {name: ends[name].now(placed.end(at - ahead, name, size)) for name, size in sizes.items()}
        )
        for at, tick in time_index(folder, entry)
        if (sizes := {name: size for name, size in tick.items() if name in ends})
    )
    _write_parts(place / TIMES, rows)


def _copies(source: Path, place: Path, sieve: Sieve) -> None:
    """The files of a snapshot or a profile: JSON, packed JSON, folded stacks."""
    for file in sorted(source.iterdir()):
        with suppress(ValueError, EOFError, RecursionError, gzip.BadGzipFile):  # damage is left out
            data = read_small(file, SMALL_LIMIT)
            if file.name.endswith(".json"):
                _write(place / file.name, json.dumps(sieve.all_in(json.loads(data))).encode())
            elif file.name.endswith(".json.gz"):
                inner = json.dumps(sieve.all_in(json.loads(gzip.decompress(data)))).encode()
                _write(place / file.name, gzip.compress(inner, 6, mtime=0))
            elif file.name.endswith(".folded"):
                _write(place / file.name, sieve.text(data.decode("utf-8", "replace")).encode())


def _parsed(found: Iterable[bytes]) -> Iterator[Any]:
    for line in found:
        with suppress(ValueError, RecursionError):
            yield json.loads(line)


# Files


def _write(path: Path, data: bytes) -> None:
    _write_parts(path, [data])


def _write_lines(path: Path, rows: Iterable[Any], sieve: Sieve) -> None:
    _write_parts(path, (json.dumps(sieve.all_in(row)).encode() + b"\n" for row in rows))


def _write_parts(path: Path, parts: Iterable[bytes]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with create(path) as file:
        file.writelines(parts)


def _archive(root: Path, target: str) -> None:
    """All files as one, the head first; whole, or not there."""
    beside = Path(f"{target}.part")
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    names.sort(key=lambda name: name != bundles.HEAD)
    try:
        with create(beside) as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as made:
            for name in names:
                with os.fdopen(open_regular(root / name), "rb") as source:
                    size = os.fstat(source.fileno()).st_size
                    made.write(ustar.header(name, size))
                    shutil.copyfileobj(source, made)
                    made.write(bytes(-size % ustar.BLOCK))
            made.write(ustar.END)
        os.replace(beside, target)
    except Malformed as error:
        raise CockpitError(f"cannot be packed: {error}", where=target) from None
    finally:
        with suppress(OSError):
            beside.unlink()
