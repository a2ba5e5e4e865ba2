"""The spool keeps bytes exact over any cuts and repeats."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.engine.logs.spool import Spool
from cockpit.engine.quotas import QuotaReached
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


def test_a_disk_that_fills_between_two_looks_lets_logs_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "node")
    spool.append("rank-0.log", 0, b"one\n")

    def full(number: int, data: bytes, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("cockpit.engine.logs.spool.append", full)
        with pytest.raises(CockpitError, match="No space left on device") as why:
            spool.append("rank-0.log", 4, b"two\n")
        assert not isinstance(why.value, QuotaReached), "there is room: it would be tried at once, for ever"
        patch.setattr("cockpit.engine.quotas.Space._look", lambda self: (0, 1000))
        for size in (1, 1 << 20):
            with pytest.raises(QuotaReached, match="are kept free"):
                spool.append("rank-0.log", 4, b"x" * size)
        assert spool.wait_for(1) is not None
        with pytest.raises(CockpitError, match="No space left on device"):
            spool.append("events.jsonl", 0, b"{}\n")
    monkeypatch.setattr("cockpit.engine.quotas._LOOK_S", 0.0)
    assert spool.append("rank-0.log", 4, b"two\n") == b"two\n"
    assert (tmp_path / "node" / "rank-0.log").read_bytes() == b"one\ntwo\n"


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
