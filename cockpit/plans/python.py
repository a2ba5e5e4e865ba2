"""Which Python the ranks get, as far as this shell tells."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.errors import CockpitError
from cockpit.plans.launch import OWN

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")
# What pip writes where the path is too long for a `#!` line, or has a space in it.
_LONG = re.compile(rb"#!/bin/sh\n'''exec' (?:\"(/[^\"\n]+)\"|(/[^ \n]+)) \"\$0\" \"\$@\"\n")
_HEAD = 4096


@dataclass(frozen=True)
class Python:
    """A Python, and how it was chosen.

    :param path: absolute, on every node; None: the one on PATH after the setup
    :param folder: of the active environment's programs, first on PATH when the setup begins; empty: no such
        environment
    :param tool: the launcher that ``path`` was found behind, or empty
    """

    path: str | None
    folder: str = ""
    tool: str = ""

    @property
    def note(self) -> str:
        """What a person who named no Python and activated none should know; empty: nothing."""
        return f"python: {self.path}, behind {self.tool} on this shell's PATH" if self.tool else ""


def choose(given: str, setup: str, launcher: str, environ: Mapping[str, str], prefix: str) -> Python:
    """The Python of the ranks.

    The first of: ``given``; what the setup leaves on PATH, the active environment being on it before; the
    active virtualenv or conda environment; the Python behind the launcher on this shell's PATH, as in a
    container or with a module loaded; cockpit's own environment, if the launcher is in it.

    :param given: value of ``--python``, or empty
    :param environ: this shell's
    :param prefix: of the Python that runs cockpit
    :raises CockpitError: none of these
    """
    if given:
        if not os.path.isabs(given):
            raise CockpitError(f"--python must be an absolute path, not {given}")
        return Python(given)
    found = _active(environ) or _behind(launcher, environ)
    if setup:
        return Python(None, os.path.dirname(found.path) if found and found.path else "")
    # Started by path from an environment that is not activated: that one is meant, if it can launch.
    if found is None and os.access(_beside(prefix, launcher), os.X_OK):
        own = os.path.join(prefix, "bin", "python")
        found = Python(own if os.access(own, os.X_OK) else own + "3")  # Debian's own has that name alone
    if found is None:
        what = "which python? no virtualenv or conda environment is active here"
        tool = "" if launcher in OWN else shutil.which(launcher, path=environ.get("PATH", ""))
        if tool:
            what += f", and {tool} does not say which it starts"
        elif tool is None:
            what += f", and no {launcher} is on this PATH"
        hint = "activate it, or give --python PATH or --setup 'source …/activate'"
        raise CockpitError(what, hint=hint)
    return found


def _active(environ: Mapping[str, str]) -> Python | None:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := environ.get(variable):
            return Python(os.path.join(prefix, "bin", "python"))
    return None


def _beside(prefix: str, launcher: str) -> str:
    return os.path.join(prefix, "bin", "" if launcher in OWN else launcher)


def _behind(launcher: str, environ: Mapping[str, str]) -> Python | None:
    """The Python that the launcher on PATH is a script of."""
    search = environ.get("PATH", "")
    tool = None if launcher in OWN else shutil.which(launcher, path=search)
    if tool is None:
        return None
    tool = os.path.abspath(tool)
    try:
        with open(tool, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    python = _interpreter(head, search)
    if python is None or not os.path.isabs(python) or not _PYTHON.match(os.path.basename(python)):
        return None
    return Python(python, tool=tool)


def _interpreter(head: bytes, search: str) -> str | None:
    """The path of what a script that begins like this is run by; None: not to be told."""
    if long := _LONG.match(head):
        return os.fsdecode(long[1] or long[2])
    line, newline, _ = head.partition(b"\n")
    if not newline or not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if words and os.path.basename(words[0]) == "env":
        name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        return shutil.which(name, path=search)
    return words[0] if words else None
