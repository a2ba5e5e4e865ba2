"""Which run to compare one with: the last good one of the same command comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from cockpit.engine.alike import last_good
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen
from cockpit.tui.compare.screen import CompareScreen
from cockpit.tui.panes.finder import Item
from cockpit.tui.run.runs import run_items

PROMPT = "compare with"
"""Of the search."""

GOOD = "Last good run of this command"
"""Its heading."""


async def choose(
    screen: CommandScreen, folder: RunFolder, noted: Callable[[str, Sequence[str]], object] = lambda *_: None
) -> None:
    """List the other runs, and show what is chosen beside this one; the older one comes before.

    :param noted: is told a title, and the words to type for the same
    """

    def show(other: RunFolder) -> None:
        before, after = sorted((folder, other), key=lambda each: each.created)
        noted("compare", ["compare", before.name, after.name])
        screen.app.push_screen(CompareScreen(before, after))

    try:
        # What was recorded of several long runs takes a while to read.
        items = await asyncio.to_thread(_items, folder, show)
    except CockpitError as error:
        screen.app.complain(error)
        return
    if items:
        screen.app.find(PROMPT, items, "compares")
    else:
        screen.notify("no other run to compare with is known here", severity="warning")


def _items(folder: RunFolder, show: Callable[[RunFolder], object]) -> list[Item]:
    """The other runs, the last good one of the same command first.

    :raises CockpitError: the folder of runs cannot be read
    """
    good: RunFolder | None = None
    with suppress(CockpitError):  # of a run whose manifest is damaged nobody knows the command
        good = last_good(folder)
    items = list(run_items(folder.name, show))
    if good is None:
        return items
    first = replace(
        next(
            (item for item in items if item.name == good.name),
            Item(good.name, f"run {good.name}", lambda: show(good)),
        ),
        group=GOOD,
    )
    return [first, *(item for item in items if item.name != good.name)]
