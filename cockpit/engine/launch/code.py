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
from typing import NamedTuple

from cockpit.base.gate import Definition, Malformed, Text, bound, parsed, read
from cockpit.core.report.working_tree import CHANGED
from cockpit.core.text import size
from cockpit.engine.files import read_small, replace
from cockpit.errors import CockpitError

FILE, DIFF = "code.json", "code.diff"

LIMIT_S = 10.0
"""Seconds that git may take for all of it; a large tree on a slow disk has no revision then."""

MOST = 256 << 20
"""Bytes of a difference that are hashed."""

KEPT = 1 << 20
"""Bytes of it that are kept, if somebody wants it."""
_WORD = 256
"""Bytes of an answer that is one word."""

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
        return f"{self.commit[:12]}{CHANGED}{self.diff[:8]}" if self.diff else self.commit[:12]


async def keep_revision(folder: Path, cwd: str, *, diff: bool = False) -> None:
    """Find out, and write it into a run's folder; nothing is written where there is no git, or no answer.

    :param diff: also what tracked files differ by, the first :data:`KEPT` bytes
    """
    found = await revision(cwd)
    if found is not None:
        with suppress(CockpitError):  # a full disk is said by what needs the room
            replace(folder / FILE, json.dumps(asdict(found.revision)).encode())
            if diff and found.revision.diff:
                replace(folder / DIFF, found.text)


def kept_revision(folder: Path) -> Revision | None:
    """What a run's folder has of it; None: nothing, or it is damaged."""
    with suppress(OSError, Malformed):
        return read(Revision, parsed(read_small(folder / FILE, 1 << 16)))
    return None


def kept_diff(folder: Path) -> str:
    """What a run's folder has of the difference, as git says it; empty: nothing. Secrets may be in it."""
    with suppress(OSError):
        return read_small(folder / DIFF, 2 * KEPT).decode("utf-8", "replace")
    return ""


class GitState(NamedTuple):
    """What git says.

    :param text: what tracked files differ by, cut at :data:`KEPT` bytes, which its last line says then
    """

    revision: Revision
    text: bytes


async def revision(cwd: str, limit_s: float = LIMIT_S) -> GitState | None:
    """What is checked out in a folder; None: git does not say, or not within the time."""
    with suppress(TimeoutError, asyncio.TimeoutError, OSError, ValueError):
        return await asyncio.wait_for(_revision(cwd), limit_s)
    return None


async def _revision(cwd: str) -> GitState:
    commit, _, _ = await _said(cwd, _WORD, "rev-parse", "--verify", "--quiet", "HEAD")
    text, changed, whole = await _said(cwd, KEPT, *_DIFF)
    told = read(Revision, {"commit": commit.decode("ascii", "replace").strip(), "diff": changed})
    if whole > len(text):
        lines = text[: text.rfind(b"\n") + 1]
        text = lines + f"... cut: the first {size(len(lines))} of {size(whole)} are kept\n".encode()
    return GitState(told, text)


async def _said(cwd: str, most: int, *words: str) -> tuple[bytes, str, int]:
    """The beginning of what git says, the hash of all of it, or nothing if it says nothing, and its bytes.

    :param most: bytes of the beginning
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
    digest, first, whole = hashlib.sha256(), bytearray(), 0
    try:
        while data := await process.stdout.read(1 << 16):
            first += data[: most - len(first)]
            whole += len(data)
            digest.update(data)
            if whole > MOST:
                raise ValueError("too much")
        if await process.wait():
            raise ValueError("git failed")
    finally:
        await _end(process)
    return bytes(first), digest.hexdigest() if whole else "", whole


async def _end(process: asyncio.subprocess.Process) -> None:
    """It may have started others, which would stay."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
