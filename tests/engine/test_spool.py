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


@pytest.mark.parametrize("name", ["rank-0.log", "events.jsonl"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_what_a_disk_refuses_waits_until_it_takes_something(
    number: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.engine.quotas._AGAIN_S", 0.0)
    spool = Spool(tmp_path / "node")
    spool.append(name, 0, b"one\n")

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("cockpit.engine.logs.spool.append", full)
        patch.setattr(os, "fsync", full)  # a file server takes what it then has no room for
        with pytest.raises(QuotaReached, match=os.strerror(number)):
            spool.append(name, 4, b"two\n")
        assert spool.wait_for(1) is not None, "whatever the file system says is free"
        with pytest.raises(QuotaReached, match=os.strerror(number)):
            spool.append("rank-1.log", 0, b"x")
    assert spool.append(name, 4, b"two\n") == b"two\n"
    assert spool.wait_for(1) is None
    assert (tmp_path / "node" / name).read_bytes() == b"one\ntwo\n"
    assert [path.name for path in tmp_path.iterdir()] == ["node"], "nothing is left of tries"


def test_a_disk_that_refused_is_not_tried_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def full(*_: object) -> None:
        tries.append(1)
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    spool = Spool(tmp_path / "node")
    with monkeypatch.context() as patch:
        patch.setattr("cockpit.engine.logs.spool.append", full)
        patch.setattr(os, "fsync", full)
        for _ in range(100):
            with pytest.raises(QuotaReached):
                spool.append("rank-0.log", 0, b"two\n")
    assert len(tries) == 1


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
