"""What cockpit says on stderr, whether or not the machine is busy."""

from __future__ import annotations


def messages(stderr: str) -> list[str]:
    """The lines on stderr, without the progress that is printed when a second has passed."""
    return [line for line in stderr.splitlines() if " nodes answered; no answer yet: " not in line]
