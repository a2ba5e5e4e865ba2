"""``cockpit plan HOSTFILE -- script``: print the exact shell for every node, run nothing, open no link."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Sequence

from cockpit import paths
from cockpit.cli import launch_options
from cockpit.cli.output import out_json, out_lines, say
from cockpit.cli.parsing import Parser, add_flag, reach, whole
from cockpit.core.ranks import MAX_HOSTS
from cockpit.errors import CockpitError, Exit
from cockpit.plans.launch import HELD, LaunchJob
from cockpit.plans.plan import build_plans
from cockpit.plans.sbatch import batch
from cockpit.plans.script import paste_script, plan_json, secrets_text
from cockpit.private import private_dir
from cockpit.transport.local import is_here
from cockpit.transport.registry import TRANSPORTS

_NOT_IN_A_JOB = frozenset(
    {
        *("hostfile", "nodelist", "include", "exclude", "slots", "nodes", "slurm"),
        *("k8s", "namespace", "context", "transport", "ssh_config", "accept_new_host_keys"),
        *("node", "show_secrets", "json", "sbatch"),
    }
)
"""Options that are about which nodes, the way to them, or about printing."""


def parser() -> Parser:
    """Its options."""
    made = launch_options.parser(
        "plan",
        "Print a shell script to paste and run on each node. It contacts no node: whatever only a node "
        "knows\n(a free port, its cores, where the profiler is) becomes a note.",
        "--node --sbatch --json",
    )
    made.add_argument("--node", metavar="NAME", action="append", help="only this node (repeatable)")
    add_flag(made, "--show-secrets", "include secret values in the scripts")
    add_flag(made, "--json", "the plans as JSON, without secrets")
    group = made.add_argument_group("as a SLURM job")
    add_flag(group, "--sbatch", "print one batch script for sbatch instead")
    group.add_argument(
        "--nodes",
        metavar="N",
        type=whole("a number of nodes", 1, MAX_HOSTS),
        help="with --sbatch: number of nodes, instead of their names",
    )
    return made


def main(words: list[str]) -> int:
    """Print the plan."""
    made = parser()
    launch = launch_options.parse(made, words)
    args, job = launch.args, launch.job
    if args.sbatch:
        return _sbatch(launch, made)
    if args.nodes:
        made.error("--nodes needs --sbatch")
    plans = build_plans(job, None)
    names = [plan.node for plan in plans]
    for name in args.node or ():
        if name not in names:
            raise CockpitError(
                f"no node {name} in the plan", where=launch.hostfile, hint=f"it has {', '.join(names)}"
            )
    chosen = [plan for plan in plans if not args.node or plan.node in args.node]
    everything = asyncio.run(_whole_shell(args, names))
    not_sent = [] if everything else launch.not_sent
    if args.json:
        out_json({"plans": [plan_json(plan) for plan in chosen], "not_sent": not_sent}, indent=1)
        return Exit.OK
    secrets = None
    if job.secrets and not args.show_secrets:
        secrets = _write_secrets(job)
    for plan in chosen:
        # Its quoting shows as it is: the sanitiser changes none of it.
        out_lines(paste_script(plan, secrets_file=secrets, show_secrets=args.show_secrets).split("\n"))
    if launch.note:
        say(f"note: {launch.note}")
    caution = TRANSPORTS[reach(args).kind].caution
    for note in dict.fromkeys((*([caution] if caution else []), *(n for plan in chosen for n in plan.notes))):
        say(f"note: {note}")
    if everything:
        say(f"note: {everything}: its ranks get all of this shell's variables")
    elif not_sent:
        say(f"not sent from this shell (add with --env NAME): {' '.join(not_sent)}")
    return Exit.OK


async def _whole_shell(args: argparse.Namespace, names: Sequence[str]) -> str:
    """Why the ranks of a run get all variables of this shell; empty: they do not."""
    kind = reach(args).kind
    if kind == "srun":
        return "run starts steps of a SLURM job"
    here = kind in ("auto", "local")
    for name in names if kind == "auto" else ():
        here = here and await is_here(name)
    return "all of its nodes are this machine" if here else ""


def _sbatch(launch: launch_options.LaunchOptions, made: Parser) -> int:
    """Print the batch script: the words typed for the launch, less those about nodes, which SLURM chooses."""
    build_plans(launch.job, None)  # it says what is wrong with them
    words = launch_options.words_without(made, launch.args, _NOT_IN_A_JOB)
    held = [name for name in launch.job.secrets if name.startswith(HELD)]
    if held:
        hint = "the script would store it: pass it with --env NAME, and let the program read that variable"
        raise CockpitError("the program's command line contains a secret", hint=hint)
    venv = os.environ.get("VIRTUAL_ENV", "")
    if not os.path.isfile(os.path.join(venv, "bin/activate")):
        venv = ""
    cockpit = "cockpit" if venv or shutil.which("cockpit") else os.path.abspath(sys.argv[0])
    command = [cockpit, "run", "--slurm", "--headless", *words, "--", *launch.job.program]
    found = batch(launch.job, command, launch_options.folder(), venv)
    if launch.args.json:
        shown = {"nodes": found.nodes, "ranks_per_node": found.ranks, "words": list(found.words)}
        out_json({"sbatch": found.script, **shown}, indent=1)
    else:
        out_lines(found.script.rstrip("\n").split("\n"))
    if launch.note:
        say(f"note: {launch.note}")
    say("note: fill in --time, and whatever else your site requires")
    return Exit.OK


def _write_secrets(job: LaunchJob) -> str:
    """Write the secrets to a file of mode 0600 that the scripts read; return its path."""
    file = paths.plans() / f"{job.run}.env"
    try:
        private_dir(file.parent)
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "w", errors="surrogateescape") as out:
            out.write(secrets_text({name: job.env[name] for name in job.secrets}))
    except OSError as error:
        raise CockpitError(f"cannot write the secrets: {error.strerror}", where=str(file)) from None
    say(f"secrets are in {file} (0600): the scripts read them from there on each node")
    return str(file)
