"""What eight ranks print alike is one, whatever a launcher puts before their lines."""

from __future__ import annotations

import pytest

from cockpit.core.logs.folding import Folder
from cockpit.core.logs.lines import last_state
from tests.logs.corpus import KINDS, PREFIXES, prefixed, samples

RANKS = 8


@pytest.mark.few(10)
@pytest.mark.parametrize("prefix", ["", *PREFIXES.values()], ids=["plain", *PREFIXES])
@pytest.mark.parametrize("kind", KINDS)
def test_what_every_rank_prints_is_told_once(kind: str, prefix: str) -> None:
    for sample in samples(kind):
        folder = Folder(0)
        for rank in range(RANKS):
            lines = prefixed(sample.text, prefix, rank).split(b"\n")
            folder.add(("n", rank), [last_state(line) for line in lines])
        odd = [item.text for item in folder.flush() if len(item.sources) < RANKS]
        assert not odd, sample.name
