"""Whose line it is, in files that several ranks write."""

from __future__ import annotations

import pytest

from cockpit.core.logs.speakers import Speakers

NODES = {"gpu01": (0, 1), "gpu02.cluster": (2, 3)}


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (b"[rank3]: Traceback (most recent call last):", ("gpu02.cluster", 3)),
        (b"[rank0]:[W1122 ProcessGroupNCCL.cpp:1250] x", ("gpu01", 0)),
        (b"[default1]:step 3", ("gpu01", 1)),
        (b"[trainer0]: step 3", ("gpu01", 0)),
        (b"[1,2]<stderr>:step 3", ("gpu02.cluster", 2)),
        (b"[1,2]: step 3", ("gpu02.cluster", 2)),
        (b"gpu02: [rank2]: step 3", ("gpu02.cluster", 2)),
        (b"gpu02: [default1]: step 3", ("gpu02.cluster", 3)),
        (b"gpu02: warming up", ("gpu02.cluster", None)),
        (b"gpu02.cluster: warming up", ("gpu02.cluster", None)),
        (b"[2026-01-02 03:04:05,678] [INFO] [logging.py:96:log_dist] [Rank 2] step=10", ("gpu02.cluster", 2)),
        (b"2026-01-02 03:04:05 [rank1]: x", ("gpu01", 1)),
        (b"[rank1] step 3", ("gpu01", 1)),
        (b"[RANK 1] step 3", ("gpu01", 1)),
        (b"[INFO][rank_3] step 3", ("gpu02.cluster", 3)),
        (b"step 3", None),
        (b"gpu77: step 3", None),
        (b"[rank7]: of no node", None),
        (b"[default9]: of no place", None),
        (b"[INFO]: starting", None),
        (b"2: step 3", None),
        (b"loss: 3.2", None),
        (b"", None),
        (b"\xff\x00[rank0]", None),
    ],
)
def test_what_a_line_says(line: bytes, source: tuple[str, int | None] | None) -> None:
    assert Speakers(NODES).of(line, ["gpu01"]) == source


def test_labels_of_srun_are_ranks_only_in_its_jobs() -> None:
    assert Speakers(NODES, labels=True).of(b"2: step 3", ["gpu01"]) == ("gpu02.cluster", 2)
    assert Speakers(NODES, labels=True).of(b"  3: step 3", ["gpu01"]) == ("gpu02.cluster", 3)


def test_what_a_node_with_one_rank_says_is_that_ranks() -> None:
    nodes = {"gpu01": (0,), "gpu02": (1,), "login": ()}
    assert Speakers(nodes).of(b"gpu02: step 3", ["login"]) == ("gpu02", 1)
    assert Speakers(nodes).of(b"gpu02: [rank0]: step 3", ["login"]) == ("gpu01", 0)


def test_a_place_on_several_nodes_names_no_rank() -> None:
    assert Speakers(NODES).of(b"[default1]: x", ["gpu01", "gpu02.cluster"]) is None
