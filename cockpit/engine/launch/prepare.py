"""Before a launch: ask every node what it has, settle address and port, make the launch specs."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cockpit.base import verbs
from cockpit.base.answers import FactsAnswer
from cockpit.base.gate import plain
from cockpit.base.record import FORMAT
from cockpit.base.shell import quote
from cockpit.core.finding import RULE_FAILED, Finding, Rule, Step, findings
from cockpit.engine.links.fleet import settle
from cockpit.engine.links.link import Link
from cockpit.engine.links.roll import Roll
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans.launch import Job, NodeFacts
from cockpit.plans.plan import NodePlan, build_plans, host_of
from cockpit.plans.script import launch_script

REPORT_ROOM = 500_000_000
"""Free bytes a node must have for a profiler: nsys wrote 190-220 MB for even a short trace of one node."""


@dataclass(frozen=True)
class Prepared:
    """Everything a launch needs."""

    plans: tuple[NodePlan, ...]
    specs: dict[str, dict[str, Any]]
    """Launch spec of each node, as its supervisor takes it."""
    facts: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Times:
    """Times of a stop, in seconds."""

    grace: float = 30
    """From SIGTERM to SIGKILL."""
    finalise: float = 600
    """For a profiler to write its report after the ranks have ended."""


async def prepare(job: Job, links: Mapping[str, Link], times: Times, node_dir: str, roll: Roll) -> Prepared:
    """Ask the nodes and plan.

    :param node_dir: folder on the nodes for run folders, instead of their own temporary folder if not empty
    :param roll: told who has answered and who is awaited
    :raises ManyErrors: one line for each node that is unfit
    """
    wish = verbs.Facts(
        job.cwd,
        job.setup,
        job.python or "",
        (job.nsys.path or "") if job.nsys else "",
        job.program[0] if job.program[0].endswith(".py") or "/" in job.program[0] else "",
    )
    answers, errors = await settle(
        {
            name: roll.heard(name, link.call(replace(wish, base=_base(link, node_dir))))
            for name, link in links.items()
        }
    )
    facts: dict[str, NodeFacts] = {}
    for name, answer in answers.items():
        try:
            facts[name] = NodeFacts.of(name, answer)
        except CockpitError as error:
            errors[name] = error
            continue
        unfit = [found for found in findings(UNFIT, {"job": job, "facts": answer}) if found.id != RULE_FAILED]
        if unfit:
            errors[name] = _refusal(unfit[0], name)
    if errors:
        raise ManyErrors([errors[name] for name in links if name in errors])
    first = job.hosts[0].name
    address = job.master_addr or await _master_address(first, links, roll)
    port = (await roll.heard(first, links[first].call(verbs.Port(job.master_port or 0)))).port
    facts[first] = replace(facts[first], address=address, port=port)
    plans = build_plans(job, [facts[host.name] for host in job.hosts])
    specs = {plan.node: _spec(plan, links[plan.node], times, node_dir) for plan in plans}
    return Prepared(plans, specs, {name: plain(answer) for name, answer in answers.items()})


def _refusal(found: Finding, node: str) -> CockpitError:
    hint = ", or ".join(": ".join(filter(None, (step.reason, step.command))) for step in found.steps)
    return CockpitError(found.what, where=node, hint=hint, code=Exit.NODE_UNFIT)


def _no_launcher(job: Job, facts: FactsAnswer) -> Finding | None:
    module = {"deepspeed": "deepspeed", "torchrun": "torch"}.get(job.launcher)
    if module is None or getattr(facts, module):
        return None
    python = quote(facts.python)
    steps = Step(f"{python} -m pip install {module}", "try there"), Step("another --python")
    return _unfit(f"no_{module}", f"no {module} in {python}", *steps)


def _no_nsys(job: Job, facts: FactsAnswer) -> Finding | None:
    if not job.nsys or facts.nsys:
        return None
    what = "nsys is not on PATH, in CUDA's or in Nsight's folders"
    return _unfit("no_nsys", what, Step("--nsys PATH", "give its path"))


def _no_script(job: Job, facts: FactsAnswer) -> Finding | None:
    steps = Step("run from a folder that every node has"), Step("give --cwd DIR")
    return None if facts.script else _unfit("no_script", f"no {job.program[0]} in {job.cwd}", *steps)


def _no_room(job: Job, facts: FactsAnswer) -> Finding | None:
    if not job.nsys or facts.free_bytes >= REPORT_ROOM:
        return None
    what = f"{facts.free_bytes / 1e6:.0f} MB free for run folders, nsys needs {REPORT_ROOM / 1e6:.0f}"
    return _unfit("no_room", what, Step("free some"), Step("--node-dir DIR", "give another place"))


def _unfit(id: str, what: str, *steps: Step) -> Finding:
    return Finding(id, what, certainty="sure", steps=steps)


UNFIT = tuple(
    Rule(test.__name__[1:], ("job", "facts"), test) for test in (_no_launcher, _no_nsys, _no_script, _no_room)
)
"""Why a node may be unfit for a job; what has to be mended first is in front."""


def _base(link: Link, node_dir: str) -> str:
    """Where run folders go on a node; the last part is private to the user."""
    return os.path.join(node_dir, f"cockpit-{link.hello.uid}") if node_dir else link.hello.base


async def _master_address(first: str, links: Mapping[str, Link], roll: Roll) -> str:
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
    machines = {link.hello.boot_id for link in links.values()}
    reachable = [a for a in own if len(machines) == 1 or not ipaddress.ip_address(a).is_loopback]
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


def _spec(plan: NodePlan, link: Link, times: Times, node_dir: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "run": plan.run,
        "node": plan.node,
        "index": plan.index,
        "dir": os.path.join(_base(link, node_dir), plan.run, _folder_name(plan)),
        "script": launch_script(plan),
        "files": dict(plan.files),
        "env": dict(plan.secrets),
        "ranks": list(plan.ranks),
        "launcher": plan.launcher,
        "profile": {"nsys": plan.nsys, "report": plan.report} if plan.report else None,
        "grace_s": times.grace,
        "finalise_s": times.finalise,
    }


def _folder_name(plan: NodePlan) -> str:
    # Nodes may share a file system, or be one machine under several names.
    plain = all(c.isalnum() or c in "-_." for c in plan.node) and plan.node.isascii()
    return plan.node if plain else f"node-{plan.index}"
