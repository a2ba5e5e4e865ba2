"""What cockpit says on stderr, whether or not the machine is busy."""

from __future__ import annotations

import re


def messages(stderr: str) -> list[str]:
    """The lines on stderr, without the progress that is printed when a second has passed."""
    progress = re.compile(r" nodes? answered; (no answer yet: |waiting \d+ s for the agents? of )")
    return [line for line in stderr.splitlines() if not progress.search(line)]
