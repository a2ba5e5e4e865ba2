"""``cockpit plan HOSTFILE -- script``: print the exact shell for every node, run nothing, open no link."""

from __future__ import annotations

import os
from pathlib import Path

from cockpit import paths
from cockpit.cli import launch_options
from cockpit.cli.output import out_json, out_lines, say
from cockpit.errors import CockpitError, Exit
from cockpit.plans.launch import LaunchJob
from cockpit.plans.plan import build_plans
from cockpit.plans.script import paste_script, plan_json, secrets_text


def main(words: list[str]) -> int:
    """Print the plan."""
    made = launch_options.parser(
        "plan",
        "Print a shell script to paste and run on each node. It opens no link, so what only a node knows\n"
        "(a free port, its cores, where the profiler is) is a note.",
    )
    made.add_argument("--node", metavar="NAME", action="append", help="only this node (repeatable)")
    made.add_argument("--show-secrets", action="store_true", help="print secret values into the scripts")
    made.add_argument("--json", action="store_true", help="the plans as JSON, secrets left out")
    launch = launch_options.parse(made, words)
    args, job = launch.args, launch.job
    plans = build_plans(job, None)
    names = [plan.node for plan in plans]
    for name in args.node or ():
        if name not in names:
            raise CockpitError(
                f"no node {name} in the plan", where=launch.hostfile, hint=f"it has {', '.join(names)}"
            )
    chosen = [plan for plan in plans if not args.node or plan.node in args.node]
    if args.json:
        out_json({"plans": [plan_json(plan) for plan in chosen], "not_sent": launch.not_sent}, indent=1)
        return Exit.OK
    secrets = None
    if job.secrets and not args.show_secrets:
        secrets = _write_secrets(job)
    for plan in chosen:
        # Its quoting shows as it is: the sanitiser changes none of it.
        out_lines(paste_script(plan, secrets_file=secrets, show_secrets=args.show_secrets).split("\n"))
    if launch.note:
        say(f"note: {launch.note}")
    for note in dict.fromkeys(note for plan in chosen for note in plan.notes):
        say(f"note: {note}")
    if launch.not_sent:
        say(f"not sent from this shell (add with --env NAME): {' '.join(launch.not_sent)}")
    return Exit.OK


def _write_secrets(job: LaunchJob) -> str:
    """Write the secrets to a file of mode 0600 that the scripts read; return its path."""
    file: Path = paths.private_dir(paths.plans()) / f"{job.run}.env"
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "w", errors="surrogateescape") as out:
            out.write(secrets_text({name: job.env[name] for name in job.secrets}))
    except OSError as error:
        raise CockpitError(f"cannot write the secrets: {error.strerror}", where=str(file)) from None
    say(f"secrets are in {file} (0600): the scripts read them from there on each node")
    return str(file)
