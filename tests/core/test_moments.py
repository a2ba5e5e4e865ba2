"""What of the things that nodes kept by themselves belongs together."""

from __future__ import annotations

import pytest

from cockpit.core.stacks.evidence_snapshots import ONE_MOMENT_S, moments, reason
from cockpit.core.stacks.evidence_snapshots import Testimony as Kept

STALL = Kept("a", 1000.0, "stall", since=970.0)


@pytest.mark.parametrize(
    ("kept", "reasons"),
    [
        (
            [STALL, Kept("b", 1000.0 + ONE_MOMENT_S, "stall", since=972.0)],
            ["the ranks of a,b had made no progress for 88 s"],
        ),
        (
            [STALL, Kept("a", 1030.0, "stall", since=970.5)],
            ["the ranks of a had made no progress for 60 s"],
        ),
        (
            [STALL, Kept("b", 1051.0, "failure", failed=(3,))],
            ["the ranks of a had made no progress for 30 s", "rank 3 failed"],
        ),
        (
            [STALL, Kept("a", 1051.0, "failure", since=970.0, failed=(1,))],
            ["the ranks of a had made no progress for 30 s", "rank 1 failed"],
        ),
        (
            [Kept("b", 1000.0, "failure", failed=(3,)), Kept("a", 1040.0, "stall", since=1003.0)],
            ["rank 3 failed"],
        ),
        (
            [
                Kept("a", 1000.0, "failure", failed=(1,)),
                Kept("b", 1002.0, "failure", failed=(3,)),
            ],
            ["ranks 1,3 failed"],
        ),
    ],
    ids=[
        "nodes notice one after the other",
        "a node looks again",
        "a failure elsewhere after a stall",
        "a failure on a node that stood still",
        "others wait because of a failure",
        "failures at once",
    ],
)
def test_a_failure_is_not_told_by_what_was_kept_before_it(kept: list[Kept], reasons: list[str]) -> None:
    assert [reason(rounds[-1]) for rounds in moments(kept)] == reasons
