"""Panes 2 and 3: the operations of one rank beside the others, and the collectives in which they meet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from rich.cells import cell_len

from cockpit.core.cutting import cut_middle, cut_sentence
from cockpit.core.masks import ranks_of
from cockpit.core.profile.folded import Differs
from cockpit.core.profile.reading import Arrivals, CollectiveRow, OperationRow, Reading, seconds
from cockpit.core.profile.words import brief, group_of, more_text
from cockpit.core.ranks import ranks_named, ranks_text
from cockpit.core.text import counted
from cockpit.tui.look.spark import BLOCKS
from cockpit.tui.look.units import Sizes, number_text
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, TextPane

NAMED = 4
"""Ranks that arrive late and are named, at most."""
HEAPS = 3
"""Heaps of ranks that arrive together, each of which says how many; of more none does."""
SCALE = 4
"""Parts of the axis of arrivals that have a number."""
ASCII_BARS = "_.-=+*%#"


class OperationList(ListPane[OperationRow | Differs]):
    """The operations of a rank, those in which it differs first; of stacks, where it is for longer."""

    rank: int | None = None
    step = 0.0
    """Seconds of a step: times have as many digits as it needs."""

    def show(self, rank: int | None, step: float, rows: Sequence[OperationRow | Differs]) -> None:
        """Draw these of a rank."""
        self.rank, self.step = rank, step
        self.show_items(rows)

    def key_of(self, item: OperationRow | Differs) -> Hashable:
        """Its name."""
        return item.name if isinstance(item, OperationRow) else item.frame

    def drawn_from(
        self, item: OperationRow | Differs, before: OperationRow | Differs | None, width: int
    ) -> tuple[object, ...]:
        """Also what all rows depend on."""
        return item, before is None, width, self.rank, self.step

    def item_lines(
        self, item: OperationRow | Differs, before: OperationRow | Differs | None, width: int
    ) -> Iterator[Line]:
        """The row; above the first one what the columns are."""
        name = f"rank {self.rank}"
        if isinstance(item, Differs):
            if before is None:
                yield Line(
                    (Piece(f"{name:>9}{'others':>9}{'more':>9}  in this function or what it calls", "head"),),
                    heading=True,
                )
            cells = (f"{item.share:>9.0%}", f"{item.others:>9.0%}", f"{item.more:>+9.0%}")
            role = "odd" if before is None else ""
            text = cut_middle(item.frame, max(1, width - 29))
            yield Line(
                (
                    Piece(cells[0], role),
                    Piece(cells[1], "label"),
                    Piece(cells[2], role),
                    Piece(f"  {text}", role),
                )
            )
            return
        number = max(9, len(seconds(self.step, self.step)) + 3)
        room = max(8, width - 3 * number - 7)
        if before is None:
            yield Line(
                (
                    Piece(
                        f"{'operation':<{room}}{name:>{number}}{'median':>{number}}{'more':>{number}}{'calls':>7}",
                        "head",
                    ),
                ),
                heading=True,
            )
        more = more_text(item.more, self.step)
        odd = "odd" if more.startswith("+") and (item.more or 0.0) >= 0.02 * self.step else ""
        text = cut_middle(item.name, room - 1)
        median = "" if item.median is None else seconds(item.median, self.step)
        yield Line(
            (
                Piece(text + " " * (room - cell_len(text)), odd),
                Piece(f"{seconds(item.own, self.step):>{number}}", odd),
                Piece(f"{median:>{number}}", "label"),
                Piece(f"{more:>{number}}", odd or "label"),
                Piece(f"{number_text(round(item.count, 1)):>7}", "label"),
            )
        )


class CollectivePane(TextPane):
    """Collectives of a step, when ranks arrive at the one that is waited in most, and what that costs."""

    sizes: Sizes
    _reading: Reading | None = None
    _why = _gain = ""

    def show(self, reading: Reading | None, sizes: Sizes, why: str = "", gain: str = "") -> None:
        """Draw these.

        :param why: there are none
        :param gain: how fast the run would be without who is slow
        """
        self._reading, self.sizes, self._why, self._gain = reading, sizes, why, gain
        self.rebuild()

    def build(self, width: int) -> Sequence[Line]:
        """The table, the arrivals, and what would be without who is slow."""
        reading = self._reading
        if reading is None or not reading.collectives:
            return [Line.of(cut_sentence(self._why, width), "label")]
        lines = [*self._table(reading, width)]
        if reading.arrivals is not None:
            lines += [Line(), *self._arrivals(reading, reading.arrivals, width)]
        if kept := [*_kept_up(reading)]:
            lines += [Line(), *kept]
            lines += [Line.of(cut_sentence(self._gain, width), "label")] if self._gain else []
        return lines

    def _table(self, reading: Reading, width: int) -> Iterator[Line]:
        heads = {"size": 10, "calls": 6, "time": 9, "GB/s": 6, "spread": 8, "last": 9}
        # What is left out first, where there is little room.
        for name in ("calls", "GB/s", "size", "time"):
            if width - sum(heads.values()) < 18:
                del heads[name]
        room = max(8, width - sum(heads.values()))
        yield Line(
            (
                Piece(
                    "each step".ljust(room) + "".join(f"{name:>{wide}}" for name, wide in heads.items()),
                    "head",
                ),
            )
        )
        where: bool | None = None
        for at, row in enumerate(reading.collectives):
            if row.between is not where and any(
                one.between is not row.between for one in reading.collectives
            ):
                yield Line.of("between nodes" if row.between else "within a node", "label")
            where = row.between
            worst = reading.arrivals is not None and reading.arrivals.row == at
            yield self._row(row, heads, room, odd=worst and reading.kept_up is not None)

    def _row(self, row: CollectiveRow, heads: Mapping[str, int], room: int, *, odd: bool) -> Line:
        cells = {
            "size": self.sizes.text(row.size) if row.size else "",
            "calls": f"{row.count:.3g}",
            "time": brief(row.took),
            "GB/s": f"{row.rate / 1e9:.1f}" if row.rate else "–",
            "spread": brief(row.spread),
            "last": f"{row.last[0][0]} {row.last[0][1]}/{row.of}" if row.last and row.spread >= 1e-4 else "",
        }
        about = "" if shared(self._reading) else _group(row)
        text = cut_sentence(row.name, room - 1)
        about = cut_sentence(f" {about}", room - 1 - cell_len(text)) if about else ""
        name = (Piece(text), Piece(about + " " * (room - cell_len(text + about)), "label"))
        roles = dict.fromkeys(("spread", "last"), "odd" if odd else "")
        return Line(
            (
                *name,
                *(Piece(f"{cells[each]:>{wide}}", roles.get(each, "label")) for each, wide in heads.items()),
            )
        )

    def _arrivals(self, reading: Reading, arrivals: Arrivals, width: int) -> Iterator[Line]:
        """A histogram: from the first to the last that arrives, with the late ones named."""
        row = reading.collectives[arrivals.row]
        last = max(arrivals.after.values(), default=0.0)
        scale, unit = (1000, "ms") if last < 0.095 else (1, "seconds")
        text = f"arrivals at {row.name}{group_of(row)}, {unit} after the first"
        yield Line.of(cut_sentence(text, width), "label")
        if not last > 0:
            yield Line.of(f"  all {len(arrivals.after)} at once")
            return
        cells = max(10, width - 2)
        bins: list[list[int]] = [[] for _ in range(cells)]
        for rank, after in arrivals.after.items():
            bins[min(cells - 1, int(cells * after / last))].append(rank)
        most = max(map(len, bins))
        bars = ASCII_BARS if self.ascii_only else BLOCKS
        drawn = "".join(bars[-(-len(some) * len(bars) // most) - 1] if some else " " for some in bins)
        yield from _labelled(drawn, bins, reading)
        yield Line.of("  " + ("-" if self.ascii_only else "─") * cells, "label")
        digits, axis = 2 if scale == 1 else 1 if scale * last < 20 else 0, "  "
        for part in range(SCALE + 1):
            number = f"{scale * last * part / SCALE:.{digits}f}" if part else "0"
            at = min(2 + round((cells - 1) * part / SCALE), 2 + cells - len(number))
            axis = axis.ljust(at) + number
        yield Line.of(axis, "label")


def _labelled(drawn: str, bins: Sequence[Sequence[int]], reading: Reading) -> Iterator[Line]:
    """The bars, with how many each heap is, or who: at its right, of the last one at its left."""
    slow = set(ranks_of(reading.finding.ranks)) if reading.kept_up is not None else set()
    pieces, at, few = [Piece("  ")], 0, len(drawn.split()) <= HEAPS
    while at < len(drawn):
        end = at
        while end < len(drawn) and (drawn[end] == " ") == (drawn[at] == " "):
            end += 1
        if drawn[at] != " ":
            odd = slow >= {rank for some in bins[at:end] for rank in some}
            pieces.append(Piece(drawn[at:end], "odd" if odd else "spark"))
        else:
            last = _heap(bins, end, 1)
            left = f" {_who(_heap(bins, at - 1, -1), ranks_named)}" if at else ""
            right = f"{_who(last, ranks_text)} " if last and len(drawn[end:].split()) == 1 else ""
            left = left if few and len(left) < end - at else ""
            right = right if few and len(left) + len(right) < end - at else ""
            gap = Piece(" " * (end - at - len(left) - len(right)))
            pieces += [Piece(left, "label"), gap, Piece(right, "odd" if slow >= set(last) else "label")]
        at = end
    yield Line(tuple(piece for piece in pieces if piece.text))


def _heap(bins: Sequence[Sequence[int]], at: int, step: int) -> list[int]:
    """The ranks of neighbouring bars from one on, in a direction."""
    found: list[int] = []
    while 0 <= at < len(bins) and bins[at]:
        found += bins[at]
        at += step
    return sorted(found)


def _who(ranks: Sequence[int], named: Callable[[Sequence[int]], str]) -> str:
    return counted(len(ranks), "rank") if len(ranks) > NAMED else named(ranks)


def _kept_up(reading: Reading) -> Iterator[Line]:
    """A step as it is, and as it would be if who is slow were like the others."""
    if reading.kept_up is None or reading.parts is None:
        return
    step, kept = reading.parts.took, reading.kept_up
    who = ranks_named(ranks_of(reading.finding.ranks))
    label = f"if {cut_middle(who, 24)} kept up"
    wide = max(cell_len(label), 3) + 3
    less = f"   {1 - kept / step:.0%} less" if step > 0 else ""
    yield Line(
        (
            Piece(label.ljust(wide), "label"),
            Piece(seconds(kept, step), "strong"),
            Piece(" a step", "label"),
            Piece(less, "label"),
        )
    )
    yield Line((Piece("now".ljust(wide), "label"), Piece(seconds(step, step)), Piece(" a step", "label")))


def shared(reading: Reading | None) -> str:
    """The group that all collectives are of: ``data parallel, 64 ranks``; empty: there are several."""
    groups = {_group(row) for row in reading.collectives} if reading is not None else set()
    return groups.pop() if len(groups) == 1 else ""


def _group(row: CollectiveRow) -> str:
    """Whose it is, and how many are here."""
    seen = f"{row.seen} of " if row.ranks > row.seen else ""
    ranks = f"{seen}{counted(row.ranks, 'rank')}" if row.ranks else ""
    return ", ".join(filter(None, (group_of(row).strip(), ranks)))
