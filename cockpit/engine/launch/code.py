"""The revision of the code that a run was started from, as git here says; found beside the launch."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from cockpit.base.gate import Definition, Malformed, Text, bound, parsed, read
from cockpit.engine.files import read_small, replace
from cockpit.errors import CockpitError

FILE = "code.json"

LIMIT_S = 10.0
"""Seconds that git may take for all of it; a large tree on a slow disk has no revision then."""

MOST = 256 << 20
"""Bytes of a difference that are hashed."""

_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "HEAD", "--")


class Revision(Definition):
    """What was checked out.

    :param diff: SHA-256 of what tracked files differ from it by; empty: they do not
    """

    commit: str = bound(Text(64, "[0-9a-f]{40,64}"))
    diff: str = bound(Text(64, "[0-9a-f]{64}|"), "")

    @property
    def text(self) -> str:
        """``4f2a90c1d3e5``, ``4f2a90c1d3e5 with changes 90c1d3e5``: the first digits of each."""
        return f"{self.commit[:12]} with changes {self.diff[:8]}" if self.diff else self.commit[:12]


async def keep_revision(folder: Path, cwd: str) -> None:
    """Find out, and write it into a run's folder; nothing is written where there is no git, or no answer."""
    found = await revision(cwd)
    if found is not None:
        with suppress(CockpitError):  # a full disk is said by what needs the room
            replace(folder / FILE, json.dumps(asdict(found)).encode())


def kept_revision(folder: Path) -> Revision | None:
    """What a run's folder has of it; None: nothing, or it is damaged."""
    with suppress(OSError, Malformed):
        return read(Revision, parsed(read_small(folder / FILE, 1 << 16)))
    return None


async def revision(cwd: str, limit_s: float = LIMIT_S) -> Revision | None:
    """What is checked out in a folder; None: git does not say, or not within the time."""
    with suppress(TimeoutError, asyncio.TimeoutError, OSError, ValueError):
        return await asyncio.wait_for(_revision(cwd), limit_s)
    return None


async def _revision(cwd: str) -> Revision:
    commit, _ = await _said(cwd, "rev-parse", "--verify", "--quiet", "HEAD")
    _, changed = await _said(cwd, *_DIFF)
    return read(Revision, {"commit": commit, "diff": changed})


async def _said(cwd: str, *words: str) -> tuple[str, str]:
    """The beginning of what git says, and the hash of all of it; empty: it says nothing.

    :raises ValueError: it fails, or says too much
    """
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *_GIT,
            *words,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise
    assert process.stdout is not None
    digest, first, size = hashlib.sha256(), b"", 0
    try:
        while data := await process.stdout.read(1 << 16):
            first, size = first or data[:256], size + len(data)
            digest.update(data)
            if size > MOST:
                raise ValueError("too much")
        if await process.wait():
            raise ValueError("git failed")
    finally:
        await _end(process)
    return first.decode("ascii", "replace").strip(), digest.hexdigest() if size else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """It may have started others, which would stay."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
