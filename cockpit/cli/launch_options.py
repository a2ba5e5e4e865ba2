"""Options that describe a launch, for ``run`` and ``plan``: from words to a job."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cockpit import config
from cockpit.base import secret
from cockpit.base.shell import join
from cockpit.cli import node_options
from cockpit.cli.parsing import Parser, add_flag, add_link_options, add_word, split_program, whole
from cockpit.engine.records.names import new_name, run_name
from cockpit.errors import CockpitError
from cockpit.plans import environment
from cockpit.plans.command_words import split
from cockpit.plans.launch import PER_NODE, LaunchJob
from cockpit.plans.launchers.registry import LAUNCHERS
from cockpit.plans.nodes import hostfile
from cockpit.plans.nodes.sources import filled
from cockpit.plans.profilers.registry import PROFILERS
from cockpit.plans.python import Python, choose

EPILOG = """examples:
  cockpit {verb} hostfile -- train.py --steps 1000
  cockpit {verb} hostfile --profile {profiler} -- train.py
  cockpit {verb} hostfile --include 'gpu[01-04]' --launcher torchrun -- -m train
  cockpit {verb} hostfile --launcher command -- ./any-program
  cockpit {verb} hostfile --launcher per-node -- lightning_train.py
  cockpit {verb} -w 'gpu[01-04]:8' -- train.py
  scontrol show hostnames | cockpit {verb} - -- train.py
  cockpit {verb} --k8s sts/idle -- train.py

The hostfile is DeepSpeed's ("gpu01 slots=8"), a plain list of names, or MPI's ("gpu01:8"), with ranges on \
top ("gpu[01-16] slots=8"). Nodes without a slot count get one slot per GPU. Without HOSTFILE or -w: \
/job/hostfile if it exists, as in DeepSpeed.
"""

USUAL = "--nodelist --slots --launcher --python --setup --env --slurm"
"""The options of a launch that are used most."""

PROBES = ("auto", "on", "off")
"""What ``--probe`` takes."""

_PROBE_SETTINGS: dict[bool | str, str] = {True: "on", False: "off", "auto": "auto"}

DEFAULT = "deepspeed"
"""The default launcher."""

WHICH = "give a HOSTFILE, - for a list on stdin, or -w 'gpu[01-04]:8'"


def parser(verb: str, description: str, usual: str) -> Parser:
    """A parser with every option of a launch.

    :param usual: the verb's own options that are used most
    """
    usual = f"{USUAL} {usual}"
    made = Parser(verb, description, EPILOG.format(verb=verb, profiler=next(iter(PROFILERS))), usual)
    made.usage = f"cockpit {verb} HOSTFILE|-w NODES [options] -- SCRIPT [ARGS…]"
    made.add_argument("hostfile", metavar="HOSTFILE", nargs="?", help=node_options.HELP)
    node_options.add_options(made)
    _add_job_options(made)
    _add_environment_options(made)
    _add_profile_options(made)
    add_link_options(made)
    return made


def _add_job_options(made: Parser) -> None:
    group = made.add_argument_group("job")
    add_word(group, "--include", "NODES", "use only these nodes: gpu01@gpu02:0,2; ranges work")
    add_word(group, "--exclude", "NODES", "skip these nodes")
    group.add_argument(
        "--slots",
        type=whole("a number of slots", 1, hostfile.MAX_SLOTS),
        metavar="N",
        default=0,
        help="ranks per node where the hostfile gives none (default: one per GPU)",
    )
    group.add_argument(
        "--launcher",
        choices=tuple(LAUNCHERS),
        default=DEFAULT,
        help=f"default: {DEFAULT}; command: once per slot; {PER_NODE}: once per node, for programs that "
        "start their own ranks (Lightning, torch.multiprocessing.spawn)",
    )
    add_word(group, "--launcher-args", "'WORDS'", "extra arguments for the launcher")
    add_word(
        group,
        "--python",
        "PATH",
        "Python of the ranks on every node (default: the active virtualenv or conda environment, else the "
        "launcher's)",
    )
    add_word(group, "--setup", "'SHELL'", "shell to run first, such as 'module load cuda'")
    add_word(group, "--cwd", "DIR", "working directory on every node (default: this one)", None)
    group.add_argument(
        "--name", help="run name (default: <date>-<time>-<word>, in a SLURM job with its number)"
    )
    add_word(group, "--master-addr", "ADDRESS", "default: the first node's name, or its address", None)
    group.add_argument(
        "--master-port", type=whole("a port", 1, 65535), metavar="PORT", help="default: a free one"
    )
    add_word(group, "--bind-cores", "auto|LIST", "bind ranks to cores (deepspeed, needs numactl)", None)
    group.add_argument(
        "--probe",
        choices=PROBES,
        help="read steps and collectives from each rank's torch (default: auto, if its torch supports it)",
    )
    add_flag(
        group,
        "--nccl-debug",
        "log NCCL's setup (NCCL_DEBUG=INFO) to one file per rank; show it with: cockpit ps RUN --nccl",
    )
    group.add_argument(
        "--trace-calls",
        metavar="PACKAGE",
        action="append",
        default=[],
        help="keep the last calls into a package (repeatable): cockpit stacks shows them of a rank that is "
        "dead or does not answer; needs Python 3.12 on the nodes",
    )


def _add_environment_options(made: Parser) -> None:
    group = made.add_argument_group(
        "environment",
        "Always sent, as DeepSpeed does: PYTHON*, NCCL*, MLFLOW*, UCX*, MV2* and .deepspeed_env.",
    )
    group.add_argument(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="set a variable for the ranks (repeatable)",
    )
    group.add_argument(
        "--env-file",
        metavar="FILE",
        action="append",
        default=[],
        help="set variables from a file of NAME=VALUE lines (repeatable)",
    )


def _add_profile_options(made: Parser) -> None:
    group = made.add_argument_group("profile")
    group.add_argument(
        "--profile",
        choices=tuple(PROFILERS),
        help="nsys: profile the launcher, one report per node; nsys-ready: record nothing until "
        "`cockpit profile RUN --kind nsys`",
    )
    for profiler in PROFILERS.values():
        profiler.add_options(group)


def _profile_options(made: Parser, args: argparse.Namespace) -> list[str]:
    """The options of profilers that were given."""
    (group,) = (each for each in made._action_groups if each.title == "profile")
    actions = (each for each in group._group_actions if each.dest != "profile")
    return [each.option_strings[-1] for each in actions if getattr(args, each.dest) != each.default]


def _packages(made: Parser, names: list[str]) -> tuple[str, ...]:
    """Packages whose calls are noted."""
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            made.error(f"--trace-calls: not a package: {name}")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class LaunchOptions:
    """What the words asked for."""

    job: LaunchJob
    args: argparse.Namespace
    hostfile: str
    """Where the nodes were read from; empty: not from a file."""
    not_sent: list[str]
    """Names of this shell's variables that the ranks do not get."""
    command: tuple[str, ...]
    """What was typed, without the values of secrets."""
    note: str = ""
    """Which Python was found where no one named it, and what NCCL does not say; empty: neither."""


def parse(made: Parser, words: list[str], stand_in: tuple[str, ...] = ()) -> LaunchOptions:
    """Options and hostfile to a job.

    :param stand_in: the program if none is given, for a verb that launches nothing; then no python need be
        found here either
    :raises CockpitError: anything wrong with them, as many errors at once as possible
    """
    options, program = split_program(words)
    args, odd = made.parse_known_args(options)
    if odd and not program and not odd[0].startswith("-"):
        made.error(f"write -- before the program: -- {join(odd)}")
    if odd:
        made.refuse(odd[0])
    if not program and not stand_in:
        nodes = ["-w", *args.nodelist[:1]] if args.nodelist else [args.hostfile or "HOSTFILE"]
        hint = f"like this: {made.prog} {join(nodes)} -- train.py ARGS"
        raise CockpitError("no program given after --", hint=hint)
    if not args.profile and (given := _profile_options(made, args)):
        made.error(f"{given[0]} goes with: --profile {next(iter(PROFILERS))}")
    source = _unnamed(args) or node_options.source(args.hostfile, args, WHICH)
    hosts = node_options.nodes(source, args.include, args.exclude, args.slots)
    cwd = os.path.abspath(args.cwd or folder())
    theirs = filter(os.path.exists, environment.deepspeed_env_paths(os.environ, str(Path.home()), cwd))
    env = environment.gather(os.environ, _texts(args.env_file), args.env, _texts(theirs))
    launcher_args = split(args.launcher_args, "--launcher-args")
    env = environment.held([*program, *launcher_args], env)
    kept = environment.nccl_kept(env) if args.nccl_debug else ""
    env = environment.with_nccl(env) if args.nccl_debug else env
    launcher = args.launcher or DEFAULT
    if args.nccl_debug and launcher == PER_NODE:
        made.error(
            f"--nccl-debug does not apply to --launcher {PER_NODE}: the program starts its own ranks, which "
            "would overwrite each other's file"
        )
    if launcher == PER_NODE:
        hosts = filled(hosts, 1)  # how many ranks there are is the program's business
        if args.probe == "on":
            made.error(
                f"--probe on does not apply to --launcher {PER_NODE}: the program starts its own ranks"
            )
    try:
        python = choose(args.python, args.setup, launcher, os.environ, sys.prefix)
    except CockpitError:
        if not stand_in or args.python:
            raise
        python = Python(None)
    job = LaunchJob(
        run=_name(args.name),
        hosts=hosts,
        program=tuple(program) or stand_in,
        cwd=cwd,
        launcher=launcher,
        python=python.path,
        tool=python.tool,
        setup=_setup(args.setup),
        path=python.folder,
        conda=environment.conda(os.environ),
        env=env.values,
        secrets=env.secrets,
        expanded=env.expanded,
        master_addr=args.master_addr,
        master_port=args.master_port,
        bind_cores=args.bind_cores,
        launcher_args=launcher_args,
        profiler=PROFILERS[args.profile].of(args) if args.profile else None,
        probe="off" if launcher == PER_NODE else args.probe or _PROBE_SETTINGS[config.load().probe],
        nccl_debug=args.nccl_debug,
        calls=_packages(made, args.trace_calls),
    )
    typed = secret.command([*_without_secrets(options), "--", *program], secret.values(env.values))
    command = (*made.prog.split(), *typed)
    note = "; ".join(filter(None, (python.note, kept)))
    file = source[0] if len(source) == 1 and source != [hostfile.STDIN] else ""
    return LaunchOptions(job, args, file, environment.not_sent(os.environ, env.values), command, note)


def _texts(files: Iterable[str]) -> list[tuple[str, str]]:
    return [(path, hostfile.read_text(path, "environment file")) for path in files]


def _without_secrets(options: list[str]) -> list[str]:
    """``--env NAME=VALUE`` of a secret as ``--env NAME``: whoever pastes it has the value in the shell."""
    shown: list[str] = []
    for word in options:
        option = "--env=" if word.startswith("--env=") else ""
        given = word.removeprefix(option)
        name = given.partition("=")[0]
        value = given.partition("=")[2]
        held = (option or shown[-1:] == ["--env"]) and value and secret.holds(name, value)
        shown.append(option + (name if held else given))
    return shown


def _setup(text: str) -> str:
    """What ``--setup`` says.

    :raises CockpitError: a secret is in it: it would be in files of the run, here and on each node
    """
    found = secret.in_shell(text)
    if found:
        named = re.search(r"([A-Za-z_]\w*)=\S*" + re.escape(found[0]), text)
        name = named[1] if named else "NAME"
        hint = (
            f"set {name} in this shell, export it, and give --env {name}: its value is never written to disk"
        )
        raise CockpitError("it contains a secret", where="--setup", hint=hint)
    return text


def _unnamed(args: argparse.Namespace) -> list[str]:
    """Words of a source for nodes of which only the number is known.

    :raises CockpitError: they are named, too
    """
    number = getattr(args, "nodes", None)
    if number is None:
        return []
    options = {"-w": args.nodelist, "--k8s": args.k8s, "--slurm": args.slurm is not None}
    named = args.hostfile or next((option for option, given in options.items() if given), "")
    if named:
        raise CockpitError(f"--nodes and {named} both select nodes", hint="give one of the two")
    return ["-w", f"node[1-{number}]"]


def words_without(made: Parser, args: argparse.Namespace, left_out: frozenset[str]) -> list[str]:
    """Words that give a parser's options the values they have, without the values of secrets.

    :param left_out: options, by their names in ``args``
    """
    words: list[str] = []
    for action in made._actions:  # argparse has no other list of them
        value = getattr(args, action.dest, action.default)
        if action.dest in left_out or not action.option_strings or value == action.default:
            continue
        option = action.option_strings[-1]
        for each in value if isinstance(value, list) else [value]:
            text = str(each)
            if action.nargs == 0:
                words.append(option)
            elif text.startswith("-"):
                words.append(f"{option}={text}")
            else:
                words += [option, text]
    return _without_secrets(words)


def folder() -> str:
    """The working directory as the shell names it: an automounted home resolves differently on each node.

    :raises CockpitError: it was removed
    """
    named = os.environ.get("PWD", "")
    with suppress(OSError):
        if named and os.path.samefile(named, "."):
            return named
    try:
        return os.getcwd()
    except OSError:
        hint = "cd to another one, or give --cwd"
        raise CockpitError("the working directory no longer exists", where=named, hint=hint) from None


def _name(given: str | None) -> str:
    if given is None:
        return new_name()
    try:
        return run_name(given)
    except CockpitError as error:
        raise CockpitError(error.what, where="--name", hint=error.hint) from None
