"""The other runs that are known here, newest first: each can be opened in place of the one on the screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from cockpit.core.ranks import nodes_text
from cockpit.core.run.summary import state_text
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
    :param states: say how each is, which takes reading all that was recorded of it
    :raises CockpitError: the folder of runs cannot be read
    """
    for folder in reversed(list_runs()[-MOST:]):
        if folder.name == here:
            continue
        item = partial(Item, folder.name, run=partial(show, folder), group="Runs")
        try:
            manifest = folder.manifest
            state = f"  {state_text(folder.model())}" if states else ""
        except CockpitError as error:
            yield item(title=f"run {folder.name}", why_not=error.what)
            continue
        started = time.strftime("%m-%d %H:%M", time.localtime(manifest.created))
        nodes = nodes_text(node.name for node in manifest.nodes)
        about = f"Since {started} on {nodes}: {' '.join(manifest.program)}"
        yield item(title=f"run {folder.name}{state}", about=about, why_not=why_not)
