"""One archive of the traces of several ranks: what is in it, where each is placed, and in what memory."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
import zlib
from typing import Any, BinaryIO

import pytest

from cockpit.core.profile import perfetto
from cockpit.core.profile.perfetto import RankTrace, TraceError
from tests.node.kineto import BASE, Made


def written(*traces: RankTrace) -> dict[str, bytes]:
    archive = io.BytesIO()
    perfetto.write(traces, archive)
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def files(found: dict[str, bytes]) -> list[dict[str, Any]]:
    manifest = json.loads(found["perfetto_manifest.json"])["perfetto_manifest"]
    assert manifest["version"] == 1
    return list(manifest["files"])


MADE = Made().step(1, 0, 100).op("aten::mm", 0, 10)


def moved(base: int) -> BinaryIO:
    return io.BytesIO(MADE.text().replace(str(BASE), str(base)).encode())


def test_each_trace_is_in_it_unpacked_and_belongs_to_a_rank_of_its_own() -> None:
    found = written(
        RankTrace(12, "gpu02", MADE.file(packed=True)),
        RankTrace(3, "gpu01", MADE.file()),
        RankTrace(4, "", MADE.file()),
    )
    assert list(found) == [
        "perfetto_manifest.json", "rank-000003.json", "rank-000004.json", "rank-000012.json",
    ]  # fmt: skip
    assert {found[name] for name in list(found)[1:]} == {MADE.text().encode()}
    assert [(one["path"], one["machine"]["name"]) for one in files(found)] == [
        ("rank-000003.json", "rank 3 (gpu01)"),
        ("rank-000004.json", "rank 4"),
        ("rank-000012.json", "rank 12 (gpu02)"),
    ]


def test_perfetto_takes_the_manifest_for_one() -> None:
    # It goes by how a file begins, white space left out.
    text = written(RankTrace(0, "a", MADE.file()))["perfetto_manifest.json"]
    assert b"".join(text.split()).startswith(b'{"perfetto_manifest"')


def test_traces_are_moved_to_the_clock_of_the_first_one() -> None:
    found = written(
        RankTrace(0, "a", moved(BASE), ahead=0.25),
        RankTrace(1, "b", moved(BASE), ahead=0.75),  # shows what is 0.5 s later than on a
        RankTrace(2, "c", moved(BASE + 1_000_000), ahead=0.25),
        RankTrace(3, "d", MADE.file(packed=True), ahead=-0.25),
    )
    first, *others = files(found)
    assert "clocks" not in first
    assert {one["clocks"]["sync_to"]["file"] for one in others} == {"rank-000000.json"}
    assert [one["clocks"]["offset_ns"] for one in others] == [-500_000_000, 1_000_000, 500_000_000]


def test_only_a_base_before_the_events_counts() -> None:
    text = b'{"traceEvents": [{"args": {"baseTimeNanoseconds": 77}}]}'
    found = written(RankTrace(0, "a", io.BytesIO(text)), RankTrace(1, "b", io.BytesIO(text)))
    assert files(found)[1]["clocks"]["offset_ns"] == 0


def test_a_large_trace_takes_little_memory() -> None:
    event = MADE.events[0].encode() + b","
    packing = zlib.compressobj(1, zlib.DEFLATED, 31)
    data = b"".join(packing.compress(1000 * event) for _ in range(300)) + packing.flush()
    size = 300_000 * len(event)
    with open("/dev/null", "wb") as null:
        tracemalloc.start()
        assert perfetto.write([RankTrace(0, "a", io.BytesIO(data))], null) == size
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert size > 30 << 20
    assert peak < 16 << 20


def test_what_is_not_whole_and_what_is_too_large_is_said_with_its_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = gzip.compress(MADE.text().encode())[:-20]
    with pytest.raises(TraceError, match="the trace of rank 7 is incomplete: "):
        written(RankTrace(7, "a", io.BytesIO(cut)))
    with pytest.raises(TraceError, match="the trace of rank 7 is incomplete: "):
        written(RankTrace(7, "a", io.BytesIO(b"\x1f\x8bx")))
    monkeypatch.setattr(perfetto, "MOST", 100)
    with pytest.raises(TraceError, match="the trace of rank 7 is larger than "):
        written(RankTrace(7, "a", MADE.file()))


def test_a_browser_is_warned_of() -> None:
    assert perfetto.warning(300 << 20) == ""
    assert perfetto.warning(900_000_000).startswith("The traces are 900 MB unpacked: ")
