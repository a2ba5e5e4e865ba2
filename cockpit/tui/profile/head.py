"""What is above the panes: the sentence that comes first, and how far a profile is that is being taken."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from textual.strip import Strip

from cockpit.core.finding import Finding
from cockpit.core.profile.collection import DONE
from cockpit.core.profile.reading import Row
from cockpit.core.ranks import ranks_named
from cockpit.core.text import one_line, size
from cockpit.engine.profile.taking import Taking, is_over
from cockpit.tui.panes.banner import Banner
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.line import Part, fit
from cockpit.tui.profile.job import steps_text
from cockpit.tui.profile.ranks import WORDS
from cockpit.tui.profile.view_model import Progress, Sight

LINES = 3
LABEL = 6
"""Columns of what the last line is about."""
PROGRESS = 20
"""Columns of the progress."""


class FindingBanner(Banner):
    """Three lines at most: who is slow, on what evidence, what next; how certain it is at the right."""

    DEFAULT_CSS = """
    FindingBanner { background: $stall; }
    FindingBanner.-calm { background: $panel; }
    """

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._edge = "| " if ascii_only else "▌ "
        self._right = ""
        self._role = "who"

    def say(self, found: Finding, place: str, more: Sequence[str] = ()) -> None:
        """Draw a finding.

        :param place: where its ranks are
        :param more: what else there is to say, where it leaves room
        """
        warns = found.severity in ("warning", "error")
        self.set_class(not warns, "-calm")
        role, right = "who" if warns else "strong", found.certainty
        if (role, right) != (self._role, self._right):
            self._role, self._right = role, right
            self.refresh()
        self.set_lines([*self._lines(found, place, more)][:LINES])

    def _lines(self, found: Finding, place: str, more: Sequence[str]) -> Iterator[list[Part]]:
        where = [Part(((place, "dim"),), 1)] if place else []
        yield [Part(((one_line(found.what), self._role),), 0), *where]
        at = [Part(((one_line(found.where), "strong"),), 0)] if found.where else []
        said = [text for text in (found.detail, *found.evidence, *more) if text]
        steps = [step.text for step in found.steps]
        if at or said:
            text = said.pop(0) if said else ""
            yield [*([Part(((one_line(text), ""),), 1)] if text else []), *at]
        if steps:
            parts = [Part((("next".ljust(LABEL), "dim"), (one_line(steps[0]), "strong")), 0)]
            yield [*parts, *(Part(((one_line(text), "dim"),), 1) for text in steps[1:2])]
        elif said:
            yield [Part(((one_line(said[0]), "dim"),), 0)]

    def drawn_line(self, y: int) -> Strip:
        """One of the lines."""
        edge, right = "edge" if self._role == "who" else "dim", "" if y else self._right
        role = right if right in ("sure", "likely") else "warning"
        return self.strip_of([(self._edge, edge), *ended(self.lines[y], right, role, self.size.width - 3)])


class ProgressStrip(Bar):
    """How far a profile is, and how to cancel it; it is not there once that is done."""

    DEFAULT_CSS = """
    ProgressStrip { display: none; }
    ProgressStrip.-shown { display: block; }
    """
    _key = ""

    def say(self, parts: Sequence[Part], key: str) -> None:
        """Draw these parts.

        :param key: that cancels; empty: it is being cancelled
        """
        if key != self._key:
            self._key = key
            self.refresh()
        self.tell(parts)

    def render_line(self, y: int) -> Strip:
        right = f"{self._key} cancel" if self._key else ""
        return self.strip_of([(" ", ""), *ended(self._parts, right, "key", self.size.width - 2)])


def ended(parts: Sequence[Part], right: str, role: str, width: int) -> list[tuple[str, str]]:
    """The pieces of a line, with some words at its right end."""
    pieces = fit(parts, width - (cell_len(right) + 2 if right else 0))
    gap = width - cell_len(right) - sum(cell_len(text) for text, _ in pieces)
    return [*pieces, *([(" " * max(0, gap), ""), (right, role)] if right else [])]


def strip_parts(progress: Progress, sight: Sight | None, *, ascii_only: bool) -> list[Part]:
    """How far a profile is."""
    taking = progress.taking
    results, plan = taking.results, taking.plan
    if plan is None or not results:
        return [Part((("asking the nodes", "strong"),), 0)]
    parts = [Part(_recording(taking), 0)]
    ours = [one for rank, one in results.items() if rank in plan.ranks]
    total = len(ours)
    written = sum(one.state in ("written", "reading", DONE) for one in ours)
    here = sum(one.state == DONE for one in ours)
    if plan.kind == "torch" and (written or here):
        parts.append(Part((("written ", "dim"), (f"{written}/{total}", "")), 2))
    if written or here:
        full = round(PROGRESS * here / total) if total else 0
        done, rest = ("#", ".") if ascii_only else ("━", "━")
        word = "reports of ranks " if plan.kind == "nsys" else "summed up "
        less = Part(((word, "dim"), (f"{here}/{total}", "strong")), 1)
        bar = (done * full, "spark"), (rest * (PROGRESS - full), "dim")
        pieces = (less.pieces[0], *bar, (f" {here}/{total}", "strong"))
        parts.append(Part(pieces, 1, less))
    sizes = {one.node: one.size for one in ours if one.state == "writing"}
    if any(sizes.values()):
        parts.append(Part((("writing ", "dim"), (size(sum(sizes.values())), "")), 1))
    failed = sum(is_over(one) and one.state != DONE for one in ours)
    if failed:
        parts.append(Part(((f"{failed} missing", "warning"),), 1))
    if taking.cancelled:
        parts.append(Part((("cancelling on all nodes; what is here is kept", "warn"),), 0))
    elif sight is not None:
        waits = [row for row in sight.rows if isinstance(row, Row) and row.parts is None and not row.why]
        if waits and here:
            parts.append(Part(((_waited(waits[-1], progress), "dim"),), 3))
    return parts


def _recording(taking: Taking) -> tuple[tuple[str, str], ...]:
    """``profiling 3/5 steps``, ``from step 1,212, now 1,209``."""
    plan = taking.plan
    assert plan is not None
    if plan.first is None:
        begins = [one.began for one in taking.results.values() if one.began is not None]
        went = min(plan.seconds, max(0.0, time.time() - min(begins))) if begins else 0.0
        return ("recording " if plan.kind == "nsys" else "sampling ", "strong"), (
            f"{went:.0f}/{plan.seconds:g} s",
            "",
        )
    # A rank that has left the window tells of its last step no more.
    states = {rank: one.state for rank, one in taking.results.items() if rank in plan.ranks}
    front = max(taking.steps.values(), default=None)
    if all(state in ("", "ready", "starting") for state in states.values()):
        now = f", now {front:,}" if front is not None else ""
        return ("profiling ", "strong"), (f"from step {plan.first:,}{now}", "")
    done = plan.steps
    if "profiling" in states.values():
        done = max(0, min(done, (front or 0) - plan.first + 1))
    return ("profiling ", "strong"), (f"{done}/{plan.steps} steps", "good" if done == plan.steps else "")


def _waited(row: Row, progress: Progress) -> str:
    left = progress.left_s(row)
    text = f"{row.node} {WORDS.get(row.state, row.state)}"
    return text + (f", about {left:.0f} s" if left else "")


def beginning(taking: Taking) -> Finding:
    """What is said before anything is here."""
    plan = taking.plan
    what = "asking the nodes"
    if plan is not None and taking.results:
        what = f"profiling {ranks_named(plan.ranks)}"
        if plan.first is not None:
            what += f": {steps_text(range(plan.first, plan.first + plan.steps))}"
    return Finding("profiling", what, certainty="", severity="info")
