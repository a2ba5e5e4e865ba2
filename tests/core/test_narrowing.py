"""What a text in the filter of a pane of ranks means."""

from __future__ import annotations

import re

import pytest

from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.narrowing import Narrowing, Search
from cockpit.errors import CockpitError

NODES = {f"gpu{number:02}": mask_of(range(4 * number, 4 * number + 4)) for number in range(4)}
SAID = {
    rank: f"gpu{rank // 4:02} rank {rank} {'failed' if rank in (5, 13) else 'running'}" for rank in range(16)
}


def meant(text: str) -> set[int]:
    def about(search: Search) -> int:
        return mask_of(rank for rank, said in SAID.items() if search(said))

    return set(ranks_of(Narrowing(text).ranks(NODES, about)))


EVERY = set(range(16))


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("", EVERY),
        ("!", EVERY),
        ("5", {5}),
        ("rank 5", {5}),
        ("ranks 3-1, 40", {1, 2, 3}),
        ("13,", {13}),
        ("!rank 5", EVERY - {5}),
        ("gpu[01-02]", set(range(4, 12))),
        ("gpu01,gpu03", {4, 5, 6, 7, 12, 13, 14, 15}),
        ("!gpu[00-02]", {12, 13, 14, 15}),
        ("gpu0[12]", set(range(4, 12))),
        ("gpu[90-99]", set()),
        ("gpu01", {4, 5, 6, 7}),
        ("gpu01,", {4, 5, 6, 7}),
        ("gpu[01,3]", {4, 5, 6, 7}),
        (r"gpu0\d", EVERY),
        (r"rank 1[0-2]$|rank 1\b.*f", set()),
        ("GPU01", set()),
        ("failed", {5, 13}),
        ("!failed", EVERY - {5, 13}),
        ("fail|rank 7", {5, 7, 13}),
        ("@gpu[01-02] failed", {5}),
        ("@4-9 !failed", {4, 6, 7, 8, 9}),
        ("@gpu01", {4, 5, 6, 7}),
        ("@gpu01 @4-5", {4, 5}),
        ("@gpu77 failed", set()),
    ],
)
def test_what_it_means(text: str, ranks: set[int]) -> None:
    assert meant(text) == ranks


@pytest.mark.parametrize("text", ["(", "gpu[01-", "!*", "@3-1 failed", "@gpu[1-99999999]", "gpu[1-99999999"])
def test_what_means_nothing_says_why(text: str) -> None:
    with pytest.raises(CockpitError) as error:
        Narrowing(text)
    assert re.match(r".+ at character \d+\Z|not a rank set|.*range", error.value.what), (
        "why, not the text again"
    )
