"""Where the processes of a job that others started write to: files, found through what they have open.

Only regular files count that a process of the asking user has open for writing, or that one has to which its
pipe or terminal leads. Nothing is guessed from names.

Output may leave the node: a launcher's daemon takes it (srun, mpirun), or sshd (pdsh). What started that
connection on another machine is found there by its two ends; srun by the port at which it listens.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from cockpit.base import verbs
from cockpit.base.gate import RANKS_A_NODE
from cockpit.base.same_file import file_id
from cockpit.base.shared_fields import FILES_A_NODE, Caller, Target
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.stacks import launchers, tcp_peers

COMMAND_LIMIT = 2000
"""Characters of a launcher's command line that are told."""

DEPTH = 4
"""Pipes in a row that are followed: a rank's, its launcher's, that of tee …"""

"""Types of file systems whose files other nodes see too."""

_COPIERS = ("tee", "srun", "script")
"""Programs that write what they read to files that they opened themselves."""

_SRUN = (b"HOST", b"PORT")
"""How the variables end by which a task knows where its srun listens."""

_NULL = (1, 3)

_UNREAD = "to a pipe that no process of this user reads"
_CONTAINER = "to its container's output: kubectl logs shows it"

_DAEMON = re.compile(r"orted|prted|hydra_")
"""Programs that pass on what their node's ranks write to mpirun, elsewhere."""

_MPI = re.compile(r"mpirun|mpiexec|orterun|prterun|" + _DAEMON.pattern)

_RANK_FILE = re.compile(r"/rank\.([0-9]{1,6})/std(?:out|err)\Z")
"""What ``mpirun --output-filename`` calls the files of a rank (Open MPI 4)."""

_TERMINALS = re.compile(r"script\Z|" + _MPI.pattern)
"""Programs that write on what they read from terminals that they make; others have them for a person."""


class _Place(NamedTuple):
    """A regular file, and the process that has it open."""

    pid: int
    fd: int
    info: os.stat_result
    path: str
    shared: bool


def outputs(call: Call) -> Dict[str, Any]:
    """Where these processes write to: ``{"files": […], "why": {rank: text}, "launchers": […], "cwd": …}``.

    Request: ``targets``, ``callers``. A file: ``id path device inode size pid ticks fd ranks shared``;
    ``why`` has a sentence for each rank without one; ``passed``: ranks whose output leaves this node;
    ``callers``: the connections by which that of a rank or its launcher does. A process that is gone, or not
    ours, has none of it.
    """
    search = _Search()
    asked = call.asked(verbs.Outputs)
    for target in asked.targets:
        if is_ours(target.pid, target.ticks):
            search.rank(target)
    for pid, ranks in _calling(asked.callers):
        search.caller(pid, ranks)
    return search.told()


def _unread() -> str:
    """What is said of a pipe whose reader is not among this user's processes here."""
    return _CONTAINER if _in_pod() else _UNREAD


def _in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


def is_ours(pid: int, ticks: int) -> bool:
    """Whether this very process lives, and is the asking user's; root may look at everybody's."""
    owner = procfs.owner(pid)
    return owner is not None and os.geteuid() in (0, owner) and procfs.alive(pid, ticks)


class _Search:
    """What is known of the outputs of some processes."""

    def __init__(self) -> None:
        self._files: Dict[Tuple[int, int], Dict[str, Any]] = {}
        self._why: Dict[int, str] = {}
        self._launchers: Dict[int, Dict[str, Any]] = {}
        self._cwd = ""
        self._passed: Set[int] = set()
        self._contained: Set[int] = set()
        """Ranks that write to their container's output, and to no file."""
        self._inside = False
        """Whether what was looked at last does."""
        self._callers: Dict[Tuple[str, ...], List[int]] = {}
        self._leaves: List[Tuple[str, ...]] = []
        """By which connections the output of what was looked at last leaves this node; empty: otherwise."""
        self._speaks: Dict[int, List[int]] = {}
        """Launchers that write what ranks elsewhere write, with those."""
        self._readers: Optional[Dict[int, List[Tuple[int, int]]]] = None
        self._made: Dict[int, Dict[int, List[_Place]]] = {}
        """By daemon of mpirun, the files that it has made for each rank."""

    def told(self) -> Dict[str, Any]:
        for one in self._launchers.values():
            self._leaves = []
            speaks = self._speaks.get(one["pid"], [])
            for fd in (1, 2):
                for place in self._ends(one["pid"], fd, 0)[0]:
                    self._add(place._replace(shared=place.shared or bool(speaks)), speaks)
            self._called(one["ranks"])
        for known in (*self._files.values(), *self._launchers.values()):
            del known["ranks"][RANKS_A_NODE:]
        return {
            "files": list(self._files.values())[:FILES_A_NODE],
            "why": self._why,
            "launchers": list(self._launchers.values()),
            "cwd": self._cwd or "/",
            "passed": sorted(self._passed),
            "contained": sorted(self._contained),
            "callers": [
                {"ranks": ranks, "address": here, "port": int(port), "to": there, "to_port": int(to_port)}
                for (here, port, there, to_port), ranks in self._callers.items()
            ],
        }

    def rank(self, target: Target) -> None:
        """Look at what a rank has open, and who started it."""
        reasons = []
        self._leaves = []
        self._inside = False
        kept = self._kept(target)
        for place in kept:
            self._add(place, [target.rank])
        found = bool(kept)
        for fd in () if found else (1, 2):
            places, why = self._ends(target.pid, fd, 0)
            for place in places:
                self._add(place, [target.rank])
            found = found or bool(places)
            if why and why not in reasons:
                reasons.append(why)
        if not found:
            self._why[target.rank] = "writes " + " and its errors ".join(reasons)
            if self._inside:
                self._contained.add(target.rank)
        if self._leaves:
            self._passed.add(target.rank)
        self._called([target.rank])
        self._cwd = self._cwd or procfs.link("/proc/%d/cwd" % target.pid)
        above = launchers.launcher(target.pid)
        if above is not None:
            self._started(above, [target.rank])

    def _kept(self, target: Target) -> List[_Place]:
        """The files of this rank that mpirun's ``--output-filename`` makes, in the daemon above the rank."""
        daemon = next((one.pid for one in launchers.above(target.pid) if _MPI.match(one.name)), 0)
        if daemon not in self._made:
            self._made[daemon] = {}
            for fd in procfs.numbers(daemon, "fd") if daemon else ():
                path = "/proc/%d/fd/%d" % (daemon, fd)
                link = procfs.link(path)
                name = _RANK_FILE.search(link)
                if name is not None and os.path.isfile(path) and writes(daemon, fd):
                    place = _Place(daemon, fd, os.stat(path), link, False)
                    self._made[daemon].setdefault(int(name[1]), []).append(place)
        return self._made[daemon].get(target.rank, [])

    def _called(self, ranks: Sequence[int]) -> None:
        """Note the connections by which the output of these ranks, or of their launcher, leaves."""
        for ends in set(self._leaves) - {()}:
            known = self._callers.setdefault(ends, [])
            known.extend(rank for rank in ranks if rank not in known)

    def caller(self, pid: int, ranks: Sequence[int]) -> None:
        """Look at what has the connection by which ranks elsewhere were started, and at who started that."""
        process = procfs.stat(pid)
        if process is not None and process.name == "srun":
            several = False
            places, why = self._by_srun(pid)
            if not places:
                self._why.update(dict.fromkeys(ranks, "writes " + _through("srun", pid, why)))
        else:
            several = _has_several(pid)
            places = [] if several else [place for fd in (1, 2) for place in self._ends(pid, fd, 0)[0]]
        for place in places:
            self._add(place, ranks)
        self._cwd = self._cwd or procfs.link("/proc/%d/cwd" % pid)
        above = launchers.launcher(pid) or procfs.stat(pid)
        if above is not None:
            self._started(above, ranks)
            if not places and not several:
                # pdsh has a socket to each ssh.
                self._speaks.setdefault(above.pid, []).extend(ranks)

    def _started(self, above: procfs.Stat, ranks: Sequence[int]) -> None:
        """A process that has started ranks."""
        if above.pid not in self._launchers:
            command = (
                launchers.command_line(procfs.arguments(above.pid), COMMAND_LIMIT, above.pid) or above.name
            )
            below = len(procfs.descendants(above.pid, lambda pid: False))
            known = {"pid": above.pid, "ticks": above.ticks, "command": command, "below": below, "ranks": []}
            self._launchers[above.pid] = known
        self._launchers[above.pid]["ranks"].extend(ranks)

    def _add(self, place: _Place, ranks: Sequence[int]) -> None:
        info = place.info
        one = self._files.setdefault(
            (info.st_dev, info.st_ino),
            {
                "id": file_id(place.info, str(place.pid)),
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
        one["ranks"].extend(rank for rank in ranks if rank not in one["ranks"])

    def _ends(self, pid: int, fd: int, depth: int) -> Tuple[List[_Place], str]:
        """The files that a descriptor leads to; if there is none, where it goes, in words."""
        path = "/proc/%d/fd/%d" % (pid, fd)
        try:
            info, link = os.stat(path), os.readlink(path)
        except FileNotFoundError:
            return [], "to a closed descriptor"
        except OSError as error:
            return [], "to an unknown place (%s)" % error.strerror
        if stat.S_ISREG(info.st_mode):
            if not os.path.isabs(link) or not writes(pid, fd):
                return [], "to %s, opened read-only" % link
            return [_Place(pid, fd, info, link, depth > 0)], ""
        if stat.S_ISFIFO(info.st_mode):
            return self._through(pid, info.st_ino, link, depth)
        if stat.S_ISCHR(info.st_mode):
            if (os.major(info.st_rdev), os.minor(info.st_rdev)) == _NULL:
                return [], "to /dev/null"
            places, why = self._through_terminal(pid, link, depth)
            return places, why or "to a terminal (%s)" % link.replace("/dev/", "", 1)
        return [], "to a socket" if stat.S_ISSOCK(info.st_mode) else "to %s" % link

    def _through(self, pid: int, inode: int, link: str, depth: int) -> Tuple[List[_Place], str]:
        """The files to which the readers of a pipe write."""
        if not link.startswith("pipe:"):
            return [], "to a named pipe (%s)" % link
        readers = [one for one in self._reading(inode) if one[0] != pid]
        if not readers:
            return self._away(pid)
        if depth >= DEPTH:
            return [], "through too many pipes"
        process = procfs.stat(readers[0][0])
        if process is None:
            return [], _unread()
        return self._by(process, depth)

    def _through_terminal(self, pid: int, link: str, depth: int) -> Tuple[List[_Place], str]:
        """The files to which a launcher passes on what it reads from a terminal that it has made: mpirun."""
        number = link.rpartition("/")[2]
        for above in launchers.above(pid) if number.isdigit() and depth < DEPTH else ():
            if _TERMINALS.match(above.name) and any(
                _is_master(above.pid, fd, int(number)) for fd in procfs.numbers(above.pid, "fd")
            ):
                return self._by(above, depth)
        return [], ""

    def _by(self, process: procfs.Stat, depth: int) -> Tuple[List[_Place], str]:
        """The files to which a process passes on what it reads."""
        reader, name = process.pid, process.name
        found: List[_Place] = []
        why = ""
        for fd in self._written(reader, name):
            places, reason = self._ends(reader, fd, depth + 1)
            # What only this rank's pipe leads to is as much its own as a file that it opened itself.
            found += [place._replace(shared=name != "tee" or depth > 0) for place in places]
            why = why or reason
        if not found and _DAEMON.match(name):
            self._leaves.append(())
        return found, "" if found else _through(name, reader, why)

    def _written(self, pid: int, name: str) -> List[int]:
        """The descriptors that a process which reads a pipe may pass it on by."""
        if name in _COPIERS:
            own = [
                fd
                for fd in procfs.numbers(pid, "fd")
                if fd > 2 and os.path.isfile("/proc/%d/fd/%d" % (pid, fd)) and writes(pid, fd)
            ]
            if own:
                return own
        return [1, 2]

    def _away(self, pid: int) -> Tuple[List[_Place], str]:
        """What a process writes to that nobody here reads: a daemon takes it to another machine."""
        names = ("slurmstepd", "sshd")
        daemon = next((one for one in launchers.above(pid) if one.name.startswith(names)), None)
        if daemon is None:
            self._inside = _in_pod()
            return [], _unread()
        if daemon.name.startswith("sshd"):
            ends = _variable(pid, b"SSH_CONNECTION").decode("ascii", "replace").split()
            self._leaves.append(_caller(ends))
            where = ends[0] if ends else "another machine"
            return [], "over ssh to %s; to have it here, attach on that machine" % where
        return self._through_srun(pid)

    def _through_srun(self, pid: int) -> Tuple[List[_Place], str]:
        """SLURM passes it on to the srun of its step, wherever that runs."""
        host, port = (_variable(pid, b"SLURM_SRUN_COMM_" + name).decode("ascii", "replace") for name in _SRUN)
        at = _caller([host, port, host, port])
        if not at:
            self._leaves.append(())
            return [], "to SLURM, which passes it on to srun, or to where its file is"
        here = next(iter(_sruns({(host, int(port))}).values()), None)
        if here is None:
            self._leaves.append((*at[:3], "0"))
            hint = "to have it here, attach on that machine, or start it with srun --output=FILE"
            return [], "to srun at %s; %s" % (host, hint)
        places, why = self._by_srun(here)
        return places, "" if places else _through("srun", here, why)

    def _by_srun(self, pid: int) -> Tuple[List[_Place], str]:
        """The files to which srun writes what its tasks do."""
        found: List[_Place] = []
        reasons = []
        for fd in self._written(pid, "srun"):
            places, why = self._ends(pid, fd, 1)
            found += [place._replace(shared=True) for place in places]
            if why not in reasons:
                reasons.append(why)
        return found, "" if found else "%s; use srun --output=FILE to write a file" % reasons[0]

    def _reading(self, inode: int) -> List[Tuple[int, int]]:
        """The processes that read a pipe, each with its descriptor."""
        if self._readers is None:
            self._readers = {}
            for pid in _mine():
                for fd in procfs.numbers(pid, "fd"):
                    link = procfs.link("/proc/%d/fd/%d" % (pid, fd))
                    if link[:6] == "pipe:[" and not writes(pid, fd):
                        self._readers.setdefault(int(link[6:-1]), []).append((pid, fd))
        return self._readers.get(inode, [])


def _through(name: str, pid: int, why: str) -> str:
    """Where something gets by a process that passes it on."""
    word, _, rest = why.partition(" ")
    return "through %s (pid %d) %s" % (name, pid, "and " + rest if word == "through" else why)


def writes(pid: int, fd: int) -> bool:
    """Whether a process has this descriptor open for writing."""
    flags = re.search(rb"(?m)^flags:\s*([0-7]+)", procfs.contents("/proc/%d/fdinfo/%d" % (pid, fd)))
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _is_master(pid: int, fd: int, number: int) -> bool:
    """Whether a descriptor is the other side of the terminal ``/dev/pts/<number>``."""
    if not procfs.link("/proc/%d/fd/%d" % (pid, fd)).endswith("/ptmx"):
        return False
    told = re.search(rb"(?m)^tty-index:\s*([0-9]+)", procfs.contents("/proc/%d/fdinfo/%d" % (pid, fd)))
    return told is not None and int(told[1]) == number


def _caller(ends: List[str]) -> Tuple[str, ...]:
    """What ``SSH_CONNECTION`` says; empty if that names no TCP connection: sshd may write ``UNKNOWN``."""
    import ipaddress  # for the few nodes that need it

    try:
        for address in ends[::2]:
            ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ()
    fits = len(ends) == 4 and all(port.isdigit() and 0 < int(port) < 1 << 16 for port in ends[1::2])
    return tuple(ends) if fits else ()


def _has_several(pid: int) -> bool:
    """Whether other ssh share its connection (ControlMaster): which one started a rank is not known then."""
    sockets = tcp_peers.held(pid).sockets
    lines = procfs.contents("/proc/%d/net/unix" % pid).decode("utf-8", "replace").splitlines()
    # A socket that was accepted has the name of the one that listens.
    named = [words[7] for words in map(str.split, lines[1:]) if len(words) > 7 and int(words[6]) in sockets]
    return len(named) > len(set(named))


def _calling(callers: Sequence[Caller]) -> Iterator[Tuple[int, Sequence[int]]]:
    """The processes of this user that have the near ends of some connections, with their ranks."""
    listening: Dict[Tuple[str, int], List[int]] = {}
    for one in callers:
        if not one.to_port:
            listening.setdefault((one.address, one.port), []).extend(one.ranks)
    for at, srun in _sruns(set(listening)).items():
        yield srun, listening[at]
    wanted = {((one.address, one.port), (one.to, one.to_port)): one.ranks for one in callers if one.to_port}
    if not wanted:
        return
    ranks = {}
    for inode, wire in tcp_peers.wires([os.getpid()]).items():
        if not wire.listens:
            ends = tuple((tcp_peers.address_text(end), end[1]) for end in (wire.near, wire.far))
            if ends in wanted:
                ranks[inode] = wanted[ends]
    for pid in _mine() if ranks else ():
        for inode in sorted(tcp_peers.held(pid).sockets & ranks.keys()):
            yield pid, ranks.pop(inode)


def _sruns(places: Set[Tuple[str, int]]) -> Dict[Tuple[str, int], int]:
    """The srun of this user that listens at each of these addresses and ports, if they are this machine's."""
    found: Dict[Tuple[str, int], int] = {}
    here = {at for at in places if _is_own(at[0])}
    sruns = [pid for pid in _mine() if _is_srun(pid)] if here else []
    for pid in sorted(sruns):
        sockets = tcp_peers.held(pid).sockets
        told = tcp_peers.wires([pid])
        ports = {told[inode].near[1] for inode in sockets & told.keys() if told[inode].listens}
        for at in here:
            if at[1] in ports:
                found.setdefault(at, pid)
    return found


def _is_srun(pid: int) -> bool:
    process = procfs.stat(pid)
    return process is not None and process.name == "srun"


def _is_own(address: str) -> bool:
    """Whether an address is one of this machine's."""
    import socket  # for the few nodes that need it

    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _mine() -> Iterator[int]:
    """The processes of this user, without this one: it has its ends of pipes open too."""
    for pid in procfs.pids():
        owner = procfs.owner(pid)
        if pid != os.getpid() and owner is not None and os.geteuid() in (0, owner):
            yield pid


def _variable(pid: int, name: bytes) -> bytes:
    values = (one.partition(b"=") for one in procfs.environment(pid))
    return next((value for each, _, value in values if each == name), b"")
