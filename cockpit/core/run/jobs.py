"""Jobs, worked out from the ranks that nodes report: which rank is where, and which are missing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cockpit.base.answers import FoundRank, OtherJob, SeekAnswer, Stuck
from cockpit.core import inferred
from cockpit.core.expressions import Expression
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.ranks import nodes_text, ranks_named
from cockpit.core.text import counted, one_line
from cockpit.core.time_text import clock
from cockpit.errors import CockpitError, Exit

TEXT_LIMIT = 200
"""Characters shown of a text from a node."""

PROBLEMS = 20
"""Sentences about one job; more of them help nobody."""

APART_S = 600.0
"""Ranks of one launch start closer together than this, whatever the clocks of their nodes say."""

_NUMBERING = ("slurm", "mpi")
"""Launchers that name each job and number its processes across all its nodes."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class MainProcess:
    """A rank's main process.

    :param state: the letter of proc(5)
    :param python: its interpreter; empty if the wrapper has not started one yet
    :param container: it is in a different pid namespace from the agent that found it
    :param above: the processes above it, the nearest first
    :param attempt: how often its launcher has started it before
    :param command: its command line; started_by: that of its launcher
    :param ns_pid: its pid there
    :param inferred: how its number was found if its environment does not say it, a word of
        :data:`cockpit.core.inferred.WORDS`
    """

    node: str
    pid: int
    ticks: int
    local_rank: int | None = None
    state: str = ""
    started: float = 0.0
    python: str = ""
    container: bool = False
    above: tuple[int, ...] = ()
    attempt: int = 0
    command: str = ""
    started_by: str = ""
    ns_pid: int = 0
    inferred: str = ""
    local_size: int | None = None


@dataclass(frozen=True)
class Other:
    """Somebody else's processes on a node that look like a job's, and may not be inspected."""

    node: str
    user: str
    pid: int
    count: int
    command: str


@dataclass(frozen=True)
class Job:
    """Ranks that belong together.

    :param key: the same for the same job, whichever nodes are asked
    :param run: the run's name, if cockpit started it
    :param world: how many ranks it should have
    :param address: where its ranks meet; empty if only its launcher's name for it tells it from others
    :param name: its launcher's name for it, if nothing else tells it from others; may be empty
    :param problems: what does not fit together, one sentence each
    :param twice: ranks that several processes have, with the sentence among the problems
    """

    key: Key
    launcher: str
    run: str
    user: str
    command: str
    world: int
    address: str
    name: str
    ranks: dict[int, MainProcess] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    twice: dict[int, str] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        """The nodes it was found on."""
        return list(dict.fromkeys(found.node for found in self.ranks.values()))

    @property
    def started(self) -> float:
        """When its first rank was started, unix seconds."""
        return min(found.started for found in self.ranks.values())

    @property
    def missing(self) -> int:
        """Ranks it should have that were not found, as a mask."""
        return mask_of(range(self.world)) & ~mask_of(self.ranks)

    @property
    def title(self) -> str:
        """What people call it: ``deepspeed job at node1:29500, 4 ranks on 2 nodes, since 11:02``."""
        kind = "job" if self.launcher == "other" else f"{self.launcher} job"
        at = f" at {self.address}" if self.address else f" {self.name}" if self.name else ""
        of = f"{len(self.ranks)} of " if self.missing else ""
        run = f"run {self.run}, " if self.run else ""
        size = f"{of}{self._size} on {counted(len(self.nodes), 'node')}"
        return f"{run}{kind}{at}, {size}, since {clock(self.started, time.time(), '%H:%M')}"

    @property
    def _size(self) -> str:
        found = {found.inferred for found in self.ranks.values()} - {""}
        if inferred.UNKNOWN in found:
            return f"{self.world} processes"
        return counted(self.world, "inferred rank" if found else "rank")


class Jobs(list[Job]):
    """Every job that was found, and what else the nodes reported.

    :param others: jobs that we may not look at
    :param nodes: every node that answered
    :param programs: Python programs that we may not look at
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        others: Sequence[Other],
        nodes: Sequence[str],
        programs: Sequence[Other] = (),
    ) -> None:
        super().__init__(jobs)
        self.others = tuple(others)
        self.programs = tuple(programs)
        self.nodes = tuple(nodes)
        self.why: dict[str, str] = {}
        """By node, why a program that was named is no job there."""


class _Claim(NamedTuple):
    """A process that says it is this rank, and of which job."""

    rank: int
    attempt: int
    found: MainProcess
    job: Job


def group(answers: Mapping[str, SeekAnswer]) -> Jobs:
    """The jobs on some nodes, the newest first; of equally new ones, the largest first.

    :param answers: what each node said to ``seek``; of several names of one machine the first counts
    """
    claims: defaultdict[Key, list[_Claim]] = defaultdict(list)
    others: list[Other] = []
    programs: list[Other] = []
    stuck: list[str] = []
    seen: set[tuple[str, int, int]] = set()
    machines: set[str] = set()
    for node, answer in answers.items():
        machine = node if answer.machine is None else _text(answer.machine)
        for told in answer.ranks:
            claim = _claim(node, machine, told)
            process = (machine, claim.found.pid, claim.found.ticks)
            if process not in seen:
                seen.add(process)
                claims[claim.job.key].append(claim)
        if machine not in machines:
            others += [_other(node, one) for one in answer.others]
            programs += [_other(node, one) for one in answer.pythons]
            stuck += [_stuck(node, one) for one in answer.stuck]
        machines.add(machine)
    jobs = [_job(found, stuck) for found in claims.values()]
    # Minutes: the clocks of nodes differ, and ranks of one launch do not start at once.
    jobs.sort(key=lambda job: (-int(job.started // 60), -len(job.ranks), job.key))
    found = Jobs(jobs, others, list(answers), programs)
    found.why = {node: _text(answer.why) for node, answer in answers.items() if answer.why}
    return found


def within(answer: SeekAnswer, step: str) -> SeekAnswer:
    """What a node said, without the ranks of other jobs and steps of SLURM.

    :param step: ``12.3``; or ``12.``: all of a job, and what is in none; empty: all that there is
    """
    if not step:
        return answer
    whole = step.endswith(".")
    ranks = [
        rank
        for rank in answer.ranks
        if rank.step == step or (whole and (not rank.step or rank.step.startswith(step)))
    ]
    return replace(answer, ranks=tuple(ranks))


def choose(jobs: Sequence[Job], wanted: str = "", *, pid: int = 0, match: str = "") -> Job:
    """The one job that is meant.

    :param wanted: its number in the list, from 1, or a part of its title; empty: the only one
    :param pid: of one of its ranks, or of a process above one; 0: any
    :param match: a regular expression that the command line of a rank or its launcher has; empty: any
    :raises CockpitError: no job matches, or several do
    """
    why = jobs.why if isinstance(jobs, Jobs) and pid else {}
    if why and not has_named(jobs, pid, match):
        what = "; ".join(f"{node}: {reason}" for node, reason in why.items())
        hint = "--pid takes a rank, a process that started ranks, or a Python program"
        raise CockpitError(what, hint=hint, code=Exit.NODE_UNFIT)
    if not jobs:
        raise _none(jobs)
    jobs = _narrowed(jobs, pid, match)
    hits = list(jobs)
    if wanted.isdecimal() and len(wanted) < 5:
        hits = hits[int(wanted) - 1 : int(wanted)] if int(wanted) else []
    elif wanted:
        hits = [job for job in jobs if wanted in _described(job, True)]
    if len(hits) == 1:
        return hits[0]
    lines = _listed(jobs)
    if not wanted:
        raise CockpitError(f"{len(jobs)} jobs are running there; choose one:{lines}")
    what = f"{len(hits)} jobs have {wanted!r} in their title" if hits else f"there is no job {wanted!r}"
    raise CockpitError(f"{what}; choose one:{lines}")


def _narrowed(jobs: Sequence[Job], pid: int, match: str) -> list[Job]:
    """The jobs with this process and these words.

    :raises CockpitError: none has
    """
    found = list(jobs)
    if pid:
        found = _of_process(found, pid)
        if not found:
            what = f"process {pid} is neither a rank nor a parent of one; jobs there:{_listed(jobs)}"
            raise CockpitError(what, code=Exit.NODE_UNFIT)
    if match:
        hits = _with_words(found, Expression(match, where=f"--match {match}"))
        if not hits:
            what = f"no rank or launcher has {match!r} in its command line"
            raise CockpitError(f"{what}; the jobs there:{_listed(found)}", code=Exit.NODE_UNFIT)
        found = hits
    return found


def has_named(jobs: Sequence[Job], pid: int, match: str) -> bool:
    """Whether one of these jobs is meant by a process or words; True for words that are no pattern."""
    try:
        pattern = Expression(match)
    except CockpitError:
        return True
    found = _of_process(jobs, pid) if pid else list(jobs)
    return bool(_with_words(found, pattern))


def _of_process(jobs: Sequence[Job], pid: int) -> list[Job]:
    """The jobs of which a process is a rank, or above one; a program that nobody else started is its own."""
    found = [job for job in jobs if any(pid == one.pid for one in job.ranks.values())]
    return found or [job for job in jobs if any(pid in one.above for one in job.ranks.values())]


def _with_words(jobs: Sequence[Job], pattern: Expression) -> list[Job]:
    return [
        job
        for job in jobs
        if any(pattern.search(one.command) or pattern.search(one.started_by) for one in job.ranks.values())
    ]


def _listed(jobs: Sequence[Job]) -> str:
    users = len({job.user for job in jobs}) > 1
    return "".join(f"\n  --job {number}  {_described(job, users)}" for number, job in enumerate(jobs, 1))


def was_on(job: Job, rank: int) -> str:
    """The node on which a rank that is missing was started, if its neighbours there prove it; else empty.

    Launchers number the ranks of a node one after the other, and tell each how many there are.
    """
    nodes = set()
    for number, found in job.ranks.items():
        if found.local_size is None or found.local_rank is None or found.inferred:
            continue
        first = number - found.local_rank
        if 0 <= first <= rank < first + found.local_size:
            nodes.add(found.node)
    return nodes.pop() if len(nodes) == 1 else ""


def missing_text(job: Job) -> str:
    """Which ranks were not found, in words; empty: all were."""
    if not job.missing:
        return ""
    missing = list(ranks_of(job.missing))
    were = "was" if len(missing) == 1 else "were"
    return f"{ranks_named(missing)} {were} not found on {nodes_text(job.nodes)}"


# -- what a node says --------------------------------------------------------------------------------


def _claim(node: str, machine: str, told: FoundRank) -> _Claim:
    world = told.world_size or 0
    addr, port, name = _text(told.job.addr), _text(told.job.port), _text(told.job.id)
    run, user, launcher = _text(told.run), _text(told.user), _text(told.launcher)
    found = MainProcess(
        node,
        told.pid,
        told.ticks,
        told.local_rank,
        _text(told.state),
        told.started,
        _text(told.python),
        told.container,
        told.above,
        told.attempt,
        _text(told.command),
        _text(told.started_by),
        told.ns_pid,
        told.inferred,
        told.local_size,
    )
    address = f"{addr}:{port}" if addr and port else addr
    # They say nothing about another machine, or another container's network.
    here = f"{machine} {_text(told.net)}"
    numbered = launcher in _NUMBERING
    key: Key
    if run:
        key = ("run", run)
    elif name and (numbered or not (addr and port)):
        # Steps of one job have one address, and so have the jobs of an array.
        key = ("id", name, user, "" if numbered else here)
        address = ""
    elif addr and port:
        # How many there are on other nodes is not known of inferred ranks.
        size = "inferred" if told.inferred else str(world)
        key = ("at", addr, port, size, user, here if _is_loopback(addr) else "")
    else:
        key = ("here", launcher, str(world), user, "" if numbered else here)
    job = Job(key, launcher, run, user, _text(told.command), world, address, name)
    return _Claim(told.rank, told.attempt, found, job)


def _other(node: str, told: OtherJob) -> Other:
    return Other(node, _text(told.user), told.pid, told.count, _text(told.command))


def _stuck(node: str, told: Stuck) -> str:
    which = f"process {told.pid} ({_text(told.name)}, state {_text(told.state)})"
    return f"{which} on {node} can't be inspected: it holds the lock of its memory; it may be a rank"


def _text(value: str) -> str:
    return one_line(value, limit=TEXT_LIMIT)


def _is_loopback(addr: str) -> bool:
    return addr.startswith(("127.", "localhost")) or addr in ("::1", "0.0.0.0", "::")


# -- one job -----------------------------------------------------------------------------------------


def _job(claims: Sequence[_Claim], stuck: Sequence[str]) -> Job:
    """The job of these processes: what most of them say it is."""
    claims = _renumbered(claims)
    ranks: dict[int, MainProcess] = {}
    twice: dict[int, str] = {}
    by_rank: defaultdict[int, list[_Claim]] = defaultdict(list)
    for claim in claims:
        by_rank[claim.rank].append(claim)
    for rank, several in sorted(by_rank.items()):
        several.sort(key=lambda one: (one.attempt, one.found.started, one.found.ticks), reverse=True)
        ranks[rank] = several[0].found
        if len(several) > 1:
            twice[rank] = _twice(rank, several)
    problems = list(twice.values())
    sizes: defaultdict[int, set[int]] = defaultdict(set)
    for claim in claims:
        if claim.job.world:
            sizes[claim.job.world].add(claim.rank)
    if len(sizes) > 1:
        said = "; ".join(f"{size} ({ranks_named(found)})" for size, found in sorted(sizes.items()))
        problems.append(f"its ranks disagree on the world size: {said}")
    world = max(sizes) if sizes else max(ranks) + 1
    beyond = [rank for rank in ranks if rank >= world]
    if beyond:
        problems.append(f"{ranks_named(beyond)} cannot exist: it has {counted(world, 'rank')}")
    problems += inferred.sentences({rank: found.inferred for rank, found in ranks.items()})
    early = [rank for rank, found in ranks.items() if not found.python]
    if early:
        problems.append(f"no Python below the wrapper of {ranks_named(early)} yet")
    newest = max(found.started for found in ranks.values())
    old = [rank for rank, found in ranks.items() if newest - found.started > APART_S]
    if old:
        minutes = (newest - max(ranks[rank].started for rank in old)) // 60
        rest = f"{minutes:.0f} min before the others: left over from an earlier job?"
        problems.append(f"{ranks_named(old)} {'was' if len(old) == 1 else 'were'} started {rest}")
    first = max(claims, key=lambda one: (one.attempt, -one.rank))
    job = replace(first.job, world=world, ranks=ranks, problems=problems, twice=twice)
    if job.missing:
        problems += [missing_text(job), *stuck]
    if len(problems) > PROBLEMS:
        problems[PROBLEMS:] = [f"and {len(problems) - PROBLEMS} more"]
    return job


def _renumbered(claims: Sequence[_Claim]) -> Sequence[_Claim]:
    """The same; what is numbered within its node, and is on several, gets numbers that differ."""
    loose = [one for one in claims if one.found.inferred in (inferred.ON_NODE, inferred.UNKNOWN)]
    nodes = list(dict.fromkeys(one.found.node for one in loose))
    if len(nodes) < 2:
        return claims
    loose.sort(key=lambda one: (nodes.index(one.found.node), one.found.pid))
    told = [
        one._replace(
            rank=rank, found=replace(one.found, inferred=inferred.UNKNOWN), job=replace(one.job, world=0)
        )
        for rank, one in enumerate(loose)
    ]
    return [*told, *(one for one in claims if one not in loose)]


def _twice(rank: int, claims: Sequence[_Claim]) -> str:
    taken, *rest = (claim.found for claim in claims)
    said = ", ".join(f"process {found.pid} on {found.node}" for found in rest[:3])
    more = f" and {len(rest) - 3} more" if len(rest) > 3 else ""
    return (
        f"two processes claim rank {rank}: using process {taken.pid} on {taken.node}, ignoring {said}{more}"
    )


# -- words -------------------------------------------------------------------------------------------


def _none(jobs: Sequence[Job]) -> CockpitError:
    """Why there is no job, and what to do about it."""
    others, programs = (jobs.others, jobs.programs) if isinstance(jobs, Jobs) else ((), ())
    nodes = nodes_text(jobs.nodes) if isinstance(jobs, Jobs) and jobs.nodes else "these nodes"
    if theirs := others or programs:
        first = theirs[0]
        users = list(dict.fromkeys(one.user for one in theirs))[:5]
        which = f"process {first.pid} on {first.node}: {first.command}"
        may = f"only {' or '.join(dict.fromkeys((*users, 'root')))} may inspect it"
        if others:
            what = f"no job of yours on {nodes}, but of {', '.join(users)} ({which})"
            return CockpitError(what, hint=may, code=Exit.NODE_UNFIT)
        run = _run_python(users, programs)
        what = f"no job of yours on {nodes}; {', '.join(users)} {run} there ({which})"
        return CockpitError(what, hint=may, code=Exit.NODE_UNFIT)
    what = f"no job on {nodes}: no process was started with RANK and WORLD_SIZE, or those of MPI or Slurm"
    hint = (
        "ranks of torch.multiprocessing.spawn, notebooks, Ray, or scripts started on each node by hand are "
        "found once they connect to each other; to watch any other Python program: --pid N or --match REGEX"
    )
    return CockpitError(what, hint=hint, code=Exit.NODE_UNFIT)


def _run_python(users: Sequence[str], programs: Sequence[Other]) -> str:
    one = sum(program.count for program in programs) == 1
    return f"{'runs' if len(users) == 1 else 'run'} {'a Python program' if one else 'Python programs'}"


def _described(job: Job, users: bool) -> str:
    return f"{job.title}, of {job.user}" if users else job.title
