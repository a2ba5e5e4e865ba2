"""Textual's driver of the terminal, with what it lacks.

``esc`` and a key in one write are two keys, as in vi. Textual reads them as one with ``alt``, drops the
``esc`` before a sign, and reads digits as the signs that macOS has on option and a digit. Nothing here has an
``alt`` key, but a quick typist, a slow link and ``tmux send-keys`` send both at once.

A terminal may go away. Textual would read its end again and again, on a whole core; and since the kernel then
sends SIGCONT behind SIGHUP, it would begin to read it once more, in a second thread that nobody ends. The
thread that writes would end with an error, and the app would wait for it.
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import IO, Any, cast

from textual._xterm_parser import XTermParser
from textual.driver import Driver
from textual.drivers._writer_thread import WriterThread
from textual.events import Key

ESC = "\x1b"
BEGIN = "[]OP^_"
"""What may follow an ``esc`` that begins a sequence: if nothing comes after it, it is a key too."""


class EscapeParser(XTermParser):
    """Turns what the terminal sends into keys."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        """The keys of a sequence, or of one character after an ``esc`` that begins no sequence."""
        # The parser also asks for the beginnings of sequences.
        pair = len(sequence) == 2 and sequence[0] == ESC and sequence[1] not in BEGIN
        if not alt and not (pair and (sequence[1].isprintable() or sequence[1] == "\r")):
            yield from super()._sequence_to_key_events(sequence)
            return
        yield Key("escape", ESC)
        yield from super()._sequence_to_key_events(sequence[-1])


def gone(number: int) -> bool:
    """Whether the other end of an open terminal is closed."""
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return any(events & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0))


class Display:
    """A terminal to write to; what one that has gone away does not take is dropped."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.fileno = file.fileno

    def write(self, text: str) -> None:
        """Write text."""
        self._taken(partial(self._file.write, text))

    def flush(self) -> None:
        """Write what has not been written yet."""
        self._taken(self._file.flush)

    def _taken(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError:
            if not gone(self.fileno()):
                raise


class Terminals(selectors.SelectSelector):
    """Waits for keys; that a terminal has gone away is told once, as the kernel tells it: by SIGHUP."""

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Those with keys."""
        ready = super().select(timeout)
        if not any(gone(key.fd) for key, _ in ready):
            return ready
        if not self._told:
            self._told = True
            os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(timeout or 0.0)
        return []


def _writer(file: IO[str]) -> WriterThread:
    return WriterThread(cast("IO[str]", Display(file)))


def ours(driver: type[Driver]) -> type[Driver]:
    """A driver of a terminal with our ways; any other as it is."""
    module = sys.modules[driver.__module__]
    if not hasattr(module, "XTermParser"):
        return driver
    # Drivers take them by name from their module.
    vars(module)["XTermParser"] = EscapeParser
    vars(module)["WriterThread"] = _writer
    vars(module)["selectors"] = SimpleNamespace(SelectSelector=Terminals, EVENT_READ=selectors.EVENT_READ)
    known: Any = driver

    class Ours(known):  # type: ignore[misc]
        """It stops and goes on between two turns of the event loop, and goes on where it was stopped.

        A signal comes anywhere, also in the middle of a write: the handler's own writes would wait for ever
        for the lock that this one holds.
        """

        def __init__(self, *args: Any, **options: Any) -> None:
            self._asked: set[Callable[[], None]] = set()
            super().__init__(*args, **options)

        def _sigtstp_application(self, *_: object) -> None:
            self._soon(self._stop)

        def _sigcont_application(self, *_: object) -> None:
            self._soon(self._go_on)

        def _soon(self, what: Callable[[], None]) -> None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # the app has ended: nothing is in the middle of a write any more
                what()
                return
            if what not in self._asked:
                self._asked.add(what)
                loop.call_soon_threadsafe(self._do, what)

        def _do(self, what: Callable[[], None]) -> None:
            # First: what is asked for from now on is to be done once more.
            self._asked.discard(what)
            what()

        def _stop(self) -> None:
            self._give_back()
            os.kill(os.getpid(), signal.SIGSTOP)

        def _go_on(self) -> None:
            # Whoever stopped it by SIGSTOP may have used the terminal for something else meanwhile.
            self._give_back()
            if self._must_signal_resume:
                super()._sigcont_application()

        def _give_back(self) -> None:
            """Leave the terminal to others, if it is read."""
            reads = self._key_thread is not None and self._key_thread.is_alive()
            if reads and self._auto_restart and not gone(self.fileno):
                self.suspend_application_mode()
                self._must_signal_resume = True

    return Ours
