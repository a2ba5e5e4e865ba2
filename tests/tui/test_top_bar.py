"""The first line: which run, how it is, how far, how well."""

from __future__ import annotations

import asyncio

import pytest

from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.pace import Pace
from cockpit.core.run.model import RunModel
from cockpit.tui.look.glyphs import ASCII, UNICODE, Glyphs
from cockpit.tui.run.top_bar import Head, TopBar, elapsed_text
from tests.tui.models import NOW, Around, exits, happens, running


def shown(
    model: RunModel,
    metrics: Metrics | None = None,
    width: int = 140,
    glyphs: Glyphs = UNICODE,
    run: str = "otter",
    recorded: bool = False,
    pace: Pace | None = None,
) -> str:
    app = Around(TopBar(glyphs=glyphs))

    async def main() -> str:
        async with app.run_test(size=(width, 3)) as pilot:
            app.widget.show(Head(run, model, metrics or Metrics(), NOW - 761, NOW, recorded, pace))
            await pilot.pause()
            return app.lines()[0]

    return asyncio.run(main())


def trained() -> Metrics:
    metrics = Metrics()
    for step in range(1190, 1200):
        line = f"step {step}/5000 loss {2.4 - (step - 1190) / 100:.3f} step_time 0.118\n"
        metrics.feed(0, line.encode(), NOW - 1200 + step)
    return metrics


def test_everything_at_a_glance() -> None:
    assert shown(running(8, 8), trained()) == (
        " cockpit otter  ● running  00:12:41  step 1,199/5,000  ETA 7 min 28 s  loss 2.31 █▇▆▅▅▄▃▂▁"
        "  118 ms/step  ranks 64/64"
    )


def test_a_step_takes_what_it_usually_takes_however_its_line_arrives() -> None:
    metrics = Metrics()
    for step in range(12):
        metrics.feed(0, f"step {step}/600 loss 2.1\n".encode(), NOW - 60 + step / 2 + 0.2 * (step in (5, 11)))
    assert metrics.latest.step_s == pytest.approx(0.7)
    assert "500 ms/step" in shown(running(8, 8), metrics)


def test_nothing_is_said_that_nobody_knows() -> None:
    model = RunModel()
    happens(model, "", "planned", nodes={"gpu01": [0, 1]})
    assert shown(model) == " cockpit otter  ◌ starting  00:12:41  ranks 0/2"


def test_for_want_of_room_the_least_important_goes() -> None:
    model, metrics = running(8, 8), trained()
    narrow = shown(model, metrics, 80, run="20261121-0412-otter")
    assert narrow == " 20261121-0412-otter  ● running  step 1,199/5,000  ETA 7 min 28 s  loss 2.31"
    assert shown(model, metrics, 60) == " otter  ● running  step 1,199/5,000  ETA 7 min 28 s"
    exits(model, 1, 0)
    assert shown(model, metrics, 60) == " otter  ● running  step 1,199/5,000  ranks 63/64"
    model = running(8, 8)
    assert shown(model, metrics, 14) == " ● running"


def test_the_time_left_is_what_the_program_says() -> None:
    metrics = Metrics()
    metrics.feed(0, b"step 340/5004 loss 2.3 eta: 2:10:05 time: 0.3 data: 0.1\n", NOW - 5)
    assert "step 340/5,004  ETA 2 h 10 min  loss 2.3" in shown(running(2, 2), metrics)


def test_no_time_left_is_said_where_it_is_not_known() -> None:
    for line in (b"step 340 loss 2.3 step_time 0.1\n", b"step 340/5004 loss 2.3\n"):
        metrics = Metrics()
        metrics.feed(0, line, NOW)
        assert "ETA" not in shown(running(2, 2), metrics)
    failed, stopped = running(2, 2), running(2, 2)
    exits(failed, 1, 1)
    happens(stopped, "", "stop_asked", reason="asked", by="ada", hard=False)
    assert "ETA" in shown(running(2, 2), trained())
    assert "ETA" not in shown(failed, trained())
    assert "ETA" not in shown(stopped, trained())
    assert "ETA" not in shown(running(2, 2), trained(), recorded=True)


def one_slow(*, lag: bool = False) -> Pace:
    pace = Pace(range(64))
    pace.lag = lag
    for step in range(1199, 1217):
        for rank in range(64):
            pace.stepped(rank, step, NOW - 2.0 * (1217 - step))
            pace.worked(rank, step, 1.49 if rank == 13 else 1.0)
    return pace


@pytest.mark.parametrize(
    ("lag", "wide", "narrow"),
    [(False, "rank 13 +49 %", "rank 13 +49 %"), (True, "rank 13 enqueues +49 %", "13 enq. +49 %")],
)
def test_the_slowest_rank_and_the_step_fit_on_a_narrow_screen(lag: bool, wide: str, narrow: str) -> None:
    pace, run = one_slow(lag=lag), "20261121-0412-otter"
    assert f"▲ {wide}  ranks 64/64" in shown(running(8, 8), trained(), 180, run=run, pace=pace)
    line = shown(running(8, 8), trained(), 80, run=run, pace=pace)
    assert line.startswith(f" {run}  ● running  step 1,216/5,000  2.00 s/step  ▲ {narrow}")
    model = running(8, 8)
    exits(model, 1)
    assert "63/64" in shown(model, trained(), 80, run=run, pace=pace)


def test_beside_the_slow_rank_stands_how_long_a_step_takes_and_the_curve_of_the_loss_goes_first() -> None:
    pace = one_slow()
    line = shown(running(8, 8), trained(), 140, run="20261121-0412-otter", pace=pace)
    assert "2.00 s/step  ▲ rank 13 +49 %" in line
    assert "loss " in line
    for step in range(1217, 1227):
        for rank in range(64):
            pace.stepped(rank, step, NOW + 2.0 * (step - 1217))
            pace.worked(rank, step, 1.49 if rank < 12 else 1.0)
    assert "▲ rank 0 +49 %, 11 more" in shown(running(8, 8), trained(), 180, pace=pace)


def test_a_lost_link_is_more_important_than_progress() -> None:
    model = running(8, 8)
    happens(model, "gpu06", "link", NOW - 14, state="stale")
    happens(model, "gpu07", "link", NOW - 3, state="gone")
    line = shown(model, trained(), 80)
    assert "link gpu06 stale 14 s +1" in line
    assert "ranks" not in line


def test_the_slowest_link_where_it_stands_out() -> None:
    model = running(3, 1)
    happens(model, "gpu02", "clock", offset_s=0.0, rtt_s=0.09)
    assert "link" not in shown(model)
    happens(model, "gpu02", "clock", offset_s=0.0, rtt_s=1.24)
    assert shown(model).endswith("link gpu02 1.2 s")


def states() -> dict[str, tuple[RunModel, str]]:
    found = {"running": (running(2, 2), "● running")}

    def state(name: str, sign: str) -> RunModel:
        model = running(2, 2)
        found[name] = model, sign
        return model

    exits(state("failed", "✖ failed"), 1)
    happens(state("stopping", "◌ stopping"), "", "stop_asked", reason="asked", by="ada", hard=False)
    finalising = state("finalising", "◌ finalising")
    happens(finalising, "", "stop_asked", reason="asked", by="ada", hard=False)
    happens(finalising, "gpu01", "stage", stage="finalising")
    unlinked = state("no link", "? no link")
    ended = state("ended", "✓ ended")
    stopped = state("stopped", "■ stopped")
    happens(stopped, "", "stop_asked", reason="asked", by="ada", hard=False)
    elsewhere = state("stopped from elsewhere", "■ stopped")
    going = state("being stopped from elsewhere", "◌ stopping")
    lost = state("lost", "? lost")
    limit = "SLURM ended job 12 at its time limit (01:00:00)"
    taken = state("taken back", f"■ {limit}")
    happens(taken, "", "job_ended", NOW, why=limit)
    for node in ("gpu01", "gpu02"):
        happens(unlinked, node, "link", state="gone")
        happens(stopped, node, "stop_requested", NOW - 1)
        happens(elsewhere, node, "stop_requested", NOW - 1)
        happens(going, node, "stop_requested", NOW - 1)
        happens(lost, node, "node_lost", why="its boot is gone")
        happens(taken, node, "node_lost", NOW, why="its job has ended")
    for rank in range(4):
        exits(ended, rank, 0)
        exits(stopped, rank, None, 15)
        exits(elsewhere, rank, None, 15)
    for node in ("gpu01", "gpu02"):
        happens(ended, node, "ended")
        happens(stopped, node, "ended")
        happens(elsewhere, node, "ended")
    return found


def test_a_run_goes_on_of_which_one_node_was_stopped() -> None:
    model = running(2, 2)
    happens(model, "gpu01", "stop_requested", NOW - 1, by="signal")
    assert (model.asked_to_stop, model.may_finish) == (True, False)
    for rank in (0, 1):
        exits(model, rank, None, 15)
    happens(model, "gpu01", "ended")
    assert (model.asked_to_stop, model.may_finish) == (False, True)
    assert "● running" in shown(model)


@pytest.mark.parametrize("name", states())
def test_the_state_of_the_run(name: str) -> None:
    model, says = states()[name]
    assert f"  {says}  " in shown(model)
    assert shown(model, glyphs=ASCII).split("  ")[1].isascii()


def test_ranks_that_were_told_to_stop_are_no_failure() -> None:
    def ranks(model: RunModel) -> tuple[str, str]:
        head = Head("otter", model, Metrics(), NOW - 761, NOW)
        return next(part.pieces[1] for part in TopBar().parts(head) if part.pieces[0][0] == "ranks ")

    assert ranks(states()["stopped"][0]) == ("0/4", "strong")
    failed = running(1, 2)
    exits(failed, 1)
    assert ranks(failed) == ("1/2", "bad")


def test_the_clock_of_a_run_that_is_over_stands_where_it_ended() -> None:
    model = running(1, 1)
    exits(model, 0, 0, ago=61)
    happens(model, "gpu01", "ended")
    assert "  00:11:40  " in shown(model)


def test_a_recorded_run_has_no_links_and_says_so() -> None:
    line = shown(running(1, 1), recorded=True)
    assert "? recorded" in line
    assert "link" not in line


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00:00"), (3661.9, "01:01:01"), (90_061, "1d 01:01:01")]
)
def test_elapsed(seconds: float, text: str) -> None:
    assert elapsed_text(seconds) == text


def test_words_of_a_node_are_harmless() -> None:
    evil = "a\x1b]0;x\x07\u202e"
    model = running([evil], 1)
    happens(model, evil, "rank_lost", 1 << 36, rank=0, why=evil)
    happens(model, evil, "ended")
    metrics = Metrics()
    metrics.feed(0, b"step 1e999 loss nan step_time 1e999\nstep 99999999999999999999 loss inf\n", NOW)
    text = shown(model, metrics, run=evil, width=200)
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
