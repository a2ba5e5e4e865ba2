"""nsys's session of a run that was launched with ``--profile nsys-ready``, and what is asked of it.

Facts are those of 2022.4.2. A session is known by its name to any nsys of the same user and temporary folder,
from the launch until the launcher has ended. It is ``Idle`` or in ``Collection``; only that one nsys may
record in it at a time. Stopping writes the report, which takes seconds to minutes; the ranks go on meanwhile.
It must not be stopped by a process that it has launched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cockpit.base import record
from cockpit.base.shared_fields import Target
from cockpit.node import procfs, safefiles
from cockpit.node.calls import NodeError
from cockpit.node.run import tools
from cockpit.node.run.status import read_record

SUFFIXES = (".nsys-rep", ".qdstrm")
LIST_S = 20.0
"""For the list of sessions; 0.4 s on an idle node."""

_PARTS = "nsys."
"""Begins the name of a folder in the reports folder, in which a report is being written."""
_NAME = re.compile(r"cockpit-[0-9a-f-]{1,64}")
_POLL_S = 0.1


class NoSession(Exception):
    """Nothing can be recorded; the text says why."""


class Session(NamedTuple):
    """The session of one node.

    :param tool: nsys there
    :param environment: for an nsys that is to find it
    """

    tool: str
    name: str
    environment: Dict[str, str]

    @property
    def temporary(self) -> str:
        """Where nsys writes first."""
        return self.environment.get("TMPDIR") or tempfile.gettempdir()

    def run(self, *words: str, timeout_s: float, meanwhile: Callable[[], object] = int) -> Tuple[bool, str]:
        """Have nsys do something; whether it has, and else why not.

        :param meanwhile: called every 0.1 s
        """
        try:
            ended = tools.run(
                [self.tool, *words], timeout_s, meanwhile, environment=self.environment, folder="/"
            )
        except OSError as error:
            return False, "cannot run %s: %s" % (self.tool, error.strerror)
        if ended.status is None:
            return False, "nsys %s took over %g s" % (words[0], timeout_s)
        if words[0] == "sessions" or ended.status == 0:
            return ended.status == 0, ended.said
        return False, "nsys %s failed: %s" % (words[0], " ".join(ended.lines[-2:])[:300] or ended.status)

    def state(self) -> str:
        """``Launched``, ``Collection`` or another word of nsys; empty: there is no such session.

        :raises NoSession: nsys does not say
        """
        return self.listed().get(self.name, "")

    def listed(self) -> Dict[str, str]:
        """The state of each session that nsys knows, by name.

        :raises NoSession: nsys does not say
        """
        done, said = self.run("sessions", "list", timeout_s=LIST_S)
        if not done:
            raise NoSession("nsys does not list its sessions: %s" % said[:300])
        rows = map(str.split, said.split("\n"))
        return {fields[-1]: fields[2] for fields in rows if len(fields) > 4}


class Place(NamedTuple):
    """Where a session is noted.

    :param file: in the run folder
    :param pid: of what nsys has launched
    :param targets: ranks that are in it
    """

    file: str
    pid: int
    targets: Tuple[Target, ...]


def places(folder: str, targets: Sequence[Target]) -> List[Place]:
    """The one of a run folder, or those of its ranks.

    :raises NoSession: there is none
    """
    if "ranks" in _profile(folder):
        return [Place(record.rank_session(one.rank), one.pid, (one,)) for one in targets]
    try:
        pid = int(safefiles.read(os.path.join(folder, "launcher.pid"), 20))
    except (OSError, ValueError):
        raise NoSession("nsys has not launched it yet") from None
    return [Place(record.NSYS_SESSION, pid, tuple(targets))]


def find(folder: str, file: str, pid: int) -> Session:
    """The session of a place.

    :raises NoSession: there is none
    """
    profile = _profile(folder)
    try:
        name = safefiles.read(os.path.join(folder, file), 200).decode("ascii").strip()
    except (OSError, ValueError):
        raise NoSession("nsys has not launched it") from None
    if not _NAME.fullmatch(name):
        raise NoSession("the name of its nsys session is damaged")
    theirs = dict(each.partition(b"=")[::2] for each in procfs.environment(pid))
    environment = dict(os.environ)
    environment.pop("TMPDIR", None)
    if b"TMPDIR" in theirs:
        environment["TMPDIR"] = os.fsdecode(theirs[b"TMPDIR"])
    return Session(str(profile.get("nsys") or "nsys"), name, environment)


def _profile(folder: str) -> Mapping[str, Any]:
    if not folder:
        raise NoSession("cockpit did not start it, so it is in no nsys session")
    try:
        profile: Mapping[str, Any] = read_record(folder).get("profile") or {}
    except NodeError as error:
        raise NoSession(error.what) from None
    if not profile.get("ready"):
        raise NoSession("it was not launched with --profile nsys-ready")
    return profile


def lock(folder: str, file: str) -> Optional[int]:
    """Be the one who records in a session, until the descriptor is closed; None: another one is.

    :raises NoSession: it cannot be
    """
    try:
        number = safefiles.opened(os.path.join(folder, file))
    except OSError as error:
        raise NoSession("%s: %s" % (file, error.strerror)) from None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return None
    except OSError:
        pass  # without locks there is nobody to be seen
    return number


def parts(folder: str, name: str) -> str:
    """The folder in which a report of a collection is written; it is made.

    :raises OSError: it cannot be
    """
    made = os.path.join(folder, record.REPORTS, _PARTS + name)
    os.mkdir(made, 0o700)
    return made


def settle(folder: str, timeout_s: float, cancelled: Callable[[], bool]) -> None:
    """Wait until nobody records any more; then what was left unfinished is beside the other reports.

    :param cancelled: called meanwhile; true ends the wait
    """
    deadline = time.monotonic() + timeout_s
    for file in os.listdir(folder):
        with contextlib.suppress(NoSession):
            while file.endswith(record.NSYS_SESSION) and time.monotonic() < deadline and not cancelled():
                number = lock(folder, file)
                if number is not None:
                    os.close(number)
                    break
                time.sleep(_POLL_S)
    where = os.path.join(folder, record.REPORTS)
    for name in os.listdir(where):
        inside = os.path.join(where, name)
        if name.startswith(_PARTS) and os.path.isdir(inside) and not os.path.islink(inside):
            for path in written(inside):
                with contextlib.suppress(OSError):
                    os.rename(path, os.path.join(where, os.path.basename(path)))
            shutil.rmtree(inside, ignore_errors=True)


def written(folder: str) -> List[str]:
    """Paths of the reports in it, whole ones first; of one that nsys did not import, what it left."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found = [name for suffix in SUFFIXES for name in names if name.endswith(suffix)]
    return [path for path in (os.path.join(folder, name) for name in found) if safefiles.size(path)]
