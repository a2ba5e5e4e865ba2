"""What every node is asked before a launch, and what becomes of its answers."""

from __future__ import annotations

import os

from cockpit.base import verbs
from cockpit.base.answers import FactsAnswer, SeekAnswer
from cockpit.base.checkup_answers import CheckupAnswer
from cockpit.config import trusted_group
from cockpit.core.doctor.differences import DISTRIBUTIONS
from cockpit.core.doctor.node_checks import Look
from cockpit.engine.links.link import Link
from cockpit.errors import CockpitError
from cockpit.plans import setup
from cockpit.plans.launch import LaunchJob
from cockpit.plans.nodes import gpus
from cockpit.plans.profilers.registry import PROFILERS


def facts_request(job: LaunchJob) -> verbs.Facts:
    """What every node is asked for a launch of this job."""
    return verbs.Facts(
        job.cwd,
        setup.text(job.setup, job.path, job.conda),
        job.python or "",
        {made.tool: (job.profiler or made()).places for made in PROFILERS.values()},
        job.profiler.help if job.profiler else (),
        script_of(job),
        visible=job.env.get(gpus.VISIBLE),
        packages=DISTRIBUTIONS,
        group=trusted_group(),
    )


def script_of(job: LaunchJob) -> str:
    """The file that must be on every node; empty: the program is none."""
    return job.program[0] if job.program[0].endswith(".py") or "/" in job.program[0] else ""


def base_of(link: Link, node_dir: str) -> str:
    """Where run folders go on a node; the last part is private to the user."""
    return os.path.join(node_dir, f"cockpit-{link.hello.uid}") if node_dir else link.hello.base


def checkup_request(job: LaunchJob, parts: tuple[str, ...], base: str, limit_s: float) -> verbs.Checkup:
    """What a node is asked about its condition.

    :param base: the folder for run folders there
    """
    script = script_of(job)
    parts = tuple(part for part in parts if script or part != "code")
    return verbs.Checkup(parts, cwd=job.cwd, base=base, script=script, limit_s=limit_s)


def seen(
    link: Link,
    facts: FactsAnswer | None,
    condition: CheckupAnswer | None,
    ranks: SeekAnswer | None = None,
    errors: tuple[CockpitError, ...] = (),
) -> Look:
    """The look at a node from what it answered; its link has measured its clock when it was opened."""
    clock = link.clock
    known = clock.rtt_s < float("inf")
    return Look(
        machine=(ranks and ranks.machine) or link.hello.boot_id or link.hello.host,
        host=link.hello.host,
        uid=link.hello.uid,
        facts=facts,
        condition=condition or CheckupAnswer(),
        ranks=ranks,
        errors=errors,
        offset_s=clock.offset_s if known else None,
        rtt_s=clock.rtt_s if known else 0.0,
    )
