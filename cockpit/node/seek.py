"""The ranks on this node, of whatever job: told by the environment of their processes, never by a name.

A process shows the environment that it was started with. A script that sets ``RANK`` by itself, and what
``torch.multiprocessing.spawn`` starts, cannot be told apart from outside.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from cockpit.base import record
from cockpit.base.secret import is_secret
from cockpit.node import procfs
from cockpit.node.calls import Call

COMMAND_LIMIT = 200
"""Characters of a command line that are told."""

RANK_LIMIT = 1 << 20
"""Ranks from here on are nonsense."""

_FAMILIES = (
    ("RANK", ("WORLD_SIZE",), ("LOCAL_RANK",)),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",)),
    ("PMIX_RANK", ("PMIX_SIZE",), ()),
    ("PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID",)),
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",)),
)
"""Variables with a global rank; those with the number of ranks, and with the local rank, best first."""

_LAUNCH_WORDS = re.compile(
    rb"--local[_-]rank=|deepspeed\.launcher\.launch|torch\.distributed\.(run|launch)|\btorchrun\b|accelerate.+launch"
)
"""What is looked for in command lines of other people, whose environment cannot be read."""

_SECRET_WORD = re.compile(r"(?i)(token|key|secret|passw(?:or)?d|passphrase)([=:\s]\s*)\S+")


class _Process(NamedTuple):
    stat: procfs.Stat
    env: Dict[str, str]
    family: Tuple[str, Tuple[str, ...], Tuple[str, ...]]
    rank: int


def seek(call: Call) -> Dict[str, Any]:
    """Ranks here, and jobs of others: ``{"ranks": […], "others": […]}``.

    Request: ``run`` and ``node`` (both may be empty): only processes with these tags.
    A rank: ``rank local_rank world_size pid ticks state job {addr port id} launcher run node user python
    started command container ns_pid``. Of others: ``user pid count command``.
    """
    run, node = call.text("run", ""), call.text("node", "")
    return {"ranks": find_ranks(run, node), "others": [] if run else _others()}


def find_ranks(run: str = "", node: str = "") -> List[Dict[str, Any]]:
    """The main process of each rank on this node, lowest rank first.

    :param run: only processes with this run's tag
    :param node: only processes with this node's tag
    """
    processes = _scan(run, node)
    newest: Dict[Tuple[Any, ...], Dict[str, Any]] = {}
    children: Dict[int, List[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.stat.parent, []).append(pid)
    for pid, process in processes.items():
        above = processes.get(process.stat.parent)
        if above is not None and above.rank == process.rank and _job(above.env) == _job(process.env):
            continue
        main = _main(pid, processes, children)
        if main is None:
            continue
        found = _told(processes[main])
        key = (found["run"], *_job(process.env), found["rank"])
        if key not in newest or newest[key]["ticks"] < found["ticks"]:
            newest[key] = found
    return sorted(newest.values(), key=lambda one: one["rank"])


def _scan(run: str, node: str) -> Dict[int, _Process]:
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        data = procfs._read("/proc/%s/environ" % name)
        if not data or not any(variable.encode() + b"=" in data for variable, _, _ in _FAMILIES):
            continue
        env = {}
        for item in data.split(b"\0"):
            key, equals, value = item.decode("utf-8", "surrogateescape").partition("=")
            if equals:
                env[key] = value
        if (run and env.get(record.ENV_RUN) != run) or (node and env.get(record.ENV_NODE) != node):
            continue
        family = next((each for each in _FAMILIES if env.get(each[0], "").isdigit()), None)
        stat = procfs.stat(int(name))
        if family is None or stat is None or int(env[family[0]]) >= RANK_LIMIT:
            continue
        found[int(name)] = _Process(stat, env, family, int(env[family[0]]))
    return found


def _main(pid: int, processes: Dict[int, _Process], children: Dict[int, List[int]]) -> Optional[int]:
    """The first Python at or below a process that is no part of a launch, of the same rank."""
    rank = processes[pid].rank
    level = [pid]
    while level:
        for one in sorted(level):
            if _is_python(one) and not _is_wrapper(one):
                return one
        level = [child for one in level for child in children.get(one, ()) if processes[child].rank == rank]
    return None


def _is_python(pid: int) -> bool:
    try:
        exe = os.path.basename(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        exe = ""
    if re.match(r"(python|pypy)[\d.]*", exe):
        return True
    return b"libpython" in procfs._read("/proc/%d/maps" % pid)


def _is_wrapper(pid: int) -> bool:
    words = procfs._read("/proc/%d/cmdline" % pid).split(b"\0")
    return any(
        word.endswith(record.NODE_PYZ.encode()) and words[number + 1 : number + 2] == [b"wrap"]
        for number, word in enumerate(words[:6])
    )


def _job(env: Dict[str, str]) -> Tuple[str, str, str]:
    step = ".".join(filter(None, (env.get("SLURM_JOB_ID"), env.get("SLURM_STEP_ID"))))
    torch = env.get("TORCHELASTIC_RUN_ID", "")
    return env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", ""), step or ("" if torch == "none" else torch)


def _launcher(process: _Process) -> str:
    env = process.env
    if process.family[0].startswith(("OMPI", "PMI")):
        return "mpi"
    if process.family[0].startswith("SLURM"):
        return "slurm"
    if "CROSS_RANK" in env:
        return "deepspeed"
    if any(name.startswith("ACCELERATE_") for name in env):
        return "accelerate"
    return "torchrun" if "TORCHELASTIC_RUN_ID" in env else "other"


def _told(process: _Process) -> Dict[str, Any]:
    env, stat = process.env, process.stat
    _, sizes, locals_ = process.family
    addr, port, step = _job(env)
    status = procfs._read("/proc/%d/status" % stat.pid).decode("ascii", "replace")
    match = re.search(r"^NSpid:(.*)$", status, re.MULTILINE)
    ns_pids = match.group(1).split() if match else [str(stat.pid)]
    return {
        "rank": process.rank,
        "local_rank": _number(env, locals_),
        "world_size": _number(env, sizes),
        "pid": stat.pid,
        "ticks": stat.ticks,
        "state": stat.state,
        "job": {"addr": addr, "port": port, "id": step},
        "launcher": _launcher(process),
        "run": env.get(record.ENV_RUN, ""),
        "node": env.get(record.ENV_NODE, ""),
        "user": _user(stat.pid),
        "python": _link("/proc/%d/exe" % stat.pid),
        "started": _started(stat.ticks),
        "command": _command(stat.pid),
        "container": len(ns_pids) > 1,
        "ns_pid": int(ns_pids[-1]),
    }


def _number(env: Dict[str, str], names: Tuple[str, ...]) -> Optional[int]:
    return next((int(env[name]) for name in names if env.get(name, "").isdigit()), None)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _user(pid: int) -> str:
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def _started(ticks: int) -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def _command(pid: int) -> str:
    words = procfs._read("/proc/%d/cmdline" % pid).decode("utf-8", "surrogateescape").split("\0")[:-1]
    shown = []
    hide = False
    for word in words:
        name, equals, _ = word.partition("=")
        shown.append("(secret)" if hide else name + "=(secret)" if equals and is_secret(name) else word)
        hide = word.startswith("-") and not equals and is_secret(word)
    return _SECRET_WORD.sub(r"\1\2(secret)", " ".join(shown))[:COMMAND_LIMIT]


def _others() -> List[Dict[str, Any]]:
    """Processes of other people that look like a job's, one entry for each of them."""
    found: Dict[str, Dict[str, Any]] = {}
    if os.geteuid() == 0:
        return []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat("/proc/" + name).st_uid == os.geteuid():
                continue
        except OSError:
            continue
        if _LAUNCH_WORDS.search(procfs._read("/proc/%s/cmdline" % name).replace(b"\0", b" ")):
            user = _user(int(name))
            entry = found.setdefault(
                user, {"user": user, "pid": int(name), "count": 0, "command": _command(int(name))}
            )
            entry["count"] += 1
    return sorted(found.values(), key=lambda one: str(one["user"]))
