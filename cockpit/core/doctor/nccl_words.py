"""What lines mean that NCCL, gloo and torch print when ranks meet: the rows of the table that know them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cockpit.core.finding import Step
from cockpit.core.rules.row import Row
from cockpit.core.rules.table import table

_COMPILED = [(re.compile("|".join(row.deep), re.IGNORECASE), row) for row in table().rows if row.deep]
"""The first that fits a line counts: what says more stands first."""


def meanings(said: str) -> Iterator[tuple[str, Row]]:
    """Lines that are known, with what they mean; each meaning once, with the first line that has it."""
    seen = set()
    for line in said.splitlines():
        for pattern, row in _COMPILED:
            if pattern.search(line):
                if row.id not in seen:
                    seen.add(row.id)
                    yield line.strip(), row
                break


def typed(step: Step) -> tuple[Step, ...]:
    """A step of a row as the doctor says it: of no use is what reads logs, or starts a doctor."""
    return (step,) if step.command and not step.command.startswith("cockpit ") else ()
