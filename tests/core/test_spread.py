"""Sizes and durations of collectives: who sticks out, and that picture, table and JSON say the same."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from cockpit.core.profile import nsys, spread
from cockpit.core.profile.collection import Collection, RankResult
from tests.core.profiled import MS, Work, collection

STEPS = range(700, 720)


def late(rank: int, step: int) -> Work:
    """Rank 3 comes 500 ms late to one step's collective; all come a little apart."""
    return Work(data=5 + rank + 500 * (rank == 3 and step == 710))


@pytest.fixture(scope="module")
def made() -> Collection:
    return collection(4, late, steps=STEPS, nodes=2, collectives=2)


def test_what_sticks_out_is_named_with_rank_and_node(made: Collection) -> None:
    found = spread.spread(made)
    assert len(found.points) == 4 * 2 * len(STEPS)
    (one,) = found.out
    assert (one.point.whole.step, one.point.rank, one.point.node) == (710, 0, "gpu01")
    assert one.point.took == pytest.approx(523 * MS)
    assert one.usual == pytest.approx(23 * MS)
    assert one.last is not None
    assert one.last[:2] == (3, "gpu02")
    assert one.last[2] == pytest.approx(503 * MS)
    assert one.text == (
        "all_reduce 100 MiB in step 710: 523 ms on rank 0 (gpu01), usually 23 ms; "
        "rank 3 (gpu02) came last, 503 ms after the first"
    )


def test_nothing_sticks_out_of_few(made: Collection) -> None:
    few = collection(4, late, steps=range(708, 712))
    assert spread.spread(few).out == []


def test_the_table_has_every_call(made: Collection) -> None:
    found = spread.spread(made)
    rows = list(csv.DictReader(io.StringIO(spread.as_csv(found))))
    assert tuple(rows[0]) == spread.COLUMNS
    assert len(rows) == len(found.points)
    odd = [row for row in rows if row["outlier"] == "1"]
    assert {(row["step"], row["rank"]) for row in odd} == {("710", str(rank)) for rank in range(3)}
    waits = {row["rank"]: float(row["wait_s"]) for row in odd}
    assert waits == {"0": 0.503, "1": 0.502, "2": 0.501}
    summaries = [one.summary for one in made.results.values()]
    told = sorted(call.took for one in summaries if one is not None for call in one.collectives)
    assert sorted(round(float(row["duration_s"]) * 1e9) for row in rows) == told
    assert {row["bytes"] for row in rows} == {str(100 << 20), "4096"}


def test_the_plot_has_each_point_where_it_belongs(made: Collection) -> None:
    lines = spread.as_lines(spread.spread(made), 80)
    assert all(len(line) <= 80 for line in lines)
    assert "".join(lines).replace("µ", "u").isascii()
    plot = [line.partition("|")[2] for line in lines if "|" in line]
    letters = {
        (row, column): char
        for row, line in enumerate(plot)
        for column, char in enumerate(line)
        if char.strip()
    }
    assert set(letters.values()) == {"r", "R"}
    left, right = min(column for _, column in letters), max(column for _, column in letters)
    assert left == 0  # 4 KiB
    assert {column for (_, column), char in letters.items() if char == "R"} == {right}
    assert min(row for row, _ in letters) == min(row for (row, _), char in letters.items() if char == "R")
    assert "r all_reduce; capital: more than 3 times the usual" in "\n".join(lines)
    assert any("4 KiB" in line and "MiB" in line for line in lines)
    assert lines[-1].endswith("after the first")


def test_the_picture_says_whose_each_point_is(made: Collection) -> None:
    found = spread.spread(made)
    root = ElementTree.fromstring(spread.as_svg(found, "<otter>"))
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "all_reduce 100 MiB: 523 ms, rank 0 (gpu01)" in titles
    assert root.find("{http://www.w3.org/2000/svg}text").text == "<otter>"  # type: ignore[union-attr]


def test_json_names_the_worst(made: Collection) -> None:
    told = spread.as_json(spread.spread(made))
    assert (told["calls"], told["unsized"], told["outliers_all"]) == (160, 0, 1)
    assert told["outliers"][0]["last"] == 3


def test_without_sizes_only_the_table_has_them(made: Collection) -> None:
    found = spread.spread(_changed(made, size=0))
    assert spread.as_lines(found, 80) == [
        "no sizes of messages: 160 collectives are not in the plot (--csv has them)"
    ]
    assert len(spread.as_csv(found).splitlines()) == 161
    assert "no sizes of messages" in spread.as_svg(found, "x")
    assert spread.as_lines(spread.spread(replace(made, results={})), 80) == [
        "no collective in it: nothing to plot"
    ]


def test_names_from_a_node_are_harmless(made: Collection) -> None:
    found = spread.spread(_changed(made, name='=cmd|"<script>\x1b[2J'))
    assert "\x1b" not in "".join(spread.as_lines(found, 80)) + spread.as_csv(found)
    assert "<script>" not in spread.as_svg(found, "x")
    rows = list(csv.DictReader(io.StringIO(spread.as_csv(found))))
    assert rows[0]["collective"].startswith("'=")


def _changed(one: Collection, **fields: object) -> Collection:
    def of(result: RankResult) -> RankResult:
        assert result.summary is not None
        calls = tuple(replace(call, **fields) for call in result.summary.collectives)  # type: ignore[arg-type]
        return replace(result, summary=replace(result.summary, collectives=calls))

    return replace(one, results={rank: of(result) for rank, result in one.results.items()})


# Windows without steps


def test_windows_with_other_collectives_are_not_matched(made: Collection) -> None:
    one = collection(2, lambda rank, step: Work(), steps=[0], collectives=3)
    profiles = {rank: result.summary for rank, result in one.results.items() if result.summary is not None}
    calls = profiles[0].collectives
    numbered = tuple(replace(call, key=f"all_reduce #{at + 1}") for at, call in enumerate(calls))
    profiles = {rank: replace(profile, collectives=numbered) for rank, profile in profiles.items()}
    assert nsys.matched(profiles) == profiles
    profiles[1] = replace(profiles[1], collectives=numbered[:2])
    found = nsys.matched(profiles)
    assert not {call.key for call in found[0].collectives} & {call.key for call in found[1].collectives}
    assert found[1].notes == (nsys.UNMATCHED,)


def test_which_reports_belong_together() -> None:
    names = {
        "otter-gpu01.nsys-rep": nsys.LAUNCH,
        "otter.gpu01.rank-3.nsys-rep": nsys.LAUNCH,
        "otter.gpu01.nsys.261128-103000-0a1b2c.nsys-rep": "261128-103000-0a1b2c",
        "otter.gpu01.rank-3.261129-103000-0a1b2c.nsys-rep": "261129-103000-0a1b2c",
        "otter.gpu01.261129-103000-0a1b2c.rank-3.nsys-rep": "261129-103000-0a1b2c",
    }
    assert {name: nsys.collection_of(name) for name in names} == names
    assert nsys.newest(names.values()) == "261129-103000-0a1b2c"
    assert nsys.newest([nsys.LAUNCH]) == nsys.LAUNCH
    assert nsys.newest([]) == ""
    assert re.fullmatch(r"[0-9a-z][0-9a-z-]*", nsys.LAUNCH)
