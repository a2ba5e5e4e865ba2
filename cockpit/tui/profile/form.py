"""The question before a profile: what, on which ranks, for how long; and what it will cost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual import getters, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from cockpit.core.profile.collection import Collection
from cockpit.core.ranks import ranks_named
from cockpit.core.text import counted, one_line
from cockpit.core.time_text import rounded_span
from cockpit.engine.profile.choose import SECONDS, STEPS, Plan, Wish
from cockpit.engine.profile.taking import Taking
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen
from cockpit.tui.panes.text_pane import fold
from cockpit.tui.profile.job import Job, about

LABEL = 10
"""Columns of what a row is about."""
ROOM = 68
"""Columns of the text, where the terminal has so many."""
REASONS = 4
"""Why ranks are left out: so many reasons are said."""
BLANKS = 8
"""Columns that are not for text: the frame, and the margin around it."""


@dataclass
class _Choice:
    """A row of the question.

    :param options: what there is to choose, and what each stands for
    :param at: the place of the chosen one
    """

    name: str
    options: Sequence[tuple[str, Any]]
    at: int = 0

    @property
    def value(self) -> Any:
        """What is chosen."""
        return self.options[self.at][1]


KINDS = [("torch", "torch"), ("cpu", "cpu"), ("nsys", "nsys")]
_STEPS: list[tuple[str, Any]] = [(counted(many, "step"), many) for many in (1, STEPS, 10, 20)]
LENGTHS: dict[str, list[tuple[str, Any]]] = {
    "torch": _STEPS,
    "cpu": [(f"{many:g} s", many) for many in (5.0, SECONDS, 30.0, 60.0)],
    "nsys": _STEPS,
}
WITH: list[tuple[str, Mapping[str, bool]]] = [
    ("shapes", {}),
    ("Python stacks", {"stack": True}),
    ("memory", {"memory": True}),
    ("none", {"shapes": False}),
]
USUAL = 1
"""The place of the usual length."""


class ProfileForm(ModalScreen["Taking | int"]):
    """Answers with a profile that can begin, or with the number of an earlier one; esc: with nothing.

    :param job: whose ranks
    :param earlier: profiles that are here, the oldest first
    :param marked: ranks to offer, besides those that the job knows
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "close"),
        ("enter", "begin"),
        *((key, "row(-1)") for key in ("up", "k", "shift+tab")),
        *((key, "row(1)") for key in ("down", "j", "tab")),
        *((key, "choose(-1)") for key in ("left", "h")),
        *((key, "choose(1)") for key in ("right", "l", "space")),
    ]

    DEFAULT_CSS = """
    ProfileForm { align: center middle; }
    ProfileForm > Vertical {
        width: 76; max-width: 96%; height: auto;
        border: round $key; background: $surface; padding: 1 2;
        border-title-color: $key; border-title-style: bold; border-subtitle-color: $dim;
    }
    ProfileForm.-ascii > Vertical { border: ascii; }
    ProfileForm Static { width: 1fr; height: auto; }
    """

    _text = getters.query_one(Static)

    def __init__(
        self, job: Job, earlier: Sequence[Collection], marked: Mapping[str, frozenset[int]] | None = None
    ) -> None:
        super().__init__()
        self._job = job
        self._why_not = one_line(job.why_not())
        ranks = [("default", None), *{**job.marked(), **(marked or {})}.items()]
        self._kind = _Choice("what", KINDS)
        self._ranks = _Choice("ranks", ranks)
        self._length = _Choice("how long", LENGTHS["torch"], USUAL)
        self._with = _Choice("with", WITH)
        self._earlier = _Choice("or open", [(about(one), one.number) for one in reversed(earlier)])
        self._at = 0
        self._asked = False
        """Whether a person has said which kind; else it is what can be had."""
        self._taking: Taking | None = None
        self._error: CockpitError | None = None

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            yield Static("", markup=False)
        box.border_title = Content(" profile the ranks ")

    def on_mount(self) -> None:
        if self.app.glyphs.ascii:  # type: ignore[attr-defined]
            self.add_class("-ascii")
        if not self._why_not:
            self._prepare()
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    @property
    def _rows(self) -> list[_Choice]:
        rows = [] if self._why_not else [self._kind, self._ranks, self._length]
        if rows and self._kind.value == "torch":
            rows.append(self._with)
        return [*rows, *([self._earlier] if self._earlier.options else [])]

    @property
    def _row(self) -> _Choice:
        return self._rows[min(self._at, len(self._rows) - 1)]

    @property
    def wish(self) -> Wish:
        """What is asked for."""
        kind = self._kind.value
        wish = Wish(kind if self._asked else "", self._ranks.value)
        if kind == "cpu":
            return replace(wish, seconds=self._length.value)
        # Where no steps are counted it is stacks, or a recording, for as long as is usual.
        usual = self._length.at == USUAL and (kind == "nsys" or not self._asked)
        steps = None if usual else self._length.value
        return replace(wish, steps=steps, **(self._with.value if kind == "torch" else {}))

    @work(group="form", exclusive=True)
    async def _prepare(self) -> None:
        self._taking = self._error = None
        self._draw()
        try:
            taking = await self._job.prepare(self.wish)
        except CockpitError as error:
            self._error = error
        else:
            self._taking = taking
            if taking.plan is not None and taking.plan.kind != self._kind.value:
                self._choose_kind(taking.plan.kind)
        self._draw()

    def _choose_kind(self, kind: str) -> None:
        self._kind.at = [name for name, _ in KINDS].index(kind)
        self._length = _Choice("how long", LENGTHS[kind], USUAL)

    # Keys

    def action_close(self) -> None:
        """Nothing is done."""
        self.dismiss(None)

    def action_row(self, step: int) -> None:
        """The next row, or the one before."""
        self._at = (min(self._at, len(self._rows) - 1) + step) % len(self._rows)
        self._draw()

    def action_choose(self, step: int) -> None:
        """The next option of the row, or the one before."""
        row = self._row
        row.at = (row.at + step) % len(row.options)
        if row is self._kind:
            self._asked = True
            self._choose_kind(row.value)
        if row is not self._earlier:
            self._prepare()
        self._draw()

    def action_begin(self) -> None:
        """Begin, or show the earlier one; where it was refused, ask again."""
        if self._row is self._earlier:
            self.dismiss(self._earlier.value)
        elif self._taking is not None:
            self.dismiss(self._taking)
        elif self._error is not None:
            self._prepare()

    # Drawing

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        width = max(20, min(ROOM, self.app.size.width * 96 // 100 - BLANKS))
        self._text.update(Content("\n").join(self._lines(width)))
        earlier = self._row is self._earlier
        enter = "open" if earlier else "start" if self._taking else "try again" if self._error else ""
        enter = f"enter: {enter} · " if enter else ""
        self.query_one(Vertical).border_subtitle = Content(f" {enter}↑↓ ←→: choose · esc: close ")

    def _lines(self, width: int) -> Iterator[Content]:
        for row in self._rows:
            if row is self._earlier and len(self._rows) > 1:
                yield Content("")
            yield self._drawn(row, width)
        yield Content("")
        if self._why_not:
            yield from _folded(f"no new profile: {self._why_not}", width, "$dim")
        elif self._error is not None:
            yield from _folded(f"not now: {one_line(self._error.what)}", width, "$log-warning")
            if self._error.hint:
                yield from _folded(one_line(self._error.hint), width, "$dim")
        elif self._taking is None or self._taking.plan is None:
            yield Content.styled("asking the nodes …", "$dim")
        else:
            yield from _planned(self._taking.plan, width)

    def _drawn(self, row: _Choice, width: int) -> Content:
        here = row is self._row
        parts: list[tuple[str, str]] = [(row.name.ljust(LABEL), "bold" if here else "$dim")]
        options = list(enumerate(row.options))
        if LABEL + sum(len(name) + 3 for name, _ in row.options) > width:
            options = options[row.at : row.at + 1]
        for at, (name, _) in options:
            text = f"[{name}]" if at == row.at else f" {name} "
            parts.append((text, ("bold reverse" if here else "$key bold") if at == row.at else "$dim"))
            parts.append((" ", ""))
        if len(options) < len(row.options):
            parts.append((f" {row.at + 1} of {len(row.options)}", "$dim"))
        return Content.assemble(*parts)


def _planned(plan: Plan, width: int) -> Iterator[Content]:
    """What will be done, and what it costs."""
    who = ranks_named(plan.ranks)
    if plan.kind == "nsys":
        some = f"{plan.seconds:g} s" if plan.first is None else counted(plan.steps, "step")
        start = f", starting in about {rounded_span(plan.estimate.wait_s)}" if plan.first is not None else ""
        what, costs = (
            f"{some} of {who}, by nsys{start}",
            [plan.cost, "afterwards nsys writes for some seconds"],
        )
    elif plan.first is None:
        what = f"{plan.seconds:g} s of {who}, by py-spy, {plan.rate} samples a second at most"
        costs = ["pauses each rank for less than 2 % of the time"]
    else:
        what = (
            f"{counted(plan.steps, 'step')} of {who}, starting in about {rounded_span(plan.estimate.wait_s)}"
        )
        source = "from an earlier profile of it" if plan.estimate.measured else "no earlier profile to go by"
        costs = [plan.cost, f"estimated: {source}"]
    yield from _folded(what, width)
    for text in costs:
        yield from _folded(text, width, "$dim")
    by_why: dict[str, list[int]] = {}
    for rank, why in sorted(plan.left_out.items()):
        by_why.setdefault(why, []).append(rank)
    for why, ranks in list(by_why.items())[:REASONS]:
        yield from _folded(f"not included: {ranks_named(ranks)}: {one_line(why)}", width, "$log-warning")


def _folded(text: str, width: int, style: str = "") -> Iterator[Content]:
    # A number stays with its unit.
    text = re.sub(r"(?<=\d) (?=(?:s|[kMG]B|%)\b)", "\u00a0", text)
    return (Content.styled(line.rstrip(), style) for line in fold(text, width))


def ask(
    screen: CommandScreen,
    job: Job,
    answered: Callable[[Taking | int | None], None],
    marked: Mapping[str, frozenset[int]] | None = None,
) -> None:
    """Ask what to profile.

    :param marked: ranks to offer, besides those that the job knows
    """
    screen.run_worker(_ask(screen, job, answered, marked or {}), group="form", exclusive=True)


async def _ask(
    screen: CommandScreen,
    job: Job,
    answered: Callable[[Taking | int | None], None],
    marked: Mapping[str, frozenset[int]],
) -> None:
    earlier = await asyncio.to_thread(job.store.heads)
    why = job.why_not()
    if why and not earlier:
        screen.notify(f"profile: {why}", severity="warning", timeout=6)
        return
    screen.app.push_screen(ProfileForm(job, earlier, marked), answered)
