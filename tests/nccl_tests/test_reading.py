"""Tables of five versions of nccl-tests, to the digit; damaged ones, with the line; nothing raises."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.nccl_tests.reading import Reader
from cockpit.core.nccl_tests.table import Half, Table, program_name
from tests.nccl_tests.standin import STAMP, VERSIONS, Printed, printed

HOSTS = ("gpu01", "gpu02", "gpu03", "gpu04")
SIZES = (8, 1000, 1 << 20, 1 << 30, 1 << 40)
NAMES = ("time_us", "algbw", "busbw", "wrong", "min_us", "max_us", "p99_us", "cv_percent")


def tables(text: str | bytes, test: str = "", *, over: bool = True) -> list[Table]:
    reader = Reader(test)
    reader.take(text.encode() if isinstance(text, str) else text)
    return list(reader.tables(over=over))


def table(text: str | bytes, *, over: bool = True) -> Table:
    (found,) = tables(text, over=over)
    return found


def same(found: Half | None, words: list[str], version: str) -> bool:
    names = (*NAMES[:3], "delta") if version == "2.10.1" else NAMES
    wanted = {name: None if word == "N/A" else float(word) for name, word in zip(names, words, strict=False)}
    return found == Half(**wanted)


def fits(found: Table, done: Printed, version: str) -> None:
    assert found.damage == ()
    assert [row.what.size for row in found.rows] == done.sizes
    for row, (first, second) in zip(found.rows, done.halves, strict=True):
        assert same(row.out_of_place, first, version)
        assert same(row.in_place, second, version)
        assert done.lines[row.line - 1].split()[0] == str(row.what.size)
        assert (row.count, row.what.type, row.what.redop) == (row.what.size // 4, "float", "sum")
        assert row.what.root == (None if version == "2.10.1" else -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("check", [True, False], ids=["checked", "N/A"])
@pytest.mark.parametrize("json_file", ["", "out.json"], ids=["", "-J"])
@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e4], ids=["usual", "slow", "1e+06"])
def test_to_the_digit(version: str, check: bool, json_file: str, scale: float) -> None:
    done = printed(version, sizes=SIZES, check=check, json_file=json_file, scale=scale, hosts=HOSTS)
    found = table(done.text)
    fits(found, done, version)
    assert found.finished
    assert (found.hosts, len(found.devices)) == (HOSTS, 4)
    assert f": {found.average:g} " in done.text
    assert (found.out_of_bounds, found.wrong, found.json_file) == (0, 0, json_file)
    assert found.test == ("all_reduce_perf" if version >= "2.17" else "")
    assert found.version == (version if version >= "2.18" else "")
    assert found.line == next(at for at, line in enumerate(done.lines, 1) if " size " in line)


def test_iterations_and_timestamps() -> None:
    for version, iterations in (("2.18.5", False), ("2.19.6", True), ("2.19.6", False)):
        for stamps in (True, False):
            done = printed(version, sizes=SIZES, iterations=iterations, stamps=stamps)
            found = table(done.text)
            fits(found, done, version)
            assert {row.at for row in found.rows} == {STAMP if stamps else ""}
            spread = found.rows[0].in_place
            assert spread is not None
            assert (spread.cv_percent is not None) is iterations


def test_exponents_are_numbers() -> None:
    done = printed(sizes=(1 << 40,), scale=1e4)
    assert "e+" in done.text
    (row,) = table(done.text).rows
    assert row.busbw == float(done.halves[0][0][2]) > 1e6


@pytest.mark.parametrize("version", VERSIONS)
def test_wrong_values(version: str) -> None:
    assert table(printed(version, wrong=3).text).wrong == (1 if version == "2.10.1" else 3)


def test_a_half_may_be_blank() -> None:
    done = printed("2.18.5")
    at = next(at for at, line in enumerate(done.lines) if line.startswith("  1073741824"))
    whole = done.lines[at]
    # writeBenchMarkLineNullBody (src/util.cu): 32 spaces for what is not measured out of place.
    done.lines[at] = whole[:52] + " " * 32 + whole[-33:]
    found = table(done.text)
    assert found.damage == ()
    assert found.rows[-1].out_of_place is None
    assert same(found.rows[-1].in_place, done.halves[-1][1], "2.18.5")


def test_what_launchers_put_before_lines() -> None:
    done = printed()
    tagged = "".join(f"[1,0]<stdout>:{line}\n[1,1]<stdout>:hello 1 2 3\n" for line in done.lines)
    assert [row.what.size for row in table(tagged).rows] == done.sizes
    two = printed(scale=0.5)
    mixed = "".join(f"0: {a}\n1: {b}\n" for a, b in zip(done.lines, two.lines, strict=True))
    first, second = tables(mixed)
    assert [row.busbw for row in first.rows] == [row.busbw for row in table(done.text).rows]
    assert [row.busbw for row in second.rows] == [row.busbw for row in table(two.text).rows]
    assert (first.damage, second.damage) == ((), ())


def test_what_nccl_says_may_be_in_between() -> None:
    done = printed()
    said = "gpu01:4000:4011 [0] NCCL INFO Channel 00/02 : 0 1"
    warned = "\n[2026-11-20 03:14:05] gpu01:4000:4011 [0] net_ib.cc:12 NCCL WARN 1 2 3"
    at = next(at for at, line in enumerate(done.lines) if line.startswith("     1048576"))
    row = done.lines[at]
    for parts in (
        [row[:52] + said, said, row[52:]],
        [row[:85] + said, row[85:]],
        [row[:52], said, row[52:]],
        [row[:52] + warned, row[52:]],
        [said, "42", "some text", row],
    ):
        text = "\n".join([*done.lines[:at], *parts, *done.lines[at + 1 :]]) + "\n"
        found = table(text)
        assert found.damage == (), parts
        assert [one.what.size for one in found.rows] == done.sizes
        assert same(found.rows[1].out_of_place, done.halves[1][0], "2.19.6")
        assert same(found.rows[1].in_place, done.halves[1][1], "2.19.6")


def test_several_tables_in_one_log() -> None:
    first, second = printed("2.13.8"), printed("2.13.8", scale=0.5)
    found = tables("before\n" + first.text + second.text, "all_gather_perf")
    assert [one.test for one in found] == ["all_gather_perf"] * 2
    assert [len(one.rows) for one in found] == [3, 3]
    assert [len(one.devices) for one in found] == [2, 2]
    assert found[1].line == found[0].line + len(first.lines)


def test_a_log_in_pieces() -> None:
    text = printed().text
    reader = Reader()
    for line in text.splitlines(keepends=True):
        reader.take(b"nothing\n")
        reader.take(line.encode())
    (found,) = reader.tables(over=True)
    assert [row.line for row in found.rows] == [2 * row.line for row in table(text).rows]
    assert found.damage == ()


def swapped(text: str, at: int, old: str, new: str) -> str:
    lines = text.split("\n")
    assert old in lines[at - 1]
    lines[at - 1] = lines[at - 1].replace(old, new, 1)
    return "\n".join(lines)


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_is_told_with_its_line(version: str) -> None:
    done = printed(version, hosts=HOSTS)
    text, row = done.text, table(done.text).rows[1]
    line, words = row.line, done.halves[1][0]
    whole = done.lines[line - 1]
    for damaged, said in (
        (swapped(text, line, words[2], "4x.74"), "busbw is no number: 4x.74"),
        (swapped(text, line, "1048576", "104_576"), "size is no number: 104_576"),
        (swapped(text, line, words[0], f"{words[0]} 7"), f"{len(whole.split()) + 1} values"),
        (
            text.replace(whole, whole[:60].rstrip()),
            "cut off" if len(whole[:60].split()) == 5 else "values, where",
        ),
        (text.replace(whole, whole[:-12]), "values, where"),
    ):
        found = table(damaged)
        assert [one.line for one in found.damage] == [line], damaged
        assert said in found.damage[0].what
        assert [one.what.size for one in found.rows] == [8, 1 << 30]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_without_an_end(version: str) -> None:
    text = printed(version).text
    at = table(text).rows[1].line
    cut = "\n".join(text.split("\n")[:at]) + "\n"
    found = table(cut)
    assert [(one.line, one.what) for one in found.damage] == [
        (at, "the table ends here, without its summary")
    ]
    assert len(found.rows) == 2
    assert table(cut, over=False).damage == ()
    begun = table(cut.rstrip("\n")[:-33] + "\n")
    assert begun.damage[0].line == at
    assert "cut off" in begun.damage[0].what or "values" in begun.damage[0].what


def test_an_unknown_header() -> None:
    done = printed()
    at = table(done.text).line
    found = table(swapped(done.text, at, "i_min" if "i_min" in done.text else "algbw", "ALGBW"))
    assert [(one.line, one.what) for one in found.damage] == [(at, "the halves of the header differ")]
    assert found.rows == ()
    one = swapped(done.text, at, "time", "zeit")
    assert table(one).damage[0].what == "the header has not two halves"


def test_no_table() -> None:
    assert tables("a log\n" * 100) == []
    assert tables("# Using devices\nbusbw\n") == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["all_reduce_perf", "-b", "8"], "all_reduce_perf"),
        (["mpirun", "-np", "16", "/opt/nccl-tests/build/all_gather_perf", "-g", "1"], "all_gather_perf"),
        (["bash", "-c", "cd x && ./alltoall_perf -e 2G; exit"], "alltoall_perf"),
        (["bash", "-c", "all_reduce_perf; all_gather_perf"], ""),
        (["train.py", "--perf", "my_perf_test"], ""),
    ],
)
def test_programs(words: list[str], name: str) -> None:
    assert program_name(words) == name


@pytest.mark.slow
def test_what_it_says_is_harmless_and_bounded() -> None:
    text = printed(hosts=("gpu\x1b[2J", "\u202egpu"), test="x\x1b]0;y").text
    found = table(text.replace(" float ", " fl\x1b[31 "))
    assert "\x1b" not in repr((found.test, found.hosts, [row.what for row in found.rows])).replace(
        "\\x1b", ""
    )
    many = printed().text.encode()
    assert len(tables(many * 200)) <= 101
    row = next(line for line in many.splitlines() if line.startswith(b"     1048576"))
    big = table(many.replace(row, b"\n".join([row] * 20_000)))
    assert len(big.rows) == 10_000
    bad = table(many.replace(row, b"\n".join([row[:-3] + b" x9"] * 20_000)))
    assert len(bad.damage) == 20


LINES = sorted({line for version in VERSIONS for line in printed(version, iterations=version > "2.19").lines})


@given(
    st.lists(
        st.one_of(st.sampled_from(LINES), st.text(), st.sampled_from(LINES).map(lambda x: x[:50])),
        max_size=60,
    )
)
def test_lines_in_any_order_raise_nothing(lines: list[str]) -> None:
    data = "\n".join(lines).encode(errors="surrogatepass")
    for found in tables(data):
        json.dumps(found.as_json(), allow_nan=False)


@given(st.binary(max_size=400), st.integers(0, 1 << 30), st.sampled_from(VERSIONS))
def test_hostile_bytes_raise_nothing(data: bytes, seed: int, version: str) -> None:
    chance = random.Random(seed)
    text = bytearray(printed(version).text.encode())
    for byte in data[: chance.randrange(1, 40)]:
        text[chance.randrange(len(text))] = byte
    at = chance.randrange(len(text))
    for found in tables(bytes(text[:at] + data + text[at:])):
        json.dumps(found.as_json(), allow_nan=False)
        assert len(found.damage) <= 22
