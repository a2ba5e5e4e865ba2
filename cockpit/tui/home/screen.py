"""The home screen: what is known here, what needs a person first, and what to do with it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

from textual import events, getters, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from cockpit import paths
from cockpit.core.compare.since import since
from cockpit.core.run.brief import DAMAGED, NOT_STARTED, Brief
from cockpit.core.text import one_line
from cockpit.core.time_text import span_text
from cockpit.engine.known_runs import PATIENCE_S, KnownRuns
from cockpit.engine.run.join import Pools
from cockpit.transport.login_prompts import DESK, Nobody
from cockpit.tui.command_screen import CommandScreen, Handler, bindings, entitle, needs
from cockpit.tui.commands import HOME, Id
from cockpit.tui.home.actions import Deeds
from cockpit.tui.home.help import ABOUT
from cockpit.tui.home.jobs_pane import JobsPane
from cockpit.tui.home.looker import Looker
from cockpit.tui.home.preview import Preview
from cockpit.tui.home.queue import Queue
from cockpit.tui.home.requested_verb import Wish
from cockpit.tui.home.run_list import RunList
from cockpit.tui.home.start_pane import StartPane
from cockpit.tui.logs.filter_bar import filter_mark
from cockpit.tui.look.units import SIZES, clock_text
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.finder import Item
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.panes.line import Part
from cockpit.tui.panes.list_pane import ListPane

TICK_S, DRAW_S = 0.1, 1.0
"""Seconds between two looks at whether anything is new, and two drawings of ages."""
READ_S, ASK_S = 5.0, 15.0
"""Seconds between two looks at which runs there are, and from an answer of nodes until they are asked."""

LEAST, AROUND, SHARE = 7, 3, 0.45
"""Rows of the list at least; those that are for its frame and heading; the share that it takes at most."""

SIDE, BELOW = 110, 20
"""Columns from which on there are panes at the side; rows from which on there is a preview."""


class HomeScreen(CommandScreen):
    """Runs, the one under the cursor, SLURM jobs, and what to type.

    :param want: ends the app with a wish, and the run that it is about
    :param chosen: the run that the cursor is on at first; empty: the first one
    """

    SCOPE = HOME
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(HOME)

    DEFAULT_CSS = """
    HomeScreen #body { layout: vertical; }
    HomeScreen #runs { height: 45%; }
    HomeScreen #below { height: 1fr; }
    HomeScreen #preview { width: 1fr; height: 1fr; }
    HomeScreen #side { width: 36%; max-width: 62; height: 1fr; }
    HomeScreen #jobs { height: 1fr; display: none; }
    HomeScreen #jobs.-there { display: block; }
    HomeScreen #start { height: 1fr; }
    HomeScreen.-thin #side { display: none; }
    HomeScreen.-flat #below { display: none; }
    HomeScreen.-flat #runs { height: 1fr; max-height: 100%; }
    HomeScreen.-empty #runs { display: none; }
    HomeScreen.-empty #below { display: block; }
    HomeScreen.-alone .pane { display: none; }
    HomeScreen.-alone .pane:focus { display: block; height: 1fr; max-height: 100%; }
    """

    _list = getters.query_one(RunList)
    _preview = getters.query_one(Preview)
    _jobs = getters.query_one(JobsPane)

    def __init__(self, want: Callable[[Wish, str], object], chosen: str = "") -> None:
        super().__init__()
        self.last_keys = ("help", "leave")
        self.known = KnownRuns()
        self._chosen = chosen
        self._words: tuple[str, ...] = ()
        self._typed = ""
        self._looker = Looker(self)
        self._queue = Queue(self)
        self._deeds = Deeds(self, self.known, want)
        self._ask_now = asyncio.Event()
        self._drawn = 0.0
        self._rows = 0

    def panes(self) -> ComposeResult:
        """See :meth:`CommandScreen.panes`."""
        ascii_only = self.app.glyphs.ascii
        yield RunList(ascii_only=ascii_only, id="runs")
        with Horizontal(id="below"):
            yield Preview(ascii_only=ascii_only, id="preview")
            with Vertical(id="side"):
                yield JobsPane(ascii_only=ascii_only, id="jobs")
                yield StartPane(ascii_only=ascii_only, id="start")

    def on_mount(self) -> None:
        for pane in self.query(".pane"):
            pane.can_focus = True
        self._preview.keys = self.app.keys
        self._preview.sizes = SIZES[self.app.units]
        self._jobs.key = self.app.key_of("attach_job")
        self._list.focus()
        # Nodes are asked although nobody has said so: nobody shall have to log in for that.
        DESK.prompter = Nobody("the home screen never asks")
        self._read()
        self._ask()
        self._queue.start()
        self.set_interval(TICK_S, self._tick)
        self.call_after_refresh(self.draw)

    def on_unmount(self) -> None:
        self.known.close()
        self._looker.close()

    def on_resize(self, event: events.Resize) -> None:
        self.check_size(*event.size)
        self.set_class(event.size.width < SIDE, "-thin")
        self.set_class(event.size.height < BELOW, "-flat")
        self._rows = 0
        self.call_after_refresh(self.draw)

    # What is known

    @work(group="read")
    async def _read(self) -> None:
        while True:
            await self.known.read()
            await asyncio.sleep(READ_S)

    @work(group="ask")
    async def _ask(self) -> None:
        await self.known.read_once.wait()
        async with Pools(PATIENCE_S) as pools:
            while True:
                if self.known.take() and self.app.holds(self):
                    self.draw()  # the tick finds no news any more
                self._ask_now.clear()
                await self.known.ask(pools)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._ask_now.wait(), ASK_S)

    def _tick(self) -> None:
        if self.app.holds(self) and (self.known.take() or time.monotonic() >= self._drawn + DRAW_S):
            self.draw()

    @property
    def shown(self) -> list[Brief]:
        """The runs that the filter lets through, in their order."""
        found = (run for run in self.known.runs.values() if self._lets(run))
        return sorted(found, key=lambda run: run.order)

    def _lets(self, run: Brief) -> bool:
        return all(run.finds(word.lstrip("!")) != word.startswith("!") for word in self._words if word != "!")

    def filter_by(self, pattern: str) -> None:
        """See :meth:`CommandScreen.filter_by`: all of its words."""
        self._typed = pattern
        self._words = tuple(pattern.lower().split())
        self.draw()

    # Drawing

    def draw(self) -> None:
        """Show what is known now."""
        self._drawn = time.monotonic()
        runs = self.shown
        nothing = not self.known.runs and self.known.read_whole
        self.set_class(nothing, "-empty")
        for pane in (self.query_one(StartPane), self._preview):
            if pane.welcomes != nothing:
                pane.welcomes = nothing
                pane.rebuild()
        # As high as its lines, but that what is below has room.
        rows = max(LEAST, min(len(runs) + AROUND, int(self.size.height * SHARE)))
        if self._rows != rows:
            self._rows = rows
            self._list.styles.height = None if self.has_class("-flat") else rows
        self._list.empty = [self._why_none()]
        self._list.show_runs(runs)
        if self._chosen and self._list.put_on(self._chosen):
            self._chosen = ""
        self._list.border_subtitle = (
            filter_mark(self._typed) if self._typed else "what needs you first, then the newest"
        )
        entitle(
            self._list, "1", f"runs {len(runs):,}" + (f" of {len(self.known.runs):,}" if self._typed else "")
        )
        current = self._list.current
        self._preview.hold(since(current, self.known.runs.values()) if current else ("", ""))
        self._looker.look(current, here=current is None or current.run not in self.known.elsewhere)
        if nothing and self.focused is self._list:
            self._preview.focus()
        entitle(
            self._preview, "1" if nothing else "2", "runs 0" if nothing else current.run if current else ""
        )
        entitle(self.query_one(StartPane), "", "what it does" if nothing else "start")
        self._queue.draw(self.known.runs.values())
        self.query_one(Bar).tell(self._top())
        self.draw_keys()

    def _why_none(self) -> str:
        if self.known.trouble:
            return self.known.trouble
        if self._typed and self.known.runs:
            return f"no run matches {self._typed} · {self.app.key_of('back')} clears"
        return "reading what is known here"

    def _top(self) -> list[Part]:
        runs = self.known.runs.values()
        if not runs:
            if not self.known.read_whole:
                return [Part((("cockpit", "name"),)), Part((("reading", "dim"),))]
            home = str(paths.runs()).replace(os.path.expanduser("~"), "~", 1)
            return [
                Part((("cockpit", "name"),)),
                Part((("no runs yet", "strong"),)),
                Part((("nothing in ", "dim"), (home, ""), ("; no node asked", "dim")), 1),
            ]
        parts = [
            Part((("cockpit", "name"),)),
            Part(((f"{len(runs):,} run{'s' * (len(runs) > 1)}", "strong"),)),
        ]
        for word, sign, role in (("stalled", "look", "warn"), ("running", "running", "running")):
            if count := sum(run.word == word for run in runs):
                parts.append(Part(((f"{getattr(self.app.glyphs, sign)} {count} {word}", role),)))
        if self.known.asking:
            parts.append(Part((("asking nodes", "dim"),), 2))
        elif self.known.asked_at is not None:
            ago = span_text(max(1.0, time.time() - self.known.asked_at))
            parts.append(Part(((f"nodes asked {ago} ago", "dim"),), 2))
        if silent := self.known.silent:
            from cockpit.core.ranks import nodes_text

            many = "does" if len(silent) == 1 else "do"
            parts.append(Part(((f"{nodes_text(silent)} {many} not answer", "warn"),), 1))
        return [*parts, Part(((clock_text(time.time(), 8), "dim"),), 3)]

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the runs."""
        deeds = self._deeds

        def here() -> str:
            return deeds.why_not_here(self._list.current)

        none = needs(lambda: not self.known.runs, "runs are known here; type: cockpit demo")
        return {
            "open": Handler(self._open, self._why_not_open),
            "zoom": Handler(lambda: self.toggle_class("-alone")),
            "filter_runs": Handler(
                lambda: self.filter_bar.open(self._typed), needs(lambda: self.known.runs, "no runs")
            ),
            "run_again": Handler(lambda: deeds.again(self.current), here),
            "compare_runs": Handler(lambda: deeds.compare(self.current), here),
            "attach_job": Handler(self._watch_job, lambda: self._queue.why_not()),
            "look_nodes": Handler(deeds.look),
            "stop_run": Handler(
                lambda: deeds.stop(self.current), lambda: deeds.why_not_stop(self._list.current)
            ),
            "remove_run": Handler(
                lambda: deeds.remove(self.current), lambda: deeds.why_not_remove(self._list.current)
            ),
            "ask_again": Handler(
                self._ask_now.set, needs(lambda: not self.known.asking, "they are being asked")
            ),
            "demo": Handler(lambda: self._demo("none"), none),
            "demo_hang": Handler(lambda: self._demo("hang"), none),
            "demo_crash": Handler(lambda: self._demo("crash"), none),
            "home_runs": Handler(self._list.focus),
            "home_run": Handler(self._preview.focus),
            "home_jobs": Handler(self._jobs.focus, lambda: self._queue.why_none),
            "copy_command": Handler(lambda: self.app.copy(deeds.command(self._list.current))),
        }

    @property
    def current(self) -> Brief:
        """The run under the cursor."""
        found = self._list.current
        assert found is not None
        return found

    def _why_not_open(self) -> str:
        if self.focused is self._jobs:
            return self._queue.why_not()
        run = self._list.current
        if run is None:
            return "no run is listed"
        return run.state if run.word in (DAMAGED, NOT_STARTED) else ""

    @on(ListPane.Opened)
    def _opened(self) -> None:
        self.action_command("open")

    @on(ListPane.Moved)
    def _moved(self) -> None:
        self.draw()

    def _open(self) -> None:
        if self.focused is self._jobs:
            self._watch_job()
        else:
            self._deeds.want(Wish(self._deeds.words(self.current)), self.current.run)

    def _watch_job(self) -> None:
        job = self._queue.job
        assert job is not None
        known = self._queue.runs_of_jobs.get(job.job)
        self._deeds.want(Wish(["attach", known] if known else ["attach", "--slurm", job.job]), known or "")

    def _demo(self, fault: str) -> None:
        self._deeds.want(Wish(["demo", *([] if fault == "none" else ["--fault", fault])]))

    def places(self) -> Iterator[Item]:
        """The runs."""
        for run in self.shown:
            title = one_line(f"run {run.run}  {run.word}", limit=200)
            yield Item(run.run, title, partial(self._list.put_on, run.run), "", "Runs")

    @property
    def on_the_right(self) -> str:
        """The pane that keys move in if none has the focus."""
        return "runs"

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes: one pane alone, a mark, a filter, the focus of another pane."""
        return [
            (self.has_class("-alone"), lambda: self.remove_class("-alone")),
            (self._list.marked, self._deeds.unmark),
            (self._typed, lambda: self.filter_by("")),
            (self.known.runs and self.focused is not self._list, self._list.focus),
        ]

    def text_to_copy(self) -> str:
        """What the cursor is on."""
        pane = self.focused
        return pane.copy_text() if isinstance(pane, RunList | Preview | JobsPane) else self._list.copy_text()

    def ask_to_leave(self) -> None:
        """Ctrl-C: there is nothing here to lose."""
        self.app.leave()

    def activity(self) -> Activity | None:
        """What is being read."""
        return None if self.known.read_whole else Activity("reading the runs")
