"""A place on the run's screen: what ``-`` goes back to."""

from __future__ import annotations

from dataclasses import dataclass

TABS = ("log", "detail", "events", "commands")
"""Panes on the right, in the order of their keys 2 to 5."""


@dataclass(frozen=True)
class View:
    """A pane and what it is narrowed to.

    :param chosen: a node, and a rank on it or None for all of them; None: the whole run
    """

    tab: str = "log"
    chosen: tuple[str, int | None] | None = None
