"""The profile screen: the sentence first, ranks with where their steps go, operations, collectives, files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

from textual import events, getters, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.worker import Worker

from cockpit.base.shell import join
from cockpit.core.finding import Finding
from cockpit.core.masks import ranks_of
from cockpit.core.profile.collection import DONE
from cockpit.core.profile.gain import Ahead, gain
from cockpit.core.profile.reader import operations
from cockpit.core.profile.reading import Row
from cockpit.core.ranks import nodes_text, ranks_named
from cockpit.core.text import counted, one_line
from cockpit.core.time_text import span_text
from cockpit.engine.collect import Collected, collect
from cockpit.engine.profile.taking import Taking
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen, Handler, Pane, bindings, needs
from cockpit.tui.commands import PROFILE, Id
from cockpit.tui.look.units import SIZES, clock_text
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.finder import Item
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.panes.line import Part
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import TextPane
from cockpit.tui.profile.details import CollectivePane, OperationList, shared
from cockpit.tui.profile.files import File, FileList, files_of, how_to_open
from cockpit.tui.profile.form import ask
from cockpit.tui.profile.head import FindingBanner, ProgressStrip, beginning, strip_parts
from cockpit.tui.profile.help import ABOUT
from cockpit.tui.profile.job import Job, earlier_items, steps_text, words_of
from cockpit.tui.profile.ranks import RankList, legend, title_of
from cockpit.tui.profile.view_model import Progress, Sight, see

TICK_S = 0.25

WIDE, TALL = 110, 32
"""Columns and rows from which on all panes are shown; else one at a time."""

PANES = ("ranks", "operations", "collectives", "files")


class ProfileScreen(CommandScreen):
    """One profile of a run, whether it is being taken or was taken before.

    :param job: the run
    :param shown: the profile that begins, or the number of an earlier one
    """

    SCOPE = PROFILE
    ABOUT = ABOUT
    BINDINGS: ClassVar[list[BindingType]] = bindings(PROFILE)

    DEFAULT_CSS = """
    ProfileScreen #body {
        layout: grid; grid-size: 2; grid-columns: 1fr 1fr; grid-rows: auto 1fr auto;
    }
    ProfileScreen #ranks, ProfileScreen #files { column-span: 2; height: auto; }
    ProfileScreen #ranks { max-height: 18; min-height: 5; }
    ProfileScreen #files { max-height: 9; min-height: 4; }
    ProfileScreen.-cpu #operations { column-span: 2; }
    ProfileScreen.-cpu #collectives { display: none; }
    ProfileScreen.-one #body { layout: vertical; }
    ProfileScreen.-one .pane { display: none; }
    ProfileScreen.-one #body > .pane.-shown { display: block; height: 1fr; max-height: 100%; }
    """

    _banner = getters.query_one(FindingBanner)
    _strip = getters.query_one(ProgressStrip)
    _ranks = getters.query_one(RankList)
    _operations = getters.query_one(OperationList)
    _collectives = getters.query_one(CollectivePane)
    _files = getters.query_one(FileList)

    last_keys = ("back", "help")

    def __init__(self, job: Job, shown: Taking | int) -> None:
        super().__init__()
        self._job = job
        self._begin_with = shown
        self._progress: Progress | None = None
        """How far the profile is that is being taken; None: none is."""
        self._sight: Sight | None = None
        self._number = 0
        self._trouble: CockpitError | None = None
        """Why there is none."""
        self._zoomed = self._small = False
        self._chosen: int | None = None
        """The rank whose operations are shown; None: that of the finding."""
        self._working: Worker[None] | None = None
        self._fetching: Worker[None] | None = None
        self._fetched: Activity | None = None
        self._shown_pane = PANES[0]

    def head(self) -> ComposeResult:
        """See :meth:`CommandScreen.head`."""
        yield from super().head()
        yield FindingBanner(ascii_only=self.app.glyphs.ascii, id="finding")
        yield ProgressStrip(id="strip")

    def panes(self) -> ComposeResult:
        """See :meth:`CommandScreen.panes`."""
        ascii_only = self.app.glyphs.ascii
        yield RankList(ascii_only=ascii_only, id="ranks")
        yield OperationList(ascii_only=ascii_only, id="operations")
        yield CollectivePane(ascii_only=ascii_only, id="collectives")
        yield FileList(ascii_only=ascii_only, id="files")

    def on_mount(self) -> None:
        self._ranks.letters = self.app.glyphs.ascii or self.app.no_color or self.app.current_theme.ansi
        self._ranks.local = self._job.local
        self._files.fetch_key = self.app.key_of("fetch")
        self._show_pane()
        self._ranks.focus()
        self._show(self._begin_with)
        self.set_interval(TICK_S, self._tick)

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self._small = width < WIDE or height < TALL
        self.check_size(width, height)
        self._show_pane()
        self.call_after_refresh(self._draw)

    # What is shown

    @property
    def settled(self) -> bool:
        """Whether all that has come is worked out and drawn."""
        return self._working is None or self._working.is_finished

    @property
    def taking(self) -> Taking | None:
        """The profile that is being taken; None: none is."""
        return self._progress.taking if self._progress is not None else None

    def _show(self, shown: Taking | int | None) -> None:
        """Take a profile, or show an earlier one."""
        if shown is None:
            return
        self._sight = self._chosen = self._trouble = None
        self._ranks.touched = False
        if isinstance(shown, int):
            self._number = shown
            self._working = self._load(shown)
        else:
            self._number = 0
            self._progress = Progress(shown)
            self._job.noted("profile", ["profile", self._job.folder.name, *words_of(shown.wish)])
            self._take(shown)
        self._draw()

    @work(group="read", exclusive=True)
    async def _load(self, number: int) -> None:
        store = self._job.store
        try:
            self._sight = await asyncio.to_thread(lambda: see(store.load(number)))
        except CockpitError as error:
            self._trouble = error
        self._draw()

    @work(group="profile", exclusive=True)
    async def _take(self, taking: Taking) -> None:
        try:
            one = await taking.take()
            self._sight = await asyncio.to_thread(see, one)
            self._number = one.number
            if taking.trouble:
                self.app.notify(f"not all of it is saved: {one_line(taking.trouble)}", severity="warning")
        except CockpitError as error:
            self._trouble, self._sight, self._number = error, None, 0
        finally:
            self._progress = None
        self._draw()

    def _tick(self) -> None:
        if not self.app.holds(self) or self._progress is None:
            return
        if self.settled and self._progress.look():
            self._working = self._work_out(self._progress)
        self._draw_head()
        self._draw_ranks(self._sight)

    @work(group="read", exclusive=True)
    async def _work_out(self, progress: Progress) -> None:
        """What those that are here say."""
        if progress.taking.results:
            self._number = progress.taking.number
            sight = await asyncio.to_thread(see, progress.taking.collection())
            if progress is self._progress:
                self._sight = sight
                self._draw()

    # Drawing

    def _draw(self) -> None:
        if not self.app.holds(self) or not self.is_mounted:
            return
        sight = self._sight
        self._draw_head()
        self.set_class(sight is not None and sight.collection.kind != "torch", "-cpu")
        self._draw_ranks(sight)
        self._draw_details(sight)
        self._draw_files(sight)
        self._entitle(sight)
        self.draw_keys()

    def _draw_head(self) -> None:
        """What goes on by itself while a profile is being taken."""
        sight, progress = self._sight, self._progress
        self._draw_top(sight)
        self._draw_finding(sight)
        self._strip.set_class(progress is not None, "-shown")
        if progress is not None:
            key = "" if progress.taking.cancelled else self.app.key_of("back")
            self._strip.say(strip_parts(progress, sight, ascii_only=self.app.glyphs.ascii), key)

    def _draw_top(self, sight: Sight | None) -> None:
        name = Part(((self._job.folder.name, "strong"),), 0)
        number = f"profile {self._number}" if self._number else "profile"
        parts = [name, Part(((number, ""),), 1)]
        if sight is not None:
            one = sight.collection
            steps = (*sight.reading.steps, *sight.reading.left_out)
            if steps:
                parts.append(Part(((steps_text(steps), ""),), 2))
            elif one.seconds is not None:
                parts.append(Part(((f"{one.seconds:g} s", ""),), 2))
            what = ", ".join([one.kind, *one.options])
            parts += [Part(((f"{what}", "dim"),), 4), Part(((f"taken {clock_text(one.at, 8)}", "dim"),), 3)]
            here = sum(result.state == DONE for result in one.results.values())
            asked = len(one.results)
            text = counted(asked, "rank") if here == asked else f"ranks {here}/{asked}"
            parts.append(Part(((text, ""),), 2))
            waits = "to come" if self._progress is not None else "missing"
            if here < asked:
                role = "dim" if self._progress is not None else "warning"
                parts.append(Part(((f"{asked - here} {waits}", role),), 3))
        self.query_one(Bar).tell(parts)

    def _draw_finding(self, sight: Sight | None) -> None:
        progress = self._progress
        if self._trouble is not None:
            what = f"no profile: {one_line(self._trouble.what)}"
            hint = one_line(self._trouble.hint or "")
            self._banner.say(Finding("refused", what, detail=hint, severity="warning", certainty=""), "")
        elif sight is not None and (progress is None or sight.reading.parts is not None):
            found = sight.finding
            self._banner.say(found, self._place(found), self._more(sight))
        elif progress is not None:
            self._banner.say(beginning(progress.taking), "")
        else:
            self._banner.say(Finding("reading", "reading it", certainty="", severity="info"), "")

    def _place(self, found: Finding) -> str:
        """Where the ranks of a finding are."""
        ranks = list(ranks_of(found.ranks))
        nodes = nodes_text(found.nodes)
        if len(ranks) == 1 and ranks[0] in self._job.local:
            return f"{nodes}, local rank {self._job.local[ranks[0]]}"
        return nodes

    def _more(self, sight: Sight) -> list[str]:
        """What else is said if there is room: what makes the numbers less than they seem, what it cost."""
        cost, said = sight.reading.cost, [*sight.reading.notes]
        if cost.before and cost.during:
            before, during = span_text(cost.before), span_text(cost.during)
            said.append(f"a step took {before} before the profile, {during} in it")
        return said

    def _draw_ranks(self, sight: Sight | None) -> None:
        pane = self._ranks
        pane.empty = ["" if sight is None else "no rank was asked for"]
        progress = self._progress
        if progress is not None and sight is not None:
            waited = (row for row in sight.rows if isinstance(row, Row) and row.parts is None)
            left = {row.ranks[0]: progress.left_s(row) for row in waited}
            pane.left = {rank: seconds for rank, seconds in left.items() if seconds is not None}
        else:
            pane.left = {}
        if sight is not None:
            pane.show(sight)
        else:
            pane.show_items(())

    @property
    def _rank(self) -> int | None:
        """The rank whose operations are shown."""
        sight = self._sight
        if sight is None:
            return None
        if self._chosen is not None:
            return self._chosen
        if sight.collection.kind == "cpu":
            return next(ranks_of(sight.finding.ranks), next(iter(sight.sampled), None))
        of = sight.reading.operations
        return of.rank if of is not None else None

    def _draw_details(self, sight: Sight | None) -> None:
        rank = self._rank
        pane = self._operations
        pane.empty = ["nothing of it is here yet" if self._progress is not None else "nothing of it is here"]
        if sight is not None and sight.collection.kind == "nsys":
            pane.empty = _not_summed(sight)
        if sight is None or rank is None:
            pane.show(None, 0.0, ())
        elif sight.compared is not None:
            if rank in sight.sampled:
                pane.empty = [f"rank {rank} is nowhere for longer than the others, beyond chance"]
            pane.show(rank, 0.0, sight.compared.differences(rank))
        else:
            reading = sight.reading
            of = reading.operations
            if of is None or of.rank != rank:
                of = operations(sight.collection, reading, rank)
            pane.show(rank, reading.parts.took if reading.parts else 0.0, of.rows if of else ())
        told = sight is not None and sight.reading.parts is not None
        why = "no collective is in the traces" if told else "nothing is here"
        ahead = self._job.ahead()
        text = gain(sight.reading, ahead) if sight is not None and ahead != Ahead() else ""
        self._collectives.show(None if sight is None else sight.reading, SIZES[self.app.units], why, text)

    def _draw_files(self, sight: Sight | None) -> None:
        pane = self._files
        pane.empty = ["no file yet" if self._progress is not None else "there is no file"]
        found = [] if sight is None else files_of(sight, self._job.folder)
        size = SIZES[self.app.units].text
        pane.show(found, {one.name: size(one.size) for one in found if one.size})

    def _entitle(self, sight: Sight | None) -> None:
        cpu = sight is not None and sight.collection.kind == "cpu"
        rank = "" if self._rank is None else f"rank {self._rank}"
        texts = {
            "ranks": ("ranks", "" if sight is None else title_of(sight)),
            "operations": (rank, "where it spends longer" if cpu else "operations, a step"),
            "collectives": ("collectives", shared(sight.reading) if sight is not None else ""),
            "files": ("files", ""),
        }
        for name, (what, text) in texts.items():
            made = self._tabs(name)
            if not self.has_class("-one"):
                head = (f"{self.app.key_of(name)} ", "$key bold"), (what, "bold")
                made = Content.assemble(*head, one_line(f" {text}" if what and text else text))
            _frame(self.query_one(f"#{name}"), made, self._below(name, sight))

    def _tabs(self, name: str) -> Content:
        """The names of all panes, for the frame of the one that is shown."""
        of = "" if self._rank is None else f" of rank {self._rank}"
        parts: list[tuple[str, str]] = []
        for each in PANES:
            if not self._no_pane(each):
                here = "bold" if each == name else ""
                text = f" {each}{of if each == name == 'operations' else ''}  "
                parts += [(self.app.key_of(each), "$key"), (text, here)]
        return Content.assemble(*parts[:-1], (parts[-1][0].rstrip(), parts[-1][1]))

    def _below(self, name: str, sight: Sight | None) -> Content:
        """What is said in the lower frame of a pane."""
        if sight is None:
            return Content("")
        if name == "ranks" and sight.reading.parts is not None:
            return legend(letters=self._ranks.letters)
        traces = [one for one in self._files.items if one.remote] if name == "files" else []
        here, size = sum(bool(one.path) for one in traces), SIZES[self.app.units].text
        if not traces:
            return Content("")
        whole = size(sum(one.size for one in traces))
        return Content(f"{here} of {counted(len(traces), 'file')} here, {whole} · nothing is uploaded")

    # What each command does, and why it may not

    def own_handlers(self) -> dict[Id, Handler]:
        """Those of the profile, of its files, and of the panes."""
        idle = needs(lambda: self._progress is None, "one is being taken")
        return {
            "profile_again": Handler(self._again, idle),
            "open": Handler(self._open, self._no_open),
            "open_file": Handler(self._open_file, needs(lambda: self._file is not None, "there is no file")),
            "fetch": Handler(self._fetch, self._no_fetch),
            **{name: Handler(partial(self._go, name), partial(self._no_pane, name)) for name in PANES},
            "previous_profile": Handler(lambda: self._step(-1), lambda: self._no_step(-1)),
            "next_profile": Handler(lambda: self._step(1), lambda: self._no_step(1)),
            "next_pane": Handler(lambda: self._other_pane(1)),
            "previous_pane": Handler(lambda: self._other_pane(-1)),
            "zoom": Handler(self.zoom, needs(lambda: not self._small, "there is only room for one pane")),
            "copy_command": Handler(lambda: self.app.copy(self._command)),
        }

    def renamed(self, pane: Pane) -> Mapping[Id, str]:
        """What going back and opening are called here."""
        named = {"open": "its operations" if pane.id == "ranks" else "open"}
        if self._cancels:
            named["back"] = "cancel"
        return named

    @property
    def _command(self) -> str:
        """What says the same in a shell; of a file, what makes it."""
        file = self._files.current
        if self.pane.id == "files" and file is not None and file.command:
            return file.command
        number = [str(self._number)] if self._number else []
        return join(["cockpit", "profile", "show", self._job.folder.name, *number])

    def _again(self) -> None:
        row = self._ranks.current
        marked = {ranks_named(row.ranks): frozenset(row.ranks)} if row is not None else {}
        ask(self, self._job, self._show, marked)

    def _step(self, step: int) -> None:
        self._show(self._beside(step))

    def _beside(self, step: int) -> int | None:
        known = self._job.store.numbers()
        others = [one for one in known if (one > self._number) == (step > 0) and one != self._number]
        return (min(others) if step > 0 else max(others)) if others else None

    def _no_step(self, step: int) -> str:
        if self._progress is not None:
            return "one is being taken"
        which = "before" if step < 0 else "after"
        return "" if self._beside(step) is not None else f"no profile {which} this one"

    # Files

    @property
    def _file(self) -> File | None:
        """The file under the cursor, once that pane is in use; else the first one."""
        return self._files.current if self._files.items else None

    def _open_file(self) -> None:
        file = self._file
        assert file is not None
        if file.words:
            self.app.copy(file.words)
        self.notify(one_line(how_to_open(file, self.app.key_of("fetch")), limit=600), timeout=20)

    @property
    def _wanted(self) -> frozenset[str]:
        """The traces to fetch: the one under the cursor, or all."""
        file = self._files.current
        if self.pane.id == "files" and file is not None and file.remote:
            return frozenset({file.remote})
        return frozenset(one.remote for one in self._files.items if one.remote and not one.path)

    def _no_fetch(self) -> str:
        if self._fetching is not None and self._fetching.is_running:
            return ""
        if not any(one.remote for one in self._files.items):
            return "there is no file"
        return "" if self._wanted else "all files are here"

    def _fetch(self) -> None:
        if self._fetching is not None and self._fetching.is_running:
            self._fetching.cancel()
            self._fetched = None
            self.notify(f"fetching was cancelled; {self.app.key_of('fetch')} resumes it")
            return
        self._fetching = self._fetch_all(self._wanted)

    @work(group="fetch")
    async def _fetch_all(self, names: frozenset[str]) -> None:
        folder = self._job.folder
        self._job.noted("fetch traces", ["collect", folder.name])

        def tell(so_far: Collected) -> None:
            total = sum(one.size for one in so_far.reports)
            here = sum(min(one.here, one.size) for one in so_far.reports)
            self._fetched = Activity("fetching traces", here / total if total else None)
            self._draw()

        try:
            done = await collect(
                folder, self._job.pool, folder.path / "reports", tell, self.app.complain, only=names
            )
        except CockpitError as error:
            self.app.complain(error)
            return
        finally:
            self._fetched = None
        here = [one for one in done.reports if one.state in ("collected", "same")]
        problems = [f"{one.node}: {one.state} {one.why}" for one in done.reports if one not in here]
        problems += [f"{node}: {why}" for node, why in done.missing.items()]
        text = " · ".join([f"{counted(len(here), 'trace')} here, verified", *problems])
        self.notify(one_line(text, limit=600), severity="warning" if problems else "information", timeout=12)
        self._draw()

    def activity(self) -> Activity | None:
        """What is fetched."""
        return self._fetched

    # Panes

    @property
    def on_the_right(self) -> str:
        """The pane that is shown where there is room for one."""
        return self._shown_pane

    @property
    def zoomed(self) -> bool:
        """Whether only one pane is shown, as a person wants it."""
        return self._zoomed and not self._small

    def zoom(self) -> None:
        """Show only the pane in use, or all."""
        self._shown_pane = str(self.pane.id)
        self._zoomed = not self._zoomed
        self._show_pane()

    def unzoom(self) -> None:
        """Show all panes."""
        self._zoomed = False
        self._show_pane()

    def _show_pane(self) -> None:
        self.set_class(self._small or self._zoomed, "-one")
        for name in PANES:
            self.query_one(f"#{name}").set_class(name == self._shown_pane, "-shown")

    def _no_pane(self, name: str) -> str:
        if self._sight is None or name != "collectives" or self._sight.reading.ranks:
            return ""
        kind = self._sight.collection.kind
        said = {"cpu": "stacks have no collectives", "nsys": "reports of nsys are not summed up"}
        return said.get(kind, "")

    def _go(self, name: str) -> None:
        self._shown_pane = name
        self._show_pane()
        pane = self.query_one(f"#{name}")
        self.call_after_refresh(pane.focus)
        # A pane has no width before it is laid out.
        self.call_after_refresh(self._draw)

    def _other_pane(self, step: int) -> None:
        names = [name for name in PANES if not self._no_pane(name)]
        here = str(self.pane.id)
        self._go(names[(names.index(here) + step) % len(names)] if here in names else names[0])

    def _no_open(self) -> str:
        pane = self.pane
        if pane.id == "ranks":
            return "" if self._ranks.current is not None else "no rank is here"
        if pane.id == "files":
            return "" if self._file is not None else "there is no file"
        return "all of it is shown here"

    def _open(self) -> None:
        if self.pane.id == "files":
            self._open_file()
            return
        self._choose()
        self._go("operations")

    def _choose(self) -> None:
        """Show the operations of the row under the cursor: of its slowest rank."""
        row, sight = self._ranks.current, self._sight
        if row is None or sight is None:
            return
        own = {rank: parts.own for rank, parts in sight.reading.ranks.items()}
        self._chosen = max(row.ranks, key=lambda rank: (own.get(rank, 0.0), -rank))

    @on(ListPane.Moved)
    def _moved(self, event: ListPane.Moved) -> None:
        if event.pane is self._ranks:
            self._choose()
            self._draw_details(self._sight)
            self._entitle(self._sight)
            self.draw_keys()

    @on(ListPane.Opened)
    def _opened(self) -> None:
        self.action_command("open")

    @on(events.DescendantFocus)
    def _pane_used(self) -> None:
        self._shown_pane = str(self.pane.id)

    def places(self) -> Iterator[Item]:
        """Other profiles, and ranks, to go to."""
        yield from earlier_items(self._job, self._show)
        sight = self._sight
        for row in sight.rows if sight is not None else ():
            for rank in row.ranks:
                go = partial(self._go_to, rank, row.ranks[0])
                yield Item(str(rank), f"rank {rank}", go, "", "Ranks", f"on {row.node}")

    def _go_to(self, rank: int, row: int) -> None:
        self._ranks.put_on(row)
        self._chosen = rank
        self._draw()

    # Leaving

    @property
    def _cancels(self) -> bool:
        return self._progress is not None and not self._progress.taking.cancelled

    def undoable(self) -> Sequence[tuple[object, Callable[[], object]]]:
        """What esc undoes, the nearest first."""
        return [(self.zoomed, self.unzoom), (self._cancels, self._cancel), (True, self.dismiss)]

    def _cancel(self) -> None:
        if self._progress is not None:
            self._progress.taking.cancel("cancelled in the cockpit")
            self._draw()

    def text_to_copy(self) -> str:
        """What the cursor is on."""
        pane = self.pane
        return pane.copy_text() if isinstance(pane, TextPane) else ""

    def ask_to_leave(self) -> None:
        """Cancel what goes on; else there is nothing here to lose."""
        if self._cancels:
            self._cancel()
        else:
            self.dismiss()


def _frame(pane: Widget, above: Content, below: Content) -> None:
    """Write into the frame of a pane, unless that is there already: it would all be laid out again."""
    if pane.border_title != above.markup:
        pane.border_title = above
    if pane.border_subtitle != below.markup:
        pane.border_subtitle = below


def _not_summed(sight: Sight) -> list[str]:
    one = sight.collection
    words = join(["cockpit", "profile", "show", one_line(one.run or "RUN"), str(one.number), "--nsys"])
    return ["reports of nsys are not summed up", f"to do so: {words}"]
