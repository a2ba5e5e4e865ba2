"""The table beside the map: how far the ranks of a row are; of several, the one that is worst off."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cockpit.core.pace.pace import Pace, RankPace
from cockpit.core.pace.rows import Row
from cockpit.tui.panes.text_pane import Piece

COLUMNS = {"step": 6, "age": 7, "behind": 8, "work": 7, "more": 7, "lag": 13, "phases": 11}
"""The columns of the table, and how wide they are at least."""

ROLE = 8
"""The width of ``more`` while the run stands still: it says who is missing."""

SHOWN = ((82, ("step", "age", "behind", "work", "more")), (60, ("age", "work", "more")), (0, ("work",)))
"""From how many columns of the pane on it has which; ``lag`` stands for ``work`` where only that is known."""

WIDEST = 9
"""Columns that a step takes at most."""


def columns_for(width: int, pace: Pace, *, stalled: bool = False) -> dict[str, int]:
    """The columns that a pane of this width has, and how wide each is.

    :param stalled: the run stands still
    """
    shown = next(columns for least, columns in SHOWN if width >= least)
    # On NCCL what is known is when CPUs enqueued, which is no work of a GPU.
    names = ["lag" if pace.lags and name == "work" else name for name in shown]
    front = 0 if pace.front is None else pace.front[0]
    wide = COLUMNS | {"step": min(WIDEST, max(COLUMNS["step"], len(f"{front:,}") + 1))}
    if not pace.exact:
        wide |= {name: wide[name] + len("~") for name in ("step", "age", "work")}
    if stalled:
        wide["more"] = ROLE
    return {name: wide[name] for name in names}


@dataclass(frozen=True)
class RowValues:
    """What is said about a row.

    :param step: the last that all its ranks have finished that still run, if any does
    :param age: seconds since the oldest of their last steps; None also where nothing gets older
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


def told(
    row: Row,
    paces: Mapping[int, RankPace],
    excess: Mapping[int, float],
    now: float | None,
    dead: Collection[int] = (),
) -> RowValues:
    """Of the ranks of a row, the worst in each respect.

    :param now: unix seconds; None: the run is over
    :param dead: ranks that have ended: they get neither older nor further behind
    """
    known = [pace for rank in row.ranks if (pace := paces[rank]).step is not None]
    live = [paces[rank] for rank in row.ranks if rank not in dead and paces[rank].step is not None]
    known = live or known
    works = [pace.work if pace.work is not None else pace.span for pace in known]
    return RowValues(
        min([pace.step for pace in known if pace.step is not None], default=None),
        None if now is None else max([now - pace.at for pace in live if pace.at is not None], default=None),
        max([pace.behind_s for pace in live if pace.behind_s is not None], default=None),
        max([pace.behind for pace in live], default=0),
        max([work for work in works if work is not None], default=None),
        any(pace.estimated for pace in known),
        max([excess[rank] for rank in row.ranks if rank in excess], default=None),
        max([max(0.0, pace.lag) for pace in known if pace.lag is not None], default=None),
    )


_WAITS = {"missing": "pace-slow", "failed": "failed"}
"""The meanings of these words, where they are no labels."""


def table(row: RowValues, columns: Mapping[str, int], *, stalled: bool, waits: str = "") -> list[Piece]:
    """The right side of a row.

    :param columns: as :func:`columns_for` gives them; ``phases`` is a strip, and not made here
    :param stalled: it has done no step for much longer than usual
    :param waits: ``missing`` or ``waiting``, while the run stands still; or ``failed``
    """
    about = "~" if row.estimated else ""
    slow = row.excess is not None
    behind = "" if row.behind is None else f"+{_brief(row.behind)}"
    if row.steps_behind:
        behind = f"-{_count(row.steps_behind, columns.get('behind', COLUMNS['behind']) - 2)}"
    step = "" if row.step is None else _count(row.step, columns.get("step", WIDEST) - 1 - len(about))
    texts = {
        "step": (step and about + step, "label"),
        "age": (
            "" if row.age is None else about + aged(max(0.0, row.age)),
            "warning" if stalled else "label",
        ),
        "behind": (behind, "pace-slow" if slow or row.steps_behind else "label"),
        "work": ("" if row.work is None else about + _brief(row.work), "pace-slow" if slow else "label"),
        "lag": ("" if row.lag is None else f"+{_brief(row.lag)}", "pace-slow" if slow else "label"),
        "more": ("" if row.excess is None else _percent(row.excess), "pace-slow"),
    }
    if waits:
        texts["more"] = waits, _WAITS.get(waits, "label")
    shown = ((texts[name], wide) for name, wide in columns.items() if name in texts)
    return [Piece(text.rjust(wide), role) for (text, role), wide in shown]


def heading(columns: Mapping[str, int], *, work: bool) -> Piece:
    """The names of the columns.

    :param work: seconds are of work, not of whole steps
    """
    names = {name: name for name in COLUMNS}
    names |= {"work": "work" if work else "a step", "more": "", "lag": "enqueue lag"}
    names["phases"] = "phases".ljust(COLUMNS["phases"] - 1)
    return Piece("".join(names[name].rjust(wide) for name, wide in columns.items()), "label")


def seconds(value: float) -> str:
    """Seconds to a hundredth, so that ranks can be compared: ``2.95 s``; of long ones at most five signs."""
    return f"{value:.2f} s" if value < 99.995 else _brief(value)


def _brief(value: float) -> str:
    """Seconds in at most six signs: ``2.95 s``, ``12.3 s``, ``412 s``."""
    for most, digits in ((9.995, 2), (99.95, 1), (999.5, 0)):
        if value < most:
            return f"{value:.{digits}f} s"
    return aged(value)


def aged(age: float) -> str:
    """A time in at most six signs: ``0.9 s``, ``48 s``, ``12 min``."""
    if age < 9.95:
        return f"{age:.1f} s"
    for size, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if age < 99.5 * size:
            return f"{age / size:.0f} {unit}"
    return f"{age / 86400:.0f} d" if age < 995 * 86400 else "ages"


def _percent(excess: float) -> str:
    return f"+{100 * excess:.0f} %" if excess < 9.995 else ">999 %"


def _count(number: int, width: int) -> str:
    """A number in so many columns, with thousands separated if there is room."""
    return next((text for text in (f"{number:,}", str(number)) if len(text) <= width), f"{float(number):.0e}")
