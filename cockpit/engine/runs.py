"""The local folder of a run: manifest, journal, spool, reports; and the list of them."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cockpit import __version__, paths
from cockpit.base.events import Planned
from cockpit.base.gate import Malformed
from cockpit.base.record import EVENTS
from cockpit.core.events import Event, Record, journaled
from cockpit.core.model import RunModel
from cockpit.errors import CockpitError

_WORDS = (
    "otter",
    "heron",
    "lynx",
    "finch",
    "badger",
    "marten",
    "plover",
    "hare",
    "kite",
    "wren",
    "vole",
    "stoat",
    "newt",
    "tern",
    "dipper",
    "crane",
    "egret",
    "raven",
    "osprey",
    "swift",
    "magpie",
    "marmot",
    "ibex",
    "chamois",
    "beaver",
    "bison",
    "puffin",
    "gannet",
    "curlew",
    "merlin",
    "petrel",
)


def new_name() -> str:
    """A name for a run: ``<date>-<time>-<word>``, local time."""
    return time.strftime("%Y%m%d-%H%M%S-") + secrets.choice(_WORDS)


@dataclass(frozen=True)
class NodeEntry:
    """A node in a manifest."""

    name: str
    dir: str
    ranks: list[int]
    transport: str = "ssh"
    host: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What a run was started with; holds no secrets."""

    run: str
    created: float
    nodes: list[NodeEntry]
    launcher: str
    program: list[str]
    cwd: str
    hostfile: str = ""
    pythons: list[str] = field(default_factory=list)
    profile: dict[str, Any] | None = None
    on_failure: str = "stop"
    failure_wait_s: float = 30.0
    transport: str = "auto"
    ssh_config: str = ""
    plans: list[dict[str, Any]] = field(default_factory=list)
    version: str = __version__
    format: int = 1

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Manifest:
        """The manifest of a file; fields of later versions are passed over."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known["nodes"] = [NodeEntry(**node) for node in data["nodes"]]
        return cls(**known)

    @property
    def world(self) -> list[int]:
        """All ranks."""
        return [rank for node in self.nodes for rank in node.ranks]


class RunFolder:
    """One run's folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self._lock: int | None = None
        self._journal: int | None = None

    @classmethod
    def create(cls, manifest: Manifest) -> RunFolder:
        """Make the folder (0700) and write the manifest (0600).

        :raises CockpitError: it exists, or the state folder cannot be written
        """
        path = paths.runs() / manifest.run
        try:
            paths.private_dir(paths.runs())
            path.mkdir(mode=0o700)
            # A folder without a manifest is no run: it gets a whole one, or none.
            number = os.open(path / "manifest.json.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(number, "w") as file:
                json.dump(asdict(manifest), file, indent=1)
            os.replace(path / "manifest.json.new", path / "manifest.json")
        except OSError as error:
            raise CockpitError(f"cannot make the run folder: {error.strerror}", where=str(path)) from None
        return cls(path)

    @classmethod
    def find(cls, name: str) -> RunFolder:
        """The folder of a run by its name, an unambiguous part of it, or ``last``.

        :raises CockpitError: none, or several
        """
        folders = list_runs()
        if name == "last" and folders:
            return folders[-1]
        hits = [folder for folder in folders if folder.name == name]
        hits = hits or [folder for folder in folders if name in folder.name]
        if len(hits) == 1:
            return hits[0]
        what = f"several runs: {', '.join(hit.name for hit in hits)}" if hits else "no such run"
        raise CockpitError(what, where=name, hint="see: cockpit ps")

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest.

        :raises CockpitError: it is missing or damaged
        """
        file = self.path / "manifest.json"
        try:
            return Manifest.from_json(json.loads(file.read_text()))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CockpitError(f"manifest cannot be read: {error}", where=str(file)) from None

    @property
    def created(self) -> float:
        """When the run was started, unix seconds; of a damaged manifest, when it was written last."""
        try:
            return self.manifest.created
        except CockpitError:
            return (self.path / "manifest.json").stat().st_mtime

    def lock(self) -> bool:
        """Become the one writer; False when another cockpit is. The lock dies with the process."""
        number = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(number)
            return False
        self._lock = number
        return True

    def spool_dir(self, node: NodeEntry) -> Path:
        """Where a node's spool lies; its name is ours, whatever the hostfile says."""
        index = next(i for i, entry in enumerate(self.manifest.nodes) if entry.name == node.name)
        return self.path / "spool" / f"{index:04d}-{safe_name(node.name)}"

    def write(self, event: Event) -> None:
        """Append an event of ours to the journal."""
        if self._journal is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._journal = os.open(self.path / "journal.jsonl", flags, 0o600)
        os.write(self._journal, (json.dumps(event.as_json()) + "\n").encode())

    def journal(self) -> Iterator[Event]:
        """Our own events so far; damaged lines are passed over."""
        for line in _read(self.path / "journal.jsonl").split(b"\n")[:-1]:
            with suppress(Malformed):
                if (event := journaled(line)) is not None:
                    yield event

    def run_record(self, node: NodeEntry) -> bytes:
        """The bytes of a node's run record, as far as it is spooled."""
        return _read(self.spool_dir(node) / EVENTS)

    def recorded(self, node: NodeEntry) -> list[Event]:
        """The node's run record as far as it is spooled."""
        return Record(node.name, node.ranks).feed(self.run_record(node))

    def model(self) -> RunModel:
        """The run's state as far as it is known here, without asking any node."""
        model = RunModel()
        manifest = self.manifest
        model.apply(planned(manifest))
        for event in self.journal():
            model.apply(event)
        for node in manifest.nodes:
            for event in self.recorded(node):
                model.apply(event)
        return model

    def discard(self) -> None:
        """Remove the folder: of a run that never was."""
        self.close()
        shutil.rmtree(self.path)

    def close(self) -> None:
        """Give up the lock and close the journal."""
        for number in (self._lock, self._journal):
            if number is not None:
                os.close(number)
        self._lock = self._journal = None


def planned(manifest: Manifest) -> Event:
    """The first event of every run."""
    return Event(manifest.created, "", Planned({node.name: tuple(node.ranks) for node in manifest.nodes}))


def list_runs() -> list[RunFolder]:
    """All runs known here, oldest first."""
    root = paths.runs()
    if not root.is_dir():
        return []
    found = [RunFolder(path) for path in root.iterdir() if (path / "manifest.json").is_file()]
    return sorted(found, key=lambda folder: (folder.created, folder.name))


def safe_name(name: str) -> str:
    """``name`` as a part of a file name: letters, digits, dot, dash and underscore."""
    return "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "_" for c in name).lstrip(".") or "_"


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
