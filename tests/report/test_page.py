"""The page of a report: it loads nothing, nothing in it runs, and whatever a rank says is text in it."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from cockpit.core.explain.report import Line
from cockpit.core.finding import Finding, Step
from cockpit.core.report.model import (
    Course,
    Curve,
    Host,
    Look,
    Moment,
    Profile,
    RunReport,
    Tail,
    Value,
    What,
    Why,
)
from cockpit.core.report.page import as_page
from cockpit.engine.report.gather import report_of
from tests import needs
from tests.report.made import HOSTILE, made
from tests.waiting import PATIENCE_S


class Tags(HTMLParser):
    """What a browser would see of a page: its tags with attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = tuple(name for name, _ in attrs)
        self.tags[(tag, names)] += 1
        assert not {"src", "href", "action", "srcset", "data", "poster"}.intersection(names)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.tags["comment", ()] += 1

    def handle_pi(self, data: str) -> None:
        self.tags["instruction", ()] += 1


def of(text: str) -> RunReport:
    """A report in which everything that has words says this."""
    step = Step(text, text, text)
    found = Finding(text, text, 0b11, text, text, (text,), "sure", (step,), (text,))
    what = What(
        (text,), (text,), text, text, (Host(text, text, (0, 1), text),), 2, (((text,), (text,)),), (), ()
    )
    said = Value(text, ((text, (text,)), (f"{text}2", ("n2",))))
    curve = Curve(text, text, ((1.0, 2.0), (2.0, 1.0)), 2.0, 1.0, 1.0, 2.0, 1.0, 1, 2.0)
    return RunReport(
        text, 2e9, text, text, 1, 1.9e9, 2e9, replace_what(what, said), (text,),
        Why("broke", text, (1,), (text,), "sure", text, (text,), (Line(text, 3, text),), text, text, (step,)),
        Course(3, 1, 3, 1.0, 1.0, {"input": 0.5, "wait": 0.5}, True), (curve,),
        (Moment(1.9e9, text, "error", text, 1),), 4, (Look(text, 1.9e9, text, found, (text,)),),
        (Profile(1, 1.9e9, text, found, (text,)),), (found,), (Tail(1, text, text, (text,), 5),),
        ((text, text),), 2,
    )  # fmt: skip


def replace_what(what: What, said: Value) -> What:
    diff = (f"diff --git {said.name}", said.name)
    return what._replace(versions=(said,), env=(said,), diff=diff)


@hypothesis.given(
    st.lists(
        st.sampled_from(
            ["<", ">", '"', "'", "&", "</script>", "<!--", "-->", "]]>", "<svg onload=x>", "&#60;", "\0"]
        )
        | st.text(max_size=4),
        max_size=8,
    ).map("".join)
)
def test_no_tag_comes_from_data(text: str) -> None:
    plain = Tags(as_page(of("x")))
    hostile = Tags(as_page(of(f"x{text}")))  # an empty item of a list is left out
    assert hostile.tags == plain.tags


def test_what_a_rank_printed_is_there_as_text() -> None:
    page = as_page(asyncio.run(report_of(made())))
    assert "<script" not in page
    assert HOSTILE.split("\x1b")[0] in Tags(page).text


def test_nothing_is_loaded_from_outside() -> None:
    page = as_page(of(HOSTILE))
    head = page[: page.index("</head>")]
    assert "default-src 'none'" in head
    assert not re.search(r"url\(|@import|<link|<script|<iframe|<img", page)


@pytest.mark.parametrize(
    "points",
    [
        ((1.0, 5.0),),
        ((1.0, 1e308), (2.0, -1e308)),
        ((5.0, 1.0), (1.0, 2.0), (3.0, 1.0)),
        ((1.0, 3.0), (2.0, 3.0)),
    ],
)
def test_curves_of_any_form_are_drawn(points: tuple[tuple[float, float], ...]) -> None:
    values = [value for _, value in points]
    curve = Curve("loss", "", points, values[0], values[-1], min(values), max(values), 1.0)
    page = as_page(replace(of("x"), curves=(curve,)))
    drawn = re.findall(r'<path d="M([^"]*)"', page)
    numbers = [float(each) for path in drawn for each in re.split(r"[L ]", path)]
    assert numbers
    assert all(math.isfinite(each) and 0 <= each <= 600 for each in numbers)


def test_it_is_small_for_many_ranks() -> None:
    """Twice as much of everything as the report of a large run has."""
    line = "rank 13 at train.py:188 train_step: waits in all_reduce of group 3, " * 2
    found = of(line).findings[0]
    report = replace(
        of("x"),
        events=(Moment(1.9e9, line),) * 800,
        looks=(Look("x", 1.9e9, "", found, (line,) * 320),) * 10,
        profiles=(Profile(1, 1.9e9, "x", found, (line,) * 250),) * 6,
        tails=(Tail(1, "x", "x", (line * 3,) * 50, 5),) * 8,
    )
    assert len(as_page(report).encode()) < 2e6


@pytest.mark.slow
def test_a_browser_runs_and_loads_nothing_of_it(tmp_path: Path) -> None:
    """Chromium's own view of the page after it has run: hostile words are still words."""
    (tmp_path / "page.html").write_text(as_page(of(HOSTILE)), encoding="utf-8", errors="backslashreplace")
    words = [
        needs.require("chromium"),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
    ]
    done = subprocess.run(
        [*words, "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert "<script" not in done.stdout
    assert "&lt;script src=" in done.stdout
