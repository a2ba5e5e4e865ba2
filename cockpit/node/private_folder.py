"""Where cockpit keeps its files on a node, unless a run names another place."""

from __future__ import annotations

import os


def base() -> str:
    """The folder of runs, and of the py-spy that a cockpit sent; it may not exist yet."""
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", "cockpit-%d" % os.geteuid())
