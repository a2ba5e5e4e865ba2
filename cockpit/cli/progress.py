"""One line on a terminal that says what is waited for, and is gone when it is over."""

from __future__ import annotations

import os
import shutil
import sys

from cockpit.cli.output import draw


class Progress:
    """The last line of stderr, drawn anew each time; nothing where that is no terminal."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        """Whether stderr is a terminal on which a line can be drawn anew."""
        self._drawn = False

    def show(self, text: str) -> None:
        """Say this in place of what was said before; cut short where it would not fit the line."""
        if self.on:
            # One column less: a full line makes the cursor wrap, and what is drawn next would not be over it.
            self._drawn = True
            draw(text, shutil.get_terminal_size().columns - 1)

    def clear(self) -> None:
        """Take it away."""
        if self._drawn:
            self._drawn = False
            draw("", 0)
