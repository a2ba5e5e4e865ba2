"""The ranks on this node, of whatever job: told by the environment of their processes, never by a name.

A process shows the environment that it was started with. Ranks that set ``RANK`` only later and by themselves
(``torch.multiprocessing.spawn``, notebook launchers), or write a title over it, cannot be seen from outside.
"""

from __future__ import annotations

import os
import pwd
import re
import threading
import time
from collections import deque
from functools import lru_cache
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from cockpit.base import record
from cockpit.base.secret import is_secret
from cockpit.node import kernel, procfs
from cockpit.node.calls import Call
from cockpit.node.spied import harmless

COMMAND_LIMIT = 200
"""Characters of a command line that are told."""

STUCK_S = 0.5
"""Reading one file of /proc takes no longer, or it is given up: its process may hold a lock for ever."""

OTHERS = 50
"""Other people's jobs that are told."""


class _Family(NamedTuple):
    """How one kind of launcher tells a rank who it is; of several variables the first one counts."""

    rank: str
    size: Tuple[str, ...]
    local: Tuple[str, ...]
    launcher: str


_FAMILIES = (
    _Family("RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), "other"),
    _Family("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",), "mpi"),
    _Family("MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",), ("MV2_COMM_WORLD_LOCAL_RANK",), "mpi"),
    # Before PMI, which Slurm sets too. Without a step it is a batch script, which is no rank.
    _Family("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), "slurm"),
    _Family("PMIX_RANK", ("PMIX_SIZE",), ("PMIX_LOCAL_RANK",), "mpi"),
    _Family("PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), "mpi"),
)
_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
_MPI_JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")

_VARIABLES = re.compile(
    r"\0(%s|ACCELERATE_[A-Z_]+)=([^\0]*)"
    % "|".join(
        (
            *(name for family in _FAMILIES for name in (family.rank, *family.size, *family.local)),
            *(*_STEP, *_MPI_JOB, "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT", "CROSS_RANK"),
            *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", record.ENV_RUN, record.ENV_NODE),
        )
    )
)
"""All variables of an environment that matter here."""

_NUMBER = re.compile(r"[0-9]{1,6}\Z")
_FORKED = 0x40  # PF_FORKNOEXEC of the kernel: it still runs the program of the process that forked it

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[a-z]?(?: \(deleted\))?\Z")
_HELPER = re.compile(
    rb"from multiprocessing[. ]|loky\.backend|compile_worker|torch\._inductor|torch/_inductor", re.DOTALL
)
"""What Python runs that only helps a rank: it outlives the rank at times."""

_LAUNCH = re.compile(
    rb"--local[_-]rank=|deepspeed\.launcher\.|/deepspeed |torch\.distributed\.(?:run|launch)|/torchrun "
    rb"|/accelerate launch|accelerate\.commands\.launch|/mpi(?:run|exec) |/srun "
)
"""What is looked for in command lines of other people, whose environment cannot be read."""


class _Process(NamedTuple):
    """A process that carries a rank in its environment.

    :param data: its environment as it was read
    :param env: of it what matters here
    :param whole: a launcher made it for a rank; what it has itself from another one has no local rank in it
    :param key: the same for all processes of one job, one attempt and one rank of it
    """

    stat: procfs.Stat
    data: bytes
    env: Dict[str, str]
    family: _Family
    rank: int
    whole: bool
    key: Tuple[Any, ...]


class _Scan(NamedTuple):
    """What one look at all processes told.

    :param refused: processes whose environment may not be read
    :param stuck: processes whose environment does not come back
    """

    processes: Dict[int, _Process]
    refused: List[int]
    stuck: List[int]


def seek(call: Call) -> Dict[str, Any]:
    """Ranks here, and jobs of others: ``{"ranks": […], "others": […], "stuck": […], "machine": …}``.

    Request: ``run`` and ``node`` (both may be empty): only processes with these tags.
    A rank: ``rank local_rank world_size attempt pid ticks state job {addr port id} launcher run node user
    python started command container ns_pid``; ``python`` is empty where none runs (yet) below a wrapper.
    Of others, one entry for each user: ``user pid count command``. Stuck are processes that cannot be read
    because they wait hard: ``pid name state``. ``machine`` is the same for all names of one machine.
    """
    run, node = call.text("run", ""), call.text("node", "")
    scan = _scan(run, node)
    return {
        "ranks": _ranks(scan.processes),
        "others": [] if run else _others(scan.refused),
        "stuck": list(_stuck(scan.stuck)),
        "machine": "%s %s" % (procfs.boot_id(), _link("/proc/self/ns/pid")),
    }


def find_ranks(run: str = "", node: str = "") -> List[Dict[str, Any]]:
    """The main process of each rank on this node, lowest rank first, as :func:`seek` tells them.

    Where two live processes claim one rank of one job, both are there.

    :param run: only processes with this run's tag
    :param node: only processes with this node's tag
    """
    return _ranks(_scan(run, node).processes)


# -- one look at /proc -------------------------------------------------------------------------------


def _scan(run: str, node: str) -> _Scan:
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    texts, refused, stuck = _read_all(pids, "environ")
    tags = [
        os.fsencode("%s=%s" % (name, value))
        for name, value in ((record.ENV_RUN, run), (record.ENV_NODE, node))
        if value
    ]
    processes = {}
    for pid, data in texts:
        # Most are passed over at once: every variable with a rank ends like one of these.
        if b"RANK=" not in data and b"SLURM_PROCID=" not in data:
            continue
        if tags and not all(tag in data.split(b"\0") for tag in tags):
            continue
        process = _process(pid, data)
        if process is not None:
            processes[pid] = process
    return _Scan(processes, refused, stuck)


class _Reader(threading.Thread):
    """Reads one file of each process, while somebody watches that it comes on."""

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
                data = _read("/proc/%d/%s" % (pid, self._file))
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
        before = -1
        while reader.is_alive() and not reader.given_up:
            if reader.at == before:
                reader.given_up = True
                stuck.append(before)
            else:
                before = reader.at
                reader.join(STUCK_S)
    # Copies: one that was given up may come back any time.
    texts = [one for reader in readers for one in list(reader.texts) if one[0] not in stuck]
    return texts, [pid for reader in readers for pid in list(reader.refused)], stuck


def _process(pid: int, data: bytes) -> Optional[_Process]:
    env: Dict[str, str] = {}
    for name, value in _VARIABLES.findall("\0" + data.decode("utf-8", "surrogateescape")):
        env.setdefault(name, value)
    family = _family(env)
    stat = procfs.stat(pid)
    if family is None or stat is None or stat.state in "ZX":
        return None
    rank = int(env[family.rank])
    whole = family.rank == "RANK" and "LOCAL_RANK" in env
    key = (rank, whole, _size(env, family), *_place(env), _attempt(env))
    return _Process(stat, data, env, family, rank, whole, key)


def _family(env: Dict[str, str]) -> Optional[_Family]:
    for family in _FAMILIES:
        if not _NUMBER.match(env.get(family.rank, "")):
            continue
        # Other programs have variables of this name too.
        if family.rank == "RANK" and not {"WORLD_SIZE", "MASTER_ADDR", record.ENV_RUN} & set(env):
            continue
        if family.rank == "SLURM_PROCID" and not _first(env, _STEP):
            continue
        return family
    return None


# -- which of them is the rank -----------------------------------------------------------------------


def _ranks(processes: Dict[int, _Process]) -> List[Dict[str, Any]]:
    """The main process of each rank, lowest rank first."""
    children: Dict[int, List[_Process]] = {}
    for process in sorted(processes.values(), key=lambda one: (one.stat.ticks, one.stat.pid)):
        children.setdefault(process.stat.parent, []).append(process)
    ours = _self_and_above()
    found = []
    for top in processes.values():
        above = processes.get(top.stat.parent)
        if above is not None and above.key == top.key:
            continue
        inner = list(_below(top, children))
        same = [one for one in inner if one.key == top.key]
        # A launcher that another one has started: torchrun in a step of Slurm.
        if not top.whole and any(one.whole for one in inner):
            continue
        main = _main([top, *same], ours)
        if main is None and (len(inner) > len(same) or not _still_starts(top)):
            continue
        wrapped = record.ENV_RUN in top.env and _is_wrapped(main or top, processes)
        found.append(_Rank(main or top, main is not None, wrapped, top.stat.parent))
    told = [_told(one.process, one.python) for one in _newest(found) if _unchanged(one.process)]
    return sorted(told, key=lambda one: (one["rank"], one["pid"]))


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
    """Those of the newest attempt, and of several for one rank the ones that are most likely it."""
    attempts: Dict[Tuple[str, ...], int] = {}
    for one in found:
        launch = _launch_of(one.process.env)
        attempts[launch] = max(attempts.get(launch, 0), _attempt(one.process.env))
    wrapped = {one.process.env.get(record.ENV_RUN) for one in found if one.wrapped}
    best: Dict[Tuple[Any, ...], Tuple[bool, bool]] = {}
    kept = []
    for one in found:
        env = one.process.env
        # In a run of ours every rank has our wrapper above it: others belong to what a rank has started.
        if not one.wrapped and env.get(record.ENV_RUN) in wrapped:
            continue
        if _attempt(env) < attempts[_launch_of(env)]:
            continue
        # Its launcher is above a rank; what a dead rank has left behind is below init.
        worth = (one.python, one.parent != 1)
        place = (one.process.rank, _size(env, one.process.family), *_place(env))
        best[place] = max(best.get(place, worth), worth)
        kept.append((place, worth, one))
    return [one for place, worth, one in kept if worth == best[place]]


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
        elif not _only_helps(pid):
            return one
    # Other programs have Python in them, gdb for one: only where nothing else is there.
    embedded = next((pid for pid in rest if kernel.is_python(pid) and not _only_helps(pid)), None)
    return next((one for one in line if one.stat.pid == embedded), None)


def _is_wrapped(process: _Process, processes: Dict[int, _Process]) -> bool:
    """Whether our wrapper is above this process, with nothing between that has another rank."""
    one: Optional[_Process] = process
    while one is not None and one.key == process.key:
        if _is_ours(_arguments(one.stat.pid)):
            return True
        one = processes.get(one.stat.parent)
    return False


def _self_and_above() -> Set[int]:
    """This process and what started it: in a shell on a node of a Slurm job they have ranks as well."""
    found = set()
    pid = os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        above = procfs.stat(pid)
        pid = above.parent if above is not None else 0
    return found


def _only_helps(pid: int) -> bool:
    """Whether a process is part of our own program, passes on to another one, or helps one."""
    words = _arguments(pid)
    if _is_ours(words) or _forked(pid):
        return True
    # `conda run` stays above the program that it runs.
    if len(words) > 2 and os.path.basename(words[1]) in (b"conda", b"mamba") and b"run" in words[2:4]:
        return True
    return any(_HELPER.search(word) for word in words[1:4])


def _is_ours(words: List[bytes]) -> bool:
    """Whether this is the command line of our own program."""
    for number, word in enumerate(words[:6]):
        if word.endswith(os.fsencode(record.NODE_PYZ)):
            return words[number + 1 : number + 2] in ([b"wrap"], [b"supervise"], [b"agent"])
        if b"from cockpit.node.agent import" in word:
            return True
    return False


def _still_starts(top: _Process) -> bool:
    """Whether this is a wrapper that has not come to Python yet, rather than a program that is no rank."""
    launcher = top.stat.parent
    return (
        top.family.rank == "RANK"
        and not _PYTHON.match(kernel.program(top.stat.pid))
        and _PYTHON.match(kernel.program(launcher)) is not None
        # What a dead rank has left behind goes to our supervisor.
        and b"supervise" not in _arguments(launcher)[:6]
    )


def _forked(pid: int) -> bool:
    """Whether a process runs its parent's program and environment, as data loaders do."""
    fields = _bytes("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    return len(fields) > 6 and bool(int(fields[6]) & _FORKED)


def _unchanged(process: _Process) -> bool:
    """Whether the environment that was read is that of the process that was looked at after it."""
    again = _bytes("/proc/%d/environ" % process.stat.pid)
    return again == process.data and procfs.alive(process.stat.pid, process.stat.ticks)


# -- what is told ------------------------------------------------------------------------------------


def _told(process: _Process, is_python: bool) -> Dict[str, Any]:
    env, pid = process.env, process.stat.pid
    run, addr, port, name = _place(env)
    ns_pids = re.findall(rb"(?m)^NSpid:(.*)$", _bytes("/proc/%d/status" % pid))
    inner = ns_pids[0].split() if ns_pids else [pid]
    words = _arguments(pid)
    return {
        "rank": process.rank,
        "local_rank": _local_rank(process),
        "world_size": _size(env, process.family),
        "attempt": _attempt(env),
        "pid": pid,
        "ticks": process.stat.ticks,
        "state": process.stat.state,
        "job": {"addr": addr, "port": port, "id": name},
        "launcher": _launcher(process),
        "run": run,
        "node": env.get(record.ENV_NODE, ""),
        "user": _user(pid),
        "python": _interpreter(pid, words) if is_python else "",
        "started": _started(process.stat.ticks),
        "command": _command(words),
        "container": len(inner) > 1,
        "ns_pid": int(inner[-1]),
    }


def _place(env: Dict[str, str]) -> Tuple[str, str, str, str]:
    """The run, the master's address and port, and the launcher's own name of the job; each may be empty."""
    name = ""
    step = _first(env, _STEP)
    if env.get("TORCHELASTIC_RUN_ID", "none") != "none":
        name = env["TORCHELASTIC_RUN_ID"]
    elif _first(env, _MPI_JOB):
        name = _first(env, _MPI_JOB)
    elif step and env.get("SLURM_JOB_ID"):
        name = "%s.%s" % (env["SLURM_JOB_ID"], step)
    return env.get(record.ENV_RUN, ""), env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", ""), name


def _launch_of(env: Dict[str, str]) -> Tuple[str, ...]:
    """What stays the same when a launcher starts its ranks again: torchrun may take another port."""
    run, addr, port, name = _place(env)
    return (run, name) if name else (run, addr, port)


def _launcher(process: _Process) -> str:
    env, family = process.env, process.family
    if family.launcher != "other":
        # srun sets these of MPI as well.
        return (
            "slurm" if env.get("SLURM_PROCID") == env[family.rank] and _first(env, _STEP) else family.launcher
        )
    if "TORCHELASTIC_RUN_ID" in env:
        return "accelerate" if any(name.startswith("ACCELERATE_") for name in env) else "torchrun"
    if "CROSS_RANK" in env:
        return "deepspeed"
    for other in _FAMILIES[1:]:
        if env.get(other.rank) == env["RANK"] and _size(env, other) == _size(env, family):
            return _launcher(process._replace(family=other))
    return "other"


def _local_rank(process: _Process) -> Optional[int]:
    env = process.env
    for family in (process.family, *_FAMILIES):
        # A launcher that one launcher runs on each node has left its own numbers here too.
        if env.get(family.rank) == env[process.family.rank] and _number(env, family.local) is not None:
            return _number(env, family.local)
    return None


def _size(env: Dict[str, str], family: _Family) -> Optional[int]:
    return _number(env, family.size) or None


def _attempt(env: Dict[str, str]) -> int:
    return _number(env, ("TORCHELASTIC_RESTART_COUNT",)) or 0


def _number(env: Dict[str, str], names: Tuple[str, ...]) -> Optional[int]:
    return next((int(env[name]) for name in names if _NUMBER.match(env.get(name, ""))), None)


def _first(env: Dict[str, str], names: Tuple[str, ...]) -> str:
    return next((env[name] for name in names if env.get(name)), "")


def _interpreter(pid: int, words: List[bytes]) -> str:
    """The Python as it was called: that of a virtual environment is a link to another one."""
    called = os.fsdecode(words[0]) if words else ""
    if os.path.isabs(called) and _PYTHON.match(os.path.basename(called)):
        return called
    return _link("/proc/%d/exe" % pid)


def _user(pid: int) -> str:
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return ""
    return _user_name(uid)


@lru_cache(maxsize=64)
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def _started(ticks: int) -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def _command(words: List[bytes]) -> str:
    """The command line as a person would type it, short and without secrets."""
    shown = []
    hide = False
    for word in words:
        text = word.decode("utf-8", "surrogateescape")
        name, equals, _ = text.partition("=")
        if hide or (equals and is_secret(name)):
            shown.append(name + "=(secret)" if equals and not hide else "(secret)")
        else:
            shown.append(harmless(text))
        hide = not hide and text.startswith("-") and not equals and is_secret(text)
    command = " ".join(shown)
    return command if len(command) <= COMMAND_LIMIT else command[: COMMAND_LIMIT - 1] + "…"


def _others(refused: List[int]) -> List[Dict[str, Any]]:
    """What looks like a job among the processes of other people, one entry for each of them."""
    found: Dict[str, Dict[str, Any]] = {}
    for pid, data in _read_all(refused, "cmdline")[0]:
        user = _user(pid)
        # One's own may be closed too: root could not do more.
        if user in ("", _user_name(os.geteuid())) or not _LAUNCH.search(data.replace(b"\0", b" ")):
            continue
        command = _command(data.split(b"\0")[:-1])
        entry = found.setdefault(user, {"user": user, "pid": pid, "count": 0, "command": command})
        entry["count"] += 1
    return sorted(found.values(), key=lambda one: str(one["user"]))[:OTHERS]


def _stuck(pids: List[int]) -> Iterator[Dict[str, Any]]:
    for pid in pids:
        found = procfs.stat(pid)
        if found is not None:
            yield {"pid": pid, "name": found.name, "state": found.state}


# -- files of /proc ----------------------------------------------------------------------------------


def _arguments(pid: int) -> List[bytes]:
    return _bytes("/proc/%d/cmdline" % pid).split(b"\0")[:-1]


def _bytes(path: str) -> bytes:
    try:
        return _read(path)
    except OSError:
        return b""


def _read(path: str) -> bytes:
    number = os.open(path, os.O_RDONLY)
    try:
        data = b""
        while True:
            more = os.read(number, 1 << 16)
            if not more:
                return data
            data += more
    finally:
        os.close(number)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
