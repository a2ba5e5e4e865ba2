"""Why a run in a SLURM job was ended: what its step's own words say, and what the controller knows.

The words of slurmstepd and srun are those of SLURM 22.05; newer versions add ``DUE TO SIGNAL …`` to a plain
``CANCELLED`` (from its source).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from cockpit import slurm
from cockpit.errors import CockpitError
from cockpit.transport.srun import job_of

_CANCELLED = re.compile(
    r"\*\*\* (?:STEP|JOB) (?P<id>[0-9.]{1,21}) ON \S{1,255} CANCELLED AT \S{1,40}"
    r"(?: DUE TO (?P<due>[^*\n]{1,99}?))? \*\*\*",
    re.IGNORECASE,
)
_FAILED_NODE = re.compile(r"Node failure on ([A-Za-z0-9_.\-\[\],]{1,255})")
_TASK = re.compile(r"\btasks? [0-9]")
_FIELD = re.compile(r"(?:^|\s)(JobState|TimeLimit|Restarts|ExitCode|PreemptTime)=(\S{1,99})")

_DUE = {
    "TIME LIMIT": "limit",
    "PREEMPTION": "preempted",
    "JOB REQUEUE": "requeued",
    "NODE FAILURE": "node",
}

_STATES = {
    "TIMEOUT": "limit",
    "PREEMPTED": "preempted",
    "REQUEUED": "requeued",
    "NODE_FAIL": "node",
    "BOOT_FAIL": "node",
    "CANCELLED": "cancelled",
    "COMPLETED": "over",
    "FAILED": "over",
    "OUT_OF_MEMORY": "memory",
    "DEADLINE": "deadline",
}

_WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING", "RUNNING")


class StepMessage(NamedTuple):
    """What the step's own words say.

    :param why: ``limit``, ``preempted``, ``requeued``, ``node``, or for no reason ``cancelled``
    :param step: the step they are about, like ``12.3``
    :param nodes: which have failed, if one has
    """

    why: str
    step: str
    nodes: str = ""


def told(said: str) -> StepMessage | None:
    """Read what srun has said; None: nothing of an end that SLURM brought about."""
    found = _CANCELLED.search(said)
    if found is None:
        return None
    due = (found["due"] or "").upper()
    why = next((why for words, why in _DUE.items() if due.startswith(words)), "cancelled")
    failed = _FAILED_NODE.search(said) if why == "node" else None
    return StepMessage(why, found["id"], failed[1] if failed else "")


def sentence(job: str, words: StepMessage | None, state: Mapping[str, str]) -> str:
    """Why the run has ended, for a person; empty: not because of SLURM, as far as is known.

    :param state: the fields that the controller gives the job; none: it was not asked, or does not say
    """
    known = state.get("JobState", "")
    why = _reason(words, state)
    again = ", and queued it again" if known in _WAITS and state.get("Restarts", "0") != "0" else ""
    limit = f" ({state['TimeLimit']})" if "TimeLimit" in state else ""
    step = "" if words is None else words.step
    nodes = "one of its nodes" if words is None or not words.nodes else words.nodes
    sentences = {
        "limit": f"SLURM ended job {job} at its time limit{limit}",
        "preempted": f"SLURM preempted job {job} for another one{again}",
        "requeued": f"SLURM ended job {job} to queue it again (requeue)",
        "node": f"SLURM ended job {job}{again}: {nodes} failed",
        "cancelled": f"SLURM job {job} was cancelled (scancel)",
        "over": f"SLURM job {job} is over: its script, or the salloc that made it, has ended",
        "memory": f"SLURM ended job {job}: it was out of memory",
        "deadline": f"SLURM ended job {job} at its deadline",
        "step": f"step {step}, which held the run, was cancelled; SLURM job {job} continues",
        "unclear": f"SLURM cancelled step {step}, which held the run",
    }
    return sentences.get(why, "")


def _reason(words: StepMessage | None, state: Mapping[str, str]) -> str:
    """The end in a word; empty: not because of SLURM, as far as is known."""
    if words is not None and words.why != "cancelled":
        return words.why
    known = state.get("JobState", "")
    if known not in _STATES and state.get("PreemptTime", "None")[:1].isdigit():
        return "preempted"  # with time to end by itself, in which it still runs
    if known in _WAITS and words is not None and state.get("Restarts", "0") != "0":
        return "requeued"
    return _STATES.get(known, "" if words is None else _plain(state))


def _plain(state: Mapping[str, str]) -> str:
    """What a cancellation without a reason is: of the step, or of a job that is not quite over yet."""
    if state.get("JobState") in ("RUNNING", "SUSPENDED"):
        return "step"
    return "cancelled" if state.get("ExitCode", "").endswith(":15") else "unclear"


def ending(options: Mapping[str, str], said: str, *, ask: bool, gone: str = "") -> tuple[str, bool]:
    """See :class:`cockpit.transport.registry.Ending`.

    :raises CockpitError: the options name no job
    """
    job = job_of(options)
    words = told(said)
    state = _state(job) if ask else None
    found = sentence(job, words, state or {})
    # Of tasks that ended one by one it would have spoken.
    if not found and gone and not _TASK.search(said):
        found = f"the srun that held the run was killed ({gone}), and with it its step in SLURM job {job}"
        return found, True
    plain = words is None or words.why == "cancelled"
    # A job that SLURM has forgotten gets no other state any more.
    settled = state is not None and (not state or _reason(words, state) != "unclear")
    return found, settled or not plain


def _state(job: str) -> dict[str, str] | None:
    """What the controller says of a job now; nothing: it has forgotten it; None: it does not answer."""
    try:
        answer = slurm.show_job(job, fresh=True)
    except CockpitError:
        return None
    # Of an array, the element that has its number comes among all others.
    lines = [line for line in answer.out.splitlines() if line.startswith(f"JobId={job} ")]
    if not lines and answer.status and "Invalid job id" not in answer.said:
        return None
    return fields(lines[0] if lines else "")


def fields(text: str) -> dict[str, str]:
    """What ``scontrol --oneliner show job`` says of its end; a person's text comes after SLURM's own."""
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(text):
        found.setdefault(name, value)
    return found
