"""Where the processes of a job that others started write to: files, found through what they have open.

Only regular files count that a process of the asking user has open for writing, or that one has to which its
pipe leads. Nothing is guessed from names.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from cockpit.base import verbs
from cockpit.base.fields import FILES_A_NODE, Target
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.stacks import launchers

COMMAND_LIMIT = 2000
"""Characters of a launcher's command line that are told."""

DEPTH = 4
"""Pipes in a row that are followed: a rank's, its launcher's, that of tee …"""

_NETWORK = re.compile(r"nfs4?|lustre|gpfs|beegfs|cifs|smb3|ceph|9p|glusterfs|pvfs2|wekafs|panfs|afs|fuse\..*")
"""Types of file systems whose files other nodes see too."""

_COPIERS = ("tee", "srun")
"""Programs that write what they read to files that they opened themselves."""

_NULL = (1, 3)


class _Place(NamedTuple):
    """A regular file, and the process that has it open."""

    pid: int
    fd: int
    info: os.stat_result
    path: str
    shared: bool


def outputs(call: Call) -> Dict[str, Any]:
    """Where these processes write to: ``{"files": […], "why": {rank: text}, "launchers": […], "cwd": …}``.

    Request: ``targets``. A file: ``id path device inode size pid ticks fd ranks shared``; ``why`` has a
    sentence for each rank without one. A process that is gone, or not ours, has neither.
    """
    search = _Search()
    for target in call.asked(verbs.Outputs).targets:
        if is_ours(target.pid, target.ticks):
            search.rank(target)
    return search.told()


def is_ours(pid: int, ticks: int) -> bool:
    """Whether this very process lives, and is the asking user's; root may look at everybody's."""
    try:
        owner = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return False
    return os.geteuid() in (0, owner) and procfs.alive(pid, ticks)


class _Search:
    """What is known of the outputs of some processes."""

    def __init__(self) -> None:
        self._files: Dict[Tuple[int, int], Dict[str, Any]] = {}
        self._why: Dict[int, str] = {}
        self._launchers: Dict[int, Dict[str, Any]] = {}
        self._cwd = ""
        self._readers: Optional[Dict[int, List[Tuple[int, int]]]] = None

    def told(self) -> Dict[str, Any]:
        for one in self._launchers.values():
            for fd in (1, 2):
                for place in self._ends(one["pid"], fd, 0)[0]:
                    self._add(place, None)
        return {
            "files": list(self._files.values())[:FILES_A_NODE],
            "why": self._why,
            "launchers": list(self._launchers.values()),
            "cwd": self._cwd or "/",
        }

    def rank(self, target: Target) -> None:
        """Look at what a rank has open, and who started it."""
        reasons = []
        found = False
        for fd in (1, 2):
            places, why = self._ends(target.pid, fd, 0)
            for place in places:
                self._add(place, target.rank)
            found = found or bool(places)
            if why and why not in reasons:
                reasons.append(why)
        if not found:
            self._why[target.rank] = "writes " + ", its errors ".join(reasons)
        self._cwd = self._cwd or procfs.link("/proc/%d/cwd" % target.pid)
        above = launchers.launcher(target.pid)
        if above is None:
            return
        if above.pid not in self._launchers:
            command = launchers.command_line(procfs.arguments(above.pid), COMMAND_LIMIT) or above.name
            below = len(procfs.descendants(above.pid, lambda pid: False))
            known = {"pid": above.pid, "ticks": above.ticks, "command": command, "below": below, "ranks": []}
            self._launchers[above.pid] = known
        self._launchers[above.pid]["ranks"].append(target.rank)

    def _add(self, place: _Place, rank: Optional[int]) -> None:
        info = place.info
        one = self._files.setdefault(
            (info.st_dev, info.st_ino),
            {
                "id": _identity(place),
                "path": place.path,
                "device": info.st_dev,
                "inode": info.st_ino,
                "size": info.st_size,
                "pid": place.pid,
                "ticks": procfs.ticks(place.pid),
                "fd": place.fd,
                "ranks": [],
                "shared": False,
            },
        )
        one["shared"] = one["shared"] or place.shared
        if rank is not None and rank not in one["ranks"]:
            one["ranks"].append(rank)

    def _ends(self, pid: int, fd: int, depth: int) -> Tuple[List[_Place], str]:
        """The files that a descriptor leads to; if there is none, where it goes, in words."""
        path = "/proc/%d/fd/%d" % (pid, fd)
        try:
            info, link = os.stat(path), os.readlink(path)
        except FileNotFoundError:
            return [], "nowhere: it is closed"
        except OSError as error:
            return [], "where this user may not look (%s)" % error.strerror
        if stat.S_ISREG(info.st_mode):
            if not os.path.isabs(link) or not writes(pid, fd):
                return [], "to %s, which it only reads" % link
            return [_Place(pid, fd, info, link, depth > 0)], ""
        if stat.S_ISFIFO(info.st_mode):
            return self._through(pid, info.st_ino, link, depth)
        if stat.S_ISCHR(info.st_mode):
            if (os.major(info.st_rdev), os.minor(info.st_rdev)) == _NULL:
                return [], "to /dev/null"
            return [], "to a terminal (%s)" % link.replace("/dev/", "", 1)
        return [], "to a socket" if stat.S_ISSOCK(info.st_mode) else "to %s" % link

    def _through(self, pid: int, inode: int, link: str, depth: int) -> Tuple[List[_Place], str]:
        """The files to which the readers of a pipe write."""
        if not link.startswith("pipe:"):
            return [], "to a named pipe (%s)" % link
        readers = [one for one in self._reading(inode) if one[0] != pid]
        if not readers:
            return self._through_srun(pid)
        if depth >= DEPTH:
            return [], "to one pipe after another"
        reader = readers[0][0]
        process = procfs.stat(reader)
        name = process.name if process is not None else "?"
        found: List[_Place] = []
        why = ""
        for fd in self._written(reader, name):
            places, reason = self._ends(reader, fd, depth + 1)
            # What only this rank's pipe leads to is as much its own as a file that it opened itself.
            found += [place._replace(shared=name != "tee" or depth > 0) for place in places]
            why = why or reason
        return found, "" if found else "to a pipe of %s (pid %d), which writes %s" % (name, reader, why)

    def _written(self, pid: int, name: str) -> List[int]:
        """The descriptors that a process which reads a pipe may pass it on by."""
        if name in _COPIERS:
            own = [
                fd
                for fd in _descriptors(pid)
                if fd > 2 and os.path.isfile("/proc/%d/fd/%d" % (pid, fd)) and writes(pid, fd)
            ]
            if own:
                return own
        return [1, 2]

    def _through_srun(self, pid: int) -> Tuple[List[_Place], str]:
        """What a process writes to that nobody here reads: SLURM passes it on to srun, wherever that runs."""
        above = next(launchers.above(pid), None)
        if above is None or above.name != "slurmstepd":
            return [], "to a pipe that no process of this user reads"
        job = _variable(pid, b"SLURM_JOB_ID")
        for other in _mine():
            process = procfs.stat(other)
            if process is not None and process.name == "srun" and _variable(other, b"SLURM_JOB_ID") == job:
                found = []
                for fd in self._written(other, "srun"):
                    found += self._ends(other, fd, DEPTH)[0]
                if found:
                    return [place._replace(shared=True) for place in found], ""
        return [], "to SLURM, which passes it on to srun on another node, or to where its file is"

    def _reading(self, inode: int) -> List[Tuple[int, int]]:
        """The processes that read a pipe, each with its descriptor."""
        if self._readers is None:
            self._readers = {}
            for pid in _mine():
                for fd in _descriptors(pid):
                    link = procfs.link("/proc/%d/fd/%d" % (pid, fd))
                    if link[:6] == "pipe:[" and not writes(pid, fd):
                        self._readers.setdefault(int(link[6:-1]), []).append((pid, fd))
        return self._readers.get(inode, [])


def writes(pid: int, fd: int) -> bool:
    """Whether a process has this descriptor open for writing."""
    flags = re.search(rb"(?m)^flags:\s*([0-7]+)", procfs.contents("/proc/%d/fdinfo/%d" % (pid, fd)))
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _mine() -> Iterator[int]:
    """The processes of this user, without this one: it has its ends of pipes open too."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.geteuid() in (0, os.stat("/proc/" + name).st_uid):
                    yield int(name)
            except OSError:
                continue  # it has ended


def _descriptors(pid: int) -> List[int]:
    try:
        return sorted(int(name) for name in os.listdir("/proc/%d/fd" % pid))
    except OSError:
        return []


def _variable(pid: int, name: bytes) -> bytes:
    values = (one.partition(b"=") for one in procfs.environment(pid))
    return next((value for each, _, value in values if each == name), b"")


def _identity(place: _Place) -> str:
    """The same text for the same file, from whichever node it is seen: a local one is its machine's."""
    number = "%d:%d" % (os.major(place.info.st_dev), os.minor(place.info.st_dev))
    for line in procfs.contents("/proc/%d/mountinfo" % place.pid).decode("utf-8", "replace").splitlines():
        words = line.split()
        if len(words) > 2 and words[2] == number and "-" in words:
            kind, source = words[words.index("-") + 1 : words.index("-") + 3]
            if _NETWORK.fullmatch(kind):
                return "%s %s %d" % (kind, source[:300], place.info.st_ino)
    return "%s %s %d" % (procfs.boot_id(), number, place.info.st_ino)
