"""Tracebacks of cockpit's own faults: each in a file of its own, harmless to print, the newest few kept.

A traceback quotes what nodes sent and tells a person nothing: a terminal never gets one.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from cockpit import __version__, paths
from cockpit.core.text import one_line
from cockpit.engine.files import create
from cockpit.private import private_dir

KEPT = 20
"""Files that are kept; the oldest go first."""

LINES = 400
"""Lines of a traceback that are kept, half of them from each end."""


def save(error: BaseException) -> Path:
    """Write the traceback of an error (0600) and return its file. It holds no values of variables: they may
    be secrets.

    :raises OSError: it cannot be written
    """
    folder = private_dir(paths.errors())
    # Several cockpits share the folder, and the clock is no name of its own. They sort by their age.
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = folder / f"{stamp}-{os.getpid()}-{time.monotonic_ns():020d}.txt"
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    if len(lines) > LINES:
        lines[LINES // 2 : -LINES // 2] = [f"… {len(lines) - LINES} lines …"]
    lines.insert(0, f"cockpit {__version__}, Python {sys.version.split()[0]}")
    with create(path) as file:
        file.writelines(f"{one_line(line, limit=1000)}\n".encode() for line in lines)
    for old in sorted(folder.glob("*.txt"))[:-KEPT]:
        with suppress(FileNotFoundError):  # another cockpit tidies up too
            old.unlink()
    return path
