"""One :class:`NodePlan` per node: everything that is done there, known before anything is done.

Pure: what a node must be asked comes in as :class:`NodeFacts`; without facts (`cockpit plan` opens no
link) the notes say what `cockpit run` would ask.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cockpit.base import secret
from cockpit.base.record import AROUND, REPORTS
from cockpit.base.shell import join
from cockpit.core.ranks import is_name, ranks_text
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans.command_words import DIR, SECRET
from cockpit.plans.environment import is_variable
from cockpit.plans.launch import (
    DEFAULT_PORT,
    HELD,
    PER_NODE,
    LaunchJob,
    NodeFacts,
    PlannedNode,
    is_address,
    is_port,
)
from cockpit.plans.launchers import registry as launchers
from cockpit.plans.nodes import gpus
from cockpit.plans.profilers.nsys import Nsys
from cockpit.plans.unfit import refusal

__all__ = ["DIR", "LaunchJob", "NodeFacts", "NodePlan", "build_plans"]


@dataclass(frozen=True)
class NodePlan:
    """What is run on one node.

    :param run: name of the run
    :param node: name of the node
    :param index: index of the node, from 0
    :param nodes: number of nodes
    :param argv: the launcher as a person would type it; :data:`DIR` in it is the run folder
    :param run_argv: the launcher as `cockpit run` starts it, with the wrapper around each rank
    :param env: variables set, without secrets
    :param expanded: names in ``env`` in whose values the node's shell replaces ``$NAME``, in their order
    :param secrets: more variables, whose values are neither printed nor written into scripts
    :param cwd: absolute
    :param setup: shell text run first, see :func:`cockpit.plans.setup.text`
    :param python: that of the ranks
    :param path: folder that comes first on PATH, where a setup may change it; or empty
    :param conda: path of this machine's conda, for the setup; or empty
    :param files: to be written into the run folder, by name
    :param ranks: global ranks expected here
    :param slots: slots used here; a rank's LOCAL_RANK is the launcher's business (DeepSpeed: RANK % slots)
    :param world_size: ranks of all nodes
    :param profiler: around the launcher, or None: not profiled
    :param tool: the profiler's path
    :param report: the report in the run folder, without suffix
    :param probe: how the ranks are probed: ``auto``, ``on`` or ``off``
    :param nccl_debug: whether NCCL in each rank writes what it does to a file of the run
    :param calls: packages whose calls each rank notes
    :param notes: sentences for the person who reads the plan
    """

    run: str
    node: str
    index: int
    nodes: int
    launcher: str
    argv: tuple[str, ...]
    run_argv: tuple[str, ...]
    env: Mapping[str, str]
    expanded: tuple[str, ...]
    secrets: Mapping[str, str] = field(repr=False)
    cwd: str
    setup: str
    python: str
    path: str
    conda: str
    files: Mapping[str, str]
    ranks: tuple[int, ...]
    slots: tuple[int, ...]
    world_size: int
    master_addr: str
    master_port: int
    profiler: Nsys | None
    tool: str
    report: str
    probe: str
    nccl_debug: bool
    calls: tuple[str, ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        # All of this becomes shell, on this node and in part on the others.
        numbers = (self.index, self.nodes, self.world_size, *self.ranks, *self.slots)
        names = (*self.env, *self.secrets)
        wrong = (
            (not is_name(self.node), "node", self.node),
            (not is_address(self.master_addr), "master address", self.master_addr),
            (not is_port(self.master_port), "master port", self.master_port),
            (any(type(number) is not int for number in numbers), "numbers", numbers),
            (not all(map(is_variable, names)), "names of variables", names),
        )
        for bad, field_name, value in wrong:
            if bad:
                raise CockpitError(f"bad {field_name}: {ascii(value)[:80]}", where=ascii(self.node)[1:-1])


def host_of(name: str) -> str:
    """The host part of a node's name: ``gpu01`` of ``user@gpu01:2222``, ``::1`` of ``[::1]``."""
    name = name.rpartition("@")[2]
    match = re.match(r"\[(.*)\]", name)
    if match:
        return match[1]
    return name.partition(":")[0] if name.count(":") == 1 else name


def build_plans(job: LaunchJob, facts: Sequence[NodeFacts | None] | None = None) -> tuple[NodePlan, ...]:
    """The plans of all nodes, in hostfile order.

    :param facts: those of each host in order, or None if nothing was asked
    :raises CockpitError: the job makes no sense
    :raises ManyErrors: nodes that cannot run it, each named (exit code: node unfit)
    """
    _check(job)
    known = list(facts) if facts is not None else [None] * len(job.hosts)
    if len(known) != len(job.hosts):
        raise ValueError("facts of %d nodes for %d hosts" % (len(known), len(job.hosts)))
    addr, port, notes = _master(job, known[0])
    plans: list[NodePlan] = []
    errors: list[CockpitError] = []
    for index in range(len(job.hosts)):
        try:
            plans.append(_plan(PlannedNode(job, index, known[index], addr, port), notes))
        except CockpitError as error:
            if error.code is not Exit.NODE_UNFIT:  # the same on every node
                raise
            errors.append(error)
    if errors:
        raise ManyErrors(errors)
    return tuple(plans)


def _check(job: LaunchJob) -> None:
    if not job.program or job.program == ("-m",):
        raise CockpitError("no program to run", hint="write it at the end: -- train.py ARGS")
    if not job.hosts:
        raise CockpitError("no host to run on", hint="check the hostfile and the filters")
    if not job.cwd.startswith("/"):
        raise CockpitError(
            f"not an absolute path: {job.cwd}", where="--cwd", hint="give a path that starts with /"
        )
    if job.python is not None and not job.python.startswith("/"):
        raise CockpitError(
            f"not an absolute path: {job.python}", where="--python", hint="give a path that starts with /"
        )
    if job.master_port is not None and not is_port(job.master_port):
        raise CockpitError(f"not a port: {job.master_port}", where="--master-port", hint="use 1 to 65535")
    if job.master_addr is not None and not is_address(job.master_addr):
        hint = "give a name or an IP address"
        raise CockpitError(f"not an address: {job.master_addr!a}", where="--master-addr", hint=hint)
    gpus.check_known(job.hosts)
    launchers.check(job)
    words = job.profiler.argv("", "", "", ()) if job.profiler else ()
    _check_ranks(job)
    texts = (*job.program, *job.launcher_args, *words, job.cwd, job.setup, job.python or "")
    texts += job.path, job.conda, job.tool
    if any("\0" in text for text in texts):
        raise CockpitError("a NUL byte cannot be part of a command line", hint="take it out")
    for own in (DIR, SECRET.partition("%")[0]):
        if any(own in text for text in texts):
            raise CockpitError(f"{own} is cockpit's own placeholder", hint="take it out of the command line")


def _check_ranks(job: LaunchJob) -> None:
    """Whether there are ranks that could be profiled each on its own."""
    if not job.profiler or not job.profiler.per_rank:
        return
    if job.launcher == PER_NODE:
        what = f"--per-rank does not apply to --launcher {PER_NODE}: the program starts its own ranks"
        raise CockpitError(what, hint="leave it out: nsys around the program covers all its ranks")
    if job.profiler.steps and job.probe == "off":
        hint = "leave --probe off out, or give --delay and --duration"
        raise CockpitError("--profile-steps needs the probe, which counts steps", hint=hint)
    beyond = [rank for rank in job.profiler.ranks or () if rank >= job.world_size]
    if beyond:
        what = f"no rank {ranks_text(beyond)}: the run has ranks 0-{job.world_size - 1}"
        raise CockpitError(what, where="--profile-ranks", hint="name ranks of the run")


def _master(job: LaunchJob, first: NodeFacts | None) -> tuple[str, int, list[str]]:
    notes = []
    name = host_of(job.hosts[0].name)
    addr = job.master_addr or (first and first.address) or name
    port = job.master_port or (first and first.port) or DEFAULT_PORT
    if first is None and job.master_addr is None and not _is_ip(name):
        notes.append(
            f"master address: {name}; if the nodes cannot resolve that name, run asks {job.hosts[0].name} "
            "for its address"
        )
    if first is None and job.master_port is None:
        notes.append(f"master port: {port}; run asks {job.hosts[0].name} for a free one")
    return addr, port, notes


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plan(place: PlannedNode, notes: Sequence[str]) -> NodePlan:
    job, facts = place.job, place.facts
    refused = refusal(place.host.name, job, facts) if facts else None
    if refused:
        raise refused
    made = launchers.command(place)
    files = dict(made.files)
    tool = report = ""
    before: tuple[str, ...] = ()
    extra_notes: list[str] = []
    if job.profiler:
        tool = (facts and facts.profiler) or job.profiler.places[0]
        report = job.profiler.named(f"{REPORTS}/{report_name(job.run, place.host.name, place.index)}")
        switches = facts.switches if facts else ()
        before = job.profiler.argv(tool, DIR, report, switches)
        files.update(job.profiler.files())
        listed = [rank for rank in place.ranks if job.profiler.ranks is None or rank in job.profiler.ranks]
        if job.profiler.per_rank and listed:
            report = f"{REPORTS}/{dotted_name(job.run, place.host.name, place.index)}"
            around = job.profiler.around(tool, report, listed, switches)
            files[AROUND] = json.dumps(around, indent=1)
            extra_notes += [] if facts else [_told_around(around, listed)]
        left_out = " ".join(job.profiler.lacking(switches)[1])
        extra_notes += [f"its {job.profiler.name} does not know {left_out}: left out"] if left_out else []
    return NodePlan(
        run=job.run,
        node=place.host.name,
        index=place.index,
        nodes=len(job.hosts),
        launcher=job.launcher,
        argv=before + _held(job, made.argv),
        run_argv=before + _held(job, made.run_argv),
        env={**made.env, **{name: value for name, value in job.env.items() if name not in job.secrets}},
        expanded=tuple(name for name in job.expanded if name not in job.secrets),
        secrets={name: value for name, value in job.env.items() if name in job.secrets},
        cwd=job.cwd,
        setup=job.setup,
        python=place.python,
        path=job.path or os.path.dirname(place.python),
        conda=job.conda,
        files=files,
        ranks=tuple(place.ranks),
        slots=place.host.slots,
        world_size=job.world_size,
        master_addr=place.master_addr,
        master_port=place.master_port,
        profiler=job.profiler,
        tool=tool,
        report=report,
        probe=job.probe,
        nccl_debug=job.nccl_debug,
        calls=job.calls,
        notes=(*notes, *made.notes, *extra_notes),
    )


def _held(job: LaunchJob, argv: tuple[str, ...]) -> tuple[str, ...]:
    """An argv with placeholders for the secrets that are words of the program, or in one."""
    names = {
        job.env[name]: name
        for name in job.secrets
        if len(job.env[name]) >= secret.SHORT or name.startswith(HELD)
    }
    theirs = [word for word in (*job.program, *job.launcher_args) if any(value in word for value in names)]
    if not theirs:
        return argv
    found = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    return tuple(
        found.sub(lambda match: SECRET % names[match[0]], word)
        if any(each in word for each in theirs)
        else word
        for word in argv
    )


def _told_around(around: Mapping[str, Any], listed: Sequence[int]) -> str:
    words = join(around["before"])
    ranks = ranks_text(listed)
    return f"cockpit run, not this script, starts ranks {ranks} below: {words} -o {around['report']}"


def dotted_name(run: str, node: str, index: int) -> str:
    """What the names of a node's reports of single ranks begin with."""
    return f"{run}.{report_name(run, node, index)[len(run) + 1 :]}"


def report_name(run: str, node: str, index: int) -> str:
    """A file name for a node's report, without suffix; only ``A-Za-z0-9._-`` of the node's name stay."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", node)
    # user@a and user_a must not collide.
    return f"{run}-{safe}" if safe == node else f"{run}-{safe}-n{index}"
