"""The run under the cursor: why it ended, how long it ran, its curves, its command, its last lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from cockpit.base.shell import join
from cockpit.core.run.brief import GOES_ON, Brief
from cockpit.core.text import clip, columns, counted, one_line
from cockpit.core.time_text import span_text
from cockpit.tui.look.spark import sparkline
from cockpit.tui.look.units import BINARY, clock_text, number_text
from cockpit.tui.panes.meanings import MEANINGS
from cockpit.tui.panes.text_pane import Line, Piece, TextPane, hanging

if TYPE_CHECKING:
    from cockpit.engine.report.glance import Glance

HEAD = 14
"""Rows above the last lines."""

LABEL, SPARK, SPARK_LEAST = 11, 30, 8
"""Columns of what a line is about; of a curve, and at least."""

WELCOME: Sequence[tuple[str, str, str]] = (
    ("d", "cockpit demo", "a healthy run of 4 ranks"),
    ("h", "cockpit demo --fault hang", "a rank hangs: which one, and where"),
    ("c", "cockpit demo --fault crash", "a rank fails: which one, and why"),
)
OWN: Sequence[tuple[str, str]] = (
    ("cockpit doctor HOSTFILE", "are they fit, what to type if not"),
    ("cockpit run HOSTFILE -- train.py", "launch on every node and watch"),
    ("cockpit attach HOSTFILE", "watch a job already running there"),
)


class _Curve(NamedTuple):
    """Values over time, oldest first.

    :param last: what is said of the last of them; ``more``: what else
    :param most: the value of the highest column, above 0; None: columns show how values vary
    """

    name: str
    values: Sequence[float]
    role: str
    last: str
    more: str
    most: float | None = None


class Preview(TextPane):
    """What there is to say of one run; without any run, how to try the demo."""

    MEANINGS: ClassVar[Mapping[str, str]] = {**MEANINGS, "edge": "rank-failed bold"}

    brief: Brief | None = None
    glance: Glance | None = None
    """None: it is being read."""
    welcomes = False
    """Whether no run is known here."""
    trouble = ""
    """Why it cannot be."""
    beside: tuple[str, str] = ("", "")
    """How it was started otherwise than another run, see :func:`cockpit.core.compare.since.since`."""
    sizes = BINARY
    """How bytes are written."""
    keys: Mapping[str, str] = {"demo": "d", "demo_hang": "h", "demo_crash": "c"}
    """The key of each command."""

    def hold(self, beside: tuple[str, str]) -> None:
        """Show how this run was started otherwise than another one."""
        if beside != self.beside:
            self.beside = beside
            self.rebuild()

    def show(self, brief: Brief | None, glance: Glance | None, trouble: str = "") -> None:
        """Show this run."""
        if (brief, glance, trouble) != (self.brief, self.glance, self.trouble):
            other = brief is None or self.brief is None or brief.run != self.brief.run
            self.brief, self.glance, self.trouble = brief, glance, trouble
            if other:
                self.home()
            self.rebuild()

    def build(self, width: int) -> Sequence[Line]:
        """Its lines."""
        if self.brief is not None:
            return [*self._told(self.brief, width)]
        return [*self._welcome(width)] if self.welcomes else []

    def _welcome(self, width: int) -> Iterator[Line]:
        left = " " * (12 if width >= 96 else 1)
        room = 35 if width >= 84 else 34
        yield from [Line()] * (8 if self.size.height >= 30 else 1)
        yield Line(
            (
                Piece(f"{left}Nothing here yet.", "title"),
                Piece("  Try it on this machine, it takes a minute:"),
            )
        )
        yield Line()
        for (_, command, what), name in zip(WELCOME, ("demo", "demo_hang", "demo_crash"), strict=True):
            key = Piece(f"{left}{self.keys[name]:<3}", "name")
            yield Line((key, Piece(f"{command:<{room}}", "title"), Piece(what, "label")))
        yield Line()
        yield from hanging(
            (Piece(f"{left}   "),),
            "real training on two small nodes made here; no GPU, no root",
            width,
            "label",
        )
        yield from [Line()] * (3 if self.size.height >= 30 else 1)
        yield Line.of(f"{left}Or on your own nodes:", "title")
        yield Line()
        for command, what in OWN:
            yield Line((Piece(f"{left}   {command:<{room}}"), Piece(what, "label")))

    def _told(self, brief: Brief, width: int) -> Iterator[Line]:
        glance = self.glance
        if glance is not None:
            yield from self._banner(brief, glance, width)
        yield from self._head(brief, width)
        if self.trouble:
            yield Line()
            yield from hanging((), one_line(self.trouble, limit=600), width, "warning")
        elif glance is None:
            yield Line()
            yield Line.of("reading what is here of it", "label")
        else:
            yield from self._tails(glance, width)

    @property
    def _tail_lines(self) -> int:
        """How many lines of each log are shown: the last one should be on the screen."""
        glance = self.glance
        return max(6, (self.size.height - HEAD) // max(1, len(glance.tails) if glance else 1) - 2)

    def _banner(self, brief: Brief, glance: Glance, width: int) -> Iterator[Line]:
        """How it ended and why, and what to type; nothing of what ended well."""
        if brief.word in GOES_ON or brief.word == "ended":
            first = brief.cause
        else:
            first = next(iter(glance.outcome), brief.cause)
        lines = [(first, "bad")] if first else []
        lines += [(glance.cause, "title")] if glance.cause else []
        lines += [(" → ".join(glance.places[-3:]), "")] if glance.places else []
        lines += [(glance.meaning, "")] if glance.meaning else []
        lines += [(f"next: {glance.next}", "title")] if glance.next else []
        for text, role in lines:
            yield from hanging(
                (Piece("▌ " if not self.ascii_only else "| ", "edge"),),
                one_line(text, limit=600),
                width,
                role,
            )
        if lines:
            yield Line()

    def _head(self, brief: Brief, width: int) -> Iterator[Line]:
        began = time.strftime("%d %b %H:%M:%S", time.localtime(brief.began))
        if brief.lasted_s is not None and brief.ended is not None:
            yield _about("ran", f"{span_text(brief.lasted_s)}   {began} to {clock_text(brief.ended, 8)}")
        else:
            yield _about("began", began)
        if self.glance is not None:
            yield from self._curves(self.glance, width)
        if brief.command:
            yield from hanging(_label("command"), one_line(join(brief.command), limit=2000), width)
        name, text = self.beside
        if text:
            yield from hanging(_label(name), one_line(text, limit=600), width)
        if brief.cwd:
            yield from hanging(_label("in"), one_line(brief.cwd, limit=600), width, "label")
        ranks = f"{brief.ranks:,} rank{'s' * (brief.ranks != 1)} of {brief.launcher or 'unknown launcher'}"
        job = f", SLURM job {brief.job}" if brief.job else ""
        yield _about("what", one_line(f"{ranks}{job}", limit=200))

    def _curves(self, glance: Glance, width: int) -> Iterator[Line]:
        """Loss, step time, memory, each with its last value; columns of curves give way to words."""
        found = []
        if loss := glance.loss:
            found.append(
                _Curve(
                    "loss", loss, "gpu", number_text(loss[-1]), f"last, {number_text(loss[0])} at first here"
                )
            )
        if spans := glance.step_s:
            middle = span_text(sorted(spans)[len(spans) // 2])
            found.append(
                _Curve("step time", spans, "rank", middle, f"median of {counted(len(spans), 'step')}")
            )
        if (memory := glance.memory) is not None:
            sizes, used, total = self.sizes, memory.used, memory.total
            told = sizes.part(used[-1], total) if total else sizes.text(used[-1])
            whose = memory.node if memory.gpu is None else f"{memory.node} GPU {memory.gpu}"
            more = one_line(f"{whose}, {sizes.text(used[0])} at first", limit=200)
            found.append(
                _Curve("memory" if memory.gpu is None else "vram", used, "warning", told, more, total)
            )
        room = width - LABEL - 3 - max((columns(one.last) + columns(one.more) for one in found), default=0)
        spark = max(SPARK_LEAST, min(SPARK, room))
        for one in found:
            each = max(1, -(-len(one.values) // spark))
            parts = [one.values[at : at + each] for at in range(0, len(one.values), each)]
            thinned = [sum(part) / len(part) for part in parts]
            low = 0 if one.most else None
            drawn = sparkline(thinned, len(thinned), low, one.most, ascii_only=self.ascii_only).ljust(spark)
            left, more = max(0, width - LABEL - spark - 3 - columns(one.last)), one.more
            if columns(more) > left:
                more = clip(more.rpartition(", ")[0] or more, left)
            yield Line(
                (
                    *_label(one.name),
                    Piece(drawn, one.role),
                    Piece(f"  {one.last}", "title"),
                    Piece(f" {more}", "label"),
                )
            )

    def _tails(self, glance: Glance, width: int) -> Iterator[Line]:
        for tail in glance.tails:
            who = "launcher" if tail.rank is None else f"rank {tail.rank}"
            yield Line()
            yield from hanging(
                (Piece("last lines ", "label"),),
                one_line(f"{who} on {tail.node}: {tail.why}", limit=200),
                width,
                "label",
            )
            for text in tail.lines[-self._tail_lines :]:
                yield from hanging((), text, width, "error" if "Error" in text else "")


def _label(name: str) -> tuple[Piece]:
    return (Piece(f"{name:<{LABEL}}", "label"),)


def _about(name: str, text: str) -> Line:
    return Line((*_label(name), Piece(text)))
