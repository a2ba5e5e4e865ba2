"""Shell text of a plan: the ``launch.sh`` that `cockpit run` starts, and what `cockpit plan` prints.

Both contain the same ``launch.sh``, except for the wrapper around each rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cockpit.base.record import LAUNCH_SH, REPORTS
from cockpit.base.shell import comment, fill, quote
from cockpit.core.ranks import ranks_text
from cockpit.plans import setup
from cockpit.plans.command_words import render_word
from cockpit.plans.environment import expandable
from cockpit.plans.launch import PER_NODE
from cockpit.plans.plan import NodePlan
from cockpit.plans.profilers.registry import PROFILERS

_WIDTH = 100


def render_argv(argv: Iterable[str]) -> str:
    """An argv as one command, broken over lines of about 100 characters."""
    lines: list[str] = []
    for word in map(render_word, argv):
        if lines and len(lines[-1]) + len(word) < _WIDTH:
            lines[-1] += " " + word
        else:
            lines.append(("  " if lines else "") + word)
    return " \\\n".join(lines)


def launch_script(plan: NodePlan, wrapped: bool = True) -> str:
    """``launch.sh``: change directory, PATH, setup, variables, then exec the launcher.

    It needs COCKPIT_DIR, with the plan's files in it, and the secrets, in its environment.

    :param wrapped: as `cockpit run` starts it; False: as a person would
    """
    lines = [
        "#!/bin/bash",
        comment(f"{plan.run}: {_title(plan)}"),
        fill("cd -- {} || exit 90", plan.cwd),
    ]
    if before := setup.text(plan.setup, plan.path, plan.conda):
        lines += ["{", before, "} || {"]
        lines += ['  echo "cockpit: the setup failed with status $?" >&2', "  exit 91", "}"]
    elif plan.path:
        lines.append(setup.path(plan.path))
    # After the setup, so that what the user asked for wins.
    lines += _exports({name: plan.env[name] for name in plan.env.keys() - set(plan.expanded)})
    lines += [f"export {name}={expandable(plan.env[name])}" for name in plan.expanded]
    if plan.report:
        lines.append(f'mkdir -p "$COCKPIT_DIR"/{REPORTS}')
    command = render_argv(plan.run_argv if wrapped else plan.argv)
    lines.append(plan.profiler.script(command).rstrip() if plan.profiler else "exec " + command)
    return "\n".join(lines) + "\n"


def _title(plan: NodePlan) -> str:
    node = f"{plan.node} (node {plan.index} of {plan.nodes})"
    if plan.launcher == PER_NODE:
        return f"{node}, whose ranks the program starts"
    ranks = f"{plan.ranks[0]}-{plan.ranks[-1]}" if len(plan.ranks) > 1 else str(plan.ranks[0])
    return f"{node}, ranks {ranks} of {plan.world_size}"


def _exports(values: Mapping[str, str]) -> list[str]:
    # A plan has only valid variable names (NodePlan).
    return [f"export {name}={quote(value)}" for name, value in sorted(values.items())]


def secrets_text(values: Mapping[str, str]) -> str:
    """The text of a secrets file (write it with mode 0600) that printed plans read."""
    return "\n".join(_exports(values)) + "\n"


def paste_script(plan: NodePlan, secrets_file: str | None = None, show_secrets: bool = False) -> str:
    """Text for a person to paste into a shell (bash, zsh) on the node.

    All of it is in a subshell: whatever happens, the person's shell stays as it is. The folder it makes is
    removed at the end unless it contains a report.

    :param secrets_file: path on the node of a file with :func:`secrets_text`; None: the person has set them
    :param show_secrets: put the values into the text
    """
    lines = [comment(f"{plan.run}: paste this on {_title(plan)}"), *map(comment, plan.notes), "("]
    if plan.secrets and show_secrets:
        lines += _exports(plan.secrets)
    elif plan.secrets and secrets_file is not None:
        say = f"cockpit: cannot read the secrets ({', '.join(sorted(plan.secrets))}) in {secrets_file}"
        lines += [fill("[ -r {} ] || {{", secrets_file), fill("  echo {} >&2", say), "  exit 2", "}"]
        lines.append(fill(". {}", secrets_file))
    else:
        lines += [f"export {name}=${{{name}?is a secret: set it first}}" for name in sorted(plan.secrets)]
    lines += [
        'COCKPIT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/cockpit-plan.XXXXXX") || exit 1',
        "export COCKPIT_DIR",
    ]
    for name, text in {**plan.files, LAUNCH_SH: launch_script(plan, wrapped=False)}.items():
        end = "END"
        while end in text.splitlines():
            end += "_"
        lines += [fill('cat >"$COCKPIT_DIR"/{} <<', name) + f"'{end}'", text.rstrip("\n"), end]
    lines += [f'bash "$COCKPIT_DIR"/{LAUNCH_SH}', "cockpit_status=$?"]
    if plan.profiler and not (plan.profiler.per_rank or plan.profiler.ready):
        lines.append(fill('echo "report: $COCKPIT_DIR"/{}', plan.report + plan.profiler.suffixes[0]))
    else:
        lines.append('rm -rf -- "$COCKPIT_DIR"')
    lines += ["exit $cockpit_status", ")"]
    return "\n".join(lines) + "\n"


def profile(plan: NodePlan) -> dict[str, str] | None:
    """The profiler by its name and path, and its report, for run records; None: the node is not profiled.

    Of a profiler around each rank also ``ranks``, those of the whole run; ``range``: what begins its window;
    ``seconds``: after how many it ends; ``ready``: it records what it is told to.
    """
    profiler = plan.profiler
    if profiler is None:
        return None
    told = {profiler.tool: plan.tool, "report": plan.report}
    if profiler.ready:
        told["ready"] = "yes"
    if profiler.waits_for:
        told["range"] = profiler.waits_for
    if profiler.until_s:
        told["seconds"] = f"{profiler.until_s:g}"
    if profiler.per_rank:
        told["ranks"] = ranks_text(range(plan.world_size) if profiler.ranks is None else profiler.ranks)
    return told


def plan_json(plan: NodePlan) -> dict[str, Any]:
    """The plan for ``--json`` and manifests; a secret is ``(secret, N characters)``."""
    hidden = {name: f"(secret, {len(value)} characters)" for name, value in plan.secrets.items()}
    return {
        "run": plan.run,
        "node": plan.node,
        "index": plan.index,
        "launcher": plan.launcher,
        "argv": list(plan.argv),
        "run_argv": list(plan.run_argv),
        "env": {**plan.env, **hidden},
        "cwd": plan.cwd,
        "setup": plan.setup,
        "python": plan.python,
        "path": plan.path,
        "files": dict(plan.files),
        "ranks": list(plan.ranks),
        "slots": list(plan.slots),
        "world_size": plan.world_size,
        "master_addr": plan.master_addr,
        "master_port": plan.master_port,
        "probe": plan.probe,
        "nccl_debug": plan.nccl_debug,
        "calls": list(plan.calls),
        **{each.tool: None for each in PROFILERS.values()},
        "report": None,
        **{name: value for name, value in (profile(plan) or {}).items() if name not in ("ranks", "range")},
        "notes": list(plan.notes),
    }
