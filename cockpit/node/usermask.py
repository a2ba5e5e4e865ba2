"""The umask of the user of this agent: ours is strict, but what they start keeps theirs."""

from __future__ import annotations

import os
from typing import Optional

_theirs: Optional[int] = None


def be_private() -> None:
    """From now on, this process creates files and folders only for its user, who can enter them."""
    global _theirs
    _theirs = os.umask(0o077)


def theirs() -> Optional[int]:
    """The umask before :func:`be_private`; None: this process still has it."""
    return _theirs
