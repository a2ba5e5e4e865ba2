"""The doctor asks: facts, condition and ranks of all nodes at once, and whether they reach the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cockpit.base import verbs
from cockpit.base.answers import FactsAnswer
from cockpit.base.checkup_answers import ReachAnswer
from cockpit.core.doctor.diagnosis import diagnosis
from cockpit.core.doctor.node_checks import Look, Looks
from cockpit.core.finding import Finding, Step
from cockpit.core.ranks import nodes_text, set_words
from cockpit.core.run.model import RunModel
from cockpit.engine.launch.preflight import PARTS, Diagnosis
from cockpit.engine.launch.prelaunch import base_of, checkup_request, facts_request, seen
from cockpit.engine.launch.prepare import master_address
from cockpit.engine.links.link import Link, streaming
from cockpit.engine.links.patience import Late, Patience
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans.launch import DEFAULT_PORT, LaunchJob, NodeFacts
from cockpit.plans.nodes import gpus
from cockpit.plans.nodes.hostfile import POD, Host
from cockpit.plans.plan import build_plans, host_of
from cockpit.plans.unfit import why_unfit
from cockpit.transport.base import ConnectStage, LinkError

T = TypeVar("T")

TIMEOUT_S = 7.0
"""When no node has got on for so long, those that have no link count as unreachable."""
LONGEST_S = 600.0
"""For an answer, while other nodes get on."""
CHECK = 0.4
"""The part of that time that each check on a node may take."""

ALL = (*PARTS, "profiling", "port", "login", "names")

STAND_IN = ("doctor",)
"""The program of a job where none was named."""

LAUNCHERS = ("deepspeed", "torchrun")
"""What is meant if no launcher is named: the first of these that some node has."""
TOOLS = {name: (name,) for name in ("ninja", "nvcc", "g++", "nsys", "deepspeed", "torchrun")}


@dataclass(frozen=True)
class Wanted:
    """What is to be launched on the nodes, as far as that is known.

    :param launcher: empty: the one that the nodes have
    :param scheduler: whether a run there ends with its job, not at logout
    :param run: this one runs there already, and is meant to; empty: none is
    :param pids: processes by node of a job that others started: it runs, so what a launch needs is not asked
    :param timeout_s: without progress of any node, until those without a link or an answer are given up
    """

    job: LaunchJob
    launcher: str = ""
    node_dir: str = ""
    scheduler: bool = False
    run: str = ""
    pids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S

    @property
    def check_s(self) -> float:
        """For each check on a node."""
        return CHECK * self.timeout_s

    @property
    def port(self) -> int:
        """Where its ranks will meet on the first node; 0: they do already."""
        return 0 if self.run else self.job.master_port or DEFAULT_PORT


async def examine(pool: LinkPool, wanted: Wanted) -> Diagnosis:
    """Ask all nodes for everything, and judge; a node that gives no answer is a finding."""
    job = wanted.job
    names = [host.name for host in job.hosts]
    pool.roll.call(names)
    async with Patience(pool.roll, wanted.timeout_s) as patience:
        seen = await asyncio.gather(*(_look(pool, host, wanted, patience) for host in job.hosts))
    nodes = dict(zip(names, seen, strict=True))
    links = {name: link for name in names if (link := await _open(pool, name)) is not None}
    address = ""
    try:
        address, more = await _met(nodes, links, wanted, pool)
        for name, reached in more.items():
            nodes[name] = replace(nodes[name], reached=reached)
    except CockpitError as error:
        nodes[names[0]] = replace(nodes[names[0]], errors=(*nodes[names[0]].errors, error))
    job = replace(job, launcher=wanted.launcher or _launcher(nodes))
    own, known = _runs_here(nodes)
    looks = Looks(
        nodes,
        port=wanted.port,
        port_asked=job.master_port is not None,
        address=address,
        env=job.env,
        scheduler=wanted.scheduler,
        run=wanted.run,
        pids=wanted.pids,
        own=own,
        known=known,
        slots={} if wanted.pids else {host.name: frozenset(host.slots) for host in job.hosts if host.slots},
        profiled=job.profiler is not None,
        config=pool.reach.options.get("config", ""),
    )
    return Diagnosis(looks, diagnosis(looks, () if wanted.pids else unfit(job, nodes)))


def _runs_here(nodes: Mapping[str, Look]) -> tuple[frozenset[str], frozenset[str]]:
    """The runs of these ranks that are not over as far as that is known here, and all that are known here."""
    runs = {rank.run for look in nodes.values() if look.ranks for rank in look.ranks.ranks if rank.run}
    folders: list[RunFolder] = []
    with suppress(CockpitError):  # the folder of runs cannot be read
        folders = list_runs() if runs else []
    known = {folder.name: folder for folder in folders if folder.name in runs}
    own: set[str] = set()
    for name, folder in known.items():
        with suppress(CockpitError):  # damaged: how it ended is not known
            if not folder.model().over:
                own.add(name)
    return frozenset(own), frozenset(known)


def unfit(job: LaunchJob, nodes: Mapping[str, Look]) -> list[Finding]:
    """Why nodes cannot launch this job, by the rules of a launch; what several nodes lack is one finding."""
    found: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    hosts = {host.name: host for host in job.hosts}
    for name, look in nodes.items():
        host = hosts.get(name, Host(name, (0,)))
        for each in _unfit(job, host, look.facts) if look.facts else ():
            found.setdefault((each.id, each.what), (each, []))[1].append(name)
    return [replace(finding, nodes=tuple(names)) for finding, names in found.values()]


def _unfit(job: LaunchJob, host: Host, answer: FactsAnswer) -> list[Finding]:
    try:
        facts = NodeFacts.of(host.name, answer, job.profiler.tool if job.profiler else "")
    except CockpitError as error:
        return [_found("bad_facts", error)]
    found = why_unfit(job, facts, answer)
    if found:
        return found
    try:
        host = gpus.filled(host, answer.gpus, job.launcher)
    except CockpitError as error:
        # Without a program no run is meant yet, for which somebody would have to say it.
        return [replace(_found("no_slots", error), severity="info" if job.program == STAND_IN else "error")]
    try:
        build_plans(replace(job, hosts=(host,)), [facts])
    except ManyErrors as error:
        return [_found("no_plan", each) for each in error.errors]
    return []


def _found(id: str, error: CockpitError) -> Finding:
    steps = (Step.hinted(error.hint),) if error.hint else ()
    return Finding(id, error.what, certainty="sure", steps=steps)


def wanted_again(manifest: Manifest, model: RunModel) -> Wanted:
    """What to ask the nodes of a run that is known here."""
    if manifest.foreign:
        pids = {
            name: frozenset(rank.pid for rank in model.on(name) if rank.pid is not None)
            for name in model.nodes
        }
        nodes = _of_ranks(manifest)
        hosts = tuple(Host(node.name, (0,)) for node in nodes)
        job = LaunchJob(manifest.run, hosts, ("true",), nodes[0].dir)
        return Wanted(job, "command", scheduler=manifest.transport == "srun", run=manifest.run, pids=pids)
    plans = {str(plan.get("node")): plan for plan in manifest.plans}
    first = next(iter(plans.values()), {})
    job = LaunchJob(
        run=manifest.run,
        hosts=tuple(
            Host(node.name, tuple(plans.get(node.name, {}).get("slots", (0,)))) for node in manifest.nodes
        ),
        program=tuple(manifest.program),
        cwd=manifest.cwd,
        launcher=manifest.launcher,
        python=first.get("python") or None,
        setup=str(first.get("setup", "")),
        path=str(first.get("path", "")),
    )
    return Wanted(job, manifest.launcher, scheduler=manifest.transport == "srun", run=manifest.run)


def _of_ranks(manifest: Manifest) -> list[NodeEntry]:
    """The nodes that ranks are on: a login node that only has their output need not be like them."""
    return [node for node in manifest.nodes if node.ranks or not manifest.foreign]


def words_again(manifest: Manifest) -> list[str]:
    """What a person types after ``cockpit`` to ask the same of the same nodes."""
    plans = {str(plan.get("node")): plan for plan in manifest.plans}
    plan = next(iter(plans.values()), {})
    by_slots: dict[int, list[str]] = {}
    for node in _of_ranks(manifest):
        by_slots.setdefault(len(plans.get(node.name, {}).get("slots", (0,))), []).append(node.name)
    pieces = [f"{piece}:{n}" for n, names in by_slots.items() for piece in set_words(nodes_text(names))]
    told = manifest.transport_options
    job, pods = told.get("job", ""), manifest.transport == "kubectl"
    if pods:
        pieces = [f"{POD}{piece}" for piece in pieces]
    options = {
        "--slurm": job,
        "--transport": "" if job or pods or manifest.transport == "auto" else manifest.transport,
        "-F": told.get("config", ""),
        "-n": told.get("namespace", ""),
        "--context": told.get("context", ""),
        "--python": str(plan.get("python", "")),
        "--setup": str(plan.get("setup", "")),
        "--launcher": "" if manifest.foreign else manifest.launcher,
        "--cwd": manifest.cwd,
    }
    given = [word for option, value in options.items() if value for word in (option, value)]
    program = () if manifest.foreign else ("--", *manifest.program)
    nodes = ("--k8s", told["pods"]) if told.get("pods") else ("-w", ",".join(pieces))
    return ["doctor", *nodes, *given, *program]


_ASKED = {
    verbs.Facts: "the version query",
    verbs.Checkup: "the checks",
    verbs.Seek: "the search for ranks",
}
"""What a node is asked, in words."""


async def _look(pool: LinkPool, host: Host, wanted: Wanted, patience: Patience) -> Look:
    job, name = wanted.job, host.name
    try:
        link = await patience.of(name, pool.lend(name, now=True))
    except CockpitError as error:
        return Look(errors=(error,))
    except Late as late:
        stage = late.progress.stage
        what = f"no answer within {wanted.timeout_s:g} s: still waiting for {stage.value}"
        why = LinkError(what, where=name, hint=pool.to_try(name))
        pool.roll.fail(name, why)
        return Look(untried=True) if stage is ConnectStage.QUEUED else Look(errors=(why,))
    base = base_of(link, wanted.node_dir)
    request = facts_request(job)
    first = job.hosts[0].name
    hosts = dict.fromkeys([*(host_of(each.name) for each in job.hosts), link.hello.host])
    asked = checkup_request(job, ALL, base, wanted.check_s)
    asked = replace(asked, names=tuple(hosts), port=wanted.port if name == first else 0)
    request = replace(request, base=base, tools={**TOOLS, **request.tools}, gpus=host.open)
    errors: list[CockpitError] = []

    async def answer(to: verbs.Request[T, Any]) -> T | None:
        try:
            return await patience.of(name, link.call(to, deadline_s=LONGEST_S))
        except CockpitError as error:
            errors.append(error)
        except Late:
            what = f"no answer to {_ASKED[type(to)]} within {wanted.timeout_s:g} s"
            errors.append(LinkError(what, where=name))
        return None

    with suppress(CockpitError):
        await link.measure_clock()
    asking = answer(request), answer(asked), answer(verbs.Seek())
    facts, condition, ranks = await pool.roll.heard(name, asyncio.gather(*asking))
    return seen(link, facts, condition, ranks, tuple({error.what: error for error in errors}.values()))


def _launcher(nodes: Mapping[str, Look]) -> str:
    facts = [look.facts for look in nodes.values() if look.facts is not None]
    has = {"deepspeed": any(each.deepspeed for each in facts), "torchrun": any(each.torch for each in facts)}
    return next((name for name in LAUNCHERS if has[name]), "command")


async def _open(pool: LinkPool, name: str) -> Link | None:
    try:
        return await pool.at_hand(name)
    except CockpitError:
        return None


async def _met(
    nodes: Mapping[str, Look], links: Mapping[str, Link], wanted: Wanted, pool: LinkPool
) -> tuple[str, dict[str, ReachAnswer]]:
    """The first node's address for the others, and whether each of them can connect to it."""
    first = wanted.job.hosts[0].name
    others = {name: link for name, link in links.items() if name != first}
    if first not in links or not others:
        return "", {}
    try:
        address = wanted.job.master_addr or await master_address(first, links, pool.roll)
    except CockpitError as error:
        if error.code is Exit.NODE_UNFIT and not isinstance(error, ManyErrors):
            raise  # as before a launch
        return "", {}
    held = nodes[first].condition.port
    port = 0 if held else wanted.port
    async with streaming(links[first], verbs.Meet(port, limit_s=wanted.timeout_s)) as stream:
        part = await stream.part(wanted.timeout_s)
        if part is None:
            return address, {}
        asked = verbs.Reach(address, port or part[0].port, limit_s=wanted.check_s)
        calls = {name: link.call(asked, deadline_s=wanted.timeout_s) for name, link in others.items()}
        answers, _ = await settle(calls)
        return address, answers
