"""Where this node code is, for those that start it again as another process."""

from __future__ import annotations

import sys
from typing import List, Tuple

_MEMORY = "/proc/self/fd/"


def path() -> str:
    """The zip of the node code: a file, or memory that only this process and what inherits it can read."""
    return next(place for place in sys.path if place.startswith(_MEMORY) or place.endswith(".pyz"))


def command(*words: str) -> Tuple[List[str], Tuple[int, ...]]:
    """What starts a part of it as a child, and the descriptors that the child must inherit."""
    place = path()
    numbers = (int(place[len(_MEMORY) :]),) if place.startswith(_MEMORY) else ()
    return [sys.executable, "-I", "-S", place, *words], numbers
