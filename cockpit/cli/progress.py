"""One line on a terminal that says what is waited for, and is gone when it is over."""

from __future__ import annotations

import os
import shutil
import sys

from cockpit.core.text import RemoteText


class Progress:
    """The last line of stderr, drawn anew each time; nothing where that is no terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def show(self, text: str) -> None:
        """Say this in place of what was said before; cut short where it would not fit the line."""
        if self._on:
            # One column less: a full line makes the cursor wrap, and what is drawn next would not be over it.
            room = shutil.get_terminal_size().columns - 1
            self._draw(RemoteText.of(text).shown()[:room])

    def clear(self) -> None:
        """Take it away."""
        if self._on:
            self._draw("")

    def _draw(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
