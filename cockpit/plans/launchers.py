"""Command lines of the launchers, one per node: deepspeed 0.19.8, torchrun 2.13, and cockpit's own `command`.

Each comes in two forms: as a person would type it, and as `cockpit run` starts it, where the launcher starts
``rankwrap K COMMAND`` for each rank. K is where ``--local_rank=N``, which DeepSpeed puts before all other
arguments, belongs: ``3`` for ``python -u train.py``. The program gets the same arguments either way.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cockpit.base.record import RANKWRAP
from cockpit.base.shell import fill
from cockpit.errors import CockpitError, Exit
from cockpit.plans.launch import DIR, Place
from cockpit.plans.nodes import hostfile

HOSTFILE = "hostfile"
SLOTS_SH = "slots.sh"

# Long options that argparse there knows, for _ambiguous.
_DEEPSPEED_OPTIONS = """
    help hostfile include exclude num_nodes num_gpus num_accelerators master_port master_addr node_rank
    launcher launcher_args module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid
    enable_each_rank_log autotuning bind_cores_to_rank bind_core_list ssh_port venv_script log_level quiet
"""
_TORCHRUN_OPTIONS = """
    help nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts
    monitor-interval start-method role module no-python run-path log-dir redirects tee local-ranks-filter
    node-rank master-addr master-port local-addr logs-specs numa-binding event-log-handler signals-to-handle
    virtual-local-rank shutdown-timeout duplicate-stdout-filters duplicate-stderr-filters
"""
# What cockpit decides itself, or what would break its bookkeeping of ranks.
_OURS = {
    "deepspeed": """
        -H --hostfile -i --include -e --exclude --num_nodes --num_gpus --num_accelerators --master_port
        --master_addr --node_rank --launcher --launcher_args --module --no_python --no_ssh --force_multi
        --enable_each_rank_log --autotuning --bind_cores_to_rank --bind_core_list
    """,
    "torchrun": """
        --nnodes --nproc-per-node --node-rank --master-addr --master-port -m --module --no-python --standalone
        --rdzv-backend --rdzv-endpoint --rdzv-id --run-path -r --redirects -t --tee --local-ranks-filter
    """,
}
_HINTS = {
    "--enable_each_rank_log": "each rank has a log of its own here",
    "--redirects": "each rank has a log of its own here",
    "--tee": "each rank has a log of its own here",
    "--num_nodes": "use --include",
    "--num_gpus": "use the hostfile's slots or --include",
    "--module": "write -- -m MODULE",
    "-m": "write -- -m MODULE",
    "--bind_cores_to_rank": "use --bind-cores auto",
    "--bind_core_list": "use --bind-cores LIST",
}


@dataclass(frozen=True)
class Command:
    """One node's command line in both forms, and what comes with it.

    :param argv: as typed by a person
    :param run_argv: as started by `cockpit run`
    :param env: variables it needs besides the job's
    :param files: files in the run folder by name
    """

    argv: tuple[str, ...]
    run_argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def command(place: Place) -> Command:
    """The command line of a node.

    :raises CockpitError: an option the launcher cannot have, or a node that lacks the launcher
    """
    launcher = place.job.launcher
    for word in place.job.launcher_args:
        name = word.partition("=")[0]
        name = name.replace("_", "-") if launcher == "torchrun" else name
        if name in _OURS.get(launcher, "").split():
            hint = _HINTS.get(name, f"leave it out: cockpit gives it to {launcher}")
            raise CockpitError(f"{word} cannot be given to {launcher}", where="--launcher-args", hint=hint)
    if place.job.bind_cores and launcher != "deepspeed":
        raise CockpitError("is for the deepspeed launcher", where="--bind-cores", hint="leave it out")
    if launcher == "deepspeed":
        return _deepspeed(place)
    if launcher == "torchrun":
        return _torchrun(place)
    if launcher != "command":
        hint = "it is one of deepspeed, torchrun, command"
        raise CockpitError(f"no launcher {launcher}", where="--launcher", hint=hint)
    if place.job.launcher_args:
        raise CockpitError(
            "--launcher command has no arguments of its own", where="--launcher-args", hint="leave it out"
        )
    return _command(place)


def _rank_command(place: Place) -> tuple[int, tuple[str, ...]]:
    """K and the command of one rank."""
    program = place.job.program
    if program[0] == "-m":
        return 4, (place.python, "-u", *program)
    if program[0].endswith(".py"):
        return 3, (place.python, "-u", *program)
    return 1, program


def _wrapped(place: Place) -> tuple[str, ...]:
    k, words = _rank_command(place)
    return (f"{DIR}/{RANKWRAP}", str(k), *words)


def _ambiguous(program: tuple[str, ...], options: str) -> bool:
    """Whether argparse (up to Python 3.11) would mistake an argument of the program for an ambiguous option.

    It looks at all words before it knows which of them are options, but not beyond a ``--``. It also drops
    a ``--`` that follows the program.
    """
    args = program[2:] if program[0] == "-m" else program[1:]
    known = set(options.split())
    # torchrun accepts both spellings of each of its names.
    known |= {option.replace("-", "_") for option in known}
    names = [word[2:].partition("=")[0] for word in args if word.startswith("--") and word != "--"]
    return args[:1] == ("--",) or any(
        name not in known and sum(option.startswith(name) for option in known) > 1 for name in names
    )


def _unfit(place: Place, what: str, hint: str) -> CockpitError:
    return CockpitError(what, where=place.host.name, hint=hint, code=Exit.NODE_UNFIT)


def _beside(place: Place, tool: str) -> str:
    folder = os.path.dirname(place.python)
    return f"{folder}/{tool}" if folder.startswith("/") else tool


# -- deepspeed


def _deepspeed(place: Place) -> Command:
    job, facts = place.job, place.facts
    program = job.program
    if re.fullmatch(r"python[0-9.]*", os.path.basename(program[0])):
        hint = "write `-- train.py ARGS` or `-- -m MODULE ARGS`, and --python PATH for another python"
        raise CockpitError(f"{program[0]} is put before the program by cockpit", where="--", hint=hint)
    if facts and facts.deepspeed is None:
        raise _unfit(
            place, f"no deepspeed for {place.python}", "install it there, or give --python or --setup"
        )
    bind, notes = _binding(place)
    names = [host.name for host in job.hosts]
    whole = all(host.slots == tuple(range(len(host.slots))) for host in job.hosts)
    # DeepSpeed's --include cannot spell a name with its own separators.
    spelled = whole or not any("@" in name or ":" in name for name in names)
    direct = bool(facts and not (facts.no_ssh and facts.deepspeed_tool)) or not spelled
    where = ["--master_addr", place.master_addr, "--master_port", str(place.master_port)]
    if direct:
        slots = {host.name: list(host.slots) for host in job.hosts}
        world = base64.urlsafe_b64encode(json.dumps(slots).encode()).decode()
        start = [place.python, "-u", "-m", "deepspeed.launcher.launch", f"--world_info={world}"]
        start += ["--node_rank", str(place.index), *where]
        files = {}
        if facts and not facts.no_ssh:
            notes.append(f"DeepSpeed {facts.deepspeed} has no --no_ssh: its launch.py is started directly")
    else:
        tool = facts.deepspeed_tool if facts and facts.deepspeed_tool else _beside(place, "deepspeed")
        start = [tool, f"--hostfile={DIR}/{HOSTFILE}"]
        if not whole:
            start.append(f"--include={_include(job.hosts)}")
        start += ["--no_ssh", "--node_rank", str(place.index), *where]
        files = {HOSTFILE: hostfile.render(job.hosts)}
    start += [*bind, *job.launcher_args]
    guard: list[str] = []
    if _ambiguous(program, _DEEPSPEED_OPTIONS):
        # The deepspeed runner consumes one of them, launch.py the other.
        guard = ["--"] if direct else ["--", "--"]
    if program[0] == "-m":
        typed = ["--module", *guard, *program[1:]]
    elif program[0].endswith(".py"):
        typed = [*guard, *program]
    else:
        typed = ["--no_python", *guard, *program]
    run = ["--no_python", *guard, *_wrapped(place)]
    return Command((*start, *typed), (*start, *run), files=files, notes=tuple(notes))


def _include(hosts: Iterable[hostfile.Host]) -> str:
    def entry(host: hostfile.Host) -> str:
        whole = host.slots == tuple(range(len(host.slots)))
        return host.name if whole else f"{host.name}:{','.join(map(str, host.slots))}"

    return "@".join(map(entry, hosts))


def _binding(place: Place) -> tuple[list[str], list[str]]:
    wish, facts = place.job.bind_cores, place.facts
    if wish is None:
        return [], []
    if "KMP_AFFINITY" in place.job.env:
        hint = "leave one of the two out"
        raise CockpitError("KMP_AFFINITY is set, and DeepSpeed refuses both", where="--bind-cores", hint=hint)
    if facts and facts.numactl is None:
        return [], [f"{place.host.name}: no numactl there, so ranks are not bound to cores"]
    if wish == "auto" and facts is None:
        return ["--bind_cores_to_rank"], [
            "cores: run asks each node for those it allows and adds --bind_core_list"
        ]
    text = facts.cores if facts and wish == "auto" else wish
    cores = _cores(text)
    if len(cores) < len(place.host.slots):
        what = (
            f"{place.host.name}: {len(cores)} cores for {len(place.host.slots)} ranks, so ranks are not bound"
        )
        return [], [what]
    return ["--bind_cores_to_rank", "--bind_core_list", text], []


def _cores(text: str) -> list[int]:
    """The cores of a list like ``0-3,8``, which must ascend (DeepSpeed's rule)."""
    cores: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", piece)
        if (
            match is None
            or int(match[2] or match[1]) < int(match[1])
            or (cores and cores[-1] >= int(match[1]))
        ):
            hint = "write auto, or an ascending list like 0-7,16-23"
            raise CockpitError(f"bad list of cores {text!r}", where="--bind-cores", hint=hint)
        cores += range(int(match[1]), int(match[2] or match[1]) + 1)
    return cores


# -- torchrun


def _torchrun(place: Place) -> Command:
    job, facts = place.job, place.facts
    program = job.program
    if facts and facts.torch is None:
        raise _unfit(place, f"no torch for {place.python}", "install it there, or give --python or --setup")
    if facts is None:
        start = [_beside(place, "torchrun")]
    elif facts.torchrun_tool:
        start = [facts.torchrun_tool]
    else:
        start = [place.python, "-m", "torch.distributed.run"]
    start += ["--nnodes", str(len(job.hosts)), "--node-rank", str(place.index)]
    start += ["--nproc-per-node", str(len(place.host.slots))]
    start += ["--master-addr", place.master_addr, "--master-port", str(place.master_port), *job.launcher_args]
    guard = ["--"] if _ambiguous(program, _TORCHRUN_OPTIONS) else []
    if program[0] == "-m":
        typed = ["--module", *guard, *program[1:]]
    elif program[0].endswith(".py"):
        typed = [*guard, *program]
    else:
        typed = ["--no-python", *guard, *program]
    run = ["--no-python", *guard, *_wrapped(place)]
    env, notes = _devices(place)
    return Command((*start, *typed), (*start, *run), env=env, notes=notes)


def _devices(place: Place) -> tuple[dict[str, str], tuple[str, ...]]:
    """DeepSpeed itself shows its ranks their slots' devices; the others take the first devices."""
    slots = place.host.slots
    if slots == tuple(range(len(slots))):
        return {}, ()
    text = ",".join(map(str, slots))
    return {"CUDA_VISIBLE_DEVICES": text}, (f"{place.host.name}: CUDA_VISIBLE_DEVICES={text}, its slots",)


# -- command

_SLOTS = """\
#!/bin/bash
# Starts "$@" once a slot, waits for all, and exits as the first slot that failed.
export WORLD_SIZE={world:d} LOCAL_WORLD_SIZE={local:d} NODE_RANK={node:d} GROUP_RANK={node:d}
export MASTER_ADDR={addr} MASTER_PORT={port:d}
cockpit_pids=()
# Bash lets background processes ignore SIGINT and SIGQUIT; the ranks get the defaults back.
for ((cockpit_slot = 0; cockpit_slot < {local:d}; cockpit_slot++)); do
  (
    trap - INT QUIT
    export RANK=$(({first:d} + cockpit_slot)) LOCAL_RANK=$cockpit_slot
    exec "$@"
  ) &
  cockpit_pids+=($!)
done
trap 'cockpit_signal=TERM; kill -TERM "${{cockpit_pids[@]}}" 2>/dev/null' TERM
trap 'cockpit_signal=INT' INT
cockpit_status=0
for cockpit_pid in "${{cockpit_pids[@]}}"; do
  while :; do
    cockpit_signal=
    wait "$cockpit_pid"
    cockpit_one=$?
    # A trap ends the wait, not the process.
    [ -n "$cockpit_signal" ] && kill -0 "$cockpit_pid" 2>/dev/null || break
  done
  [ "$cockpit_status" -ne 0 ] || cockpit_status=$cockpit_one
done
exit "$cockpit_status"
"""


def _command(place: Place) -> Command:
    ranks = place.ranks
    script = fill(
        _SLOTS,
        world=place.job.world_size,
        local=len(ranks),
        node=place.index,
        first=ranks.start,
        addr=place.master_addr,
        port=place.master_port,
    )
    start = ("bash", f"{DIR}/{SLOTS_SH}")
    env, notes = _devices(place)
    typed = (*start, *_rank_command(place)[1])
    return Command(typed, (*start, *_wrapped(place)), env=env, files={SLOTS_SH: script}, notes=notes)
