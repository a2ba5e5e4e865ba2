"""deepspeed 0.19.8."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable

from cockpit.core.ranks import ranks_text
from cockpit.errors import CockpitError, Exit
from cockpit.plans.command_words import DIR
from cockpit.plans.launch import PlannedNode
from cockpit.plans.launchers.base import Launcher, LauncherCommand, ambiguous, beside, typed, wrapped
from cockpit.plans.nodes import hostfile

HOSTFILE = "hostfile"

# Long options that argparse there knows, for ambiguous().
_OPTIONS = """
    help hostfile include exclude num_nodes num_gpus num_accelerators master_port master_addr node_rank
    launcher launcher_args module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid
    enable_each_rank_log autotuning bind_cores_to_rank bind_core_list ssh_port venv_script log_level quiet
"""
_OURS = """
    -H --hostfile -i --include -e --exclude --num_nodes --num_gpus --num_accelerators --master_port
    --master_addr --node_rank --launcher --launcher_args --module --no_python --no_ssh --force_multi
    --enable_each_rank_log --autotuning --bind_cores_to_rank --bind_core_list
"""


def _deepspeed(place: PlannedNode) -> LauncherCommand:
    job, facts = place.job, place.facts
    program = job.program
    if re.fullmatch(r"python[0-9.]*", os.path.basename(program[0])):
        hint = "write `-- train.py ARGS` or `-- -m MODULE ARGS`, and --python PATH for another python"
        raise CockpitError(f"{program[0]} is added by cockpit", where="--", hint=hint)
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
        tool = facts.deepspeed_tool if facts and facts.deepspeed_tool else beside(place, "deepspeed")
        start = [tool, f"--hostfile={DIR}/{HOSTFILE}"]
        if not whole:
            start.append(f"--include={_include(job.hosts)}")
        start += ["--no_ssh", "--node_rank", str(place.index), *where]
        files = {HOSTFILE: hostfile.render(job.hosts)}
    start += [*bind, *job.launcher_args]
    guard: list[str] = []
    if ambiguous(program, _OPTIONS):
        # The deepspeed runner consumes one of them, launch.py the other.
        guard = ["--"] if direct else ["--", "--"]
    run = ["--no_python", *guard, *wrapped(place)]
    return LauncherCommand(
        (*start, *typed(program, guard, "--no_python")), (*start, *run), files=files, notes=tuple(notes)
    )


def _include(hosts: Iterable[hostfile.Host]) -> str:
    def entry(host: hostfile.Host) -> str:
        whole = host.slots == tuple(range(len(host.slots)))
        return host.name if whole else f"{host.name}:{','.join(map(str, host.slots))}"

    return "@".join(map(entry, hosts))


def _binding(place: PlannedNode) -> tuple[list[str], list[str]]:
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
    refused = set(cores) - set(_cores(facts.cores)) if facts and facts.cores else ()
    if facts and refused:
        what = f"--bind-cores {text}: it allows {facts.cores}, not {ranks_text(refused)}"
        hint = "write auto, or cores that every node allows"
        raise CockpitError(what, where=place.host.name, hint=hint, code=Exit.NODE_UNFIT)
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


DEEPSPEED = Launcher(_deepspeed, "deepspeed", _OURS, binds=True)
