"""Events: every kind of line of a run record and of our journal, with its fields and their bounds.

This is the one table of events. A node's run record holds the kinds of :data:`RECORD` and no others: it
speaks of its own ranks and processes, never of links, plans or other nodes. Those of :data:`OWN` are the
cockpit's.
"""

from __future__ import annotations

from typing import Any, ClassVar, Dict, List, NamedTuple, Optional, Tuple, Type

from cockpit.base import gate
from cockpit.base.evidence_file import FILE, REASONS
from cockpit.base.gate import (
    Definition,
    Digits,
    FieldKind,
    ListOf,
    Malformed,
    MapOf,
    Maybe,
    Number,
    Of,
    RowOf,
    Text,
    Whole,
    bound,
    maybe,
    plain,
    read,
)
from cockpit.base.progress.ring import LAST_STEPS, ProbeReport
from cockpit.base.shared_fields import LOG, PROFILE_ID, PROFILE_STEPS

CODE = Whole(-(1 << 31), 1 << 32)
SIGNAL = Whole(1, 255)
STARTS = Whole(0, 1 << 30)
RANK_SET = ListOf(gate.RANK, gate.RANK_LIMIT)
"""Ranks of any number of nodes."""
SAMPLES = "samples"
STEPS_A_SAMPLE = 512
"""Steps of a rank in one measurement: as many as its ring has room for."""


RECORD: Dict[str, Type[Fact]] = {}
"""What a supervisor writes down, by kind; times are on its node's clock."""

OWN: Dict[str, Type[Fact]] = {}
"""What the cockpit itself notes, by kind; times are on our clock."""


class Fact(Definition):
    """What an event says beside its time and its node.

    :param of: the table that a class of facts goes into, by its kind
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, *, of: Dict[str, Type[Fact]], kind: str) -> None:
        super().__init_subclass__()
        cls.kind = kind
        of[kind] = cls


# In a node's run record.


class SupervisorStarted(Fact, of=RECORD, kind="supervisor_started"):
    """first line"""

    pid: int = bound(gate.PID, 0)
    ticks: int = bound(gate.TICKS, 0)
    boot_id: str = bound(gate.WORD, "")
    run: str = maybe(gate.RUN_NAME)
    node: str = maybe(gate.NODE_NAME)
    ranks: Tuple[int, ...] = bound(gate.RANKS, ())
    format: int = bound(gate.COUNT, 0)
    host: str = bound(Text(255), "")
    umask: str = bound(gate.WORD, "")
    probe: str = bound(gate.WORD, "off")


class LauncherStarted(Fact, of=RECORD, kind="launcher_started"):
    """the launcher runs"""

    pid: int = bound(gate.PID, 0)


class RankStarted(Fact, of=RECORD, kind="rank_started"):
    """the wrapper started the training process"""

    rank: int = bound(gate.RANK)
    attempt: int = bound(STARTS, 0)
    local_rank: Optional[int] = maybe(gate.RANK)
    world_size: Optional[int] = maybe(Whole(0, gate.RANK_LIMIT))
    pid: Optional[int] = maybe(gate.PID)
    ticks: Optional[int] = maybe(gate.TICKS)
    wrapper: Optional[int] = maybe(gate.PID)
    parent: Optional[int] = maybe(gate.PID)
    max_restarts: int = bound(STARTS, 0)


class RankExited(Fact, of=RECORD, kind="rank_exited"):
    """`by`: `wrapper`, or `supervisor`, which inherited it; either `code` or `signal` is null; `oom_kills`:
    processes of its cgroup that the kernel killed for lack of memory while it ran; null: not known"""

    rank: int = bound(gate.RANK)
    attempt: int = bound(STARTS, 0)
    pid: Optional[int] = maybe(gate.PID)
    code: Optional[int] = maybe(CODE)
    signal: Optional[int] = maybe(SIGNAL)
    maxrss_kb: Optional[int] = maybe(gate.COUNT)
    utime_s: Optional[float] = maybe(gate.SECONDS)
    stime_s: Optional[float] = maybe(gate.SECONDS)
    by: str = bound(gate.WORD, "")
    oom_kills: Optional[int] = maybe(gate.COUNT)

    def __post_init__(self) -> None:
        """Refuse an end that is none."""
        if (self.code is None) == (self.signal is None):
            raise Malformed("expected either a code or a signal")


class RankLost(Fact, of=RECORD, kind="rank_lost"):
    """gone, and nobody saw its status; `by`: `supervisor`; `boot`: its node was booted anew; `agent`: there
    was nothing of it left"""

    rank: int = bound(gate.RANK)
    attempt: int = bound(STARTS, 0)
    pid: Optional[int] = maybe(gate.PID)
    why: str = bound(gate.SENTENCE, "")
    by: str = bound(gate.WORD, "")


class RankProbe(ProbeReport, Fact, of=RECORD, kind="rank_probe"):
    """the probe in a rank's process; `server`, `steps`, `phases`, `window`, `rendezvous`: why not; `handlers`
    it has; when its rendezvous began, and its process group was there"""


class EvidenceKept(Fact, of=RECORD, kind="evidence"):
    """what the ranks were doing was kept; `why`: `stall` (they have stood still `since`), `failure`, `asked`;
    in `file`: stacks of `stacks`, recorders of `recorders`; `text`: what is missing; no `file`: all of it;
    `over_s`: they went on after so long"""

    why: str = bound(Text(20, REASONS))
    file: str = bound(FILE, "")
    size: int = bound(gate.SIZE, 0)
    since: Optional[float] = maybe(gate.TIME)
    stacks: Tuple[int, ...] = bound(gate.RANKS, ())
    recorders: Tuple[int, ...] = bound(gate.RANKS, ())
    failed: Tuple[int, ...] = bound(gate.RANKS, ())
    text: str = bound(gate.SENTENCE, "")
    over_s: Optional[float] = maybe(gate.SECONDS)


class StepSample(Definition):
    """One step: its number; when it ended, unix seconds on the node's clock; how long it took, if known."""

    step: int = bound(gate.COUNT)
    t: float = bound(gate.TIME)
    seconds: Optional[float] = maybe(gate.SECONDS)


class RankSteps(Fact, of=RECORD, kind="rank_steps"):
    """the last steps that a rank's probe noted, each `step`, `t`, `seconds`; once all have ended"""

    rank: int = bound(gate.RANK)
    pid: int = bound(gate.PID)
    source: str = bound(Text(20), "")
    steps: Tuple[StepSample, ...] = bound(ListOf(Of(StepSample), LAST_STEPS), ())


class LauncherExited(Fact, of=RECORD, kind="launcher_exited"):
    """the launcher ended"""

    code: Optional[int] = maybe(CODE)
    signal: Optional[int] = maybe(SIGNAL)


class StopRequested(Fact, of=RECORD, kind="stop_requested"):
    """the supervisor begins to stop the run"""

    reason: str = bound(gate.SENTENCE, "")
    by: str = bound(gate.SENTENCE, "")
    grace_s: float = bound(gate.SECONDS, 0.0)


class Stage(Fact, of=RECORD, kind="stage"):
    """of a stop: `term`, `finalising`, `kill`, `sweep`"""

    stage: str = bound(gate.WORD)
    pids: Tuple[int, ...] = bound(ListOf(gate.PID, 1 << 16), ())
    text: str = bound(gate.SENTENCE, "")


class Report(Fact, of=RECORD, kind="report"):
    """state `writing`, `ready`, `imported`, `qdstrm` (not imported), `missing`"""

    name: str = bound(Text(255), "")
    size: int = bound(gate.SIZE, 0)
    state: str = bound(gate.WORD, "")
    text: str = bound(gate.SENTENCE, "")


class Survivor(Definition):
    """A process that no signal ended."""

    pid: int = bound(gate.PID, 0)
    name: str = bound(Text(255), "")
    state: str = bound(gate.WORD, "")


SURVIVORS = ListOf(Of(Survivor), 10_000)


class Survivors(Fact, of=RECORD, kind="survivors"):
    """processes that SIGKILL did not end: `pid name state`"""

    procs: Tuple[Survivor, ...] = bound(SURVIVORS, ())


class Note(Fact, of=RECORD, kind="note"):
    """a message for the user; `about`: `samples` if it says why there are no measurements; `see`: a command
    that shows the evidence it mentions"""

    text: str = bound(gate.SENTENCE, "")
    about: str = bound(gate.WORD, "")
    see: str = bound(gate.SENTENCE, "")


class Ended(Fact, of=RECORD, kind="ended"):
    """last line"""


# In our journal.


class Planned(Fact, of=OWN, kind="planned"):
    """first: the nodes with their ranks"""

    nodes: Dict[str, Tuple[int, ...]] = bound(MapOf(gate.NODE_NAME, gate.RANKS, 1 << 16))


class Launched(Fact, of=OWN, kind="launched"):
    """the node's supervisor was started"""

    dir: str = maybe(gate.PATH)


class LinkChanged(Fact, of=OWN, kind="link"):
    """`ok`, `stale` (tried again soon; `asks`: once a person wants it), `gone` (tried every minute); `here`:
    for a reason on this machine"""

    state: str = bound(Text(10, "connecting|ok|stale|gone"))
    why: str = bound(gate.SENTENCE, "")
    asks: bool = bound(gate.FLAG, False)
    here: bool = bound(gate.FLAG, False)


class ClockMeasured(Fact, of=OWN, kind="clock"):
    """the node's clock minus ours"""

    offset_s: float = bound(gate.SECONDS)
    rtt_s: float = bound(gate.SECONDS, 0.0)


class NodeSample(Definition):
    """A node, measured once; None is not known."""

    load: Optional[float] = maybe(Number(0, 1 << 40))
    cores: Optional[int] = maybe(Whole(0, 1 << 20))
    memory_bytes: Optional[int] = maybe(gate.SIZE)
    memory_total_bytes: Optional[int] = maybe(gate.SIZE)
    disk_free_bytes: Optional[int] = maybe(gate.SIZE)
    disk_total_bytes: Optional[int] = maybe(gate.SIZE)


class PhaseSample(Definition):
    """How long a step was in each of its phases (:mod:`cockpit.base.progress.phases`), microseconds."""

    input: Optional[int] = maybe(gate.COUNT)
    forward: Optional[int] = maybe(gate.COUNT)
    backward: Optional[int] = maybe(gate.COUNT)
    update: Optional[int] = maybe(gate.COUNT)

    @property
    def seconds(self) -> Tuple[Optional[float], ...]:
        """The same in seconds."""
        some = (self.input, self.forward, self.backward, self.update)
        return tuple(None if one is None else one / 1e6 for one in some)


class Progress(Definition):
    """How far a rank is, by the probe in it.

    :param source: what counts: ``deepspeed`` its ``global_steps``; ``optimizer`` from 1, as the program began
    :param age_s: since the end of its last step
    :param steps: those that ended since the measurement before, the oldest first
    :param phases: of each of these steps; empty: there are none
    """

    source: str = bound(Text(20))
    step: int = bound(gate.COUNT)
    age_s: float = bound(gate.SECONDS)
    step_s: Optional[float] = maybe(gate.SECONDS)
    steps: Tuple[StepSample, ...] = bound(ListOf(RowOf(StepSample), STEPS_A_SAMPLE), ())
    phases: Tuple[PhaseSample, ...] = bound(ListOf(RowOf(PhaseSample), STEPS_A_SAMPLE), ())

    def __post_init__(self) -> None:
        """Refuse phases of other steps."""
        if self.phases and len(self.phases) != len(self.steps):
            raise gate.Malformed("expected the phases of each step")

    def ends(self, last: float) -> List[float]:
        """When they ended, by when the last one did and how long each took: no clock that is set matters."""
        found = []
        for step in reversed(self.steps):
            found.append(last)
            last -= step.seconds or 0.0
        return found[::-1]


class RankSample(Definition):
    """A rank's process, measured once; ``cpu_percent`` is of one core."""

    cpu_percent: Optional[float] = maybe(Number(0, 1 << 40))
    rss_bytes: Optional[int] = maybe(gate.SIZE)
    threads: Optional[int] = maybe(gate.COUNT)
    children: Optional[int] = maybe(gate.COUNT)
    progress: Optional[Progress] = maybe(Of(Progress))
    held_bytes: Optional[int] = maybe(gate.SIZE)
    """What it and all that it has started hold, without files; not in each sample."""
    main_cpu_s: Optional[float] = maybe(Number(0, 1 << 36))
    """CPU time of its main thread, since it began; only of a rank without ``progress``, as is the next."""
    main_switches: Optional[int] = maybe(gate.COUNT)
    """How often that thread was given a processor."""


class MemorySample(Definition):
    """Memory with a limit, measured once; what the kernel can take back does not count as used.

    :param of: the path of the cgroup; empty: the machine
    :param ranks: who shares it
    """

    of: str = bound(Text(4096, cut=True))
    used_bytes: int = bound(gate.SIZE)
    limit_bytes: int = bound(Whole(1, gate.SIZE.most))
    ranks: Tuple[int, ...] = bound(gate.RANKS, ())


class DiskSample(Definition):
    """A file system that a run writes to, measured once; None is not known.

    :param path: where ranks work, or nsys records; empty: that of the run folder
    :param nsys_folder: in which nsys keeps there what it records; empty: not there
    :param nsys_bytes: how much it has recorded; None: in too many files to look at
    """

    path: str = bound(Text(4096, cut=True))
    free_bytes: int = bound(gate.SIZE)
    total_bytes: int = bound(gate.SIZE)
    free_files: Optional[int] = maybe(gate.SIZE)
    total_files: Optional[int] = maybe(gate.SIZE)
    nsys_folder: str = bound(Text(4096, cut=True), "")
    nsys_bytes: Optional[int] = maybe(gate.SIZE)


class GpuSample(Definition):
    """A GPU, measured once; what its driver refuses is None. ``processes`` are bytes by pid.

    :param errors: memory errors that were not corrected, since its driver was loaded; not in each sample
    :param slowed: what keeps its clocks down, in words; None: not known, or not in this sample
    :param xids: what its driver has reported since the sample before, by NVIDIA's numbers
    """

    index: int = bound(Whole(0, 1 << 16), 0)
    name: Optional[str] = maybe(Text(100, cut=True))
    utilisation_percent: Optional[float] = maybe(Number(0, 100))
    memory_bytes: Optional[int] = maybe(gate.SIZE)
    memory_total_bytes: Optional[int] = maybe(gate.SIZE)
    processes: Dict[int, Optional[int]] = bound(MapOf(Digits(gate.PID), Maybe(gate.SIZE), 10_000), {})
    errors: Optional[int] = maybe(gate.COUNT)
    slowed: Optional[Tuple[str, ...]] = maybe(ListOf(Text(40, cut=True), 8))
    xids: Tuple[int, ...] = bound(ListOf(Whole(0, 1 << 32), 64), ())


RANK_SAMPLES = MapOf(Digits(gate.RANK), Of(RankSample), gate.RANKS_A_NODE)
GPU_SAMPLES = ListOf(Of(GpuSample), 64)
MEMORY_SAMPLES = ListOf(Of(MemorySample), 64)
DISK_SAMPLES = ListOf(Of(DiskSample), 8)


class Sample(Fact, of=OWN, kind="sample"):
    """measurements, once a second; not kept"""

    sample: NodeSample = bound(Of(NodeSample))
    ranks: Dict[int, RankSample] = bound(RANK_SAMPLES, {})
    gpus: Tuple[GpuSample, ...] = bound(GPU_SAMPLES, ())
    memory: Tuple[MemorySample, ...] = bound(MEMORY_SAMPLES, ())
    disks: Tuple[DiskSample, ...] = bound(DISK_SAMPLES, ())


class Filling(Fact, of=OWN, kind="filling"):
    """memory (`of`: empty: the machine's, `GPU n`, a cgroup's) nears its limit, and is full at `full_at`;
    null: it no longer does; `ranks`: who grows, by bytes a second"""

    of: str = bound(Text(4096, cut=True))
    used_bytes: int = bound(gate.SIZE)
    limit_bytes: int = bound(gate.SIZE)
    full_at: Optional[float] = maybe(gate.TIME)
    bytes_s: float = bound(Number(0, 1 << 62), 0.0)
    over_s: float = bound(gate.SECONDS, 0.0)
    ranks: Dict[int, float] = bound(MapOf(Digits(gate.RANK), Number(0, 1 << 62), gate.RANKS_A_NODE), {})


class NoticeStep(Definition):
    """What to type; `node`: where, empty: here."""

    command: str = bound(Text(1000, cut=True))
    reason: str = bound(Text(300, cut=True), "")
    node: str = bound(Text(255), "")


class Notice(Fact, of=OWN, kind="notice"):
    """what rule `id` has seen (`of` what), `since` when, or from which `step` on; `due`: when that comes to
    pass; repeated each minute until it is `over`"""

    id: str = bound(gate.WORD)
    of: str = bound(Text(300, cut=True), "")
    what: str = bound(gate.SENTENCE, "")
    since: float = bound(gate.TIME, 0.0)
    due: Optional[float] = maybe(gate.TIME)
    evidence: Tuple[str, ...] = bound(ListOf(gate.SENTENCE, 8), ())
    certainty: str = bound(Text(10, "sure|likely|unsure"), "unsure")
    severity: str = bound(Text(10, "error|warning"), "warning")
    nodes: Tuple[str, ...] = bound(ListOf(gate.NODE_NAME, 1 << 16), ())
    ranks: Tuple[int, ...] = bound(gate.RANKS, ())
    steps: Tuple[NoticeStep, ...] = bound(ListOf(Of(NoticeStep), 8), ())
    over: bool = bound(gate.FLAG, False)
    step: Optional[int] = maybe(gate.COUNT)


class Saved(Fact, of=OWN, kind="saved"):
    """no step went on for so long before `step`, and a log named a checkpoint then"""

    step: int = bound(gate.COUNT)
    seconds: float = bound(gate.SECONDS)


class FoundStep(Definition):
    """What to do next; `node`: where to type it; `action`: the app's command that does the same."""

    command: str = bound(Text(1000, cut=True))
    reason: str = bound(Text(300, cut=True), "")
    node: str = bound(Text(255), "")
    action: str = bound(gate.WORD, "")


class SavedFinding(Definition):
    """A finding (:class:`cockpit.core.finding.Finding`) as it is kept: ``id`` is that of the verdict,
    ``rule`` the one that says what it means."""

    id: str = bound(gate.WORD)
    what: str = bound(gate.SENTENCE)
    ranks: Tuple[int, ...] = bound(RANK_SET, ())
    where: str = bound(gate.SENTENCE, "")
    detail: str = bound(gate.SENTENCE, "")
    evidence: Tuple[str, ...] = bound(ListOf(gate.SENTENCE, 16), ())
    certainty: str = bound(Text(10, "sure|likely|unsure"), "unsure")
    severity: str = bound(Text(10, "error|warning|info"), "error")
    nodes: Tuple[str, ...] = bound(ListOf(gate.NODE_NAME, 1 << 16), ())
    since: Optional[float] = maybe(gate.TIME)
    proof: str = bound(gate.WORD, "")
    steps: Tuple[FoundStep, ...] = bound(ListOf(Of(FoundStep), 16), ())
    rule: str = bound(Text(64), "")


class Watched(Fact, of=OWN, kind="watch"):
    """whether steps continue: `going`, after `still_s` without one; `quiet`: none `since` then; `stalled`:
    nor do ranks move, and `found` says who holds up the others; `blind`: nothing tells its steps, and `why`.
    `step`: the last one; `looking`: at all ranks, which was done `looks` times since, `total` times of this
    run, last when `looked`, and again at `next_at`; `waiting`: who waits for others; `snapshot`: its folder
    in `stacks`; `stuck`: of a stalled run, `sure` by a proof, `likely` after more than twice the longest time
    without a step that it has ended by itself (`before_s`, for `before_step`), else `waiting`; `ending`: no
    step is to follow, according to its log"""

    state: str = bound(Text(10, "going|quiet|stalled|blind"))
    since: float = bound(gate.TIME, 0.0)
    still_s: float = bound(gate.SECONDS, 0.0)
    step: Optional[int] = maybe(gate.COUNT)
    looking: bool = bound(gate.FLAG, False)
    looks: int = bound(gate.COUNT, 0)
    total: int = bound(gate.COUNT, 0)
    looked: Optional[float] = maybe(gate.TIME)
    next_at: Optional[float] = maybe(gate.TIME)
    found: Optional[SavedFinding] = maybe(Of(SavedFinding))
    waiting: Tuple[int, ...] = bound(RANK_SET, ())
    snapshot: str = bound(Text(255, r"(?!\.\.?\Z)[^/\0]*"), "")
    why: str = bound(gate.SENTENCE, "")
    stuck: str = bound(Text(10, "(sure|likely|waiting)?"), "")
    before_s: float = bound(gate.SECONDS, 0.0)
    before_step: Optional[int] = maybe(gate.COUNT)
    ending: bool = bound(gate.FLAG, False)


class Profiled(Fact, of=OWN, kind="profile"):
    """a profile by `profiler` (`torch`, `cpu`, `nsys`) is in `profiles`, under `number`: of `ranks`, `steps`
    steps from `first` on, or `seconds`; it has nothing of those `missing`; `cancelled`: who ended it early"""

    number: int = bound(gate.COUNT)
    id: str = bound(PROFILE_ID)
    profiler: str = bound(Text(10, "torch|cpu|nsys"))
    ranks: Tuple[int, ...] = bound(RANK_SET, ())
    missing: Tuple[int, ...] = bound(RANK_SET, ())
    first: Optional[int] = maybe(gate.COUNT)
    steps: int = bound(Whole(0, PROFILE_STEPS), 0)
    seconds: Optional[float] = maybe(gate.SECONDS)
    cancelled: str = bound(gate.SENTENCE, "")


class SupervisorGone(Fact, of=OWN, kind="supervisor_gone"):
    """the supervisor vanished without `ended`"""


class NodeLost(Fact, of=OWN, kind="node_lost"):
    """the run folder is gone, and so are the processes; `booted`: the node was booted anew; `taken`: it was
    lent, and has been taken back"""

    why: str = bound(gate.SENTENCE, "")
    booted: bool = bound(gate.FLAG, False)
    taken: bool = bound(gate.FLAG, False)


class Gap(Fact, of=OWN, kind="gap"):
    """`file` was shortened or replaced on its node: what our copy has from `at` on is from its new start;
    `lost`: bytes that are missing before, at least; null: not known; `of`: the path of the file, of a job
    that others started: its bytes are in `file` here"""

    file: str = bound(LOG)
    at: int = bound(gate.SIZE)
    lost: Optional[int] = maybe(gate.SIZE)
    of: str = bound(Text(4096, cut=True), "")


class Damaged(Fact, of=OWN, kind="damaged"):
    """so many lines of the node's run record make no sense and are ignored; not kept"""

    lines: int = bound(gate.COUNT)


class RankGone(Fact, of=OWN, kind="rank_gone"):
    """a rank of a job that others started is gone; nobody here can know how it ended"""

    rank: int = bound(gate.RANK)
    attempt: int = bound(STARTS, 0)
    pid: Optional[int] = maybe(gate.PID)
    why: str = bound(gate.SENTENCE, "")


class StopAsked(Fact, of=OWN, kind="stop_asked"):
    """a person, or the failure policy, asked to stop"""

    reason: str = bound(gate.SENTENCE, "")
    by: str = bound(gate.SENTENCE, "")
    hard: bool = bound(gate.FLAG, False)


class RestKept(Fact, of=OWN, kind="rest_kept"):
    """a person decided, after a failure, that the failure policy leaves alone what still runs"""


class JobEnded(Fact, of=OWN, kind="job_ended"):
    """whoever lent the nodes, such as SLURM, has ended the run, and why; not `final`: it is asked again"""

    why: str = bound(gate.SENTENCE, "")
    final: bool = bound(gate.FLAG, True)


class Complete(Fact, of=OWN, kind="complete"):
    """the node ended, and all its bytes are here"""


class Left(Fact, of=OWN, kind="left"):
    """the cockpit left, the run continues"""


ABOUT_RANKS = (RankStarted, RankExited, RankLost, RankProbe, RankSteps, RankGone)
"""Facts about one rank."""


class RecordLine(NamedTuple):
    """One line of a run record or of a journal: unix seconds, and what it says."""

    t: float
    fact: Fact

    def as_json(self) -> Dict[str, Any]:
        """The line as a JSON object; :func:`read_line` is the way back."""
        return dict({"t": self.t, "e": self.fact.kind}, **plain(self.fact))


def read_line(value: Any, known: Dict[str, Type[Fact]]) -> Optional[RecordLine]:
    """A parsed line, by a table of kinds; None for a kind that the table does not have.

    :raises Malformed: it is no line, or a field is not what it should be
    """
    if not isinstance(value, dict):
        raise Malformed("expected an object")
    kind = value.get("e")
    if not isinstance(kind, str) or "t" not in value:
        raise Malformed("no time or no kind")
    t = gate.TIME.read(value["t"])
    fact = known.get(kind)
    return None if fact is None else RecordLine(t, read(fact, value))


class RecordLines(Definition):
    """Lines of a run record.

    :param bad: how many more make no sense
    """

    lines: Tuple[RecordLine, ...] = ()
    bad: int = 0


class Recorded(FieldKind):
    """A list of at most ``most`` lines of a run record; bad ones are counted, unknown ones passed over."""

    most: int

    def read(self, value: Any) -> RecordLines:
        """See :meth:`cockpit.base.gate.FieldKind.read`."""
        if not isinstance(value, list) or len(value) > self.most:
            raise Malformed("expected a list of at most %d lines" % self.most)
        found, bad = [], 0
        for each in value:
            try:
                line = read_line(each, RECORD)
            except Malformed:
                bad += 1
            else:
                if line is not None:
                    found.append(line)
        return RecordLines(tuple(found), bad)
