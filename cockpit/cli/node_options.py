"""Which nodes: the options that name a source of them, for every verb that takes a HOSTFILE."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress

from cockpit.cli.output import say
from cockpit.core.ranks import nodes_text
from cockpit.errors import CockpitError
from cockpit.plans.nodes.hostfile import STDIN, Host, read_set
from cockpit.plans.nodes.sources import DEFAULT, nodes_from
from cockpit.slurm import own_job

HELP = "lines like `gpu[01-16] slots=8`, or a list of names; -: read it from stdin"
"""What a HOSTFILE is."""


def add_options(group: argparse._ActionsContainer) -> None:
    """Nodes named without a file."""
    group.add_argument(
        "-w",
        "--nodelist",
        metavar="NODES",
        action="append",
        default=[],
        help="nodes, instead of a HOSTFILE: 'gpu[01-04]:8,big1:4' (:N is the slots of each); "
        "pods: pod/train-[0-3][:CONTAINER]",
    )


def named(args: argparse.Namespace) -> bool:
    """Whether an option names a source of nodes."""
    return bool(args.nodelist or args.k8s or args.slurm is not None)


def nodes(words: list[str], include: str = "", exclude: str = "", slots: int = 0) -> tuple[Host, ...]:
    """The nodes of a source, read once; see :func:`cockpit.plans.nodes.sources.nodes_from`.

    After a list on stdin, keys and answers come from the terminal again, not from the list's pipe.

    :raises CockpitError: no nodes, or no such
    """
    if words == [STDIN] and sys.stdin.isatty():
        say("reading node names from the terminal, one per line; Ctrl-D ends the list")
    found = nodes_from(words, include, exclude, slots)
    if words == [STDIN] and sys.stdout.isatty() and not sys.stdin.isatty():
        with suppress(OSError):  # no terminal: it stays a pipe
            terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
            os.dup2(terminal, sys.stdin.fileno())
            os.close(terminal)
    return found


def source(file: str | None, args: argparse.Namespace, ask: str) -> list[str]:
    """The words of the source that was named, for :func:`cockpit.plans.nodes.sources.nodes_from`.

    :param file: the HOSTFILE, if there is one
    :param ask: what to type if nothing names nodes, nor a hostfile of DeepSpeed's
    :raises CockpitError: none, or two
    """
    named = [f"{file}"] if file is not None else []
    named += (["-w"] if args.nodelist else []) + (["--k8s"] if args.k8s else [])
    if len(named) > 1:
        raise CockpitError(f"{named[0]} and {named[1]} both name nodes", hint="give one of the two")
    if args.nodelist:
        return ["-w", ",".join(args.nodelist)]
    if args.k8s:
        return ["--k8s", args.k8s, *where_pods(args)]
    if file is None and args.slurm is not None:
        return ["--slurm", args.slurm or own_job()]
    if file is None:
        if not os.path.exists(DEFAULT):
            raise CockpitError("no nodes named", hint=ask)
        say(f"nodes: {DEFAULT}, DeepSpeed's default")
        return [DEFAULT]
    return [file]


def where_pods(args: argparse.Namespace) -> list[str]:
    """The words that say where pods are."""
    options = (("-n", args.namespace), ("--context", args.context))
    return [word for option in options if option[1] for word in option]


def words_again(words: list[str], names: list[str]) -> list[str]:
    """Words that name the same nodes when they are typed again: what came from stdin is gone."""
    if words != [STDIN]:
        return words
    text = nodes_text(names)
    with suppress(CockpitError):
        if [host.name for host in read_set(text)] == names:
            return ["-w", text]
    return words
