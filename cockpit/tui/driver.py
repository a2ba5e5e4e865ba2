"""Textual's driver of the terminal, with what it lacks.

``esc`` and a key in one write are two keys, as in vi. Textual reads them as one with ``alt``, drops the
``esc`` before a sign, and reads digits as the signs that macOS has on option and a digit. Nothing here has an
``alt`` key, but a quick typist, a slow link and ``tmux send-keys`` send both at once.

A terminal may go away. Textual would read its end again and again, on a whole core; and since the kernel then
sends SIGCONT behind SIGHUP, it would begin to read it once more, in a second thread that nobody ends.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from textual._xterm_parser import XTermParser
from textual.driver import Driver
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


def ours(driver: type[Driver]) -> type[Driver]:
    """A driver of a terminal with our ways; any other as it is."""
    module = sys.modules[driver.__module__]
    if not hasattr(module, "XTermParser"):
        return driver
    # Drivers take them by name from their module.
    vars(module)["XTermParser"] = EscapeParser
    vars(module)["selectors"] = SimpleNamespace(SelectSelector=Terminals, EVENT_READ=selectors.EVENT_READ)
    known: Any = driver

    class Ours(known):  # type: ignore[misc]
        """It goes on where it was stopped, and nowhere else."""

        _continues = False
        """A signal is being handled: another one in the middle of it would leave half of each done."""

        def _sigcont_application(self, *_: object) -> None:
            if self._continues:
                return
            self._continues = True
            try:
                self._go_on()
            finally:
                self._continues = False

        def _go_on(self) -> None:
            reads = self._key_thread is not None and self._key_thread.is_alive()
            if reads and self._auto_restart and not gone(self.fileno):
                # Whoever stopped it by SIGSTOP may have used the terminal for something else meanwhile.
                self.suspend_application_mode()
                self._must_signal_resume = True
            if self._must_signal_resume:
                super()._sigcont_application()

    return Ours
