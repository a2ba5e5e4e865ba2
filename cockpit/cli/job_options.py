"""A job on the nodes of a hostfile, whoever started it: the options that name it, and the way to it."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import AsyncIterator, Iterable, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cockpit import paths
from cockpit.base.shell import quote
from cockpit.cli import node_options
from cockpit.cli.awaiting import telling
from cockpit.cli.output import complain, say
from cockpit.cli.parsing import Parser, add_link_options, add_word, reach, whole
from cockpit.core.expressions import Expression
from cockpit.core.ranks import ranks_text
from cockpit.engine.links.pool import PYTHONS, LinkPool
from cockpit.engine.links.roll import Roll
from cockpit.engine.records import bundles
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError
from cockpit.plans.nodes.hostfile import STDIN

if TYPE_CHECKING:
    from cockpit.engine.stacks.ask import Party
    from cockpit.engine.stacks.targets import JobParty


def add_options(parser: Parser) -> None:
    """Which nodes are asked for jobs, and which job is meant."""
    group = parser.add_argument_group("jobs that cockpit didn't start")
    node_options.add_options(group)
    add_word(group, "--job", "JOB", "which job, if several are running")
    group.add_argument(
        "--pid",
        type=whole("a process id", 1, 1 << 30),
        metavar="N",
        default=0,
        help="the job this process belongs to or launched, or a single Python program",
    )
    group.add_argument(
        "--match",
        type=_expression,
        metavar="REGEX",
        default="",
        help="the job whose rank or launcher matches this in its command line",
    )
    add_word(group, "--include", "NODES", "use only these nodes, as in `run`")
    add_word(group, "--exclude", "NODES", "skip these nodes")
    add_word(group, "--python", "PATH", "python for the agent on the nodes")
    add_link_options(parser, "JOBID[.STEP]")


def _expression(text: str) -> str:
    Expression(text, where=f"--match {text}")
    return text


def names_nodes(target: str | None, args: argparse.Namespace, ask: str) -> list[str]:
    """The words of a source of nodes that is no file, or a default; none: ``target`` says what is meant.

    :param ask: what to type if nothing is named at all
    :raises CockpitError: nothing is named, or nodes twice
    """
    if target is None and not node_options.named(args) and (args.pid or args.match):
        return ["-w", socket.gethostname()]  # this machine
    if target in (None, STDIN) or args.nodelist or args.k8s:
        return node_options.source(target, args, ask)
    return []


def names_run(target: str) -> bool:
    """Whether a word is a run's full name, ``last``, even if a file here has that name, or a bundle."""
    if bundles.is_meant(target):
        return True
    if "/" in target:
        return False
    runs = paths.runs()
    if target == "last":
        found = any(runs.glob("*/manifest.json"))
    else:
        found = os.path.isfile(runs / target / "manifest.json")
    if found and os.path.lexists(target):
        say(f"{target}: showing the run of that name; for the file here: {quote(f'./{target}')}")
    return found


@asynccontextmanager
async def party(meant: Path | RunFolder | list[str], args: argparse.Namespace) -> AsyncIterator[Party]:
    """The job that is meant: a run, or one on the nodes of a file or of other words.

    :raises CockpitError: it cannot be found, or has ended
    """
    if not isinstance(meant, RunFolder):
        source = [args.target] if isinstance(meant, Path) else meant
        async with job_party(source, args) as found:
            yield found
        return
    if given := [name for name in ("job", "include", "exclude", "python") if getattr(args, name)]:
        what = f"--{given[0]} needs a hostfile, and this is a run"
        raise CockpitError(what, where=meant.name, hint="--ranks narrows it down")
    from cockpit.engine.stacks.targets import open_run

    async with AsyncExitStack() as links:
        roll = Roll()
        async with telling(lambda: roll):
            run = await links.enter_async_context(open_run(meant, roll))
        yield run


def check_ranks(known: Iterable[int], ranks: Set[int] | None, where: str) -> None:
    """See that a job has the ranks that were named.

    :raises CockpitError: it has not
    """
    known = set(known)
    if ranks is not None and (odd := ranks - known):
        raise CockpitError(f"no rank {ranks_text(odd)}", where=where, hint=f"it has {ranks_text(known)}")


@asynccontextmanager
async def job_party(source: list[str], args: argparse.Namespace) -> AsyncIterator[JobParty]:
    """Find the job, say which it is, and keep links to all nodes.

    :param source: words of a source of nodes
    :raises CockpitError: no job, several jobs and none was named, or no node answers
    """
    # All that looks at stacks comes along, which a run's name does without.
    from cockpit.engine.stacks.targets import JobParty, find_job

    names = [host.name for host in node_options.nodes(source, args.include, args.exclude)]
    pythons = [args.python] if args.python else list(PYTHONS)
    way = reach(args)
    if way.kind == "srun" and socket.gethostname() not in names:
        way = replace(way, options={**way.options, "here": socket.gethostname()})
    async with LinkPool(pythons, way) as pool:
        pool.roll.call(names)
        async with telling(lambda: pool.roll) as teller:
            job, errors = await find_job(
                names, pool, args.job, pid=args.pid, match=args.match, step=args.step
            )
        for error in errors.values():
            if str(error) not in teller.told:
                complain(error)
        say(f"found: {job.title}")
        for problem in job.problems:
            say(problem)
        options = [
            (name, getattr(args, name)) for name in ("job", "pid", "match", "include", "exclude", "python")
        ]
        words = [word for name, value in options if value for word in (f"--{name}", str(value))]
        again = node_options.words_again(source, names)
        if way.kind == "kubectl" and not args.k8s:
            again += node_options.where_pods(args)
        if args.step and not args.step.endswith("."):
            again = ["--slurm", args.step]
        yield JobParty(job, names, pool, [*again, *words], errors, args.step)
