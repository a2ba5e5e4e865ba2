"""Every launcher: to add one, add it here."""

from __future__ import annotations

from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.errors import CockpitError
from cockpit.plans import launch
from cockpit.plans.launch import LaunchJob, NodeFacts, PlannedNode
from cockpit.plans.launchers.accelerate import ACCELERATE
from cockpit.plans.launchers.base import LauncherCommand
from cockpit.plans.launchers.command import COMMAND, PER_NODE
from cockpit.plans.launchers.deepspeed import DEEPSPEED
from cockpit.plans.launchers.torchrun import TORCHRUN

LAUNCHERS = {
    "deepspeed": DEEPSPEED,
    "torchrun": TORCHRUN,
    "accelerate": ACCELERATE,
    "command": COMMAND,
    launch.PER_NODE: PER_NODE,
}
"""By name."""

_HINTS = {
    "--enable_each_rank_log": "each rank has its own log here",
    "--redirects": "each rank has its own log here",
    "--tee": "each rank has its own log here",
    "--num_nodes": "use --include",
    "--gpu_ids": "use the hostfile's slots or --include",
    "--num_gpus": "use the hostfile's slots or --include",
    "--module": "write -- -m MODULE",
    "-m": "write -- -m MODULE",
    "--bind_cores_to_rank": "use --bind-cores auto",
    "--bind_core_list": "use --bind-cores LIST",
}


def check(job: LaunchJob) -> None:
    """Whether there is such a launcher, and it takes what it is given.

    :raises CockpitError: an unknown launcher, or an option that it cannot have
    """
    launcher = LAUNCHERS.get(job.launcher)
    if launcher is None:
        hint = f"it is one of {', '.join(LAUNCHERS)}"
        raise CockpitError(f"no launcher {job.launcher}", where="--launcher", hint=hint)
    if job.launcher_args and not launcher.ours:
        what = f"--launcher {job.launcher} has no arguments of its own"
        raise CockpitError(what, where="--launcher-args", hint="leave it out")
    # torchrun accepts both spellings of its options.
    ours = {option.replace("_", "-"): option for option in launcher.ours.split()}
    for word in job.launcher_args:
        option = ours.get(word.partition("=")[0].replace("_", "-"))
        if option:
            hint = _HINTS.get(option, f"leave it out: cockpit gives it to {job.launcher}")
            what = f"{word} cannot be given to {job.launcher}"
            raise CockpitError(what, where="--launcher-args", hint=hint)
    if job.bind_cores and not launcher.binds:
        raise CockpitError("is for the deepspeed launcher", where="--bind-cores", hint="leave it out")


def unfit(job: LaunchJob, facts: NodeFacts) -> Finding | None:
    """What the launcher lacks on a node, and what would help."""
    package = LAUNCHERS[job.launcher].package
    if not package or getattr(facts, package):
        return None
    python = quote(facts.python or job.python or "python")
    steps = Step(f"{python} -m pip install {package}", "try there"), Step("another --python")
    return Finding(f"no_{package}", f"no {package} in {python}", certainty="sure", steps=steps)


def command(place: PlannedNode) -> LauncherCommand:
    """The command line of a node, in both forms."""
    return LAUNCHERS[place.job.launcher].command(place)
