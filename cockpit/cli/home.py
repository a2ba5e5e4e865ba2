"""``cockpit`` alone on a terminal: the home screen, and what is chosen there, one after the other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cockpit.cli import heap, terminal
from cockpit.cli.output import complain, say
from cockpit.errors import CockpitError, Exit, os_error

if TYPE_CHECKING:
    from cockpit.tui.home.requested_verb import Wish


def main(verb: Callable[[list[str]], int]) -> int:
    """Show what is known here until a person leaves.

    :param verb: runs one verb, by its words
    """
    from cockpit import config
    from cockpit.tui.home.app import HomeApp

    chosen = said = ""
    while True:
        app = HomeApp(config.load(), chosen=chosen, said=said)
        app.settled = heap.settle
        with terminal.of_app(app):
            asyncio.run(app.run_async())
        if app.wish is None:
            return Exit.OK
        chosen, said = app.chosen, _carried_out(app.wish, verb)
        if not terminal.wanted(plain=False, headless=False, json=False):
            return Exit.LEFT  # its window was closed meanwhile


def _carried_out(wish: Wish, verb: Callable[[list[str]], int]) -> str:
    """Carry out what was chosen; return what went wrong."""
    try:
        with _surroundings(wish.cwd, wish.env):
            verb(list(wish.words))
            if wish.prints:
                input("enter: back to the list of runs ")
    except CockpitError as error:
        complain(error)
        return str(error)
    except (KeyboardInterrupt, EOFError):
        say("interrupted")
    except SystemExit as error:
        return "" if not error.code else f"cockpit {wish.words[0]}: failed to start"
    return ""


@contextmanager
def _surroundings(cwd: str, env: Mapping[str, str]) -> Iterator[None]:
    """A folder and variables, for as long as one verb runs.

    :raises CockpitError: there is no such folder any more
    """
    here, before = os.getcwd(), {name: os.environ.get(name) for name in env}
    try:
        if cwd:
            os.chdir(cwd)
    except OSError as error:
        raise os_error("cannot change to the run's working directory", cwd, error) from None
    os.environ.update(env)
    try:
        yield
    finally:
        os.chdir(here)
        _restore(before)


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
