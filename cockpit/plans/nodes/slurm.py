"""The nodes of a SLURM job: asked of ``scontrol``, whose output SLURM 22.05 prints so; see its man page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cockpit import slurm
from cockpit.core.ranks import MAX_HOSTS, expand, set_words
from cockpit.errors import CockpitError, Exit
from cockpit.plans.nodes.hostfile import MAX_SLOTS, Host

MAX_STEPS = 1000
"""Steps of a job that are read."""

_STEP = re.compile(r"(?:[0-9]{1,10}|batch|extern|interactive)\Z")
_OF_JOB = re.compile(
    r"StepId=(?P<job>[0-9]{1,10})\.(?P<step>\w{1,20}) .{0,1000}? Name=(?P<name>.*?)(?: Network=|\Z)"
)
_OWN = re.compile(r"JobId=([0-9]{1,10})\s")
_HET = re.compile(r"JobId=[0-9]{1,10} HetJobId=")
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z/:]*)=(\S*)")
_PART = re.compile(r"(?:^|\s)Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GPUS = re.compile(r"(?:^|,)gpu(?::[A-Za-z][^:,()]*)?:([0-9]{1,4})(?:\(|,|\Z)")
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SUSPENDED")


def read(job: str) -> tuple[Host, ...]:
    """The nodes of a running job, with a slot for each GPU it has there, else for each task it asked for.

    GPUs come first: a job for a launcher asks for one task a node, which starts a rank for each of them.

    :param job: its number, like ``123``, or that of an element of an array, like ``123_4``
    :raises CockpitError: no such job, none of ours, it has no nodes, or SLURM does not answer
    """
    if not job:
        hint = "give its number, as `squeue --me` prints it: --slurm JOBID"
        raise CockpitError("this shell is in no SLURM job", where="--slurm", hint=hint)
    if "+" in job:
        raise _heterogeneous(f"--slurm {job}")
    if not slurm.is_job(job):
        raise CockpitError(f"no SLURM job: {job!a}", where="--slurm", hint="write it as 123 or 123_4")
    return parse(_asked(job), job, os.getuid())


def _heterogeneous(where: str) -> CockpitError:
    hint = "name its components' nodes with -w, and reach them over ssh"
    return CockpitError("heterogeneous jobs are not supported", where=where, hint=hint)


def number(job: str) -> str:
    """A job's own number: srun takes no element of an array, like ``123_4``.

    :raises CockpitError: no such job, or SLURM does not answer
    """
    if "_" not in job or not slurm.is_job(job):
        return job
    found = _OWN.match(_asked(job))
    if found is None:
        raise CockpitError("SLURM does not say its number", where=f"job {job}", hint="give it: squeue --me")
    return found[1]


def _asked(job: str) -> str:
    where = f"job {job}"
    answer = slurm.show_job(job)
    if not answer.out and "Invalid job id" in answer.said:
        raise CockpitError("no such job", where=where, hint="see: squeue --me")
    if not answer.out:
        said = " ".join(answer.said.split())[:300]
        what = f"scontrol failed: {said or f'status {answer.status}'}"
        raise CockpitError(what, where=where, hint="try: scontrol ping", code=Exit.NODE_UNFIT)
    return answer.out


def split(word: str) -> tuple[str, str]:
    """A job, and a step of it if one is named: ``12.3``, ``12_4.3``, ``12.batch``.

    :raises CockpitError: it is neither
    """
    job, dot, step = word.partition(".")
    if dot and not _STEP.match(step):
        what = f"not a SLURM step: {word!a}"
        raise CockpitError(what, where="--slurm", hint="write it as 123.0, as squeue --me -s prints it")
    return job, step


def steps(job: str) -> dict[str, str]:
    """The names of a job's steps that run, by their numbers.

    :param job: its own number
    :raises CockpitError: SLURM is not here, or does not answer
    """
    found = {}
    for line in slurm.show_steps(job).out.splitlines()[:MAX_STEPS]:
        if (step := _OF_JOB.match(line)) is not None and step["job"] == job:
            found[step["step"]] = step["name"]
    return found


def parse(text: str, job: str, uid: int) -> tuple[Host, ...]:
    """The nodes in ``scontrol --oneliner --details show job``.

    :param job: how a person named it
    :param uid: whose it must be
    :raises CockpitError: it is not one job with nodes of that user
    """
    where = f"job {job}"
    found = text.strip().splitlines()
    if any(map(_HET.match, found)):
        raise _heterogeneous(where)
    if len(found) > 1:
        hint = f"name one element, like {job}_0: squeue --me --array"
        raise CockpitError(f"is an array of {len(found)} jobs", where=where, hint=hint)
    # A comment or a path of the job's owner may look like any field, but SLURM's own come first; where its
    # name does, srun has the last word on whose job it is.
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(found[0] if found else ""):
        fields.setdefault(name, value)
    owner = re.search(r"\(([0-9]+)\)\Z", fields.get("UserId", ""))
    if owner is None or int(owner[1]) != uid:
        whose = fields.get("UserId", "") or "nobody"
        raise CockpitError(f"belongs to {whose!a}: its owner alone can start steps in it", where=where)
    state = fields.get("JobState", "")
    if state != "RUNNING":
        if state in _WAITS:
            what, hint = f"is {state} ({fields.get('Reason', '?')}): it has no nodes yet", f"squeue -j {job}"
        else:
            what, hint = f"has ended: {state or '?'}", "see: squeue --me"
        raise CockpitError(what, where=where, hint=hint, code=Exit.NODE_UNFIT)
    names = [name for piece in _pieces(fields.get("NodeList", "")) for name in expand(piece)]
    if not names or len(names) > MAX_HOSTS:
        raise CockpitError(f"invalid node list: {fields.get('NodeList', '')[:80]!a}", where=where)
    tasks, gpus = _tasks(fields), dict(_gpus(found[0]))
    return tuple(Host(name, tuple(range(gpus.get(name) or tasks))) for name in names)


def _pieces(nodes: str) -> Iterator[str]:
    """``gpu[01-02,05],login1`` at the commas outside of brackets."""
    return (piece for piece in set_words(nodes) if piece and piece != "(null)")


def _tasks(fields: dict[str, str]) -> int:
    """Tasks of each node that the job asked for, with ``--ntasks-per-node``."""
    number = fields.get("NtasksPerN:B:S:C", "").partition(":")[0]
    return min(int(number), MAX_SLOTS) if number.isdigit() and number.isascii() else 0


def _gpus(text: str) -> Iterator[tuple[str, int]]:
    """GPUs of the job on each node."""
    for nodes, resources in _PART.findall(text):
        number = sum(int(count) for count in _GPUS.findall(resources))
        for piece in _pieces(nodes):
            for name in expand(piece):
                yield name, min(number, MAX_SLOTS)
