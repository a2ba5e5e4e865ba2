"""The other runs that are known here, newest first: each can be opened in place of the one on the screen."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from functools import partial

from cockpit import paths
from cockpit.core.ranks import nodes_text
from cockpit.core.run.brief import DAMAGED, Brief
from cockpit.engine.briefs import briefs, unreadable
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.errors import CockpitError
from cockpit.tui.panes.finder import Item

MOST = 20
"""How many of the newest are listed, as ``cockpit ps`` does."""


def run_items(
    here: str, show: Callable[[RunFolder], object], why_not: str = "", *, states: bool = False
) -> Iterator[Item]:
    """The runs to choose from, as far as they are known without asking any node.

    :param here: the one on the screen
    :param show: opens one
    :param why_not: why none can be opened now; empty: one can
    :param states: say how each is, which takes reading what is not in the index of runs
    :raises CockpitError: the folder of runs cannot be read
    """
    for run in heapq.nlargest(MOST, briefs(), lambda run: (run.began, run.run)) if states else _unread():
        if run.run == here:
            continue
        item = partial(Item, run.run, run=partial(show, RunFolder(paths.runs() / run.run)), group="Runs")
        if run.word == DAMAGED:
            yield item(title=f"run {run.run}", why_not=run.state)
            continue
        state = f"  {', '.join(filter(None, (run.state, run.standing)))}" if states else ""
        started = time.strftime("%m-%d %H:%M", time.localtime(run.began))
        about = f"Since {started} on {nodes_text(run.nodes)}: {' '.join(run.program)}"
        yield item(title=f"run {run.run}{state}", about=about, why_not=why_not)


def _unread() -> Iterator[Brief]:
    """The same by their manifests alone, at once: whoever types on must not wait for an index."""
    for folder in reversed(list_runs()[-MOST:]):
        try:
            manifest = folder.manifest
        except CockpitError as error:
            yield unreadable(folder, error)
            continue
        yield Brief(
            run=folder.name[:255],
            began=manifest.created,
            word="",
            state="",
            nodes=tuple(node.name for node in manifest.nodes),
            program=tuple(manifest.program),
        )
