"""Before a launch: ask every node what it has, settle address and port, make the launch specs."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cockpit.base import owners, verbs
from cockpit.base.gate import plain
from cockpit.base.record import FORMAT
from cockpit.config import Evidence, load, trusted_group
from cockpit.engine.launch.preflight import Diagnosis, Preflight
from cockpit.engine.launch.prelaunch import base_of, facts_request
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import settle
from cockpit.engine.links.roll import Roll
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans import environment
from cockpit.plans.launch import LaunchJob, NodeFacts
from cockpit.plans.nodes import gpus
from cockpit.plans.plan import NodePlan, build_plans, host_of
from cockpit.plans.script import launch_script, profile
from cockpit.plans.unfit import refusal
from cockpit.transport.registry import TRANSPORTS


@dataclass(frozen=True)
class Prepared:
    """Everything a launch needs."""

    plans: tuple[NodePlan, ...]
    specs: dict[str, dict[str, Any]]
    """Launch spec of each node, as its supervisor takes it."""
    facts: dict[str, dict[str, Any]]
    notes: list[str]
    """Sentences about nodes for whoever watches the start."""
    preflight: Diagnosis
    """What differs between the nodes, and what may be wrong with one of them."""


@dataclass(frozen=True)
class Times:
    """Times of a stop, in seconds."""

    grace: float = 30
    """From SIGTERM to SIGKILL."""
    finalise: float = 600
    """For a profiler to write its report after the ranks have ended."""


async def prepare(
    job: LaunchJob, links: Mapping[str, Link], times: Times, node_dir: str, roll: Roll, preflight: Preflight
) -> Prepared:
    """Ask the nodes and plan; a node without a number of slots gets one for each of its GPUs.

    :param node_dir: folder on the nodes for run folders, instead of their own temporary folder if not empty
    :param roll: told who has answered and who is awaited
    :param preflight: looks at the nodes' condition, beside all else
    :raises ManyErrors: one line for each node that is unfit
    """
    wish = facts_request(job)
    hosts = {host.name: host for host in job.hosts}
    counted = [host.name for host in job.hosts if host.open]
    roll.running = "--setup" if job.setup else ""
    answers, errors = await settle(
        {
            name: roll.heard(
                name, link.call(replace(wish, base=base_of(link, node_dir), gpus=hosts[name].open))
            )
            for name, link in links.items()
        }
    )
    facts: dict[str, NodeFacts] = {}
    for name, answer in answers.items():
        try:
            facts[name] = NodeFacts.of(name, answer, job.profiler.tool if job.profiler else "")
            refused = refusal(name, job, facts[name], answer)
            if refused is not None:
                raise refused
            hosts[name] = gpus.filled(hosts[name], answer.gpus, job.launcher)
        except CockpitError as error:
            errors[name] = error
    if errors:
        raise ManyErrors([errors[name] for name in links if name in errors])
    job = replace(job, hosts=tuple(hosts.values()))
    first = job.hosts[0].name
    address = job.master_addr or await master_address(first, links, roll)
    port = (await roll.heard(first, links[first].call(verbs.Port(job.master_port or 0)))).port
    facts[first] = replace(facts[first], address=address, port=port)
    plans = build_plans(job, [facts[host.name] for host in job.hosts])
    keep = load().evidence
    specs = {plan.node: _spec(plan, links[plan.node], times, node_dir, keep) for plan in plans}
    for name in _unlike_others(links):
        # What refers to itself is to find what it finds on the others.
        sent = {each: value for each, value in job.env.items() if each not in job.expanded}
        specs[name]["unset"] = environment.unlike_elsewhere(os.environ, sent)
    notes = [f"{plan.node}: {note}" for plan in plans for note in plan.notes]
    if counted:
        notes.insert(0, gpus.told([hosts[name] for name in counted]))
    return Prepared(
        plans,
        specs,
        {
            name: {**plain(answer), **answer.tools, "boot_id": links[name].hello.boot_id}
            for name, answer in answers.items()
        },
        list(dict.fromkeys(notes)),
        await preflight.diagnosis(answers, address),
    )


def _unlike_others(links: Mapping[str, Link]) -> list[str]:
    """Nodes whose ranks would have this shell's variables, while those of others would not."""
    here = [name for name, link in links.items() if link.transport.kind == "local"]
    return here if len(here) < len(links) else []


async def master_address(first: str, links: Mapping[str, Link], roll: Roll) -> str:
    """The first node's name if every node resolves it to an address the others can use, else its address."""
    name = host_of(first)
    answers, errors = await settle(
        {node: roll.heard(node, link.call(verbs.Resolve(name))) for node, link in links.items()}
    )
    if errors:
        raise ManyErrors(list(errors.values()))
    alone = len(links) == 1
    if all(_usable(answer.addresses, loopback=alone or node == first) for node, answer in answers.items()):
        return name
    own = answers[first].own
    # Pods share a kernel, and no loopback.
    machines = {
        link.hello.boot_id for link in links.values() if not TRANSPORTS[link.transport.kind].of_containers
    }
    together = len(links) == 1 or len(machines) == 1
    reachable = [a for a in own if together or not ipaddress.ip_address(a).is_loopback]
    if not reachable:
        raise CockpitError(
            "the others cannot resolve its name, and it has no address of its own",
            where=first,
            hint="give one: --master-addr ADDRESS",
            code=Exit.NODE_UNFIT,
        )
    return reachable[0]


def _usable(addresses: Sequence[str], *, loopback: bool) -> bool:
    return bool(addresses) and (loopback or not all(ipaddress.ip_address(a).is_loopback for a in addresses))


def _spec(plan: NodePlan, link: Link, times: Times, node_dir: str, keep: Evidence) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "run": plan.run,
        "node": plan.node,
        "index": plan.index,
        "dir": os.path.join(base_of(link, node_dir), plan.run, _folder_name(plan)),
        "script": launch_script(plan),
        "files": dict(plan.files),
        "env": dict(plan.secrets),
        "ranks": list(plan.ranks),
        "launcher": plan.launcher,
        "profile": profile(plan),
        "probe": plan.probe,
        "nccl_debug": plan.nccl_debug,
        "calls": plan.calls,
        "evidence": {"keep": keep.keep, "after_s": keep.after, "idle_s": keep.idle},
        "grace_s": times.grace,
        "finalise_s": times.finalise,
        owners.SETTING: trusted_group(),
    }


def _folder_name(plan: NodePlan) -> str:
    # Nodes may share a file system, or be one machine under several names.
    plain = all(c.isalnum() or c in "-_." for c in plan.node) and plan.node.isascii()
    return plan.node if plain else f"node-{plan.index}"
