"""From a job to a session: reach the nodes, ask what they have, write the manifest, launch."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cockpit.base import gate, secret
from cockpit.base.shell import quote
from cockpit.core.ranks import nodes_text, read_nodes
from cockpit.engine.launch.all_or_none import launch
from cockpit.engine.launch.code import keep_revision
from cockpit.engine.launch.environments import keep_beside
from cockpit.engine.launch.preflight import Diagnosis, Preflight
from cockpit.engine.launch.prepare import Prepared, Times, prepare
from cockpit.engine.launch.relaunch import AGAIN
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import PYTHONS, LinkPool
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.session import Listener, Session
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans.launch import LaunchJob
from cockpit.plans.script import plan_json
from cockpit.slurm import own_job
from cockpit.transport import hostkeys
from cockpit.transport.base import Reach, UnknownHostKey
from cockpit.transport.login_prompts import DESK
from cockpit.transport.registry import TRANSPORTS


@dataclass(frozen=True)
class Wanted:
    """What to launch, and how.

    :param hostfile: where its nodes were read from; empty: not from a file
    :param node_dir: folder on the nodes for run folders; empty: each node's own temporary folder
    :param failure_wait_s: seconds from a rank's failure to the stop of the rest
    :param command: the words a person typed for it, without secrets
    :param preflight: look at the nodes' condition meanwhile
    :param report: whether it gets a report by itself once it has ended
    :param git_diff: keep what tracked files differ from the commit by
    """

    job: LaunchJob
    hostfile: str
    reach: Reach = field(default_factory=Reach)
    node_dir: str = ""
    times: Times = field(default_factory=Times)
    on_failure: str = "stop"
    failure_wait_s: float = 30.0
    command: Sequence[str] = ()
    preflight: bool = True
    report: bool = False
    git_diff: bool = False


class Stages(Protocol):
    """Who is told how a start goes on."""

    def connecting(self, roll: Roll) -> None:
        """Links to all nodes are being opened; ``roll`` tells at any time who has answered."""

    async def trusts(self, keys: Sequence[UnknownHostKey]) -> bool:
        """Ask a person whether these host keys, which are not known, are the right ones."""

    def ready(self, notes: Sequence[str], preflight: Diagnosis) -> None:
        """All nodes are fit; ``notes`` says what is not as one might expect, ``preflight`` what differs."""

    def listener(self, folder: RunFolder) -> Listener:
        """Who listens to the session of the run whose folder was just made."""


async def start(request: Wanted, stages: Stages) -> Session:
    """Launch a job on all its nodes, or leave nothing behind.

    :return: the session, launched and not yet watched; the caller closes it
    :raises ManyErrors: one line for each node that cannot be reached, is unfit or refused
    """
    job = request.job
    DESK.reopen()  # whoever starts, or starts again, is there to be asked
    pythons = [*([job.python] if job.python else []), *PYTHONS]
    pool = LinkPool(pythons, request.reach)
    folder: RunFolder | None = None
    try:
        links = await _open(pool, [host.name for host in job.hosts], stages)
        links = await _wholly(pool, links, stages)
        pool.hosts = {name: link.hello.host for name, link in links.items()}
        seen = links if request.preflight else {}
        with closing(Preflight(job, seen, request.node_dir)) as preflight:
            prepared = await prepare(job, links, request.times, request.node_dir, pool.roll, preflight)
        caution = TRANSPORTS[pool.reach.kind].caution
        notes = [*pool.roll.take_remarks(), *([caution] if caution else []), *prepared.notes]
        stages.ready(notes, prepared.preflight)
        folder = RunFolder.create(_manifest(replace(request, reach=pool.reach), prepared, links, pythons))
        session = Session(folder, stages.listener(folder), pool=pool)
        session.secrets = {name: job.env[name] for name in job.secrets}
    except BaseException:
        await pool.close()
        if folder is not None:
            folder.discard()
        raise
    try:
        await launch(session, links, prepared.specs)
    except BaseException:
        await session.close()
        raise
    code = keep_revision(folder.path, job.cwd, diff=request.git_diff)
    session.accompany(code, "the revision of its code")
    session.accompany(keep_beside(session), "what its ranks were started with")
    return session


async def _open(pool: LinkPool, names: list[str], stages: Stages) -> dict[str, Link]:
    """Links to all nodes; unknown host keys of all of them are asked about at once."""
    asked: set[tuple[str, str]] = set()
    while True:
        pool.roll.call(names)
        stages.connecting(pool.roll)
        try:
            return await pool.open_all(names)
        except ManyErrors as error:
            keys = [each for each in error.errors if isinstance(each, UnknownHostKey)]
            new = {(key.entry, key.key): key for key in keys if (key.entry, key.key) not in asked}
            # Keys of nodes behind a jump host come up only once its own is trusted: hence the loop.
            if len(keys) < len(error.errors) or not new or not await stages.trusts(list(new.values())):
                raise
            asked.update(new)
            hostkeys.trust(new.values())


async def _wholly(pool: LinkPool, links: dict[str, Link], stages: Stages) -> dict[str, Link]:
    """Links to all nodes by steps of one SLURM job, if some were found to need that; else those there are.

    One step holds all supervisors of a run.

    :raises CockpitError: the nodes are in several jobs
    :raises ManyErrors: a line for each node that is not in the job
    """
    by_step = {name: link.transport.job for name, link in links.items() if link.transport.job}
    jobs = sorted(set(by_step.values()))
    if not jobs or pool.reach.kind == "srun":
        return links
    if len(jobs) > 1:
        what = f"the nodes are in several SLURM jobs ({', '.join(jobs)}); a run must be in one"
        hint = f"take the nodes of one of them: --slurm {jobs[0]}"
        raise CockpitError(what, hint=hint, code=Exit.NODE_UNFIT)
    reach = Reach("srun", {"job": jobs[0]})
    others = [name for name in links if name not in by_step]
    if not others:
        pool.reach = reach
        return links
    await pool.change(reach)
    try:
        return await _open(pool, list(links), stages)
    except ManyErrors as error:
        within = f"{nodes_text(by_step)} can be reached only through job {jobs[0]}"
        what = f"a run must have all its nodes in one SLURM job, or none: {within}"
        hint = f"leave the others out: --exclude {quote(nodes_text(others))}"
        raise ManyErrors([*error.errors, CockpitError(what, hint=hint, code=Exit.NODE_UNFIT)]) from None


def _manifest(request: Wanted, prepared: Prepared, links: dict[str, Link], pythons: list[str]) -> Manifest:
    job = request.job
    nodes = [
        NodeEntry(
            plan.node,
            prepared.specs[plan.node]["dir"],
            list(plan.ranks),
            links[plan.node].transport.kind,
            links[plan.node].hello.host,
            prepared.facts[plan.node],
        )
        for plan in prepared.plans
    ]
    profile: dict[str, Any] | None = prepared.specs[prepared.plans[0].node]["profile"]
    return Manifest(
        run=job.run,
        created=time.time(),
        nodes=nodes,
        launcher=job.launcher,
        program=secret.command(job.program, secret.values(job.env)),
        cwd=job.cwd,
        hostfile=request.hostfile and str(Path(request.hostfile).absolute()),
        pythons=pythons,
        profile=profile,
        probe=job.probe,
        nccl_debug=job.nccl_debug,
        on_failure=request.on_failure,
        failure_wait_s=request.failure_wait_s,
        transport=request.reach.kind,
        transport_options=request.reach.lasting,
        plans=[plan_json(plan) for plan in prepared.plans],
        command=list(request.command),
        allocation=allocation([node.host for node in nodes]),
        job_restart=job_restart(),
        again=again_of(),
        report=request.report,
    )


def job_restart() -> int:
    """How often SLURM has started the job that this shell is in anew; 0 also where it is in none."""
    number = os.environ.get("SLURM_RESTART_COUNT", "")
    return int(number) if own_job() and number.isascii() and number.isdigit() and len(number) < 10 else 0


def again_of() -> str:
    """The run that this one is once more, as whoever starts it says by :data:`AGAIN`; empty: none."""
    said = os.environ.get(AGAIN, "")
    return said if re.fullmatch(gate.RUN_NAME_RULE, said) else ""


def allocation(hosts: Sequence[str]) -> str:
    """The SLURM job that this shell is in, if any of these hosts is among its nodes; empty: there is none."""
    job, named = own_job(), os.environ.get("SLURM_JOB_NODELIST", "")
    if not job or not named:
        return job
    with suppress(CockpitError):
        names = {name.partition(".")[0] for name in read_nodes(named)}
        return job if any(host.partition(".")[0] in names for host in hosts) else ""
    return job
