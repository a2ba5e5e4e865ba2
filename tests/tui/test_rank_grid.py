"""The grid of nodes and ranks: what it says in how much room, and how one moves in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.geometry import Region
from textual.pilot import Pilot

from cockpit.base.gate import Malformed
from cockpit.core.run.model import RunModel
from cockpit.tui.look.glyphs import ASCII, UNICODE, Glyphs
from cockpit.tui.run.grid_lines import (
    Columns,
    Look,
    Mark,
    ago,
    columns_for,
    head_line,
    node_line,
    short_names,
)
from cockpit.tui.run.rank_grid import RankGrid
from tests.tui.models import NOW, Around, exits, happens, measured, running

Play = Callable[[RankGrid, Pilot[None]], Awaitable[None]]


class Grid(Around[RankGrid]):
    """Keeps what the grid tells."""

    def on_rank_grid_selected(self, event: RankGrid.Selected) -> None:
        self.told.append(("selected", event.node, event.rank))

    def on_rank_grid_opened(self, event: RankGrid.Opened) -> None:
        self.told.append(("opened", event.node, event.rank))

    def on_rank_grid_marked(self, event: RankGrid.Marked) -> None:
        self.told.append(("marked", set(event.marks)))


def played(
    model: RunModel,
    *keys: str,
    size: tuple[int, int] = (42, 20),
    play: Play | None = None,
    glyphs: Glyphs = UNICODE,
) -> Grid:
    """A grid after some keys; its lines are in ``told[-1]``."""
    app = Grid(RankGrid(model, glyphs=glyphs), size)

    async def main() -> None:
        async with app.run_test(size=(size[0] + 4, size[1] + 4)) as pilot:
            app.widget.update_model(model, None, NOW)
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
            if play is not None:
                await play(app.widget, pilot)
            await pilot.pause()
            app.told.append(app.lines())

    asyncio.run(main())
    return app


def lines(model: RunModel, *keys: str, **how: Any) -> list[str]:
    shown: list[str] = played(model, *keys, **how).told[-1]
    return shown


# What it says


def busy(model: RunModel, node: str, load: float = 8.0, memory: int = 256, gpu: int = 100) -> set[str | int]:
    """How a node with 16 cores and 512 GiB is."""
    sample = {"load": load, "cores": 16, "memory_bytes": memory << 30, "memory_total_bytes": 512 << 30}
    return measured(model, node, sample=sample, gpus=[{"utilisation_percent": gpu}])


def test_a_row_a_node_a_cell_a_rank_and_one_line_for_what_is_alike() -> None:
    assert lines(running(3, 8), size=(60, 9)) == [
        "  node  ranks",
        "  gpu01 ●●●● ●●●●",
        "  gpu02 ●●●● ●●●●",
        "  gpu03 ●●●● ●●●●",
        "  gpu 100 % · mem 50 % · cpu 50 % · links ok",
    ]
    assert lines(running(3, 8), size=(30, 9))[-1] == "  gpu 100 % · mem 50 %"


def test_what_no_node_has_is_not_said() -> None:
    model = running(1, 2)
    measured(model, "gpu01", gpus=[])
    assert lines(model)[-1] == "  mem 50 % · cpu 50 % · links ok"
    happens(model, "gpu01", "link", NOW - 60, state="stale")
    assert lines(model)[-1] == "  gpu01 ●●      stale 60s"


def test_a_meter_is_drawn_where_nodes_differ() -> None:
    model = running(3, 8)
    busy(model, "gpu02", gpu=64)
    assert lines(model, size=(60, 9)) == [
        "  node  ranks     gpu",
        "  gpu01 ●●●● ●●●● ▰▰▰▰▰▰ 100 %",
        "  gpu02 ●●●● ●●●● ▰▰▰▰▱▱  64 %",
        "  gpu03 ●●●● ●●●● ▰▰▰▰▰▰ 100 %",
        "  gpu 100 %, gpu02 64 % · mem 50 % · cpu 50 % · links ok",
    ]
    busy(model, "gpu03", gpu=70, load=12)
    shown = lines(model, size=(70, 9), glyphs=ASCII)
    assert shown[0].split() == ["node", "ranks", "gpu", "cpu"]
    assert shown[3].split()[3:] == ["####..", "70", "%", "####..", "75", "%"]
    assert shown[-1].startswith("  gpu 70 %, gpu01 100 % +1 more · cpu 50 %, gpu03 75 %")


def test_a_meter_is_drawn_where_one_is_high_and_stays_for_a_while() -> None:
    model = running(1, 8)
    busy(model, "gpu01", memory=500)
    columns: list[list[str]] = []

    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        for memory, now in ((500, NOW), (256, NOW + 3), (256, NOW + 70)):
            happens(model, "gpu01", "link", now, state="ok")
            grid.update_model(model, busy(model, "gpu01", memory=memory), now)
            grid.update_model(model, None, now)
            await pilot.pause()
            columns.append(cast(Grid, grid.app).lines()[0].split())

    lines(model, play=play)
    assert columns == [["node", "ranks", "mem"]] * 2 + [["node", "ranks"]]


def test_meters_of_a_run_go_with_it() -> None:
    model = running(1, 8)
    busy(model, "gpu01", memory=500)

    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        assert "mem" in cast(Grid, grid.app).lines()[0]
        grid.ended = True
        grid.update_model(model, None, NOW + 1)

    assert lines(model, play=play) == ["  node  ranks", "  gpu01 ●●●● ●●●●"]


@pytest.mark.parametrize(
    ("width", "names"), [(43, ["gpu", "mem"]), (42, ["gpu"]), (76, ["gpu", "mem", "cpu"])]
)
def test_there_are_as_many_meters_as_there_is_room_for(width: int, names: list[str]) -> None:
    model = running(2, 8)
    busy(model, "gpu02", 14.0, 400, 50)
    head, row, *_ = lines(model, size=(width, 9))
    assert head.split()[2:] == names
    assert all(row[head.index(name)] == "▰" for name in names), "each begins below its name"


def test_nodes_are_side_by_side_where_panes_are_stacked() -> None:
    model = running(5, 8)

    async def stacked(grid: RankGrid, pilot: Pilot[None]) -> None:
        grid.screen.add_class("-narrow")
        grid.narrow(None)
        grid.update_model(model, None, NOW)
        await pilot.pause()
        for key in ("down", "down", "down", "down", "right"):
            await pilot.press(key)
        await pilot.click(grid, offset=(27, 1))
        await pilot.click(grid, offset=(3, 2))
        await pilot.pause()

    app = played(model, size=(60, 9), play=stacked)
    assert app.told[-1] == [
        "  node  ranks        node  ranks",
        "  gpu01 ●●●● ●●●●    gpu04 ●●●● ●●●●",
        "▌ gpu02 ●●●● ●●●●    gpu05 ●●●● ●●●●",
        "  gpu03 ●●●● ●●●●",
        "  gpu 100 % · mem 50 % · cpu 50 % · links ok",
    ]
    assert [told[1:] for told in app.told[3:-1]] == [
        ("gpu04", None),
        ("gpu04", 24),
        ("gpu04", 24),
        ("gpu02", None),
    ]


def test_the_first_failure_stands_out_among_those_that_followed() -> None:
    model = running(2, 8)
    exits(model, 13, ago=4.4)
    for rank in (8, 9):
        exits(model, rank, ago=2.2)
    exits(model, 10, None, 15, ago=2.0)
    assert "■■■● ●✖●●" in lines(model)[2]


def test_a_slow_rank_is_marked_but_hides_no_state() -> None:
    model = running(2, 8)
    exits(model, 1, 1)
    exits(model, 2, 0)

    async def slow(grid: RankGrid, pilot: Pilot[None]) -> None:
        grid.slow = frozenset({1, 2, 13})
        grid.update_model(model, None, NOW)

    _, first, second, _ = lines(model, play=slow)
    assert first.split()[1:3] == ["●✖✓●", "●●●●"]
    assert second.split()[1:3] == ["●●●●", "●▲●●"]
    assert lines(model, play=slow, glyphs=ASCII)[2].split()[1:3] == ["oooo", "o!oo"]


def test_states_have_signs_in_ascii_too() -> None:
    model = RunModel()
    happens(model, "", "planned", nodes={"a": [0, 1, 2, 3], "b": [4]})
    happens(model, "a", "launched")
    happens(model, "a", "rank_started", rank=1)
    for rank, code in ((2, 0), (3, 7)):
        happens(model, "a", "rank_started", rank=rank)
        exits(model, rank, code)
    assert "~o+X" in lines(model, glyphs=ASCII)[1]
    assert "." in lines(model, glyphs=ASCII)[2]
    assert "".join(lines(model, "down", glyphs=ASCII)).isascii()


def test_of_links_that_are_up_only_the_slow_ones_are_said() -> None:
    def beside(usual_s: float, other_s: float) -> str:
        model = running(4, 2)
        for node in ("gpu01", "gpu02", "gpu03"):
            happens(model, node, "clock", offset_s=0, rtt_s=usual_s)
        happens(model, "gpu04", "clock", offset_s=0, rtt_s=other_s)
        shown = lines(model)
        assert not any(line.rstrip().endswith("s") for line in shown[1:4])
        return shown[4].split()[-1]

    assert beside(0.016, 0.118) == "118ms"
    assert beside(0.5, 1.1) == "1.1s"
    assert not beside(0.016, 0.09).endswith("s"), "nobody notices it"
    assert not beside(0.3, 0.8).endswith("s"), "all of them are that far away"


@pytest.mark.parametrize(
    ("kind", "data", "long", "short"),
    [
        ("link", {"state": "stale"}, "stale 14s", "!14s"),
        ("link", {"state": "gone"}, "gone 14s", "!14s"),
        ("link", {"state": "connecting"}, "linking", "…"),
        ("clock", {"offset_s": 0, "rtt_s": 1.2}, "1.2s", "1.2s"),
        ("stage", {"stage": "finalising"}, "finalising", "report"),
        ("stage", {"stage": "\x1b[2J"}, "stopping", "stop"),
        ("ended", {}, "ended", "ended"),
        ("node_lost", {"why": "its boot is gone"}, "lost", "lost"),
    ],
)
def test_the_link_in_words_that_fit(kind: str, data: dict[str, Any], long: str, short: str) -> None:
    model = running(2, 8)
    happens(model, "gpu01", kind, NOW - 14, **data)
    assert lines(model, size=(49, 9))[1].endswith(f" {long}")
    assert lines(model, size=(24, 9))[1].endswith(f" {short}")


def test_what_is_stale_stays_to_be_seen_in_another_colour() -> None:
    model = running(1, 4)
    columns = columns_for(60, 5, 4, ("gpu", "cpu"), link=True)
    look = Look(now=NOW)
    fresh = node_line(model.nodes["gpu01"], 0, model, columns, look)
    happens(model, "gpu01", "link", state="stale")
    old = node_line(model.nodes["gpu01"], 0, model, columns, look)
    assert {piece.role for piece in fresh} >= {"running", "bar", "gpu"}
    assert {piece.role for piece in old}.isdisjoint({"running", "bar", "gpu"})
    assert "●●●●" in "".join(piece.text for piece in old)


def test_measurements_that_stopped_are_stale() -> None:
    model = running(1, 4)
    columns = columns_for(42, 5, 4, ("gpu", "cpu"), link=False)
    roles = {p.role for p in node_line(model.nodes["gpu01"], 0, model, columns, Look(now=NOW + 6))}
    assert "bar" not in roles
    assert "running" in roles


def test_many_ranks_of_a_node_take_several_lines() -> None:
    shown = lines(running(1, 64))
    assert shown[1].split()[:5] == ["gpu01", *["●●●●"] * 4]
    assert [line.split()[0] for line in shown[2:-1]] == ["24", "48"]
    assert sum(line.count("●") for line in shown) == 64


def test_names_that_are_cut_still_differ() -> None:
    names = [f"ip-10-0-{number}-17.eu-central-1.compute.internal" for number in range(4)]
    shown = lines(running(names, 8), size=(30, 9))
    assert len({line.split()[0] for line in shown[1:5]}) == 4


def test_the_shared_domain_is_left_out() -> None:
    assert list(short_names(["a.x.org", "b.x.org"]).values()) == ["a", "b"]
    assert list(short_names(["a.x.org", "b.y.org"]).values()) == ["a.x", "b.y"]
    assert list(short_names(["10.0.1.5", "10.0.2.5"]).values()) == ["10.0.1.5", "10.0.2.5"]
    assert list(short_names(["a", "a.x"]).values()) == ["a", "a.x"]
    assert list(short_names(["gpu01.cluster"]).values()) == ["gpu01"]
    assert short_names([]) == {}


@given(
    width=st.integers(1, 200),
    name=st.integers(1, 60),
    ranks=st.integers(0, 300),
    drawn=st.sampled_from([(), ("gpu",), ("gpu", "mem", "cpu")]),
    link=st.booleans(),
)
def test_every_rank_has_a_cell_and_the_head_stands_above(
    width: int, name: int, ranks: int, drawn: tuple[str, ...], link: bool
) -> None:
    columns = columns_for(width, name, ranks, drawn, link=link)
    head = "".join(piece.text for piece in head_line(columns))
    model = running(["n" * name], ranks)
    pieces = [
        node_line(model.nodes["n" * name], part, model, columns, Look(now=NOW))
        for part in range(columns.lines(ranks))
    ]
    texts = ["".join(piece.text for piece in line) for line in pieces]
    assert sum(text.count("●") for text in texts) == ranks
    assert cell_len(texts[0]) == cell_len(head)
    if width >= 26:
        assert cell_len(head) <= width
    _each_cell_is_found(columns, texts[0], min(ranks, columns.per_line))


def _each_cell_is_found(columns: Columns, text: str, ranks: int) -> None:
    found = [columns.rank_at(x) for x, sign in enumerate(text) if sign == "●"]
    assert found == list(range(ranks))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1ms"), (0.0161, "16ms"), (1.24, "1.2s"), (14, "14s"), (120, "2min"), (7200, "2h"), (4e5, "5d")],
)
def test_spans(seconds: float, text: str) -> None:
    assert ago(seconds) == text


@given(st.floats())
def test_spans_fit(seconds: float) -> None:
    assert len(ago(seconds)) <= 5


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = ("load", "cores", "memory_bytes", "memory_total_bytes", "utilisation_percent")


@settings(max_examples=200)
@given(
    sample=HOSTILE | st.fixed_dictionaries(dict.fromkeys(NAMES, HOSTILE)),
    gpus=st.lists(HOSTILE | st.fixed_dictionaries(dict.fromkeys(NAMES, HOSTILE)), max_size=3),
    rtt=st.floats(),
    since=st.floats(),
    width=st.integers(30, 90),
)
def test_a_node_may_send_anything(sample: Any, gpus: list[Any], rtt: float, since: float, width: int) -> None:
    model = running(["a", "\x1b]0;x\x07\u202e[/b]"], 4)
    for name in model.nodes:
        with suppress(Malformed):  # what does not pass the gate is not there
            happens(model, name, "clock", offset_s=0.0, rtt_s=rtt)
        with suppress(Malformed):
            happens(model, name, "sample", sample=sample, ranks={}, gpus=gpus)
    with suppress(Malformed):
        happens(model, "a", "link", since, state="stale")
    names = short_names(model.nodes)
    columns = columns_for(width, max(map(len, names.values())), 4, ("gpu", "mem"), link=True)
    head = "".join(piece.text for piece in head_line(columns))
    for node in model.nodes.values():
        text = "".join(piece.text for piece in node_line(node, 0, model, columns, Look(names=names, now=NOW)))
        assert cell_len(text) == len(head)
        assert "\x1b" not in text


# Moving


def test_nothing_is_selected_before_the_first_move() -> None:
    app = played(running(2, 4), "down")
    assert app.told[:-1] == [("selected", "gpu01", None)]


def test_arrows_walk_nodes_and_ranks() -> None:
    keys = ("down", "down", "right", "right", "up", "left", "left", "left")
    app = played(running(3, 4), *keys)
    assert [told[1:] for told in app.told[:-1]] == [
        ("gpu01", None),
        ("gpu02", None),
        ("gpu02", 4),
        ("gpu02", 5),
        ("gpu01", 1),
        ("gpu01", 0),
        ("gpu01", None),
        ("gpu01", None),
    ]


def test_the_last_rank_and_the_last_node_are_the_end() -> None:
    app = played(running(2, 2), "end", "right", "right", "right", "down", "home")
    assert [told[1:] for told in app.told[:-1]][-3:] == [("gpu02", 3), ("gpu02", 3), ("gpu01", 1)]


def test_down_goes_through_the_lines_of_a_large_node() -> None:
    app = played(running(2, 32), "down", "right", "right", "down", "down", "up")
    assert [told[2] for told in app.told[1:-1]] == [0, 1, 25, 33, 25]


def test_the_cursor_is_drawn_and_the_name_stands_out() -> None:
    app = played(running(2, 4), "down", "down", "right")
    assert app.told[-1][2].startswith("▌ gpu02")
    model = running(2, 4)
    look = Look(cursor=("gpu02", 4), now=NOW)
    pieces = node_line(model.nodes["gpu02"], 0, model, columns_for(42, 5, 4, (), link=False), look)
    assert [tuple(piece) for piece in pieces[:5]] == [
        ("▌", "cursor"),
        (" ", "mark"),
        ("gpu02 ", "chosen"),
        ("●", "running+cursor"),
        ("●●●", "running"),
    ]


def test_marks() -> None:
    app = played(running(3, 4), "down", "right", play=_marks)
    assert ("marked", {("gpu01", 0), ("gpu01", 1), ("gpu02", None)}) in app.told
    assert ("marked", {("gpu01", 0), ("gpu02", None)}) in app.told
    assert app.told[-2] == ("marked", set())


def _at(grid: RankGrid) -> Mark | None:
    return grid.selected


async def _marks(grid: RankGrid, pilot: Pilot[None]) -> None:
    app = grid.app
    assert isinstance(app, Grid)
    grid.toggle_mark()
    assert _at(grid) == ("gpu01", 1), "the next one is at hand"
    grid.toggle_mark()
    grid.select("gpu02", None)
    grid.toggle_mark()
    assert _at(grid) == ("gpu03", None)
    shown = app.lines()
    assert shown[1].startswith(" ◇")
    assert shown[2].startswith(" ◆")
    marked = [segment.text for segment in grid.render_line(1) if segment.style and segment.style.underline]
    assert "".join(marked) == "●●"
    grid.select("gpu01", 1)
    grid.toggle_mark()
    await pilot.pause()
    grid.clear_marks()
    assert app.lines()[2].startswith("  ")


def test_unselect() -> None:
    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        assert grid.selected == ("gpu02", 4)
        grid.unselect()
        await pilot.pause()
        assert grid.selected is None

    app = played(running(2, 4), "down", "down", "right", play=play)
    assert "▌" not in "".join(app.told[-1])


def test_select_of_what_is_not_there_changes_nothing_or_the_node_alone() -> None:
    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        grid.select("gpu99", 1)
        assert grid.selected is None
        grid.select("gpu02", 1)
        assert grid.selected == ("gpu02", None)

    app = played(running(2, 4), play=play)
    assert len(app.told) == 1, "only a person's moves are told"


def test_a_click_selects_and_a_double_click_opens() -> None:
    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        row = "  gpu02 ●●●● ●●●●"
        await pilot.click(grid, offset=(row.rindex("●"), 2))
        await pilot.click(grid, offset=(row.index("gpu"), 1))
        await pilot.click(grid, offset=(5, 0))
        await pilot.click(grid, offset=(row.index("●") + 1, 2), times=2)

    app = played(running(2, 8), play=play)
    assert app.told[:-1] == [
        ("selected", "gpu02", 15),
        ("selected", "gpu01", None),
        *[("selected", "gpu02", 9)] * 2,
        ("opened", "gpu02", 9),
    ]


def test_a_click_finds_ranks_in_the_lines_of_a_large_node() -> None:
    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        await pilot.click(grid, offset=(8, 3))

    assert played(running(1, 64), play=play).told[0] == ("selected", "gpu01", 48)


def test_scrolling_keeps_the_head_and_the_cursor_in_sight() -> None:
    shown = lines(running(128, 8), "down", "end", size=(46, 10))
    assert shown[0].split()[:2] == ["node", "ranks"]
    assert shown[-2].startswith("▌ gpu128")
    shown = lines(running(128, 8), "down", "end", "home", size=(46, 10))
    assert shown[1].startswith("▌ gpu01")
    shown = lines(running(128, 8), "down", "pagedown", "pagedown", size=(46, 10))
    assert any(line.startswith("▌ gpu15") for line in shown)


def test_a_click_in_scrolled_rows() -> None:
    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        await pilot.click(grid, offset=(3, 1))

    app = played(running(128, 8), "down", "end", size=(46, 10), play=play)
    assert app.told[-2] == ("selected", "gpu121", None)


def test_rows_never_move() -> None:
    model = running(4, 4)
    before = [line.split()[0] for line in lines(model)]
    exits(model, 9)
    happens(model, "gpu04", "node_lost", why="gone")
    happens(model, "gpu01", "link", state="gone")
    assert [line.split()[0] for line in lines(model)] == before


def test_another_width_another_layout() -> None:
    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        grid.styles.width = 76
        await pilot.pause()

    shown = lines(running(1, 64), "down", size=(60, 9), play=play)
    assert len(shown) == 4, "a line less, and the height follows"


def test_a_theme_changes_the_colours_at_once() -> None:
    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        before = {s.text: s.style for s in grid.render_line(1)}["●●●●"]
        grid.app.theme = "textual-light"
        await pilot.pause()
        after = {s.text: s.style for s in grid.render_line(1)}["●●●●"]
        assert before is not None
        assert after is not None
        assert before.bgcolor != after.bgcolor

    played(running(1, 4), play=play)


# How much is drawn


def test_only_what_changed_is_drawn_again() -> None:
    drawn: list[tuple[Region, ...]] = []
    model = running(12, 4)

    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        refresh = grid.refresh

        def seen(*regions: Region, **how: Any) -> RankGrid:
            drawn.append(regions)
            return refresh(*regions, **how)

        grid.refresh = seen  # type: ignore[method-assign]
        grid.update_model(model, measured(model, "gpu03"), NOW)
        grid.update_model(model, {"gpu99", 4_000}, NOW)
        grid.update_model(model, exits(model, 8, 0), NOW)
        assert drawn == [(Region(0, 3, 42, 1),), (Region(0, 3, 42, 1),)]
        await pilot.pause()
        drawn.clear()
        grid.update_model(model, exits(model, 1), NOW)
        assert drawn == [(Region(0, 1, 42, 1),)], "a first failure: all rows that differ"
        grid.update_model(model, exits(model, 5), NOW + 1)
        assert drawn[1:] == [(Region(0, 2, 42, 1),)]

    shown = lines(model, play=play)
    assert "●✖●●" in shown[1]
    assert "✓●●●" in shown[3]


def test_rows_out_of_sight_cost_nothing() -> None:
    model = running(128, 8)

    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        grid.refresh = None  # type: ignore[assignment]
        grid.update_model(model, {"gpu100", 800}, NOW)
        del grid.refresh

    played(model, size=(46, 10), play=play)


def test_a_rank_that_is_started_again_is_no_failure_any_more() -> None:
    model = running(1, 4)

    async def play(grid: RankGrid, pilot: Pilot[None]) -> None:
        grid.update_model(model, exits(model, 1), NOW)
        assert "●✖●●" in grid.render_line(1).text
        grid.update_model(model, happens(model, "gpu01", "rank_started", rank=1, attempt=1), NOW)

    assert "●●●●" in lines(model, play=play)[1]
