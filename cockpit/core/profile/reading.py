"""What a collection says, as the screen, text and JSON show it. Times are seconds, unless said otherwise.

Names of operations, groups and nodes are harmless for a terminal here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cockpit.core.finding import Finding
from cockpit.core.ranks import ranks_text


class Parts(NamedTuple):
    """Where a step goes, seconds; together they are the step.

    *data*, *compute*, *idle* as in :mod:`cockpit.base.profile.summary`; *communication* is what is exposed of
    it, without *wait*: what a rank waited for others in it.
    """

    data: float
    compute: float
    communication: float
    wait: float
    idle: float

    @property
    def took(self) -> float:
        """The whole step."""
        return sum(self)

    @property
    def own(self) -> float:
        """The step without waiting for others: what ranks are compared by."""
        return self.took - self.wait

    @property
    def shares(self) -> Parts:
        """The same as parts of the step, 0 to 1."""
        took = self.took
        return Parts._make(one / took if took > 0 else 0.0 for one in self)


def seconds(number: float, step: float) -> str:
    """A part of a step, with as many digits as such a step needs: ``0.97 s``, ``0.045 s``, ``4.5 ms``."""
    if step < 0.1:
        return f"{1000 * number:.{1 if step >= 0.01 else 2}f} ms"
    return f"{number:.{2 if step >= 1 else 3}f} s"


@dataclass(frozen=True)
class Row:
    """Ranks of one node that are alike, or a rank that is not.

    :param parts: means over these ranks and the steps that count; None: nothing of them is here
    :param kind: whom they are compared with, a place in :attr:`Reading.kinds`
    :param slow: the finding names them; ``differs``: the part that it blames, a field of :class:`Parts`;
        empty: none
    :param state: where nothing is here: how far they are, a word of
        :attr:`cockpit.base.answers.ProfileItem.state`; ``why``: why, in a sentence
    """

    ranks: tuple[int, ...]
    node: str
    parts: Parts | None = None
    kind: int = 0
    slow: bool = False
    differs: str = ""
    state: str = ""
    why: str = ""

    @property
    def ranks_text(self) -> str:
        """``13``, ``8-12,14-15``."""
        return ranks_text(self.ranks)


@dataclass(frozen=True)
class Kind:
    """Ranks with the same set of operations: only these are compared. Stages of a pipeline, for example.

    :param parts: medians over the ranks
    :param typical: the rank whose own time is the median, of two the quicker
    """

    ranks: tuple[int, ...]
    parts: Parts
    typical: int


@dataclass(frozen=True)
class OperationRow:
    """One operation of a rank beside the same of those it is compared with, each a step.

    :param kind: see :class:`cockpit.base.profile.summary.Operation`
    :param own: its time without that of what it calls
    :param median: of the other ranks of its kind; None: not known
    :param count: calls a step; ``median_count``: the median of the others
    """

    name: str
    kind: str
    own: float
    median: float | None
    count: float
    median_count: float | None

    @property
    def more(self) -> float | None:
        """How much longer this rank is in it than the median one; None: not known."""
        return None if self.median is None else self.own - self.median


@dataclass(frozen=True)
class Operations:
    """The operations of one rank: those first in which it differs most, then those that take most.

    Collectives are not among them: they are mostly waiting, and have rows of their own.

    :param others: how many ranks it is compared with
    :param left_out: operations that the rank's summary leaves out
    """

    rank: int
    others: int
    rows: tuple[OperationRow, ...]
    left_out: int = 0


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives of one name and size, of one group of ranks or of several that do the same side by side.

    :param groups: as the trace names them; empty names: it does not
    :param ranks: of one group; 0: not known
    :param seen: the most ranks of one group that are here; fewer than ``ranks``: the others are missing
    :param size: bytes that go in; 0: not known
    :param count: calls a step, of one rank
    :param took: of the last rank to arrive: moving the data, with nobody to wait for; the median
    :param spread: from the first arrival to the last one; the median
    :param wait: what a rank waited in these, a step; the mean
    :param last: who arrived last, and how often, the most frequent first
    :param of: out of how many
    :param rate: bytes a second and link ("busbw"), by the formula of nccl-tests; None: the number of ranks
        or the size is not known, or there is no formula
    :param between: some of its ranks are on different nodes; None: not known
    """

    name: str
    groups: tuple[str, ...]
    ranks: int
    seen: int
    size: int
    count: float
    took: float
    spread: float
    wait: float
    last: tuple[tuple[int, int], ...]
    of: int
    rate: float | None = None
    between: bool | None = None


@dataclass(frozen=True)
class Arrivals:
    """When ranks arrived at the collectives of a row of :attr:`Reading.collectives`, those most waited in.

    :param after: by rank: seconds after the first one of its group, the median over these collectives
    """

    row: int
    after: Mapping[int, float]


@dataclass(frozen=True)
class FileRow:
    """A file of a rank, in the reports folder of its node."""

    rank: int
    node: str
    name: str
    size: int


@dataclass(frozen=True)
class Cost:
    """What the profile cost.

    :param before: seconds of a step before it, the median over the ranks; ``during``, ``after``: the same;
        None: not known
    :param stop: how long stopping it held ranks up, of the worst one; ``warm``: the same of its first start
    """

    before: float | None = None
    during: float | None = None
    after: float | None = None
    stop: float = 0.0
    warm: float = 0.0


@dataclass(frozen=True)
class Reading:
    """What a collection says.

    :param finding: the sentence that comes first: who is slow and why, or that nobody is
    :param steps: the steps that count
    :param left_out: other steps, and why each does not count
    :param parts: of the median rank
    :param rows: slowest first; then those of which nothing is here
    :param operations: of the rank that the finding names first, else of the slowest; None: not known
    :param kept_up: seconds of a step if the ranks that the finding names were like the others; None: it names
        none, or it is not known
    :param ranks: means of each rank
    :param waits: whether it is known what ranks wait for each other
    :param notes: what makes the numbers less than they seem, a sentence each
    :param offsets: how far each node's clock is ahead of ours, by the ends of collectives where these tell
    :param clock: how well ends of collectives agree on our clock, the median; None: not known
    :param apart: how far apart the ranks began; None: not known
    :param asked: of how many ranks a profile was asked for
    """

    finding: Finding
    asked: int = 0
    steps: tuple[int, ...] = ()
    left_out: Mapping[int, str] = field(default_factory=dict)
    parts: Parts | None = None
    kept_up: float | None = None
    kinds: tuple[Kind, ...] = ()
    rows: tuple[Row, ...] = ()
    ranks: Mapping[int, Parts] = field(default_factory=dict)
    waits: bool = False
    operations: Operations | None = None
    collectives: tuple[CollectiveRow, ...] = ()
    arrivals: Arrivals | None = None
    files: tuple[FileRow, ...] = ()
    cost: Cost = Cost()
    notes: tuple[str, ...] = ()
    offsets: Mapping[str, float] = field(default_factory=dict)
    clock: float | None = None
    apart: float | None = None
