"""The umask of the person whose agent this is: ours is strict, what they start keeps their own."""

from __future__ import annotations

import os
from typing import Optional

_theirs: Optional[int] = None


def be_private() -> None:
    """From here on this process makes files and folders that are its user's alone, and can enter them."""
    global _theirs
    _theirs = os.umask(0o077)


def theirs() -> Optional[int]:
    """The umask before :func:`be_private`; None: this process still has it."""
    return _theirs
