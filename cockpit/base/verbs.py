"""Verbs: every request that an agent takes, with its fields and their bounds.

With :mod:`cockpit.base.answers` this is the one table of the wire. A request says by its type what
answers it: the final answer, and the parts before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Dict, Generic, Optional, Tuple, Type, TypeVar

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, MapOf, Number, Of, Text, Whole, bound, maybe
from cockpit.base.shared_fields import (
    BASES,
    CALLERS,
    FILES_A_NODE,
    MARKS,
    PROFILE_ID,
    PROFILE_STEPS,
    SIZES,
    TRIAL_ROUNDS,
    Caller,
    Identity,
    Opened,
    Target,
)

if TYPE_CHECKING:
    # Not at run time: agents know requests alone, and each definition costs every node a millisecond.
    from cockpit.base import answers, checkup_answers, ras, rehearsal_answers  # noqa: F401 (in the strings of Request["…"])

Answer = TypeVar("Answer")
Item = TypeVar("Item")


_NAME = Text(255, r"[^\0]*")
_LINE = Text(4096, r"[^\0]*")
_TARGETS = ListOf(Of(Target), gate.RANKS_A_NODE)


class Request(Definition, Generic[Answer, Item]):
    """What an agent is asked.

    :param at: the module of ``cockpit.node`` whose function of this name does it
    """

    at: ClassVar[str]

    def __init_subclass__(cls, *, at: str) -> None:
        super().__init_subclass__()
        cls.at = at


class Ping(Request["answers.PingAnswer", "answers.Nothing"], at="agent"):
    """how late is it there"""


class Facts(Request["answers.FactsAnswer", "answers.Nothing"], at="facts"):
    """what a launch would find there"""

    cwd: str = bound(_LINE)
    setup: str = bound(Text(1 << 20), "")
    python: str = bound(_LINE, "")
    tools: Dict[str, Tuple[str, ...]] = bound(MapOf(_NAME, ListOf(_LINE, 100), 100), {})
    help: Tuple[str, ...] = bound(ListOf(_LINE, 10), ())
    script: str = bound(_LINE, "")
    base: str = bound(_LINE, "")
    gpus: bool = bound(gate.FLAG, False)
    visible: Optional[str] = maybe(_LINE)
    packages: Tuple[str, ...] = bound(ListOf(gate.WORD, 100), ())
    group: str = bound(_LINE, "")


class Packages(Request["answers.PackagesAnswer", "answers.Nothing"], at="facts"):
    """what `facts` has found installed there, by the `digest` that it has told over this link"""

    digest: str = bound(gate.WORD)


class Port(Request["answers.PortAnswer", "answers.Nothing"], at="facts"):
    """`port` 0: any"""

    port: int = bound(Whole(0, 65535), 0)


class Resolve(Request["answers.ResolveAnswer", "answers.Nothing"], at="facts"):
    """the addresses of a name"""

    name: str = bound(_NAME)


class Checkup(Request["checkup_answers.CheckupAnswer", "answers.Nothing"], at="checkup.checkup"):
    """the node's condition: `parts` of it; payload: pynvml, for GPUs"""

    parts: Tuple[str, ...] = bound(ListOf(gate.WORD, 100), ())
    cwd: str = bound(_LINE, "")
    base: str = bound(_LINE, "")
    script: str = bound(_LINE, "")
    port: int = bound(Whole(0, 65535), 0)
    names: Tuple[str, ...] = bound(ListOf(_NAME, 1024), ())
    limit_s: float = bound(gate.SECONDS, 5.0)


class Meet(Request["answers.Nothing", "checkup_answers.MeetItem"], at="checkup.network"):
    """listens on a port, at most this long; `port` 0: any"""

    port: int = bound(Whole(0, 65535), 0)
    limit_s: float = bound(gate.SECONDS, 10.0)


class Reach(Request["checkup_answers.ReachAnswer", "answers.Nothing"], at="checkup.network"):
    """whether a TCP connection to a port of another node can be made"""

    address: str = bound(_NAME)
    port: int = bound(Whole(1, 65535))
    limit_s: float = bound(gate.SECONDS, 3.0)


class Rehearse(Request["answers.Nothing", "rehearsal_answers.RehearseItem"], at="checkup.rehearsal"):
    """a Python with torch that takes part in trials, until cancelled, at most `limit_s`"""

    cwd: str = bound(_LINE)
    setup: str = bound(Text(1 << 20), "")
    python: str = bound(_LINE, "")
    env: Dict[str, str] = bound(MapOf(_NAME, Text(1 << 20, r"[^\0]*"), 1000), {})
    limit_s: float = bound(gate.SECONDS, 300.0)


class Trial(Request["rehearsal_answers.TrialAnswer", "rehearsal_answers.TrialItem"], at="checkup.rehearsal"):
    """one rank of a small process group there; `peers`: with whom it measures, round by round; -1: none"""

    rank: int = bound(gate.RANK)
    world: int = bound(Whole(1, gate.RANK_LIMIT))
    address: str = bound(_NAME)
    port: int = bound(Whole(0, 65535), 0)
    backend: str = bound(gate.WORD, "gloo")
    gpu: int = bound(Whole(-1, 511), -1)
    peers: Tuple[int, ...] = bound(ListOf(Whole(-1, gate.RANK_LIMIT), TRIAL_ROUNDS), ())
    limit_s: float = bound(gate.SECONDS, 20.0)


class Launch(Request["answers.LaunchAnswer", "answers.Nothing"], at="run.launch"):
    """payload: the launch spec"""


class Stop(Request["answers.StopAnswer", "answers.Nothing"], at="run.launch"):
    """stop the run of a folder"""

    dir: str = bound(gate.PATH)
    reason: str = bound(gate.SENTENCE, "")
    by: str = bound(gate.SENTENCE, "")
    hard: bool = bound(gate.FLAG, False)
    grace_s: Optional[float] = maybe(gate.SECONDS)
    run: str = bound(_NAME, "")
    node: str = bound(_NAME, "")


class Keep(Request["answers.KeepAnswer", "answers.Nothing"], at="run.launch"):
    """asks the supervisor of a folder to keep, now, what its ranks are doing"""

    dir: str = bound(gate.PATH)


class Discard(Request["answers.Nothing", "answers.Nothing"], at="cleaning"):
    """removes the folder of a launch that was taken back"""

    dir: str = bound(gate.PATH)


class Status(Request["answers.StatusAnswer", "answers.Nothing"], at="run.status"):
    """a run as its node recorded it; by `run` and `node` processes are found whose folder is gone"""

    dir: str = bound(gate.PATH)
    run: str = bound(_NAME, "")
    node: str = bound(_NAME, "")


class Runs(Request["answers.RunsAnswer", "answers.Nothing"], at="run.status"):
    """which runs there are"""

    base: str = bound(gate.PATH)


class Folders(Request["answers.FoldersAnswer", "answers.Nothing"], at="cleaning"):
    """all run folders below `bases`, whoever made them: owner, size, age, what lives of them"""

    bases: Tuple[str, ...] = bound(ListOf(gate.PATH, BASES))
    limit_s: float = bound(gate.SECONDS, 20.0)


class Remove(Request["answers.RemoveAnswer", "answers.Nothing"], at="cleaning"):
    """removes a run folder for good, if it is that of this `run` and `node`, of this very launch, ours, and
    nothing of it lives; `unended`: also one without the end on record"""

    dir: str = bound(gate.PATH)
    run: str = bound(gate.RUN_NAME)
    node: str = bound(gate.NODE_NAME)
    boot_id: str = bound(gate.WORD)
    supervisor: Identity = bound(Of(Identity))
    unended: bool = bound(gate.FLAG, False)
    limit_s: float = bound(gate.SECONDS, 20.0)


class Follow(Request["answers.Nothing", "answers.FollowItem"], at="run.follow"):
    """the run record and all logs, from the offsets on; `marks` tell whether they are still the same"""

    dir: str = bound(gate.PATH)
    offsets: Dict[str, int] = bound(SIZES, {})
    credit: int = bound(gate.SIZE, 0)
    run: str = bound(_NAME, "")
    node: str = bound(_NAME, "")
    marks: Dict[str, int] = bound(MARKS, {})


class Samples(Request["answers.Nothing", "answers.SamplesItem"], at="measure.samples"):
    """measurements, each `interval` seconds, of a run's ranks or of `targets`; payload: pynvml"""

    dir: str = bound(gate.PATH)
    interval: float = bound(gate.SECONDS, 1.0)
    targets: Tuple[Target, ...] = bound(_TARGETS, ())


class Past(Request["answers.Nothing", "answers.PastItem"], at="measure.past"):
    """the steps of ranks `since` a moment (node's clock), kept while nobody watched; the newest `steps` of
    each one by one, older ones many as one"""

    dir: str = bound(gate.PATH)
    ranks: Tuple[int, ...] = bound(gate.RANKS)
    since: float = bound(gate.SECONDS, 0.0)
    steps: int = bound(Whole(1, 1 << 20), 1000)


class Environ(Request["answers.EnvironAnswer", "answers.Nothing"], at="run.environ"):
    """the environment that a rank got; `target`: its process, where no run folder says it"""

    dir: str = bound(gate.PATH)
    rank: int = bound(gate.RANK)
    target: Optional[Target] = maybe(Of(Target))


class Seek(Request["answers.SeekAnswer", "answers.Nothing"], at="stacks.find_ranks"):
    """ranks with these tags; empty: all; `dir`: of this run folder, as runs may have one name; `pid`,
    `match`: and a Python program that is none"""

    run: str = bound(_NAME, "")
    node: str = bound(_NAME, "")
    dir: str = bound(Text(4096, r"(?:/[^\0]*)?"), "")
    pid: int = bound(Whole(0, 1 << 30), 0)
    match: str = bound(Text(4096), "")


class Outputs(Request["answers.OutputsAnswer", "answers.Nothing"], at="jobs.outputs"):
    """where processes of a job that others started write to; `callers`: by which ranks on other nodes were
    started from here"""

    targets: Tuple[Target, ...] = bound(_TARGETS, ())
    callers: Tuple[Caller, ...] = bound(CALLERS, ())


class Watch(Request["answers.Nothing", "answers.WatchItem"], at="jobs.watch"):
    """which of these processes live, and what is added to the files that they write"""

    targets: Tuple[Target, ...] = bound(_TARGETS, ())
    launchers: Tuple[Identity, ...] = bound(ListOf(Of(Identity), gate.RANKS_A_NODE), ())
    files: Tuple[Opened, ...] = bound(ListOf(Of(Opened), FILES_A_NODE), ())
    credit: int = bound(gate.SIZE, 0)


class End(Request["answers.EndAnswer", "answers.Nothing"], at="jobs.ending"):
    """end processes of a job that others started, and all that is below them"""

    processes: Tuple[Identity, ...] = bound(ListOf(Of(Identity), gate.RANKS_A_NODE))
    grace_s: float = bound(gate.SECONDS, 15.0)
    hard: bool = bound(gate.FLAG, False)


class Spy(Request["answers.SpyAnswer", "answers.Nothing"], at="stacks.pyspy"):
    """payload: py-spy, if it was found missing"""

    sha256: str = bound(Text(64), "")


class Stacks(Request["answers.StacksAnswer", "answers.StacksItem"], at="stacks.dump"):
    """the stacks of some ranks"""

    targets: Tuple[Target, ...] = bound(_TARGETS)
    dir: str = bound(Text(4096, r"(?:/[^\0]*)?"), "")
    native: bool = bound(gate.FLAG, False)
    locals: bool = bound(gate.FLAG, False)
    children: bool = bound(gate.FLAG, False)
    timeout_s: float = bound(gate.SECONDS, 10.0)


class Calls(Request["answers.CallsAnswer", "answers.Nothing"], at="stacks.last_calls"):
    """the last calls that these ranks have noted, newest first"""

    dir: str = bound(gate.PATH)
    ranks: Tuple[int, ...] = bound(gate.RANKS)


class Recorder(Request["answers.RecorderAnswer", "answers.RecorderItem"], at="recorder.recorder"):
    """what torch's flight recorder has of some ranks, at most so many `rows` of each since a moment"""

    dir: str = bound(gate.PATH)
    ranks: Tuple[int, ...] = bound(gate.RANKS)
    since_us: int = bound(gate.SIZE, 0)
    rows: int = bound(Whole(1, 20_000), 4000)
    timeout_s: float = bound(gate.SECONDS, 10.0)


class Ras(Request["ras.RasAnswer", "answers.Nothing"], at="recorder.ras"):
    """what NCCL's RAS says of the job that these ranks are in"""

    targets: Tuple[Target, ...] = bound(_TARGETS)
    limit_s: float = bound(gate.SECONDS, 2.0)


class Window(Request["answers.WindowAnswer", "answers.Nothing"], at="profile.window"):
    """what a profile of these ranks would meet: their steps, who else profiles them, the room for files;
    ``dir`` empty: of a job that has no run folder"""

    dir: str = bound(Text(4096, r"(?:/[^\0]*)?"), "")
    targets: Tuple[Target, ...] = bound(_TARGETS)
    kind: str = bound(Text(10, "torch|cpu|nsys"))


class Profile(Request["answers.ProfileAnswer", "answers.ProfileItem"], at="profile.profile"):
    """profiles these ranks; when the request ends, nothing of it is left running. `torch`: exactly the steps
    from `first` on, by the hook of each rank; `cpu`: `seconds` of py-spy, `rate` times a second; `nsys`: of
    the whole node these steps, or, if `first` is 0, `seconds`, in a run that was launched ready for it"""

    dir: str = bound(Text(4096, r"(?:/[^\0]*)?"), "")
    targets: Tuple[Target, ...] = bound(_TARGETS)
    kind: str = bound(Text(10, "torch|cpu|nsys"))
    collection: str = bound(PROFILE_ID)
    first: int = bound(gate.COUNT, 0)
    steps: int = bound(Whole(1, PROFILE_STEPS), 5)
    shapes: bool = bound(gate.FLAG, True)
    stack: bool = bound(gate.FLAG, False)
    memory: bool = bound(gate.FLAG, False)
    seconds: float = bound(Number(0.1, 3600.0), 10.0)
    rate: int = bound(Whole(1, 1000), 20)
    deadline_s: float = bound(Number(1.0, 86400.0), 600.0)


class SumUp(Request["answers.ProfileAnswer", "answers.ProfileItem"], at="profile.nsys_reports"):
    """sums up nsys reports of a run, or (`named`) of a folder, one after the other, with the first of `tools`
    that is there; `targets`: processes of `ranks`, where no run folder has records of them"""

    dir: str = bound(gate.PATH)
    files: Tuple[str, ...] = bound(ListOf(gate.FILE_NAME, 1000))
    ranks: Tuple[int, ...] = bound(gate.RANKS, ())
    targets: Tuple[Target, ...] = bound(_TARGETS, ())
    tools: Tuple[str, ...] = bound(ListOf(_LINE, 100), ())
    named: bool = bound(gate.FLAG, False)


class Reports(Request["answers.ReportsAnswer", "answers.Nothing"], at="run.collect"):
    """what the profiler wrote, and NCCL's watchdog"""

    dir: str = bound(gate.PATH)


class Find(Request["answers.FindAnswer", "answers.Nothing"], at="jobs.named"):
    """files that a person named, by paths or patterns; relative ones: where `targets` work, or `cwd`"""

    words: Tuple[str, ...] = bound(ListOf(Text(4096, r"[^\0]+"), 1000))
    targets: Tuple[Target, ...] = bound(_TARGETS, ())
    cwd: str = bound(gate.PATH, "/")


class Digest(Request["answers.DigestAnswer", "answers.Nothing"], at="run.collect"):
    """the checksum of a report; `named`: of a file that was found, its first `size` bytes"""

    dir: str = bound(gate.PATH)
    file: str = bound(gate.FILE_NAME)
    named: bool = bound(gate.FLAG, False)
    size: Optional[int] = maybe(gate.SIZE)


class Read(Request["answers.ReadAnswer", "answers.ReadItem"], at="run.collect"):
    """a report, from `offset` on; `named`: a file that was found, up to its first `size` bytes"""

    dir: str = bound(gate.PATH)
    file: str = bound(gate.FILE_NAME)
    offset: int = bound(gate.SIZE, 0)
    credit: int = bound(gate.SIZE, 0)
    named: bool = bound(gate.FLAG, False)
    size: Optional[int] = maybe(gate.SIZE)


VERBS: Dict[str, Type[Request[Any, Any]]] = {asks.__name__.lower(): asks for asks in Request.__subclasses__()}
"""Everything that an agent can be asked."""

NAMES: Dict[Type[Request[Any, Any]], str] = {asks: name for name, asks in VERBS.items()}
"""The verb of each request."""
