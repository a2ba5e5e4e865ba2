"""Ctrl-C and other signals while a run is watched in text (``--plain``), and the question it asks."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass

from cockpit.cli.output import prompt, say
from cockpit.errors import CockpitError

_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)

_HELD: list[signal.Signals] = []
"""What came between a start and the watch: it is for the watch."""

_ANSWERS = {"s": "stop", "stop": "stop", "k": "kill", "kill": "kill", "r": "login", "c": "", "stay": ""}
"""What a person may type; anything else, including nothing, means leave: the safe answer."""


async def ask(question: str) -> str:
    """Ask on the terminal and wait for a line; Ctrl-C ends the wait as it ends everything else."""
    prompt(question)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    number = sys.stdin.fileno()

    def read() -> None:
        loop.remove_reader(number)
        answer.set_result(_typed())

    loop.add_reader(number, read)
    try:
        return await answer
    finally:
        loop.remove_reader(number)


def _typed() -> str:
    return os.read(sys.stdin.fileno(), 1024).decode(errors="replace").strip().lower()


@contextmanager
def interruptible(said: Callable[[], CockpitError]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP cancel what this task does in the block, which can then undo it.

    A second signal cancels that too. Signals that come after the block are held for :meth:`Asks.install`.

    :param said: what to raise after a signal, once everything has been undone
    :raises CockpitError: a signal came
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task
    signals = 0

    def interrupt() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            say("interrupted: cancelling the launch and cleaning up (Ctrl-C again to quit immediately)")
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    except BaseException as error:
        _release(loop)
        if signals and isinstance(error, asyncio.CancelledError):
            raise said() from None
        raise
    for number in _SIGNALS:
        loop.add_signal_handler(number, _HELD.append, number)


def _release(loop: asyncio.AbstractEventLoop) -> None:
    for number in _SIGNALS:
        loop.remove_signal_handler(number)


@dataclass(eq=False)
class Asks:
    """Turns signals and answers into requests: ``leave``, ``stop``, ``kill``, or ``login`` again.

    If SIGTERM means ``stop``, a second one means ``kill``, and a third one ``leave``.

    :param person: whether there is somebody at the terminal to ask
    :param term: the request that SIGTERM means
    :param leaving: what leaving means, if not that the run continues
    :param waiting: nodes that wait for a person to log in again
    """

    _: KW_ONLY
    person: bool
    term: str
    leaving: InitVar[str] = ""
    waiting: Callable[[], Sequence[str]] = tuple

    def __post_init__(self, leaving: str) -> None:
        self.asking = False
        """Whether the question is on the terminal: nothing else should print there."""
        self._leaving = leaving or "the run continues"
        self._wish = ""
        self._stopped = False
        self._terms = 0

    def install(self) -> None:
        """Take over SIGINT, SIGHUP and SIGTERM of this event loop, and those that were held."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGHUP, self._set, "leave")
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        while _HELD:
            signal.raise_signal(_HELD.pop(0))

    def remove(self) -> None:
        """Release the signals."""
        _release(asyncio.get_running_loop())
        self._end_question()

    def take(self) -> str:
        """The request since the last call, or nothing."""
        wish, self._wish = self._wish, ""
        return wish

    def _terminate(self) -> None:
        self._terms += 1
        order = ("stop", "kill", "leave") if self.term == "stop" else (self.term,)
        self._set(order[min(self._terms, len(order)) - 1])

    def _set(self, wish: str) -> None:
        self._stopped = self._stopped or wish == "stop"
        self._wish = wish

    def _interrupt(self) -> None:
        if not self.person or self.asking:
            self._set("leave")
            return
        self.asking = True
        kill = "[k] kill it now · " if self._stopped else ""
        again = "[r] log in again · " if self.waiting() else ""
        prompt("", f"[Enter] leave, {self._leaving} · [s] stop the run · {kill}{again}[c] stay? ")
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def _read(self) -> None:
        answer = _typed()
        self._end_question()
        self._set(_ANSWERS.get(answer, "leave"))

    def _end_question(self) -> None:
        if self.asking:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.asking = False
