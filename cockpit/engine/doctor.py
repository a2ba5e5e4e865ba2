"""The doctor asks: facts, condition and ranks of all nodes at once, and whether they reach the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cockpit.base import verbs
from cockpit.base.condition import ReachAnswer
from cockpit.core.doctor.diagnosis import diagnosis
from cockpit.core.doctor.looks import Look, Looks
from cockpit.core.finding import RULE_FAILED, Finding, findings
from cockpit.engine.launch.asking import base_of, checkup_request, facts_request, seen
from cockpit.engine.launch.preflight import PARTS, Diagnosis
from cockpit.engine.launch.prepare import master_address
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.errors import CockpitError
from cockpit.plans.launch import DEFAULT_PORT, LaunchJob, NodeFacts
from cockpit.plans.plan import host_of
from cockpit.plans.unfit import UNFIT
from cockpit.transport.base import LinkError

T = TypeVar("T")

ANSWER_S = 7.0
"""A node that has no link after this long counts as unreachable."""
LIMIT_S = 3.0
"""For each check on a node."""
_REACH_S = 2.0
_CALL_S = 9.0

ALL = (*PARTS, "profiling", "port", "login", "names")

LAUNCHERS = ("deepspeed", "torchrun")
"""What is meant if no launcher is named: the first of these that some node has."""
TOOLS = {name: (name,) for name in ("ninja", "nvcc", "g++", "nsys", "deepspeed", "torchrun")}


@dataclass(frozen=True)
class Wanted:
    """What is to be launched on the nodes, as far as that is known.

    :param launcher: empty: the one that the nodes have
    :param program: the job's is its own, rather than a stand-in
    :param scheduler: whether a run there ends with its job, not at logout
    """

    job: LaunchJob
    launcher: str = ""
    node_dir: str = ""
    scheduler: bool = False


async def examine(pool: LinkPool, wanted: Wanted) -> Diagnosis:
    """Ask all nodes for everything, and judge; a node that gives no answer is a finding."""
    job = wanted.job
    names = [host.name for host in job.hosts]
    pool.roll.call(names)
    seen = await asyncio.gather(*(_look(pool, name, wanted, names) for name in names))
    nodes = dict(zip(names, seen, strict=True))
    links = {name: link for name in names if (link := await _open(pool, name)) is not None}
    address, more = await _met(nodes, links, wanted, pool)
    for name, reached in more.items():
        nodes[name] = replace(nodes[name], reached=reached)
    job = replace(job, launcher=wanted.launcher or _launcher(nodes))
    looks = Looks(
        nodes,
        port=job.master_port or DEFAULT_PORT,
        port_asked=job.master_port is not None,
        address=address,
        env=job.env,
        scheduler=wanted.scheduler,
    )
    return Diagnosis(looks, diagnosis(looks, unfit(job, nodes)))


def unfit(job: LaunchJob, nodes: Mapping[str, Look]) -> list[Finding]:
    """Why nodes cannot launch this job, by the rules of a launch; what several nodes lack is told once."""
    found: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for name, look in nodes.items():
        if look.facts is None:
            continue
        facts = NodeFacts.of(name, look.facts, job.profiler.name if job.profiler else "")
        inputs = {"job": job, "facts": facts, "answer": look.facts}
        for each in findings(UNFIT, inputs):
            if each.id != RULE_FAILED:
                found.setdefault((each.id, each.what), (each, []))[1].append(name)
    return [replace(finding, nodes=tuple(names)) for finding, names in found.values()]


async def _look(pool: LinkPool, name: str, wanted: Wanted, names: list[str]) -> Look:
    job = wanted.job
    try:
        link = await asyncio.wait_for(pool.lend(name, now=True), ANSWER_S)
    except CockpitError as error:
        return Look(errors=(error,))
    except (TimeoutError, asyncio.TimeoutError):
        progress = pool.roll.awaited.get(name)
        stage = f": still waiting for {progress.stage.value}" if progress else ""
        late = LinkError(f"no answer within {ANSWER_S:g} s{stage}", where=name, hint=f"try: ssh {name} true")
        pool.roll.fail(name, late)
        return Look(errors=(late,))
    base = base_of(link, wanted.node_dir)
    request = facts_request(job)
    first = job.hosts[0].name
    hosts = dict.fromkeys([*map(host_of, names), link.hello.host])
    asked = checkup_request(job, ALL, base, LIMIT_S)
    asked = replace(asked, names=tuple(hosts), port=(job.master_port or DEFAULT_PORT) if name == first else 0)
    request = replace(request, base=base, tools={**TOOLS, **request.tools})
    errors: list[CockpitError] = []

    async def answer(to: verbs.Request[T, Any]) -> T | None:
        try:
            return await link.call(to, deadline_s=_CALL_S)
        except CockpitError as error:
            errors.append(error)
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
    except CockpitError:
        return "", {}
    held = nodes[first].condition.port
    port = 0 if held else wanted.job.master_port or DEFAULT_PORT
    stream = await links[first].stream(verbs.Meet(port, limit_s=_CALL_S))
    try:
        with suppress(CockpitError):
            async for item, _ in stream.parts():
                asked = verbs.Reach(address, item.port, limit_s=_REACH_S)
                calls = {name: link.call(asked, deadline_s=_CALL_S) for name, link in others.items()}
                answers, _ = await settle(calls)
                return address, answers
    finally:
        await stream.close()
    return address, {}
