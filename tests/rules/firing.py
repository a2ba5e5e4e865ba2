"""Samples of failures, and which rules fire on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit.core.logs.cause_words import SIGNS
from cockpit.core.rules.row import FACTS
from cockpit.core.rules.table import table
from tests.rules.catalogue import HERE, catalogue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Sample:
    """One text.

    :param name: of the file, and its number there
    :param id: of the catalogue
    :param fires: False: a near miss
    :param facts: what is recorded of the end
    """

    name: str
    id: str
    fires: bool
    text: str
    facts: frozenset[str]


def samples(folder: str) -> Iterator[Sample]:
    """The samples of a folder whose id has rules; none, if there is no such folder."""
    ruled = {id for id, known in catalogue().items() if isinstance(known, list)}
    for file in sorted((HERE / folder).glob("*.toml")):
        told = tomllib.loads(file.read_text(encoding="utf-8")).get("sample", [])
        for number, one in enumerate(told, 1):
            if one["id"] in ruled:
                yield _sample(file, number, one)


def _sample(file: Path, number: int, told: dict[str, Any]) -> Sample:
    facts = {told.get("end", "")}
    if "oom_kills" in told:
        facts.add("oom" if told["oom_kills"] else "no-oom")
    if not any(SIGNS.found_in(line) for line in told["text"].encode().splitlines()):
        facts.add("silent")
    name = f"{file.parent.name}/{file.stem}-{number}-{told['id']}"
    return Sample(name, told["id"], told["fires"], told["text"], frozenset(facts & FACTS))


def fired(sample: Sample) -> set[str]:
    """The rules that fire, by what is recorded or by any line."""
    rules = table()
    found = {row.id for row in rules.found_after(sample.facts)}
    for line in sample.text.encode().splitlines():
        found |= {row.id for row in rules.found_in(line) if row.ends <= sample.facts}
    return found


def right(sample: Sample) -> bool:
    """Whether a rule of its id fires; of a near miss whether none of them does."""
    return bool(fired(sample) & set(catalogue()[sample.id])) is sample.fires
