"""accelerate 1.15: its ``launch`` is torchrun in one process, with options of its own in front."""

from __future__ import annotations

from cockpit.errors import CockpitError
from cockpit.plans.launch import PlannedNode
from cockpit.plans.launchers.base import Launcher, LauncherCommand, beside, devices, typed, wrapped

# Those after --module start the ranks without torchrun: some by ssh, from the first node.
_OURS = """
    --num_processes --num_machines --machine_rank --main_process_ip --main_process_port --gpu_ids -t --tee
    --rdzv_backend --no_python -m --module --tpu --tpu_cluster --mpirun_hostfile --deepspeed_hostfile
    --deepspeed_exclusion_filter --deepspeed_inclusion_filter --deepspeed_multinode_launcher
"""

_KINDS = {"--multi-gpu", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm", "--config-file"}
"""Options that say how to distribute."""


def _accelerate(place: PlannedNode) -> LauncherCommand:
    job, facts = place.job, place.facts
    slots = {len(host.slots) for host in job.hosts}
    if len(slots) > 1:
        what = "accelerate starts the same number of ranks on each node, but these nodes have {} to {} slots"
        hint = "choose slots with --include, or use --launcher torchrun"
        raise CockpitError(what.format(min(slots), max(slots)), where="--launcher", hint=hint)
    program = job.program
    if facts is None:
        start = [beside(place, "accelerate"), "launch"]
    elif facts.accelerate_tool:
        start = [facts.accelerate_tool, "launch"]
    else:
        start = [place.python, "-m", "accelerate.commands.launch"]
    where = {
        "num_machines": len(job.hosts),
        "machine_rank": place.index,
        "num_processes": job.world_size,
        "main_process_ip": place.master_addr,
        "main_process_port": place.master_port,
    }
    for name, value in where.items():
        start += [f"--{name}", str(value)]
    # Otherwise it leaves several nodes to DeepSpeed's pdsh.
    start += ["--deepspeed_multinode_launcher", "standard"]
    env, notes = devices(place)
    words = [word for word in job.launcher_args if word != "--cpu"]
    if len(words) < len(job.launcher_args):
        # With --cpu itself it would leave the ranks to mpirun.
        env = {**env, "ACCELERATE_USE_CPU": "true"}
    given = {word.partition("=")[0].replace("_", "-") for word in words}
    if job.world_size > 1 and not given & _KINDS:
        start.append("--multi_gpu")
    elif job.world_size == 1:
        # It starts a single process without torchrun, and so without these.
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
        env = {**env, **alone, "MASTER_ADDR": place.master_addr, "MASTER_PORT": str(place.master_port)}
    start += words
    # It drops a `--` in front of the program's arguments.
    args = program[2:] if program[0] == "-m" else program[1:]
    guard = ["--"] if args[:1] == ("--",) else []
    run = ["--no_python", *guard, *wrapped(place)]
    return LauncherCommand(
        (*start, *typed(program, guard, "--no_python")), (*start, *run), env=env, notes=notes
    )


ACCELERATE = Launcher(_accelerate, "accelerate", _OURS)
