"""The one family of errors that a person is meant to read, and the exit codes of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every verb (the table with causes is in docs/exit-codes.md)."""

    OK = 0
    RANK_FAILED = 1
    USAGE = 2
    NODE_UNFIT = 3
    INTERNAL = 4
    LEFT = 130


class CockpitError(Exception):
    """Something went wrong that a person can act on.

    ``str(error)`` is one line: ``where: what; what to type next``.

    :param what: what happened, in one sentence without a full stop
    :param where: the place: ``file:line``, a node, ``node:rank`` or a run
    :param hint: what to type or change next
    :param code: the exit code this error ends the program with, unless something worse happened too
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "", code: Exit = Exit.USAGE) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}; {self.hint}" if self.hint else line


class ManyErrors(CockpitError):
    """Several errors found in one pass, reported together, one line each.

    :param errors: at least one error; the worst exit code of them counts
    """

    def __init__(self, errors: Sequence[CockpitError]) -> None:
        super().__init__("\n".join(map(str, errors)), code=max(e.code for e in errors))
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))
