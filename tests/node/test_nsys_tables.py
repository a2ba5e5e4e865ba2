"""What is summed up of an nsys report: every number against what is in it; and files that mean no good."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.gate import read
from cockpit.base.profile.summary import RankProfile
from cockpit.node.profile import nccl_sizes, nsys_database, nsys_sum
from cockpit.node.profile.events import BadTrace
from cockpit.node.profile.nsys_database import Database
from cockpit.node.profile.nsys_tables import Report
from tests.node.kineto import calls, own, rows
from tests.node.nsys_exports import BASE, COMM, DOMAIN, SCHEMA, Export, global_pid, job

PID = 4711


def told(path: Path, pid: int = PID) -> dict[str, Any]:
    """What is summed up of one process; it fits its definition."""
    with contextlib.closing(Database(str(path), 60.0)) as database:
        found = Report(database, [pid]).told(pid)
    read(RankProfile, {**found, "rank": 0, "file": "x", "size": 1, "sha256": "0" * 64})
    return found


@pytest.fixture
def made(tmp_path: Path) -> Export:
    return Export(tmp_path / "made.sqlite")


@pytest.mark.parametrize("new", [True, False])
def test_a_rank_of_a_job_with_kernels(tmp_path: Path, new: bool) -> None:
    found = told(job(tmp_path / "x.sqlite", (PID, 4712), new=new))
    assert (found["device"], found["backend"], found["torch"]) == ("gpu", "nccl", "")
    first = rows(found)[0]
    assert first == {
        "step": 30, "began": BASE + 10_000, "took": 1000, "data": 0, "compute": 610, "communication": 200,
        "idle": 190, "overlapped": 100, "phases": [],
    }  # fmt: skip
    assert [row["step"] for row in rows(found)] == [30, 31, 32, 33]
    mine = own(found)
    assert mine["void gemm<float>(float*)"] == ("compute", 1600, 4)
    assert mine["void relu<float>(float*)"] == ("compute", 800, 4)
    assert mine["Memcpy HtoD"] == ("copy", 40, 4)
    assert mine["ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"] == (
        "communication", 1200, 4,
    )  # fmt: skip
    assert mine["forward"] == ("other", 4 * 295, 4)  # without the call that starts a kernel in it
    assert mine["cudaLaunchKernel_v7000"] == ("other", 40, 8)
    assert mine["ncclAllReduce"] == ("other", 60, 4)
    assert found["collectives_all"] == 4
    one = calls(found)[0]
    assert (one["step"], one["name"], one["began"], one["took"], one["exposed"]) == (
        30,
        "all_reduce",
        600,
        300,
        200,
    )
    if new:
        assert (one["size"], one["ranks"], one["group"]) == (1 << 20, 2, f"comm {COMM:x}")
        assert one["key"] == f"comm {COMM:x} all_reduce 1048576 #1"
        assert found["notes"] == []
    else:
        assert (one["size"], one["ranks"], one["group"], one["key"]) == (0, 0, "", "all_reduce #1")
        assert found["notes"] == [
            "the report has no tensor sizes: collectives are matched by order alone",
            "no sizes of NCCL's messages: that takes a newer nsys (export --include-blobs)",
        ]


def test_what_comes_out_of_a_reduce_scatter_is_not_what_goes_in(made: Export) -> None:
    made.range(PID, "ncclCommInitRankConfig", 0, 5, **made.world(8))
    made.collective(PID, "ReduceScatter", 1000, 10, 50, 90)
    (one,) = calls(told(made.done()))
    assert (one["name"], one["size"], one["ranks"]) == ("reduce_scatter", 8000, 8)


def test_kernels_that_a_group_starts_as_it_ends(made: Export) -> None:
    name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    for at, kernels in ((0, 1), (1000, 2), (2000, 3)):  # one of both, one of each, nobody knows
        for place, size in enumerate((64, 128)):
            made.range(PID, "ncclAllGather", at + 10 * place, at + 10 * place + 5, **made.payload(size))
        made.range(PID, "ncclGroupEnd", at + 30, at + 90)
        for place in range(kernels):
            made.kernel(PID, name, at + 200 + 100 * place, at + 250 + 100 * place, 20, at + 40 + 10 * place)
    assert [one["size"] for one in calls(told(made.done()))] == [192, 64, 128, 0, 0, 0]


def test_sends_are_matched_with_nothing_as_nobody_knows_who_is_at_the_other_end(made: Export) -> None:
    made.range(PID, "ncclSend", 10, 30, **made.payload(100))
    made.kernel(PID, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 50, 60, 20, 12)
    (one,) = calls(told(made.done()))
    assert str(PID) in one["key"]
    assert one["size"] == 100


def test_a_graph_that_was_traced_as_a_whole_computes(made: Export) -> None:
    made.db.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER,"
        " contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER)"
    )
    made.insert(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=0, end=70, deviceId=0, globalPid=global_pid(PID), graphId=3
    )
    made.kernel(PID, "k", 90, 100)
    (row,) = rows(found := told(made.done()))
    assert (row["compute"], row["idle"]) == (80, 20)
    assert own(found)["(CUDA graph 3)"] == ("compute", 70, 1)


def test_without_kernels_it_is_the_main_thread_in_and_out_of_the_system(made: Export) -> None:
    made.range(PID, "step 7", 1000, 2000)
    made.range(PID, "step 8", 2000, 3000)
    made.wait(PID, "epoll_wait", 1100, 1400)
    made.wait(PID, "read", 1150, 1200, level=1)  # within it
    made.wait(PID, "pthread_cond_wait", 0, 3000, tid=PID + 1)  # of another thread
    made.wait(PID, "futex", 1900, 2200)
    for at in range(1000, 1050, 10):
        made.sample(PID, at, "at::native::add")
    found = told(made.done())
    assert [(row["step"], row["compute"], row["idle"]) for row in rows(found)] == [
        (7, 600, 400),
        (8, 800, 200),
    ]
    mine = own(found)
    assert mine["(outside of system calls)"][:2] == ("compute", 1400)
    assert mine["epoll_wait"] == ("system", 300, 1)
    assert mine["at::native::add"] == ("sample", 50, 5)
    assert "read" not in mine
    assert found["notes"][-1].startswith("no kernels")
    assert "5 CPU samples of the main thread, one in 1e-05 ms" in found["notes"]


def test_operators_that_ranges_mark_compute_where_there_are_no_kernels(made: Export) -> None:
    made.range(PID, "aten::mm, seq = 3, sizes = [[4, 4]]", 100, 300)
    made.range(PID, "aten::add", 350, 400)
    (row,) = rows(found := told(made.done()))
    assert (row["compute"], row["idle"]) == (250, 50)
    assert own(found)["aten::mm"] == ("compute", 200, 1)


def test_ranges_whose_numbers_begin_again_are_no_steps(made: Export) -> None:
    for place in range(6):
        made.range(PID, f"micro step {place % 2}", 100 * place, 100 * place + 90)
        made.range(PID, f"iteration {place}", 100 * place, 100 * place + 95)
    found = told(made.done())
    assert [row["step"] for row in rows(found)] == list(range(6))
    assert own(found)["micro step 1"] == ("other", 270, 3)


# Whose process


def summed(path: Path, ranks: dict[str, Any], *, alone: bool = False) -> list[dict[str, Any]]:
    """What the program prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        nsys_sum._sum_up(str(path), str(path), {int(rank): pid for rank, pid in ranks.items()}, alone=alone)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_ranks_are_told_apart_by_their_processes(tmp_path: Path) -> None:
    path = job(tmp_path / "x.sqlite", (PID, 4712), late=100)
    two = summed(path, {"4": PID, "5": 4712, "6": 99})
    assert [(one["rank"], calls(one)[0]["took"]) for one in two] == [(4, 300), (5, 200)]
    assert two[0]["size"] == path.stat().st_size


def test_a_report_of_one_rank_whose_pid_is_another_in_its_container(tmp_path: Path) -> None:
    path = job(tmp_path / "x.sqlite", (PID,))
    (one,) = summed(path, {"3": 17}, alone=True)
    assert one["rank"] == 3
    assert one["notes"][0] == "its process has another pid in the report: the busiest is taken"
    with pytest.raises(BadTrace, match="no events of these ranks"):
        summed(path, {"3": 17, "4": 18})


def test_a_report_of_a_job_that_nobody_knows(tmp_path: Path) -> None:
    found = summed(job(tmp_path / "x.sqlite", (PID, 4712)), {})
    assert [one["rank"] for one in found] == [0, 1]
    assert found[0]["notes"][0] == "the report names no ranks: processes 4711, 4712 in this order"


# Files that mean no good


def test_what_is_no_number_is_no_event(made: Export) -> None:
    made.kernel(PID, "k", 0, 100)
    for start, end in (("x", 5), (b"\0", 5), (5, None), (10, 5), (-5, 5), (0, 1 << 62), (1.5, 2)):
        row = (start, "none" if end is None else end, global_pid(PID))
        made.db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 1, 7, 1, ?, 1, 1)", row)
    made.range(PID, "open", 5, None)
    made.insert("NVTX_EVENTS", start=5, end=6, eventType=59, globalTid="me", text="x")
    found = told(made.done())
    assert found["notes"][1] == "7 events have no usable times or names, and do not count"
    assert rows(found)[0]["compute"] == 100


@pytest.mark.parametrize(
    "instead",
    [
        "CREATE VIEW OSRT_API AS SELECT 1 AS start, 2 AS end, 0 AS globalTid",
        "CREATE VIEW OSRT_API AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) "
        "SELECT start, start AS end, 0 AS globalTid FROM n",
        "CREATE VIRTUAL TABLE OSRT_API USING fts5(start, end, globalTid)",
        "CREATE TABLE OSRT_API (start INTEGER, globalTid INTEGER, end INTEGER AS (zeroblob(1 << 30)))",
        "CREATE TABLE OSRT_API (begin INTEGER, globalTid INTEGER)",
    ],
)
def test_only_plain_tables_are_read(made: Export, instead: str) -> None:
    made.kernel(PID, "k", 0, 100)
    made.db.execute("DROP TABLE OSRT_API")
    made.db.execute(instead)
    made.db.commit()
    assert set(own(told(made.done()))) == {"k"}


def test_rows_without_end_are_cut_and_it_is_said(made: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_database, "MOST_ROWS", 50)
    for place in range(40):
        made.kernel(PID, "k", 10 * place, 10 * place + 5)
        made.wait(PID, "read", 10 * place, 10 * place + 5)
    found = told(made.done())
    assert own(found)["k"][2] == 40
    assert own(found)["read"][2] == 10
    assert "only the first 10 rows of OSRT_API are read" in found["notes"]


def test_queries_without_end_end(made: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_database, "_STEPS", 10)
    made.kernel(PID, "k", 0, 100)
    with contextlib.closing(Database(str(made.done()), 60.0)) as database:
        database._end = 0.0
        with pytest.raises(BadTrace, match="takes too long"):
            Report(database, [PID])


def test_what_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    for data in (b"", b"no", b"SQLite format 3\0" + b"\xff" * 5000):
        path.write_bytes(data)
        with pytest.raises(BadTrace):
            told(path)
    whole = job(tmp_path / "y.sqlite", (PID,)).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadTrace, match="not a usable SQLite export"):
        told(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="regular"):
        told(path)


@pytest.mark.parametrize("new", [True, False])
def test_a_file_with_any_bytes_changed_is_read_or_refused(tmp_path: Path, new: bool) -> None:
    whole = job(tmp_path / "x.sqlite", (PID,), new=new).read_bytes()
    path, came = tmp_path / "y.sqlite", 0
    for seed in range(150):
        rng = random.Random(seed)
        data = bytearray(whole)
        for _ in range(rng.choice((1, 5, 100))):
            data[rng.randrange(100, len(data))] = rng.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(BadTrace):
            told(path)
            came += 1
    assert 0 < came < 150


def test_values_of_any_type_are_read_or_refused(made: Export) -> None:
    odd = ("x", b"\xff", 1 << 62, -(1 << 62), 0.5, "", 7)
    rng = random.Random(1)
    tables = {
        name: [row[1] for row in made.db.execute(f"PRAGMA table_info({name})")]
        for (name,) in made.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    }
    for name, columns in tables.items():
        for _ in range(200):
            row = {one: global_pid(PID) + PID if "global" in one else rng.choice(odd) for one in columns}
            with contextlib.suppress(sqlite3.IntegrityError):
                made.insert(name, **row)
    made.kernel(PID, "k", 0, 100)
    assert own(told(made.done()))["k"] == ("compute", 100, 1)


def test_a_report_without_events(made: Export) -> None:
    with pytest.raises(BadTrace, match="no events of these ranks"):
        told(made.done())


def test_long_texts_are_cut(made: Export) -> None:
    made.kernel(PID, "x" * 1_000_000, 0, 5)
    (name,) = own(told(made.done()))
    assert len(name) <= 200


# Payloads


def test_payloads_that_are_damaged_say_nothing() -> None:
    whole = struct.pack("<IIIIQQQQ", DOMAIN, 0, SCHEMA, 0, 16, 48, COMM, 4096)
    fields = [
        (DOMAIN, SCHEMA, 18, "NCCL communicator ID", None),
        (DOMAIN, SCHEMA, 22, "Message size [bytes]", 8),
    ]
    payloads = nccl_sizes.Payloads(fields)
    assert payloads.read(whole) == (4096, COMM, 0)
    for bad in (None, "text", b"", whole[:31], whole[:40], bytes(5000), whole.replace(b"\x4d", b"\x4e", 1)):
        assert payloads.read(bad) is None
    huge = struct.pack("<IIIIQQQQ", DOMAIN, 0, SCHEMA, 0, 16, 48, COMM, (1 << 64) - 1)
    assert payloads.read(huge) is None
    odd: list[tuple[Any, ...]] = [
        (DOMAIN, SCHEMA, "22", "Message size [bytes]", 8),
        (DOMAIN, SCHEMA, 22, b"Message size [bytes]", 8),
        (DOMAIN, SCHEMA, 22, "Message size [bytes]", -1),
        (DOMAIN, SCHEMA, 22, "Message size [bytes]", 1 << 60),
        ("x", SCHEMA, 22, "Message size [bytes]", 8),
    ]
    assert not nccl_sizes.Payloads(odd)


def test_the_real_schema_of_2022_4_has_what_is_read(tmp_path: Path) -> None:
    """Its own export makes no table without rows: here is what it documents of those that are asked for."""
    old = sqlite3.connect(job(tmp_path / "x.sqlite", (PID,), new=False))
    names = {name for (name,) in old.execute("SELECT name FROM sqlite_master")}
    assert "NVTX_PAYLOAD_SCHEMA_ENTRIES" not in names
    assert "EXPORT_META_DATA" in names
