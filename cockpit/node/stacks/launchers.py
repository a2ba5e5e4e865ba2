"""Who started a rank: the processes above it, and their command lines."""

from __future__ import annotations

import os
from typing import Iterator, List, Optional

from cockpit.base import secret
from cockpit.node import procfs
from cockpit.node.stacks import rank_variables

LEVELS = 32
"""Processes above a rank that are looked at."""

_SHELLS = (b"sh", b"bash", b"dash", b"zsh", b"ksh", b"fish", b"tcsh", b"csh")
_FILES = (b"--init-file", b"--rcfile")
_SESSIONS = ("sshd", "tmux", "screen", "systemd", "init", "login", "su", "sudo", "dropbear")
"""Short names of what a person works in, not what starts a job; newer sshd say more after a dash or colon."""


def above(pid: int) -> Iterator[procfs.Stat]:
    """The processes above this one, the nearest first, without the first of all."""
    seen = procfs.stat(pid)
    for _ in range(LEVELS):
        seen = procfs.stat(seen.parent) if seen is not None and seen.parent > 1 else None
        if seen is None:
            return
        yield seen


def launcher(pid: int) -> Optional[procfs.Stat]:
    """The process that started a rank: the nearest above it that is not part of the rank.

    None: a person did, in a shell, or it has ended.
    """
    own = rank_variables.read(procfs.contents("/proc/%d/environ" % pid))
    for one in above(pid):
        said = rank_variables.read(procfs.contents("/proc/%d/environ" % one.pid))
        # A wrapper has the rank too.
        wraps = own is not None and said is not None and said.number == own.number
        if not (wraps and own is not None and said is not None and not own.is_started_by(said)):
            return None if _is_session(one) else one
    return None


def _is_session(process: procfs.Stat) -> bool:
    """Whether this is a shell that reads what a person types, or what holds such shells."""
    if process.name.split("-")[0].split(":")[0] in _SESSIONS:
        return True
    return is_typed_into(procfs.arguments(process.pid))


def is_typed_into(words: List[bytes]) -> bool:
    """Whether this is the command line of a shell that reads what a person types, and no script."""
    name = os.path.basename(words[0]).lstrip(b"-") if words else b""
    # The terminal of an editor has a file of its own: bash --init-file …/shellIntegration-bash.sh
    options = [word for before, word in zip(words, words[1:]) if before not in _FILES]
    return name in _SHELLS and all(word[:1] == b"-" and word != b"-c" for word in options)


def secrets(pid: int) -> List[str]:
    """The values of a process's environment that are secrets, see :func:`cockpit.base.secret.values`."""
    pairs = (one.decode("utf-8", "surrogateescape").partition("=") for one in procfs.environment(pid))
    return secret.values({name: value for name, _, value in pairs})


def command_line(words: List[bytes], limit: int, pid: int) -> str:
    """A command line as a person would type it, without secrets.

    :param limit: characters; the rest is cut
    :param pid: of the process that has it
    """
    room, texts = 2 * limit, []
    for word in words:
        # Of a long one more is looked at than is shown: what is recognised by its end is not cut in two.
        texts.append(word.decode("utf-8", "surrogateescape")[: max(0, room)])
        room -= len(word) + 1
        if room < 0:
            break
    command = " ".join(secret.command(texts, secrets(pid)))
    return command if len(command) <= limit else command[: limit - 1] + "…"
