"""``esc`` and a key in one write are two keys, as in vi.

Textual reads them as one with ``alt``, drops the ``esc`` before a sign, and reads digits as the signs that
macOS has on option and a digit. Nothing here has an ``alt`` key, but a quick typist, a slow link and ``tmux
send-keys`` send both at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

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


def reads_escapes(driver: type[Driver]) -> type[Driver]:
    """Let a driver use our parser; drivers take it by name from their module."""
    module = sys.modules[driver.__module__]
    if hasattr(module, "XTermParser"):
        vars(module)["XTermParser"] = EscapeParser
    return driver
