"""The report of a run as data: what ran, how it ended and why, its pace, what happened, last words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from cockpit.core.explain.report import Line
from cockpit.core.finding import Finding, Step
from cockpit.core.ranks import ranks_text
from cockpit.core.report.goodput import Goodput
from cockpit.core.report.lineage import Lineage

GIT, PACKAGES, DRIVER, INTERPRETER = "git", "all packages", "NVIDIA driver", "interpreter"
"""Names of a :class:`Value` that are no package."""

STEP_TIME, WORK = "step time", "work of the median rank"
"""Names of curves."""


class Value(NamedTuple):
    """One thing that nodes say, such as their version of torch.

    :param said: each value, and the nodes that have it, most nodes first
    """

    name: str
    said: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def differs(self) -> bool:
        """Whether nodes do not all say the same."""
        return len(self.said) > 1

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        values = [{"value": value, "nodes": list(nodes)} for value, nodes in self.said]
        return {"name": self.name, "values": values}


class Host(NamedTuple):
    """A node of the run.

    :param machine: as it called itself
    :param how: how its launcher ended, or how its link is
    """

    name: str
    machine: str
    ranks: tuple[int, ...]
    how: str


class What(NamedTuple):
    """What ran.

    :param command: as it was typed; empty: a job that others started
    :param plan: the launcher of each node, those that are alike together: words, and nodes
    :param versions: those that were recorded at the start, what differs between nodes first
    :param env: the variables that cockpit set, secrets hidden
    :param environ: those that matter of what the first rank of each node was started with, likewise, and
        without those that differ between all processes
    :param packages: installed packages in which nodes differ
    :param diff: what tracked files differed from the commit by, as git says it, if that was asked for
    """

    command: tuple[str, ...]
    program: tuple[str, ...]
    launcher: str
    cwd: str
    hosts: tuple[Host, ...]
    ranks: int
    plan: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    versions: tuple[Value, ...]
    env: tuple[Value, ...]
    environ: tuple[Value, ...] = ()
    packages: tuple[Value, ...] = ()
    diff: tuple[str, ...] = ()


@dataclass(frozen=True)
class Why:
    """Who failed first, or held up the others, as `cockpit explain` judges; see
    :class:`cockpit.core.explain.report.Report` for what the fields mean.

    :param how: empty: no failure was found
    """

    how: str = ""
    what: str = ""
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    certainty: str = "unsure"
    cause: str = ""
    evidence: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    rule: str = ""
    meaning: str = ""
    steps: tuple[Step, ...] = ()
    waited: tuple[int, ...] = ()
    failed_too: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        sets = {name: ranks_text(getattr(self, name)) for name in ("ranks", "waited", "failed_too")}
        return {**asdict(self), **sets, "lines": [line._asdict() for line in self.lines]}


class Curve(NamedTuple):
    """A number over the steps.

    :param points: step and value, evenly thinned; all finite
    :param most_at: the step at which it was greatest
    :param odd: how many values were no numbers (NaN, infinite)
    :param odd_from: the first step with such a value
    """

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    first: float
    last: float
    least: float
    most: float
    most_at: float
    odd: int = 0
    odd_from: float | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**self._asdict(), "points": [list(point) for point in self.points]}


class Course(NamedTuple):
    """How a run moved on; None: not known.

    :param steps: how many are on record
    :param begun_s: seconds from the start until the first step was over
    :param mean_s: seconds of a step of the median rank, the mean of all on record
    :param phases: seconds of a step in which the median rank was in each of
        :data:`cockpit.core.pace.phases.NAMES`, the mean of all on record; where the wait of some is known, of
        those alone
    :param exact: whether ranks noted the times themselves; else they are those of log lines
    """

    steps: int = 0
    first: int | None = None
    last: int | None = None
    begun_s: float | None = None
    mean_s: float | None = None
    phases: Mapping[str, float] = {}
    exact: bool = False


class Moment(NamedTuple):
    """Something that happened.

    :param at: unix seconds on our clock
    :param level: ``info``, ``warning`` or ``error``
    """

    at: float
    text: str
    level: str = "info"
    node: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class Look:
    """A snapshot of stacks, with the verdict on it.

    :param at: of its last sample, unix seconds; None: no sample is in it
    :param by_nodes: why nodes took it by themselves; empty: a cockpit took it
    :param stacks: classes of ranks, each with the frames of one of them, as lines
    """

    name: str
    at: float | None
    by_nodes: str
    found: Finding
    stacks: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "found": self.found.completed("").as_json(), "stacks": list(self.stacks)}


@dataclass(frozen=True)
class Profile:
    """A profile, summed up.

    :param lines: tables of ranks, operations and collectives
    """

    number: int
    at: float
    title: str
    found: Finding
    lines: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "found": self.found.as_json(), "lines": list(self.lines)}


class Tail(NamedTuple):
    """The last lines of a log.

    :param rank: None: the launcher's
    :param why: why they are here: the rank failed first, …
    :param size: bytes of the whole log here
    """

    rank: int | None
    node: str
    why: str
    lines: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class RunReport:
    """Everything that is said of one run; all its text is harmless for a terminal, and without secrets.

    :param made: when the report was, unix seconds
    :param state: how the run is, or how it ended, in words
    :param code: the exit code of a cockpit that watched it to its end; None: it goes on
    :param ended: when its last rank ended, unix seconds on our clock; None: it goes on, or that is not known
    :param outcome: sentences about the end, the cause first
    :param left_out: how many more events there were, the oldest
    :param taken: secrets that were taken out as the report was made
    :param last_good: of a run that failed, the last one of the same command that ended well; empty: none
    :param wall: where its wall time went; None: no step of it is known
    :param series: the runs that it is one series with; None: it is alone
    :param seen: until when it was watched, if it was not over then; None: it is over, or still watched
    """

    run: str
    made: float
    version: str
    state: str
    code: int | None
    began: float
    ended: float | None
    what: What
    outcome: tuple[str, ...]
    why: Why
    course: Course
    curves: tuple[Curve, ...] = ()
    events: tuple[Moment, ...] = ()
    left_out: int = 0
    looks: tuple[Look, ...] = ()
    profiles: tuple[Profile, ...] = ()
    findings: tuple[Finding, ...] = ()
    tails: tuple[Tail, ...] = ()
    pages: tuple[tuple[str, str], ...] = ()
    taken: int = 0
    last_good: str = ""
    wall: Goodput | None = None
    series: Lineage | None = None
    seen: float | None = None

    @property
    def took_s(self) -> float:
        """Seconds from its start to its end, or until it was last seen."""
        return max(0.0, (self.ended or self.seen or self.made) - self.began)

    def as_json(self) -> dict[str, Any]:
        """The report for programs: sets of ranks as text, times in unix seconds."""
        what = self.what
        return {
            "run": self.run,
            "made": self.made,
            "version": self.version,
            "state": self.state,
            "code": self.code,
            "began": self.began,
            "ended": self.ended,
            "took_s": self.took_s,
            "command": list(what.command),
            "program": list(what.program),
            "launcher": what.launcher,
            "cwd": what.cwd,
            "ranks": what.ranks,
            "nodes": [{**host._asdict(), "ranks": ranks_text(host.ranks)} for host in what.hosts],
            "plan": [{"argv": list(words), "nodes": list(nodes)} for words, nodes in what.plan],
            "versions": [value.as_json() for value in what.versions],
            "env": [value.as_json() for value in what.env],
            "environ": [value.as_json() for value in what.environ],
            "packages": [value.as_json() for value in what.packages],
            "diff": list(what.diff),
            "outcome": list(self.outcome),
            "why": self.why.as_json() if self.why.how else None,
            "pace": {**self.course._asdict(), "phases": dict(self.course.phases)},
            "wall": None if self.wall is None else self.wall.as_json(),
            "series": None if self.series is None else self.series.as_json(),
            "curves": [curve.as_json() for curve in self.curves],
            "events": [moment._asdict() for moment in self.events],
            "events_left_out": self.left_out,
            "stacks": [look.as_json() for look in self.looks],
            "profiles": [profile.as_json() for profile in self.profiles],
            "findings": [found.as_json() for found in self.findings],
            "last_lines": [{**tail._asdict(), "lines": list(tail.lines)} for tail in self.tails],
            "pages": [{"name": name, "url": url} for name, url in self.pages],
            "secrets_taken": self.taken,
            "last_good": self.last_good,
        }
