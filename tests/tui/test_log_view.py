"""The log view over a real logbook: what is on the screen, following, filters, searching, hostile text."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from cockpit.core.logs.levels import Level
from cockpit.core.logs.query import Query
from cockpit.core.logs.sources import Nccl, Source, Writer, file_of, rank_of
from cockpit.engine.logs.book import Logbook
from cockpit.engine.logs.reader import Position, Reader
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError
from cockpit.tui.logs.filter_bar import FilterBar
from cockpit.tui.logs.lines import label
from cockpit.tui.logs.unseen import counted
from cockpit.tui.logs.view import LogView
from cockpit.tui.look.ansi import read_colours
from cockpit.tui.look.units import clock_text
from tests.tui.scenes import until

AT = 1_800_000_000.0
NODES = {"gpu01": 4, "gpu02": 4}


class Pen:
    """Writes logs into a spool and tells a book, as a session does."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.book = Logbook(folder)
        self.now = AT

    def say(
        self, text: str | bytes, *writers: int | Nccl, node: str | None = None, end: bytes = b"\n"
    ) -> None:
        """Print a line on ranks, or (``node``) on a console."""
        data = (text.encode() if isinstance(text, str) else text) + end
        wanted: Sequence[Writer] = writers or [None]
        for writer in wanted:
            name = node or f"gpu0{1 + (rank_of(writer) or 0) // 4}"
            entry = next(entry for entry in self.folder.manifest.nodes if entry.name == name)
            path = self.folder.spool_dir(entry) / file_of(writer)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                offset = file.tell()
                file.write(data)
            self.book.feed(name, writer, offset, data)

    def flush(self) -> None:
        """Close the batch, a quarter of a second after the last."""
        self.now += 0.25
        self.book.flush(self.now)

    def steps(self, first: int, count: int) -> None:
        """So many steps of rank 0, a batch each."""
        for step in range(first, first + count):
            self.say(f"step {step} loss {3 - step / 1000:.3f}", 0)
            self.flush()


def made(**manifest: Any) -> Pen:
    """A run of two nodes with four ranks each."""
    nodes = [NodeEntry("gpu01", "/x", [0, 1, 2, 3]), NodeEntry("gpu02", "/x", [4, 5, 6, 7])]
    return Pen(RunFolder.create(Manifest("run", AT, nodes, "torchrun", ["train.py"], "/", **manifest)))


@pytest.fixture
def pen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pen]:
    """A run of two nodes with four ranks each."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pen = made()
    yield pen
    pen.book.close()


class LogApp(App[None]):
    """The log alone, with a bar for its filter."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        super().__init__()
        self.log_view = LogView()
        self.bar = FilterBar(self.log_view.set_filter)
        self.opened: list[bytes] = []
        self.statuses: list[str] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The variables of the app's own themes."""
        return {
            "log-error": "#f7768e",
            "log-warning": "#e0af68",
            "log-time": "#565f89",
            "log-rank": "#bb9af7",
            "dim": "#565f89",
            "key": "#7dcfff",
        }

    def compose(self) -> ComposeResult:
        """The log above the bar."""
        yield self.log_view
        yield self.bar

    def on_log_view_row_opened(self, message: LogView.RowOpened) -> None:
        """Remember what was opened."""
        self.opened.append(message.row.text)

    def on_log_view_status_changed(self, message: LogView.StatusChanged) -> None:
        """Remember what was said."""
        self.statuses.append(message.log.status)


Scene = Callable[[LogApp, Pilot[None]], Awaitable[None]]


def play(scene: Scene, size: tuple[int, int] = (80, 12)) -> None:
    """Run a scene in the app."""

    async def main() -> None:
        app = LogApp()
        async with app.run_test(size=size) as pilot:
            await scene(app, pilot)

    asyncio.run(main())


async def settled(app: LogApp, pilot: Pilot[None]) -> list[str]:
    """Wait until nothing is being read, then return what is on the screen."""
    await pilot.pause()
    while app.log_view.searching:
        await pilot.pause()
    return screen(app)


def screen(app: LogApp) -> list[str]:
    """The lines on the screen, without what is empty."""
    view = app.log_view
    lines = [view.render_line(y).text.rstrip() for y in range(view.size.height)]
    return lines[: max((y + 1 for y, line in enumerate(lines) if line), default=0)]


def texts(lines: list[str]) -> list[str]:
    """The lines without times and labels."""
    return [line[26:] for line in lines]


# What a line looks like


@pytest.mark.parametrize(
    ("sources", "width", "text"),
    [
        ([("n", 13)], 12, "13"),
        ([("n", rank) for rank in range(64)], 12, "[0-63]"),
        ([("n", rank) for rank in range(0, 112, 2)], 12, "[56 ranks]"),
        ([("n", rank) for rank in range(0, 112, 2)], 8, "×56"),
        ([("gpu01", None)], 12, "gpu01:launch"),
        ([("a-long-name", None)], 12, "launch"),
        ([("a", None), ("b", None)], 12, "[2 launch]"),
        ([("a", None), ("b", 1)], 12, "[2 logs]"),
        ([("n", Nccl(13))], 12, "13:nccl"),
        ([("n", Nccl(131071))], 8, "nccl"),
        ([("n", Nccl(rank)) for rank in range(64)], 12, "[0-63]:nccl"),
        ([("n", Nccl(rank)) for rank in range(0, 112, 2)], 12, "[56 nccl]"),
        ([("n", Nccl(0)), ("n", 0)], 12, "[2 logs]"),
        ([("n", None), ("n", Nccl(0))], 12, "[2 logs]"),
    ],
)
def test_the_label_says_who_in_the_room_there_is(sources: list[Source], width: int, text: str) -> None:
    assert label(tuple(sources), width) == text


def test_numbers_of_lines_are_short() -> None:
    assert [counted(n) for n in (0, 1, 1204, 640_300, 1_234_567)] == [
        "0 lines",
        "1 line",
        "1,204 lines",
        "640 k lines",
        "1.2 M lines",
    ]


def test_colours_become_spans_and_nothing_else_is_left() -> None:
    text, spans = read_colours("a\x1b[1;31mred\x1b[39m bold\x1b[0m \x1b[38;5;200mx\x1b[48:2::1:2:3my\x1b[0m")
    assert text == "ared bold xy"
    found = {text[s.start : s.end]: s.style for s in spans}
    assert found["red"].bold
    assert found["red"].color is not None
    assert found["red"].color.number == 1
    assert found[" bold"].color is None
    assert found["x"].color is not None
    assert found["x"].color.number == 200
    assert found["y"].bgcolor is not None
    assert found["y"].bgcolor.triplet == (1, 2, 3)


def test_a_line_has_its_time_who_printed_it_and_its_text(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        pen.say("hello from everyone", *range(8))
        pen.say("RuntimeError: CUDA out of memory", 5)
        pen.say("starting ranks", node="gpu02")
        pen.flush()
        app.log_view.open(pen.book, NODES)
        at = clock_text(AT + 0.25)
        assert sorted(await settled(app, pilot)) == [
            f"{at} 5            RuntimeError: CUDA out of memory",
            f"{at} [0-7]        hello from everyone",
            f"{at} gpu02:launch starting ranks",
        ]
        app.log_view.toggle_timestamps()
        assert "[0-7]        hello from everyone" in screen(app)
        app.log_view.show(Query(frozenset({5})), "Log · rank 5")
        assert await settled(app, pilot) == ["hello from everyone", "RuntimeError: CUDA out of memory"]
        assert app.log_view.title == "Log · rank 5"

    play(scene)


def test_lines_told_as_one_open_one_by_one_and_fold_again(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.say("before", *range(8))
        for rank in range(8):
            for line in ("Traceback (most recent call last):", '  File "t.py", line 1', f"KeyError: {rank}"):
                pen.say(f"[rank{rank}]: {line}", rank)
            pen.say(f"step 7 loss {'nan' if rank == 5 else f'2.4{rank}'}", rank)
        pen.flush()
        pen.say("after", *range(8))
        pen.flush()
        view.open(pen.book, NODES)
        told = [line[13:] for line in await settled(app, pilot)]
        assert told == [
            "[0-7]        before",
            "[0-7]        Traceback (most recent call last):",
            '               File "t.py", line 1',
            "             KeyError: 0–7",
            "5            step 7 loss nan",
            "[0-4,6-7]    step 7 loss 2.40–2.47",
            "[0-7]        after",
        ]
        view.open_row()
        await pilot.pause()
        assert app.opened == [b"after"], "that is one line"
        view.move(-1)
        await settled(app, pilot)
        view.open_row()
        assert view.unfolded
        opened = [line[13:] for line in await settled(app, pilot)]
        assert opened[:5] == told[:5]
        assert opened[5:] == [f"{rank}            step 7 loss 2.4{rank}" for rank in (0, 1, 2, 3, 4, 6, 7)]
        assert view.copy_line() == "step 7 loss 2.40"
        view.open_row()
        await pilot.pause()
        assert app.opened[1:] == [b"step 7 loss 2.40"]
        view.home()
        await settled(app, pilot)
        view.move(2)
        await settled(app, pilot)
        view.open_row()  # on any line of a traceback
        await settled(app, pilot)
        assert view.copy_line() == '[rank0]:   File "t.py", line 1'
        view.fold()
        assert [line[13:] for line in await settled(app, pilot)] == told
        assert not view.unfolded
        assert view.copy_line() == '  File "t.py", line 1'

    play(scene)


def test_equal_lines_of_ranks_can_be_shown_one_by_one(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.say("hello", *range(3))
        pen.flush()
        view.open(pen.book, NODES)
        assert [line[13:] for line in await settled(app, pilot)] == ["[0-2]        hello"]
        view.toggle_fold()
        assert [line[13:] for line in await settled(app, pilot)] == [
            f"{n}            hello" for n in range(3)
        ]
        assert view.wanted.words[-1] == "--no-fold", "the command for this view"
        assert view.following
        view.toggle_fold()
        assert [line[13:] for line in await settled(app, pilot)] == ["[0-2]        hello"]

    play(scene)


def test_a_filter_looks_at_the_lines_that_are_told_as_one(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        for rank in range(8):
            pen.say(f"step 7 loss 2.4{rank}", rank)
        pen.flush()
        view.open(pen.book, NODES)
        view.set_filter("loss")
        assert [line[13:] for line in await settled(app, pilot)] == ["[0-7]        step 7 loss 2.40–2.47"]
        view.set_filter("2[.]4[35]")
        assert [line[13:] for line in await settled(app, pilot)] == [
            "3            step 7 loss 2.43",
            "5            step 7 loss 2.45",
        ]
        view.set_filter("–")
        assert await settled(app, pilot) == ["no line matches /–/ · esc clears"]
        view.set_filter("")
        view.move(-1)
        view.set_filter("2.44")
        assert view.copy_line() == "step 7 loss 2.44"
        view.set_filter("")
        view.next_match(-1)
        assert "[0-7]        step 7 loss 2.40–2.47" in (await settled(app, pilot))[0]

    play(scene)


def test_errors_and_warnings_have_their_colours_and_the_program_keeps_its_own(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        for text in ("plain", "WARNING: slow", "ValueError: \x1b[32mgreen\x1b[0m"):
            pen.say(text, 0)
        pen.flush()
        app.log_view.open(pen.book, NODES)
        await settled(app, pilot)
        colours = {}
        for y in range(3):
            for segment in app.log_view.render_line(y):
                if segment.style is not None and segment.style.color is not None:
                    colours[segment.text.strip()] = segment.style.color
        assert colours["WARNING: slow"].name == "#e0af68"
        assert colours["ValueError:"].name == "#f7768e"
        assert colours["green"].number == 2

    play(scene)


def test_the_continuation_of_a_traceback_repeats_nothing(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        for line in ("before", "Traceback (most recent call last):", '  File "t.py", line 1', "KeyError: 1"):
            pen.say(line, 3)
        pen.flush()
        app.log_view.open(pen.book, NODES)
        lines = await settled(app, pilot)
        assert [line[:16].strip() for line in lines[2:]] == ["", ""]
        assert texts(lines)[3] == "KeyError: 1"

    play(scene)


def test_long_lines_are_cut_scrolled_or_wrapped(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        pen.say("0123456789" * 9, 0)
        pen.say("世界" * 40, 0)
        pen.flush()
        app.log_view.open(pen.book, NODES)
        assert texts(await settled(app, pilot)) == [("0123456789" * 9)[:52] + "…", "世界" * 13 + "…"]
        assert not app.log_view.shifted
        app.log_view.action_shift(1)
        assert texts(screen(app)) == ["…" + ("0123456789" * 9)[27:78] + "…", "…" + "世界" * 12 + "世…"]
        app.log_view.action_shift(9)  # as far as to the end of the longest line
        assert texts(screen(app)) == ["…", "…" + "界" + "世界" * 12]
        app.log_view.action_shift(-1)
        assert texts(screen(app))[0] == "…" + "3456789"
        app.log_view.unshift()
        assert texts(screen(app))[0].startswith("0123456789")
        app.log_view.toggle_wrap()
        assert texts(screen(app)) == [
            ("0123456789" * 9)[:53],
            ("0123456789" * 9)[53:],
            "世界" * 13,
            "世界" * 13,
            "世界" * 13,
            "世界",
        ]

    play(scene)


@pytest.mark.parametrize("columns", [1, 12, 24, 44, 60, 200])
def test_any_width_will_do(pen: Pen, columns: int) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        pen.say("some words and 世界 more words", *range(8))
        pen.flush()
        app.log_view.open(pen.book, NODES)
        await settled(app, pilot)
        for _ in range(2):
            assert all(app.log_view.render_line(y).cell_length == columns for y in range(3))
            app.log_view.toggle_wrap()

    play(scene, (columns, 6))


# Following and moving


def test_an_empty_log_says_what_it_waits_for(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        app.log_view.empty_text = "building op shm_comm, 34 s"
        app.log_view.open(pen.book, NODES)
        assert await settled(app, pilot) == ["no output", "building op shm_comm, 34 s"]
        assert app.log_view.status == "following · 0 lines"

    play(scene)


def test_it_follows_until_one_moves_and_counts_what_comes_meanwhile(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        view.open(pen.book, NODES)
        pen.steps(0, 50)
        view.refresh_log()
        assert "step 49" in (await settled(app, pilot))[-1]
        assert view.status == "following · 50 lines"
        view.move(-1)
        assert not view.following
        row = view.current_row()
        assert row is not None
        assert b"step 48" in row.text
        before = await settled(app, pilot)
        pen.steps(50, 412)
        view.refresh_log()
        after = await settled(app, pilot)
        assert after[:-1] == before[:-1]
        assert after[-1].endswith("+412 lines")
        assert view.status == "paused · +412 lines"
        await pilot.click(view, offset=(72, view.size.height - 1))
        assert "step 461" in (await settled(app, pilot))[-1]
        assert view.status == "following · 462 lines"

    play(scene)


def test_moving_past_the_end_follows_again(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 50)
        view.open(pen.book, NODES)
        await settled(app, pilot)
        view.home()
        assert "step 0" in (await settled(app, pilot))[0]
        pages = 0
        while not view.following:
            view.page(1)
            await settled(app, pilot)
            pages += 1
        assert pages == 5
        assert "step 49" in screen(app)[-1]
        view.page(-1)
        view.page(-1)
        await settled(app, pilot)
        view.page(1)
        view.page(1)
        await settled(app, pilot)
        view.move(99)
        await settled(app, pilot)
        assert view.following

    play(scene)


@pytest.mark.slow
def test_the_cursor_walks_the_whole_log_line_by_line(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 120)
        view.open(pen.book, NODES)
        await settled(app, pilot)
        seen = []
        for _ in range(119):
            row = view.current_row()
            assert row is not None
            seen.append(int(row.text.split()[1]))
            view.move(-1)
            assert view.copy_line() in " ".join(await settled(app, pilot))
        assert seen == list(range(119, 0, -1))
        assert view.copy_line() == "step 0 loss 3.000"

    play(scene)


def test_a_flood_shows_the_newest_lines_and_keeps_few(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        view.open(pen.book, NODES)
        for tick in range(20):
            for line in range(500):
                pen.say(f"tick {tick} line {line}", 1)
            pen.flush()
            view.refresh_log()
            newest = f"tick {tick} line 499"
            await until(pilot, lambda newest=newest: newest in screen(app)[-1], newest)  # type: ignore[misc]
        place = view._place
        assert place is not None
        assert len(place.window.rows) < 100

    play(scene)


def test_a_frozen_view_stays_and_counts(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 20)
        view.open(pen.book, NODES)
        before = await settled(app, pilot)
        view.freeze(True)
        pen.steps(20, 3)
        view.refresh_log()
        assert screen(app)[:-1] == before[:-1]
        assert view.status == "frozen · +3 lines"
        view.freeze(False)
        assert "step 22" in (await settled(app, pilot))[-1]
        assert view.status == "following · 23 lines"

    play(scene)


def test_progress_bars_stand_below_the_lines_while_following(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 20)
        pen.say(b"\r 10%|#   \r 20%|##  ", 2, end=b"")
        pen.flush()
        view.open(pen.book, NODES)
        assert texts(await settled(app, pilot))[-2:] == ["step 19 loss 2.981", " 20%|##"]
        pen.say(b"\r 30%|### ", 2, end=b"")
        pen.flush()
        view.refresh_log()
        assert texts(screen(app))[-1] == " 30%|###"
        view.move(-1)
        assert "%" not in "".join(await settled(app, pilot))

    play(scene)


def test_a_resized_view_is_full_again(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 100)
        view.open(pen.book, NODES)
        for height in (5, 30, 3, 50):
            await pilot.resize_terminal(80, height)
            lines = await settled(app, pilot)
            assert len(lines) == height
            assert "step 99" in lines[-1]
        view.home()
        for height in (5, 30):
            await pilot.resize_terminal(60, height)
            lines = await settled(app, pilot)
            assert len(lines) == height
            assert "step 0" in lines[0]

    play(scene)


# Filter and search


def test_a_filter_keeps_the_place_in_time_and_gives_it_back(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 200)
        view.open(pen.book, NODES)
        view.home()
        await settled(app, pilot)
        view.move(95)
        await settled(app, pilot)
        assert view.copy_line().startswith("step 95 ")
        for pattern in ("0", "00", "00 "):
            view.set_filter(pattern)
            await settled(app, pilot)
        assert view.copy_line().startswith("step 100 ")
        view.set_filter("")
        await settled(app, pilot)
        assert view.copy_line().startswith("step 95 ")
        view.set_filter("00 ")
        await settled(app, pilot)
        view.move(1)
        await settled(app, pilot)
        view.set_filter("")
        assert any("step 200" in line or "step 199" in line for line in await settled(app, pilot))

    play(scene)


def test_another_book_of_the_same_logs_is_shown_from_the_same_time(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 100)
        last = Logbook(pen.folder)  # has nothing of what was before
        await last.load(since={})
        for step in range(100, 300):
            offset = last.logs.size(last.logs.number(("gpu01", 0)))
            pen.steps(step, 1)
            last.feed("gpu01", 0, offset, last.logs.read(last.logs.number(("gpu01", 0)), offset, 1000))
            last.flush(pen.now)
        view.open(last, NODES)
        newest = await settled(app, pilot)
        assert texts(newest)[-1] == "step 299 loss 2.701"
        view.exchange(pen.book)
        assert await settled(app, pilot) == newest
        view.exchange(last)
        view.move(-40)
        await settled(app, pilot)
        assert view.copy_line().startswith("step 259 ")
        view.exchange(pen.book)
        await settled(app, pilot)
        assert view.copy_line().startswith("step 259 ")
        assert not view.following
        view.home()
        assert texts(await settled(app, pilot))[0].startswith("step 0 ")
        last.close()

    play(scene)


def test_a_filter_while_following_goes_on_following(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 100)
        view.open(pen.book, NODES)
        view.set_filter("STEP .*7 LOSS")
        assert "no line matches" in (await settled(app, pilot))[0]
        view.set_filter("step .*7 loss")
        assert [line.split()[1] for line in texts(await settled(app, pilot))] == [
            str(n) for n in range(7, 100, 10)
        ]
        pen.steps(100, 8)
        view.refresh_log()
        assert "step 107" in (await settled(app, pilot))[-1]
        view.set_filter("!step")
        assert await settled(app, pilot) == ["no line matches /!step/ · esc clears"]

    play(scene)


def test_a_bad_filter_is_refused_and_the_old_one_stays(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        view.open(pen.book, NODES)
        view.set_filter("loss")
        with pytest.raises(CockpitError):
            view.set_filter("loss(")
        assert view.filter == "loss"

    play(scene)


def test_a_filter_may_begin_with_ranks_and_nodes(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.say("starting", node="gpu02")
        pen.say("loss 1", *range(8))
        pen.say("other", *range(8))
        pen.flush()
        view.open(pen.book, NODES)
        view.show(Query(frozenset({3})), "rank 3")
        view.set_filter("@0,5-6 loss")
        assert [line[13:] for line in await settled(app, pilot)] == ["[0,5-6]      loss 1"]
        assert (view.title, view.filter) == ("ranks 0,5-6", "@0,5-6 loss")
        assert view.wanted == Query(frozenset({0, 5, 6}), frozenset(), "loss", times=True)
        view.next_match(-1)
        assert "loss 1" in view.copy_line()
        view.set_filter("@gpu02 !other")
        lines = sorted(line[13:] for line in await settled(app, pilot))
        assert lines == ["[4-7]        loss 1", "gpu02:launch starting"]
        for text, says in (("@8", "no rank 8"), ("@gpu[02-03]", "no node gpu03"), ("@0-", "not a rank set")):
            with pytest.raises(CockpitError, match=says):
                view.set_filter(text)
        assert view.filter == "@gpu02 !other"
        view.show(Query(frozenset({3})), "rank 3")
        assert view.title == "gpu02", "what is chosen has not changed"
        view.show(Query(frozenset({2})), "rank 2")
        (line,) = await settled(app, pilot)
        assert line[13:] == "loss 1", "what is chosen last counts; the pattern stays"
        assert (view.title, view.filter) == ("rank 2", "!other")
        view.toggle_timestamps()
        assert view.wanted == Query(frozenset({2}), pattern="!other")

    play(scene)


def test_of_what_nccl_says_warnings_are_shown_and_the_rest_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pen = made(nccl_debug=True)

    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.say("loss 1", *range(8))
        for rank in range(8):
            pen.say("n:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB", Nccl(rank))
        pen.say("n:1:2 [0] x.cc:1 NCCL WARN Connect failed", Nccl(3))
        pen.flush()
        pen.say("loss 2", *range(8))
        pen.flush()
        view.open(pen.book, NODES)
        shown = ["[0-7]        loss 1", "3:nccl       n:1:2 [0] x.cc:1 NCCL WARN Connect failed"]
        assert [line[13:] for line in await settled(app, pilot)] == [*shown, "[0-7]        loss 2"]
        assert view.status == "following · 17 lines", "as many as are folded into these rows"
        view.next_level(Level.ERROR, -1)
        await settled(app, pilot)
        assert "NCCL WARN" in view.copy_line()
        # What comes while somebody reads is counted without what is left out.
        pen.say("n:1:2 [0] NCCL INFO Connected all rings", Nccl(0))
        pen.flush()
        view.refresh_log()
        assert view.status.startswith("paused")
        assert "+" not in view.status
        pen.say("n:1:2 [0] x.cc:1 NCCL WARN again", Nccl(0))
        pen.flush()
        view.refresh_log()
        assert "+1 line" in view.status
        pen.say("loss 3", *range(8))
        pen.flush()
        view.refresh_log()
        assert "+9 lines" in view.status

        view.set_filter("@nccl NET/")
        (line,) = [line[13:] for line in await settled(app, pilot)]
        assert line.startswith("[0-7]:nccl   n:1:2 [0] NCCL INFO NET/IB")
        assert view.wanted == Query(pattern="NET/", nccl=True, times=True)
        assert view.wanted.words == ["--grep", "NET/", "--nccl", "--time"]
        view.show(Query(frozenset({3})), "rank 3")
        await settled(app, pilot)
        assert (view.filter, view.title) == ("@nccl NET/", "rank 3")
        assert view.wanted == Query(frozenset({3}), pattern="NET/", nccl=True, times=True)
        view.set_filter("@nccl")
        assert len(await settled(app, pilot)) == 2, "what is chosen stays so"
        view.set_filter("")
        assert len(await settled(app, pilot)) == 4
        view.set_filter("!NCCL WARN")
        assert len(await settled(app, pilot)) == 3

    play(scene)
    pen.book.close()


def test_where_nccl_has_no_file_asking_for_it_says_so(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        app.log_view.open(pen.book, NODES)
        with pytest.raises(CockpitError, match="no files of its own in this run"):
            app.log_view.set_filter("@nccl")

    play(scene)


def test_next_and_previous_error_and_match(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 500)
        pen.say("ValueError: one", 4)
        pen.flush()
        pen.steps(500, 500)
        pen.say("ValueError: two", 4)
        pen.flush()
        view.open(pen.book, NODES)
        await settled(app, pilot)
        for said in ("two", "one", "one"):
            view.next_level(Level.ERROR, -1)
            await settled(app, pilot)
            assert view.copy_line() == f"ValueError: {said}"
        assert view.status.startswith("no error before this line · paused")
        view.next_level(Level.ERROR, 1)
        await settled(app, pilot)
        assert view.copy_line() == "ValueError: two"
        view.set_filter("step 77")
        view.set_filter("")
        await settled(app, pilot)
        view.next_match(-1)
        await settled(app, pilot)
        assert view.copy_line().startswith("step 779 ")
        view.next_match(1)
        await settled(app, pilot)
        assert "no line matches /step 77/ after this line" in view.status

    play(scene)


def test_a_long_search_says_how_far_it_is_and_can_be_stopped(
    pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.tui.logs.place.BUDGET_S", 0.0)
    monkeypatch.setattr("cockpit.tui.panes.loader.DRAW_S", 0.0)

    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 1000)
        view.open(pen.book, NODES)
        await settled(app, pilot)
        view.next_level(Level.ERROR, -1)
        assert view.searching
        assert view.status.startswith("searching… ")
        assert view.cancel_search()
        assert not view.searching
        assert not view.cancel_search()
        assert view.status == "stopped · following · 1,000 lines"
        view.set_filter("st.p 7\\b")
        assert view.status.startswith("filtering… ")
        assert "step 7 " in (await settled(app, pilot))[0]
        assert any(said.startswith("filtering… 5") for said in app.statuses)
        view.set_filter("")
        view.home()
        view.move(500)
        await settled(app, pilot)
        assert view.copy_line().startswith("step 500 ")

    play(scene)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set: a search goes on; it finds nothing before."""
    goes_on, find = threading.Event(), Reader.find

    def held(self: Reader, position: Position, *how: Any) -> Any:
        return find(self, position, *how) if goes_on.is_set() else (None, position)

    monkeypatch.setattr(Reader, "find", held)
    return goes_on


@pytest.mark.parametrize("stopped", [False, True])
def test_lines_that_come_while_it_searches_appear_afterwards(
    pen: Pen, search: threading.Event, stopped: bool
) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 100)
        view.open(pen.book, NODES)
        await settled(app, pilot)
        view.next_level(Level.ERROR, -1)
        pen.steps(100, 1)
        view.refresh_log()  # and nobody says it again: the run is silent from here on
        assert view.searching
        if stopped:
            view.cancel_search()
        search.set()
        assert "step 100" in (await settled(app, pilot))[-1]
        assert view.following

    play(scene)


def test_a_view_that_grows_while_it_searches_is_full_afterwards(pen: Pen, search: threading.Event) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 200)
        view.open(pen.book, NODES)
        await settled(app, pilot)
        view.next_level(Level.ERROR, -1)
        await pilot.resize_terminal(80, 50)
        assert view.searching
        search.set()
        assert len(await settled(app, pilot)) == 50

    play(scene)


def test_narrowed_to_one_rank_new_lines_of_others_are_not_counted(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 30)
        pen.say("only me", 6)
        pen.flush()
        view.open(pen.book, NODES)
        view.show(Query(frozenset({6})), "rank 6")
        assert [line[13:] for line in await settled(app, pilot)] == ["only me"]
        assert view.status == "following · 1 line"
        view.move(-1)
        await settled(app, pilot)
        pen.steps(30, 30)
        pen.say("me again", 6)
        pen.flush()
        view.refresh_log()
        while "+" not in view.status:  # a look has a budget of time, which a busy machine may use up
            await pilot.pause()
            view.refresh_log()
        assert view.status == "paused · +1 line"

    play(scene)


def test_the_filter_bar_applies_while_typing_and_shows_what_is_wrong(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view, bar = app.log_view, app.bar
        pen.steps(0, 30)
        view.open(pen.book, NODES)
        view.focus()
        bar.open()
        await pilot.pause()
        await pilot.press(*"step 2", "enter")
        assert view.filter == "step 2"
        assert not bar.has_class("-open")
        assert app.focused is view
        bar.open(view.filter)
        await pilot.pause()
        await pilot.press("(", "enter")
        assert bar.has_class("-open")
        assert bar.has_class("-bad")
        assert view.filter == "step 2"
        await pilot.press("escape")
        assert view.filter == ""
        assert not bar.has_class("-open")
        bar.open()
        await pilot.pause()
        await pilot.press("up", "enter")
        assert view.filter == "step 2"

    play(scene)


def test_what_a_filter_found_is_highlighted_until_it_is_cleared(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view

        def marked() -> set[str]:
            return {
                segment.text
                for y in range(view.size.height)
                for segment in view.render_line(y)
                if segment.style is not None and segment.style.reverse
            }

        pen.steps(0, 30)
        view.open(pen.book, NODES)
        view.set_filter("LOSS|nothing")
        await settled(app, pilot)
        assert marked() == set()
        view.set_filter("loss|step 2")
        await settled(app, pilot)
        assert marked() == {"loss", "step 2"}
        view.set_filter("!loss")
        await settled(app, pilot)
        assert marked() == set()
        view.set_filter("loss")
        view.set_filter("")
        await settled(app, pilot)
        assert marked() == set()
        view.next_match(-1)
        await settled(app, pilot)
        assert marked() == {"loss"}

    play(scene)


# Mouse


def test_clicks_place_the_cursor_and_open_a_line(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 30)
        view.open(pen.book, NODES)
        await settled(app, pilot)
        await pilot.click(view, offset=(40, 3))
        text = view.copy_line()
        assert text in screen(app)[3]
        assert not view.following
        await pilot.double_click(view, offset=(40, 3))
        await pilot.pause()
        assert app.opened == [text.encode()]

    play(scene)


def test_selected_text_has_no_times_and_no_labels(pen: Pen) -> None:
    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        pen.steps(0, 30)
        view.open(pen.book, NODES)
        await settled(app, pilot)
        await pilot.mouse_down(view, offset=(31, 2))
        await pilot.hover(view, offset=(29, 4))
        await pilot.mouse_up(view, offset=(29, 4))
        assert app.screen.get_selected_text() == "20 loss 2.980\nstep 21 loss 2.979\nstep"
        pen.steps(30, 300)
        view.refresh_log()
        assert app.screen.get_selected_text() == "20 loss 2.980\nstep 21 loss 2.979\nstep"

    play(scene)


# What a node may send

HOSTILE = (
    b"[/x] [bold red]x[/] [@click=app.quit]quit[/]",
    b"\x1b[2J\x1b[H\x1b]0;owned\x07 \x1b]52;c;aGk=\x07 \x1b[?1049l\x1bc",
    b"\x9b31m \xff\xfe \x00\x01\x08\x7f",
    "\u202eevil\u202c \u200b\u2066 \U000e0041 e".encode() + "\u0301".encode() * 50,
    b"A" * (1 << 20),
    b"\x1b[31m" * 2000 + b"deep",
    "世".encode() * 3000,
)


def hostile_scene(pen: Pen) -> None:
    """Draw all of it, click on it, filter it; fails where a terminal would see more than text."""

    async def scene(app: LogApp, pilot: Pilot[None]) -> None:
        view = app.log_view
        for text in HOSTILE:
            pen.say(text, 0)
            pen.flush()
        pen.say(b"\r\x1b]52;c;aGk=\x07[/x] 10%", 1, end=b"")
        pen.flush()
        view.open(pen.book, NODES)
        view.set_filter("")
        for wrap in (False, True):
            if wrap:
                view.toggle_wrap()
                view.home()
            lines = await settled(app, pilot)
            for y in range(view.size.height):
                strip = view.render_line(y)
                assert strip.cell_length == 100
                for segment in strip:
                    assert segment.text.isprintable()
                    assert segment.control is None
                    assert segment.style is None or not segment.style.link
            assert "[/x] [bold red]x[/] [@click=app.quit]quit[/]" in lines[0]
            await pilot.click(view, offset=(55, 0))
            assert app.is_running
        view.set_filter("^A{99}")
        await settled(app, pilot)
        assert view.copy_line().endswith("A … (+1,040,384 bytes)")
        view.set_filter("[@]click")
        assert "[@click=app.quit]" in (await settled(app, pilot))[0]

    play(scene, (100, 16))


def test_hostile_text_is_drawn_as_text_and_reaches_no_terminal(pen: Pen) -> None:
    hostile_scene(pen)


def test_it_is_the_sanitiser_that_keeps_hostile_text_out(pen: Pen, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(raw: bytes, *, colour: bool) -> str:
        return raw.decode("utf-8", "replace")

    monkeypatch.setattr("cockpit.tui.logs.lines.sanitise", as_it_is)
    with pytest.raises(AssertionError):
        hostile_scene(pen)
