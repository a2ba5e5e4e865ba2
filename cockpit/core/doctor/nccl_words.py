"""What lines mean that NCCL, gloo and torch print when ranks meet: a wording, its meaning, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cockpit.core.rules.row import Deep, Row
from cockpit.core.rules.table import table


@dataclass(frozen=True)
class Wording:
    """One wording.

    :param pattern: found in the line, in any case
    :param step: what to type
    :param source: where it is known from
    """

    pattern: str
    means: str
    step: str
    source: str


def _wording(row: Row, deep: Deep) -> Wording:
    """A row as this test says it: a part of a sentence."""
    means = _CAPITAL.sub(lambda word: word[0].lower(), row.means.rstrip("."), count=1)
    return Wording("|".join(deep.signs), means + deep.hint, deep.step or row.next[0].command, row.source)


_CAPITAL = re.compile(r"\A[A-Z](?=[a-z]*\b)")
WORDINGS = tuple(_wording(row, row.deep) for row in table().rows if row.deep)
"""The first that fits a line counts: what says more stands first."""

_COMPILED = [(re.compile(wording.pattern, re.IGNORECASE), wording) for wording in WORDINGS]


def meanings(said: str) -> Iterator[tuple[str, Wording]]:
    """Lines that are known, with what they mean; each meaning once, with the first line that has it."""
    seen = set()
    for line in said.splitlines():
        for pattern, wording in _COMPILED:
            if pattern.search(line):
                if wording not in seen:
                    seen.add(wording)
                    yield line.strip(), wording
                break
