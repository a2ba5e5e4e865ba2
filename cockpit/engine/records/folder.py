"""The local folder of a run: manifest, journal, spool, reports; and the list of them."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from dataclasses import replace as replaced
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

from cockpit import paths
from cockpit.base import gate, owners, trees
from cockpit.base.events import Damaged, JobEnded, Note
from cockpit.base.gate import Malformed, MapOf, read
from cockpit.base.record import EVENTS
from cockpit.base.regular import read_all
from cockpit.base.shared_fields import SIZES
from cockpit.base.shell import quote
from cockpit.core.run.events import Event, RecordReader
from cockpit.core.run.model import RunModel
from cockpit.engine.files import SMALL_LIMIT, chunks, lines, open_regular, read_small, replace
from cockpit.engine.records import bundles, states
from cockpit.engine.records.journal import Journal
from cockpit.engine.records.lock import Holder, Writer, other_owner
from cockpit.engine.records.manifest import Manifest, NewerCockpit, NodeEntry, planned
from cockpit.engine.records.names import LAST, run_name, safe_name
from cockpit.engine.records.states import States
from cockpit.errors import CockpitError, NoRoom, near, os_error
from cockpit.private import private_dir
from cockpit.transport.registry import TRANSPORTS

_FIND = "cockpit ps --hostfile FILE"

STEP_LINE = re.compile(rb"cockpit: step ([0-9]{1,10}\.[0-9]{1,10})\Z")
"""What a step says first in its log."""

STEP_LOG, _STEP = "step.log", "step.json"
"""What the process that holds a run's supervisors says, such as why it has ended; which process that is."""

_UNSEEN_FILE = "unseen.json"
_UNSEEN = MapOf(gate.NODE_NAME, SIZES, 1 << 16)

_STEP_SAID = 64 << 10
"""Bytes at its end that are read."""


class RunFolder:
    """One run's folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.writer = Writer(path)
        self._journal = Journal(path / "journal.jsonl")
        self._states = States(path)

    @classmethod
    def create(cls, manifest: Manifest) -> RunFolder:
        """Make the folder (0700) with its manifest (0600), and become its writer.

        It is first made under another name: whoever sees it sees all of it, and that it is ours.

        :raises CockpitError: it exists, its name is invalid, or the state folder cannot be written
        """
        path = paths.runs() / run_name(manifest.run)
        beside: Path | None = None
        try:
            private_dir(paths.runs())
            beside = Path(tempfile.mkdtemp(prefix=f".{manifest.run}.", dir=paths.runs()))
            replace(beside / "manifest.json", json.dumps(asdict(manifest), indent=1).encode())
            made = cls(beside)
            made.lock()
            if os.path.lexists(path):
                raise CockpitError("it already exists", hint="use another --name")
            os.rename(beside, path)
        except (OSError, CockpitError) as error:
            if beside is not None:
                shutil.rmtree(beside, ignore_errors=True)  # the error that counts is the first one
            what = "cannot make the run folder"
            if isinstance(error, OSError):
                raise os_error(what, error.filename or path, error) from None
            raise CockpitError(f"{what}: {error.what}", where=str(path), hint=error.hint) from None
        made._moved(path)
        return made

    @classmethod
    def find(cls, name: str) -> RunFolder:
        """The folder of a run that is looked at: by its name, a clear part of it, ``last``, or a bundle.

        :raises CockpitError: no run matches, or several do
        """
        if bundles.is_meant(name):
            return cls(bundles.opened(Path(name)))
        folders = list_runs()
        if name == LAST and folders:
            ours = [folder for folder in folders if not other_owner(folder.path)]
            return (ours or folders)[-1]
        hits = [folder for folder in folders if folder.name == name]
        hits = hits or [folder for folder in folders if name in folder.name]
        if len(hits) == 1:
            return hits[0]
        if hits:
            what = f"several runs: {', '.join(hit.name for hit in hits)}"
            raise CockpitError(what, where=name, hint="see: cockpit ps")
        if name == LAST:
            hint = "start one: cockpit run HOSTFILE -- train.py ARGS; or try it here: cockpit demo"
            raise CockpitError("no runs yet", hint=hint)
        meant = likely(name, folders)
        hint = f"did you mean: {meant}" if meant else "see: cockpit ps"
        raise CockpitError("no such run", where=name, hint=hint)

    @classmethod
    def find_for_sure(cls, name: str, confirmed: Callable[[str], bool]) -> RunFolder:
        """The folder of a run that is to be changed: by its name, the last word of it alone, or ``last``.

        :param confirmed: asks a person whether the run of this name is meant, by a part of it
        :raises CockpitError: no run matches, several do, or it is not certain which is meant
        """
        folders = list_runs()
        worded = [folder for folder in folders if folder.name.rpartition("-")[2] == name]
        if len(worded) == 1 and not name.isdigit() and not any(folder.name == name for folder in folders):
            return worded[0]
        found = cls.find(name)
        if name not in (LAST, found.name) and not confirmed(found.name):
            raise CockpitError("not a full run name", where=name, hint=f"did you mean: {found.name}")
        return found

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest; of one that others may have written, what it says as mere data (:meth:`as_data`).

        :raises NewerCockpit: a newer cockpit made the run
        :raises CockpitError: it is missing or damaged
        """
        file = self.path / "manifest.json"
        find = f"to find it there again, move {self.path} away, then: {_FIND}"
        remedy = f"what runs on its nodes is not affected; {find}"
        try:
            with os.fdopen(open_regular(file), "rb") as opened:
                others = owners.others_in(str(self.path), os.stat(self.path))
                others = others or owners.others_in(str(file), os.fstat(opened.fileno()))
                others = others or (bundles.CLOSED if self.bundled else "")
                found = Manifest.from_json(json.loads(read_all(opened, SMALL_LIMIT)))
            return replaced(found.as_data(others), run=self.name) if others else found
        except OSError as error:
            raise os_error("manifest cannot be read", file, error, hint=remedy) from None
        except NewerCockpit as error:
            raise NewerCockpit(error.version, where=self.name) from None
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, Malformed) else "is not JSON"
            raise CockpitError(f"manifest cannot be read: {why}", where=str(file), hint=remedy) from None

    @property
    def bundled(self) -> bool:
        """Whether it was unpacked from a bundle: all there is of the run is here."""
        return bundles.is_opened(self.path)

    @property
    def created(self) -> float:
        """When the run was started, unix seconds; if its manifest is damaged, when that was last written."""
        with suppress(CockpitError):
            return self.manifest.created
        for path in (self.path / "manifest.json", self.path):
            with suppress(OSError):
                return os.lstat(path).st_mtime
        return 0.0

    def lock(self) -> bool:
        """Become the only writer; False if another cockpit is, which ``writer`` names.

        :raises CockpitError: the folder cannot be written
        """
        return self.writer.take()

    def _moved(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self._journal = Journal(path / "journal.jsonl")
        self._states = States(path)
        self.writer.moved(path)

    def spool_dir(self, node: NodeEntry) -> Path:
        """Where a node's spool lies; its name is ours, whatever the hostfile says."""
        index = next(i for i, entry in enumerate(self.manifest.nodes) if entry.name == node.name)
        return self.path / "spool" / f"{index:04d}-{safe_name(node.name)}"

    def write(self, event: Event, *, waits: bool = False) -> None:
        """Append an event of ours to the journal: all of it, or nothing; of repeated news only some.

        :param waits: if the disk is full, it is written with the next one for which there is room
        :raises CockpitError: the journal cannot be written
        """
        if self._states.take(event):
            self._journal.write(event, waits=waits)

    @property
    def refused(self) -> NoRoom | None:
        """Why events wait for room on the disk; None: none do."""
        return self._journal.refused

    @property
    def damaged(self) -> int:
        """Lines of the journal that made no sense when it was read last."""
        return self._journal.damaged

    def journal(self) -> Iterator[Event]:
        """Our own events so far; damaged lines are ignored, and counted in :attr:`damaged`.

        :raises CockpitError: it cannot be read
        """
        return states.with_now(self._journal.read(), self.path)

    def told(self) -> tuple[list[Event], list[Event]]:
        """The same: those that were written one after the other, and those that only say how things stand.

        :raises CockpitError: it cannot be read
        """
        written = list(self._journal.read())
        return written, list(states.with_now(written, self.path))[len(written) :]

    def recorded(self, node: NodeEntry, record: RecordReader | None = None) -> Iterator[Event]:
        """The node's run record as far as it is spooled; damaged lines are ignored, and counted at the end.

        If it cannot be read, that becomes a note of the node: others must not suffer.

        :param record: reads it, and can continue with what comes next
        """
        record = record or RecordReader(node.name, node.ranks)
        try:
            for data in chunks(self.spool_dir(node) / EVENTS):
                yield from record.feed(data)
        except CockpitError as error:
            yield Event(time.time(), node.name, Note(str(error)))
        if record.bad:
            yield Event(time.time(), node.name, Damaged(record.bad))

    def model(self) -> RunModel:
        """The run's state as far as it is known here, without asking any node.

        :raises CockpitError: manifest or journal cannot be read
        """
        recorded = map(self.recorded, self.manifest.nodes)
        return RunModel.of(chain([planned(self.manifest)], self.journal(), *recorded, self.job_ended()))

    @property
    def slurm_job(self) -> str:
        """The SLURM job that it is in; empty: in none, or its manifest is damaged."""
        with suppress(CockpitError):
            return self.manifest.transport_options.get("job", "") if self.manifest.transport == "srun" else ""
        return ""

    @property
    def slurm_step(self) -> str:
        """The step that holds its supervisors, like ``12.3``; empty: it is not known here."""
        with suppress(OSError, CockpitError):
            for line in islice(lines(self.path / STEP_LOG), 100):
                if (found := STEP_LINE.match(line)) is not None:
                    return found[1].decode()
        return ""

    def note_holder(self, pid: int) -> None:
        """Keep in mind which process of this machine holds the run's supervisors.

        :raises CockpitError: it cannot be written
        """
        replace(self.path / _STEP, json.dumps(asdict(Holder.of(pid))).encode())

    @property
    def unseen(self) -> Mapping[str, Mapping[str, int]]:
        """From where on nobody has seen logs, which were copied for their last words: by node and file."""
        with suppress(OSError, ValueError, RecursionError):
            return _UNSEEN.read(json.loads(read_small(self.path / _UNSEEN_FILE)))
        return {}

    def note_unseen(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Keep that in mind for whoever prints what was missed; nothing: all has been seen.

        :raises CockpitError: it cannot be written
        """
        path = self.path / _UNSEEN_FILE
        try:
            if offsets:
                replace(path, json.dumps(offsets).encode())
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise os_error("cannot be written", path, error) from None

    def holder(self) -> Holder:
        """The process that holds the run's supervisors; nobody, if there is none or it is not known."""
        with suppress(OSError, ValueError, RecursionError):
            return read(Holder, json.loads(read_small(self.path / _STEP)))
        return Holder()

    def job_ended(self, *, ask: bool = False, vanished: bool = False) -> list[Event]:
        """The event of a job that was ended with the run in it, as far as it is known here; none: it is not.

        :param ask: whether SLURM may be asked too, which takes a while
        :param vanished: whether supervisors have ended without a word
        """
        kind = TRANSPORTS.get(self.manifest.transport)
        if kind is None or kind.ending is None:
            return []
        said, at = b"", time.time()
        with suppress(OSError), os.fdopen(open_regular(self.path / STEP_LOG), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _STEP_SAID))
            said = file.read(_STEP_SAID)
            at = os.fstat(file.fileno()).st_mtime if said else at
        holder = self.holder() if vanished else Holder()
        gone = str(holder) if holder.dead() else ""
        said_text = said.decode(errors="replace")
        why, final = kind.ending(self.manifest.transport_options, said_text, ask=ask, gone=gone)
        return [Event(at, "", JobEnded(why, final))] if why else []

    def discard(self) -> None:
        """Remove the folder, of a run that never started or is not to be kept.

        It first gets another name: whatever then happens, nothing is left that looks like a run.

        :raises CockpitError: it cannot be removed
        """
        trash = self.path.with_name(trees.trash_name())
        try:
            if self.path.is_symlink():
                raise NotADirectoryError(errno.ENOTDIR, "it is a symbolic link")
            os.rename(self.path, trash)
        except OSError as error:
            self.close()
            raise os_error("cannot be removed", self.path, error) from None
        self._states = States(trash)
        self.writer.moved(trash)
        self.close()
        left = trees.cleared(str(trash), math.inf).left
        if left:
            hint = f"to delete the rest: rm -r {quote(str(trash))}"
            raise CockpitError(f"not all of it could be deleted: {left}", where=self.name, hint=hint)

    def close(self) -> None:
        """Give up the lock and close the journal."""
        if self.writer.taken:
            self._states.flush()
        self._journal.close()
        self.writer.close()


def list_runs() -> list[RunFolder]:
    """All runs known here, oldest first, damaged ones among them.

    :raises CockpitError: the folder of runs cannot be read
    """
    return sorted(run_folders(), key=lambda folder: (folder.created, folder.name))


def likely(name: str, folders: Iterable[RunFolder]) -> str:
    """The run that is probably meant by a name in other case, a part of one, or a mistyped one; empty: none.

    :param folders: all runs, oldest first
    """
    word, known = name.lower(), dict[str, str]()
    for folder in folders:
        known[folder.name.rpartition("-")[2].lower()] = known[folder.name.lower()] = folder.name
    part = next((known[one] for one in reversed(known) if word in one), "")
    return part or known.get(near(word, known), "")


def run_folders() -> list[RunFolder]:
    """The same in no order, without a look into any.

    :raises CockpitError: the folder of runs cannot be read
    """
    root = paths.runs()
    try:
        return [RunFolder(path) for path in root.iterdir() if path.name[:1] != "." and _is_folder(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise os_error("cannot be read", root, error) from None


def _is_folder(path: Path) -> bool:
    """Whether it is a folder, or a link to one that nobody else has made."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) or (
        stat.S_ISLNK(found.st_mode) and owners.is_ours(found.st_uid) and path.is_dir()
    )
