"""One line on a terminal that says what we are waiting for, and disappears afterwards."""

from __future__ import annotations

import os
import shutil
import sys

from cockpit.cli.output import draw


class StatusLine:
    """The last line of stderr, redrawn each time; nothing if stderr is not a terminal."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        """Whether stderr is a terminal on which a line can be redrawn."""
        self._drawn = False

    def show(self, text: str) -> None:
        """Show this instead of the previous text; cut off if it does not fit the line."""
        if self.on:
            # One column less: a full line makes the cursor wrap, and the next text would not overwrite it.
            self._drawn = True
            draw(text, shutil.get_terminal_size().columns - 1)

    def clear(self) -> None:
        """Remove it."""
        if self._drawn:
            self._drawn = False
            draw("", 0)

    def forget(self) -> None:
        """Something else is on its line, and has removed it."""
        self._drawn = False
