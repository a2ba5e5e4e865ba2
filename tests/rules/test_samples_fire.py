"""Each sample of a failure fires a rule of its id, and its near misses fire none."""

from __future__ import annotations

import re

import pytest

from cockpit.core.rules.table import table
from tests.logs import corpus
from tests.rules.catalogue import IDS, SECTIONS, catalogue
from tests.rules.firing import Sample, fired, right, samples

HEALTHY = corpus.samples("healthy") + corpus.samples("progress")


@pytest.mark.parametrize("one", list(samples("samples")), ids=lambda one: one.name)
def test_a_sample(one: Sample) -> None:
    assert right(one), fired(one)


def test_each_id_of_the_catalogue_has_its_rules_or_a_reason() -> None:
    known = catalogue()
    ours = set(IDS)
    assert set(known) == ours
    for id, told in known.items():
        if isinstance(told, str):
            assert re.match(r"(?:check|no): \S", told), id
        else:
            assert told, id
            assert set(told) <= set(table().by_id), id


def test_ids_are_those_of_all_sections() -> None:
    assert len(IDS) == sum(SECTIONS.values()) == 136


@pytest.mark.parametrize("text", HEALTHY, ids=lambda one: one.name)
def test_healthy_logs_have_no_failure(text: corpus.Sample) -> None:
    """What may be why a rank ended is in none of them, whoever prints it."""
    found = {}
    for how, lines in corpus.variants(text.text):
        for line in re.split(rb"[\r\n]+", lines):
            for row in table().found_in(line):
                if row.severity == "error":
                    found[how, row.id] = line
    assert not found
