"""The ranks on this node, of any job: recognised by the environment of their processes, never by name.

A process shows the environment that it was started with. Ranks that set ``RANK`` only later and by themselves
(``torch.multiprocessing.spawn``, notebook launchers), or write a title over it, are inferred from what
surrounds them (:mod:`cockpit.node.stacks.infer_ranks`).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from typing import (
    TYPE_CHECKING,
    Any,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Union,
)

from cockpit.base import record, users, verbs
from cockpit.base.gate import RANK_LIMIT, RANKS_A_NODE
from cockpit.base.secret import without
from cockpit.node import procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.joining import ended
from cockpit.node.stacks import kernel, launchers, rank_variables
from cockpit.node.stacks.pythons import Pythons, is_cockpit, is_ours, only_helps, only_wraps, pythons

if TYPE_CHECKING:
    from cockpit.node.stacks import infer_ranks

COMMAND_LIMIT = 200
"""Characters of a command line that are reported."""

PLACE_LIMIT = 300
"""Characters of a job's address or name that are reported."""

STUCK_S = 0.5
"""If reading one file of /proc takes longer, we give up: its process may hold a lock forever."""

OTHERS = 50
"""How many other people's jobs, and processes that cannot be looked at, are reported."""

PEOPLE = 1000
"""User ids from this one on are those of people (``UID_MIN`` of login.defs)."""

LEVELS = 10
"""Processes above another person's Python that are looked at."""

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[a-z]?(?: \(deleted\))?\Z")
_LAUNCH = re.compile(
    rb"--local[_-]rank=|deepspeed\.launcher\.|/deepspeed |torch\.distributed\.(?:run|launch)|/torchrun "
    rb"|/accelerate launch|accelerate\.commands\.launch|/mpi(?:run|exec) |/srun "
)
"""What to look for in other people's command lines, since their environment cannot be read."""

_HINTS = (b"--local", b"deepspeed", b"torch", b"/accelerate", b"accelerate.", b"/mpi", b"/srun ")
"""One of these is in each of them: a thousand command lines are looked through for little."""

_DAEMON = re.compile(r"slurmstepd|orted|prted|hydra_|mpirun|mpiexec")
"""Short names of what starts ranks whose own command lines say nothing."""


class _Process(NamedTuple):
    """A process that carries a rank in its environment.

    :param data: its environment as it was read
    """

    stat: procfs.Stat
    data: bytes
    claim: rank_variables.Claim


class _Scan(NamedTuple):
    """The result of one look at all processes.

    :param pids: every process
    :param environments: of those that can be read and have one
    :param refused: processes whose environment may not be read
    :param stuck: processes whose environment never arrives
    """

    pids: List[int]
    processes: Dict[int, _Process]
    environments: Dict[int, bytes]
    refused: List[int]
    stuck: List[int]

    @property
    def pythons(self) -> Pythons:
        """The Python processes that may be looked at: some have written over their environment."""
        return pythons(self.pids, {*self.refused, *self.stuck})


def seek(call: Call) -> Dict[str, Any]:
    """Ranks here, and jobs of others: ``{"ranks": […], "others": […], "pythons": […], "stuck": […], …}``.

    Request: ``run``, ``node`` and ``dir`` (each may be empty): only processes with these tags.
    ``pid`` or ``match``: a Python program that is no rank is taken as the only one of a job; ``why`` says
    why there is none.
    A rank: ``rank local_rank world_size attempt pid ticks state job {addr port id} net launcher run node
    user python started command above started_by container ns_pid``; ``python`` is empty where none runs (yet)
    below a wrapper, and ``inferred`` says of a rank whose environment is silent how its number was found.
    Of others, one entry for each user: ``user pid count command``; ``pythons``: of those whose programs show
    no launcher, and may be ranks all the same. Stuck are processes that cannot be read
    because they wait hard: ``pid name state``. ``machine`` is the same for all names of one machine.
    """
    asked = call.asked(verbs.Seek)
    run = asked.run
    scan = _scan({record.ENV_RUN: run, record.ENV_NODE: asked.node, record.ENV_DIR: asked.dir})
    why = ""
    if run:
        # In a run of ours, the environment of every rank is known.
        ranks = _ranks(scan.processes)
    else:
        found = scan.pythons
        ranks = _all_ranks(scan, found)
        if asked.pid or asked.match:
            named, why = _named(asked, found, ranks)
            ranks = _sorted([*ranks, *named])
    others, programs = ([], []) if run else _others(scan.refused)
    return {
        "ranks": ranks[:RANKS_A_NODE],
        "why": why,
        "others": others,
        "pythons": programs,
        "stuck": list(_stuck(scan.stuck[:OTHERS])),
        "machine": "%s %s" % (procfs.boot_id(), procfs.link("/proc/self/ns/pid")),
    }


# -- one look at /proc -------------------------------------------------------------------------------


def _scan(wanted: Dict[str, str]) -> _Scan:
    pids = sorted(procfs.pids())
    texts, refused, stuck = _read_all(pids, "environ")
    tags = [os.fsencode("%s=%s" % (name, value)) for name, value in wanted.items() if value]
    processes = {}
    for pid, data in texts:
        if tags and not all(tag in data.split(b"\0") for tag in tags):
            continue
        said = rank_variables.read(data)
        stat = procfs.stat(pid) if said is not None else None
        if said is not None and stat is not None and stat.state not in "ZX":
            processes[pid] = _Process(stat, data, said)
    return _Scan(pids, processes, dict(texts), refused, stuck)


class _Reader(threading.Thread):
    """Reads one file of each process, while somebody watches its progress."""

    def __init__(self, pids: Deque[int], file: str) -> None:
        super().__init__(daemon=True)
        self._pids = pids
        self._file = file
        self.given_up = False
        self.at = 0
        self.texts: List[Tuple[int, bytes]] = []
        self.refused: List[int] = []

    def run(self) -> None:
        """Take processes until none is left."""
        while not self.given_up:
            try:
                self.at = pid = self._pids.popleft()
            except IndexError:
                return
            try:
                data = procfs.read("/proc/%d/%s" % (pid, self._file))
            except PermissionError:
                self.refused.append(pid)
            except OSError:
                continue  # it has ended
            else:
                if data:
                    self.texts.append((pid, data))


def _read_all(pids: List[int], file: str) -> Tuple[List[Tuple[int, bytes]], List[int], List[int]]:
    """One file of each process; those for which it may not be read, and those for which that never ends.

    Reading the memory of a process (its environment and arguments are there) waits for a lock that a process
    may hold while it waits for a dead file server.
    """
    todo = deque(pids)
    readers: List[_Reader] = []
    stuck: List[int] = []
    while todo:
        reader = _Reader(todo, file)
        readers.append(reader)
        reader.start()
        while not reader.given_up:
            before = reader.at
            if ended(reader, STUCK_S):
                break
            if reader.at == before:
                reader.given_up = True
                stuck.append(before)
    # Copies: a reader that was given up may return at any time.
    texts = [one for reader in readers for one in list(reader.texts) if one[0] not in stuck]
    return texts, [pid for reader in readers for pid in list(reader.refused)], stuck


# -- which of them is the rank -----------------------------------------------------------------------


def _ranks(processes: Dict[int, _Process]) -> List[Dict[str, Any]]:
    """The main process of each rank, lowest rank first."""
    return _sorted(map(_told, _certain(processes)))


def _all_ranks(scan: _Scan, found: Pythons) -> List[Dict[str, Any]]:
    """The same, and the ranks that are inferred."""
    certain = _certain(scan.processes)
    if not found.stats:
        return _sorted(map(_told, certain))
    # Most nodes that a doctor looks at are idle, and compiling this is a fifth of what an agent costs there.
    from cockpit.node.stacks import infer_ranks, workers

    given = [infer_ranks.Given(one.process.stat.pid, *one.process.claim.number) for one in certain]
    scene = workers.scene(found, scan.environments, given)
    inferred = [one for one in infer_ranks.infer(scene) if can_be(one)]
    # Below it are the ranks: it is a launcher.
    launchers = {scene.given[one.worker.pid].pid for one in inferred if one.worker.pid in scene.given}
    told = [_told(one) for one in certain if one.process.stat.pid not in launchers]
    return _sorted(
        [*told, *(_inferred(one, _tags(scan.environments.get(one.worker.pid, b""))) for one in inferred)]
    )


def _named(
    asked: verbs.Seek, found: Pythons, ranks: List[Dict[str, Any]]
) -> Tuple[List[Dict[str, Any]], str]:
    """The programs that are meant, each as the only rank of a job; and why there is none."""
    from cockpit.node.stacks import named  # hardly ever needed

    known = {one["pid"] for one in ranks}
    if asked.pid:
        meant = named.by_pid(asked.pid, found.stats, known)
    else:
        try:
            meant = named.by_words(asked.match, found.stats, known)
        except ValueError as error:
            raise NodeError("usage", "--match: %s" % error) from None
    return [_alone(one) for one in meant.programs if one.pid not in known], meant.why


def _alone(program: procfs.Stat) -> Dict[str, Any]:
    """A program that somebody named, as rank 0 of 1."""
    return {
        "rank": 0,
        "local_rank": 0,
        "world_size": 1,
        "attempt": 0,
        "inferred": "named",
        "job": {"addr": "", "port": "", "id": "pid %d" % program.pid},
        "launcher": "other",
        "run": "",
        "node": "",
        **_process_told(program.pid, program.ticks, program.state, True),
    }


def _sorted(ranks: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    return sorted(ranks, key=lambda one: (one["rank"], one["pid"]))


def _certain(processes: Dict[int, _Process]) -> List[_Rank]:
    """The main process of each rank that its environment tells of."""
    children: Dict[int, List[_Process]] = {}
    for process in sorted(processes.values(), key=lambda one: (one.stat.ticks, one.stat.pid)):
        children.setdefault(process.stat.parent, []).append(process)
    # A launcher that another one started as a rank: torchrun in a Slurm step.
    launchers = {
        pid
        for pid, process in processes.items()
        if any(one.claim.is_started_by(process.claim) for one in _below(process, children))
    }
    tops = []
    parts: Dict[int, List[_Process]] = {}
    for parent, several in children.items():
        above = processes.get(parent) if parent not in launchers else None
        for one in several:
            if above is not None and one.claim.number == above.claim.number:
                parts.setdefault(parent, []).append(one)
            elif one.stat.pid not in launchers:
                tops.append(one)
    ours = _self_and_above()
    found = []
    for top in tops:
        inner = list(_below(top, children))
        same = list(_below(top, parts))
        main = _main([top, *same], ours)
        if main is None and (len(inner) > len(same) or not _still_starts(top)):
            continue
        wrapped = bool(top.claim.run) and _is_wrapped(main or top, processes)
        found.append(_Rank(main or top, main is not None, wrapped, top.stat.parent))
    return [one for one in _newest(found) if can_be(one.process.claim) and _unchanged(one.process)]


class _Rank(NamedTuple):
    """A process that may be a rank.

    :param python: whether it is Python
    :param wrapped: whether our own wrapper is its parent: there is no doubt then
    :param parent: the process above all that has this rank
    """

    process: _Process
    python: bool
    wrapped: bool
    parent: int


def _newest(found: List[_Rank]) -> List[_Rank]:
    """Those of the newest attempt; of several for one rank, the most likely ones."""
    attempts: Dict[Tuple[str, ...], int] = {}
    for one in found:
        said = one.process.claim
        attempts[said.launch] = max(attempts.get(said.launch, 0), said.attempt)
    wrapped = {one.process.claim.run for one in found if one.wrapped}
    best: Dict[Tuple[Any, ...], Tuple[bool, bool]] = {}
    kept = []
    for one in found:
        said = one.process.claim
        # In a run of ours every rank has our wrapper above it: others belong to what a rank has started.
        if not one.wrapped and said.run in wrapped:
            continue
        if said.attempt < attempts[said.launch]:
            continue
        # Its launcher is above a rank; what a dead rank has left behind is below init.
        worth = (one.python, one.parent != 1)
        best[said.place] = max(best.get(said.place, worth), worth)
        kept.append((said.place, worth, one))
    return [one for place, worth, one in kept if worth == best[place]]


def can_be(said: Union[rank_variables.Claim, infer_ranks.Inferred]) -> bool:
    """Whether these are numbers that a job can have: other programs have such variables too."""
    return said.rank < RANK_LIMIT and (said.size or 0) <= RANK_LIMIT and (said.local or 0) <= RANK_LIMIT


def _below(top: _Process, children: Dict[int, List[_Process]]) -> Iterator[_Process]:
    """All processes with a rank below this one, children before grandchildren, older before younger."""
    seen = {top.stat.pid}
    level = [top]
    while level:
        level = [child for one in level for child in children.get(one.stat.pid, ())]
        level = [one for one in level if one.stat.pid not in seen]
        seen.update(one.stat.pid for one in level)
        yield from level


def _main(line: List[_Process], ours: Set[int]) -> Optional[_Process]:
    """The first Python program among these that trains."""
    rest = []
    for one in line:
        pid = one.stat.pid
        if pid in ours:
            continue
        if not _PYTHON.match(kernel.program(pid)):
            rest.append(pid)
        elif not only_helps(pid):
            return _through(one, line)
    # Other programs embed Python, gdb for one: only if there is nothing else.
    embedded = next((pid for pid in rest if kernel.is_python(pid) and not only_helps(pid)), None)
    return next((one for one in line if one.stat.pid == embedded), None)


def _through(wrapper: _Process, line: List[_Process]) -> _Process:
    """The rank below a wrapper that is Python too; the process itself if it is none."""
    seen = above = wrapper
    # Each step goes further down: no more of them than there are processes.
    for _ in line:
        children = (one.stat for one in line if one.stat.parent == above.stat.pid)
        oldest = procfs.oldest(one for one in children if not only_helps(one.pid))
        if oldest is None:
            break
        above = next(one for one in line if one.stat is oldest)
        # Else a shell, which may be in between.
        if kernel.is_python(above.stat.pid):
            if not only_wraps(seen.stat.pid, above.stat.pid):
                break
            seen = above
    return seen


def _is_wrapped(process: _Process, processes: Dict[int, _Process]) -> bool:
    """Whether our wrapper is above this process, with nothing between that has another rank."""
    one: Optional[_Process] = process
    while one is not None and one.claim.number == process.claim.number:
        if is_ours(procfs.arguments(one.stat.pid)):
            return True
        one = processes.get(one.stat.parent)
    return False


def _self_and_above() -> Set[int]:
    """This process and its ancestors: in a shell on a node of a Slurm job they have ranks as well."""
    found = set()
    pid = os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        above = procfs.stat(pid)
        pid = above.parent if above is not None else 0
    return found


def _still_starts(top: _Process) -> bool:
    """Whether this is a wrapper that has not started Python yet, rather than a program that is not a rank."""
    launcher = top.stat.parent
    return (
        top.claim.direct
        and not _PYTHON.match(kernel.program(top.stat.pid))
        and _PYTHON.match(kernel.program(launcher)) is not None
        # What a dead rank has left behind goes to our supervisor.
        and b"supervise" not in procfs.arguments(launcher)[:6]
    )


def _unchanged(process: _Process) -> bool:
    """Whether the environment that was read is that of the process that was looked at after it."""
    again = procfs.contents("/proc/%d/environ" % process.stat.pid)
    return again == process.data and procfs.alive(process.stat.pid, process.stat.ticks)


# -- what is told ------------------------------------------------------------------------------------


def _told(one: _Rank) -> Dict[str, Any]:
    said, pid = one.process.claim, one.process.stat.pid
    return {
        "rank": said.rank,
        "local_rank": said.local,
        "local_size": said.local_size,
        "world_size": said.size,
        "attempt": said.attempt,
        "job": {
            "addr": said.addr[:PLACE_LIMIT],
            "port": said.port[:PLACE_LIMIT],
            "id": (said.job or _job(one))[:PLACE_LIMIT],
        },
        "launcher": said.launcher,
        "step": said.step[:PLACE_LIMIT],
        "run": said.run,
        "node": said.node,
        **_process_told(pid, one.process.stat.ticks, one.process.stat.state, one.python),
    }


def _tags(data: bytes) -> Dict[str, str]:
    """The run of ours, and its node, that a process belongs to: its program may start ranks by itself."""
    found = dict(each.partition(b"=")[::2] for each in data.split(b"\0"))
    tags = {"run": record.ENV_RUN, "node": record.ENV_NODE}
    return {name: os.fsdecode(found.get(tag.encode(), b""))[:PLACE_LIMIT] for name, tag in tags.items()}


def _inferred(one: infer_ranks.Inferred, tags: Dict[str, str]) -> Dict[str, Any]:
    return {
        "rank": one.rank,
        "local_rank": one.local,
        "world_size": one.size,
        "attempt": 0,
        "inferred": one.how,
        "job": {
            "addr": one.addr[:PLACE_LIMIT],
            "port": one.port[:PLACE_LIMIT],
            "id": "" if one.addr and one.port else "pid %d" % one.above,
        },
        "launcher": one.launcher,
        **tags,
        **_process_told(one.worker.pid, one.worker.ticks, one.worker.state, True),
    }


def _process_told(pid: int, ticks: int, state: str, python: bool) -> Dict[str, Any]:
    ns_pids = re.findall(rb"(?m)^NSpid:(.*)$", procfs.contents("/proc/%d/status" % pid))
    inner = ns_pids[0].split() if ns_pids else [pid]
    words = procfs.arguments(pid)
    return {
        "pid": pid,
        "ticks": ticks,
        "state": state,
        "net": procfs.link("/proc/%d/ns/net" % pid),
        "user": _user(pid),
        "python": _interpreter(pid, words) if python else "",
        "started": _started(ticks),
        "command": launchers.command_line(words, COMMAND_LIMIT, pid),
        "above": [one.pid for one in launchers.above(pid)],
        "started_by": _started_by(pid),
        "container": len(inner) > 1,
        "ns_pid": int(inner[-1]),
    }


def _job(one: _Rank) -> str:
    """What the launcher above a rank says, if the environment says nothing specific to this job."""
    said = one.process.claim
    if said.addr and said.port:
        return ""
    if said.launcher == "mpi":
        # Hydra's proxies, one per node, are told where their mpiexec is.
        words = procfs.arguments(one.parent)
        at = words.index(b"--control-port") + 1 if b"--control-port" in words else len(words)
        return without(os.fsdecode(words[at])) if at < len(words) else ""
    return "" if said.launcher in ("slurm", "other") else "pid %d" % one.parent


def _interpreter(pid: int, words: List[bytes]) -> str:
    """The Python as it was called: that of a virtual environment is a link to another one."""
    called = os.fsdecode(words[0]) if words else ""
    if os.path.isabs(called) and _PYTHON.match(os.path.basename(called)):
        return called
    return procfs.link("/proc/%d/exe" % pid)


def _started_by(pid: int) -> str:
    found = launchers.launcher(pid)
    if found is None:
        return ""
    return launchers.command_line(procfs.arguments(found.pid), COMMAND_LIMIT, found.pid)


def _user(pid: int) -> str:
    owner = procfs.owner(pid)
    return "" if owner is None else users.name(owner)


def _started(ticks: int) -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


_Others = List[Dict[str, Any]]


def _others(refused: List[int]) -> Tuple[_Others, _Others]:
    """What looks like a job among the processes of other people, and other Python programs of people.

    One entry for each of them.
    """
    jobs: Dict[str, Dict[str, Any]] = {}
    programs: Dict[str, Dict[str, Any]] = {}
    for pid, data in sorted(_read_all(refused, "cmdline")[0]):
        user, words = _user(pid), data.split(b"\0")[:-1]
        # Even our own processes may be closed to us: root could not do more.
        if user in ("", users.name(os.geteuid())):
            continue
        found = jobs if _is_job(pid, words) else programs if _is_program(pid, words) else None
        if found is not None:
            command = launchers.command_line(words, COMMAND_LIMIT, pid)
            entry = found.setdefault(user, {"user": user, "pid": pid, "count": 0, "command": command})
            entry["count"] += 1
    told = ([one for _, one in sorted(each.items())][:OTHERS] for each in (jobs, programs))
    return next(told), next(told)


def _is_program(pid: int, words: List[bytes]) -> bool:
    """Whether this is a Python that a person runs, and no helper of one: a machine has such daemons too."""
    owner = procfs.owner(pid)
    if owner is None or owner < PEOPLE or len(words) < 2:
        return False
    if not _PYTHON.match(os.path.basename(os.fsdecode(words[0]))):
        return False
    return not (is_cockpit(words) or only_helps(pid))


def _is_job(pid: int, words: List[bytes]) -> bool:
    """Whether this looks like part of a job: by its command line, or as a Python that a daemon started."""
    line = b" ".join(words) + b" "
    if any(hint in line for hint in _HINTS) and _LAUNCH.search(line):
        return True
    if not words or not _PYTHON.match(os.path.basename(os.fsdecode(words[0]))):
        return False
    seen = procfs.stat(pid)
    for _ in range(LEVELS):
        seen = procfs.stat(seen.parent) if seen is not None else None
        if seen is None or _DAEMON.match(seen.name):
            return seen is not None
    return False


def _stuck(pids: List[int]) -> Iterator[Dict[str, Any]]:
    for pid in pids:
        found = procfs.stat(pid)
        if found is not None:
            yield {"pid": pid, "name": found.name, "state": found.state}


# -- files of /proc ----------------------------------------------------------------------------------
