"""Messages for people besides the ranks' output: one line per event, on stderr, and the summary."""

from __future__ import annotations

import os
import select
import sys

from cockpit.base.shell import quote
from cockpit.cli.output import say
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.run.timeline import Timeline
from cockpit.engine.records.folder import RunFolder


class Narrator:
    """Reports the news of one run.

    :param model: the run's model; an event is applied to it before it is reported
    """

    def __init__(self, model: RunModel) -> None:
        self._timeline = Timeline(model)

    def tell(self, event: Event) -> None:
        """Say what an event means to a person, if it is news."""
        entry = self._timeline.tell(event)
        if entry is not None and not entry.aside:
            say(f"{entry.text}; see: {entry.see}" if entry.see else entry.text)


def say_left(folder: RunFolder, model: RunModel, leaving: str = "", *, controlled: bool = True) -> None:
    """What leaving a run meant: how to come back to it or end it, unless leaving meant something else.

    :param controlled: whether this cockpit did; another one may
    """
    if leaving:
        say(f"left: {leaving}")
        return
    run, foreign = folder.name, folder.manifest.foreign is not None
    if model.over:
        rest = "" if model.done else f"; to fetch the rest of its output: cockpit attach {quote(run)}"
        say(f"left; the run has ended{rest}")
        return
    if folder.writer.succeeded():
        say("another attached cockpit takes over" if controlled else "another cockpit still controls it")
    say(f"left; the {'job' if foreign else 'run'} continues. Come back with: cockpit attach {quote(run)}")
    if not foreign:
        say(f"or stop it with: cockpit stop {quote(run)}")


def mute() -> bool:
    """Point stdout and stderr to nowhere if nobody reads them any more (`| head`, a closed terminal)."""
    muted = False
    for stream in (sys.stdout, sys.stderr):
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        if poll.poll(0):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            muted = True
    return muted
