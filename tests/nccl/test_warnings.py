"""Warnings of NCCL in files that grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.nccl.lines import LONGEST
from cockpit.core.nccl.warnings import OF_RANK, OF_RUN, SHOWN, Warnings

WARN = b"gpu01:41:77 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<40813> failed\n"
INFO = b"gpu01:41:77 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"


def test_a_warning_is_told_once_its_line_is_whole() -> None:
    made = Warnings()
    assert list(made.take(3, INFO + WARN[:60])) == []
    assert list(made.take(3, WARN[60:] + INFO)) == ["socketStartConnect: Connect to 10.0.0.2<40813> failed"]


def test_so_many_of_a_rank_and_of_a_run() -> None:
    made = Warnings()
    assert len(list(made.take(0, 1000 * WARN))) == OF_RANK
    told = sum(len(list(made.take(rank, 1000 * WARN))) for rank in range(1, 1000))
    assert told == OF_RUN - OF_RANK


@given(st.lists(st.binary(max_size=4 * LONGEST), max_size=20))
def test_whatever_is_in_the_file_a_warning_is_one_short_harmless_line(pieces: list[bytes]) -> None:
    made = Warnings()
    for piece in (*pieces, b" NCCL WARN \x1b[2J" + b"x" * 5000 + b"\n"):
        for text in made.take(0, piece):
            assert "\x1b" not in text
            assert "\n" not in text
            assert len(text) <= SHOWN + 40
