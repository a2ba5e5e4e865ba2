"""Names of runs: one that is new, one that a person gives, and what files are called by it."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress

from cockpit import paths
from cockpit.base import gate
from cockpit.base.gate import Malformed
from cockpit.errors import CockpitError
from cockpit.slurm import is_job, own_job

LAST = "last"
"""Stands for the newest run wherever a run is named."""

_WORDS = """
    otter heron lynx finch badger marten plover hare kite wren vole stoat newt tern dipper crane egret
    raven osprey swift magpie marmot ibex chamois beaver bison puffin gannet curlew merlin petrel
"""


def new_name() -> str:
    """A name for a run: ``<date>-<time>-<word>``, local time, in a SLURM job ``<date>-<time>-<job>-<word>``.

    Elements of an array start in the same second, and there are more of them than words. The newest runs here
    have other words: one is enough to name one of them.
    """
    job, words, known = own_job(), _WORDS.split(), list[str]()
    within = f"{job}-" if is_job(job) else ""
    with suppress(OSError):
        known = sorted(name for name in os.listdir(paths.runs()) if name[:1].isdigit())
    taken = {name.rpartition("-")[2] for name in known[-len(words) // 2 :]}
    free = [word for word in words if word not in taken]
    return time.strftime("%Y%m%d-%H%M%S-") + within + secrets.choice(free)


def run_name(name: str) -> str:
    """The name of a new run.

    :raises CockpitError: it cannot be one
    """
    try:
        found = str(gate.RUN_NAME.read(name))
    except Malformed:
        hint = "letters, digits, dot, dash, underscore"
        if len(name) > gate.RUN_NAME.most:
            hint = f"it is too long: at most {gate.RUN_NAME.most} characters"
        raise CockpitError(f"not a valid run name: {name[:100]!r}", hint=hint) from None
    if found.casefold() == LAST:
        raise CockpitError(f"not a valid run name: {found!r} means the newest one", hint="use another --name")
    return found


def safe_name(name: str) -> str:
    """``name`` as a part of a file name: letters, digits, dot, dash and underscore."""
    return "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "_" for c in name).lstrip(".") or "_"
