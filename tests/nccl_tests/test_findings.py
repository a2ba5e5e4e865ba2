"""What is said of measurements: wrong values, damage, less than before, a node slower than the others."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.gate import plain, read
from cockpit.core.nccl_tests.comparing import Past, changes, slowest
from cockpit.core.nccl_tests.drawing import drawn, size_text
from cockpit.core.nccl_tests.findings import Result, compared, findings
from cockpit.core.nccl_tests.json_file import without_env
from cockpit.core.nccl_tests.reading import Reader
from tests.nccl_tests.standin import printed

DAY = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
SIZES = (8, 1 << 20, 1 << 30)


def result(
    text: str = "",
    *,
    before: Past | None = None,
    scale: float = 1.0,
    hosts: Sequence[str] = ("gpu01", "gpu02"),
    wrong: int = 0,
    sizes: Sequence[int] = SIZES,
) -> Result:
    reader = Reader()
    text = text or printed(scale=scale, hosts=hosts, wrong=wrong, sizes=sizes).text
    reader.take(text.encode())
    (table,) = reader.tables(over=True)
    now = Past.of(table, "now", DAY + 86400, table.hosts)
    return Result(table, "gpu01", 0, "/spool/rank-0.log", now, before)


def past(scale: float = 1.0, sizes: Sequence[int] = SIZES, hosts: Sequence[str] = ("gpu01", "gpu02")) -> Past:
    table = result(scale=scale, sizes=sizes, hosts=hosts).table
    return Past.of(table, "then", DAY, table.hosts)


def test_nothing_is_wrong() -> None:
    assert findings([result()]) == []
    assert findings([result(before=past())]) == []
    assert findings([result(before=past(1.03))]) == []
    assert findings([result(before=past(0.5))]) == []
    assert findings([]) == []


def test_wrong_values_are_an_error() -> None:
    (found,) = findings([result(wrong=7)])
    assert (found.id, found.severity, found.certainty) == ("nccl_tests_wrong", "error", "sure")
    assert found.what == "all_reduce_perf got 7 wrong values on gpu[01-02]"
    assert found.evidence[0].endswith(": 1 GiB: 7 wrong")
    assert (found.nodes, found.ranks) == (("gpu01",), 1)


def test_damage_is_an_error_with_its_line() -> None:
    (found,) = findings([result(printed().text.replace("4495", "4x95", 1))])
    assert (found.id, found.severity) == ("nccl_tests_damaged", "error")
    assert "/spool/rank-0.log:15: time is no number: 4x95" in found.what


def test_less_than_before() -> None:
    (found,) = findings([result(before=past(1 / 0.88), scale=1.0)])
    assert (found.id, found.severity) == ("nccl_tests_slower", "warning")
    assert found.what == "all_reduce_perf on gpu[01-02]: busbw at 1 GiB 12 % below 2026-11-20"
    assert found.evidence[0].startswith("1 GiB: 238.86 GB/s, 271.")
    assert found.evidence[0].endswith(" in then")


def test_the_largest_message_of_both_is_compared() -> None:
    one = result(before=past(2.0, sizes=(1 << 20, 1 << 26)), sizes=(1 << 20, 1 << 26, 1 << 30))
    change = one.change
    assert change is not None
    assert change.what.size == 1 << 26
    assert compared(change) == f"{-change.by:.0%}".replace("%", " %") + " below 2026-11-20"
    assert result(before=past(sizes=(64,))).change is None


def test_which_node_is_slowest() -> None:
    each = [result(hosts=[f"gpu{n:02d}"] * 8, scale=0.7 if n == 7 else 1.0) for n in range(1, 9)]
    apart = slowest(one.now for one in each)
    assert apart is not None
    assert (apart.host, round(apart.by, 1)) == ("gpu07", -0.3)
    (found,) = findings(each)
    assert found.id == "nccl_tests_slowest"
    assert found.what == "gpu07 slowest: busbw at 1 GiB 30 % below the other nodes"
    before = past(hosts=["gpu07"] * 8)
    worse = [*each[:6], result(hosts=["gpu07"] * 8, scale=0.7, before=before), *each[7:]]
    (found,) = findings(worse)
    assert found.what == "all_reduce_perf on gpu07: busbw at 1 GiB 30 % below 2026-11-20; gpu07 slowest"
    assert findings(each[:6]) == []


def test_ranks_alone_measure_nothing() -> None:
    alone = [result(hosts=[f"gpu{n:02d}"]) for n in range(1, 5)]
    (found,) = findings(alone)
    assert found.id == "nccl_tests_alone"
    assert found.what == "4 ranks each ran all_reduce_perf alone: nothing was sent between GPUs"
    assert changes(alone[0].now, alone[0].now) == []


def test_what_is_not_the_same_is_not_compared() -> None:
    one, other = past(), past(hosts=("gpu01", "gpu03"))
    assert not one.comparable(other)
    assert not one.comparable(past(hosts=("gpu01", "gpu01", "gpu02")))
    assert one.comparable(past(0.5))


def test_it_is_drawn() -> None:
    lines = list(drawn(result(wrong=2).table))
    assert [line.strip().split("  ")[0] for line in lines] == ["8 B", "1 MiB", "1 GiB"]
    assert lines[0].endswith(" 0.00")
    assert lines[1].count("█") == 6
    assert "238.86  █" in lines[2]
    assert lines[2].endswith("  2 WRONG")
    assert [size_text(size) for size in (1, 1000, 1024, 1536, 1000 << 20, 2 << 30, 1 << 40)] == [
        *("1 B", "1000 B", "1 KiB", "1.5 KiB", "1000 MiB", "2 GiB", "1024 GiB")
    ]


def test_an_environment_is_taken_out_of_a_json_file() -> None:
    before = (
        b'{"version":3,"start_time":"2026-11-20 03:14:05","args":["all_reduce_perf","-J","o.json"],"env":['
    )
    env = rb'"A=1","KEY=a\"]b\\","HF_TOKEN=s3cret"'
    after = b'],"nccl_version":22809,"config":{"nthreads":1}}'
    assert without_env(before + env + after) == before + after
    # Cut off anywhere, nothing of it stays.
    for end in range(len(before), len(before + env)):
        assert without_env((before + env)[:end]) == before
    assert without_env((before + env + after).replace(b":", b" : ").replace(b",", b",\n ")) is not None
    for other in (b"", b"{}", b"[1]", b'{"version":3}', after, b'{"version":3,"args":["env":["a"]}'):
        assert without_env(other) is None


TEXTS = st.one_of(
    st.text(max_size=12), st.sampled_from(["gpu01", "gpu[1", "[1-9]", "a,b", "n-1", "\x1b[2J", "x\u202e"])
)


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS, st.binary(max_size=40), st.integers(0, 3000))
def test_hostile_tables_raise_nothing(hosts: list[str], test: str, data: bytes, at: int) -> None:
    text = printed(hosts=hosts, test=test, wrong=1).text.encode(errors="replace")
    reader = Reader()
    reader.take(text[:at] + data + text[at + len(data) :])
    each = []
    for table in reader.tables(over=True):
        now = Past.of(table, "now", DAY, table.hosts or ("node",))
        again = read(Past, json.loads(json.dumps(plain(now))))
        assert again == now
        each.append(Result(table, "node", 0, "/x", now, again))
    for one in each:
        assert not any(ord(sign) < 32 for line in drawn(one.table) for sign in line)
        json.dumps(one.table.as_json(), allow_nan=False)
    for found in findings(each):
        assert not any(
            ord(sign) < 32 or sign in "\u202e\x7f" for sign in json.dumps(found.what, ensure_ascii=False)
        )
        json.dumps(found.as_json(), allow_nan=False)
