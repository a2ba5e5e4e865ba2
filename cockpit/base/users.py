"""Names of the users of this machine."""

from __future__ import annotations

import pwd
from functools import lru_cache


@lru_cache(maxsize=64)
def name(uid: int) -> str:
    """The name of a user; ``uid N`` if it knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid
