"""Open the app on a terminal, and afterwards say how it went, where one can scroll back to it."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

from cockpit.cli import heap
from cockpit.cli.narration import mute, say_left
from cockpit.cli.output import say
from cockpit.cli.parsing import Parser, add_flag, add_seconds, add_theme, add_word
from cockpit.core.run.summary import summary
from cockpit.errors import CockpitError, Exit

if TYPE_CHECKING:
    from cockpit.core.watch.options import WatchOptions
    from cockpit.engine.stacks.take import Stacks
    from cockpit.tui.base_app import BaseApp
    from cockpit.tui.run.purpose import Flight

STUCK_S = 8.0
"""The app is ended at once if it has not ended this long after it should: nobody sees it any more."""


def add_options(parser: Parser, *, launches: bool = True) -> None:
    """How a run is watched.

    :param launches: whether the verb launches it, too
    """
    group = parser.add_argument_group("watching")
    signals = "SIGTERM stops the run, SIGHUP leaves it" if launches else "SIGTERM and SIGHUP leave the run"
    add_flag(group, "--plain", "live lines on the terminal instead of the app")
    add_flag(group, "--headless", f"live lines, no questions; {signals}")
    add_flag(group, "--json", "an event stream, one JSON object per line")
    add_flag(group, "--read-only", "the app can't change the run")
    add_theme(group)
    add_word(
        group,
        "--notify",
        "COMMAND",
        "run COMMAND with /bin/sh when the run stalls, fails or ends; it gets JSON on stdin "
        "(cockpit help calls)",
        None,
    )
    add_flag(group, "--report", "when it has ended, write its report into its folder; cockpit help report.md")
    add_flag(group, "--no-watch", "don't inspect ranks automatically when steps stop; cockpit help watch")
    add_seconds(
        group,
        "--hang-after",
        None,
        "inspect ranks after S seconds without a step, or six usual steps if longer (default: 30)",
    )
    group.add_argument(
        "--on-hang",
        choices=("note", "stop"),
        help="once a run is proven to be stuck: report it (default), or also stop it (exit code 4)",
    )
    add_seconds(
        group,
        "--stop-after",
        None,
        "with --on-hang stop: also stop a run after S seconds without a step or movement (default: never)",
    )


def watch_options(args: argparse.Namespace, launcher: str = "") -> WatchOptions:
    """How the run is to be watched: as the options say, else as the settings do.

    :param launcher: of the run: nothing is known for certain of ranks that a program starts itself

    :raises CockpitError: the settings are wrong, or the options contradict each other
    """
    from cockpit import config
    from cockpit.core.watch.options import WatchOptions
    from cockpit.plans.launch import PER_NODE

    if args.hang_after == 0:
        raise CockpitError("--hang-after must be more than 0", hint="--no-watch turns the watch off")
    settings = config.load().watch
    looks = settings.look and not args.no_watch
    if args.on_hang == "stop" and not looks:
        why = "--no-watch" if args.no_watch else "look = false in the settings"
        what = f"--on-hang stop: with {why} nothing detects a hang"
        raise CockpitError(what, hint="leave out one of them" if args.no_watch else "look = true")
    on_hang = args.on_hang or settings.on_hang
    if launcher == PER_NODE and args.on_hang == "stop":
        what = f"--on-hang stop does not apply to --launcher {PER_NODE}: the program starts its own ranks"
        raise CockpitError(what, hint="leave it out")
    if args.stop_after and on_hang != "stop":
        raise CockpitError("--stop-after has no effect without --on-hang stop", hint="add --on-hang stop")
    return WatchOptions(
        looks,
        settings.hang_after if args.hang_after is None else args.hang_after,
        "note" if launcher == PER_NODE else on_hang,
        settings.stop_after if args.stop_after is None else args.stop_after,
    )


def wanted(*, plain: bool, headless: bool, json: bool) -> bool:
    """Whether the app can and should be opened: somebody is at a terminal that can show it."""
    if plain or headless or json or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def needed() -> None:
    """Check that there is a terminal for the app, before anybody is asked anything.

    :raises CockpitError: there is none
    """
    if not wanted(plain=False, headless=False, json=False):
        raise CockpitError("--tui needs a terminal", hint="leave it out to print text")


def fly(flight: Flight, *, read_only: bool, theme: str | None, notify: str | None = None) -> int:
    """Open the app, as :func:`flown` does, where no event loop runs yet."""
    return asyncio.run(flown(flight, read_only=read_only, theme=theme, notify=notify))


async def flown(flight: Flight, *, read_only: bool, theme: str | None, notify: str | None = None) -> int:
    """Open the app and wait until it is left; return the exit code.

    :param theme: in which it is drawn; None: in that of the settings
    :param notify: the command that gets calls; None: that of the settings

    :raises CockpitError: the start failed, or the config is wrong
    """
    from cockpit import config
    from cockpit.tui.app import CockpitApp  # everything else saves a fifth of a second

    settings = config.load()
    settings = replace(settings, theme=theme or settings.theme)
    app = CockpitApp(flight, settings, read_only=read_only, notify=notify)
    app.settled = heap.settle
    with of_app(app):
        code = await app.run_async()
    if app.session is None:
        return int(Exit.LEFT)
    flight = app.flight  # another run may have been opened
    from cockpit.tui.run.purpose import Replaying

    if isinstance(flight, Replaying):
        return int(Exit.OK)
    if code == Exit.LEFT:
        say_left(app.session.folder, app.session.model, flight.leaving, controlled=app.session.writer)
        return int(Exit.LEFT)
    from cockpit.cli.nccl_tests import at_end
    from cockpit.cli.since_good import since_good

    model = app.session.model
    for line in (*summary(model, flight.name, logs=not flight.leaving), *at_end(app.session.folder, model)):
        say(line)
    if model.over and model.exit_code() in (Exit.RANK_FAILED, Exit.HUNG):
        for line in since_good(flight.name):
            say(line)
    return int(Exit.RANK_FAILED if code is None else code)


async def show_stacks(stacks: Stacks) -> int:
    """Open the app on stacks alone and wait until it is left; return the exit code.

    :raises CockpitError: the config is wrong
    """
    from cockpit import config
    from cockpit.tui.stacks.app import StacksApp

    app = StacksApp(stacks, config.load())
    with of_app(app):
        await app.run_async()
    if stacks.snapshot.samples:
        say(f"snapshot: {stacks.save()}")
    return int(Exit.OK)


@contextmanager
def of_app(app: BaseApp) -> Iterator[None]:
    """The terminal while an app runs, and after it.

    :raises CockpitError: the app met an error
    """
    from cockpit.cli.terminal_keeper import kept_terminal

    with kept_terminal(), _leaves_on_signals(app):
        yield
    mute()
    if app.error is not None:
        raise app.error


@contextmanager
def _leaves_on_signals(app: BaseApp) -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed terminal, leave the run and end the app.

    Handlers of the event loop would not do: a terminal that takes no more output holds the loop up.
    """
    timers: list[threading.Timer] = []

    def leave(number: int, frame: FrameType | None) -> None:
        timers.append(threading.Timer(STUCK_S, os._exit, (int(Exit.LEFT),)))
        timers[-1].daemon = True
        timers[-1].start()
        app.leave_soon()

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
