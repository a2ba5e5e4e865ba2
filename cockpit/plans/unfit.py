"""Why a node is unfit for a launch: rules over what to launch and what the node answered."""

from __future__ import annotations

import re

from cockpit.base.answers import FactsAnswer
from cockpit.core.finding import RULE_FAILED, Finding, Rule, Step, findings
from cockpit.core.text import one_line
from cockpit.errors import CockpitError, Exit
from cockpit.plans.launch import LaunchJob, NodeFacts
from cockpit.plans.launchers import registry as launchers

CALLS = (3, 12)
"""The Python whose ``sys.monitoring`` notes calls without a cost for all others (PEP 669)."""


def _no_launcher(job: LaunchJob, facts: NodeFacts) -> Finding | None:
    return launchers.unfit(job, facts)


def _no_profiler(job: LaunchJob, facts: NodeFacts) -> Finding | None:
    return job.profiler.missing if job.profiler and not facts.profiler else None


def _no_switch(job: LaunchJob, facts: NodeFacts) -> Finding | None:
    return job.profiler.lacking(facts.switches)[0] if job.profiler else None


def _no_script(job: LaunchJob, answer: FactsAnswer) -> Finding | None:
    steps = Step("run from a folder that every node has"), Step("give --cwd DIR")
    what = f"no {job.program[0]} in {job.cwd}"
    return None if answer.script else Finding("no_script", what, certainty="sure", steps=steps)


def _no_folder(job: LaunchJob, answer: FactsAnswer) -> Finding | None:
    step = Step("--node-dir DIR", "give another place")
    what = one_line(answer.folder, limit=400)
    return Finding("no_folder", what, certainty="sure", steps=(step,)) if what else None


def _no_room(job: LaunchJob, answer: FactsAnswer) -> Finding | None:
    profiler = job.profiler
    room = profiler.room(max(map(job.started_on, job.hosts))) if profiler else 0
    if not profiler or answer.free_bytes >= room:
        return None
    needs = f"{profiler.name} needs {room / 1e6:.0f}"
    what = f"{answer.free_bytes / 1e6:.0f} MB free for run folders, {needs}"
    steps = Step("free some"), Step("--node-dir DIR", "give another place")
    return Finding("no_room", what, certainty="sure", steps=steps)


def _no_calls(job: LaunchJob, answer: FactsAnswer) -> Finding | None:
    version = re.match(r"(\d{1,3})\.(\d{1,3})", answer.python_version)
    if not job.calls or (version and tuple(map(int, version.groups())) >= CALLS):
        return None
    needed = ".".join(map(str, CALLS))
    what = f"--trace-calls needs Python {needed} (sys.monitoring), the ranks have {answer.python_version}"
    steps = Step("leave --trace-calls out"), Step("--python PATH", f"a Python {needed} with your packages")
    return Finding("no_calls", one_line(what), certainty="sure", steps=steps)


UNFIT = (
    Rule("no_launcher", ("job", "facts"), _no_launcher),
    Rule("no_profiler", ("job", "facts"), _no_profiler),
    Rule("no_switch", ("job", "facts"), _no_switch),
    Rule("no_script", ("job", "answer"), _no_script),
    Rule("no_folder", ("job", "answer"), _no_folder),
    Rule("no_room", ("job", "answer"), _no_room),
    Rule("no_calls", ("job", "answer"), _no_calls),
)
"""What has to be mended first is in front."""


def why_unfit(job: LaunchJob, facts: NodeFacts, answer: FactsAnswer | None = None) -> list[Finding]:
    """Why a node cannot launch this job; nothing: it is fit.

    :param answer: what else it answered; None: it was not asked
    """
    inputs = {"job": job, "facts": facts} | ({} if answer is None else {"answer": answer})
    return [found for found in findings(UNFIT, inputs) if found.id != RULE_FAILED]


def refusal(
    node: str, job: LaunchJob, facts: NodeFacts, answer: FactsAnswer | None = None
) -> CockpitError | None:
    """What has to be mended first on a node; None: it is fit."""
    for first in why_unfit(job, facts, answer)[:1]:
        hint = ", or ".join(": ".join(filter(None, (step.reason, step.command))) for step in first.steps)
        return CockpitError(first.what, where=node, hint=hint, code=Exit.NODE_UNFIT)
    return None
