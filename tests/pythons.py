"""The Pythons of this machine that a node may have."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

from tests.needs import beyond

VERSIONS = tuple(f"3.{minor}" for minor in range(8, 15))
"""What a node may have."""

RUNNING = "%d.%d" % sys.version_info[:2]


def python(version: str) -> str:
    """The path of a Python of that version that really runs; where there is none, the test is skipped.

    It is skipped even with COCKPIT_REQUIRE_ALL=1: no machine has all of them, and ``docs/proven.md`` says
    which were run.
    """
    if version == RUNNING:
        return sys.executable
    return found(version) or beyond(
        f"no python{version} on PATH or in ~/.pyenv/versions that this user can run"
    )


@cache
def found(version: str) -> str | None:
    """The same, or None."""
    return next((path for path in _candidates(version) if _runs(path, version)), None)


def _candidates(version: str) -> Iterator[str]:
    """Where it may be: on the PATH, the newest of pyenv, and what `python3` is."""
    name = f"python{version}"
    beside = glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/{name}"))
    for path in (shutil.which(name), *sorted(beside, reverse=True), "/usr/bin/python3"):
        if path is not None:
            yield path


def _runs(path: str, version: str) -> bool:
    """Whether it is one: a shim of pyenv is on the PATH for versions that are not chosen, too."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-I", "-S", "-c", ask], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.stdout.strip() == version
