"""The table beside the map: how far the ranks of a row are; of several, the one that is worst off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cockpit.core.pace.pace import RankPace
from cockpit.core.pace.rows import Row
from cockpit.tui.panes.text_pane import Piece

COLUMNS = {"step": 8, "age": 8, "behind": 9, "work": 9, "more": 8, "lag": 13}
"""The columns of the table, and how wide they are."""

SHOWN = ((86, ("step", "age", "behind", "work", "more")), (60, ("age", "work", "more")), (0, ("work",)))
"""From how many columns of the pane on it has which; ``lag`` stands for ``work`` where only that is known."""


def columns_for(width: int, *, lag: bool) -> tuple[str, ...]:
    """The columns that a pane of this width has.

    :param lag: what is known is when CPUs enqueued, which is no work of a GPU
    """
    shown = next(columns for least, columns in SHOWN if width >= least)
    return tuple("lag" if lag and name == "work" else name for name in shown)


@dataclass(frozen=True)
class Told:
    """What is said about a row.

    :param step: the last that all its ranks have finished
    :param age: seconds since the oldest of their last steps
    :param behind: seconds after the first rank of all
    :param steps_behind: steps behind the front
    :param work: seconds of work in a step, or of the step
    :param excess: of the slowest, if it is slow, or of the latest, if only enqueueing is known
    :param lag: seconds by which CPUs enqueued later than that of the median rank
    """

    step: int | None
    age: float | None
    behind: float | None
    steps_behind: int
    work: float | None
    estimated: bool
    excess: float | None
    lag: float | None = None


def told(row: Row, paces: Mapping[int, RankPace], excess: Mapping[int, float], now: float) -> Told:
    """Of the ranks of a row, the worst in each respect."""
    known = [pace for rank in row.ranks if (pace := paces[rank]).step is not None]
    works = [pace.work if pace.work is not None else pace.span for pace in known]
    return Told(
        min([pace.step for pace in known if pace.step is not None], default=None),
        max([now - pace.at for pace in known if pace.at is not None], default=None),
        max([pace.behind_s for pace in known if pace.behind_s is not None], default=None),
        max([pace.behind for pace in known], default=0),
        max([work for work in works if work is not None], default=None),
        any(pace.estimated for pace in known),
        max([excess[rank] for rank in row.ranks if rank in excess], default=None),
        max([max(0.0, pace.lag) for pace in known if pace.lag is not None], default=None),
    )


def table(row: Told, columns: Sequence[str], *, stalled: bool, waits: str = "") -> list[Piece]:
    """The right side of a row.

    :param stalled: it has done no step for much longer than usual
    :param waits: ``missing`` or ``waiting``, while the run stands still
    """
    about = "~" if row.estimated else ""
    slow = row.excess is not None
    behind = "" if row.behind is None else f"+{seconds(row.behind)}"
    if row.steps_behind:
        behind = f"-{_count(row.steps_behind, COLUMNS['behind'] - 2)}"
    texts = {
        "step": ("" if row.step is None else _count(row.step, COLUMNS["step"] - 1), "label"),
        "age": (
            "" if row.age is None else about + _aged(max(0.0, row.age)),
            "warning" if stalled else "label",
        ),
        "behind": (behind, "pace-slow" if slow or row.steps_behind else "label"),
        "work": ("" if row.work is None else about + seconds(row.work), "pace-slow" if slow else "label"),
        "lag": ("" if row.lag is None else f"+{seconds(row.lag)}", "pace-slow" if slow else "label"),
        "more": ("" if row.excess is None else f"+{_percent(row.excess)} %", "pace-slow"),
    }
    if waits:
        texts["more"] = waits, "pace-slow" if waits == "missing" else "label"
    return [Piece(texts[name][0].rjust(COLUMNS[name]), texts[name][1]) for name in columns]


def heading(columns: Sequence[str], *, work: bool) -> Piece:
    """The names of the columns.

    :param work: seconds are of work, not of whole steps
    """
    names = {name: name for name in COLUMNS}
    names |= {"work": "work" if work else "a step", "more": "", "lag": "enqueue lag"}
    return Piece("".join(names[name].rjust(COLUMNS[name]) for name in columns), "label")


def seconds(value: float) -> str:
    """Seconds to a hundredth, so that ranks can be compared: ``2.95 s``; of long ones at most five signs."""
    return f"{value:.2f} s" if value < 99.995 else _aged(value)


def _aged(age: float) -> str:
    if age < 9.95:
        return f"{age:.1f} s"
    for size, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if age < 99.5 * size:
            return f"{age / size:.0f} {unit}"
    return f"{age / 86400:.0f} d" if age < 9995 * 86400 else "ages"


def _percent(excess: float) -> str:
    return f"{100 * excess:.0f}" if excess < 9.995 else ">999"


def _count(number: int, width: int) -> str:
    """A number in so many columns, with thousands separated if there is room."""
    return next((text for text in (f"{number:,}", str(number)) if len(text) <= width), f"{float(number):.0e}")
