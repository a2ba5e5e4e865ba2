"""The banner says who failed first, why, what came of it, and what will happen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from cockpit.core.finding import Finding
from cockpit.core.logs.causes import cause as find
from cockpit.core.nccl.findings import notable
from cockpit.core.nccl.reading import Reader
from cockpit.core.ranks import ranks_text
from cockpit.core.rules.explanation import translated
from cockpit.core.rules.table import table
from cockpit.core.run.failure import failure, gone
from cockpit.core.run.first import LoggedEnd
from cockpit.core.run.model import RunModel
from cockpit.tui.panes.line import Part, fit
from cockpit.tui.run import failure_banner
from cockpit.tui.run.failure_banner import LABEL, FailureBanner
from tests.nccl.samples import SOCKET_2_10
from tests.tui.models import NOW, Around, exits, happens, running

LOG = b"""Traceback (most recent call last):
  File "/work/train.py", line 188, in forward
    scores = attention.softmax(scores)
  File "/work/attention.py", line 71, in softmax
    return scores.exp()
RuntimeError: softmax of nothing
"""
KEYS = {"stop": "x", "keep": "K", "failed_log": "F"}


class Banner(Around[FailureBanner]):
    """Counts clicks."""

    def on_failure_banner_pressed(self) -> None:
        self.told.append("pressed")


def heard(log: bytes) -> LoggedEnd:
    return LoggedEnd(find(log))


def shown(
    model: RunModel,
    log: bytes = LOG,
    stops_in: float | None = None,
    width: int = 140,
    last_words: bytes = b"",
    beside: Sequence[Finding] = (),
    lang: str = "en",
) -> list[str]:
    """Its lines.

    :param last_words: of ranks that failed at once with the first one
    """
    app = Banner(FailureBanner(run="my run", keys=KEYS.__getitem__, lang=lang))

    async def main() -> list[str]:
        async with app.run_test(size=(width, 10)) as pilot:
            first = model.first_failure()
            cause = failure(model, "run", lambda rank: heard(log if rank is first else last_words))
            stops_at = None if stops_in is None else NOW + stops_in
            app.widget.show(model, cause and translated(cause, lang), stops_at, NOW, beside)
            await pilot.pause()
            assert app.widget.size.height == len(app.widget.lines)
            return app.lines()

    return asyncio.run(main())


def crashed() -> RunModel:
    """Rank 13 fails; 2.2 s later its launcher ends the other ranks of the node."""
    model = running(8, 8)
    exits(model, 13, ago=4.25)
    for rank in (8, 9, 10, 11, 12, 14, 15):
        exits(model, rank, None, 15, ago=2.0)
    return model


def test_nothing_failed_nothing_shown() -> None:
    assert shown(running(2, 2)) == []


def test_memory_that_is_about_to_be_full_until_a_rank_fails() -> None:
    model = running(4, 8)
    for number, node in enumerate(("gpu02", "gpu01", "gpu04")):
        filling = {"used_bytes": 91e9, "limit_bytes": 96e9, "bytes_s": 5e8, "over_s": 700}
        sizes = {name: int(size) for name, size in filling.items()}
        ranks = {str(8 + rank): 6e7 for rank in range(8)} if node == "gpu02" else {}
        at = NOW + 120 * (1 + number)
        happens(model, node, "filling", of="/job_7/step_0", full_at=at, ranks=ranks, **sizes)
    assert [line.rstrip() for line in shown(model, width=178)] == [
        "▌ memory of gpu02 is full in about 2 min (limit of SLURM step 7.0: 96 GB)"
        "  ranks 8-15 grow by 3.6 GB per minute each",
        "▌ memory of gpu01 is full in about 4 min (limit of SLURM step 7.0: 96 GB)",
        "▌ and 1 more",
    ]
    assert shown(model, width=40)[0] == "▌ memory of gpu02 is full in about 2 m…"
    exits(model, 9, None, 9)
    lines = shown(model, b"step 4\n")
    assert lines[0].startswith("▌ rank 9 failed first")
    why = "▌ apparently killed by the kernel: its memory was approaching the limit of SLURM step 7.0 (91 GB"
    assert lines[1].startswith(why)


def test_notices_the_worst_first() -> None:
    model = running(2, 2)
    evidence = ["1.2 steps/s, usually 1.94 in this run", "rank 3 is 52% slower than the median rank"]
    slow: dict[str, Any] = {
        "what": "throughput is 38% below usual",
        "evidence": evidence,
        "certainty": "likely",
    }
    happens(model, "", "notice", id="throughput", since=NOW, **slow)
    full: dict[str, Any] = {
        "what": "the disk of the run folder on gpu01 is full",
        "due": NOW + 720,
        "certainty": "likely",
    }
    happens(model, "", "notice", id="disk", of="gpu01", since=NOW, **full)
    lost: dict[str, Any] = {
        "what": "the loss is NaN since step 4,120",
        "certainty": "sure",
        "severity": "error",
    }
    happens(model, "", "notice", id="loss", of="nan", since=NOW, **lost)
    lines = [line.rstrip() for line in shown(model)]
    assert lines[0].startswith("▌ the loss is NaN since step 4,120  since ")
    assert lines[1].startswith("▌ the disk of the run folder on gpu01 is full in about 12 min")
    assert lines[2] == "▌ and 1 more"
    happens(model, "", "notice", id="loss", of="nan", over=True)
    lines = [line.rstrip() for line in shown(model)]
    assert lines[1] == (
        "▌ throughput is 38% below usual  rank 3 is 52% slower than the median rank"
        "  1.2 steps/s, usually 1.94 in this run"
    )


def by_nccl(lang: str = "en") -> tuple[Finding, ...]:
    reader = Reader()
    reader.take(SOCKET_2_10.encode())
    return notable(reader.table(), lang)


def test_what_nccl_says_is_wrong_is_not_urgent() -> None:
    model = running(2, 2)
    (line,) = shown(model, beside=by_nccl())
    assert line.rstrip() == (
        "▌ NCCL uses docker0 on n01  --env NCCL_SOCKET_IFNAME=eth0: the interface between the nodes "
        "(cockpit run: --env)"
    )
    assert shown(model, beside=by_nccl(), width=80)[0].endswith("n01  --env NCCL_SOCKET_IFNAME=eth0")
    for node in ("gpu01", "gpu02"):
        full: dict[str, Any] = {"what": f"the disk of the run folder on {node} is full", "due": NOW + 720}
        happens(model, "", "notice", id="disk", of=node, since=NOW, certainty="likely", **full)
    lines = shown(model, beside=by_nccl())
    assert not any("docker0" in line for line in lines)
    assert lines[2].rstrip() == "▌ and 1 more"
    exits(model, 1)
    assert not any("docker0" in line or "more" in line for line in shown(model, beside=by_nccl()))


def test_in_chinese_it_fits_too() -> None:
    row = table().by_id["on-bridge"]
    lines = shown(running(2, 2), beside=by_nccl("zh"), lang="zh", width=80)
    assert [line.rstrip() for line in lines] == [f"▌ {row.zh}"]
    (wide,) = shown(running(2, 2), beside=by_nccl("zh"), lang="zh", width=100)
    assert wide.rstrip() == f"▌ {row.zh}  --env NCCL_SOCKET_IFNAME=eth0"
    full = b"OSError: [Errno 28] No space left on device: '/work/checkpoints/latest.pt'\n"
    failed = shown(crashed(), full, lang="zh", width=80)
    row = table().by_id["disk-full"]
    assert failed[2].startswith(f"▌ 含义   {row.zh}"[:30])
    assert failed[-2].startswith(f"▌ 接下来 {row.next[0].command}")
    assert cell_len("含义   ") == cell_len("接下来 ") == LABEL
    assert all(cell_len(line) <= 80 for line in (*lines, *failed))


def test_what_to_type_about_a_notice_where_there_is_room() -> None:
    model = running(2, 2)
    happens(
        model, "gpu02", "filling", of="", full_at=NOW + 120, used_bytes=91, limit_bytes=96, ranks={"3": 1.0}
    )
    wide = shown(model, width=300)[0].rstrip()
    assert wide.endswith("  cockpit ps 'my run': memory of each rank now")
    assert "cockpit ps" not in shown(model, width=120)[0]


def test_a_rank_of_a_foreign_job_that_is_gone() -> None:
    model = running(2, 2)
    happens(model, "gpu02", "rank_gone", NOW - 60, rank=3, pid=41_003)
    assert shown(model) == []
    cause = gone(model, "run", lambda rank: heard(LOG if rank.rank == 3 else b""), lambda rank: True)
    app = Banner(FailureBanner(run="my run", keys=KEYS.__getitem__))

    async def main() -> list[str]:
        async with app.run_test(size=(140, 10)) as pilot:
            app.widget.show(model, cause, None, NOW)
            await pilot.pause()
            return app.lines()

    assert [line.rstrip() for line in asyncio.run(main())] == [
        "▌ rank 3 is gone; its log ends with an error  gpu02, local rank 1 · at 04:03:41.0"
        "  how it ended is not known",
        "▌ RuntimeError: softmax of nothing  train.py:188 forward → attention.py:71 softmax  F: its log",
    ]


def test_what_the_end_of_a_job_killed_has_not_failed() -> None:
    model = running(2, 2)
    for rank in range(3):
        exits(model, rank, None, (15, 9, 15)[rank], ago=3 - rank)
    happens(model, "", "job_ended", NOW, why="SLURM ended job 12 at its time limit\x1b[2J")
    assert shown(model) == ["▌ SLURM ended job 12 at its time limit\\x1b[2J"]
    exits(model, 3, 1, ago=90)
    assert shown(model)[0].startswith("▌ rank 3 failed first")


def test_who_why_and_what_next() -> None:
    assert shown(crashed(), stops_in=21) == [
        "▌ rank 13 failed first  gpu02, local rank 5 · exited 1 at 04:04:36.7  2.2 s before any other",
        "▌ RuntimeError: softmax of nothing  train.py:188 forward → attention.py:71 softmax  F: its log",
        "▌ then 7 ranks (8-12,14-15) on gpu02 killed by SIGTERM"
        "  the other ranks stop in 21 s · x now · K keep them running",
    ]


def test_what_it_means_and_what_to_type() -> None:
    full = b"OSError: [Errno 28] No space left on device: '/work/checkpoints/latest.pt'\n"
    lines = shown(crashed(), full, width=80)
    row = table().by_id["disk-full"]
    said = " ".join(line.removeprefix("▌").removeprefix(" means").strip() for line in lines[2:-2])
    assert row.means.startswith(said.removesuffix("…"))
    assert lines[2].startswith("▌ means  ")
    assert lines[-2].startswith(f"▌ next   {row.next[0].command}")
    assert shown(crashed(), full)[-2].endswith("F: its log")
    assert lines[-1].startswith("▌ then 7 ranks")
    assert all(cell_len(line) <= 80 for line in lines)


def test_a_victim_that_was_recorded_before_is_not_the_first() -> None:
    model = running(2, 2)
    exits(model, 2, 1, ago=4.0)
    exits(model, 1, 3, ago=3.6)
    closed = b"[../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:4711"
    lines = shown(model, LOG.replace(b"softmax of nothing", closed), last_words=LOG)
    assert lines[0].startswith("▌ rank 1 failed first")
    assert "softmax of nothing" in lines[1]


def test_of_a_long_path_in_the_cause_the_middle_goes() -> None:
    path = "/scratch/ada/experiments/2026/run-7/epoch-12/optim.pt"
    log = f"FileNotFoundError: No such file or directory: '{path}'\n"
    (_, why, _) = shown(crashed(), log.encode(), width=80)
    assert why == "▌ FileNotFoundError: No such file or directory: '/scratch/…/epoch-12/optim.pt'"


def test_times_are_compared_on_one_clock() -> None:
    model = running(2, 1)
    happens(model, "gpu01", "clock", offset_s=60.0, rtt_s=0.01)
    exits(model, 0, ago=-50.0)  # ten seconds ago, on a clock that is a minute ahead
    exits(model, 1, ago=7.0)
    first = shown(model)[0]
    assert first.startswith("▌ rank 0 failed first  gpu01, local rank 0 · exited 1 at 04:04:31.0")
    assert first.endswith("3.0 s before any other")


def test_the_others_in_groups_the_largest_first() -> None:
    model = running(4, 4)
    exits(model, 0, ago=9)
    for rank, code in ((1, 2), (2, 3), (3, 3), (4, 4), (5, 5), (6, 5), (7, 5)):
        exits(model, rank, code, ago=5)
    line = shown(model, width=200)[2]
    assert "then 3 ranks (5-7) on gpu02 exited 5; 2 ranks (2-3) on gpu01 exited 3; 1 rank" in line
    assert "; 1 more" in line


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ({}, "the other ranks keep running · x stops them"),
        ({"reason": "x"}, "stopping the other ranks"),
    ],
)
def test_what_will_happen_without_a_countdown(before: dict[str, Any], says: str) -> None:
    model = running(2, 2)
    exits(model, 1)
    if before:
        happens(model, "", "stop_asked", by="ada", hard=False, **before)
    assert shown(model)[-1].endswith(says)


def test_nothing_will_happen_to_a_run_that_is_over() -> None:
    model = running(1, 1)
    exits(model, 0)
    happens(model, "gpu01", "ended")
    assert len(shown(model)) == 2


def test_a_stop_that_is_due_counts_no_further() -> None:
    assert "stop in 0 s" in shown(crashed(), stops_in=-3)[2]


@pytest.mark.parametrize(
    ("signal", "says"),
    [
        (None, "no traceback in what was fetched of its output"),
        (9, "killed from outside"),
        (15, "it was killed from outside"),
        (11, "it crashed in native code, without a traceback"),
    ],
)
def test_without_a_cause_the_way_it_ended_tells_something(signal: int | None, says: str) -> None:
    model = running(1, 2)
    exits(model, 0, 1 if signal is None else None, signal)
    assert says in shown(model, b"")[1]


def test_for_want_of_room_the_least_important_goes() -> None:
    assert shown(crashed(), stops_in=21, width=80) == [
        "▌ rank 13 failed first  gpu02 · exited 1  2.2 s before any other",
        "▌ RuntimeError: softmax of nothing  attention.py:71 softmax  F: its log",
        "▌ then 7 ranks failed  rest stops in 21 s · x now · K keep",
    ]
    assert shown(crashed(), stops_in=21, width=40) == [
        "▌ rank 13 failed first",
        "▌ RuntimeError: softmax of nothing",
        "▌ rest stops in 21 s · x now · K keep",
    ]


def test_a_click_asks_for_the_log() -> None:
    app = Banner(FailureBanner(run="my run", keys=KEYS.__getitem__))

    async def main() -> None:
        async with app.run_test(size=(80, 10)) as pilot:
            app.widget.show(crashed(), None, None, NOW)
            await pilot.pause()
            await pilot.click(app.widget, offset=(4, 1))

    asyncio.run(main())
    assert app.told == ["pressed"]


def test_it_goes_when_the_rank_is_started_again() -> None:
    app = Banner(FailureBanner(run="my run", keys=KEYS.__getitem__))
    model = running(1, 1)
    exits(model, 0)

    async def main() -> None:
        async with app.run_test(size=(80, 10)) as pilot:
            app.widget.show(model, None, None, NOW)
            await pilot.pause()
            assert app.widget.size.height == 2
            happens(model, "gpu01", "rank_started", rank=0, attempt=1)
            app.widget.show(model, None, None, NOW)
            await pilot.pause()
            assert not app.widget.display

    asyncio.run(main())


def test_words_of_a_node_are_harmless() -> None:
    evil = "\x1b]0;x\x07[/b]\u202e"
    model = running([f"gpu{evil}", "b"], 2)
    happens(model, f"gpu{evil}", "rank_lost", NOW - 3, rank=0, why=evil)
    happens(model, "b", "rank_lost", NOW - 2, rank=2, why=evil)
    log = f'Traceback (most recent call last):\n  File "/work/{evil}.py", line 1, in f\nValueError: {evil}\n'
    text = "".join(shown(model, log.encode()))
    assert "ValueError: " in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "[/b]" in text


def test_thousands_of_ranks_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def noted(ranks: Sequence[int]) -> str:
        told.append(len(ranks))
        return ranks_text(ranks)

    monkeypatch.setattr(failure_banner, "ranks_text", noted)
    model = running(256, 8)
    for rank in model.ranks:
        exits(model, rank, ago=1)
    banner = FailureBanner(keys=KEYS.__getitem__)
    banner.show(model, None, None, NOW)
    assert told == [256 * 8 - 1]
    banner.show(model, None, None, NOW + 1)
    assert len(told) == 1
    exits(model, 9, 3)
    banner.show(model, None, None, NOW + 1)
    assert len(told) > 1


# Lines of parts


def test_parts_make_room_by_their_rank() -> None:
    parts = [
        Part((("first", ""),), 1),
        Part((("long words", ""),), 2, Part((("less", ""),), 2)),
        Part((("last", ""),), 3),
    ]
    texts = {width: "".join(text for text, _ in fit(parts, width)) for width in (25, 23, 17, 11, 5, 4, 0)}
    assert texts == {
        25: "first  long words  last",
        23: "first  long words  last",
        17: "first  less  last",
        11: "first  less",
        5: "first",
        4: "fir…",
        0: "",
    }


PARTS = st.lists(
    st.builds(
        Part,
        st.lists(st.tuples(st.text(max_size=12), st.just("")), max_size=3).map(tuple),
        st.integers(0, 5),
    ),
    max_size=6,
)


@given(PARTS, st.integers(0, 60))
@example([Part((("000000", ""), ("000000", ""), ("000\xad", "")))], 15)
def test_a_line_never_takes_more_than_there_is(parts: list[Part], width: int) -> None:
    assert sum(cell_len(text) for text, _ in fit(parts, width)) <= width
