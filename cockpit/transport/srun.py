"""Nodes of a SLURM job, each by a step of its own in it (``srun --overlap``): no sshd is needed there.

As SLURM 22.05 behaves: a step ends with its srun, and where processes are tracked by cgroups nothing
outlives its step. Agents may end so; supervisors may not: see :func:`holding`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cockpit import slurm
from cockpit.base.shell import quote_posix
from cockpit.errors import CockpitError
from cockpit.transport.base import ConnectStage, HeldCommand, LinkError, Pipe, Reclaimed, Tail, Transport
from cockpit.transport.child import ChildTransport
from cockpit.transport.local import LocalTransport

AT_ONCE = 8
"""Steps of one cockpit that are being created at a time: all of them ask one controller."""

CREATION_S = 5.0
"""A step that says nothing for longer makes room for the next one."""

STEPS = 40_000
"""SLURM's own default of MaxStepCount: steps that a job can have in all."""

SHARE = 0.5
"""Of a job's steps, how many one cockpit takes at most: the rest is for what runs in the job."""

NEAR = 0.8
"""Of that share, after how much it says so."""

RETRY_S = 60.0
"""Least seconds between two steps for one node: each try counts towards the job's MaxStepCount."""

SCRIPT_S = 60
"""Seconds for the script of a node to appear."""

KILL_WAIT_S = 30
"""SLURM's own default of KillWait."""


def job_of(options: Mapping[str, str]) -> str:
    """The job whose nodes are meant.

    :raises CockpitError: none is
    """
    job = options.get("job", "")
    if not (job.isascii() and job.isdigit()):
        raise CockpitError(
            f"no SLURM job: {job!a}" if job else "which SLURM job?",
            where="--slurm",
            hint="give its number, as squeue --me prints it",
        )
    return job


def typed(options: Mapping[str, str], node: str) -> tuple[str, ...]:
    """What a person types before a command to run it on one node of the job."""
    return ("srun", "--overlap", f"--jobid={job_of(options)}", "-w", node, "-N1", "-n1", *more_words(options))


def more_words(options: Mapping[str, str]) -> list[str]:
    """The user's own options for srun: a container, for example.

    :raises CockpitError: they are none
    """
    try:
        words = shlex.split(options.get("args", ""))
    except ValueError as error:
        raise CockpitError(f"cannot be split into words: {error}", where="--srun-args") from None
    # srun takes the first word that is no option for the command.
    if words and not words[0].startswith("-"):
        raise CockpitError(f"not an option of srun: {words[0]!a}", where="--srun-args")
    return words


def holding(options: Mapping[str, str], scripts: Mapping[str, str]) -> HeldCommand:
    """Run one shell script on each node, all in one step, which lasts as long as they do.

    A failure of one, or of a node, ends none of the others.

    :param scripts: absolute path of the script on each node; it may appear up to :data:`SCRIPT_S` later
    """
    quoted = ((quote_posix(node), quote_posix(path)) for node, path in scripts.items())
    cases = "".join(f"{node}) s={path};; " for node, path in quoted)
    wait = f'n=0; until [ -e "$s" ] || [ $((n += 1)) -gt {SCRIPT_S * 10} ]; do sleep 0.1; done'
    first = '[ "$SLURM_PROCID" != 0 ] || echo "cockpit: step $SLURM_JOB_ID.$SLURM_STEP_ID"'
    script = f'{first}; case $SLURMD_NODENAME in {cases}esac; {wait}; exec /bin/sh "$s"'
    words = (
        *("srun", "--overlap", f"--jobid={job_of(options)}", f"--nodelist={','.join(scripts)}"),
        *(f"--nodes={len(scripts)}", f"--ntasks={len(scripts)}", "--ntasks-per-node=1"),
        *("--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--chdir=/", "--job-name=cockpit"),
        *more_words(options),
        *("/bin/sh", "-c", script),
    )
    share_of(job_of(options)).take(", ".join(scripts))
    env = {**slurm.environment(), **_element(job_of(options))}
    return HeldCommand(words, env, float(slurm.setting("KillWait", KILL_WAIT_S)))


def _element(job: str) -> dict[str, str]:
    """Which element of an array a job is, in its own variables: srun sets all else of a job anew.

    This shell has them all if it is in that job; else the two that the controller knows for as long as the
    element lives, whatever has become of the others.
    """
    if os.environ.get("SLURM_JOB_ID") == job:
        return {name: value for name, value in os.environ.items() if name.startswith("SLURM_ARRAY_")}
    with suppress(CockpitError):  # it says nothing more, then
        return dict(
            zip(("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"), slurm.element(job) or (), strict=False)
        )
    return {}


class Share:
    """The steps of one job that this cockpit has taken, and may take."""

    def __init__(self, job: str) -> None:
        self.taken = 0
        self._job = job

    def take(self, node: str) -> str:
        """Count a step; what there is to say about it, once.

        :raises LinkError: there is none left
        """
        limit = int(slurm.setting("MaxStepCount", STEPS, now=True) * SHARE)
        if self.taken >= limit:
            what = f"this cockpit has used all its {limit:,} steps of SLURM job {self._job}"
            raise LinkError(f"{what}; to keep watching, leave and run: cockpit attach last", where=node)
        self.taken += 1
        if self.taken != int(limit * NEAR):
            return ""
        taken = f"this cockpit has taken {self.taken:,} of its {limit:,} steps of SLURM job {self._job}"
        return f"{taken}: connections are lost too often"


_shares: dict[str, Share] = {}
"""By job, for as long as this cockpit lives."""


def share_of(job: str) -> Share:
    """The steps of a job that are this cockpit's."""
    return _shares.setdefault(job, Share(job))


class _Step(ChildTransport):
    def __init__(self, node: str, options: Mapping[str, str], gate: asyncio.Semaphore) -> None:
        # Without the last one, what the agent writes arrives with its next newline only.
        words = (*typed(options, node), "--chdir=/", "--unbuffered", "/bin/sh", "-c")
        super().__init__("srun", node, words, slurm.environment())
        self.job = job_of(options)
        self._gate = gate

    async def open(self, command: str) -> Pipe:
        said = Tail()
        await self._gate.acquire()
        try:
            remark = share_of(self.job).take(self._node)
            self.progress.remark = remark or self.progress.remark
            self.progress.reach(ConnectStage.SHELL)
            pipe = await self._start(command, said, lambda _: refusal(said.text(), self._node, self.job))
        except BaseException:
            self._gate.release()
            raise
        created = asyncio.create_task(asyncio.wait_for(pipe.heard.wait(), CREATION_S))
        created.add_done_callback(self._created)
        return pipe

    def _created(self, waiting: asyncio.Task[Any]) -> None:
        """Make room for the next step, whether this one has begun, failed, or takes too long."""
        self._gate.release()
        if not waiting.cancelled():
            waiting.exception()


def refusal(said: str, node: str, job: str) -> LinkError | None:
    """What srun's own words say about the connection; None: nothing, its command has just ended.

    :param said: the end of what it wrote to stderr, in the words of SLURM 22.05
    """
    for piece, make in _REFUSALS.items():
        if piece in said:
            return make(node, job)
    return None


_REFUSALS: dict[str, Callable[[str, str], LinkError]] = {
    "Expired or invalid job": lambda node, job: Reclaimed(
        f"SLURM job {job} has ended", where=node, hint=f"how it ended: scontrol show job {job}", retry=False
    ),
    "Requested node configuration is not available": lambda node, job: LinkError(
        f"is not a node of SLURM job {job}", where=node, hint=f"its nodes: squeue -j {job}", retry=False
    ),
    "Access/permission denied": lambda node, job: LinkError(
        f"SLURM job {job} belongs to another user", where=node, hint="yours: squeue --me", retry=False
    ),
    "step limit": lambda node, job: LinkError(
        f"SLURM job {job} has had all the steps that MaxStepCount allows", where=node, retry=False
    ),
}


class SrunWays:
    """See :class:`cockpit.transport.base.Ways`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def to(self, node: str) -> Transport:
        """See :meth:`cockpit.transport.base.Ways.to`.

        :raises LinkError: SLURM has no nodes of such names
        """
        if node == self._options.get("here"):
            return LocalTransport(node)
        if "@" in node or ":" in node:
            raise LinkError("a node of a SLURM job has a plain name", where=node, retry=False)
        return _Step(node, self._options, self._gate)

    async def close(self) -> None:
        """There is nothing that they share."""
