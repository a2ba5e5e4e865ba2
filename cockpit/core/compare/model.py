"""Two runs side by side as data. *Before* is the run that the other one, *after*, is held against."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from cockpit.core.report.model import RunReport

ALIKE = 0.01
"""Part of a number by which two of them differ when that is nothing to speak of."""


class Difference(NamedTuple):
    """Something in which the runs differ.

    :param kind: ``argument``, ``code``, ``launcher``, ``ranks``, ``nodes``, ``version``, ``driver``,
        ``variable``, ``launch`` (an option of `cockpit run`) or ``folder``
    :param before: empty: it has no value; None: it is not there
    :param see: what to type to see more; empty: nothing
    """

    kind: str
    name: str
    before: str | None
    after: str | None
    see: str = ""


class Unrecorded(NamedTuple):
    """Something that cannot be compared.

    :param runs: of which it is not on record
    """

    name: str
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Measure:
    """A number of both; None: not known.

    :param unit: ``s``, or empty
    :param spread: how much it varies from step to step, of the run in which it does so more; None: not known
    """

    name: str
    unit: str
    before: float | None
    after: float | None
    spread: float | None = None

    @property
    def ratio(self) -> float | None:
        """After by before; None: not known."""
        if self.before is None or self.after is None or not self.before > 0:
            return None
        return self.after / self.before

    @property
    def more(self) -> float | None:
        """After less before; None: not known."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def beyond(self) -> bool | None:
        """Whether they differ by more than steps vary; None: how much these do is not known."""
        if self.spread is None or self.more is None:
            return None
        most = max(abs(self.before or 0.0), abs(self.after or 0.0))
        return abs(self.more) > max(self.spread, ALIKE * most)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        told = {**asdict(self), "ratio": self.ratio}
        return {**{name: _finite(value) for name, value in told.items()}, "beyond": self.beyond}


def _finite(value: Any) -> Any:
    """What JSON has no word for is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Amount(NamedTuple):
    """How much goes through one step of each run.

    :param why: what differs, so that it may not be the same; empty: nothing does
    :param unit: ``tokens`` or ``samples``; empty: the logs do not say how many
    """

    why: str = ""
    unit: str = ""
    before: float = 0.0
    after: float = 0.0

    @property
    def same(self) -> bool | None:
        """Whether it is the same; None: not known."""
        if not self.why:
            return True
        return abs(self.after / self.before - 1) <= 2 * ALIKE if self.unit else None

    def as_json(self) -> dict[str, Any]:
        """For programs: what is not known is None."""
        unknown = {} if self.unit else {"before": None, "after": None}
        return {**self._asdict(), **unknown, "same": self.same}


class At(NamedTuple):
    """The losses of both at one place: medians of a short stretch around it."""

    at: float
    before: float
    after: float


@dataclass(frozen=True)
class Losses:
    """The losses of both where they overlap.

    :param by: what the places are: ``step``, ``tokens`` or ``samples``
    :param first: the first place that both have; ``last``: the last one; None: there is none
    :param rows: some places from the first to the last one
    :param noise: how much both losses vary from value to value
    :param alike_to: the last step up to which both logs have the very same numbers; None: from the first on
        they differ, or steps are not what is compared
    :param apart: from where to where they differ by more than their noise, the stretch that matters most: the
        one that goes on to the end, else the longest
    """

    by: str
    first: float | None = None
    last: float | None = None
    rows: tuple[At, ...] = ()
    noise: float = 0.0
    alike_to: float | None = None
    apart: tuple[float, float] | None = None

    @property
    def parted(self) -> float | None:
        """From where on they differ to the end; None: there they are alike."""
        return self.apart[0] if self.apart and self.apart[1] == self.last else None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        rows = [row._asdict() for row in self.rows]
        noise = _finite(self.noise)
        return {
            **asdict(self),
            "rows": rows,
            "noise": noise,
            "apart": self.apart and list(self.apart),
            "parted": self.parted,
        }


class Operation(NamedTuple):
    """An operation, a kernel, a collective or a frame of both profiles.

    :param before: of each step seconds, or of frames the part of the time; None: it is not there
    :param calls_before: calls of a step; None: not known
    """

    name: str
    kind: str
    before: float | None
    after: float | None
    calls_before: float | None = None
    calls_after: float | None = None

    @property
    def more(self) -> float:
        """After less before."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True)
class Profiles:
    """Two profiles.

    :param before: what the first one is of, in words; ``after``: the second one
    :param parts: where a step goes, of the median rank; of profiles of stacks nothing
    :param unit: of operations: ``s``; ``share``: of frames
    :param ranks: whose operations these are: of each profile a typical rank
    :param operations: those first that differ most; ``sums``: of all operations of a kind; ``collectives``:
        by name and size
    :param notes: what makes the numbers less comparable than they seem, a sentence each
    """

    before: str
    after: str
    unit: str = "s"
    parts: tuple[Measure, ...] = ()
    ranks: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()
    sums: tuple[Operation, ...] = ()
    collectives: tuple[Operation, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        named = {
            name: [row._asdict() for row in getattr(self, name)]
            for name in ("operations", "sums", "collectives")
        }
        parts = [part.as_json() for part in self.parts]
        return {**asdict(self), **named, "parts": parts, "ranks": list(self.ranks), "notes": list(self.notes)}


_ONE = Amount()


@dataclass(frozen=True)
class Comparison:
    """Two runs.

    :param differences: the most telling first
    :param unrecorded: what may differ as well
    :param pace: numbers of steps, the step itself first
    :param loss: None: not both logs have one
    :param profiles: the newest ones of one kind; None: not both have one
    :param tree: in which lines their changes to tracked files differ, where those are on record of both
    """

    before: RunReport
    after: RunReport
    differences: tuple[Difference, ...] = ()
    unrecorded: tuple[Unrecorded, ...] = ()
    amount: Amount = _ONE
    pace: tuple[Measure, ...] = ()
    loss: Losses | None = None
    profiles: Profiles | None = None
    tree: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    """What stands out, a sentence each."""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "before": _side(self.before),
            "after": _side(self.after),
            "said": list(self.said),
            "differences": [one._asdict() for one in self.differences],
            "working_tree": list(self.tree),
            "not_recorded": [{"name": one.name, "runs": list(one.runs)} for one in self.unrecorded],
            "amount": self.amount.as_json(),
            "pace": [one.as_json() for one in self.pace],
            "loss": self.loss and self.loss.as_json(),
            "profiles": self.profiles and self.profiles.as_json(),
        }


def _side(report: RunReport) -> dict[str, Any]:
    """A run in short; all of it is in its report."""
    whole = report.as_json()
    names = ("run", "state", "code", "began", "ended", "took_s", "ranks", "program", "outcome", "why", "pace")
    return {name: whole[name] for name in names}
