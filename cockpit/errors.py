"""The one family of errors that a person is meant to read, and the exit codes of the command line."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every verb (the table with causes is in docs/exit-codes.md)."""

    OK = 0
    RANK_FAILED = 1
    USAGE = 2
    NODE_UNFIT = 3
    HUNG = 4
    INTERNAL = 5
    LEFT = 130


class CockpitError(Exception):
    """Something went wrong that a person can act on.

    ``str(error)`` is one line: ``where: what; what to type next``.

    :param what: what happened, in one sentence without a full stop
    :param where: the place: ``file:line``, a node, ``node:rank`` or a run
    :param hint: what to type or change next
    :param code: the exit code this error ends the program with, unless something worse happened too
    """

    about = ""
    """Which of the failures it is that rules know; empty: none of them."""

    def __init__(self, what: str, *, where: str = "", hint: str = "", code: Exit = Exit.USAGE) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}; {self.hint}" if self.hint else line


class NoRoom(CockpitError):
    """A disk here is full, or the user's quota on it is used up: what waits can be tried again later."""


class ManyErrors(CockpitError):
    """Several errors found in one pass, reported together, one line each.

    :param errors: at least one error; their worst exit code counts
    """

    def __init__(self, errors: Sequence[CockpitError]) -> None:
        super().__init__("\n".join(map(str, errors)), code=max(e.code for e in errors))
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


FULL = (errno.ENOSPC, errno.EDQUOT)

_ANOTHER = "another state folder: XDG_STATE_HOME=DIR"
_IN_THE_WAY = "move it away"

_HINTS = {
    errno.ENOSPC: "free some space there and try again",
    errno.EDQUOT: "your quota there is used up: free some space and try again",
    errno.EFBIG: "raise the limit of file sizes and try again: ulimit -f unlimited",
    errno.EROFS: f"that file system is read-only; {_ANOTHER}",
    errno.EACCES: "check its owner and mode, and those of the folders above: ls -ld",
    errno.EPERM: "check its owner, mode and attributes: ls -ld, lsattr -d",
    errno.EMFILE: "raise the limit of open files and try again: ulimit -n",
    errno.ENFILE: "this machine's limit of open files is reached: try again later",
    errno.EIO: f"the disk, or the server it is on, is failing: see dmesg; {_ANOTHER}",
    errno.ESTALE: "the file server replaced it: try again",
    errno.EISDIR: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.ELOOP: _IN_THE_WAY,
    errno.ENXIO: _IN_THE_WAY,
}


def os_error(what: str, where: str | os.PathLike[str], error: OSError, *, hint: str = "") -> CockpitError:
    """What the operating system refused on this machine, as a line that a person can act on.

    :param what: what was tried: ``cannot write the journal``
    :param where: the file or folder
    :param hint: what to type next, if the cause alone does not say it best
    """
    cause = error.strerror or str(error) or type(error).__name__
    hint = hint or getattr(error, "hint", "") or _HINTS.get(error.errno or 0, "")
    kind = NoRoom if error.errno in FULL else CockpitError
    return kind(f"{what}: {cause}", where=os.fspath(where), hint=hint)


NEAR = 0.65
"""How alike words are that one may have been mistyped for, 0 to 1: at 0.6 metrics is for topics."""


def near(word: str, known: Iterable[str]) -> str:
    """The known word closest to a mistyped one, for a hint; empty if none is close. Never the word itself."""
    import difflib  # a correct word saves 5 ms

    bare = {one.lstrip("-"): one for one in known if one != word}  # dashes are alike in all options
    close = difflib.get_close_matches(word.lstrip("-"), bare, 1, NEAR)
    return bare[close[0]] if close else ""


def near_or_all(word: str, known: Iterable[str]) -> str:
    """What may have been meant by a mistyped word, or else all that is known."""
    meant = near(word, known)
    return f"did you mean {meant!r}?" if meant else f"known are {', '.join(known)}"
