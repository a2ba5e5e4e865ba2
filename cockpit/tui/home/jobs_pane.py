"""The user's SLURM jobs, and what can be watched of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import ClassVar

from cockpit.core.text import clip, one_line
from cockpit.slurm import QueuedJob
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece, hanging


class JobsPane(ListPane[QueuedJob]):
    """Jobs, those that run first."""

    SIGNS: ClassVar[Mapping[bool, tuple[str, str]]] = {True: ("●", "o"), False: ("·", ".")}
    EMPTY_ROLE = ""

    runs: Mapping[str, str] = {}
    """Runs known here that go on, by the job that each is in."""
    key = "a"
    """What attaches."""

    def key_of(self, item: QueuedJob) -> Hashable:
        """Its number."""
        return item.job

    def show_jobs(self, jobs: Sequence[QueuedJob], runs: Mapping[str, str]) -> None:
        """Show these."""
        self.runs = runs
        self.show_items(jobs)

    def drawn_from(self, item: QueuedJob, before: QueuedJob | None, width: int) -> tuple[object, ...]:
        """Its run may become known."""
        return item, width, self.runs.get(item.job), self.key

    def item_lines(self, item: QueuedJob, before: QueuedJob | None, width: int) -> Iterator[Line]:
        """Number, name, state; below it where, and what is known of it."""
        sign = self.SIGNS[item.running][self.ascii_only]
        role = "running" if item.running else "label"
        state = item.ran if item.running else item.state.lower()
        head = (Piece(f"{sign} ", role), Piece(f"{clip(one_line(item.job), 12):<13}"))
        yield from hanging(head, f"{one_line(item.name, limit=60)}  {one_line(state, limit=30)}", width)
        where = item.nodes if item.nodes and "(" not in item.nodes else f"{item.count} nodes"
        if item.running:
            run = self.runs.get(item.job)
            told = f"{where}: {run}, listed here" if run else f"{where} · {self.key} attaches"
        else:
            starts = f", starts about {item.starts}" if item.starts not in ("N/A", "") else ""
            told = f"{where}: {item.why}{starts}"
        yield from hanging((Piece("  "),), one_line(told, limit=200), width, "label")
