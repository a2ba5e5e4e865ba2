"""The spool keeps bytes exact over any cuts and repeats."""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.engine.logs.spool import Spool
from cockpit.errors import CockpitError


@given(data=st.binary(max_size=300), cuts=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 80))))
def test_overlaps_and_restarts_change_nothing(data: bytes, cuts: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder) / "node")
        fresh = b""
        for back, length in [*cuts, (0, 400), (300, 400)]:
            here = spool.offsets().get("rank-0.log", 0)
            offset = max(0, here - back)
            fresh += spool.append("rank-0.log", offset, data[offset : offset + length])
            if length % 3 == 0:
                spool.close()
                spool = Spool(Path(folder) / "node")
        spool.close()
        assert fresh == data
        if data:
            assert (Path(folder) / "node" / "rank-0.log").read_bytes() == data


def test_a_gap_is_refused(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "node")
    spool.append("rank-0.log", 0, b"abc")
    with pytest.raises(CockpitError, match="spool has 3 bytes, the node sends from 5"):
        spool.append("rank-0.log", 5, b"x")
    assert (tmp_path / "node" / "rank-0.log").read_bytes() == b"abc"


def test_a_full_disk_takes_nothing_half(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "node")
    spool.append("rank-0.log", 0, b"abc")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))  # one more byte, then no more: as a disk fills up
    try:
        with pytest.raises(
            CockpitError, match=r"File too large; raise the limit of file sizes .* nothing is lost"
        ):
            spool.append("rank-0.log", 3, b"def")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "node" / "rank-0.log").read_bytes() == b"abc"
    assert spool.append("rank-0.log", 3, b"def") == b"def"
    assert (tmp_path / "node" / "rank-0.log").read_bytes() == b"abcdef"
