"""What each command of the registry does on the stack screen, and why one may not work now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

from textual import getters, work
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker

from cockpit.base.stacks.dump import Dump
from cockpit.core.masks import ranks_of
from cockpit.errors import CockpitError
from cockpit.tui.base_app import Host
from cockpit.tui.commands import STACKS, Command, keymap, shown
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.panes.dialogs import Answer, Question
from cockpit.tui.panes.finder import Item, command_items
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.stacks.class_list import ClassList
from cockpit.tui.stacks.help import HERE
from cockpit.tui.stacks.sight import Sight
from cockpit.tui.stacks.source import Source
from cockpit.tui.stacks.thread_list import ThreadList
from cockpit.tui.stacks.tree import StackTreePane
from cockpit.tui.stacks.verdict_bar import VerdictBar

FIRST, INTERVAL_S = 2, 1.0
"""Samples taken as the screen opens, and seconds between them: one alone cannot show what moves."""

RIGHT = ("tree", "rank", "diff")
"""The panes on the right, one at a time."""


class StackActions(Screen[None], inherit_bindings=False):
    """The commands of the stack screen: ``_do_ID`` does one, ``_no_ID`` says why it cannot be done now.

    :param stacks: whose stacks
    :param root: there is no screen below this one to go back to
    """

    app = getters.app(Host)

    def __init__(self, stacks: Source, *, root: bool = False) -> None:
        super().__init__()
        self.stacks = stacks
        self.root = root
        self._sight = Sight(stacks.snapshot)
        self._at: int | None = None
        """The sample that is shown, from 0; None: always the newest."""
        self._pattern = ""
        self._chosen: int | None = None
        self._marked: int | None = None
        self._right = "tree"
        self._beneath = "tree"
        """What was on the right before the diff."""
        self._wish: tuple[str, ...] = ()
        """What only the chosen rank is asked for."""
        self._looks: dict[tuple[int, tuple[str, ...]], Dump] = {}
        self._looking: Worker[None] | None = None
        self._sampling: Worker[None] | None = None
        self._activities: dict[str, Activity] = {}

    # Of the screen itself

    def _draw(self) -> None:
        raise NotImplementedError

    def _show_right(self, name: str) -> None:
        raise NotImplementedError

    @property
    def _class_list(self) -> ClassList:
        return self.query_one(ClassList)

    @property
    def _tree_pane(self) -> StackTreePane:
        return self.query_one(StackTreePane)

    @property
    def _thread_list(self) -> ThreadList:
        return self.query_one(ThreadList)

    @property
    def _filter_bar(self) -> FilterBar:
        return self.query_one(FilterBar)

    @property
    def rank(self) -> int | None:
        """The rank whose threads are shown: the chosen one, else that of the class under the cursor."""
        if self._chosen is not None and self._chosen in self.stacks.snapshot.ranks:
            return self._chosen
        found = self._class_list.current
        return None if found is None else found.sample_rank

    @property
    def number(self) -> int:
        """The sample that is shown, from 0; -1 if there is none."""
        last = len(self.stacks.snapshot.samples) - 1
        return last if self._at is None else min(self._at, last)

    # Commands

    @cached_property
    def commands(self) -> dict[str, Command]:
        """The commands of this screen, with a person's own keys."""
        return keymap(self.app.config.keys, self.app.config.where, STACKS)

    def key_of(self, name: str) -> str:
        """The key of a command, as people write it."""
        return shown(self.commands[name].keys[0])

    def why_not(self, name: str) -> str:
        """Why a command cannot work now; empty if it can."""
        check = getattr(self, f"_no_{name}", None)
        return str(check()) if check else ""

    def action_command(self, name: str) -> None:
        """Run a command of the registry, or say why it cannot work."""
        why = self.why_not(name)
        if why:
            title = self.commands[name].title
            self.notify(f"{title}: {why}", severity="warning", markup=False, timeout=4)
            return
        getattr(self, f"_do_{name}")()
        self._draw()

    def items(self) -> Iterator[Item]:
        """The commands, as they can be found by name."""
        yield from command_items(self.commands.values(), self.why_not, self.action_command)

    def places(self) -> Iterator[Item]:
        """Ranks, to go to."""
        for rank, place in sorted(self.stacks.snapshot.ranks.items()):
            go, about = partial(self.choose, rank, show=True), f"on {place.node}"
            yield Item(str(rank), f"rank {rank}", go, "", "Ranks", about)

    # Samples

    def _no_sample(self) -> str:
        if self.stacks.recorded:
            return "this is a snapshot from disk; its ranks cannot be asked any more"
        if self._sampling is not None and self._sampling.is_running:
            cancel = self.key_of("cancel")
            return f"a sample is being taken; {cancel} ends it"
        return ""

    def _do_sample(self) -> None:
        self._at = None
        self._looks.clear()
        self._wish = ()
        self._sampling = self._take(1)

    @work(group="sample")
    async def _take(self, samples: int) -> None:
        for number in range(samples):
            if number:
                await asyncio.sleep(INTERVAL_S)
            try:
                await self.stacks.take()
            except CockpitError as error:
                self.app.complain(error)
                return

    def _no_cancel(self) -> str:
        running = self._sampling is not None and self._sampling.is_running
        return "" if running or self.stacks.busy else "no sample is being taken"

    def _do_cancel(self) -> None:
        if self.stacks.busy:
            self.stacks.cancel()
        elif self._sampling is not None:
            self._sampling.cancel()

    def _no_previous_sample(self) -> str:
        return "" if self.number > 0 else "no sample before this one"

    def _do_previous_sample(self) -> None:
        self._at = self.number - 1

    def _no_next_sample(self) -> str:
        last = len(self.stacks.snapshot.samples) - 1
        return "" if self.number < last else f"no sample after this one; {self.key_of('sample')} takes one"

    def _do_next_sample(self) -> None:
        after = self.number + 1
        self._at = None if after >= len(self.stacks.snapshot.samples) - 1 else after

    # The chosen rank

    def choose(self, rank: int, *, show: bool = False) -> None:
        """Show this rank's threads.

        :param show: in full, on the right
        """
        self._turn_to(rank)
        found = self._sight.class_of(rank)
        if found is not None:
            self._class_list.put_on(self._class_list.key_of(found))
        if show:
            self._show_right("rank")
        self._draw()

    def _turn_to(self, rank: int) -> None:
        """Make this the chosen rank; requests to another one do not apply to it."""
        if rank != self.rank:
            self._wish = ()
        self._chosen = rank

    def _no_mark_rank(self) -> str:
        return "" if self.rank is not None else "no rank is chosen"

    def _no_native(self) -> str:
        return self._cannot_ask("native")

    def _no_locals(self) -> str:
        return self._cannot_ask("locals")

    def _no_children(self) -> str:
        return self._cannot_ask("children")

    def _cannot_ask(self, option: str) -> str:
        """Why the chosen rank cannot be asked for more."""
        rank, snapshot = self.rank, self.stacks.snapshot
        if rank is None:
            return "no rank is chosen"
        if self.stacks.recorded:
            taken = bool(snapshot.options.get(option))
            return f"this snapshot was taken with{'' if taken else 'out'} {option}"
        if option in self._wish:
            return ""
        newest = snapshot.dumps(rank)[-1:]
        ended = next((dump.what for dump in newest if dump.error in ("gone", "zombie")), "")
        why = snapshot.ranks[rank].why or ended
        return f"rank {rank}: {why}" if why else ""

    def _do_native(self) -> None:
        self._toggle("native")

    def _do_locals(self) -> None:
        self._toggle("locals")

    def _do_children(self) -> None:
        self._toggle("children")

    def _toggle(self, option: str) -> None:
        """Ask the chosen rank for more, or show again what every rank was asked for."""
        rank = self.rank
        assert rank is not None
        if option in self._wish:
            self._wish = tuple(each for each in self._wish if each != option)
        else:
            self._wish = (*self._wish, option)
        self._chosen = rank
        self._show_right("rank")
        if self._wish and (rank, self._wish) not in self._looks:
            self._looking = self._ask(rank, self._wish)

    @work(group="look", exclusive=True)
    async def _ask(self, rank: int, wish: tuple[str, ...]) -> None:
        self._activities["look"] = Activity(f"asking rank {rank} for {' and '.join(wish)}")
        try:
            dump = await self.stacks.look(
                rank, native="native" in wish, locals="locals" in wish, children="children" in wish
            )
            self._looks[rank, wish] = dump
        except CockpitError as error:
            self._wish = ()
            self.app.complain(error)
        finally:
            self._activities.pop("look", None)
        self._draw()

    def _no_next_in_class(self) -> str:
        found = self._class_list.current
        return "" if found is not None and found.ranks & (found.ranks - 1) else "the class has no other rank"

    _no_previous_in_class = _no_next_in_class

    def _do_next_in_class(self) -> None:
        self._step(1)

    def _do_previous_in_class(self) -> None:
        self._step(-1)

    def _step(self, step: int) -> None:
        found = self._class_list.current
        assert found is not None
        ranks = list(ranks_of(found.ranks))
        rank = self.rank
        at = ranks.index(rank) if rank in ranks else 0
        self._turn_to(ranks[(at + step) % len(ranks)])

    def _do_mark_rank(self) -> None:
        self._marked = None if self._marked == self.rank else self.rank

    def _no_diff(self) -> str:
        if self._right == "diff":
            return ""
        if self.rank is None:
            return "no rank is chosen"
        if not self._has_stack(self.rank, self.number):
            return f"there is no stack of rank {self.rank}"
        return (
            "" if self._diff_with() is not None else "nothing to compare with: another sample, or mark a rank"
        )

    def _has_stack(self, rank: int, number: int) -> bool:
        dump = self.stacks.snapshot.samples[number].dumps.get(rank) if number >= 0 else None
        return dump is not None and bool(dump.threads)

    def _diff_with(self) -> tuple[int, int] | None:
        """What the chosen rank is compared with: a rank and a sample."""
        rank, number = self.rank, self.number
        if rank is None:
            return None
        if self._marked is not None and self._marked != rank:
            return self._marked, number
        before = (rank, number - 1) if number > 0 and self._has_stack(rank, number - 1) else None
        others = [each for each in self._sight.classes if not each.ranks >> rank & 1 and each.frames]
        if before is not None and (self._sight.moved >> rank & 1 or not others):
            return before
        if not others:
            return None
        return max(
            others, key=lambda each: (bin(each.ranks).count("1"), -each.sample_rank)
        ).sample_rank, number

    def _do_diff(self) -> None:
        if self._right == "diff":
            self._show_right(self._beneath)
            return
        self._chosen = self.rank
        self._show_right("diff")

    # Moving

    def _do_classes(self) -> None:
        self._go("classes")

    def _do_tree(self) -> None:
        self._show_right("tree")
        self._go("tree")

    def _do_threads(self) -> None:
        self._go("threads")

    def _go(self, name: str) -> None:
        pane = self.query_one(f"#{name}")
        if not pane.is_on_screen and name == "threads":
            # If there is no room for the list, the pane that has more replaces it.
            self._show_right("rank")
            pane = self.query_one("#rank")
        else:
            self._reveal(pane)
        self.call_after_refresh(pane.focus)

    def _reveal(self, pane: Widget) -> None:
        """Show the side that a pane is on; the other one too, unless there is room for only one."""
        side, other = ("right", "left") if pane.id in RIGHT else ("left", "right")
        self.remove_class(f"-zoom-{other}")
        if self.has_class("-one"):
            self.add_class(f"-zoom-{side}")

    def _do_next_pane(self) -> None:
        if self.has_class("-one"):
            self._go("classes" if self._pane().id in RIGHT else self._right)
        else:
            self.focus_next(".pane")

    def _do_previous_pane(self) -> None:
        if self.has_class("-one"):
            self._do_next_pane()
        else:
            self.focus_previous(".pane")

    def _pane(self) -> Any:
        """The pane that movement keys act on: the one with the focus, else the one on the right."""
        focused = self.focused
        while focused is not None and not focused.has_class("pane"):
            focused = focused.parent if isinstance(focused.parent, Widget) else None
        return focused or self.query_one(f"#{self._right}")

    def _do_down(self) -> None:
        self._pane().move(1)

    def _do_up(self) -> None:
        self._pane().move(-1)

    def _do_page_down(self) -> None:
        self._pane().page(1)

    def _do_page_up(self) -> None:
        self._pane().page(-1)

    def _do_first(self) -> None:
        self._pane().home()

    def _do_last(self) -> None:
        self._pane().end()

    def _no_open(self) -> str:
        if self._pane().id in ("rank", "diff"):
            return "all of it is open"
        return "" if self.rank is not None else "no rank is chosen"

    def _do_open(self) -> None:
        pane = self._pane()
        if isinstance(pane, StackTreePane):
            if not pane.toggle() and pane.current is not None:
                ranks = pane.current.ranks
                rank = self.rank
                if rank is None or not ranks >> rank & 1:
                    rank = (ranks & -ranks).bit_length() - 1
                self.choose(rank, show=True)
        elif isinstance(pane, ClassList | ThreadList) and self.rank is not None:
            self._chosen = self.rank
            self._show_right("rank")
            if isinstance(pane, ThreadList):
                self._draw()
                self.rank_pane.go_to(pane.place)

    @property
    def rank_pane(self) -> Any:
        """The pane with everything of one rank."""
        return self.query_one("#rank")

    def _no_back(self) -> str:
        return "" if self._steps_back() else "nothing to go back from"

    def _do_back(self) -> None:
        self._steps_back()[0]()

    def _steps_back(self) -> list[Callable[[], object]]:
        """What esc undoes, the nearest first."""
        steps: list[Callable[[], object]] = []
        if self._filter_bar.display:
            steps.append(self._filter_bar.cancel)
        if self._right != "tree":
            steps.append(partial(self._show_right, self._beneath))
        if self._pattern:
            steps.append(partial(self._set_filter, ""))
        if self._at is not None:
            steps.append(self._newest)
        if self._marked is not None:
            steps.append(self._unmark)
        if self._zoomed() and not self.has_class("-one"):
            steps.append(self._unzoom)
        if not self.root:
            steps.append(self._close)
        return steps

    def _newest(self) -> None:
        self._at = None

    def _unmark(self) -> None:
        self._marked = None

    def _close(self) -> None:
        if self.stacks.busy:
            self.stacks.cancel()
        self.dismiss(None)

    # The display

    def _do_library(self) -> None:
        self._tree_pane.fold_libraries()

    def _do_filter_stacks(self) -> None:
        self._filter_bar.open(self._pattern)

    def _set_filter(self, pattern: str) -> None:
        raise NotImplementedError

    def _no_zoom(self) -> str:
        return "there is room for one pane only" if self.has_class("-one") else ""

    def _do_zoom(self) -> None:
        if self._zoomed():
            self._unzoom()
        else:
            self.add_class("-zoom-right" if self._pane().id in RIGHT else "-zoom-left")

    def _zoomed(self) -> bool:
        return self.has_class("-zoom-left") or self.has_class("-zoom-right")

    def _unzoom(self) -> None:
        self.remove_class("-zoom-left", "-zoom-right")

    def _do_copy(self) -> None:
        pane = self._pane()
        text = self.get_selected_text() or pane.copy_text()
        if text:
            self.app.copy(text)

    def _do_copy_command(self) -> None:
        self.app.copy(self.stacks.command)

    def _no_save(self) -> str:
        return "" if self.stacks.snapshot.samples else "no sample has been taken"

    def _do_save(self) -> None:
        self._save()

    @work(group="save", exclusive=True)
    async def _save(self) -> None:
        try:
            path = await asyncio.to_thread(self.stacks.save)
        except CockpitError as error:
            self.app.complain(error)
            return
        text = f"the snapshot is in {path} · cockpit stacks FOLDER opens it again"
        self.notify(text, markup=False, timeout=12)

    def _do_leave(self) -> None:
        self.app.leave()

    def _do_interrupt(self) -> None:
        selected = self.get_selected_text()
        if selected:
            self.app.copy(selected)
        elif not self.why_not("cancel"):
            self._do_cancel()
        elif self.root:
            self.app.leave()
        else:
            answers = [Answer("stay", "stay", "c"), Answer("leave", "leave", "l")]
            lines = ["Leaving: the run goes on."]
            self.app.push_screen(Question("leave or stay?", lines, answers), self._interrupted)

    def _interrupted(self, answer: str | None) -> None:
        if answer == "leave":
            self.app.leave()

    def _do_palette(self) -> None:
        self.app.find("go to", [*self.items(), *self.app.theme_items(), *self.places()])

    def _do_help(self) -> None:
        self.app.find("keys", self.items())

    def _do_help_here(self) -> None:
        title, lines = HERE.get(str(self._pane().id), HERE["tree"])
        self.app.push_screen(Question(title, lines, [Answer("ok", "close", "q")]))

    def verdict_text(self) -> str:
        """The text of the bar at the top, for the clipboard."""
        return self.query_one(VerdictBar).text
