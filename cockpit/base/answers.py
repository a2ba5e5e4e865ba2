"""Answers: what an agent says to each request, with fields and bounds; the other half of the wire's table."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from cockpit.base import gate
from cockpit.base.events import (
    DISK_SAMPLES,
    GPU_SAMPLES,
    MEMORY_SAMPLES,
    RANK_SAMPLES,
    SURVIVORS,
    DiskSample,
    GpuSample,
    MemorySample,
    NodeSample,
    RankSample,
    Recorded,
    RecordLines,
    Survivor,
)
from cockpit.base.frames import MAX_PAYLOAD
from cockpit.base.gate import (
    Definition,
    Digits,
    ListOf,
    MapOf,
    Maybe,
    Number,
    Of,
    RowOf,
    Text,
    Whole,
    bound,
    maybe,
)
from cockpit.base.progress.past import ROW, ROWS, Stretch
from cockpit.base.shared_fields import (
    CALLERS,
    FILES_A_JOB,
    FILES_A_NODE,
    LOG,
    MARK,
    PACKAGE,
    PACKAGES_TOLD,
    REPORT_FILES,
    RUNS_TOLD,
    SIZES,
    Address,
    Caller,
    RunFacts,
    Target,
)

ADDRESSES = ListOf(Address(), 256)
_LINE = Text(4096, r"[^\0]*")
_HEX = Text(64, r"[0-9a-f]{64}")


class Nothing(Definition):
    """No fields."""


class Hello(Definition):
    """The agent's first frame."""

    version: str = bound(gate.WORD)
    format: int = bound(gate.COUNT)
    pid: int = bound(gate.PID)
    uid: int = bound(Whole(0, 1 << 32))
    host: str = bound(Text(255))
    machine: str = bound(gate.WORD)
    python: str = bound(gate.WORD)
    boot_id: str = bound(gate.WORD)
    t: float = bound(gate.TIME)
    base: str = bound(gate.PATH)
    booted: Optional[float] = maybe(gate.TIME)
    """When its first process began, on its clock; in a container that is the container's."""


class Trouble(Definition):
    """Why a request cannot be met."""

    kind: str = bound(gate.WORD)
    what: str = bound(Text(20_000, cut=True))
    hint: str = bound(gate.SENTENCE, "")


class PingAnswer(Definition):
    """`t`, the node's clock"""

    t: float = bound(gate.TIME)


class VisibleGpus(Definition):
    """The GPUs that a program of ours would see there.

    :param count: as the CUDA driver counts them
    :param visible: the CUDA_VISIBLE_DEVICES that it would get; None: not set
    :param why: why there are none
    """

    count: int = bound(Whole(0, 512))
    visible: Optional[str] = maybe(_LINE)
    why: str = bound(Text(200, cut=True), "")


SWITCHES = ListOf(Text(80, r"--?[A-Za-z0-9][A-Za-z0-9-]*"), 1000)
"""Options of a program, as its help names them."""


class PackagesAnswer(Definition):
    """folders of installed distributions; none: it is not known any more"""

    names: Tuple[str, ...] = bound(ListOf(PACKAGE, PACKAGES_TOLD), ())


class FactsAnswer(Definition):
    """python, version, cores, tools, deepspeed, torch, free bytes, why no run folder; how many distributions
    are installed, a hash of their names and versions; the NVIDIA driver; GPUs if asked for"""

    python: str = bound(gate.PATH)
    python_version: str = bound(gate.WORD)
    cores: Tuple[int, ...] = bound(ListOf(Whole(0, 1 << 16), 1 << 16))
    numactl: Optional[str] = maybe(gate.PATH)
    tools: Dict[str, str] = bound(MapOf(gate.WORD, _LINE, 100), {})
    switches: Tuple[str, ...] = bound(SWITCHES, ())
    script: bool = bound(gate.FLAG, True)
    deepspeed: Optional[str] = maybe(gate.WORD)
    no_ssh: bool = bound(gate.FLAG, False)
    torch: Optional[str] = maybe(gate.WORD)
    deepspeed_tool: Optional[str] = maybe(gate.PATH)
    torchrun_tool: Optional[str] = maybe(gate.PATH)
    accelerate: Optional[str] = maybe(gate.WORD)
    accelerate_tool: Optional[str] = maybe(gate.PATH)
    free_bytes: int = bound(gate.SIZE, 0)
    folder: str = bound(_LINE, "")
    gpus: Optional[VisibleGpus] = maybe(Of(VisibleGpus))
    packages: Dict[str, str] = bound(MapOf(gate.WORD, gate.WORD, 100), {})
    installed: int = bound(gate.COUNT, 0)
    installed_hash: str = bound(gate.WORD, "")
    driver: str = bound(gate.WORD, "")


class PortAnswer(Definition):
    """a free TCP port"""

    port: int = bound(Whole(1, 65535))


class ResolveAnswer(Definition):
    """its addresses as the node sees them, and the node's own"""

    addresses: Tuple[str, ...] = bound(ADDRESSES)
    own: Tuple[str, ...] = bound(ADDRESSES)


class LaunchAnswer(Definition):
    """the supervisor's pid, start time, boot id, folder"""

    pid: int = bound(gate.PID)
    ticks: int = bound(gate.TICKS)
    boot_id: str = bound(gate.WORD)
    dir: str = bound(gate.PATH)


class StopAnswer(Definition):
    """whether a supervisor carries it out; `sent`: what the ranks get; without a supervisor the run's
    processes were ended at once"""

    alive: bool = bound(gate.FLAG)
    survivors: Tuple[Survivor, ...] = bound(SURVIVORS, ())
    sent: str = bound(Text(4, "(?:TERM|KILL)?"), "")


class KeepAnswer(Definition):
    """whether there is a supervisor"""

    alive: bool = bound(gate.FLAG)


EVENTS_KEPT = 20_000
"""Lines of a run record in one answer."""


class Remains(Definition):
    """What runs of a run whose folder is gone.

    :param why: the folder cannot be read
    :param ranks: the training process of each rank that runs
    :param processes: some of all processes of the run
    """

    why: str = bound(gate.SENTENCE)
    ranks: Tuple[Target, ...] = bound(ListOf(Of(Target), gate.RANKS_A_NODE), ())
    processes: Tuple[Survivor, ...] = bound(SURVIVORS, ())


class StatusAnswer(Definition):
    """facts, events, whether the supervisor lives; `found`: what a dead supervisor did not record;
    without a run folder no `record`, but `gone`: what runs"""

    events: RecordLines = bound(Recorded(EVENTS_KEPT))
    record: Optional[RunFacts] = maybe(Of(RunFacts))
    alive: Optional[bool] = maybe(gate.FLAG)
    found: RecordLines = bound(Recorded(3 * gate.RANKS_A_NODE), RecordLines())
    gone: Optional[Remains] = maybe(Of(Remains))


class FoundRun(Definition):
    """A run folder."""

    dir: str = bound(gate.PATH)
    record: RunFacts = bound(Of(RunFacts))
    alive: Optional[bool] = maybe(gate.FLAG)


class RunsAnswer(Definition):
    """all our run folders, the newest first; how many `more` there was no room for"""

    runs: Tuple[FoundRun, ...] = bound(ListOf(Of(FoundRun), RUNS_TOLD, skip=True))
    more: int = bound(gate.COUNT, 0)


class KeptFolder(Definition):
    """A run folder, or what looks like one.

    :param id: the same for one folder, from whichever node it is seen
    :param owner: the user's name there; ``ours``: whether that is who asks
    :param record: null: there is none that can be read
    :param alive: whether its supervisor lives here; ``living``: processes that carry its tags
    :param ended: whether its end is on record
    :param bytes: of the disk; ``whole``: whether all of it was looked at
    :param idle_s: for how long nothing was written in it
    """

    dir: str = bound(gate.PATH)
    id: str = bound(Text(500))
    owner: str = bound(gate.WORD)
    ours: bool = bound(gate.FLAG)
    record: Optional[RunFacts] = maybe(Of(RunFacts))
    alive: Optional[bool] = maybe(gate.FLAG)
    living: int = bound(gate.COUNT, 0)
    ended: bool = bound(gate.FLAG, False)
    bytes: int = bound(gate.SIZE)
    whole: bool = bound(gate.FLAG)
    idle_s: float = bound(Number(0, 1 << 36))


class FoldersAnswer(Definition):
    """run folders, the newest first; how many `more` there was no room or time for"""

    folders: Tuple[KeptFolder, ...] = bound(ListOf(Of(KeptFolder), RUNS_TOLD, skip=True))
    more: int = bound(gate.COUNT, 0)


class RemoveAnswer(Definition):
    """whether the folder is `gone`, the `bytes` that were freed, why something is `left` of it, and whether
    asking again continues (`late`)"""

    gone: bool = bound(gate.FLAG)
    bytes: int = bound(gate.SIZE, 0)
    left: str = bound(gate.SENTENCE, "")
    late: bool = bound(gate.FLAG, False)


class FilePart(Definition):
    """Bytes of one file in the payload."""

    file: str = bound(LOG)
    offset: int = bound(gate.SIZE)
    length: int = bound(Whole(0, MAX_PAYLOAD))


class BegunFile(Definition):
    """A file that was shortened or replaced, and goes on from its start.

    :param end: how long it was before, at least; None: nobody saw that
    """

    file: str = bound(LOG)
    end: Optional[int] = bound(Maybe(gate.SIZE))


class FollowItem(Definition):
    """new bytes; `begun`: files that were shortened or replaced; `trouble`: why one cannot be read;
    `found`: what a dead supervisor did not record; `gone`: no run folder, but what runs"""

    parts: Tuple[FilePart, ...] = bound(ListOf(RowOf(FilePart), gate.RANKS_A_NODE + 3))
    sizes: Dict[str, int] = bound(SIZES)
    alive: Optional[bool] = maybe(gate.FLAG)
    found: RecordLines = bound(Recorded(3 * gate.RANKS_A_NODE), RecordLines())
    gone: Optional[Remains] = maybe(Of(Remains))
    begun: Tuple[BegunFile, ...] = bound(ListOf(RowOf(BegunFile), gate.RANKS_A_NODE + 3), ())
    trouble: Dict[str, str] = bound(MapOf(LOG, gate.SENTENCE, gate.RANKS_A_NODE + 3), {})


class SamplesItem(Definition):
    """node, ranks, GPUs; in some: memory and its limits, disks"""

    node: NodeSample = bound(Of(NodeSample))
    ranks: Dict[int, RankSample] = bound(RANK_SAMPLES, {})
    gpus: Tuple[GpuSample, ...] = bound(GPU_SAMPLES, ())
    memory: Tuple[MemorySample, ...] = bound(MEMORY_SAMPLES, ())
    disks: Tuple[DiskSample, ...] = bound(DISK_SAMPLES, ())


class PastItem(Definition):
    """rows of steps, the oldest first (`cockpit/base/progress/past.py`)"""

    rows: Tuple[Stretch, ...] = bound(ListOf(ROW, ROWS))


class EnvironAnswer(Definition):
    """the variables, without secrets; how many more there are"""

    environ: Dict[str, str] = bound(gate.VARIABLES)
    left_out: int = bound(gate.COUNT, 0)


PLACE = Text(4096, cut=True)


class Meeting(Definition):
    """Where the ranks of a job meet, or its launcher's name of it."""

    addr: str = bound(PLACE, "")
    port: str = bound(PLACE, "")
    id: str = bound(PLACE, "")


class FoundRank(Definition):
    """The main process of a rank.

    :param above: the processes above it, the nearest first
    :param started_by: the command line of its launcher
    :param local_size: how many ranks its launcher started on this node
    :param inferred: how its number was found if its environment does not say it
    """

    rank: int = bound(gate.RANK)
    world_size: Optional[int] = bound(Maybe(Whole(0, gate.RANK_LIMIT)))
    local_rank: Optional[int] = bound(Maybe(Whole(0, gate.RANK_LIMIT)))
    pid: int = bound(gate.PID)
    ticks: int = bound(gate.TICKS)
    state: str = bound(gate.WORD)
    job: Meeting = bound(Of(Meeting))
    run: str = bound(PLACE)
    user: str = bound(PLACE)
    launcher: str = bound(PLACE)
    command: str = bound(PLACE)
    started: float = bound(gate.TIME)
    attempt: int = bound(Whole(0, 1 << 30), 0)
    python: str = bound(PLACE, "")
    container: bool = bound(gate.FLAG, False)
    ns_pid: int = bound(gate.PID, 0)
    net: str = bound(PLACE, "")
    above: Tuple[int, ...] = bound(ListOf(gate.PID, 64), ())
    started_by: str = bound(PLACE, "")
    inferred: str = bound(Text(100, "[a-z_]*"), "")
    step: str = bound(PLACE, "")
    """Of a SLURM job, like ``12.3``; ``12.``: of its batch script; empty: it is in none."""
    local_size: Optional[int] = maybe(Whole(0, gate.RANK_LIMIT))


class OtherJob(Definition):
    """Processes of somebody else that look like a job's."""

    user: str = bound(PLACE)
    pid: int = bound(gate.PID)
    count: int = bound(gate.PID)
    command: str = bound(PLACE)


class Stuck(Definition):
    """A process that cannot be inspected."""

    pid: int = bound(gate.PID)
    name: str = bound(Text(255))
    state: str = bound(gate.WORD)


class SeekAnswer(Definition):
    """the ranks' main processes, jobs of other users, their other Python programs, processes that cannot be
    inspected; `why` a program that was named is not among them"""

    ranks: Tuple[FoundRank, ...] = bound(ListOf(Of(FoundRank), gate.RANKS_A_NODE))
    others: Tuple[OtherJob, ...] = bound(ListOf(Of(OtherJob), 1000), ())
    pythons: Tuple[OtherJob, ...] = bound(ListOf(Of(OtherJob), 1000), ())
    stuck: Tuple[Stuck, ...] = bound(ListOf(Of(Stuck), 1000), ())
    machine: Optional[str] = maybe(Text(255))
    why: str = bound(gate.SENTENCE, "")


class OpenFile(Definition):
    """A regular file that processes of a job write to.

    :param id: the same for one file, by whichever node or process it is seen
    :param ranks: the ranks of this node whose output gets there
    :param shared: others may write to it as well: a launcher passes on what it reads
    """

    id: str = bound(Text(500))
    path: str = bound(gate.PATH)
    device: int = bound(gate.SIZE)
    inode: int = bound(Whole(0, (1 << 64) - 1))
    size: int = bound(gate.SIZE)
    pid: int = bound(gate.PID)
    ticks: int = bound(gate.TICKS)
    fd: int = bound(gate.PID)
    ranks: Tuple[int, ...] = bound(gate.RANKS, ())
    shared: bool = bound(gate.FLAG, False)


class Launching(Definition):
    """The process that started ranks of a job; its command line is without secrets.

    :param below: how many processes are below it
    """

    pid: int = bound(gate.PID)
    ticks: int = bound(gate.TICKS)
    ranks: Tuple[int, ...] = bound(gate.RANKS)
    command: str = bound(PLACE, "")
    below: int = bound(gate.COUNT, 0)


class OutputsAnswer(Definition):
    """files, with the ranks that write there; why there is none for a rank; the launchers; `passed`: ranks
    whose output leaves the node; `callers`: by which connections;
    `contained`: ranks that write to a container's output"""

    files: Tuple[OpenFile, ...] = bound(ListOf(Of(OpenFile), FILES_A_NODE))
    why: Dict[int, str] = bound(MapOf(Digits(gate.RANK), gate.SENTENCE, gate.RANKS_A_NODE), {})
    launchers: Tuple[Launching, ...] = bound(ListOf(Of(Launching), gate.RANKS_A_NODE), ())
    cwd: str = bound(gate.PATH, "/")
    callers: Tuple[Caller, ...] = bound(CALLERS, ())
    passed: Tuple[int, ...] = bound(gate.RANKS, ())
    contained: Tuple[int, ...] = bound(gate.RANKS, ())


class AddedBytes(Definition):
    """Bytes of one file in the payload."""

    number: int = bound(Whole(0, FILES_A_JOB))
    offset: int = bound(gate.SIZE)
    length: int = bound(Whole(0, MAX_PAYLOAD))


class BegunOutput(Definition):
    """A file of a job that was shortened; see :class:`BegunFile`."""

    number: int = bound(Whole(0, FILES_A_JOB))
    end: Optional[int] = bound(Maybe(gate.SIZE))


class WatchItem(Definition):
    """new bytes and sizes by file; who lives; `begun`: files that were shortened; `marks` of what was sent;
    `trouble` with a file; files that their processes have `exchanged` for others"""

    parts: Tuple[AddedBytes, ...] = bound(ListOf(RowOf(AddedBytes), FILES_A_NODE))
    sizes: Dict[int, int] = bound(MapOf(Digits(Whole(0, FILES_A_JOB)), gate.SIZE, FILES_A_NODE))
    ranks: Tuple[int, ...] = bound(gate.RANKS)
    launchers: Tuple[int, ...] = bound(ListOf(gate.PID, gate.RANKS_A_NODE), ())
    begun: Tuple[BegunOutput, ...] = bound(ListOf(RowOf(BegunOutput), FILES_A_NODE), ())
    marks: Dict[int, int] = bound(MapOf(Digits(Whole(0, FILES_A_JOB)), MARK, FILES_A_NODE), {})
    trouble: Dict[int, str] = bound(MapOf(Digits(Whole(0, FILES_A_JOB)), gate.SENTENCE, FILES_A_NODE), {})
    exchanged: Tuple[int, ...] = bound(ListOf(Whole(0, FILES_A_JOB), FILES_A_NODE), ())


class EndAnswer(Definition):
    """how many processes there were, and which of them live"""

    count: int = bound(gate.COUNT)
    survivors: Tuple[Survivor, ...] = bound(SURVIVORS, ())


class SpyAnswer(Definition):
    """whether there is a py-spy: the node's own, or the one that was sent"""

    ready: bool = bound(gate.FLAG)


class StacksItem(Definition):
    """payload: packed dumps of the ranks that are ready"""


class StacksAnswer(Definition):
    """all ranks are through"""


class NotedCall(Definition):
    """One call.

    :param age_s: how long ago it began
    :param main: whether in the main thread
    """

    age_s: float = bound(gate.SECONDS)
    main: bool = bound(gate.FLAG)
    name: str = bound(Text(200, cut=True))
    file: str = bound(Text(1000, cut=True))
    line: int = bound(gate.COUNT)


class RankCalls(Definition):
    """`pid`: of the process that noted them; `why`: why it notes none, or no more"""

    rank: int = bound(gate.RANK)
    pid: int = bound(gate.PID)
    why: str = bound(gate.SENTENCE, "")
    calls: Tuple[NotedCall, ...] = bound(ListOf(RowOf(NotedCall), 100), ())


class CallsAnswer(Definition):
    """of those that note any"""

    ranks: Tuple[RankCalls, ...] = bound(ListOf(Of(RankCalls), gate.RANKS_A_NODE), ())


class RecorderItem(Definition):
    """one rank; payload: its packed traces, so many bytes each

    :param at: when its recorder was asked, on the node's clock
    :param source: ``server``, or ``file``: what was written before the rank ended
    :param handlers: what its server can be asked for
    :param kind: why there is none, one word; empty: there is; ``what``: in a sentence
    """

    rank: int = bound(gate.RANK)
    at: float = bound(gate.TIME)
    source: str = bound(gate.WORD, "")
    handlers: Tuple[str, ...] = bound(ListOf(gate.WORD, 1000), ())
    lengths: Tuple[int, ...] = bound(ListOf(Whole(0, MAX_PAYLOAD), 10), ())
    took_s: float = bound(gate.SECONDS, 0.0)
    kind: str = bound(gate.WORD, "")
    what: str = bound(gate.SENTENCE, "")


class RecorderAnswer(Definition):
    """all ranks are through"""


class RankWindow(Definition):
    """What a profile of one rank would meet.

    :param step: the last that has ended; None: no hook counts its steps; ``age_s``: how long ago
    :param step_s: seconds of a step, the median of the last ones
    :param why: why it cannot be profiled, in a sentence; empty: it can
    """

    rank: int = bound(gate.RANK)
    step: Optional[int] = maybe(gate.COUNT)
    age_s: Optional[float] = maybe(gate.SECONDS)
    step_s: Optional[float] = maybe(gate.SECONDS)
    why: str = bound(gate.SENTENCE, "")


class WindowAnswer(Definition):
    """`free`: bytes where the files go; `load`: of the node, over its CPUs"""

    ranks: Tuple[RankWindow, ...] = bound(ListOf(Of(RankWindow), gate.RANKS_A_NODE))
    free: int = bound(gate.SIZE, 0)
    load: float = bound(gate.SECONDS, 0.0)


class ProfileItem(Definition):
    """How far one rank is; with its last one, in payload, what came of it, compressed with zlib: of `torch`
    JSON of a :class:`cockpit.base.profile.summary.RankProfile`, of `cpu` folded stacks, of `nsys` nothing.

    :param state: a word of :data:`cockpit.base.profile.order.STATES`, ``reading``: the node sums it up,
        ``starting``, ``importing``: nsys does, or ``done``: here it is
    :param step: the last one that ended
    :param t: when the profile began, unix seconds on the node's clock; 0: it has not
    :param file: its name in the reports folder; empty: there is none
    :param rate: of `cpu`: how often a second was asked for, after one dump was timed
    :param samples: of `cpu`: how many there are; ``errors``: dumps that failed
    """

    rank: int = bound(gate.RANK)
    state: str = bound(gate.WORD)
    step: Optional[int] = maybe(gate.COUNT)
    t: float = bound(gate.TIME, 0.0)
    size: int = bound(gate.SIZE, 0)
    file: str = bound(Text(255), "")
    what: str = bound(gate.SENTENCE, "")
    rate: int = bound(gate.COUNT, 0)
    samples: int = bound(gate.COUNT, 0)
    errors: int = bound(gate.COUNT, 0)


class ProfileAnswer(Definition):
    """all ranks are through"""


class ReportFile(Definition):
    """A file in a run's reports folder."""

    name: str = bound(gate.FILE_NAME)
    size: int = bound(gate.SIZE)


class DumpFile(Definition):
    """What NCCL's watchdog wrote for a rank."""

    rank: int = bound(gate.RANK)
    dir: str = bound(gate.PATH)
    file: str = bound(gate.FILE_NAME)
    size: int = bound(gate.SIZE)


class ReportsAnswer(Definition):
    """name and size of each file, and NCCL's dumps with the folders they are in; `older`: files beyond those
    that an answer has room for"""

    files: Tuple[ReportFile, ...] = bound(ListOf(Of(ReportFile), REPORT_FILES))
    dumps: Tuple[DumpFile, ...] = bound(ListOf(Of(DumpFile), gate.RANKS_A_NODE), ())
    older: int = bound(gate.COUNT, 0)


class NamedFile(Definition):
    """A regular file that a person named.

    :param path: as it was found; `dir` and `file`: where links lead from there
    :param id: the same for one file, from whichever node it is seen
    """

    path: str = bound(gate.FILE_PATH)
    dir: str = bound(gate.PATH)
    file: str = bound(gate.FILE_NAME)
    size: int = bound(gate.SIZE)
    id: str = bound(Text(500), "")


class FindAnswer(Definition):
    """the files; `absent`: words that nothing matches; `trouble`: what cannot be fetched, and why"""

    files: Tuple[NamedFile, ...] = bound(ListOf(Of(NamedFile), 10_000))
    absent: Tuple[str, ...] = bound(ListOf(Text(4096), 1000), ())
    trouble: Tuple[str, ...] = bound(ListOf(gate.SENTENCE, 1000), ())


class DigestAnswer(Definition):
    """sha256, size, whether it changed meanwhile; `rest`: bytes beyond those that were asked for"""

    sha256: str = bound(_HEX)
    size: int = bound(gate.SIZE)
    changed: bool = bound(gate.FLAG)
    rest: int = bound(gate.SIZE, 0)


class ReadItem(Definition):
    """payload: the bytes at `offset`"""

    offset: int = bound(gate.SIZE)


class ReadAnswer(Definition):
    """all of it was sent"""

    size: int = bound(gate.SIZE)
