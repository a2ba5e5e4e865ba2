"""Where the time of a step goes, as cells: a strip from left to right, or a bar from the bottom up.

Each cell is in the colour of its phase; where colours do not tell, it is a letter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from cockpit.core.pace.heat import STALL, goes_on
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.phases import NAMES, Phases, middle_phases
from cockpit.core.pace.step import Step
from cockpit.tui.look.spark import BLOCKS
from cockpit.tui.pace.table import COLUMNS
from cockpit.tui.pace.view_model import Frame, Sight
from cockpit.tui.panes.text_pane import Piece

LETTERS = dict(zip(NAMES, "ifbuw.", strict=True))
"""A cell of each phase where there are no colours, or too few."""
SHORT = {"forward": "fwd", "backward": "bwd"}
"""Names where there is little room."""
TEXTS = {"wait": "", "other": "label"}
"""The meanings of texts about phases whose colours are too dark for one."""

STRIP = COLUMNS["phases"] - 1
"""Cells of a rank's strip beside the map."""
SOME = 8
"""Ranks of a row of many, of which the median is taken."""
FULL = "█"
"""A cell of a strip that stands alone."""
EIGHTHS = 8
TRIED = 3
"""Steps of a column of which the newest that did not begin late is drawn."""


def shared_out(of: Phases, cells: int) -> list[str]:
    """The phase of each of so many cells; what is not known has none."""
    known = [(name, took) for name, took in zip(NAMES, of, strict=True) if took > 0]
    whole = sum(took for _, took in known)
    if not whole > 0:
        return []
    exact = [cells * took / whole for _, took in known]
    counts = [int(each) for each in exact]
    rests = sorted(range(len(known)), key=lambda at: counts[at] - exact[at])
    for at in rests[: cells - sum(counts)]:
        counts[at] += 1
    return [name for (name, _), count in zip(known, counts, strict=True) for _ in range(count)]


def strip(of: Phases | None, width: int, *, letters: bool, sign: str = FULL) -> list[Piece]:
    """A strip of so many cells; empty ones where nothing is known.

    :param letters: instead of colours alone
    """
    names = shared_out(of, width) if of is not None else []
    if not names:
        return [Piece(" " * width)]
    runs = ((name, sum(1 for _ in run)) for name, run in groupby(names))
    return [Piece((LETTERS[name] if letters else sign) * many, f"phase-{name}") for name, many in runs]


def stacked(names: Sequence[str], line: int, *, letters: bool) -> tuple[str, str]:
    """The sign and the role of what a bar fills of a line.

    :param names: the phase of each eighth of a line, from the bottom up
    :param line: counted from the bottom
    """
    here = names[EIGHTHS * line : EIGHTHS * (line + 1)]
    if not here:
        return " ", ""
    many = {name: sum(1 for _ in run) for name, run in groupby(here)}
    most = sorted(many, key=many.__getitem__)[-2:]
    if letters:
        return (LETTERS[most[-1]], f"phase-{most[-1]}") if 2 * len(here) >= EIGHTHS or not line else (" ", "")
    if len(here) < EIGHTHS or len(most) == 1:
        return BLOCKS[len(here) - 1], f"phase-{most[-1]}"
    low, top = sorted(most, key=NAMES.index)
    part = round(EIGHTHS * many[low] / (many[low] + many[top]))
    return BLOCKS[min(EIGHTHS - 1, max(1, part)) - 1], f"phase-{low}/phase-{top}"


def row_phases(pace: Pace, ranks: Sequence[int]) -> Phases | None:
    """The phases of a rank, or the median of some of many."""
    every = math.ceil(len(ranks) / SOME)
    each = (pace.phases_of(rank) for rank in ranks[:: max(1, every)] if rank in pace.steps.place)
    return middle_phases([one for one in each if one is not None])


def column_phases(sight: Sight, frame: Frame) -> list[Phases | None]:
    """For each column the phases of the median rank, in the last step that ended or went on in it.

    A step that began late is passed over: its phases are those of something else. Steps since recorders were
    last asked are drawn as the last one whose work is known, as in the map.
    """
    pace, window = sight.pace, frame.window
    longest = STALL * (pace.usual() or math.inf)
    looked = next((step for step in pace.steps.newest() if step.works), None) if pace.works else None
    found = []
    for column in range(window.columns):
        since = window.since + column * window.wide
        some = _steps_in(pace, since, since + window.wide)
        step = next((step for step in some if not step.typical_span > longest), None)
        if step is not None and looked is not None and goes_on(looked, step):
            step = looked
        found.append(None if step is None else step.typical_phases)
    return found


def _steps_in(pace: Pace, since: float, until: float) -> Iterator[Step]:
    """The last steps that ended in a span of time, newest first, or the one that went on all the time."""
    last = pace.steps.ended_by(until)
    if last is None:
        return
    if last.typical_end >= since:
        some = pace.steps.back_from(last.key, TRIED)
        yield from (step for step in some if step.typical_end >= since)
        return
    after = pace.steps.get((last.key[0], last.key[1] + 1))
    if after is not None and after.typical_end - after.typical_span * after.count < until:
        yield after


# What is said of them


def phase_role(name: str) -> str:
    """The meaning of a text about a phase."""
    return TEXTS.get(name, f"phase-{name}")


def legend(of: Phases, lines: int, about: str, *, letters: bool) -> Iterator[tuple[Piece, ...]]:
    """The phases and their shares, in so many lines: the largest ones, in their order."""
    whole = of.total
    shares = {name: took / whole for name, took in zip(NAMES, of, strict=True) if took >= whole / 200}
    largest = sorted(shares, key=shares.__getitem__)[-lines:] if lines > 0 else []
    for name in (name for name in NAMES if name in largest):
        sign = LETTERS[name] if letters else "■"
        share = f"{about}{100 * shares[name]:.0f} %"
        yield Piece(f"  {sign}", f"phase-{name}"), Piece(f" {name:<8}", "label"), Piece(f"{share:>6}")


def numbers(of: Phases, about: str) -> tuple[list[Piece], list[Piece]]:
    """Seconds of each phase that is known, in two lines: to a hundredth, of short steps to a thousandth."""
    digits = 2 if of.total >= 1 else 3
    pieces = {
        name: Piece(f"{SHORT.get(name, name)} {about}{took:.{digits}f}", phase_role(name))
        for name, took in zip(NAMES, of, strict=True)
        if not math.isnan(took)
    }
    halves = NAMES[:3], NAMES[3:]
    first, second = ([pieces[name] for name in half if name in pieces] for half in halves)
    return first, second
