"""Folders on this machine for what is this person's alone: nobody else can put other files there."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cockpit import config
from cockpit.base import owners


def private_dir(path: Path) -> Path:
    """Make ``path`` with mode 0700 if it is missing (parents too), and return it.

    :raises OSError: it cannot be made, or others may change it, or a folder on the way to it
    """
    try:
        owners.make(str(path))
    except owners.NotOurs:
        group = config.trusted_group()
        if not group:
            raise
        owners.make(str(path), (group,))
    return path


DEMO = "cockpit-demo-"
"""What the names of demos' folders begin with: a demo that was killed is known by it."""


def temporary_dir(inside: str, prefix: str = "cockpit-") -> Path:
    """Make a folder of a new name in one that others may use too, such as /tmp.

    :raises OSError: it cannot be made, or others could move it
    """
    owners.check(inside)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=inside))
